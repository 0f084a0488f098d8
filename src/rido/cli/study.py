"""``rido study``: strategies side by side in one environment."""

from __future__ import annotations

import math
import secrets
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer

from rido.cli.console import (
    EnvArgument,
    EnvKwargOption,
    JsonOption,
    PolicyOption,
    TrustOption,
    may_run_code,
    one_line_errors,
    parse_arguments,
    print_json,
    require_writable,
    stdout_to_stderr,
)
from rido.cli.options import (
    EndOnTruncationOption,
    EnvPoolOption,
    GammaOption,
    HorizonOption,
    NoReseedOption,
    NumEnvsOption,
    RayOption,
    SeedOption,
    SimulatorOption,
    StepTimeoutOption,
    StochasticOption,
    WorkersOption,
    chosen_simulator,
)
from rido.core.trajectories import Trajectories, concatenate
from rido.evaluation.progress import Progress
from rido.simulators.base import close, trajectory_seeds
from rido.simulators.factory import resolve_environment, simulator_maker

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from rido.study import Comparison, StrategyResult


def study_command(
    env: EnvArgument,
    budget: Annotated[list[int], typer.Option(help="Transitions of each run; may be repeated.")],
    gamma: GammaOption,
    horizon: HorizonOption = None,
    policy: PolicyOption = None,
    trust: TrustOption = False,
    strategy: Annotated[list[str], typer.Option(help="A strategy to compare; may be repeated.")] = [  # noqa: B006
        "uniform",
        "robust",
        "rido",
        "adaptive",
    ],
    bank: Annotated[int, typer.Option(min=2, help="Full-length trajectories to record, from which runs draw.")] = 500,
    repetitions: Annotated[int, typer.Option(min=2, help="Runs of each strategy.")] = 100,
    seed: SeedOption = None,
    end_on_truncation: EndOnTruncationOption = False,
    no_reseed: NoReseedOption = False,
    num_envs: NumEnvsOption = None,
    workers: WorkersOption = 1,
    simulator: SimulatorOption = None,
    ray: RayOption = None,
    envpool: EnvPoolOption = False,
    step_timeout: StepTimeoutOption = None,
    stochastic: StochasticOption = False,
    env_kwarg: EnvKwargOption = None,
    plot: Annotated[Path | None, typer.Option(help="Draw the comparison into this file (png, pdf, svg).")] = None,
    as_json: JsonOption = False,
) -> None:
    """Compare strategies by their errors in one environment.

    A bank of full-length trajectories is recorded once. Then every strategy is run many times on trajectories drawn
    from it, whose mean return is the truth.
    """
    seed = secrets.randbits(32) if seed is None else seed
    with one_line_errors(), stdout_to_stderr():
        figure = None if plot is None else _figure(plot)
        from rido.study import compare

        process: dict[str, Any] = dict(env_kwargs=parse_arguments("env-kwarg", env_kwarg))
        process |= dict(end_on_truncation=end_on_truncation, reseed=not no_reseed)
        chosen = chosen_simulator(simulator, ray, envpool)
        made, chosen, horizon = resolve_environment(env, horizon, gamma, simulator=chosen, **process)
        running: Any = simulator_maker(
            made,
            chosen,
            workers=workers,
            step_timeout=step_timeout,
            horizon=horizon,
            gamma=gamma,
            num_envs=num_envs,
            deterministic=not stochastic,
            trust=may_run_code(policy, trust),
            **process,
        )(policy)
        acting = running.capabilities.policy
        assert acting is not None  # no simulator of the command line acts by itself
        try:
            recorded = _record(running, bank, horizon, seed)
        finally:
            for warning in (*running.capabilities.found.notes, *acting.warnings, *close(running)):
                print(f"rido: warning: {warning}", file=sys.stderr)
        rewards = recorded.rewards
        with Progress(len(budget) * len(strategy) * repetitions, shown=None) as bar:
            comparisons = [
                compare(
                    strategy,
                    rewards,
                    steps=recorded.steps,
                    budget=each,
                    gamma=gamma,
                    repetitions=repetitions,
                    seed=seed,
                    progress=_advance(bar),
                )
                for each in sorted(set(budget))
            ]
        if figure is not None and plot is not None:
            _draw(comparisons, figure, plot)
    if as_json:
        print_json(_to_dict(env, acting.name, bank, comparisons))
        return
    print(
        f"{acting.name} in {env}: {comparisons[0].truth:.6g} over {horizon} steps, the mean of {bank:,} "
        f"trajectories; {repetitions} runs of each strategy drawn from them, seed {seed}"
    )
    for comparison in comparisons:
        _print_table(comparison)


def _record(simulator: Any, count: int, horizon: int, seed: int) -> Trajectories:
    """Collects full-length trajectories, a few at a time so that the bar moves."""
    parts = []
    with Progress(count * horizon, shown=None) as bar:
        for first in range(0, count, simulator.num_envs):
            size = min(simulator.num_envs, count - first)
            part = simulator.rollout(np.full(size, horizon), trajectory_seeds(seed, first, size))
            bar.advance(size * horizon)
            parts.append(part)
    return concatenate(parts)


def _advance(bar: Progress) -> Callable[[], None]:
    return lambda: bar.advance(1)


def _print_table(comparison: Comparison) -> None:
    """Prints the errors at one budget, the best strategy first."""
    from rich.console import Console
    from rich.table import Table

    best = math.sqrt(comparison.oracle_variance)
    table = Table(box=None, pad_edge=False, title_justify="left")
    table.title = f"{comparison.budget:,} transitions, best possible error {best:.4g}"
    table.add_column("strategy")
    for column in ("error (RMS)", "95% interval", "variance/best", "coverage"):
        table.add_column(column, justify="right")
    for result in sorted(comparison.results, key=lambda result: result.mse):
        low, high = (math.sqrt(edge) for edge in result.mse_interval)
        table.add_row(
            result.name,
            f"{math.sqrt(result.mse):.4g}",
            f"{low:.4g} to {high:.4g}",
            f"{result.relative_variance:.3g}",
            f"{result.coverage:.0%}",
        )
    Console(highlight=False, markup=False).print(table)


def _figure(path: Path) -> Figure:
    """Returns an empty figure, once it is certain that it can be drawn and saved."""
    require_writable("plot", path)
    from rido.plots.style import style

    with style():
        from matplotlib.figure import Figure

        figure = Figure(figsize=(10, 4), layout="constrained")
    kinds = figure.canvas.get_supported_filetypes()
    if path.suffix[1:] not in kinds:
        raise ValueError(f"plot must be a file of a kind like png, pdf or svg, got {path}")
    return figure


def _draw(comparisons: Sequence[Comparison], figure: Figure, path: Path) -> None:
    """Draws errors, and schedules at the largest budget."""
    from rido.plots import plot_comparison, plot_schedules
    from rido.plots.style import style

    with style():
        left, right = figure.subplots(1, 2)
        plot_comparison(comparisons if len(comparisons) > 1 else comparisons[0], ax=left)
        plot_schedules(comparisons[-1], ax=right)
        right.set_title(f"{comparisons[-1].budget:,} transitions")
        figure.savefig(path)


def _to_dict(env: str, policy: str, bank: int, comparisons: Sequence[Comparison]) -> dict[str, Any]:
    first = comparisons[0]
    return {
        "environment": env,
        "policy": policy,
        "gamma": first.gamma,
        "horizon": first.oracle.horizon,
        "bank": bank,
        "truth": first.truth,
        "repetitions": first.repetitions,
        "seed": first.seed,
        "comparisons": [
            {
                "budget": comparison.budget,
                "best_variance": comparison.oracle_variance,
                "strategies": [_result(result) for result in comparison.results],
            }
            for comparison in comparisons
        ],
    }


def _result(result: StrategyResult) -> dict[str, Any]:
    low, high = result.mse_interval
    numbers = {
        "mse": result.mse,
        "mse_low": low,
        "mse_high": high,
        "relative_variance": result.relative_variance,
        "bias": result.bias,
        "bias_error": result.bias_error,
        "coverage": result.coverage,
        "transitions": result.transitions,
    }
    return {
        "strategy": result.name,
        **{name: number if math.isfinite(number) else None for name, number in numbers.items()},
        "counts": result.counts.tolist(),
    }
