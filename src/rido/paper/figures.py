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

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

STYLES: dict[str, dict[str, Any]] = {
    "uniform": {"color": "0.45", "label": "uniform"},
    "robust": {"color": "tab:brown", "label": "robust"},
    "rido": {"color": "tab:orange", "label": "RIDO (paper)"},
    "oracle": {"color": "black", "label": "oracle", "linestyle": "--", "linewidth": 1},
    "adaptive": {"color": "tab:blue", "label": "adaptive (ours)"},
    "adaptive + critic": {"color": "tab:red", "label": "adaptive + critic (ours)"},
}


def draw(results: Mapping[str, Results], out: Path) -> None:
    """Draws the figures of all sections that have results, as PNG and SVG."""
    import matplotlib

    figures: dict[str, Callable[[Results], Figure]] = {
        "main": lambda section: _errors(section, MAIN),
        "additional": lambda section: _errors(section, ADDITIONAL),
        "schedules": _schedules,
        "beta": lambda section: _ablation(section, "beta"),
        "batch": lambda section: _ablation(section, "batch"),
        "theory": _theory,
    }
    settings: Any = {"svg.hashsalt": "rido", "font.size": 8, "axes.spines.top": False, "axes.spines.right": False}
    with matplotlib.rc_context(settings):
        for name, make in figures.items():
            if name in results:
                _save(make(results[name]), out / name)
        if "theory" in results:
            _save(_grouping(results["theory"]), out / "grouping")


def _save(figure: Figure, path: Path) -> None:
    figure.savefig(path.with_suffix(".png"), dpi=150)
    figure.savefig(path.with_suffix(".svg"), metadata={"Date": None})


def _new(rows: int, columns: int, width: float = 2.7, height: float = 2.3) -> tuple[Figure, Any]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width * columns, height * rows + 0.4), layout="constrained")
    return figure, figure.subplots(rows, columns, squeeze=False)


def _legend(figure: Figure, axes: Axes) -> None:
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=len(labels), frameon=False)


def _band(ax: Axes, x: Any, middle: Any, low: Any, high: Any, **style: Any) -> None:
    """Draws a line with a band around it."""
    (line,) = ax.plot(x, middle, **{"linewidth": 1.4, **style})
    ax.fill_between(x, low, high, color=line.get_color(), alpha=0.2, linewidth=0)


def _errors(section: Results, domains: Sequence[Domain]) -> Figure:
    figure, axes = _new(len(GAMMAS), len(domains))
    for column, domain in enumerate(domains):
        for row, gamma in enumerate(GAMMAS):
            ax, cells = axes[row, column], cells_of(section, domain.name, gamma)
            budgets = [cell["budget"] for cell in cells]
            for name, style in STYLES.items():
                found = [cell["strategies"][name] for cell in cells]
                mse, low, high = (np.array([each[key] for each in found]) for key in ("mse", "mse_low", "mse_high"))
                _band(ax, budgets, mse, np.maximum(low, mse / 10), high, marker=".", **style)
            ax.set(yscale="log", xlabel="transitions", title=f"{domain.title}, $\\gamma$ = {gamma:g}")
            ax.set_xticks(budgets, [f"{budget / 1000:g}k" for budget in budgets])
            if column == 0:
                ax.set_ylabel("mean squared error")
    _legend(figure, axes[0, 0])
    return figure


def _schedules(section: Results) -> Figure:
    figure, axes = _new(len(GAMMAS), len(MAIN))
    for column, domain in enumerate(MAIN):
        for row, gamma in enumerate(GAMMAS):
            ax, (cell,) = axes[row, column], cells_of(section, domain.name, gamma)
            for name, style in STYLES.items():
                found = cell["strategies"][name]
                steps = np.arange(found["counts"].size)
                _band(ax, steps, found["counts"], found["counts_low"], found["counts_high"], **style)
            ax.set(yscale="log", xlabel="step t")
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
            _band(axes[row, 0], budgets, *curves, color=color, marker=".", label=f"{symbol} = {value:,g}")
            (drawn,) = (cell for cell in chosen if cell["budget"] == SCHEDULE_BUDGET[setting])
            steps = np.arange(drawn["counts"].size)
            bands = (drawn[key] for key in ("counts", "counts_low", "counts_high"))
            _band(axes[row, 1], steps, *bands, color=color, marker=".")
        axes[row, 0].plot(budgets, [cell["oracle_variance"] for cell in chosen], "k--", linewidth=1, label="oracle")
        axes[row, 0].set(xscale="log", yscale="log", xlabel="transitions", ylabel="mean squared error")
        axes[row, 0].set_xticks(budgets, [f"{budget / 1000:g}k" for budget in budgets])
        axes[row, 0].set_xticks([], minor=True)
        axes[row, 1].set(
            xlabel="step t", ylabel="samples $n_t$", yscale="log" if domain.name == "example2" else "linear"
        )
        axes[row, 0].set_title(domain.title)
        axes[row, 1].set_title(f"{domain.title}, {SCHEDULE_BUDGET[setting]:,} transitions")
    _legend(figure, axes[0, 0])
    return figure


def _theory(section: Results) -> Figure:
    figure, axes = _new(1, 3, width=3.6, height=2.8)
    regret, consistency, propositions = axes[0]
    colors = dict(zip(PROCESSES, ("tab:orange", "tab:purple"), strict=True))
    for process, color in colors.items():
        name = "$" + process.replace(">=", "\\geq").replace("some ", "") + "$"
        for beta, line in (("1", "-"), ("theory", ":")):
            cells = [cell for cell in section["cells"] if cell.get("process") == process and cell["beta"] == beta]
            cells.sort(key=lambda cell: cell["budget"])
            budgets = [cell["budget"] for cell in cells]
            means, highs = ([cell[key] for cell in cells] for key in ("ratio", "ratio_high"))
            label = f"{name}, $\\beta$ {'= 1' if beta == '1' else 'of the theorem'}"
            _band(regret, budgets, means, means, highs, color=color, linestyle=line, label=label)
            if beta == "1":
                mse = [cell["mse"] for cell in cells]
                consistency.plot(budgets, mse, ".-", color=color, label=f"RIDO, {name}")
                consistency.plot(budgets, [cell["optimal_variance"] for cell in cells], "--", color=color, linewidth=1)
                if process == "some f_t < 0":
                    bound = [cell["bound"] for cell in cells]
                    regret.plot(budgets, bound, color="black", linestyle="--", linewidth=1, label="bound, constant 1")
    regret.set(xscale="log", xlabel="transitions", ylabel="surrogate / optimal variance", title="Regret", yscale="log")
    consistency.set(xscale="log", yscale="log", xlabel="transitions", ylabel="mean squared error", title="Consistency")
    consistency.plot([], [], "k--", linewidth=1, label="optimal variance")
    cells = sorted((cell for cell in section["cells"] if cell["what"] == "predetermined"), key=lambda c: c["horizon"])
    horizons = [cell["horizon"] for cell in cells]
    propositions.plot(horizons, [cell["uniform"] for cell in cells], ".-", color="0.45", label="uniform")
    for place, gamma in enumerate(ROBUST_GAMMAS):
        values = [cell["robust"][place] for cell in cells]
        propositions.plot(
            horizons, values, ".-", color="tab:brown", alpha=0.4 + 0.3 * place, label=f"robust, $\\gamma$ = {gamma:g}"
        )
    propositions.plot(horizons, [cell["rido"] for cell in cells], ".-", color="tab:orange", label="RIDO")
    propositions.set(xscale="log", yscale="log", xlabel="horizon T", ylabel="variance / optimal variance")
    propositions.set_title("Only the first step matters")
    for ax in axes[0]:
        ax.legend(frameon=False, fontsize=7)
    return figure


def _grouping(section: Results) -> Figure:
    (cell,) = (cell for cell in section["cells"] if cell["what"] == "grouping")
    weights, starts = cell["weights"], [*cell["starts"], len(cell["weights"])]
    figure, axes = _new(2, 1, width=7.0, height=1.7)
    top, bottom = axes[:, 0]
    top.bar(np.arange(weights.size), weights, color=np.where(weights < 0, "tab:red", "tab:orange"))
    top.set(ylabel="$f_t$", title="Swimmer, $\\gamma$ = 0.99: one variable $n_t$ for each step")
    for start, end in pairwise(starts):
        color = "tab:purple" if end - start > 1 else "tab:orange"
        bottom.bar(start - 0.4, weights[start:end].sum(), width=end - start - 0.2, align="edge", color=color)
    bottom.set(xlabel="step t", ylabel="sum of $f_t$", xlim=top.get_xlim())
    bottom.set_title("one variable for each group: a negative weight is joined with what follows until the sum is not")
    for ax in (top, bottom):
        ax.axhline(0, color="black", linewidth=0.6)
    return figure
