"""Starts that points decide: the environment's own distribution, spread evenly, and the same however they are run."""

import copy
from functools import partial

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv
from scipy import stats
from scipy.stats import qmc

from environments import Greedy, Mortal
from rido.simulators import Request, SimulationError, trajectory_seeds
from rido.simulators.gymnasium import GymnasiumSimulator
from rido.simulators.lineup import Lineup
from rido.simulators.parallel.processes import WorkerSimulator
from rido.simulators.points import PointGenerator
from traps import zeros

LENGTHS = np.array([3, 40, 1, 17, 40, 8, 8, 2, 25, 1, 33])
SEEDS = trajectory_seeds(11, 0, LENGTHS.size)
POINTS = qmc.Sobol(64, rng=1).random(16)[: LENGTHS.size]
NOTHING_DRAWN = "the environment's reset draws no random numbers from np_random, so starts='sobol' changes nothing"
USED_UP = "the environment's reset draws more random numbers than starts='sobol' gives: others are pseudo-random"


def push(observations):
    return np.sin(5 * np.asarray(observations)).sum(axis=1, keepdims=True)


def scrambled(count, seed, dimensions=64):
    return qmc.Sobol(dimensions, rng=seed).random(count)


def columns(starts):
    """The parts of observations, one row each."""
    parts = starts if isinstance(starts, tuple) else [starts]
    return np.concatenate([np.reshape(part, (len(part), -1)).T for part in parts]).astype(float)


def installed(env_id):
    try:
        return GymnasiumSimulator(env_id, "random", horizon=10)
    except ImportError as error:
        pytest.skip(str(error))


@pytest.mark.parametrize(
    "env_id",
    [
        *("Pendulum-v1", "CartPole-v1", "Reacher-v5", "Swimmer-v5", "HalfCheetah-v5", "InvertedDoublePendulum-v5"),
        *("FrozenLake-v1", "Taxi-v4", "Blackjack-v1", "LunarLander-v3", "rido/LQG-v0", "rido/Navigation-v0"),
    ],
)
def test_starts_have_the_environments_own_distribution(env_id):
    """Each part of the observation, from 512 points and 1,024 seeds: means by a z-test, all else by Kolmogorov-Smirnov.

    The environments have 60 parts: a false alarm in fewer than 1 of 1,000 runs with other seeds.
    """
    simulator = installed(env_id)
    random = columns(simulator.starts(trajectory_seeds(1, 0, 1024)))
    even = columns(simulator.starts(trajectory_seeds(2, 0, 512), scrambled(512, 3)))
    simulator.rollout(np.ones(512, dtype=int), trajectory_seeds(2, 0, 512), scrambled(512, 3))
    assert simulator.capabilities.takes_points and simulator.capabilities.found.remarks == ()
    for one, other in zip(random, even, strict=True):
        if one.std() > 0:
            assert abs(one.mean() - other.mean()) < 4.4 * one.std() * np.sqrt(1 / 1024 + 1 / 512)
        assert stats.ks_2samp(one, other).pvalue > 1e-5
    simulator.close()


@pytest.mark.parametrize("env_id", ["Pendulum-v1", "Swimmer-v5", "rido/LQG-v0"])
def test_the_mean_of_scrambled_points_varies_far_less(env_id):
    """16 means of 64 starts: a variance below 1/20, which is no chance (1 in 10^6 cases if points did not help)."""
    simulator = installed(env_id)
    random, even = (
        np.var([simulator.starts(trajectory_seeds(i, 0, 64), points(i)).mean(axis=0) for i in range(16)], axis=0)
        for points in (lambda i: None, lambda i: scrambled(64, i))
    )
    varied = random > 0
    assert varied.any() and (even[varied] < random[varied] / 20).all()
    simulator.close()


class Restless(gym.Env):
    """Has generators in all places where environments keep them, some seeded in each reset, and rewards of noise."""

    observation_space = gym.spaces.Box(-np.inf, np.inf, (4,), np.float64)
    action_space = gym.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.own = np.random.default_rng(seed)
        if seed is not None:
            self.linked_when_seeded = self._np_random
        self.linked = self.np_random
        self.child = self.np_random.spawn(1)[0]
        self.spare = self.np_random.random
        return np.array([self.np_random.normal(), self.own.normal(), self.child.normal(), self.spare()]), {}

    def step(self, action):
        generators = (self.np_random, self.own, self.linked, self.linked_when_seeded, self.child)
        noise = [generator.normal() for generator in generators]
        return np.full(4, noise[0]), sum(noise) + self.spare(), False, False, {}


class Noisy(gym.Wrapper):
    """A wrapper with a generator and a counter of its own."""

    def reset(self, *, seed=None, options=None):
        if seed is not None:
            self.generator = np.random.default_rng([seed, 9])
        self.count = 0
        return self.env.reset(seed=seed, options=options)

    def step(self, action):
        observation, reward, *ends = self.env.step(action)
        self.count += 1
        return observation, reward + self.count * self.generator.normal(), *ends


ENVS = {
    "Pendulum": (lambda: "Pendulum-v1", push),
    "noisy Pendulum": (lambda: lambda: Noisy(gym.make("Pendulum-v1")), push),
    "LQG": (lambda: "rido/LQG-v0", None),
    "single LQG": (lambda: lambda: gym.make("rido/LQG-v0"), push),
    "Mortal": (lambda: Mortal, "random"),
    "generators everywhere": (lambda: Restless, zeros),
}


def rows(batch):
    return [row[:length].tolist() for row, length in zip(batch.rewards, batch.lengths, strict=True)]


@pytest.mark.parametrize("name", ENVS)
def test_trajectories_depend_on_seed_and_point_alone(name):
    env, policy = ENVS[name]
    reference = plain = None
    for num_envs in (1, 4):
        simulator = GymnasiumSimulator(env(), policy, horizon=40, num_envs=num_envs)
        before = rows(simulator.rollout(LENGTHS, SEEDS))
        together = rows(simulator.rollout(LENGTHS, SEEDS, POINTS))
        plain, reference = plain or before, reference or together
        assert together == reference != plain
        assert rows(simulator.rollout(LENGTHS, SEEDS)) == before == plain
        apart = [
            row
            for i in range(0, LENGTHS.size, 3)
            for row in rows(simulator.rollout(LENGTHS[i : i + 3], SEEDS[i : i + 3], POINTS[i : i + 3]))
        ]
        assert apart == reference
        long = rows(simulator.rollout(np.full(LENGTHS.size, 40), SEEDS, POINTS))
        assert [row[:length] for row, length in zip(long, LENGTHS, strict=True)] == reference
        observed = simulator.observe(LENGTHS, SEEDS, POINTS)
        assert rows(observed.trajectories) == reference
        firsts = np.concatenate([[0], np.cumsum(observed.trajectories.steps + 1)[:-1]])
        np.testing.assert_array_equal(simulator.starts(SEEDS, POINTS), observed.observations[firsts])
        assert (simulator.starts(SEEDS, POINTS[::-1]) != simulator.starts(SEEDS, POINTS)).any()
        assert simulator.collect(Request(None, SEEDS[:2], POINTS[:2], wants="trial")).found.notes == ()
        simulator.close()


def test_a_single_lqg_is_the_vectorised_one():
    vectorised = GymnasiumSimulator("rido/LQG-v0", push, horizon=100)
    single = GymnasiumSimulator(lambda: gym.make("rido/LQG-v0"), push, horizon=100)
    found = [simulator.rollout(np.full(9, 100), SEEDS[:9], POINTS[:9]).flat for simulator in (vectorised, single)]
    np.testing.assert_array_equal(*found)
    starts = vectorised.starts(SEEDS, POINTS)
    np.testing.assert_allclose(starts[:, 0], -80 + 160 * POINTS[:, 0], rtol=1e-12)
    assert single.capabilities.found.remarks == vectorised.capabilities.found.remarks == ()


@pytest.mark.parametrize(("env", "policy"), [(Restless, zeros), ("rido/LQG-v0", lambda states: 0 * states)])
def test_the_noise_of_the_steps_does_not_depend_on_the_point(env, policy):
    simulator = GymnasiumSimulator(env, policy, horizon=100)
    observed = [simulator.observe(np.full(11, 100), SEEDS, points) for points in (POINTS, POINTS[::-1])]
    one, other = (
        batch.trajectories.rewards if env is Restless else np.diff(batch.observations.reshape(11, 101), axis=1)
        for batch in observed
    )
    np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-10)
    assert (observed[0].observations != observed[1].observations).any()
    assert np.unique(one.round(6)).size == one.size


@pytest.mark.parametrize("dimensions", [1, 2, 5, 200])
def test_points_of_any_dimension(dimensions):
    points = scrambled(16, 5, 200)[:, :dimensions]
    starts = GymnasiumSimulator("CartPole-v1", zeros, horizon=5).starts(trajectory_seeds(1, 0, 16), points)
    driven = min(dimensions, 4)
    np.testing.assert_allclose(starts[:, :driven], -0.05 + 0.1 * points[:, :driven], atol=1e-8)
    assert np.unique(starts).size == 64


class Still(Mortal):
    """Starts where it always does."""

    def reset(self, *, seed=None, options=None):
        gym.Env.reset(self, seed=seed)
        self.t, self.start = 0, 0.0
        self.log.append(0)
        return np.zeros(2, dtype=np.float32), {}


class Legacy(Mortal):
    """Draws from a generator of an older kind under the usual name."""

    np_random = None

    def reset(self, *, seed=None, options=None):
        if seed is not None:
            self.np_random = np.random.RandomState(np.random.MT19937(seed))
        self.t, self.start = 0, self.np_random.randn()
        self.log.append(0)
        return np.array([0, self.start], dtype=np.float32), {}


class Sealed(Mortal):
    """Allows no subclass."""

    def __init_subclass__(cls):
        raise TypeError("sealed")


@pytest.mark.parametrize("env", [Still, Legacy, Sealed])
def test_resets_that_a_point_does_not_reach_are_remarked_on(env):
    simulator = GymnasiumSimulator(env, zeros, horizon=40, num_envs=2)
    seeds = [seed % 2**31 for seed in SEEDS]
    plain = simulator.starts(seeds)
    assert simulator.capabilities.found.remarks == ()
    np.testing.assert_array_equal(simulator.starts(seeds, POINTS), plain)
    assert rows(simulator.rollout(LENGTHS, seeds, POINTS)) == rows(simulator.rollout(LENGTHS, seeds, POINTS[::-1]))
    assert simulator.capabilities.found.remarks == (NOTHING_DRAWN,)


def test_resets_that_use_the_point_up_are_remarked_on():
    simulator = GymnasiumSimulator(Greedy, zeros, horizon=40)
    one, other = (simulator.starts(SEEDS, points) for points in (POINTS, POINTS))
    np.testing.assert_array_equal(one, other)
    assert (simulator.starts(SEEDS[::-1], POINTS) != one).any()
    assert simulator.capabilities.found.remarks == ()  # resets alone are a critic's
    simulator.rollout(LENGTHS, SEEDS, POINTS)
    assert simulator.capabilities.found.remarks == (USED_UP,)
    vectorised = GymnasiumSimulator("rido/FirstStep-v0", horizon=40)
    vectorised.rollout(LENGTHS, SEEDS, POINTS)
    assert vectorised.capabilities.found.remarks == (NOTHING_DRAWN,)


class Stubborn(Mortal):
    """Makes its generator itself, shows it, and does not let it be replaced."""

    np_random = property(lambda self: self._np_random)

    def reset(self, *, seed=None, options=None):
        self._np_random, _ = gym.utils.seeding.np_random(seed)
        self.t, self.start = 0, self.np_random.normal()
        return np.array([0, self.start], dtype=np.float32), {}


@pytest.mark.parametrize("env", [Mortal, Stubborn])
def test_a_reset_is_one_reset_and_leaves_no_trace(env):
    made = env()
    simulator = GymnasiumSimulator(made, zeros, horizon=40)
    simulator.starts(SEEDS[:1])
    before, log = set(vars(made)), len(made.log)
    np.testing.assert_allclose(simulator.starts(SEEDS, POINTS)[:, 1], stats.norm.ppf(POINTS[:, 0]), rtol=1e-5)
    assert env is Stubborn or len(made.log) - log == len(SEEDS)
    assert type(made) is env and set(vars(made)) == before and type(made.np_random) is np.random.Generator
    assert copy.deepcopy(made).np_random.random() == made.np_random.random()


def test_a_reset_that_fails_leaves_no_trace_either():
    class Broken(Mortal):
        def reset(self, *, seed=None, options=None):
            super().reset(seed=seed)
            raise RuntimeError(f"{type(self).__name__} is broken")

    made = Broken()
    with pytest.raises(SimulationError, match="Broken is broken"):
        GymnasiumSimulator(made, zeros, horizon=40).starts([1, 2], POINTS[:2])
    assert type(made) is Broken and type(made.np_random) is np.random.Generator


def test_seeds_of_31_bits_are_found_out_before_the_point_is_used():
    class Narrow(Mortal):
        def reset(self, *, seed=None, options=None):
            observation, info = super().reset(seed=seed)
            np.random.RandomState(np.random.MT19937(0)).seed(seed)  # RandomState(seed) asks for entropy first
            return observation, info

    starts = GymnasiumSimulator(Narrow, zeros, horizon=40).starts(SEEDS, POINTS)
    np.testing.assert_allclose(starts[:, 1], stats.norm.ppf(POINTS[:, 0]), rtol=1e-5)


def test_points_drive_resets_that_are_not_seeded():
    simulator = GymnasiumSimulator(Mortal, zeros, horizon=40, num_envs=2, reseed=False)
    starts = [simulator.starts(SEEDS, POINTS)[:, 1] for _ in range(2)]
    np.testing.assert_array_equal(*starts)
    np.testing.assert_allclose(starts[0], stats.norm.ppf(POINTS[:, 0]), rtol=1e-5)
    assert rows(simulator.rollout(LENGTHS, SEEDS, POINTS)) == rows(simulator.rollout(LENGTHS, SEEDS, POINTS))


def test_a_start_that_differs_for_one_point_and_seed_is_noted():
    class Drifting(Mortal):
        def reset(self, *, seed=None, options=None):
            observation, info = super().reset(seed=seed)
            return observation + len(self.log) * isinstance(self.np_random, PointGenerator), info

    simulator = GymnasiumSimulator(Drifting, zeros, horizon=5)
    assert simulator.collect(Request(None, SEEDS[:2], wants="trial")).found.notes == ()
    (note,) = simulator.collect(Request(None, SEEDS[:2], POINTS[:2], wants="trial")).found.notes
    assert note == "the environment's first observation differs when it is reset with the same seed again"


def test_vector_environments_say_whether_they_take_points():
    for kind, options, takes in ((SyncVectorEnv, {}, True), (AsyncVectorEnv, {"context": "forkserver"}, False)):
        envs = kind([Mortal] * 3, autoreset_mode=AutoresetMode.DISABLED, **options)
        simulator = GymnasiumSimulator(envs, zeros, horizon=40)
        assert simulator.capabilities.takes_points is takes
        if takes:
            single = GymnasiumSimulator(Mortal, zeros, horizon=40)
            assert rows(simulator.rollout(LENGTHS, SEEDS, POINTS)) == rows(single.rollout(LENGTHS, SEEDS, POINTS))
        else:
            with pytest.raises(ValueError, match="starts='sobol' is not available: this environment's reset"):
                simulator.rollout(LENGTHS, SEEDS, POINTS)
        simulator.close()
        envs.close()


@pytest.mark.parametrize(
    ("points", "message"),
    [
        (POINTS[1:], r"points must have shape \(11, dimensions\), got \(10, 64\)"),
        (POINTS[:, 0], r"points must have shape \(11, dimensions\), got \(11,\)"),
        (POINTS + 0.5, r"points must lie in \[0, 1\), got numbers from 0.5"),
        (POINTS * np.nan, r"points must lie in \[0, 1\), got numbers from nan"),
    ],
)
def test_wrong_points_are_named(points, message):
    simulator = GymnasiumSimulator("rido/LQG-v0", horizon=40)
    for request in (lambda: simulator.rollout(LENGTHS, SEEDS, points), lambda: simulator.starts(SEEDS, points)):
        with pytest.raises(ValueError, match=message):
            request()


@pytest.mark.parametrize("workers", [0, 2])
def test_points_reach_all_policies_of_a_comparison(workers):
    """Each of them starts where the points decide, in whichever process it acts; remarks come back from there."""
    policies = {"zeros": zeros, "random": "random"}
    kind = partial(WorkerSimulator, workers=workers) if workers else GymnasiumSimulator
    lineup = Lineup(lambda policy: kind(Greedy, policy, horizon=40, num_envs=2), policies, switching=True)
    for name, policy in policies.items():
        simulator, alone = lineup.simulator(name), GymnasiumSimulator(Greedy, policy, horizon=40)
        assert simulator.capabilities.takes_points
        assert rows(simulator.rollout(LENGTHS, SEEDS, POINTS)) == rows(alone.rollout(LENGTHS, SEEDS, POINTS))
        assert simulator.collect(Request(None, SEEDS[:2], POINTS[:2], wants="trial")).found.notes == ()
        assert simulator.capabilities.found.remarks == (USED_UP,)
    lineup.close()
