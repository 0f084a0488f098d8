"""The light recipes of docs/recipes.md, run as they stand there; benchmarks/combinations runs all of them."""

import sys
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest

from helpers import needs
from rido.simulators.gymnasium import GymnasiumSimulator

ROOT = Path(__file__).resolve().parents[2]
SEEDS, HORIZON = list(range(12)), 20


@pytest.fixture(scope="module")
def recipes():
    sys.path.insert(0, str(ROOT / "benchmarks" / "combinations"))
    import recipes

    sys.path.pop(0)
    return recipes


def rollout(policy, num_envs=5, **settings):
    simulator = GymnasiumSimulator("CartPole-v1", policy, horizon=HORIZON, num_envs=num_envs, **settings)
    return simulator.rollout(np.full(len(SEEDS), HORIZON), SEEDS).steps


def loop(act):
    """Lengths of the same trajectories, one observation at a time; ``act(observation, first)`` returns an action."""
    env, lengths = gym.make("CartPole-v1"), []
    for seed in SEEDS:
        observation, _ = env.reset(seed=seed)
        for step in range(HORIZON):
            observation, _, terminated, *_ = env.step(act(observation, step == 0))
            if terminated:
                break
        lengths.append(step + 1)
    return lengths


def test_functions(recipes):
    expected = loop(lambda seen, first: int(seen[2] > 0))
    for heading in ("A function of batches", "A function of one observation"):
        np.testing.assert_array_equal(rollout(recipes.policy(heading)), expected)
    drawing = recipes.policy("A function of one observation", 1)
    np.testing.assert_array_equal(rollout(drawing), rollout(drawing, num_envs=1))


def test_torch(recipes):
    torch = needs("torch", "sb3")
    torch.manual_seed(0)
    network = recipes.policy("A torch module", torch=torch)
    expected = loop(lambda seen, first: int(network(torch.as_tensor(seen)).argmax()))
    np.testing.assert_array_equal(rollout(network), expected)
    actor = recipes.policy("A torch module", 1, torch=torch)
    np.testing.assert_array_equal(rollout(actor, deterministic=False), rollout(actor, num_envs=1, deterministic=False))
    gru, memory = recipes.policy("A recurrent policy", torch=torch), {}

    def act(seen, first):
        scores, memory["state"] = gru(torch.as_tensor(seen)[None], None if first else memory["state"], None)
        return int(scores.argmax())

    np.testing.assert_array_equal(rollout(gru), loop(act))


def test_cleanrl(recipes, tmp_path, monkeypatch):
    torch = needs("torch", "sb3")
    torch.manual_seed(0)
    monkeypatch.chdir(tmp_path)

    class Agent(torch.nn.Module):
        def __init__(self, envs):
            super().__init__()
            self.actor = torch.nn.Linear(4, 2, bias=False)

        def get_action_and_value(self, x):
            distribution = torch.distributions.Categorical(logits=self.actor(x))
            action = distribution.sample()
            return action, distribution.log_prob(action), distribution.entropy(), None

    saved = Agent(None)
    torch.save(saved.state_dict(), "agent.cleanrl_model")
    policy = recipes.policy("CleanRL", torch=torch, Agent=Agent, envs=None)
    weights = saved.actor.weight.detach().numpy()
    np.testing.assert_array_equal(rollout(policy), loop(lambda seen, first: int((weights @ seen).argmax())))
    sampled = recipes.policy("CleanRL", 1, torch=torch, agent=saved)
    found = rollout(sampled, deterministic=False)
    np.testing.assert_array_equal(found, rollout(sampled, num_envs=2, deterministic=False))
    assert not np.array_equal(found, rollout(policy))


def test_flax(recipes):
    jax = needs("jax", "jax")
    linen = pytest.importorskip("flax.linen", reason="flax is missing: pip install --group test")
    network = linen.Dense(2, use_bias=False)
    params = network.init(jax.random.key(0), np.zeros((1, 4), np.float32))
    weights = np.asarray(params["params"]["kernel"])
    policy = recipes.policy("Flax and Brax", jax=jax, network=network, params=params)
    np.testing.assert_array_equal(rollout(policy), loop(lambda seen, first: int((seen @ weights).argmax())))


def test_every_recipe_is_run_somewhere(recipes):
    """Each heading with a block is named in this file or in the benchmark."""
    sources = [Path(__file__), *(ROOT / "benchmarks" / "combinations").glob("*.py")]
    text = "".join(path.read_text(encoding="utf-8") for path in sources)
    by_path = {"Stable-Baselines3 and sb3-contrib", "The Hugging Face hub", "ONNX"}  # their block is a file's name
    assert [heading for heading in recipes.blocks() if f'"{heading}"' not in text and heading not in by_path] == []
