"""What every simulator promises, run over all of the package, all ways of having environments, and the docs' examples.

The plain loop in sequence is the reference; everything else that runs Gymnasium's environments gives its bits.
"""

import re
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv

import rido
from environments import Mortal
from helpers import needs
from rido.core.schedule import Schedule
from rido.simulators import BankSimulator, Request, trajectory_seeds
from rido.simulators.base import Seeds, as_simulator
from rido.simulators.gymnasium import GymnasiumSimulator
from rido.simulators.rehearsal import STEPS


def weighted(observations):
    """A linear policy: its rows would show if they were mixed up."""
    return (np.asarray(observations) @ np.ones(observations.shape[1]) > 0).astype(int)


def tanh_policy(observations):
    """Matrix products, whose last bits depend on the batch size if nothing is done about it."""
    rng = np.random.default_rng(0)
    hidden = np.tanh(observations @ rng.normal(size=(3, 64)).astype(np.float32))
    return 2 * np.tanh(hidden @ rng.normal(size=(64, 1)).astype(np.float32))


def gymnasium(env, policy=weighted, **settings):
    return lambda: GymnasiumSimulator(env, policy, horizon=40, **settings)


def alone(observation):
    """The same policy on one observation."""
    return int(np.asarray(observation) @ np.ones(2) > 0)


def vector(kind, **options):
    def make():
        envs = kind([Mortal] * 5, autoreset_mode=AutoresetMode.DISABLED, **options)
        return GymnasiumSimulator(envs, weighted, horizon=40)

    return make


def bank():
    rng = np.random.default_rng(0)
    return BankSimulator(rng.normal(size=(50, 40)), rng.integers(1, 41, 50), rng.normal(size=(50, 41, 2)))


def documented(page, name):
    """Returns the simulator of an example of the documentation, word for word."""

    def make():
        text = (Path(__file__).resolve().parents[2] / page).read_text(encoding="utf-8")
        (block,) = [
            block for block in re.findall(r"^```python\n(.*?)^```", text, re.M | re.S) if f"class {name}" in block
        ]
        exec(block.partition("\nresult =")[0], namespace := {"np": np, "rido": rido})
        return as_simulator(namespace[name]())

    return make


def workers():
    from rido.simulators.parallel.processes import WorkerSimulator

    return WorkerSimulator(Mortal, weighted, horizon=40, workers=2)


def ray():
    needs("ray", "ray")
    from rido.simulators.parallel.ray import RaySimulator

    return RaySimulator(Mortal, weighted, horizon=40, num_actors=2)


def envpool():
    needs("envpool", "envpool")
    from rido.simulators.envpool import EnvPoolSimulator

    return EnvPoolSimulator("Pendulum-v1", tanh_policy, horizon=40, num_envs=5)


def jax():
    needs("jax", "jax")
    from rido.jax import JaxSimulator, lqg

    return JaxSimulator(lqg(), horizon=40)


def torch():
    needs("torch", "sb3")
    from rido.simulators.torch import TorchSimulator
    from simulators.test_torch import TorchPendulum, swing

    return TorchSimulator(TorchPendulum(4), swing, horizon=40)


SIMULATORS = {
    "id": gymnasium("Pendulum-v1", tanh_policy),
    "id, one environment": gymnasium("Pendulum-v1", tanh_policy, num_envs=1),
    "id, vectorised": gymnasium("rido/LQG-v0", None),
    "id, vectorised, random policy": gymnasium("rido/FirstStep-v0", None, num_envs=3),
    "factory": gymnasium(Mortal, num_envs=4),
    "random policy": gymnasium(Mortal, "random", num_envs=4),
    "environment": lambda: GymnasiumSimulator(Mortal(), weighted, horizon=40),
    "SyncVectorEnv": vector(SyncVectorEnv),
    "AsyncVectorEnv": vector(AsyncVectorEnv, context="forkserver"),
    "one observation": gymnasium(Mortal, alone),
    "workers": workers,
    "Ray": ray,
    "EnvPool": envpool,
    "JAX": jax,
    "torch": torch,
    "bank": bank,
    "documented: rollout": documented("docs/simulator.md", "Walk"),
    "documented: collect": documented("docs/simulator.md", "ObservedWalk"),
    "documented for contributors": documented("docs/contributing.md", "Walk"),
}
MORTAL = ("factory", "environment", "SyncVectorEnv", "AsyncVectorEnv", "workers", "Ray")
"""Ways to run one and the same environment."""
REWARDS_ONLY = ("documented: rollout", "documented for contributors")
"""Simulators that show no observations."""
UNLIMITED = ("workers", "Ray", "EnvPool", "JAX", "torch", "bank", "documented: collect", *REWARDS_ONLY)
"""Simulators that heed no limit."""
LENGTHS = np.array([3, 40, 1, 17, 40, 8, 8, 2, 25, 1, 33])
SEEDS = trajectory_seeds(11, 0, LENGTHS.size)


@pytest.fixture(scope="module", params=SIMULATORS)
def simulator(request):
    simulator = SIMULATORS[request.param]()
    yield simulator
    simulator.close()


def rows(batch):
    return [
        (row[:length].tolist(), steps)
        for row, length, steps in zip(batch.rewards, batch.lengths, batch.steps, strict=True)
    ]


def assert_same_rows(simulator, found, expected):
    """The same bits, but for simulators in lockstep, which round differently where more rows run beside."""
    if not simulator.capabilities.lockstep:
        assert found == expected
    for (ours, steps), (theirs, others) in zip(found, expected, strict=True):
        assert steps == others
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-5)


def test_trajectories_come_in_the_order_asked_for(simulator):
    batch = simulator.rollout(LENGTHS, SEEDS)
    np.testing.assert_array_equal(batch.lengths, LENGTHS)
    assert (batch.steps >= 1).all() and (batch.steps <= LENGTHS).all()


def test_the_same_seeds_give_the_same_trajectories_alone_and_together(simulator):
    together = rows(simulator.rollout(LENGTHS, SEEDS))
    assert rows(simulator.rollout(LENGTHS, SEEDS)) == together  # the same request, the same bits
    order = np.random.default_rng(0).permutation(LENGTHS.size)
    shuffled = rows(simulator.rollout(LENGTHS[order], [SEEDS[i] for i in order]))
    assert_same_rows(simulator, shuffled, [together[i] for i in order])
    alone = [rows(simulator.rollout(LENGTHS[i : i + 1], SEEDS[i : i + 1]))[0] for i in range(LENGTHS.size)]
    assert_same_rows(simulator, alone, together)


def test_a_shorter_trajectory_is_a_prefix_of_a_longer_one(simulator):
    long = simulator.rollout(np.full(LENGTHS.size, 40), SEEDS).rewards
    short = simulator.rollout(LENGTHS, SEEDS)
    for i, length in enumerate(LENGTHS):
        if simulator.capabilities.lockstep:
            np.testing.assert_allclose(short.rewards[i, :length], long[i, :length], rtol=1e-5, atol=1e-5)
        else:
            np.testing.assert_array_equal(short.rewards[i, :length], long[i, :length])


def test_other_seeds_give_other_trajectories(simulator):
    one = simulator.rollout(LENGTHS, SEEDS)
    other = simulator.rollout(LENGTHS, trajectory_seeds(12, 0, LENGTHS.size))
    assert not np.array_equal(one.flat, other.flat) or not np.array_equal(one.steps, other.steps)


@pytest.mark.parametrize("simulator", MORTAL, indirect=True)
def test_what_runs_the_same_environment_gives_the_bits_of_the_plain_loop(simulator):
    plain = GymnasiumSimulator(Mortal, alone, horizon=40, num_envs=1)
    assert plain.policy.in_sequence
    for wants in ("rewards", "observations"):
        ours, theirs = (each.collect(Request(LENGTHS, SEEDS, wants=wants)) for each in (simulator, plain))
        assert rows(ours.trajectories) == rows(theirs.trajectories)
    np.testing.assert_array_equal(ours.observations, theirs.observations)
    np.testing.assert_array_equal(ours.actions, theirs.actions)
    np.testing.assert_array_equal(ours.terminated, theirs.terminated)


@pytest.mark.parametrize("simulator", [name for name in SIMULATORS if name not in REWARDS_ONLY], indirect=True)
def test_observations_are_those_of_the_same_trajectories(simulator):
    able = simulator.capabilities
    seen, plain = simulator.observe(LENGTHS, SEEDS), simulator.rollout(LENGTHS, SEEDS)
    assert_same_rows(simulator, rows(seen.trajectories), rows(plain))
    steps = plain.steps
    assert len(seen.observations) == (steps + 1).sum()
    np.testing.assert_array_equal(seen.terminated[steps < LENGTHS], True)
    if able.tells_actions:
        assert len(seen.actions) == steps.sum()
    firsts = np.cumsum(steps + 1) - steps - 1
    np.testing.assert_allclose(simulator.starts(SEEDS), np.asarray(seen.observations)[firsts], rtol=1e-6)


def test_what_a_simulator_can_do_is_tried(simulator, request):
    name, able = request.node.callspec.params["simulator"], simulator.capabilities
    assert (able.observes, able.summarises) == (name not in REWARDS_ONLY, name == "JAX")
    assert able.limits == (name not in UNLIMITED)


def test_points_decide_where_trajectories_start(simulator):
    points = np.random.default_rng(0).random((LENGTHS.size, 64))
    if not simulator.capabilities.takes_points:
        if type(simulator).__module__.startswith("rido.simulators.") and simulator.capabilities.tries:
            with pytest.raises(ValueError, match="starts='sobol' is not available"):
                simulator.rollout(LENGTHS, SEEDS, points)
        return
    other = trajectory_seeds(12, 0, LENGTHS.size)
    starts = [simulator.starts(seeds, points) for seeds in (SEEDS, other)]
    np.testing.assert_array_equal(*starts)
    assert not np.array_equal(starts[0], simulator.starts(SEEDS, points[::-1])) or starts[0].std(axis=0).max() == 0


def test_a_trial_finds_nothing_where_seeds_decide(simulator):
    if simulator.capabilities.tries:
        found = simulator.collect(Request(None, SEEDS[:2], wants="trial")).found
        assert found.notes == () and found.workers[0] >= 1


@pytest.mark.parametrize("simulator", [name for name in SIMULATORS if name not in UNLIMITED], indirect=True)
def test_a_limit_leaves_the_first_trajectories_that_it_pays_for(simulator):
    whole = simulator.rollout(LENGTHS, SEEDS)
    for limit in (3, 43, 60, 10_000):
        found = simulator.collect(Request(LENGTHS, SEEDS, limit=limit)).trajectories
        count = len(found)
        assert_same_rows(simulator, rows(found), rows(whole)[:count])
        np.testing.assert_array_equal(found.lengths, LENGTHS[:count])
        assert found.transitions <= limit and count >= np.searchsorted(LENGTHS.cumsum(), limit, side="right")
    assert count == LENGTHS.size


@pytest.mark.parametrize("simulator", ["JAX"], indirect=True)
def test_sums_are_those_of_the_rewards(simulator):
    schedule, seeds = Schedule(np.linspace(30, 10, 40).astype(int)), Seeds(11, 0, 30)
    sums = simulator.collect(Request(schedule, seeds, wants="sums")).sums.rewards
    plain = simulator.rollout(schedule.lengths, list(seeds))
    assert (sums.transitions, list(seeds)) == (plain.transitions, trajectory_seeds(11, 0, 30))


def test_whoever_overrides_what_nothing_calls_is_told():
    with pytest.raises(TypeError, match=r"Mine must override collect\(\) and not rollout\(\)"):

        class Mine(GymnasiumSimulator):
            def rollout(self, lengths, seeds):
                return super().rollout(lengths, seeds)


@pytest.mark.parametrize("simulator", [name for name in SIMULATORS if "documented" not in name], indirect=True)
def test_bad_requests_are_named(simulator):
    with pytest.raises(ValueError, match="lengths must be from 1 to the horizon 40, got 41 to 41"):
        simulator.rollout(np.array([41]), [1])
    with pytest.raises(ValueError, match=r"seeds must be an integer for each of 2 trajectories, got \[1\]"):
        simulator.rollout(np.array([4, 4]), [1])


def test_seeds_depend_on_the_index_alone():
    whole = trajectory_seeds(5, 0, 1000)
    assert whole[137:400] == trajectory_seeds(5, 137, 263)
    assert len(set(whole)) == 1000
    assert all(isinstance(seed, int) and 0 <= seed < 2**63 for seed in whole)
    assert set(whole).isdisjoint(trajectory_seeds(6, 0, 1000))


def test_seeds_do_not_repeat():
    """Not in a million trajectories, of which about 250 would have the seed of another one if 31 bits were random."""
    seeds = np.array(trajectory_seeds(5, 0, 1 << 20))
    assert np.unique(seeds).size == np.unique(seeds % 2**31).size == seeds.size
    later = np.array(trajectory_seeds(5, 2**31 - 2**20, 2**20))
    assert np.intersect1d(later % 2**31, seeds % 2**31).size == 0


def test_lower_bits_of_seeds_of_two_evaluations_are_unrelated():
    """Of 2^20 pairs 512 are expected to agree in the lowest 11 bits; 6 standard deviations, and no common shift."""
    first, second = (np.array(trajectory_seeds(entropy, 0, 1 << 20)) % 2**31 for entropy in (5, 6))
    assert abs(np.sum(first % 2**11 == second % 2**11) - 512) < 6 * 512**0.5
    differences = np.unique((first - second) % 2**31)
    assert differences.size > 0.999 * first.size
    for bit in range(31):  # each is one half of the time, within 6 standard deviations
        assert abs(np.mean(first >> bit & 1) - 0.5) < 6 * 0.5 / 2**10


def test_bit_identical_for_any_number_of_environments():
    reference = None
    for num_envs in (1, 2, 3, 5, 16, 23):
        simulator = GymnasiumSimulator("Pendulum-v1", tanh_policy, horizon=40, num_envs=num_envs)
        flat = simulator.rollout(LENGTHS, SEEDS).flat
        simulator.close()
        reference = flat if reference is None else reference
        np.testing.assert_array_equal(flat, reference)


@pytest.mark.parametrize("num_envs", [1, 4])
def test_no_environment_is_stepped_beyond_its_planned_length(num_envs):
    made = []

    def make():
        made.append(Mortal(death=0.0))
        return made[-1]

    simulator = GymnasiumSimulator(make, weighted, horizon=40, num_envs=num_envs)
    simulator.rollout(LENGTHS, SEEDS)
    taken = sorted(steps for env in made for steps in env.log)
    rehearsed = [STEPS] * 4
    assert taken == sorted([0, *rehearsed, *LENGTHS.tolist()])  # one was reset again because the policy takes batches
    assert len(made) == max(num_envs, 2)


def test_the_longest_go_first_so_that_environments_stay_busy():
    calls = []

    def counting(observations):
        calls.append(len(observations))
        return np.zeros(len(observations), dtype=int)

    lengths = np.array([1] * 30 + [40])
    simulator = GymnasiumSimulator(lambda: Mortal(death=0.0), counting, horizon=40, num_envs=2)
    simulator.rollout(lengths, range(31))  # with the rehearsal
    calls.clear()
    simulator.rollout(lengths, range(31))
    assert calls.count(8) == 40  # the short ones run beside the long one; in the order given it would take 55


def test_early_ends_leave_zeros_and_unspent_steps():
    batch = GymnasiumSimulator(lambda: Mortal(death=0.5), weighted, horizon=40).rollout(np.full(200, 40), range(200))
    assert batch.steps.mean() == pytest.approx(2, abs=0.5)
    behind = np.arange(40) >= batch.steps[:, None]
    assert (batch.rewards[behind] == 0).all() and (batch.rewards[~behind] != 0).all()


def test_dictionary_observations_reach_the_policy_as_batches():
    class Dictionary(gym.ObservationWrapper):
        def __init__(self):
            super().__init__(Mortal())
            self.observation_space = gym.spaces.Dict(
                clock=gym.spaces.Box(-1, 99, (1,)), start=gym.spaces.Box(-9, 9, (1,))
            )

        def observation(self, observation):
            return {"clock": observation[:1], "start": observation[1:]}

    def policy(observations):
        return weighted(np.concatenate([observations["clock"], observations["start"]], axis=1))

    plain = GymnasiumSimulator(Mortal, weighted, horizon=40).rollout(LENGTHS, SEEDS)
    wrapped = GymnasiumSimulator(Dictionary, policy, horizon=40).rollout(LENGTHS, SEEDS)
    np.testing.assert_array_equal(plain.flat, wrapped.flat)
