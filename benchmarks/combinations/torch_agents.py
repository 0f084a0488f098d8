"""Modules of torch: the user's own, with and without a state, and CleanRL's."""

import recipes
from common import FOLDER, mlp, perturb, seeded_torch


def module(env):
    torch, network = seeded_torch(), mlp(env)
    discrete = not env.action_space.shape

    def act(seen, first):
        with torch.no_grad():
            output = network(torch.as_tensor(seen, dtype=torch.float32)[None])[0]
        return int(output.argmax()) if discrete else output.numpy()

    return network, act


def documented_module(env, number=0):
    torch = seeded_torch()
    network = perturb(recipes.policy("A torch module", number, torch=torch), scale=0.5)

    def act(seen, first):
        with torch.no_grad():
            output = network(torch.as_tensor(seen)[None])
        return int(output.argmax() if number == 0 else output.sample()[0])

    return network, act


def dictionary_module(env):
    torch = seeded_torch()

    class Reacher(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.wind, self.move = torch.nn.Embedding(3, 2), torch.nn.Linear(4, 2)

        def forward(self, seen):
            moves = self.move(torch.cat([seen["position"], seen["goal"]], dim=-1))
            return torch.tanh(moves + self.wind(seen["wind"]))

    network = perturb(Reacher())

    def act(seen, first):
        tensors = {key: torch.as_tensor(part)[None] for key, part in seen.items()}
        return network(tensors)[0].detach().numpy()

    return network, act


def gru(env):
    torch = seeded_torch()
    network, memory = perturb(recipes.policy("A recurrent policy", torch=torch), seed=3), {}

    def act(seen, first):
        with torch.no_grad():
            state = torch.zeros(1, 32) if first else memory["state"]
            memory["state"] = network.cell(torch.as_tensor(seen)[None], state)
            return int(network.head(memory["state"]).argmax())

    return network, act


# CleanRL: the classes of ppo.py, ppo_continuous_action.py, ppo_atari.py and dqn.py


def cleanrl_ppo(env, sampled=False):
    torch = seeded_torch()

    class Agent(torch.nn.Module):
        def __init__(self, envs):
            super().__init__()
            self.critic = torch.nn.Linear(4, 1)
            self.actor = torch.nn.Sequential(torch.nn.Linear(4, 64), torch.nn.Tanh(), torch.nn.Linear(64, 2))

        def get_action_and_value(self, x, action=None):
            probs = torch.distributions.Categorical(logits=self.actor(x))
            action = probs.sample() if action is None else action
            return action, probs.log_prob(action), probs.entropy(), self.critic(x)

    saved, agent = perturb(Agent(None), scale=0.7), Agent(None)
    policy = _load_cleanrl(saved, Agent)
    if sampled:
        policy = recipes.policy("CleanRL", 1, torch=torch, agent=saved)
    agent.load_state_dict(saved.state_dict())

    def act(seen, first):
        with torch.no_grad():
            if sampled:
                return int(agent.get_action_and_value(torch.as_tensor(seen)[None])[0])
            return int(agent.actor(torch.as_tensor(seen)[None]).argmax())

    return policy, act


def _load_cleanrl(saved, kind):
    torch = seeded_torch()
    path = FOLDER / "agent.cleanrl_model"
    torch.save(saved.state_dict(), path)
    loading = _Loading(torch, path)
    return recipes.policy("CleanRL", torch=loading, Agent=kind, envs=None)


class _Loading:
    """Torch, with the path of the recipe's file."""

    def __init__(self, torch, path):
        self._torch, self._path = torch, path

    def load(self, name, **settings):
        return self._torch.load(self._path, **settings)


def cleanrl_continuous(env):
    torch = seeded_torch()
    inputs, outputs = env.observation_space.shape[0], env.action_space.shape[0]

    class Agent(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.actor_mean = torch.nn.Sequential(
                torch.nn.Linear(inputs, 64), torch.nn.Tanh(), torch.nn.Linear(64, outputs)
            )
            self.actor_logstd = torch.nn.Parameter(torch.zeros(1, outputs))

    agent = perturb(Agent())

    def act(seen, first):
        with torch.no_grad():
            return agent.actor_mean(torch.as_tensor(seen).float()[None])[0].numpy()

    return agent.actor_mean, act


def cleanrl_atari(env):
    torch = seeded_torch()

    class Agent(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.network = torch.nn.Sequential(
                torch.nn.Conv2d(4, 32, 8, stride=4),
                torch.nn.ReLU(),
                torch.nn.Conv2d(32, 64, 4, stride=2),
                torch.nn.ReLU(),
                torch.nn.Conv2d(64, 64, 3, stride=1),
                torch.nn.ReLU(),
                torch.nn.Flatten(),
                torch.nn.Linear(64 * 7 * 7, 128),
                torch.nn.ReLU(),
            )
            self.actor = torch.nn.Linear(128, env.action_space.n)

        def forward(self, images):
            return torch.distributions.Categorical(logits=self.actor(self.network(images / 255.0)))

    agent = Agent()

    def act(seen, first):
        with torch.no_grad():
            return int(agent(torch.as_tensor(seen)[None]).sample())

    return agent, act
