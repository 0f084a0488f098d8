"""The paper's claims, with a verdict on each."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal

import numpy as np

from rido.core.allocation import Array
from rido.paper.domains import GAMMAS, TABLES
from rido.paper.errors import PAPER
from rido.paper.live import PAPER_SECONDS

Results = Mapping[str, Any]
Verdict = Literal["holds", "holds in part", "does not hold", "too few runs to tell"]

EQUAL = 0.05  # errors that differ by at most this share are called equal, even if the difference is significant
RESOLUTION = 1.28
"""Resolution of the paper's figures: the 95% interval of a mean squared error from 100 runs reaches 1.28 times it."""

BOUNDED = 0.05  # a ratio that grows by less than this share for ten times the budget is called bounded
ALIKE = 0.1  # schedules are alike if moving at most this share of the samples of one gives the other


@dataclass(frozen=True)
class Claim:
    """One claim of the paper, where it is checked, whether it holds, and what was measured."""

    section: str
    text: str
    verdict: Verdict
    numbers: str


@dataclass(frozen=True)
class Ratio:
    """A ratio of mean squared errors, the geometric mean over the budgets, with its 95% interval."""

    value: float
    low: float
    high: float

    def verdict_below(self, limit: float) -> Verdict:
        """Whether it is below a limit, which does not hold if it is above 1."""
        if self.high < limit:
            return "holds"
        return "does not hold" if self.low > 1 else "too few runs to tell"

    @property
    def verdict_equal(self) -> Verdict:
        """Whether it is 1 within the error or within 5% of it; in part if 100 runs would not show the difference."""
        if self.low <= 1 <= self.high or abs(self.value - 1) <= EQUAL:
            return "holds"
        return "holds in part" if 1 / RESOLUTION < self.value < RESOLUTION else "does not hold"

    def __str__(self) -> str:
        return f"{self.value:.3g} [{self.low:.3g}, {self.high:.3g}]"


def mse_ratio(cells: Sequence[Results], one: str, other: str) -> Ratio:
    """Returns the error of one strategy over that of another. Runs are paired: they had the same random numbers."""
    logs, variances = [], []
    for cell in cells:
        squares = [cell["strategies"][name]["errors"] ** 2 for name in (one, other)]
        shares = [square / square.mean() for square in squares]
        logs.append(math.log(squares[0].mean() / squares[1].mean()))
        if shares[0].size == shares[1].size:
            variances.append((shares[0] - shares[1]).var(ddof=1) / shares[0].size)
        else:
            variances.append(sum(share.var(ddof=1) / share.size for share in shares))
    mean, error = float(np.mean(logs)), 1.96 * math.sqrt(sum(variances)) / len(logs)
    return Ratio(math.exp(mean), math.exp(mean - error), math.exp(mean + error))


def distance(one: Array, other: Array) -> float:
    """Returns the share of a schedule's samples that has to be moved to make it the other schedule.

    Example:
        >>> distance(np.array([3.0, 1.0]), np.array([2.0, 2.0]))
        0.25
    """
    return float(np.abs(one / one.sum() - other / other.sum()).sum()) / 2


def check_claims(results: Mapping[str, Results]) -> list[Claim]:
    """Returns the claims of all sections that have results."""
    checks: Mapping[str, Callable[[Results], Iterable[Claim]]] = {
        "main": lambda section: _errors(section, "main", ("pendulum", "lqg", "navigation", "ant")),
        "schedules": _schedules,
        "beta": _beta,
        "batch": _batch,
        "additional": lambda section: _errors(section, "additional", ("swimmer", "reacher", "halfcheetah")),
        "theory": _theory,
        "runtime": _runtime,
    }
    return [claim for name, check in checks.items() if name in results for claim in check(results[name])]


def cells_of(section: Results, domain: str, gamma: float | None = None) -> list[Results]:
    """Returns the cells of a domain, at one discount factor or at both, sorted by budget."""
    chosen = [
        cell
        for cell in section["cells"]
        if cell.get("domain") == domain and (gamma is None or cell["gamma"] == gamma) and "budget" in cell
    ]
    return sorted(chosen, key=lambda cell: (cell.get("gamma", 1.0), cell["budget"]))


def _all(verdicts: Sequence[Verdict]) -> Verdict:
    if all(verdict == "holds" for verdict in verdicts):
        return "holds"
    if all(verdict == "does not hold" for verdict in verdicts):
        return "does not hold"
    decided = "does not hold" in verdicts or "holds in part" in verdicts
    return "holds in part" if decided else "too few runs to tell"


def _compare(
    section: Results, domain: str, pairs: Sequence[tuple[str, str]], kind: str, gammas: Sequence[float] = GAMMAS
) -> tuple[Verdict, str]:
    """Returns whether the error of the first of each pair is smaller than that of the second, or equal to it."""
    verdicts: list[Verdict] = []
    texts = []
    for gamma in gammas:
        cells = cells_of(section, domain, gamma)
        ratios = {f"{one} / {other}": mse_ratio(cells, one, other) for one, other in pairs}
        verdicts += [r.verdict_below(1) if kind == "smaller" else r.verdict_equal for r in ratios.values()]
        shares = ", ".join(f"{name} {_over_oracle(cells, name):.2f}" for name in PAPER)
        found = ", ".join(f"{name} {ratio}" for name, ratio in ratios.items())
        texts.append(f"gamma {gamma:g}: MSE {found}; true variance over the oracle's: {shares}")
    return _all(verdicts), ". ".join(texts)


def _over_oracle(cells: Sequence[Results], name: str) -> float:
    """Returns the variance of a strategy's schedules by the true weights, over the oracle's."""
    return math.exp(float(np.mean([math.log(cell["strategies"][name]["relative_variance"]) for cell in cells])))


def _errors(section: Results, name: str, domains: Sequence[str]) -> Iterator[Claim]:
    for claim in TABLES["claims"][name]:
        how = {field: value for field, value in claim.items() if field != "text"}
        yield Claim(name, claim["text"], *_compare(section, **how))
    yield _beyond(section, domains, name)


def _beyond(section: Results, domains: Sequence[str], name: str) -> Claim:
    verdicts: list[Verdict] = []
    texts = []
    for domain in domains:
        for gamma in GAMMAS:
            ratio = mse_ratio(cells_of(section, domain, gamma), "adaptive", "rido")
            verdicts.append(ratio.verdict_below(1 + EQUAL))
            texts.append(f"{domain} {gamma:g}: {ratio}")
    return Claim(name, "(ours) the adaptive strategy is at least as good as RIDO", _all(verdicts), "; ".join(texts))


def _schedules(section: Results) -> Iterator[Claim]:
    for domain, title, like in (
        ("navigation", "Navigation", "uniform"),
        ("ant", "Ant", "robust"),
        ("pendulum", "Pendulum", None),
        ("lqg", "LQG", None),
    ):
        verdicts: list[Verdict] = []
        texts = []
        for cell in cells_of(section, domain):
            counts = {name: cell["strategies"][name]["counts"] for name in ("rido", "uniform", "robust")}
            near = {name: distance(counts["rido"], counts[name]) for name in ("uniform", "robust")}
            if like is None:
                verdicts.append("holds" if min(near.values()) > ALIKE else "does not hold")
            elif near[like] > min(near.values()):
                verdicts.append("does not hold")
            else:
                verdicts.append("holds" if near[like] <= ALIKE else "holds in part")
            texts.append(f"at {cell['gamma']:g} {near['uniform']:.2f} from uniform, {near['robust']:.2f} from robust")
        text = f"{title}: RIDO's schedule is like {like or 'neither'}"
        yield Claim("schedules", text, _all(verdicts), "; ".join(texts))


def _by(section: Results, domain: str, setting: str, budget: int) -> dict[float, Results]:
    return {cell[setting]: cell for cell in cells_of(section, domain) if cell["budget"] == budget}


def _spread(section: Results, domain: str, setting: str) -> dict[int, float]:
    """Returns the largest variance of all settings over the smallest, for each budget."""
    budgets = sorted({cell["budget"] for cell in section["cells"]})
    variances = {
        budget: [cell["variance"] for cell in _by(section, domain, setting, budget).values()] for budget in budgets
    }
    return {budget: max(values) / min(values) for budget, values in variances.items()}


def _beta(section: Results) -> list[Claim]:
    budget = max(cell["budget"] for cell in section["cells"])
    first = _by(section, "example1", "beta", budget)
    early = {beta: cell["counts"][0] / cell["counts"][-1] for beta, cell in first.items()}
    betas = sorted(early)
    tilts = all(early[low] <= early[high] * 1.001 for low, high in pairwise(betas))
    ratio = first[betas[-1]]["variance"] / first[betas[0]]["variance"]
    after_five = {
        name: _by(section, name, "beta", budget)[1000.0]["variance"]
        / _by(section, name, "beta", budget)[5.0]["variance"]
        for name in ("example1", "example2")
    }
    mse = first[betas[-1]]["mse"] / first[betas[0]]["mse"]
    return [
        Claim(
            "beta",
            "Example 1: a larger beta spends more on early steps",
            "holds" if tilts and early[betas[-1]] > early[betas[0]] * 1.05 else "does not hold",
            f"n_0 / n_9 at budget {budget:,}: " + ", ".join(f"{early[beta]:.2f} (beta {beta:g})" for beta in betas),
        ),
        Claim(
            "beta",
            "Example 1: and that raises the error",
            "holds" if ratio > 1.05 else "does not hold",
            f"beta 1,000 over beta 1 at budget {budget:,}: variance {ratio:.2f}, MSE {mse:.2f}",
        ),
        Claim(
            "beta",
            "For beta above 5 the behaviour changes almost not at all",
            "holds" if all(1 / RESOLUTION < change < RESOLUTION for change in after_five.values()) else "does not hold",
            "variance, beta 1,000 over beta 5: " + ", ".join(f"{name} {x:.2f}" for name, x in after_five.items()),
        ),
    ]


def _batch(section: Results) -> Iterator[Claim]:
    for domain, title in (("example1", "Example 1"), ("example2", "Example 2")):
        spread = _spread(section, domain, "batch")
        yield Claim(
            "batch",
            f"{title}: the batch size matters little",
            "holds" if max(spread.values()) < RESOLUTION else "does not hold",
            "largest variance over b over the smallest: "
            + ", ".join(f"{ratio:.2f} (budget {budget:,})" for budget, ratio in spread.items()),
        )


def _theory(section: Results) -> Iterator[Claim]:
    cells = section["cells"]
    for process in ("f_t >= 0", "some f_t < 0"):
        for beta in ("1", "theory"):
            chosen = sorted(
                (cell for cell in cells if cell.get("process") == process and cell["beta"] == beta),
                key=lambda cell: cell["budget"],
            )
            decades = np.log10([cell["budget"] for cell in chosen])
            growth = np.polyfit(decades, np.log([cell["ratio"] for cell in chosen]), 1)[0]
            some = (chosen[0], chosen[len(chosen) // 2], chosen[-1])
            yield Claim(
                "theory",
                f"Regret theorem, {process}, beta {beta}: the surrogate over the optimal variance stays bounded",
                "holds" if growth < BOUNDED else "does not hold",
                f"grows by {growth:+.1%} for ten times the budget; mean (95% quantile): "
                + ", ".join(f"{cell['ratio']:.2f} ({cell['ratio_high']:.2f}) at {cell['budget']:,}" for cell in some),
            )
            if beta == "1":
                budgets = np.log([cell["budget"] for cell in chosen])
                slope = np.polyfit(budgets, np.log([cell["mse"] for cell in chosen]), 1)[0]
                yield Claim(
                    "theory",
                    f"Consistency, {process}: the error vanishes as the budget grows",
                    "holds" if slope < -0.8 else "does not hold",
                    f"MSE falls with the budget to the power {slope:.2f}",
                )
    growing = sorted((cell for cell in cells if cell["what"] == "predetermined"), key=lambda cell: cell["horizon"])
    first, last = growing[0], growing[-1]
    for name, text in (("uniform", "the uniform strategy"), ("robust", "the robust strategy, gamma 1")):
        values = [cell[name][-1] if name == "robust" else cell[name] for cell in growing]
        yield Claim(
            "theory",
            f"Propositions: {text} is worse than the oracle by a factor that grows with T; RIDO is not",
            "holds" if values[-1] > 5 * values[0] and last["rido"] < 2 * first["rido"] else "does not hold",
            f"T = {first['horizon']} to {last['horizon']}: {values[0]:.2f} to {values[-1]:.1f}; "
            f"RIDO {first['rido']:.2f} to {last['rido']:.2f}",
        )


def _runtime(section: Results) -> Iterator[Claim]:
    for cell in section["cells"]:
        paper = PAPER_SECONDS[cell["domain"]][(cell["budget"], cell["batch"])]
        solver = f", planned by CVXPY {cell['rido, CVXPY']['ratio']:.2f}" if "rido, CVXPY" in cell else ""
        ratio = cell["rido"]["ratio"]
        yield Claim(
            "runtime",
            f"{cell['domain']}, budget {cell['budget']:,}, b = {cell['batch']:,}: RIDO takes comparable time "
            f"({paper[0]} s against {paper[1]} s, a factor of {paper[0] / paper[1]:.2f})",
            "holds" if ratio <= 2 else "does not hold",
            f"time over uniform's: RIDO {ratio:.2f}{solver}, robust {cell['robust']['ratio']:.2f}",
        )
