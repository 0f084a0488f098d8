"""The page with the figures, the numbers behind them, and the verdicts on the paper's claims."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from rido.paper.claims import Claim, Results, cells_of, mse_ratio
from rido.paper.domains import ADDITIONAL, GAMMAS, MAIN, Domain
from rido.paper.errors import BEYOND, CRITIC_SHARE, PAPER
from rido.paper.live import PAPER_SECONDS
from rido.paper.storage import write_whole

_INTRODUCTION = """\
# The paper, reproduced

Made by `rido reproduce`: every figure and table of "RIDO: Robust and Iterative Data collection strategy Optimization",
from this project's code. Ratios below 1 mean that the first of two strategies has the smaller error; intervals hold
with 95% confidence. "RIDO" is the paper's Algorithm 1 with its own settings, "adaptive" what this project does by
default. Numbers of each section are in a JSON file, arrays (errors of each run, schedules, weights) in an NPZ file
beside it.
"""

_CAPTIONS = {
    "main": (
        "Main figure",
        "Mean squared error against the budget, mean and 95% interval. Every point is a new experiment. There "
        f"are {CRITIC_SHARE} times fewer runs with a critic, fitted anew in each (on LQG it is the Riccati value).",
    ),
    "schedules": (
        "Schedules",
        "Samples of each step: the mean of all runs, and a band that holds 95% of them. A distance is the share "
        "of the samples that would have to be moved to make one schedule the other; 0.1 and less is called alike.",
    ),
    "beta": ("Robustness level", "Examples 1 and 2, gamma 1, b = 100."),
    "batch": ("Batch size", "Examples 1 and 2, gamma 1, beta = 5."),
    "additional": ("Additional environments", "As in the main figure."),
    "theory": (
        "Theory",
        "Left: RIDO's surrogate over the variance of the optimal schedule, mean and 95% quantile over the runs, "
        "rewards in [0, 1], T = 10, b = 50. Middle: its mean squared error. Right: only the first step has any "
        "variance, 100 T transitions.",
    ),
    "runtime": (
        "Running time",
        "Real steps, T = 500, all strategies in turn on one machine; medians. Planning is all that is not collecting; "
        "what else RIDO takes is that a small batch fills few of the environments that run side by side.",
    ),
}


def write_page(results: Mapping[str, Results], claims: Sequence[Claim], path: Path) -> None:
    """Writes the page on all sections that have results."""
    parts = [_INTRODUCTION, "## Verdicts\n", *_verdicts(claims)]
    tables = {"main": _errors, "additional": _errors, "schedules": _nothing, "beta": _ablation, "batch": _ablation}
    for name, (title, caption) in _CAPTIONS.items():
        if name not in results:
            continue
        runs = "" if name == "runtime" else f" {results[name]['runs']:,} runs."
        parts.append(f"\n## {title}\n\n{caption}{runs} `rido reproduce {name}`\n")
        if name != "runtime":
            parts.append(f"![{title}]({name}.png)\n")
        parts += tables.get(name, _theory if name == "theory" else _runtime)(results[name])
        if seconds := results[name]["seconds"]:
            taken = ", ".join(f"{domain} {value / 60:.1f}" for domain, value in seconds.items())
            parts.append(f"Minutes of one core, without the recording of banks: {taken}.\n")
    with write_whole(path) as file:
        file.write("\n".join(parts).encode() + b"\n")


def _table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    yield f"| {' | '.join(header)} |"
    yield "|" + "---|" * len(header)
    for row in rows:
        yield f"| {' | '.join(row)} |"
    yield ""


def _verdicts(claims: Sequence[Claim]) -> Iterator[str]:
    return _table(
        ("claim", "verdict", "measured"), ((claim.text, f"**{claim.verdict}**", claim.numbers) for claim in claims)
    )


def _nothing(section: Results) -> Iterator[str]:
    yield from ()


def _errors(section: Results) -> Iterator[str]:
    domains = [domain for domain in (*MAIN, *ADDITIONAL) if cells_of(section, domain.name)]
    yield "The batches are those of the paper's Table 1; horizons and discount factors that it leaves open are ours.\n"
    yield from _table(
        ("domain", "environment", "T", "b", "beta", "budgets"),
        (
            (domain.title, domain.env, str(domain.horizon), f"{domain.batch:,}", "1", _budgets(domain))
            for domain in domains
        ),
    )
    yield (
        "Runs draw from banks of recorded trajectories, whose mean return is the truth exactly. How well a bank knows "
        "its domain: the standard error of its mean return, its square over the least mean squared error "
        "measured without a critic, and how much any mean squared error may be off because other trajectories were not "
        "recorded (relative standard error of the variance of returns).\n"
    )
    yield from _table(
        (
            "domain",
            "gamma",
            "policy",
            "trajectories",
            "ended early",
            "expected return",
            "closed form",
            "its error^2 / least MSE",
            "error of an MSE",
        ),
        (
            (
                bank["domain"],
                f"{bank['gamma']:g}",
                bank["policy"],
                f"{bank['rows']:,}",
                f"{bank['ended']:.2%}",
                f"{bank['truth']:.6g} +- {bank['truth_error']:.2g}",
                "" if bank["closed_form"] is None else f"{bank['closed_form']:.6g}",
                f"{bank['truth_error'] ** 2 / _least_error(section, bank):.1%}",
                f"{bank['variance_error']:.1%}",
            )
            for bank in section["banks"]
        ),
    )
    yield "Mean squared error over the oracle's variance, the least there is without a critic; mean over the budgets.\n"
    names = (*PAPER, *BEYOND)
    yield from _table(
        ("domain", "gamma", *names, "coverage of adaptive"),
        (
            (domain.title, f"{gamma:g}", *(_over_oracle(section, domain, gamma, name) for name in names), held)
            for domain in domains
            for gamma in GAMMAS
            for held in [_coverage(section, domain, gamma)]
        ),
    )
    checks = [cell for cell in section["cells"] if "spot check" in cell]
    for cell in checks:
        (bank,) = (
            each for each in cells_of(section, cell["spot check"], cell["gamma"]) if each["budget"] == cell["budget"]
        )
        ratio = mse_ratio([{"strategies": {"live": cell, "bank": bank["strategies"]["rido"]}}], "live", "bank")
        yield (
            f"Spot check: RIDO in {cell['runs']} runs of real steps, {cell['spot check']}, gamma {cell['gamma']:g}, "
            f"budget {cell['budget']:,}: MSE {cell['mse']:.4g}, over that on the bank {ratio}.\n"
        )


def _least_error(section: Results, bank: Results) -> float:
    cells = cells_of(section, bank["domain"], bank["gamma"])
    return float(min(cell["strategies"][name]["mse"] for cell in cells for name in (*PAPER, "oracle", "adaptive")))


def _budgets(domain: Domain) -> str:
    return ", ".join(f"{budget:,}" for budget in domain.budgets)


def _over_oracle(section: Results, domain: Domain, gamma: float, name: str) -> str:
    ratios = [
        cell["strategies"][name]["mse"] / cell["oracle_variance"]
        for cell in cells_of(section, domain.name, gamma)
        if name in cell["strategies"]
    ]
    return f"{math.exp(sum(map(math.log, ratios)) / len(ratios)):.3g}"


def _coverage(section: Results, domain: Domain, gamma: float) -> str:
    shares = [cell["strategies"]["adaptive"]["coverage"] for cell in cells_of(section, domain.name, gamma)]
    return f"{sum(shares) / len(shares):.3f}"


def _ablation(section: Results) -> Iterator[str]:
    setting = "beta" if len({cell["beta"] for cell in section["cells"]}) > 1 else "batch"
    budgets = sorted({cell["budget"] for cell in section["cells"]})
    yield "MSE at each budget, in brackets the variance by the true weights over the oracle's.\n"
    for domain, title in (
        ("example1", "Example 1 (the last step pays)"),
        ("example2", "Example 2 (the first step pays)"),
    ):
        cells = cells_of(section, domain)
        yield from _table(
            (f"{title}, {setting}", *(f"{budget:,}" for budget in budgets)),
            (
                (
                    f"{value:,g}",
                    *(
                        f"{cell['mse']:.4g} ({cell['variance'] / cell['oracle_variance']:.3f})"
                        for cell in cells
                        if cell[setting] == value
                    ),
                )
                for value in sorted({cell[setting] for cell in cells})
            ),
        )


def _theory(section: Results) -> Iterator[str]:
    yield "![The grouping transformation](grouping.png)\n"
    yield (
        "The grouping transformation on the true weights of Swimmer: the problem becomes convex, and its solution "
        "stays the same.\n"
    )


def _runtime(section: Results) -> Iterator[str]:
    names = [name for name in ("uniform", "robust", "rido", "rido, CVXPY") if name in section["cells"][0]]
    yield from _table(
        ("domain", "budget", "b", *(f"{name}, s (ratio)" for name in names), "planning, ms: ours", "CVXPY", "paper"),
        (
            (
                cell["domain"],
                f"{cell['budget']:,}",
                f"{cell['batch']:,}",
                *(f"{cell[name]['seconds']:.2f} ({cell[name]['ratio']:.2f})" for name in names),
                f"{1000 * cell['rido']['planning']:.0f}",
                f"{1000 * cell['rido, CVXPY']['planning']:.0f}" if "rido, CVXPY" in cell else "cvxpy is not installed",
                f"{paper[0]} s / {paper[1]} s = {paper[0] / paper[1]:.2f}",
            )
            for cell in section["cells"]
            for paper in [PAPER_SECONDS[cell["domain"]][(cell["budget"], cell["batch"])]]
        ),
    )
