"""Simulators in JAX against their numpy and Gymnasium counterparts, and their sums against their rewards."""

import math
import os
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from helpers import counted_compilations

pytest.importorskip("jax", reason='jax is missing: pip install "rido[jax]"')

import jax
import jax.numpy as jnp

from rido import Estimate, RewardMoments, Schedule
from rido.core.summaries import SummedMoments
from rido.jax import JaxCritic, JaxEnv, JaxSimulator, adapt, lqg, navigation, pendulum
from rido.simulators import SimulationError, trajectory_seeds
from rido.simulators.envs.lqg import expected_return, value
from rido.simulators.envs.lqg import weights as lqg_weights
from rido.simulators.gymnasium import GymnasiumSimulator
from rido.simulators.jax import programs, summing
from rido.simulators.jax import simulator as jax_simulator
from rido.simulators.jax.device import Device, lengths_of, room
from rido.simulators.jax.seeds import join_seeds, make_seeds, seed_words, split_seeds

SOURCE = np.random.SeedSequence(5)
LQG = lqg()
HORIZON = 40


def swing(observation):
    return jnp.tanh(observation[2:] - 3 * observation[1:2])


def swing_numpy(observations):
    return np.tanh(observations[:, 2:] - 3 * observations[:, 1:2])


def stay(observation):
    return observation


def mortal(death):
    """Reward 1 a step; ends after each step with a given probability, and gives NaN afterwards."""

    def reset(key):
        return jnp.float32(0.0), jnp.zeros(1)

    def step(key, state, action):
        ended = jax.random.uniform(key) < death
        return jnp.where(ended, jnp.nan, state), jnp.zeros(1), 1.0 + state, ended

    return JaxEnv("Mortal", reset, step)


MORTAL = mortal(0.1)


def mixed_lengths(horizon, count, seed=0):
    return np.concatenate([[horizon] * 2, np.random.default_rng(seed).integers(1, horizon + 1, count - 2)])


def moments_of(simulator, horizon, count, gamma):
    moments = RewardMoments(horizon, gamma=gamma)
    moments.update(simulator.rollout(np.full(count, horizon), trajectory_seeds(3, 0, count)))
    return moments


def both_ways(simulator, horizon, gamma, batches=2):
    """The same trajectories once by their rewards and once by their sums."""
    rewards, sums, before, first = RewardMoments(horizon, gamma=gamma), SummedMoments(horizon, gamma=gamma), None, 0
    for batch in range(batches):
        schedule = Schedule.from_lengths(mixed_lengths(horizon, 150, seed=batch), horizon)
        seeds = make_seeds(seed_words(SOURCE, first), jnp.arange(schedule.trajectories))
        rewards.update(simulator.rollout(schedule.lengths, join_seeds(np.asarray(seeds))))
        before = simulator.summarise(schedule, SOURCE, first, before=before)
        sums.update(before.rewards)
        first += schedule.trajectories
    return rewards, sums


@pytest.mark.parametrize(("env", "policy"), [(LQG, None), (MORTAL, stay)], ids=["LQG", "early ends"])
def test_a_trajectory_depends_on_its_seed_only(env, policy):
    """What simulators/test_contract.py asks of all simulators; not there, because it forks and JAX has threads."""
    simulator = JaxSimulator(env, policy, horizon=HORIZON, gamma=0.9, num_envs=64)
    lengths, seeds = mixed_lengths(HORIZON, 50), np.asarray(trajectory_seeds(1, 0, 50))
    together = simulator.rollout(lengths, seeds)
    np.testing.assert_array_equal(together.lengths, lengths)
    order = np.random.default_rng(0).permutation(50)
    shuffled = simulator.rollout(lengths[order], seeds[order]).rewards[np.argsort(order)]
    full = simulator.rollout(np.full(50, HORIZON), seeds).rewards
    alone = simulator.rollout(lengths[7:8], seeds[7:8]).flat
    np.testing.assert_array_equal(alone, together.rewards[7, : lengths[7]])
    for row, length in enumerate(lengths):
        np.testing.assert_array_equal(together.rewards[row, :length], shuffled[row, :length])
        np.testing.assert_array_equal(together.rewards[row, :length], full[row, :length])
    with pytest.raises(ValueError, match="lengths must be from 1 to the horizon 40, got 41 to 41"):
        simulator.rollout(np.array([41]), [1])
    with pytest.raises(ValueError, match=r"seeds must be an integer for each of 2 trajectories, got \[1\]"):
        simulator.rollout(np.array([4, 4]), [1])


@pytest.mark.parametrize(
    ("env", "policy", "numpy_env", "numpy_policy"),
    [
        (LQG, None, "rido/LQG-v0", None),
        (navigation(), None, "rido/Navigation-v0", None),
        (pendulum(), swing, "Pendulum-v1", swing_numpy),
    ],
    ids=["LQG", "Navigation", "Pendulum"],
)
def test_domains_agree_with_the_numpy_ones_in_distribution(env, policy, numpy_env, numpy_policy):
    """Returns and every weight f_t over 2,000 trajectories each; one false alarm in 10,000."""
    horizon, gamma, count = 130 if "Nav" in numpy_env else 40, 0.99, 2000
    ours = moments_of(JaxSimulator(env, policy, horizon=horizon, gamma=0.9), horizon, count, gamma)
    theirs = moments_of(GymnasiumSimulator(numpy_env, numpy_policy, horizon=horizon, gamma=0.9), horizon, count, gamma)
    one, other = Estimate.from_moments(ours), Estimate.from_moments(theirs)
    assert abs(one.value - other.value) < 4.2 * math.hypot(one.standard_error, other.standard_error)
    folds = [moments.weights_by_fold(100) for moments in (ours, theirs)]
    weights, numpy_weights = (fold.sum(axis=0) for fold in folds)
    noise = sum(100 * fold.var(axis=0, ddof=1) for fold in folds)
    worst = np.abs(weights - numpy_weights) / np.sqrt(noise + 1e-9)
    assert worst.max() < stats.norm.isf(0.25e-4 / horizon) + 1  # one more for the tails of fourth moments


def test_lqg_agrees_with_its_closed_forms():
    """One false alarm in 15,000 for the value; weights within 15%, ten standard errors."""
    moments = moments_of(JaxSimulator(LQG, horizon=HORIZON, gamma=0.9), HORIZON, 20_000, 0.9)
    estimate = Estimate.from_moments(moments)
    assert abs(estimate.value - expected_return(HORIZON, 0.9)) < 4 * estimate.standard_error
    np.testing.assert_allclose(moments.weights()[:4], lqg_weights(HORIZON, 0.9)[:4], rtol=0.15)


@pytest.mark.parametrize("env", [LQG, MORTAL], ids=["LQG", "early ends"])
def test_sums_say_what_the_rewards_say(env):
    """Up to the single precision of the device."""
    policy = None if env is LQG else stay
    rewards, sums = both_ways(JaxSimulator(env, policy, horizon=HORIZON, gamma=0.9, num_envs=64), HORIZON, 0.9)
    np.testing.assert_array_equal(sums.counts, rewards.counts)
    np.testing.assert_array_equal(sums.survival, rewards.survival)
    for name in ("means", "variances"):
        np.testing.assert_allclose(getattr(sums, name), getattr(rewards, name), rtol=1e-5, atol=1e-6)
    scale = np.abs(rewards.weights()).max()
    for covariance in ("paired", "paper"):
        np.testing.assert_allclose(sums.weights(covariance), rewards.weights(covariance), rtol=1e-4, atol=1e-5 * scale)
    one, other = Estimate.from_moments(sums), Estimate.from_moments(rewards)
    assert one.value == pytest.approx(other.value, rel=1e-6)
    assert one.standard_error == pytest.approx(other.standard_error, rel=1e-4)


def test_slots_tiles_and_parts_do_not_change_the_sums(monkeypatch):
    """Slots that are filled again, many small tiles, and a schedule in parts as for billions of trajectories."""
    schedule = Schedule.from_lengths(mixed_lengths(HORIZON, 3000), HORIZON)
    one, other = (
        JaxSimulator(MORTAL, stay, horizon=HORIZON, gamma=0.9, num_envs=num_envs).summarise(schedule, SOURCE, 0).rewards
        for num_envs in (3000, 64)
    )
    monkeypatch.setattr(summing, "_TILE_CELLS", 1 << 15)
    monkeypatch.setattr(summing, "_PART", 256)
    assert len(list(summing.tiles(schedule.counts, 3000))) > 2
    simulator = JaxSimulator(MORTAL, stay, horizon=HORIZON, gamma=0.9, num_envs=64)
    for found in (other, simulator.summarise(schedule, SOURCE, 0).rewards):
        np.testing.assert_allclose(found.centred_on(one.centre).products, one.products, rtol=1e-4, atol=1e-2)
        np.testing.assert_array_equal(found.taken, one.taken)
    monkeypatch.setattr(jax_simulator, "_MOST_TRANSITIONS", schedule.transitions // 2)
    parts = simulator.summarise(schedule, SOURCE, 0).rewards
    np.testing.assert_array_equal(parts.planned, schedule.counts)
    assert parts.transitions != one.transitions  # other trajectories, each with its index, got other lengths
    assert abs(parts.transitions - one.transitions) < 0.1 * one.transitions


@pytest.mark.parametrize("env", [LQG, MORTAL], ids=["long ones among short ones", "early ends"])
def test_when_few_trajectories_are_left_fewer_slots_go_on(env, monkeypatch):
    count, policy = 1500, None if env is LQG else stay
    lengths = np.where(np.arange(count) < 20, HORIZON, 5 if env is LQG else HORIZON)
    seeds, left, narrow = trajectory_seeds(1, 0, count), [], programs._take_running

    def noted(slots, fewer):
        left.append((int(slots.running.sum()), fewer))
        return narrow(slots, fewer)

    monkeypatch.setattr(programs, "_take_running", noted)
    found = JaxSimulator(env, policy, horizon=HORIZON, gamma=0.9).rollout(lengths, seeds)
    assert len(left) == 1 and 0 < left[0][0] <= left[0][1] == 32
    monkeypatch.setattr(Device, "slots", lambda *given: (1024,))
    wanted = JaxSimulator(env, policy, horizon=HORIZON, gamma=0.9).rollout(lengths, seeds)
    np.testing.assert_array_equal(found.steps, wanted.steps)
    np.testing.assert_array_equal(found.flat, wanted.flat)
    assert len(left) == 1


def test_several_devices_share_the_trajectories():
    """Two of XLA's host devices, in a process of its own: the same trajectories, and the same sums up to rounding."""
    script = """
import jax, jax.numpy as jnp, numpy as np
from rido import Schedule
from rido.jax import JaxEnv, JaxSimulator
reset = lambda key: (jax.random.uniform(key, (1,)),) * 2
env = JaxEnv("Decay", reset, lambda key, state, action: (state * action, state, state[0], state[0] < 0.1))
schedule = Schedule(np.r_[np.full(5, 301), np.full(5, 100), 1])
def found():
    simulator = JaxSimulator(env, lambda observation: jnp.float32(0.8), horizon=11, num_envs=1024)
    return simulator.summarise(schedule, np.random.SeedSequence(5), 7).rewards
both, devices = found(), jax.local_devices()
assert len(devices) == 2
jax.local_devices = lambda: devices[:1]
one = found()
np.testing.assert_array_equal(both.taken, one.taken)
np.testing.assert_allclose(both.centred_on(one.centre).products, one.products, rtol=1e-3, atol=1e-3)
print("the same")
"""
    flags = {**os.environ, "XLA_FLAGS": "--xla_force_host_platform_device_count=2", "JAX_PLATFORMS": "cpu"}
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=flags)
    assert result.stdout == "the same\n", result.stderr[-2000:]


def test_parameters_are_arguments_of_programs_that_are_compiled_once():
    """A second policy of the same shape takes the programs of the first, and acts by its own parameters."""

    def apply(params, observation):
        return observation @ params["gain"]

    def returns(policy):
        simulator = JaxSimulator(pendulum(), policy, horizon=20, num_envs=64)
        return simulator.rollout(np.full(70, 20), trajectory_seeds(0, 0, 70)).rewards

    one, other = ({"gain": jnp.array([[0.0], [gain], [-1.0]])} for gain in (-1.0, -6.0))
    first = returns((apply, one))
    with jax.log_compiles(), counted_compilations() as compiled:
        second = returns((apply, other))
    assert not compiled
    np.testing.assert_allclose(second, returns(lambda observation: observation @ other["gain"]), rtol=1e-3, atol=1e-4)
    assert abs(first - second).max() > 0.1
    prints = {JaxSimulator(pendulum(), policy, horizon=20).fingerprint for policy in ((apply, one), (apply, other))}
    assert len(prints) == 2


def test_seeds_are_distinct_beyond_32_bits():
    words = [seed_words(SOURCE, index) for index in (0, 5, 1 << 31, 1 << 40)]
    found = [np.asarray(make_seeds(part, jnp.arange(8))) for part in words]
    np.testing.assert_array_equal(found[0][5:], found[1][:3])
    assert len(set(join_seeds(np.concatenate([found[0], *found[2:]])))) == 24


def test_seeds_do_not_repeat_among_millions():
    """Of 4.2 million 32-bit numbers about 2,050 repeat."""
    found = np.asarray(make_seeds(seed_words(SOURCE, 0), jnp.arange(1 << 22)))
    assert np.unique(found.view(np.uint64)).size == 1 << 22


def test_seeds_are_whole_keys():
    seeds = [*range(3), (1 << 32) - 1, 1 << 32, *trajectory_seeds(1, 0, 3)]
    assert join_seeds(split_seeds(seeds)) == seeds
    observations = JaxSimulator(LQG, horizon=HORIZON).starts([0, 1 << 32, 1 << 62])
    assert np.unique(observations).size == 3


def test_a_large_common_reward_costs_the_sums_no_digits():
    def step(key, state, action):
        return state, state, 1000.0 + jax.random.normal(key), jnp.bool_(False)

    env = JaxEnv("Offset", lambda key: (jnp.zeros(1), jnp.zeros(1)), step)
    rewards, sums = both_ways(JaxSimulator(env, stay, horizon=20, num_envs=16), 20, 1.0)
    np.testing.assert_allclose(sums.means, rewards.means, rtol=1e-7)
    np.testing.assert_allclose(sums.weights(), rewards.weights(), rtol=1e-3, atol=1e-3)


def test_early_ends_count_as_everywhere():
    simulator = JaxSimulator(MORTAL, stay, horizon=HORIZON, gamma=0.9, num_envs=64)
    lengths, seeds = mixed_lengths(HORIZON, 300), trajectory_seeds(0, 0, 300)
    batch = simulator.rollout(lengths, seeds)
    np.testing.assert_array_equal(batch.rewards.sum(axis=1), batch.steps)
    ended = batch.steps < lengths
    assert ended.any()
    # Survival is geometric; four standard errors, one false alarm in 15,000.
    share = np.mean(batch.steps[lengths >= 5] >= 5)
    assert abs(share - 0.9**4) < 4 * math.sqrt(0.9**4 * (1 - 0.9**4) / np.sum(lengths >= 5))
    observed = simulator.observe(lengths, seeds)
    assert observed.terminated[ended].all()
    assert len(observed.observations) == batch.transitions + len(batch)


def test_a_bad_reward_names_its_trajectory():
    def step(key, state, action):
        return state, jnp.zeros(1), jnp.where(jax.random.uniform(key) < 0.01, jnp.nan, 1.0), jnp.bool_(False)

    env = JaxEnv("Bad", lambda key: (jnp.zeros(1), jnp.zeros(1)), step)
    simulator = JaxSimulator(env, stay, horizon=20, num_envs=16)
    with pytest.raises(SimulationError, match=r"failed at step \d+ \(seed \d+\): the reward is nan") as caught:
        simulator.summarise(Schedule.uniform(20, 1000), SOURCE, 0)
    with pytest.raises(SimulationError, match=rf"at step {caught.value.step} \(seed {caught.value.seed}\)"):
        simulator.rollout(np.array([20]), [caught.value.seed])


def test_rewards_too_large_to_be_squared_are_named():
    def step(key, state, action):
        return state, jnp.zeros(1), 3e20 * jax.random.rademacher(key, dtype=jnp.float32), jnp.bool_(False)

    env = JaxEnv("Huge", lambda key: (jnp.zeros(1), jnp.zeros(1)), step)
    simulator = JaxSimulator(env, stay, horizon=20, num_envs=16)
    message = r"rewards overflow float32 when squared \(largest 3e\+20\): rescale the rewards"
    with pytest.raises(ValueError, match=message):
        simulator.summarise(Schedule.uniform(20, 1000), SOURCE, 0)


def lqg_critic(horizon, gamma, factor=1.0):
    """The true value function, or a multiple of it."""
    table = np.array([[float(value(s, h, gamma)) for h in range(horizon + 1)] for s in (0.0, 1.0)])
    curvature, constant = jnp.asarray(factor * (table[1] - table[0])), jnp.asarray(factor * table[0])

    def critic(observation, steps_to_go):
        return curvature[steps_to_go] * observation[0] ** 2 + constant[steps_to_go]

    return JaxCritic(critic)


def test_a_critic_carries_the_estimate_and_does_not_bias_it():
    """By the sums of its signal: 4.5 standard errors, one false alarm in 150,000."""
    horizon, gamma = 30, 0.9
    simulator = JaxSimulator(LQG, horizon=horizon, gamma=gamma, num_envs=128)
    critic = lqg_critic(horizon, gamma, factor=0.7)
    found = simulator.summarise(Schedule.uniform(horizon, 400 * horizon), SOURCE, 0, critic=critic)
    errors = []
    for part in (found.rewards, found.signal):
        moments = SummedMoments(horizon, gamma=gamma)
        moments.update(part)
        errors.append(Estimate.from_moments(moments))
    starts = simulator.start_values(np.random.SeedSequence(6), 0, 4000, critic)
    np.testing.assert_array_equal(found.starts[7:9], simulator.start_values(SOURCE, 7, 2, critic))
    assert found.starts.shape == (400,) and starts.shape == (4000,)
    assert errors[1].standard_error < 0.5 * errors[0].standard_error
    error = math.hypot(stats.sem(starts), errors[1].standard_error)
    assert abs(errors[1].value + starts.mean() - expected_return(horizon, gamma)) < 4.5 * error


def test_parameters_of_a_critic_are_arguments_too():
    def apply(params, observation, steps_to_go):
        return params * observation[0] ** 2 * (steps_to_go > 0)

    pair = JaxCritic((apply, jnp.float32(2.0)))
    simulator = JaxSimulator(pendulum(), lambda observation: observation[:1], horizon=20, gamma=0.9, num_envs=64)
    schedule, source = Schedule.uniform(20, 800), np.random.SeedSequence(5)
    one = simulator.summarise(schedule, source, 0, critic=pair)
    with jax.log_compiles(), counted_compilations() as compiled:
        other = simulator.summarise(schedule, source, 0, critic=JaxCritic((apply, jnp.float32(3.0))))
    assert not compiled
    np.testing.assert_allclose(other.starts, 1.5 * one.starts, rtol=1e-6)
    np.testing.assert_array_equal(pair(np.ones((3, 3), np.float32), np.arange(3)), [0, 2, 2])


def test_a_critic_sees_the_same_on_the_host():
    observations, steps = np.linspace(-3, 3, 7)[:, None].astype(np.float32), np.arange(1, 8)
    found = lqg_critic(30, 0.9)(observations, steps)
    np.testing.assert_allclose(
        found, [float(value(s, int(h), 0.9)) for (s,), h in zip(observations, steps, strict=True)], rtol=1e-5
    )


def test_a_policy_may_draw_from_its_key():
    """The mean of squares of normal actions; four standard errors, one false alarm in 15,000."""

    def draw(observation, key):
        return jax.random.normal(key, (1,))

    def step(key, state, action):
        return state, state, action[0] ** 2, jnp.bool_(False)

    env = JaxEnv("Echo", lambda key: (jnp.zeros(1), jnp.zeros(1)), step)
    batch = JaxSimulator(env, draw, horizon=10).rollout(np.full(100, 10), trajectory_seeds(0, 0, 100))
    assert abs(batch.flat.mean() - 1) < 4 * math.sqrt(2 / 1000)
    assert np.unique(batch.flat).size == 1000


counts = st.lists(st.integers(0, 30_000), min_size=1, max_size=40).map(lambda drops: np.cumsum(drops[::-1])[::-1])


@given(counts.filter(lambda planned: planned[0] > 0), st.integers(1, 100_000))
def test_tiles_hold_every_trajectory_once(planned, trajectories):
    lengths = lengths_of(planned, np.arange(planned[0]))
    np.testing.assert_array_equal([(lengths > t).sum() for t in range(planned.size)], planned)
    following = 0
    for first, rows, columns in summing.tiles(planned, trajectories):
        assert first == following and lengths[first] <= rows <= planned.size
        following = first + columns
    assert following >= planned[0]


PLACES = jax.jit(programs.places, static_argnums=2)


@given(counts.filter(lambda planned: planned[0] > 0), st.sampled_from([1, 32, 500]))
def test_each_reward_has_its_own_place(planned, group):
    planned = -(-planned // 50)
    lengths = lengths_of(planned, np.arange(planned[0]))
    padded = np.pad(planned, (0, 40 - planned.size))  # one shape for all examples is compiled once
    length, place = PLACES(jnp.asarray(padded, jnp.int32), jnp.arange(24_040, dtype=jnp.int32), group)
    length, place = length[: planned[0]], place[: planned[0]]
    np.testing.assert_array_equal(length, lengths)
    t = np.arange(planned.size)
    cells = (np.asarray(place)[:, None] + group * t)[t < lengths[:, None]]
    assert np.unique(cells).size == cells.size == planned.sum()
    assert cells.max() < group * (-(-planned // group)).sum()


def test_the_number_of_slots_weighs_latency_against_idle_slots():
    device = Device(512, latency=(64, 8), narrowing=4, spacing=4)
    assert device.ladder(0) == (512, 128, 32, 8) and device.ladder(10_000) == (512, 128, 32, 8, 2)
    assert device.slots(np.full(10, 30), 0) == (32, 8)
    assert device.slots(np.full(10, 60), 0) == (32, 8)  # in two waves, which take as long as one of 128
    assert device.slots(np.full(10, 130), 0) == (128, 32)  # the last two go on in fewer slots
    assert device.slots(np.full(10, 400), 0) == (512, 128)
    assert device.slots(np.full(10, 33), 10_000) == (32, 8)
    assert device.slots(np.full(10, 100_000), 0) == (512, 128)
    long = np.concatenate([np.full(5, 1500), np.full(35, 20)])  # 20 are long: fewer slots go on with them
    assert device.slots(long, 0) == (128, 32)


def test_lanes_are_as_wide_as_their_trajectories():
    """64 policies with 4 of 256 lanes each: 538 trajectories of a policy are 135 of a lane, and 128 run at once."""
    lane, heavy = Device(1 << 20, latency=(49152, 8192)).in_lanes(256), 1000
    assert [lane.slots(np.full(200, count), heavy)[0] for count in (32, 64, 135, 230)] == [32, 64, 128, 256]
    assert lane.slots(np.full(200, 135), heavy)[1] == 32


def test_all_requests_of_an_evaluation_use_few_sizes():
    """They depend on what the evaluation may take, not on what a policy makes of it."""
    device = Device(1 << 20, latency=(49152, 8192))
    for size in (10, 1000):
        used = {device.slots(np.full(20, count), size, 100_000)[0] for count in range(10, 100_000, 3700)}
        assert used <= set(device.ladder(size, 100_000)) and 2 <= len(used) <= 4
        assert max(used) < 1.125 * 100_000
    assert {room(needed, 16) for needed in range(1, 5000)} == {16, 64, 256, 1024, 4096, 16384}


def test_a_gpu_that_rounds_by_the_clock_says_so():
    assert "XLA_FLAGS=--xla_gpu_deterministic_ops=true" in jax_simulator._notes("gpu", "")[0]
    assert jax_simulator._notes("gpu", "--a=b --xla_gpu_deterministic_ops=true") == ()
    assert jax_simulator._notes("cpu", "") == ()


def test_what_cannot_be_is_refused_in_one_line():
    for arguments, message in [
        ((7, swing), "env must be a JaxEnv, a gymnax or Brax environment, or one of rido/LQG-v0"),
        (("CartPole-v1", swing), "env must be a JaxEnv"),
        ((pendulum(), None), "policy must be given: a JAX function of one observation"),
        ((pendulum(), "random"), "policy must be a JAX function of one observation, a pair"),
        ((pendulum(), "nowhere:policy"), "policy must be an importable 'module:attribute'"),
    ]:
        with pytest.raises(ValueError, match=message):
            JaxSimulator(*arguments, horizon=5)
    with pytest.raises(ValueError, match="horizon must be at most the environment's time limit of 3 steps, got 5"):
        JaxSimulator(JaxEnv("Short", LQG.reset, LQG.step, time_limit=3), stay, horizon=5)
    with pytest.raises(ValueError, match="deterministic must be True with JAX"):
        JaxSimulator(LQG, horizon=5, deterministic=False)
    with pytest.raises(ValueError, match="env_kwargs works only with the id of a built-in environment"):
        adapt(LQG, {"noise": "deviation"})
    assert JaxSimulator("rido/LQG-v0", horizon=5, env_kwargs={"noise": "deviation"}, num_envs=100).num_envs == 100


@pytest.mark.parametrize("group", [32, 4096])
def test_no_reward_is_lost_where_trajectories_fill_their_room(group, monkeypatch):
    """One trajectory more than a group, so that the room for the last group is the last that there is."""
    monkeypatch.setattr(programs, "_CELLS", 1024)
    monkeypatch.setattr(Device, "group", group)
    simulator = JaxSimulator(MORTAL, stay, horizon=HORIZON)
    for count in (25, 33, 103, 410):  # of rooms for 1,024, 4,096 and 16,384 rewards
        batch = simulator.rollout(np.full(count, HORIZON), trajectory_seeds(0, 0, count))
        np.testing.assert_array_equal(batch.rewards.sum(axis=1), batch.steps)
