"""``rido study``: strategies side by side in one environment."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from rido.cli.console import may_run_code, require_writable
from rido.cli.options import EnvArgument, GammaOption, Output, PolicyOption, command, option
from rido.study import StrategyComparison, Study, study

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@command(study)
def study_command(
    env: EnvArgument,
    gamma: GammaOption,
    policy: PolicyOption = None,
    plot: Annotated[Path | None, option("Draw the comparison into this file (png, pdf, svg).")] = None,
    **options: Any,
) -> Output:
    """Compare strategies by their errors in one environment.

    A bank of full-length trajectories is recorded once. Then every strategy is run many times on trajectories drawn
    from it, whose mean return is the truth.
    """
    figure = None if plot is None else _figure(plot)
    options["trust"] = may_run_code(policy, trust=options["trust"])
    found = study(env, policy, gamma=gamma, **options)
    for warning in found.warnings:
        print(f"rido: warning: {warning}", file=sys.stderr)
    if figure is not None and plot is not None:
        _draw(found.comparisons, figure, plot)
    return Output(found.to_dict(), lambda: _show(found))


def _show(found: Study) -> None:
    first = found.comparisons[0]
    print(
        f"{found.policy} in {found.environment}: {first.truth:.6g} over {first.oracle.horizon} steps, the mean of "
        f"{found.bank:,} trajectories; {first.repetitions} runs of each strategy drawn from them, seed {first.seed}"
    )
    for comparison in found.comparisons:
        _print_table(comparison)


def _print_table(comparison: StrategyComparison) -> None:
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


def _draw(comparisons: Sequence[StrategyComparison], figure: Figure, path: Path) -> None:
    from rido.plots import plot_comparison, plot_schedules
    from rido.plots.style import style

    with style():
        left, right = figure.subplots(1, 2)
        plot_comparison(comparisons if len(comparisons) > 1 else comparisons[0], ax=left)
        plot_schedules(comparisons[-1], ax=right)
        right.set_title(f"{comparisons[-1].budget:,} transitions")
        figure.savefig(path)
