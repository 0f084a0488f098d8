"""The page with the figures, the numbers behind them, and the verdicts on the paper's claims."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import geometric_mean, mean
from typing import Any

from rido.paper.claims import Claim, Results, cells_of, mse_ratio
from rido.paper.domains import ADDITIONAL, GAMMAS, MAIN, TABLES, Domain
from rido.paper.errors import BEYOND, CRITIC_SHARE, PAPER
from rido.paper.live import PAPER_SECONDS
from rido.paper.storage import write_whole


def write_page(results: Mapping[str, Results], claims: Sequence[Claim], path: Path) -> None:
    """Writes the page on all sections that have results."""
    columns = {"claim": "{text}", "verdict": "**{verdict}**", "measured": "{numbers}"}
    parts = [TABLES["page"]["introduction"], "## Verdicts\n", *_table(columns, map(vars, claims))]
    tables = {"main": _errors, "additional": _errors, "beta": _ablation, "batch": _ablation}
    tables |= {"theory": _theory, "runtime": _runtime}
    for name, caption in TABLES["page"]["captions"].items():
        if name not in results:
            continue
        title, text = caption["title"], caption["text"].format(critic_share=CRITIC_SHARE)
        runs = "" if name == "runtime" else f" {results[name]['runs']:,} runs."
        parts.append(f"\n## {title}\n\n{text}{runs} `rido reproduce {name}`\n")
        if name != "runtime":
            parts.append(f"![{title}]({name}.png)\n")
        parts += tables[name](results[name]) if name in tables else ()
        if seconds := results[name]["seconds"]:
            taken = ", ".join(f"{domain} {value / 60:.1f}" for domain, value in seconds.items())
            parts.append(f"Minutes of one core, without the recording of banks: {taken}.\n")
    with write_whole(path) as file:
        file.write("\n".join(parts).encode() + b"\n")


def _table(columns: Mapping[str, str], rows: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """Yields the lines of a table, given the format of each column."""
    yield f"| {' | '.join(columns)} |"
    yield "|" + "---|" * len(columns)
    for row in rows:
        yield f"| {' | '.join(columns.values())} |".format(**row)
    yield ""


def _errors(section: Results) -> Iterator[str]:
    domains = [domain for domain in (*MAIN, *ADDITIONAL) if cells_of(section, domain.name)]
    yield "The batches are those of the paper's Table 1; horizons and discount factors that it leaves open are ours.\n"
    yield from _table(
        {
            "domain": "{title}",
            "environment": "{env}",
            "T": "{horizon}",
            "b": "{batch:,}",
            "beta": "1",
            "budgets": "{all}",
        },
        ({**vars(domain), "all": ", ".join(f"{budget:,}" for budget in domain.budgets)} for domain in domains),
    )
    yield (
        "Runs draw from banks of recorded trajectories, whose mean return is the truth exactly. How well a bank knows "
        "its domain: the standard error of its mean return, its square over the least mean squared error "
        "measured without a critic, and how much any mean squared error may be off because other trajectories were not "
        "recorded (relative standard error of the variance of returns).\n"
    )
    columns = {"domain": "{domain}", "gamma": "{gamma:g}", "policy": "{policy}", "trajectories": "{rows:,}"}
    columns |= {"ended early": "{ended:.2%}", "expected return": "{truth:.6g} +- {truth_error:.2g}"}
    columns |= {
        "closed form": "{known}",
        "its error^2 / least MSE": "{share:.1%}",
        "error of an MSE": "{variance_error:.1%}",
    }
    rows = []
    for bank in section["banks"]:
        known = "" if bank["closed_form"] is None else f"{bank['closed_form']:.6g}"
        rows.append({**bank, "known": known, "share": bank["truth_error"] ** 2 / _least_error(section, bank)})
    yield from _table(columns, rows)
    yield "Mean squared error over the oracle's variance, the least there is without a critic; mean over the budgets.\n"
    names = (*PAPER, *BEYOND)
    columns = {"domain": "{title}", "gamma": "{gamma:g}", **{name: f"{{{name}}}" for name in names}}
    rows = [
        {
            "title": domain.title,
            "gamma": gamma,
            "held": mean(c["strategies"]["adaptive"]["coverage"] for c in cells_of(section, domain.name, gamma)),
            **{name: _over_oracle(section, domain, gamma, name) for name in names},
        }
        for domain in domains
        for gamma in GAMMAS
    ]
    yield from _table({**columns, "coverage of adaptive": "{held:.3f}"}, rows)
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


def _over_oracle(section: Results, domain: Domain, gamma: float, name: str) -> str:
    ratios = [
        cell["strategies"][name]["mse"] / cell["oracle_variance"]
        for cell in cells_of(section, domain.name, gamma)
        if name in cell["strategies"]
    ]
    return f"{geometric_mean(ratios):.3g}"


def _ablation(section: Results) -> Iterator[str]:
    setting = "beta" if len({cell["beta"] for cell in section["cells"]}) > 1 else "batch"
    budgets = sorted({cell["budget"] for cell in section["cells"]})
    yield "MSE at each budget, in brackets the variance by the true weights over the oracle's.\n"
    for domain, title in (
        ("example1", "Example 1 (the last step pays)"),
        ("example2", "Example 2 (the first step pays)"),
    ):
        cells = cells_of(section, domain)
        rows: dict[float, dict[str, Any]] = {cell[setting]: {"value": cell[setting]} for cell in cells}
        for cell in cells:
            text = f"{cell['mse']:.4g} ({cell['variance'] / cell['oracle_variance']:.3f})"
            rows[cell[setting]][f"at {cell['budget']}"] = text
        columns = {f"{title}, {setting}": "{value:,g}", **{f"{budget:,}": f"{{at {budget}}}" for budget in budgets}}
        yield from _table(columns, [rows[value] for value in sorted(rows)])


def _theory(section: Results) -> Iterator[str]:
    yield "![The grouping transformation](grouping.png)\n"
    yield (
        "The grouping transformation on the true weights of Swimmer: the problem becomes convex, and its solution "
        "stays the same.\n"
    )


def _runtime(section: Results) -> Iterator[str]:
    names = [name for name in ("uniform", "robust", "rido", "rido, CVXPY") if name in section["cells"][0]]
    columns = {"domain": "{domain}", "budget": "{budget:,}", "b": "{batch:,}"}
    columns |= {f"{name}, s (ratio)": f"{{{name}[seconds]:.2f}} ({{{name}[ratio]:.2f}})" for name in names}
    columns |= {"planning, ms: ours": "{ours:.0f}", "CVXPY": "{solver}", "paper": "{one} s / {two} s = {factor:.2f}"}
    rows = []
    for cell in section["cells"]:
        one, two = PAPER_SECONDS[cell["domain"]][(cell["budget"], cell["batch"])]
        known = "rido, CVXPY" in cell
        solver = f"{1000 * cell['rido, CVXPY']['planning']:.0f}" if known else "cvxpy is not installed"
        ours = 1000 * cell["rido"]["planning"]
        rows.append({**cell, "ours": ours, "solver": solver, "one": one, "two": two, "factor": one / two})
    yield from _table(columns, rows)
