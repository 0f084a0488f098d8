"""What a drawn action was worth beside others, as a control variate: 0 on average, whatever Q says."""

import gymnasium as gym
import numpy as np
import pytest

import rido
from environments import Drawing, Urn
from helpers import needs
from rido.evaluation.recorded import read_run
from rido.policies.resolve import resolve_policy
from rido.simulators.gymnasium import GymnasiumSimulator

HORIZON, GAMMA = 12, 0.9
DISCOUNTS = GAMMA ** np.arange(HORIZON)


def runs(policy, count, **settings):
    options = {"gamma": GAMMA, "horizon": HORIZON, "budget": 30 * HORIZON, "critic": "auto", **settings}
    return [rido.evaluate(Urn, policy, seed=seed, **options) for seed in range(count)]


def test_the_estimate_is_unbiased_and_most_of_the_variance_of_actions_is_gone():
    """By chance the mean of 30 runs is off by 4.5 standard errors in one of 10,000 tests, and 7 intervals miss."""
    truth = 13.0 * DISCOUNTS.sum()
    told, untold = runs(Drawing(), 30), runs(Drawing(tells=False), 10)
    values = np.array([run.value for run in told])
    assert abs(values.mean() - truth) < 4.5 * values.std(ddof=1) / np.sqrt(values.size)
    assert sum(low < truth < high for low, high in (run.interval() for run in told)) > 23
    plain, helped = (np.mean([run.standard_error**2 for run in found]) for found in (untold, told))
    assert helped < 0.6 * plain  # other actions leave a quarter of the variance of actions


def test_workers_and_resumed_runs_say_the_same(tmp_path):
    (one,) = runs(Drawing(), 1)
    (two,) = runs(Drawing(), 1, workers=2)
    (stored,) = runs(Drawing(), 1, run=tmp_path / "run.rido")
    assert one.value == two.value == stored.value
    assert one.standard_error == two.standard_error == stored.standard_error
    assert read_run(tmp_path / "run.rido").evaluation.value == stored.value
    assert runs(Drawing(), 1, run=tmp_path / "run.rido")[0].value == stored.value


def test_dqn_compares_with_the_mean_over_its_exploration():
    model = needs("stable_baselines3", "sb3").DQN("MlpPolicy", "CartPole-v1", seed=0, device="cpu", buffer_size=10)
    model.exploration_rate = 0.3
    env = gym.make("CartPole-v1")
    policy = resolve_policy(
        model, observation_space=env.observation_space, action_space=env.action_space, deterministic=False
    )
    rows = np.random.default_rng(0).normal(size=(50, 4)).astype(np.float32)
    judged = np.array(
        [policy.value_function().advantages(rows, np.full(50, action), np.random.default_rng(1)) for action in (0, 1)]
    )
    values = model.q_net(model.policy.obs_to_tensor(rows)[0]).detach().numpy()
    np.testing.assert_allclose(judged[1] - judged[0], values[:, 1] - values[:, 0], atol=1e-5)
    chances = np.where(values == values.max(axis=1, keepdims=True), 0.85, 0.15)
    np.testing.assert_allclose((judged.T * chances).sum(axis=1), 0, atol=1e-5)
    greedy = resolve_policy(model, observation_space=env.observation_space, action_space=env.action_space)
    assert greedy.value_function().advantages is None


@pytest.mark.parametrize("name", ["SAC", "TQC"])
def test_the_actions_of_actors_are_worth_nothing_on_average(name):
    """By chance a mean is off by 4.5 standard errors in one of 100,000 tests."""
    library = needs("sb3_contrib" if name == "TQC" else "stable_baselines3", "sb3")
    model = getattr(library, name)("MlpPolicy", "Pendulum-v1", seed=0, device="cpu", buffer_size=10)
    simulator = GymnasiumSimulator("Pendulum-v1", model, horizon=50, deterministic=False)
    observed = simulator.observe(np.full(40, 50), range(40))
    before = np.delete(observed.observations, np.arange(50, 40 * 51, 51), axis=0)
    advantages = simulator.policy.value_function().advantages
    judged = advantages(before, observed.actions, np.random.default_rng(2))
    assert judged.std() > 1e-4
    assert abs(judged.mean()) < 4.5 * judged.std() / np.sqrt(judged.size)
    pairs = np.corrcoef(judged, advantages(before, observed.actions, np.random.default_rng(3)))
    assert pairs[0, 1] > 0.8  # the action itself, not the others it is compared with
    simulator.close()
