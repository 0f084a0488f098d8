"""Several policies in one program, against the same policies one after the other."""

import numpy as np
import pytest

pytest.importorskip("jax", reason='jax is missing: pip install "rido[jax]"')

import jax
import jax.numpy as jnp

import rido
from rido.comparison.compare import read_comparison
from rido.jax import JaxEnv, JaxSimulator, lqg
from rido.policies.base import Policies
from rido.simulators import Request, SimulationError, trajectory_seeds
from rido.simulators.jax import simulator as jax_simulator
from rido.simulators.jax.device import Device
from rido.simulators.jax.programs import Programs

from .test_simulator import counted_compilations, mixed_lengths

HORIZON, COUNT = 40, 150
LANES = Device(64, latency=(8, 8), narrowing=4, blocks=8, in_time_of_one=48, lanes=8)


def linear(gain, observation):
    return gain * observation


GAINS = {f"gain {gain}": (linear, jnp.full(1, gain)) for gain in (-0.2, -0.4, -0.6, -0.8, -1.0)}


def risky():
    """LQG that ends at random, more often where the state is large."""
    inner = lqg()

    def step(key, state, action):
        moved, seen, reward, _ = inner.step(key, state, action)
        return moved, seen, reward, jax.random.uniform(jax.random.fold_in(key, 1)) < 0.02 + jnp.abs(moved[0]) / 1000

    return JaxEnv("Risky LQG", inner.reset, step, reset_from=inner.reset_from)


RISKY = risky()


@pytest.fixture
def in_lanes(monkeypatch):
    monkeypatch.setattr(jax_simulator.Device, "default", staticmethod(lambda num_envs: LANES))


def alone(env, policy, lengths, seeds, points=None):
    return JaxSimulator(env, policy, horizon=HORIZON).rollout(lengths, seeds, points)


@pytest.mark.parametrize("names", [list(GAINS), list(GAINS)[:3], list(GAINS)[3:4]], ids=["five", "three", "one"])
@pytest.mark.parametrize("points", [False, True], ids=["seeds", "points"])
@pytest.mark.parametrize("count", [COUNT, 3])
def test_each_policy_has_the_trajectories_that_it_has_alone(monkeypatch, names, points, count):
    """Mixed lengths, early ends, more trajectories than slots, fewer than lanes, and lanes that are idle."""
    lengths, seeds = mixed_lengths(HORIZON, count), trajectory_seeds(1, 0, count)
    request = lengths, seeds, np.random.default_rng(0).random((count, 1)) if points else None
    wanted = {name: alone(RISKY, GAINS[name], *request) for name in names}
    monkeypatch.setattr(jax_simulator.Device, "default", staticmethod(lambda num_envs: LANES))
    simulator = JaxSimulator(RISKY, Policies(GAINS), horizon=HORIZON)
    beside = names
    for name in names:
        found = simulator.collect(Request(*request, policy=name, beside=beside)).trajectories
        np.testing.assert_array_equal(found.lengths, lengths)
        np.testing.assert_array_equal(found.steps, wanted[name].steps)
        np.testing.assert_allclose(found.flat, wanted[name].flat, rtol=1e-5)
    if count == COUNT:
        assert (wanted[names[0]].steps < lengths).any()


def test_one_program_runs_all_and_goes_on_when_policies_drop_out(in_lanes, monkeypatch):
    runs = []
    run = Programs.roll_out
    monkeypatch.setattr(Programs, "roll_out", lambda *given, **settings: runs.append(given) or run(*given, **settings))
    simulator, names = JaxSimulator(RISKY, Policies(GAINS), horizon=HORIZON), list(GAINS)
    compiled = []
    for racing in (names, names[1:], names[2:4]):
        lengths = np.full(100 // len(racing), HORIZON)
        with counted_compilations() as found:
            beside = racing
            for name in racing:
                seeds = trajectory_seeds(1, 0, lengths.size)
                simulator.collect(Request(lengths, seeds, policy=name, beside=beside))
        compiled.append(sum("_run_blocks" in line for line in found))
    assert len(runs) == 3
    assert compiled[1:] == [0, 0]


def test_another_request_is_run_anew_and_nothing_is_kept_beyond(in_lanes):
    simulator, (first, second) = JaxSimulator(RISKY, Policies(GAINS), horizon=HORIZON), list(GAINS)[:2]
    lengths = np.full(10, HORIZON)
    beside = [first, second]
    simulator.collect(Request(lengths, trajectory_seeds(1, 0, 10), policy=first, beside=beside))
    other = trajectory_seeds(2, 0, 10)
    wanted = alone(RISKY, GAINS[second], lengths, other)
    for _ in range(2):  # the second time its trajectories were taken already
        found = simulator.collect(Request(lengths, other, policy=second, beside=beside)).trajectories
        np.testing.assert_allclose(found.flat, wanted.flat, rtol=1e-5)


def test_an_error_is_raised_for_the_policy_that_made_it(in_lanes):
    policies = Policies({"good": (linear, jnp.full(1, -0.5)), "bad": (linear, jnp.full(1, jnp.nan))})
    simulator, lengths, seeds = JaxSimulator(lqg(), policies, horizon=5), np.full(3, 5), [1, 2, 3]
    beside = ["good", "bad"]
    good, bad = (Request(lengths, seeds, policy=name, beside=beside) for name in ("good", "bad"))
    assert np.isfinite(simulator.collect(good).trajectories.flat).all()
    with pytest.raises(SimulationError, match=r"trajectory 0 failed at step 0 \(seed 1\): the reward is nan"):
        simulator.collect(bad)


def compared(env, policies, budget, **settings):
    chosen = dict(horizon=20, gamma=0.9, budget=budget, seed=3, progress=False)
    return rido.compare(env, policies, **{**chosen, **settings})


def test_a_comparison_finds_the_same_in_lanes(in_lanes, monkeypatch, tmp_path):
    """Four policies of one kind and one of another, with the same seeds and rounds as one after the other."""
    policies = {**GAINS, "gain -0.6": lambda observation: -0.6 * observation}
    file = tmp_path / "compared.rido"
    together = compared(RISKY, policies, 40_000, run=file)
    assert together.best == "gain -0.2"  # which leaves the state large the longest: rewards are its square
    read = read_comparison(file)
    assert {name: read.bounds(name, read.best) for name in GAINS} == {
        name: together.bounds(name, together.best) for name in GAINS
    }
    monkeypatch.setattr("rido.simulators.lineup.Lineup.expect", lambda *given: None)
    turns = compared(RISKY, policies, 40_000)
    assert (turns.ranking, turns.transitions) == (together.ranking, together.transitions)
    for name in GAINS:
        assert turns.values[name].value == pytest.approx(together.values[name].value, rel=1e-5)
