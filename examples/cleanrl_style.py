"""PPO on CartPole in one file, in the style of CleanRL, with rido.evaluate between updates.

python examples/cleanrl_style.py            trains for 50 updates, about a minute
python examples/cleanrl_style.py --updates 2
"""

import argparse

import gymnasium as gym
import torch
from torch import nn
from torch.distributions import Categorical

import rido

ENV, NUM_ENVS, STEPS = "CartPole-v1", 8, 128
GAMMA, LAMBDA, EPOCHS, MINIBATCH, CLIP = 0.99, 0.95, 4, 256, 0.2


def network(outputs, scale):
    """Return two hidden layers with CleanRL's initialisation."""
    layers = [nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, outputs)]
    for layer in layers[::2]:
        nn.init.orthogonal_(layer.weight, scale if layer is layers[-1] else 2**0.5)
        nn.init.zeros_(layer.bias)
    return nn.Sequential(*layers)


class Agent(nn.Module):
    """Actor and critic."""

    def __init__(self):
        super().__init__()
        self.actor, self.critic = network(2, 0.01), network(1, 1.0)

    @torch.no_grad()
    def act(self, observations):
        """Return the most likely actions for a batch of observations, numpy in and out: a policy for rido."""
        return self.actor(torch.as_tensor(observations)).argmax(dim=1).numpy()


@torch.no_grad()
def collect(agent, envs, observations):
    """Take STEPS steps in all environments; return the batch with advantages and returns, and the last observations."""
    seen, actions, log_probs, rewards, values, dones = [], [], [], [], [], []
    for _ in range(STEPS):
        distribution = Categorical(logits=agent.actor(torch.as_tensor(observations)))
        action = distribution.sample()
        seen.append(torch.as_tensor(observations))
        actions.append(action)
        log_probs.append(distribution.log_prob(action))
        values.append(agent.critic(seen[-1])[:, 0])
        observations, reward, terminated, truncated, _ = envs.step(action.numpy())
        rewards.append(torch.as_tensor(reward, dtype=torch.float32))
        dones.append(torch.as_tensor(terminated | truncated, dtype=torch.float32))
    following, advantage, advantages = agent.critic(torch.as_tensor(observations))[:, 0], 0.0, []
    for reward, value, done in zip(reversed(rewards), reversed(values), reversed(dones), strict=True):
        advantage = reward + GAMMA * (1 - done) * following - value + GAMMA * LAMBDA * (1 - done) * advantage
        advantages.append(advantage)
        following = value
    advantages = torch.cat(advantages[::-1])
    columns = [torch.cat(column) for column in (seen, actions, log_probs, values)]
    return *columns[:3], advantages, advantages + columns[3], observations


def update(agent, optimizer, seen, actions, log_probs, advantages, returns):
    """Take PPO's gradient steps on one batch."""
    for _ in range(EPOCHS):
        for rows in torch.randperm(len(seen)).split(MINIBATCH):
            distribution = Categorical(logits=agent.actor(seen[rows]))
            ratio = (distribution.log_prob(actions[rows]) - log_probs[rows]).exp()
            gain = (advantages[rows] - advantages[rows].mean()) / (advantages[rows].std() + 1e-8)
            policy_loss = -torch.minimum(gain * ratio, gain * ratio.clamp(1 - CLIP, 1 + CLIP)).mean()
            value_loss = (agent.critic(seen[rows])[:, 0] - returns[rows]).square().mean()
            optimizer.zero_grad()
            (policy_loss + 0.25 * value_loss - 0.01 * distribution.entropy().mean()).backward()
            nn.utils.clip_grad_norm_(agent.parameters(), 0.5)
            optimizer.step()


def main(updates=50, every=10, budget=5000, seed=0):
    """Train; return the agent and the evaluations."""
    torch.manual_seed(seed)
    agent, results = Agent(), []
    optimizer = torch.optim.Adam(agent.parameters(), lr=2.5e-4, eps=1e-5)
    envs = gym.make_vec(ENV, NUM_ENVS, vectorization_mode="sync")
    observations, _ = envs.reset(seed=seed)
    for count in range(1, updates + 1):
        *batch, observations = collect(agent, envs, observations)
        update(agent, optimizer, *batch)
        if count % every == 0 or count == updates:
            result = rido.evaluate(ENV, agent.act, budget=budget, gamma=1.0, seed=seed)
            low, high = result.interval()
            print(
                f"step {count * STEPS * NUM_ENVS}: mean return {result.value:.1f}, 95% interval [{low:.1f}, {high:.1f}]"
            )
            results.append(result)
    envs.close()
    return agent, results


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="PPO on CartPole, evaluated by rido.")
    parser.add_argument("--updates", type=int, default=50)
    main(parser.parse_args().updates)
