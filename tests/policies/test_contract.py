"""What every policy promises to a simulator, over every kind of policy that a user may pass."""

from functools import partial

import gymnasium as gym
import numpy as np
import pytest

from agentfiles import agent_file
from rido.policies.base import Policy
from rido.policies.loaders import LOADERS
from rido.simulators.gymnasium import GymnasiumSimulator

ENV = "Pendulum-v1"


def resolve(policy, **settings):
    """The policy that a simulator calls for what a user passed."""
    return GymnasiumSimulator(ENV, policy, horizon=5, num_envs=1, **settings).capabilities.load_policy()


def network(observations):
    """Matrix products, whose last bits depend on the batch size if nothing is done about it."""
    rng = np.random.default_rng(0)
    hidden = np.tanh(observations @ rng.normal(size=(3, 64)).astype(np.float32))
    return 2 * np.tanh(hidden @ rng.normal(size=(64, 1)).astype(np.float32))


def linear(observations):
    return np.clip(observations[:, 2:], -2, 2)


linear.rowwise = True


def noisy(observations, generators):
    return np.array([generator.uniform(-2, 2, size=1) for generator in generators])


class Proportional:
    """An object that is called."""

    def __init__(self, gain):
        self.gain = gain

    def __call__(self, observations):
        return np.clip(self.gain * observations[:, :1], -2, 2)


class Constant(Policy):
    """A policy as a loader would return it."""

    name = "constant"
    draws = False

    def __call__(self, observations, generators):
        return np.full((len(generators), 1), 0.5)


def one(observation):
    return np.clip(-observation[2:], -2, 2)


def one_that_draws(observation, generator):
    return generator.uniform(-2, 2, size=1)


def recurrent(observations, state, episode_start):
    state = observations if state is None else 0.5 * state + observations
    return np.clip(state[:, 2:], -2, 2), state


class Predictor:
    """An object with predict(), as scikit-learn's."""

    def predict(self, observations):
        return np.clip(observations[:, 2:], -2, 2)


def module(folder):
    torch = pytest.importorskip("torch", reason="needs the extra sb3")
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(3, 64), torch.nn.Tanh(), torch.nn.Linear(64, 1), torch.nn.Tanh())


def agent(folder):
    sb3 = pytest.importorskip("stable_baselines3", reason="needs the extra sb3")
    return sb3.PPO("MlpPolicy", ENV, seed=0, device="cpu")


def soft_actor(folder):
    sb3 = pytest.importorskip("stable_baselines3", reason="needs the extra sb3")
    return sb3.SAC("MlpPolicy", ENV, seed=0, device="cpu", buffer_size=10)


POLICIES = {
    "function": lambda folder: network,
    "function, row by row": lambda folder: linear,
    "function that draws": lambda folder: noisy,
    "one observation": lambda folder: one,
    "one observation that draws": lambda folder: one_that_draws,
    "recurrent": lambda folder: recurrent,
    "object": lambda folder: Proportional(1.5),
    "object with predict": lambda folder: Predictor(),
    "torch module": module,
    "Policy": lambda folder: Constant(),
    "random": lambda folder: "random",
    "module:attribute": lambda folder: f"{__name__}:network",
    "SB3 model": agent,
    "SB3 model with Q": soft_actor,
    "shipped": lambda folder: "rido:pendulum",
    **{suffix: partial(agent_file, suffix=suffix) for suffix in LOADERS},
    "path as text": lambda folder: str(agent_file(folder, ".npz")),
}
VALUED = ("SB3 model", "SB3 model with Q", "shipped", ".zip", ".npz", "path as text")


@pytest.fixture(params=POLICIES)
def given(request, tmp_path):
    return POLICIES[request.param](tmp_path)


@pytest.fixture(params=[True, False], ids=["deterministic", "sampling"])
def policy(request, given):
    return resolve(given, deterministic=request.param)


def observations(rows):
    angles = np.random.default_rng(rows).uniform(-3, 3, (rows, 2)).astype(np.float32)
    return np.column_stack([np.cos(angles[:, 0]), np.sin(angles[:, 0]), angles[:, 1]])


def generators(rows):
    return [np.random.default_rng([5, row]) for row in rows]


@pytest.mark.parametrize("rows", [1, 2, 8, 19])
def test_one_action_of_the_environment_for_each_observation(policy, rows):
    actions = policy(observations(rows), generators(range(rows)))
    space = gym.make(ENV).action_space
    assert actions.shape == (rows, *space.shape)
    assert all(space.contains(action.astype(space.dtype)) for action in actions)


def test_an_action_depends_on_its_own_observation_and_generator_only(policy):
    assert policy.reproducible
    seen = observations(21)
    together = policy(seen, generators(range(21)))
    np.testing.assert_array_equal(policy(seen, generators(range(21))), together)
    for chosen in ([4], [20, 0], np.random.default_rng(0).permutation(21)):
        np.testing.assert_array_equal(policy(seen[chosen], generators(chosen)), together[chosen])


def test_a_policy_that_draws_nothing_needs_no_generators(policy):
    used = generators(range(11))
    policy(observations(11), used)
    moved = [a.random() != b.random() for a, b in zip(used, generators(range(11)), strict=True)]
    assert all(moved) if policy.draws else not any(moved)
    if not policy.draws:
        assert policy(observations(11), [None] * 11).shape == (11, 1)


def test_name_and_fingerprint_say_which_policy_it_is(given, policy):
    again, other = resolve(given), resolve(lambda seen: np.zeros((len(seen), 1)))
    assert policy.name and isinstance(policy.name, str)
    assert policy.fingerprint == again.fingerprint != other.fingerprint
    assert len(policy.fingerprint) == 64


@pytest.mark.parametrize("given", [name for name in POLICIES if name not in VALUED], indirect=True)
def test_most_policies_have_no_value_function(policy):
    assert policy.value_function() is None


@pytest.mark.parametrize("given", VALUED, indirect=True)
def test_a_value_function_gives_a_finite_number_for_each_observation(policy):
    value = policy.value_function()
    values = value.infinite_horizon(observations(13))
    assert values.shape == (13,) and np.isfinite(values).all()
    assert 0 < value.discount <= 1
    if value.rowwise:
        np.testing.assert_array_equal(value.infinite_horizon(observations(13)[3:4]), values[3:4])
