"""evaluate() in several processes and with a budget of time."""

import time
from functools import partial

import pytest

import rido
from environments import Mortal
from rido.simulators.envpool import EnvPoolSimulator
from rido.simulators.envs.lqg import expected_return
from traps import tanh_policy, zeros


def test_workers_do_not_change_the_result():
    settings = dict(budget=5000, gamma=0.95, horizon=40, seed=1)
    one = rido.evaluate("Pendulum-v1", tanh_policy, **settings)
    two = rido.evaluate("Pendulum-v1", tanh_policy, workers=2, **settings)
    assert (two.value, two.standard_error, two.schedule) == (one.value, one.standard_error, one.schedule)
    assert (two.policy, two.environment, two.reproducible) == (one.policy, one.environment, True)


def test_workers_serve_critics(agents_dir):
    agent = agents_dir / "ppo" / "Pendulum-v1" / "Pendulum-v1.zip"
    settings = dict(budget=5000, gamma=0.9, horizon=40, seed=1, critic="policy")
    one, two = (rido.evaluate("Pendulum-v1", agent, workers=workers, **settings) for workers in (1, 2))
    assert (two.value, two.standard_error) == (one.value, one.standard_error)


@pytest.mark.filterwarnings("ignore:.*Box (low|high)'s precision")
def test_simulators_are_named_or_made():
    settings = dict(budget=5000, gamma=0.95, horizon=40, seed=1)
    named = rido.evaluate("Pendulum-v1", tanh_policy, simulator="envpool", **settings)
    made = rido.evaluate("Pendulum-v1", tanh_policy, simulator=partial(EnvPoolSimulator, threads=1), **settings)
    assert named.value == made.value and named.reproducible
    unseeded = partial(EnvPoolSimulator, reproducible=False)
    result = rido.evaluate("Pendulum-v1", tanh_policy, simulator=unseeded, **settings)
    assert not result.reproducible and "the seed does not control" in result.warnings[0]
    with pytest.raises(ValueError, match=r"simulator must be one of 'gymnasium', .*, got 'cluster'"):
        rido.evaluate("Pendulum-v1", tanh_policy, simulator="cluster", **settings)


@pytest.mark.parametrize("strategy", ["adaptive", "uniform", "rido"])
def test_time_budgets_are_kept_and_the_result_is_covered(strategy):
    """False alarm of the interval: 1 in 10,000. The machine may be busy, so the time is checked with a wide margin."""
    started = time.perf_counter()
    result = rido.evaluate("rido/LQG-v0", time_budget=1.5, gamma=0.9, horizon=50, strategy=strategy, seed=3)
    assert 0.7 < time.perf_counter() - started < 4
    low, high = result.interval(0.9999)
    assert low < expected_return(50, 0.9) < high
    assert not result.reproducible and any("speed of the machine" in warning for warning in result.warnings)


def test_the_first_of_both_budgets_ends_a_run():
    result = rido.evaluate("rido/LQG-v0", time_budget=60, budget=3000, gamma=0.9, horizon=50, seed=3)
    assert result.transitions == 3000


def test_a_price_of_resets_makes_trajectories_longer():
    """Resets that take as long as 50 steps of equally noisy rewards: a plan that knows has fewer of them."""

    class SlowStart(Mortal):
        def reset(self, **arguments):
            time.sleep(0.01)
            return super().reset(**arguments)

        def step(self, action):
            observation, *_ = super().step(action)
            return observation, self.np_random.normal(), False, False, {}

    make = partial(SlowStart, seconds=1e-4)
    result = rido.evaluate(make, zeros, time_budget=3, gamma=0.8, horizon=30, seed=1)
    blind = rido.evaluate(make, zeros, budget=result.transitions, gamma=0.8, horizon=30, seed=1)
    assert result.trajectories < 0.8 * blind.trajectories


def test_a_run_with_a_time_budget_goes_on_and_repeats(tmp_path):
    settings = dict(time_budget=1.5, gamma=0.9, horizon=50, run=tmp_path / "run.rido")
    first = rido.evaluate("rido/LQG-v0", **settings)
    started = time.perf_counter()
    again = rido.evaluate("rido/LQG-v0", **settings)
    assert time.perf_counter() - started < 1
    assert (again.value, again.standard_error, again.transitions) == (
        first.value,
        first.standard_error,
        first.transitions,
    )
    with pytest.raises(ValueError, match="its time_budget is"):
        rido.evaluate("rido/LQG-v0", **{**settings, "time_budget": 2})


def test_bad_budgets_are_named():
    with pytest.raises(ValueError, match="budget must be given, in transitions, or time_budget, in seconds"):
        rido.evaluate("rido/LQG-v0", gamma=0.9, horizon=50)
    with pytest.raises(ValueError, match=r"time_budget must pay for two full trajectories, here about .* got 1e-06"):
        rido.evaluate("rido/LQG-v0", gamma=0.9, horizon=50, time_budget=1e-6)
