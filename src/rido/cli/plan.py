"""``rido plan``: a schedule without any simulation."""

import json
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
from numpy.typing import NDArray

from rido.cli.console import bars
from rido.cli.options import Output, command, option
from rido.core import checks
from rido.core.allocation import hoeffding_weights
from rido.core.schedule import Schedule
from rido.record.arrays import read_array


@command()
def plan_command(
    budget: Annotated[int, option("Transitions to spend.")],
    horizon: Annotated[int | None, option("Steps of a full trajectory (default: the number of weights).")] = None,
    gamma: Annotated[float | None, option("Discount factor in (0, 1], for the robust schedule.")] = None,
    strategy: Annotated[Literal["uniform", "robust"], option("Which schedule, where no weights are given.")] = "robust",
    weights: Annotated[
        Path | None, option("Plan the best schedule for these weights f_t: a json, npy or csv file, or a run file.")
    ] = None,
) -> Output:
    """Plan how many samples of each time step to collect, without any simulation."""
    name, schedule, measure = _plan(budget, horizon, gamma, strategy, weights)
    ratio = None if measure is None else _ratio(schedule, measure)
    by_length = {str(step + 1): int(count) for step, count in enumerate(schedule.trajectories_by_length) if count}
    content = {
        "strategy": name,
        "horizon": schedule.horizon,
        "transitions": schedule.transitions,
        "trajectories": schedule.trajectories,
        "counts": schedule.counts.tolist(),
        "trajectories_by_length": by_length,
        "variance_ratio_to_uniform": ratio,
    }

    def show() -> None:
        print(
            f"{name} schedule: {schedule.transitions:,} transitions in {schedule.trajectories:,} trajectories of up to "
            f"{schedule.horizon} steps, {schedule.counts[-1]:,} of them full"
        )
        print(bars(schedule.counts))
        if ratio is not None:
            what = "Hoeffding interval" if weights is None else "standard error"
            print(f"its {what} is {ratio**0.5:.3g} times that of a uniform schedule of as many transitions")

    return Output(content, show)


def _plan(
    budget: int, horizon: int | None, gamma: float | None, strategy: str, weights: Path | None
) -> tuple[str, Schedule, NDArray[np.float64] | None]:
    budget = checks.integer("budget", budget, least=1, most=checks.MOST_TRANSITIONS)
    if weights is not None:
        measure = checks.finite_vector("weights", _read_weights(weights), length=horizon)
        return "optimal", Schedule.optimal(measure, budget), measure
    if horizon is None:
        raise ValueError("horizon must be given where there are no weights")
    horizon = checks.integer("horizon", horizon, least=1, most=checks.MOST_STEPS)
    if budget < horizon:
        raise ValueError(f"budget must pay for one full trajectory of {horizon} steps, got {budget}")
    if strategy == "uniform":
        return "uniform", Schedule.uniform(horizon, budget), None
    if gamma is None:
        raise ValueError("gamma must be given for the robust schedule")
    measure = hoeffding_weights(horizon, gamma)
    return "robust", Schedule.robust(horizon, budget, gamma=gamma), measure


def _ratio(schedule: Schedule, weights: NDArray[np.float64]) -> float | None:
    """Returns the variance under the schedule over that under a uniform one; None where it means nothing."""
    uniform = Schedule.uniform(schedule.horizon, schedule.transitions).variance(weights)
    ratio = schedule.variance(weights) / uniform if uniform > 0 else -1.0
    return ratio if ratio >= 0 else None


def _read_weights(path: Path) -> NDArray[np.float64]:
    """Reads numbers from a json list, an npy array, a csv of one row or column, or takes them from a run file."""
    try:
        if path.suffix == ".json":
            return np.asarray(json.loads(path.read_text(encoding="utf-8")), dtype=np.float64)
        if path.suffix == ".npy":
            return np.asarray(read_array(path.read_bytes()), dtype=np.float64)
        if path.suffix == ".csv":
            text = path.read_text(encoding="utf-8").replace(",", " ")
            return np.array(text.split(), dtype=np.float64)
    except (ValueError, TypeError) as error:
        raise ValueError(f"weights must be a file of numbers, got {path}: {error}") from error
    from rido.evaluation.recorded import read_run

    recorded = read_run(path).weights
    if recorded.size == 0:
        raise ValueError(f"weights must come from at least 2 full-length trajectories, {path} has fewer")
    return recorded
