"""The mean squared error and the schedules of every strategy in one domain, at one discount factor and budget."""

import zlib
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rido.core.allocation import Array
from rido.paper.domains import BankSource, rewards_of, world_of
from rido.strategies import Adaptive, Rido, Robust, Strategy, Uniform
from rido.study.strategies import Bank, StrategyResult, compare_strategies, standard_error

PAPER = ("uniform", "robust", "rido")  # the strategies that the paper compares
BEYOND = ("oracle", "adaptive", "adaptive + critic")  # the strategies that the reproduction adds
CRITIC_SHARE = 4  # runs without a critic for each run with one: fitting a critic in every run takes long
FEWEST_CRITIC_RUNS = 2  # fitting critics takes seconds


def errors_of_strategies(source: BankSource, gamma: float, budget: int, runs: int) -> dict[str, Any]:
    """Runs every strategy without a critic many times, all with the same random numbers."""
    rewards, steps = rewards_of(source)
    strategies: Mapping[str, Callable[..., Strategy]] = {
        "uniform": Uniform,
        "robust": Robust,
        "rido": partial(Rido, batch=source.domain.batch),
        "oracle": Bank(rewards, gamma=gamma, steps=steps).strategy("oracle"),
        "adaptive": Adaptive,
    }
    comparison = compare_strategies(
        strategies,
        rewards,
        budget=budget,
        gamma=gamma,
        steps=steps,
        repetitions=runs,
        seed=_seed(source, gamma, budget),
    )
    return {
        "truth": comparison.truth,
        "weights": comparison.weights.tolist(),
        "oracle_variance": comparison.oracle_variance,
        "strategies": {result.name: _numbers(result) for result in comparison.results},
    }


def evaluate_with_critic(source: BankSource, gamma: float, budget: int, runs: int) -> dict[str, Any]:
    """Runs the adaptive strategy with a critic many times: on LQG the true value function, elsewhere "auto"."""
    import rido

    world, domain = world_of(source), source.domain
    critic: Any = _riccati_value(domain.horizon, gamma) if domain.name == "lqg" else "auto"
    seed = _seed(source, gamma, budget)
    results = [
        rido.evaluate(
            world, budget=budget, gamma=gamma, horizon=domain.horizon, critic=critic, seed=seed + run, progress=False
        )
        for run in range(runs)
    ]
    truth = world.expected_return(gamma)
    errors = np.array([result.value for result in results]) - truth
    counts = np.array([result.schedule.counts for result in results])
    intervals = [result.interval() for result in results]
    return {
        "strategies": {
            "adaptive + critic": {
                **mean_square(errors),
                "bias": float(errors.mean()),
                "coverage": float(np.mean([low <= truth <= high for low, high in intervals])),
                "transitions": float(np.mean([result.transitions for result in results])),
                "errors": short(errors),
                **mean_counts(counts),
            }
        }
    }


def mean_square(errors: Array) -> dict[str, float]:
    """Returns the mean of squared errors and its 95% interval."""
    squares = np.asarray(errors) ** 2
    half_width, mean = 1.96 * standard_error(squares), float(squares.mean())
    return {"mse": mean, "mse_low": max(0.0, mean - half_width), "mse_high": mean + half_width}


def mean_counts(counts: NDArray[Any]) -> dict[str, list[float]]:
    """Returns the mean schedule of runs, one row each, and the band that holds 95% of them."""
    low, high = np.quantile(counts, [0.025, 0.975], axis=0)
    return {"counts": short(counts.mean(axis=0)), "counts_low": short(low), "counts_high": short(high)}


def short(values: Array) -> list[float]:
    """Rounds to six digits, which is more than a thousand runs can resolve."""
    return [float(f"{value:.6g}") for value in values]


def _numbers(result: StrategyResult) -> dict[str, Any]:
    numbers = ("mse", "relative_variance", "relative_variance_error", "bias", "coverage", "transitions")
    arrays = ("errors", "counts", "counts_low", "counts_high")
    return {
        **dict(zip(("mse_low", "mse_high"), result.mse_interval, strict=True)),
        **{name: getattr(result, name) for name in numbers},
        **{name: short(getattr(result, name)) for name in arrays},
    }


def _seed(source: BankSource, gamma: float, budget: int) -> int:
    """Returns a seed for each budget: as in the paper, every budget is a new experiment."""
    return zlib.crc32(f"{source.domain.name} {gamma:g} {budget}".encode())


def _riccati_value(horizon: int, gamma: float) -> Callable[[NDArray[Any], NDArray[np.int64]], Array]:
    """Returns the value function of LQG's policy, quadratic in the state, as a critic."""
    from rido.simulators.envs import lqg

    constant, at_one = np.array([lqg.value([0.0, 1.0], steps, gamma) for steps in range(horizon + 1)]).T

    def value(observations: NDArray[Any], steps_to_go: NDArray[np.int64]) -> Array:
        states = observations[:, 0].astype(np.float64)
        result: Array = constant[steps_to_go] + (at_one - constant)[steps_to_go] * states**2
        return result

    value.rowwise = True  # type: ignore[attr-defined]
    return value
