"""Time budgets: with a simulator whose clock is in the test's hands, they are kept."""

import numpy as np
import pytest

import rido
from helpers import assert_calibrated
from rido import Trajectories, Uniform
from rido.evaluation import budgets
from rido.evaluation.budgets import Clock, measure_costs
from rido.simulators.base import Capabilities, as_simulator


class Timed:
    """A simulator that costs so many seconds of an imaginary clock per reset and step, all trajectories together."""

    num_envs = 16

    def __init__(self, per_reset, per_step, death=0.0, noise=0.0):
        self.per_reset, self.per_step, self.death, self.time = per_reset, per_step, death, 0.0
        self.random, self.noise, self.seen = np.random.default_rng(0), noise, set()

    def rollout(self, lengths, seeds):
        steps = np.minimum(self.random.geometric(self.death, len(lengths)), lengths) if self.death else lengths
        busy = self.per_reset * len(lengths) + self.per_step * steps.sum()
        self.time += busy * np.exp(self.random.normal(0, self.noise))
        self.seen |= set(seeds)
        return Trajectories(np.ones(lengths.sum()), lengths, steps)

    def now(self):
        return self.time


@pytest.mark.parametrize(("per_reset", "per_step"), [(0.0, 1e-4), (1e-4, 1e-5), (1e-2, 1e-4), (0.5, 1e-3)])
def test_costs_of_steps_and_resets_are_told_apart(per_reset, per_step, monkeypatch):
    simulator = Timed(per_reset, per_step, death=0.001)
    monkeypatch.setattr(budgets.time, "perf_counter", simulator.now)
    costs = measure_costs(as_simulator(simulator), 1000, 1e9, entropy=3)
    assert costs.per_step == pytest.approx(per_step, rel=1e-3)
    assert costs.per_reset == pytest.approx(per_reset, rel=1e-3, abs=1e-6)
    assert costs.reset_price == pytest.approx(per_reset / per_step, rel=1e-2, abs=1e-2)
    assert costs.rate(100) == pytest.approx(100 / (per_reset + 100 * per_step), rel=1e-2)
    assert simulator.seen.isdisjoint(budgets.trajectory_seeds(3, 0, 10_000))


class Compiling(Timed):
    """A simulator in lockstep that compiles for five seconds where a number of trajectories or steps is new."""

    num_envs = 1 << 16
    capabilities = Capabilities(lockstep=True, in_time_of_one=4096)

    def rollout(self, lengths, seeds):
        self.shapes = getattr(self, "shapes", set())
        shape = len(lengths), int(lengths.max())
        self.time += 0.0 if shape in self.shapes else 5.0
        self.shapes.add(shape)
        return super().rollout(lengths, seeds)


def test_starting_is_no_cost_of_steps(monkeypatch):
    simulator = Compiling(1e-6, 1e-7)
    monkeypatch.setattr(budgets.time, "perf_counter", simulator.now)
    costs = measure_costs(as_simulator(simulator), 1000, 1e9, entropy=3)
    assert simulator.shapes == {(4096, length) for length in (1, 16, 256, 1000)}
    assert costs.starting == pytest.approx(20, rel=0.05)
    assert costs.rate(100) == pytest.approx(100 / (1e-6 + 1e-5), rel=1e-2)
    limited = measure_costs(as_simulator(simulator), 1000, 1e9, entropy=3, most=5000)
    assert limited.transitions <= 5000


def test_measuring_ends_in_time(monkeypatch):
    simulator = Timed(1e-3, 1e-4)
    monkeypatch.setattr(budgets.time, "perf_counter", simulator.now)
    costs = measure_costs(as_simulator(simulator), 10**6, 0.01, entropy=3)
    assert simulator.time < 0.1  # trajectories of 16 steps at most
    assert costs.reset_price == pytest.approx(10)


def test_one_length_is_enough(monkeypatch):
    simulator = Timed(0.1, 0.2)
    monkeypatch.setattr(budgets.time, "perf_counter", simulator.now)
    assert measure_costs(as_simulator(simulator), 1, 1.0, entropy=3).rate(1) == pytest.approx(1 / 0.3)


@pytest.mark.parametrize("death", [0.0, 0.05])
@pytest.mark.parametrize(("seconds", "noise"), [(1.0, 0.0), (10.0, 0.2), (600.0, 0.3)])
def test_time_is_spent_and_hardly_exceeded(seconds, death, noise):
    """Steps of 0.1 ms and resets of 1 ms, with a rate that is unsure by a fifth or more and wrong by half at first."""
    simulator = Timed(1e-3, 1e-4, death=death, noise=noise)
    watch = Clock(seconds, 50, now=simulator.now)
    strategy, rate = Uniform(horizon=50, budget=50, gamma=1.0), 5000.0
    while True:
        strategy.change_budget(watch.budget(strategy.spent, rate))
        schedule = strategy.ask()
        if schedule is None:
            break
        started = simulator.time
        batch = simulator.rollout(schedule.lengths, range(schedule.trajectories))
        strategy.tell(batch)
        rate = batch.transitions / (simulator.time - started)
    assert 0.93 * seconds < simulator.time < 1.07 * seconds


class Noisy(Timed):
    """Independent normal rewards around 1, from the seeds."""

    def rollout(self, lengths, seeds):
        batch = super().rollout(lengths, seeds)
        rewards = [np.random.default_rng(seed).normal(1, 1, n) for n, seed in zip(lengths, seeds, strict=True)]
        return Trajectories(np.concatenate(rewards), lengths, batch.steps)


@pytest.fixture
def noisy(monkeypatch):
    """Makes a simulator, and its clock that of the evaluation."""

    def make(per_reset, per_step):
        simulator = Noisy(per_reset, per_step)
        for name in ("perf_counter", "monotonic"):
            monkeypatch.setattr(budgets.time, name, simulator.now)
        monkeypatch.setitem(Clock.__init__.__kwdefaults__, "now", simulator.now)
        return simulator

    return make


@pytest.mark.parametrize("strategy", ["adaptive", "uniform", "rido"])
def test_evaluation_spends_its_time_and_is_calibrated(strategy, noisy):
    results = []
    for seed in range(40):
        simulator = noisy(1e-2, 1e-3)
        settings = dict(time_budget=3.0, gamma=0.9, horizon=20, strategy=strategy, seed=seed)
        results.append(rido.evaluate(simulator, **settings))
        assert 2.7 < simulator.time < 3.3
    assert_calibrated(results, np.sum(0.9 ** np.arange(20)))


def test_a_price_of_resets_makes_trajectories_longer(noisy):
    """Resets that take as long as 50 steps of equally noisy rewards: a plan that knows has fewer of them."""
    settings = dict(gamma=0.8, horizon=30, seed=1)
    result = rido.evaluate(noisy(1e-2, 2e-4), time_budget=3, **settings)
    blind = rido.evaluate(noisy(1e-2, 2e-4), budget=result.transitions, **settings)
    assert result.trajectories < 0.8 * blind.trajectories


def test_time_that_was_spent_before_counts():
    assert Clock(10.0, 50, elapsed=8.0, now=lambda: 0.0).left == 2.0
    assert Clock(10.0, 50, elapsed=11.0, now=lambda: 0.0).left == 0.0
    assert Clock(10.0, 50, elapsed=11.0, now=lambda: 0.0).budget(700, 1e6) == 700
