import gymnasium as gym
import numpy as np
import pytest

ROWS = 20_000


def rewards_of(env_id, action, steps=12, **kwargs):
    envs = gym.make_vec(env_id, num_envs=ROWS, **kwargs)
    observations, _ = envs.reset(seed=0)
    rewards = np.empty((ROWS, steps))
    for step in range(steps):
        assert np.all(observations == step)
        observations, rewards[:, step], *_ = envs.step(np.full(ROWS, action))
    return rewards


@pytest.mark.parametrize("action, mean", [(0, 3.0), (1, 2.0)])
@pytest.mark.parametrize(
    "env_id, kwargs, paying",
    [
        ("rido/FirstStep-v0", {}, 0),
        ("rido/LastStep-v0", {}, 9),
        ("rido/FirstStep-v0", {"horizon": 4}, 0),
        ("rido/LastStep-v0", {"horizon": 4}, 3),
    ],
)
def test_one_step_pays(env_id, kwargs, paying, action, mean):
    # A mean off by more than 5 standard errors has probability 6e-7.
    rewards = rewards_of(env_id, action, **kwargs)
    assert np.all(np.delete(rewards, paying, axis=1) == 0)
    assert rewards[:, paying].mean() == pytest.approx(mean, abs=5 * np.sqrt(10 / ROWS))
    assert rewards[:, paying].var() == pytest.approx(10, rel=0.05)


def test_noise_as_deviation():
    rewards = rewards_of("rido/FirstStep-v0", 0, steps=1, noise="deviation")
    assert rewards.var() == pytest.approx(100, rel=0.05)


@pytest.mark.parametrize("env_id", ["rido/FirstStep-v0", "rido/LastStep-v0"])
def test_horizon_is_checked(env_id):
    with pytest.raises(ValueError, match="horizon must be an integer of at least 1, got 0"):
        gym.make(env_id, horizon=0)
