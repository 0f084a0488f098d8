"""The default against plain complete episodes on recorded public agents: results/zoo.md.

``python benchmarks/trust/zoo.py --output results/zoo.md`` measures what is missing in ``results/zoo.jsonl``, a line for
each cell, and writes the page and its picture. A run that was interrupted goes on where it stopped. ``--quick`` is the
short form that a test runs: three agents, two budgets. The banks are those of the folder RIDO_BANKS, by default
``../shared/banks``; without them nothing is measured, and one line says so.

A bank is a population: rows are drawn with replacement, and its mean return is the truth. *Plain episodes* are complete
episodes that go on while a full-length one is affordable, with a t interval. Everything is relative to them at equal
transitions: the exact variance ``strategy.variance_in(bank)``, the squared error, the width.
"""

import argparse
import json
import math
import os
import sys
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from functools import lru_cache, partial
from pathlib import Path

import numpy as np
from scipy.stats import t as student

from rido import Adaptive, Uniform
from rido.evaluation.result import uniform_transitions
from rido.study.strategies import Bank

sys.path.append(str(Path(__file__).parents[1]))
from sections import paragraphs, row, rule

BANKS = Path(os.environ.get("RIDO_BANKS", Path(__file__).parents[2].parent / "shared" / "banks"))
TUNING = (
    "a2c-Acrobot",
    "a2c-LunarLander",
    "ars-Pendulum",
    "ars-Swimmer",
    "ddpg-Pendulum",
    "dqn-CartPole-eps0.3",
    "ppo-BipedalWalker",
    "ppo-LunarLander-stoch",
    "ppo-MountainCarContinuous",
)
"""Agents on which the planner was designed."""
HELD_OUT = (
    "a2c-Walker2d",
    "ddpg-LunarLanderContinuous",
    "dqn-MountainCar",
    "ppo-Acrobot",
    "ppo-Hopper",
    "sac-Pendulum",
)
"""Agents whose numbers were not looked at before the planner was final."""
QUICK = ("a2c-Acrobot", "dqn-CartPole-eps0.3", "ppo-MountainCarContinuous")
GAMMAS = (1.0, 0.99, 0.9)
MULTIPLES = (5, 10, 20, 50, 200)
STRATEGIES: dict[str, Callable] = {"default": Adaptive, "uniform": Uniform}
SO_FAR = "rewards so far"
WITHOUT = {
    SO_FAR: {"so_far": 0.0},
    "caution": {"caution": 0.0},
    "unseen events, in plans": {"unseen": 0.0},
    "unseen events, in intervals": {"doubt": 0.0},
    "teams": {"teams_from": 1e9},
    "least gain": {"least_gain": 0.0},
    "a large pilot": {"large_pilot": 1.0},
    "long phases": {"growth": 0.3},
}
"""Settings that switch off one mechanism of the planner."""
STRATEGIES |= {f"without {name}": partial(Adaptive, settings=off) for name, off in WITHOUT.items()}


@dataclass(frozen=True)
class Cell:
    """What many runs of a strategy on one agent at one budget came to. All but coverage is relative to plain episodes.

    Attributes:
        agent: name of the bank.
        gamma: discount factor.
        multiple: budget in full-length trajectories.
        strategy: name of the strategy; "plain" for plain episodes, "oracle" for the best schedule of the true weights.
        runs: number of runs.
        variance: mean exact variance at equal transitions.
        variance_error: standard error of that mean.
        squared_error: mean squared error times the transitions spent.
        coverage: share of the runs whose 95% interval held the truth.
        width: mean width of the interval, in units of the mean width of the t interval of as many plain transitions.
        warned_held: runs with a warning among those whose interval held.
        warned_missed: runs with a warning among those whose interval missed.
        claim: geometric mean of what was claimed as ``uniform_transitions`` over what plain episodes need.
        claim_held: share of the runs whose interval of that held.
        spent: mean transitions over the budget.
        rounds: mean number of rounds.
    """

    agent: str
    gamma: float
    multiple: int
    strategy: str
    runs: int
    variance: float
    variance_error: float = 0.0
    squared_error: float = math.nan
    coverage: float = math.nan
    width: float = math.nan
    warned_held: int = 0
    warned_missed: int = 0
    claim: float = math.nan
    claim_held: float = math.nan
    spent: float = math.nan
    rounds: float = math.nan

    @property
    def key(self):
        return self.agent, self.gamma, self.multiple, self.strategy


class Agent:
    """A bank under one discount, with what plain episodes come to."""

    def __init__(self, name, gamma, rewards, steps):
        self.name, self.gamma = name, gamma
        self.bank = Bank(rewards, gamma=gamma, steps=steps)
        self.steps = steps
        self.returns = self.bank.rewards @ gamma ** np.arange(self.bank.horizon)
        self.unit = float(self.returns.var()) * float(steps.mean())  # variance of the mean, times transitions

    def plain(self, multiple, runs, seed=1):
        """Plain episodes while a full-length one is affordable: (errors, half-widths, transitions)."""
        rng, budget = np.random.default_rng([seed, multiple]), multiple * self.bank.horizon
        found = []
        for _ in range(runs):
            rows = rng.integers(self.steps.size, size=math.ceil(budget / self.steps.min()))
            before = np.cumsum(self.steps[rows]) - self.steps[rows]
            rows = rows[: int(np.searchsorted(before, budget - self.bank.horizon, side="right"))]
            values = self.returns[rows]
            half = student.ppf(0.975, rows.size - 1) * values.std(ddof=1) / math.sqrt(rows.size)
            found.append((values.mean() - self.bank.truth, half, self.steps[rows].sum()))
        return np.array(found).T

    def plain_cell(self, multiple, runs):
        errors, halves, spent = self.plain(multiple, runs)
        held = np.abs(errors) <= halves
        return Cell(
            self.name,
            self.gamma,
            multiple,
            "plain",
            runs,
            variance=1.0,
            squared_error=float(np.mean(errors**2 * spent) / self.unit),
            coverage=float(held.mean()),
            width=1.0,
            spent=float(spent.mean()) / (multiple * self.bank.horizon),
        )

    def oracle_cell(self, multiple):
        schedule = self.bank.best_schedule(multiple * self.bank.horizon)
        spent = float(schedule.counts @ self.bank.survival)
        return Cell(
            self.name, self.gamma, multiple, "oracle", 1, schedule.variance(self.bank.weights) * spent / self.unit
        )

    def cell(self, name, make, multiple, runs, seed=0):
        """Runs a strategy many times."""
        _, halves, plain_spent = self.plain(multiple, 400)
        width = 2 * float(np.mean(halves * np.sqrt(plain_spent)))
        found = np.array([self._run(make, multiple, [seed, run]) for run in range(runs)]).T
        variances, squares, held, widths, warned, claims, claim_held, spent, rounds = found
        told = np.isfinite(claims)
        return Cell(
            self.name,
            self.gamma,
            multiple,
            name,
            runs,
            variance=float(variances.mean()),
            variance_error=float(variances.std(ddof=1)) / math.sqrt(runs),
            squared_error=float(squares.mean()),
            coverage=float(held.mean()),
            width=float(np.median(widths)) / width,
            warned_held=int(np.sum(warned * held)),
            warned_missed=int(np.sum(warned * (1 - held))),
            claim=float(np.exp(np.mean(np.log(claims[told])))) if told.any() else math.nan,
            claim_held=float(claim_held[told].mean()) if told.any() else math.nan,
            spent=float(spent.mean()),
            rounds=float(rounds.mean()),
        )

    def _run(self, make, multiple, seed):
        bank = self.bank
        strategy = make(horizon=bank.horizon, budget=multiple * bank.horizon, gamma=self.gamma)
        bank.run(strategy, np.random.default_rng(seed))
        estimate, spent = strategy.estimate(), strategy.spent
        low, high = estimate.interval()
        claim = uniform_transitions(strategy.moments, estimate)
        variance = strategy.variance_in(bank.population, bank.weights)
        true, (least, most) = self.unit / variance, claim["uniform_transitions_interval"]
        return (
            variance * spent / self.unit,
            (estimate.value - bank.truth) ** 2 * spent / self.unit,
            low <= bank.truth <= high,
            (high - low) * math.sqrt(spent),
            bool(strategy.warnings()),
            claim["uniform_transitions"] / true,
            least <= true <= most,
            spent / strategy.budget,
            len(strategy.collected()),
        )


@lru_cache(maxsize=1)
def recorded(name):
    with np.load(BANKS / f"{name}.npz") as file:
        return file["rewards"].astype(np.float64), file["lengths"].astype(np.int64)


@lru_cache(maxsize=1)
def agent(name, gamma):
    return Agent(name, gamma, *recorded(name))


def measured(task):
    """The cell of (agent, gamma, multiple, strategy, runs)."""
    name, gamma, multiple, strategy, runs = task
    chosen = agent(name, gamma)
    if strategy == "plain":
        return chosen.plain_cell(multiple, 1000)
    if strategy == "oracle":
        return chosen.oracle_cell(multiple)
    return chosen.cell(strategy, STRATEGIES[strategy], multiple, runs)


def geometric_mean(values):
    return float(np.exp(np.mean(np.log(values))))


def tasks(agents, gammas, multiples, runs, ablation):
    """All (agent, gamma, multiple, strategy, runs); what switches mechanisms off has one budget and tuning agents."""
    for multiple in sorted(multiples, key=lambda multiple: abs(math.log(multiple / 30))):
        few = runs if multiple < 200 else max(2, runs // 2)
        for name in agents:
            for gamma in gammas:
                for strategy in ("oracle", "plain", "default", "uniform"):
                    yield name, gamma, multiple, strategy, few
    if ablation:
        for multiple in (50, 20, 200):
            for name in agents:
                for gamma in (1.0, 0.99):
                    yield name, gamma, multiple, f"without {SO_FAR}", max(2, runs // 2)
        for strategy in WITHOUT:
            for name in TUNING:
                for gamma in (1.0, 0.99):
                    yield name, gamma, 50, f"without {strategy}", max(2, runs // 2)


def read(path):
    """Cells that were measured already, by their keys."""
    lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
    cells = [
        Cell(**{name: math.nan if value is None else value for name, value in json.loads(x).items()}) for x in lines
    ]
    return {cell.key: cell for cell in cells}


def measure(path, wanted, workers):
    """Measures the cells that are missing and adds them to the file one by one; returns all that are wanted."""
    known = read(path)
    missing = [task for task in wanted if task[:4] not in known]
    with ExitStack() as stack:
        run = stack.enter_context(ProcessPoolExecutor(workers)).map if workers > 1 else map
        for cell in run(measured, missing):
            known[cell.key] = cell
            plain = {k: None if isinstance(v, float) and math.isnan(v) else v for k, v in asdict(cell).items()}
            with path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(plain) + "\n")
    return {task[:4]: known[task[:4]] for task in wanted}


def chosen(cells, agents, gamma, multiple, strategy):
    """The cells of some agents."""
    return [cell for key in ((a, gamma, multiple, strategy) for a in agents) if (cell := cells.get(key)) is not None]


def column(found, what):
    return np.array([getattr(cell, what) for cell in found])


def summary_rows(cells, agents, gammas, multiples):
    """A row for each discount and budget: the default, with plain episodes and Uniform beside it."""
    yield row(
        "gamma",
        "budget",
        "runs",
        "variance",
        "worst",
        "oracle",
        "MSE",
        "Uniform, worst",
        "coverage",
        "plain's",
        "lowest less plain's",
        "width",
        "claim",
        "its interval",
        "warned, held",
        "warned, missed",
        "rounds",
    )
    yield rule(17)
    for gamma in gammas:
        for multiple in multiples:
            ours, plain, oracle, uniform = (
                chosen(cells, agents, gamma, multiple, name) for name in ("default", "plain", "oracle", "uniform")
            )
            if len(ours) < len(agents) or not len(plain) == len(oracle) == len(uniform) == len(ours):
                continue
            variances, coverage = column(ours, "variance"), column(ours, "coverage")
            worst, gap = int(variances.argmax()), coverage - column(plain, "coverage")
            claims, runs = column(ours, "claim"), column(ours, "runs")
            held = np.rint(coverage * runs)
            yield row(
                f"{gamma:g}",
                f"{multiple} T",
                int(runs.min()),
                f"{geometric_mean(variances):.3f}",
                f"{variances[worst]:.2f} ({ours[worst].agent})",
                f"{geometric_mean(column(oracle, 'variance')):.3f}",
                f"{geometric_mean(column(ours, 'squared_error')):.2f}",
                f"{column(uniform, 'variance').max():.2f}",
                f"{coverage.mean():.3f}",
                f"{column(plain, 'coverage').mean():.3f}",
                f"{gap.min():+.2f} ({ours[int(gap.argmin())].agent})",
                f"{geometric_mean(column(ours, 'width')):.2f}",
                f"{geometric_mean(claims):.2f} ({claims.min():.2f} to {claims.max():.2f})",
                f"{column(ours, 'claim_held').mean():.2f}",
                f"{column(ours, 'warned_held').sum() / max(held.sum(), 1):.2f}",
                f"{column(ours, 'warned_missed').sum() / max((runs - held).sum(), 1):.2f}",
                f"{column(ours, 'rounds').mean():.0f}",
            )


def detail_rows(cells, agents, gammas, multiples):
    """Variance and coverage of each agent."""
    yield row("agent", *(f"{gamma:g}, {multiple} T" for gamma in gammas for multiple in multiples))
    yield rule(1 + len(gammas) * len(multiples))
    for name in agents:
        texts = []
        for gamma in gammas:
            for multiple in multiples:
                cell = cells.get((name, gamma, multiple, "default"))
                texts.append("" if cell is None else f"{cell.variance:.2f} ({cell.coverage:.2f})")
        yield row(name, *texts)


def ablation_rows(cells, agents):
    """With everything, and without one mechanism at a time."""
    yield row("at 50 T", "gamma 1: variance", "worst", "coverage", "gamma 0.99: variance", "worst", "coverage", "width")
    yield rule(8)
    for name in ("default", *(f"without {name}" for name in WITHOUT)):
        texts = []
        for gamma in (1.0, 0.99):
            found = chosen(cells, agents, gamma, 50, name)
            if len(found) < len(agents):
                break
            variances, coverage = column(found, "variance"), column(found, "coverage")
            texts += [f"{geometric_mean(variances):.3f}", f"{variances.max():.2f}", f"{coverage.mean():.3f}"]
        else:
            yield row(name, *texts, f"{geometric_mean(column(found, 'width')):.2f}")


def so_far_rows(cells, agents):
    """Variances with rewards so far, and without them."""
    keys = [(gamma, multiple) for gamma in (1.0, 0.99) for multiple in (20, 50, 200)]
    yield row("with (without)", *(f"{gamma:g}, {multiple} T" for gamma, multiple in keys))
    yield rule(1 + len(keys))
    for label, members in (*((name, [name]) for name in agents), ("geometric mean", agents)):
        texts = []
        for gamma, multiple in keys:
            both = [chosen(cells, members, gamma, multiple, name) for name in ("default", f"without {SO_FAR}")]
            known = all(len(found) == len(members) for found in both)
            ours, before = (geometric_mean(column(found, "variance")) if known else math.nan for found in both)
            texts.append(f"{ours:.2f} ({before:.2f})" if known else "")
        yield row(label, *texts)


def draw(cells, agents, path, multiple=50):
    """Each agent a dot: the default's variance over that of plain episodes; nothing should be above the line."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 4.2), layout="constrained")
    axes = figure.subplots()
    for gamma, colour in zip(GAMMAS, ("#1f77b4", "#ff7f0e", "#2ca02c"), strict=True):
        found = [(place, cells.get((name, gamma, multiple, "default"))) for place, name in enumerate(agents)]
        known = [(place, cell.variance) for place, cell in found if cell is not None]
        axes.plot(*zip(*known, strict=True), "o", color=colour, label=f"gamma {gamma:g}")
    axes.axhline(1.0, color="black", linewidth=1)
    axes.annotate("plain complete episodes", (0, 1.0), xytext=(0, 9), textcoords="offset points", fontsize=9)
    axes.set_yscale("log")
    axes.set_ylim(top=2.0)
    axes.set_xticks(range(len(agents)), agents, rotation=40, ha="right", fontsize=8)
    axes.set_ylabel(f"variance over plain episodes', {multiple} T")
    axes.legend(frameon=False, fontsize=9)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    figure.savefig(path, dpi=150)


HEAD = """\
# The default against plain complete episodes

Made by `python benchmarks/trust/zoo.py --output results/zoo.md` from the cells in `zoo.jsonl`. Variance is the exact
one of the schedule that was collected, over that of plain complete episodes at equal transitions: below 1 the default
is better. Means over agents are geometric for ratios. Width is that of the 95% interval over the t interval's. A claim
is `uniform_transitions` over what plain episodes need. Warnings are shares of the runs whose interval held or missed.
T is one full-length trajectory. "Without" cells have half as many runs.
"""


def page(cells, agents, gammas, multiples):
    """The whole page."""
    parts = [HEAD]
    for title, group in (("Held out", HELD_OUT), ("Tuning", TUNING)):
        if members := [name for name in agents if name in group]:
            parts.append(f"## {title}: {len(members)} agents")
            parts.append("\n".join(summary_rows(cells, members, gammas, multiples)))
            parts.append("Variance (coverage) of the default at gamma, budget:")
            parts.append("\n".join(detail_rows(cells, members, gammas, multiples)))
            if any(strategy == f"without {SO_FAR}" for *_, strategy in cells):
                parts.append("Variance with rewards so far as a control variate, and without:")
                parts.append("\n".join(so_far_rows(cells, members)))
    if any(strategy.startswith("without") for *_, strategy in cells):
        parts.append("## What each mechanism is worth, on the agents for tuning")
        parts.append("\n".join(ablation_rows(cells, [name for name in agents if name in TUNING])))
    return paragraphs(*parts) + "\n"


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--runs", type=int, default=200, help="of each cell; half of it at 200 T")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--tuning", action="store_true", help="leaves out the agents that are held out")
    parser.add_argument("--quick", action="store_true", help="three agents, two budgets, a few runs")
    options = parser.parse_args(arguments)
    agents = QUICK if options.quick else TUNING if options.tuning else (*HELD_OUT, *TUNING)
    if absent := [name for name in agents if not (BANKS / f"{name}.npz").is_file()]:
        print(f"skipped: no bank of {', '.join(absent)} in {BANKS}; set RIDO_BANKS to the folder of banks")
        return
    gammas, multiples = ((1.0, 0.99), (10, 50)) if options.quick else (GAMMAS, MULTIPLES)
    runs = 10 if options.quick else options.runs
    wanted = list(tasks(agents, gammas, multiples, runs, ablation=not options.quick))
    cells = measure(options.output.with_suffix(".jsonl"), wanted, options.workers)
    options.output.write_text(page(cells, agents, gammas, multiples), encoding="utf-8")
    draw(cells, agents, options.output.with_suffix(".png"))


if __name__ == "__main__":
    main()
