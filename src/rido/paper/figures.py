"""The paper's figures, drawn from the reproduction's numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from rido.paper.ablations import SCHEDULE_BUDGET
from rido.paper.claims import Results, cells_of
from rido.paper.domains import ADDITIONAL, EXAMPLES, GAMMAS, MAIN, Domain
from rido.paper.theory import PROCESSES, ROBUST_GAMMAS
from rido.plots.style import (
    BLUE,
    GREEN,
    GREY,
    REFERENCE,
    STRATEGIES,
    VERMILLION,
    label_ends,
    line_with_band,
    logarithmic,
    short,
    style,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

STYLES: dict[str, dict[str, Any]] = {
    **{name: {"color": color, "label": name} for name, color in STRATEGIES.items()},
    "rido": {"color": STRATEGIES["rido"], "label": "RIDO (paper)"},
    "adaptive": {"color": STRATEGIES["adaptive"], "label": "adaptive (ours)"},
    "adaptive + critic": {"color": STRATEGIES["adaptive + critic"], "label": "adaptive + critic (ours)"},
    "oracle": {"color": "black", "label": "oracle", **REFERENCE},
}


@style()
def draw(results: Mapping[str, Results], out: Path) -> None:
    """Draws the figures of all sections that have results, as PNG and SVG."""
    figures: dict[str, Callable[[Results], Figure]] = {
        "main": lambda section: _errors(section, MAIN),
        "additional": lambda section: _errors(section, ADDITIONAL),
        "schedules": _schedules,
        "beta": lambda section: _ablation(section, "beta"),
        "batch": lambda section: _ablation(section, "batch"),
        "theory": _theory,
    }
    for name, make in figures.items():
        if name in results:
            _save(make(results[name]), out / name)
    if "theory" in results:
        _save(_grouping(results["theory"]), out / "grouping")


def _save(figure: Figure, path: Path) -> None:
    figure.savefig(path.with_suffix(".png"))
    figure.savefig(path.with_suffix(".svg"), metadata={"Date": None})


def _new(rows: int, columns: int, width: float = 2.7, height: float = 2.3) -> tuple[Figure, Any]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width * columns, height * rows + 0.4), layout="constrained")
    return figure, figure.subplots(rows, columns, squeeze=False)


def _legend(figure: Figure, axes: Axes) -> None:
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=len(labels), frameon=False)


def _errors(section: Results, domains: Sequence[Domain]) -> Figure:
    figure, axes = _new(len(GAMMAS), len(domains))
    for column, domain in enumerate(domains):
        for row, gamma in enumerate(GAMMAS):
            ax, cells = axes[row, column], cells_of(section, domain.name, gamma)
            for name, look in STYLES.items():
                found = {cell["budget"]: cell["strategies"][name] for cell in cells if name in cell["strategies"]}
                keys = ("mse", "mse_low", "mse_high")
                mse, low, high = (np.array([each[key] for each in found.values()]) for key in keys)
                line_with_band(ax, list(found), mse, np.maximum(low, mse / 10), high, marker=".", **look)
            ax.set(xlabel="transitions", title=f"{domain.title}, $\\gamma$ = {gamma:g}")
            _against_budgets(ax, [cell["budget"] for cell in cells])
            if column == 0:
                ax.set_ylabel("mean squared error")
    _legend(figure, axes[0, 0])
    return figure


def _against_budgets(ax: Axes, budgets: Sequence[int]) -> None:
    """Makes both axes logarithmic, with a tick at each budget."""
    logarithmic(ax, "x")
    logarithmic(ax, "y")
    ax.set_xticks(budgets, [short(budget) for budget in budgets])


def _schedules(section: Results) -> Figure:
    figure, axes = _new(len(GAMMAS), len(MAIN))
    for column, domain in enumerate(MAIN):
        for row, gamma in enumerate(GAMMAS):
            ax, (cell,) = axes[row, column], cells_of(section, domain.name, gamma)
            for name, look in STYLES.items():
                found = cell["strategies"][name]
                steps = np.arange(found["counts"].size)
                line_with_band(ax, steps, found["counts"], found["counts_low"], found["counts_high"], **look)
            ax.set_xlabel("step t")
            logarithmic(ax, "y")
            ax.set_title(f"{domain.title}, $\\gamma$ = {gamma:g}\n{cell['budget']:,} transitions")
            if column == 0:
                ax.set_ylabel("samples $n_t$")
    _legend(figure, axes[0, 0])
    return figure


def _ablation(section: Results, setting: str) -> Figure:
    from matplotlib import colormaps

    figure, axes = _new(len(EXAMPLES), 2, width=4.0)
    symbol = {"beta": "$\\beta$", "batch": "$b$"}[setting]
    for row, domain in enumerate(EXAMPLES):
        cells = cells_of(section, domain.name)
        values = sorted({cell[setting] for cell in cells})
        for place, value in enumerate(values):
            color = colormaps["viridis"](0.9 * place / (len(values) - 1))
            chosen = [cell for cell in cells if cell[setting] == value]
            budgets = [cell["budget"] for cell in chosen]
            curves = (np.array([cell[key] for cell in chosen]) for key in ("mse", "mse_low", "mse_high"))
            line_with_band(axes[row, 0], budgets, *curves, color=color, marker=".", label=f"{symbol} = {value:,g}")
            (drawn,) = (cell for cell in chosen if cell["budget"] == SCHEDULE_BUDGET[setting])
            steps = np.arange(drawn["counts"].size)
            bands = (drawn[key] for key in ("counts", "counts_low", "counts_high"))
            line_with_band(axes[row, 1], steps, *bands, color=color, marker=".")
        best = [cell["oracle_variance"] for cell in chosen]
        axes[row, 0].plot(budgets, best, color="black", label="oracle", **REFERENCE)
        axes[row, 0].set(xlabel="transitions", ylabel="mean squared error")
        _against_budgets(axes[row, 0], budgets)
        axes[row, 1].set(xlabel="step t", ylabel="samples $n_t$")
        if domain.name == "example2":
            logarithmic(axes[row, 1], "y")
        axes[row, 0].set_title(domain.title)
        axes[row, 1].set_title(f"{domain.title}, {SCHEDULE_BUDGET[setting]:,} transitions")
    _legend(figure, axes[0, 0])
    return figure


def _theory(section: Results) -> Figure:
    figure, axes = _new(1, 3, width=3.6, height=2.8)
    regret, consistency, propositions = axes[0]
    colors = dict(zip(PROCESSES, (GREEN, VERMILLION), strict=True))
    for process, color in colors.items():
        name = "$" + process.replace(">=", "\\geq").replace("some ", "") + "$"
        for beta, line in (("1", "-"), ("theory", ":")):
            cells = [cell for cell in section["cells"] if cell.get("process") == process and cell["beta"] == beta]
            cells.sort(key=lambda cell: cell["budget"])
            budgets = [cell["budget"] for cell in cells]
            means, highs = ([cell[key] for cell in cells] for key in ("ratio", "ratio_high"))
            label = f"{name}, $\\beta$ {'= 1' if beta == '1' else 'of the theorem'}"
            line_with_band(regret, budgets, means, means, highs, color=color, linestyle=line, label=label)
            if beta == "1":
                mse = [cell["mse"] for cell in cells]
                consistency.plot(budgets, mse, ".-", color=color, label=f"RIDO, {name}")
                consistency.plot(budgets, [cell["optimal_variance"] for cell in cells], color=color, **REFERENCE)
                if process == "some f_t < 0":
                    bound = [cell["bound"] for cell in cells]
                    regret.plot(budgets, bound, color="black", label="bound, constant 1", **REFERENCE)
    regret.set(xlabel="transitions", ylabel="surrogate / optimal variance", title="Regret")
    consistency.set(xlabel="transitions", ylabel="mean squared error", title="Consistency (dashed: optimal variance)")
    cells = sorted((cell for cell in section["cells"] if cell["what"] == "predetermined"), key=lambda c: c["horizon"])
    horizons = [cell["horizon"] for cell in cells]
    lines = {"uniform": ([cell["uniform"] for cell in cells], GREY, 1.0)}
    for place, gamma in enumerate(ROBUST_GAMMAS):
        values = [cell["robust"][place] for cell in cells]
        lines[f"robust, $\\gamma$ = {gamma:g}"] = (values, STRATEGIES["robust"], 0.4 + 0.3 * place)
    lines["RIDO"] = ([cell["rido"] for cell in cells], STRATEGIES["rido"], 1.0)
    for name, (values, color, alpha) in lines.items():
        propositions.plot(horizons, values, ".-", color=color, alpha=alpha, label=name)
    propositions.set(xlabel="horizon T", ylabel="variance / optimal variance", title="Only the first step matters")
    for ax in axes[0]:
        logarithmic(ax, "x")
        logarithmic(ax, "y")
        ax.margins(x=0.02)
        label_ends(ax)
    return figure


def _grouping(section: Results) -> Figure:
    (cell,) = (cell for cell in section["cells"] if cell["what"] == "grouping")
    weights, starts = cell["weights"], [*cell["starts"], len(cell["weights"])]
    figure, axes = _new(2, 1, width=7.0, height=1.7)
    top, bottom = axes[:, 0]
    top.bar(np.arange(weights.size), weights, color=np.where(weights < 0, VERMILLION, BLUE))
    top.set(ylabel="$f_t$", title="Swimmer, $\\gamma$ = 0.99: one variable $n_t$ for each step")
    for start, end in pairwise(starts):
        color = GREEN if end - start > 1 else BLUE
        bottom.bar(start - 0.4, weights[start:end].sum(), width=end - start - 0.2, align="edge", color=color)
    bottom.set(xlabel="step t", ylabel="sum of $f_t$", xlim=top.get_xlim())
    bottom.set_title("One variable for each group: steps are merged until no sum is negative")
    for ax in (top, bottom):
        ax.axhline(0, color="black", linewidth=0.6)
    return figure
