"""The contract of every domain: seeds, resets, shapes."""

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AutoresetMode, SyncVectorEnv

import rido.envs
from rido.envs import ENV_IDS, default_policy

STEPS = 150  # more than two blocks of noise


def actions_for(env_id, observations, steps_taken):
    """Actions that depend on a row's own history only."""
    policy = default_policy(env_id, 0.9)
    if policy == "random":
        return (steps_taken % 2).astype(np.int64)
    return policy(observations)


def single_trajectory(env_id, seed, steps=STEPS):
    env = gym.make(env_id)
    observation, _ = env.reset(seed=seed)
    observations, rewards = [observation], []
    for step in range(steps):
        action = actions_for(env_id, observation[np.newaxis], np.array([step]))[0]
        observation, reward, terminated, truncated, _ = env.step(action)
        assert not terminated and not truncated
        observations.append(observation)
        rewards.append(reward)
    return np.array(observations), np.array(rewards)


@pytest.mark.parametrize("env_id", ENV_IDS)
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_single_environment_passes_gymnasiums_checker(env_id):
    check_env(gym.make(env_id).unwrapped, skip_render_check=True)


@pytest.mark.parametrize("env_id", ENV_IDS)
def test_registered_without_a_time_limit_and_without_autoreset(env_id):
    assert gym.spec(env_id).max_episode_steps is None
    envs = gym.make_vec(env_id, num_envs=2)
    assert envs.metadata["autoreset_mode"] == AutoresetMode.DISABLED
    rido.envs.register_envs()  # again: nothing happens


@pytest.mark.parametrize("env_id", ENV_IDS)
def test_a_trajectory_depends_on_its_seed_only(env_id):
    # Rows restart at different times, with seeds in another order than their rows: every trajectory must still be
    # the one that a single environment gives for its seed.
    reference = {seed: single_trajectory(env_id, seed) for seed in range(7)}
    envs = gym.make_vec(env_id, num_envs=3)
    seeds = [4, 0, 6]
    waiting = [1, 5, 2, 3]
    observations, infos = envs.reset(seed=list(seeds))
    assert infos == {}
    taken = np.zeros(3, dtype=int)
    limits = np.array([STEPS, 10, 70])
    for _ in range(STEPS):
        for row, seed in enumerate(seeds):
            assert np.array_equal(observations[row], reference[seed][0][taken[row]])
        observations, rewards, terminated, truncated, _ = envs.step(actions_for(env_id, observations, taken))
        assert not terminated.any() and not truncated.any()
        for row, seed in enumerate(seeds):
            assert rewards[row] == reference[seed][1][taken[row]]
        taken += 1
        done = taken == limits
        if done.any() and waiting:
            reseed = [None] * 3
            for row in np.flatnonzero(done):
                seeds[row] = reseed[row] = waiting.pop()
                taken[row] = 0
            observations, _ = envs.reset(seed=reseed, options={"reset_mask": done})
    assert not waiting


@pytest.mark.parametrize("env_id", ENV_IDS)
def test_agrees_with_gymnasiums_sync_vector_env(env_id):
    ours = gym.make_vec(env_id, num_envs=4)
    sync = SyncVectorEnv([lambda: gym.make(env_id)] * 4, autoreset_mode=AutoresetMode.DISABLED)
    assert ours.observation_space == sync.observation_space and ours.action_space == sync.action_space
    mask = np.array([True, False, False, True])
    resets = [
        {"seed": 5},
        {"seed": [9, None, None, 2], "options": {"reset_mask": mask}},
        {"seed": None, "options": {"reset_mask": mask}},
        {"seed": None},
    ]
    for reset in resets:
        a, _ = ours.reset(**reset)
        # Gymnasium takes the mask out of the dictionary it is given.
        b, _ = sync.reset(**{key: dict(part) if key == "options" else part for key, part in reset.items()})
        assert np.array_equal(a, b)
        for step in range(5):
            actions = actions_for(env_id, a, np.full(4, step))
            a, rewards, *_ = ours.step(actions)
            b, expected, *_ = sync.step(actions)
            assert np.array_equal(a, b) and np.array_equal(rewards, expected)


@pytest.mark.parametrize("env_id", ENV_IDS)
def test_returned_observations_stay_as_they_were(env_id):
    envs = gym.make_vec(env_id, num_envs=2)
    first, _ = envs.reset(seed=0)
    kept = first.copy()
    second, *_ = envs.step(actions_for(env_id, first, np.zeros(2, dtype=int)))
    moved = second.copy()
    envs.reset(options={"reset_mask": np.array([True, False])})
    assert np.array_equal(first, kept) and np.array_equal(second, moved)
    second += 100  # nor does a caller who scribbles on them change the trajectory
    third, _ = envs.reset(options={"reset_mask": np.array([True, False])})
    assert np.array_equal(third[1], moved[1])


def test_wrong_calls_are_refused():
    envs = gym.make_vec("rido/LQG-v0", num_envs=3)
    with pytest.raises(RuntimeError, match=r"step\(\) was called before reset\(\)"):
        envs.step(np.zeros((3, 1)))
    with pytest.raises(RuntimeError, match="before a reset of all"):
        envs.reset(options={"reset_mask": np.array([True, False, False])})
    envs.reset(seed=0)
    with pytest.raises(ValueError, match=r"actions must have shape \(3, 1\), got \(3,\)"):
        envs.step(np.zeros(3))
    with pytest.raises(ValueError, match="seed must have 3 entries, got 2"):
        envs.reset(seed=[1, 2])
    with pytest.raises(TypeError, match="reset_mask must be a numpy array of booleans"):
        envs.reset(options={"reset_mask": np.array([1, 0, 0])})
    with pytest.raises(ValueError, match="reset_mask must have shape"):
        envs.reset(options={"reset_mask": np.array([True])})
    with pytest.raises(ValueError, match="reset_mask must be True somewhere"):
        envs.reset(options={"reset_mask": np.zeros(3, dtype=bool)})
    with pytest.raises(ValueError, match="noise must be one of"):
        gym.make_vec("rido/LQG-v0", noise="sigma")
    with pytest.raises(ValueError, match=r"env_id must have a policy, as .*got 'Pendulum-v1'"):
        default_policy("Pendulum-v1", 0.9)


def test_default_policies():
    assert default_policy("rido.envs:rido/LQG-v0", 1.0).gain == pytest.approx((5**0.5 - 1) / 2)
    assert default_policy("rido/Navigation-v0", 1.0) is rido.envs.expert
    assert default_policy("rido/FirstStep-v0", 1.0) == default_policy("rido/LastStep-v0", 1.0, horizon=5) == "random"
