"""Races on recorded episodes of public agents, next to whole episodes with a paired t test.

    python benchmarks/races.py --output results/races.md --cells /tmp/rido-banks

Banks are found by RIDO_BANKS, ``../shared/banks`` if not set. Every part of a cell is kept in ``--cells``, so that a
run that was stopped goes on. ``--quick`` takes three pairs and a few races.
"""

import argparse
import json
import math
import os
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
from sections import paragraphs, row, rule, update

import rido
from rido.comparison.sequential import SpendingBoundary

FOLDER = Path(os.environ.get("RIDO_BANKS", Path(__file__).parents[2] / "shared/banks"))
RACES, PART, QUICK = 200, 20, 10
CONFIDENCE = 0.95
PILOT, GROWTH, LEAST = 5, 0.2, 8  # whole episodes: pairs before the first look, growth between looks, least to decide
FEW = 60  # pairs below which bounds allow for unseen starts


@dataclass(frozen=True, eq=False)
class Pair:
    """Two policies on the same starts; row i of both is a pair.

    Attributes:
        rewards: of each policy, episodes x steps, 0 after the end.
        steps: of each episode.
        equal: whether both have the same true value.
    """

    rewards: tuple[np.ndarray, np.ndarray]
    steps: tuple[np.ndarray, np.ndarray]
    equal: bool = False

    @cache  # noqa: B019 - there are few pairs
    def returns(self, gamma):
        """Return the returns of both policies."""
        discounts = gamma ** np.arange(self.rewards[0].shape[1])
        return [rewards @ discounts for rewards in self.rewards]

    def difference(self, gamma):
        """Return the difference of the returns of each pair."""
        one, other = self.returns(gamma)
        return one - other

    @property
    def cost(self):
        """Transitions of each pair."""
        return self.steps[0] + self.steps[1]


@cache
def pair_of(name):
    """Return a pair of PAIRS by name."""
    return PAIRS[name]()


@cache
def bank(name):
    found = np.load(FOLDER / f"{name}.npz")
    return found["rewards"].astype(float), found["lengths"].astype(np.int64)


def recorded(first, second):
    """Two agents of one environment."""
    (one, steps), (two, others) = bank(first), bank(second)
    rows = min(len(one), len(two))
    return Pair((one[:rows], two[:rows]), (steps[:rows], others[:rows]))


def permuted(name, *, kept=1.0, added=0.0, scaled=1.0, extra=0, equal=False):
    """An agent against a copy on other starts, which ends early, gets more in each step, or takes more steps."""
    (rewards, steps), rng = bank(name), np.random.default_rng(0)
    order = np.concatenate([rng.permutation(len(steps)) for _ in range(10)])
    copy, ends = rewards[order].copy(), np.maximum(1, np.ceil(kept * steps[order])).astype(np.int64)
    reached = np.arange(copy.shape[1]) < ends[:, None]
    copy = np.where(reached, np.where(copy < 50, scaled, 1.0) * copy + added, 0.0)  # goals pay 100
    if extra:
        late = np.minimum(ends + extra, copy.shape[1])
        copy[(np.arange(copy.shape[1]) < late[:, None]) & ~reached] = -1.0
        ends = late
    return Pair((copy, np.tile(rewards, (10, 1))), (ends, np.tile(steps, 10)), equal)


def noisy(name, *, scaled=1.0, noise=0.0, falls=0.0, equal=False):
    """An agent against a copy on the same starts, with other rewards or with falls."""
    (rewards, steps), rng = bank(name), np.random.default_rng(0)
    copy, ends = scaled * rewards + noise * rng.normal(size=rewards.shape), steps.copy()
    falling = np.flatnonzero(rng.random(len(steps)) < falls)
    ends[falling] = rng.integers(1, steps[falling] + 1)
    copy[np.arange(copy.shape[1]) >= ends[:, None]] = 0.0
    if equal:
        copy -= (copy - rewards).mean()
    return Pair((copy, rewards), (ends, steps), equal)


def skewed(first, second, *, median=5.6, mean=-4.4):
    """The second agent against a copy that is a little better on most starts, and fails where the first one does."""
    pair = recorded(first, second)
    (bad, good), difference, rng = pair.rewards, pair.difference(1.0), np.random.default_rng(0)
    fails = difference < -15
    copy = good + (median + rng.normal(0, 3, len(good)))[:, None] / good.shape[1]
    for index in rng.permutation(np.flatnonzero(fails)):
        if (copy - good).sum(axis=1).mean() < mean:
            break
        copy[index] = bad[index]
    return Pair((copy, good), pair.steps)


# Which pairs are for tuning and which are held out was written down before a rule was chosen. Boundaries were chosen on
# the pairs for tuning and on the recorded pairs; when to cut trajectories on the pairs for tuning alone.
TUNING = {
    "a2c, ppo Acrobot": lambda: recorded("a2c-Acrobot", "ppo-Acrobot"),
    "a2c, ddpg LunarLander": lambda: recorded("a2c-LunarLander", "ddpg-LunarLanderContinuous"),
    "ars, ddpg Pendulum": lambda: recorded("ars-Pendulum", "ddpg-Pendulum"),
    "skewed, sac Pendulum": lambda: skewed("ars-Pendulum", "sac-Pendulum"),
    "equal, CartPole": lambda: permuted("dqn-CartPole-eps0.3", equal=True),
    "equal, Walker2d": lambda: permuted("a2c-Walker2d", equal=True),
}
HELD_OUT = {
    "a2c, ppo LunarLander": lambda: recorded("a2c-LunarLander", "ppo-LunarLander-stoch"),
    "ddpg, ppo LunarLander": lambda: recorded("ddpg-LunarLanderContinuous", "ppo-LunarLander-stoch"),
    "ars, sac Pendulum": lambda: recorded("ars-Pendulum", "sac-Pendulum"),
    "ddpg, sac Pendulum": lambda: recorded("ddpg-Pendulum", "sac-Pendulum"),
    "ppo Hopper, with falls": lambda: noisy("ppo-Hopper", falls=0.06),
    "ars Swimmer, perturbed": lambda: noisy("ars-Swimmer", scaled=0.99, noise=0.3),
    "ppo MountainCarContinuous, costlier": lambda: permuted("ppo-MountainCarContinuous", scaled=1.1),
    "dqn MountainCar, slower": lambda: permuted("dqn-MountainCar", extra=4),
    "a2c Walker2d, shorter": lambda: permuted("a2c-Walker2d", kept=0.9),
    "ppo BipedalWalker, better": lambda: permuted("ppo-BipedalWalker", added=0.05),
    "skewed, ddpg Pendulum": lambda: skewed("ars-Pendulum", "ddpg-Pendulum"),
    "equal, Acrobot": lambda: permuted("ppo-Acrobot", equal=True),
    "equal, LunarLander": lambda: permuted("ppo-LunarLander-stoch", equal=True),
    "equal, Pendulum with noise": lambda: noisy("sac-Pendulum", noise=0.1, equal=True),
}
PAIRS = {**TUNING, **HELD_OUT}


def budget_of(pair, gamma):
    """Return the transitions of about as many pairs as would tell the difference in nine of ten races."""
    difference = pair.difference(gamma)
    ratio = 0.0 if pair.equal else abs(difference.mean()) / difference.std()
    pairs = 100 if pair.equal else int(np.clip((3.4 / ratio) ** 2, 30, 200))
    return max(math.ceil(pairs * pair.cost.mean()), 30 * pair.rewards[0].shape[1])


def raced(pair, rows, gamma, budget):
    """Run rido.Race on rows of a pair; returns the difference it names (1 for the first, -1, 0) and its transitions."""
    horizon = pair.rewards[0].shape[1]
    race, taken = rido.Race("ab", horizon=horizon, budget=budget, gamma=gamma, confidence=CONFIDENCE), 0
    while (asked := race.ask()) is not None:
        lengths = asked[1].lengths
        chosen = rows[taken : taken + lengths.size]
        taken += lengths.size
        told = zip("ab", pair.rewards, pair.steps, strict=True)
        race.tell(
            {
                name: rido.Trajectories(rewards[chosen], lengths, np.minimum(steps[chosen], lengths))
                for name, rewards, steps in told
            }
        )
    return {"a": 1, "b": -1, None: 0}[race.result().best], race.spent


def plain(pair, rows, gamma, budget, statistics):
    """Whole episodes in rounds that grow by a fifth, with the boundaries of rido.Race.

    Args:
        statistics: by name, functions of the differences, of the returns of both and of the level of a look, which
            return the two distances of the bounds.

    Returns:
        For each statistic, the difference that it names and its transitions.
    """
    returns = [one[rows] for one in pair.returns(gamma)]
    difference, spent, most = returns[0] - returns[1], np.cumsum(pair.cost[rows]), 2 * pair.rewards[0].shape[1]
    looks, found, pairs = SpendingBoundary((1 - CONFIDENCE) / 2), {}, PILOT
    while len(found) < len(statistics):
        left = (budget - spent[pairs - 1]) // most
        last = left < 1
        if pairs >= LEAST or last:
            level = looks.level(pairs, 1.0 if last else spent[pairs - 1] / budget)
            seen = difference[:pairs]
            for name, bounds in statistics.items():
                varied = seen.std() > 0
                below, above = bounds(seen, [one[:pairs] for one in returns], level) if varied else (math.inf, math.inf)
                named = int(seen.mean() > below) - int(seen.mean() < -above)
                if name not in found and (named or last):
                    found[name] = named, int(spent[pairs - 1])
        pairs += min(max(1, round(GROWTH * pairs)), max(left, 1))
    return found


def student(seen, returns, level):
    """The paired t interval."""
    from scipy.special import stdtrit

    half = -stdtrit(seen.size - 1, level) * seen.std(ddof=1) / math.sqrt(seen.size)
    return half, half


def unseen(seen, returns, level):
    """The bounds of rido.Race (see rido.comparison.comparison), for whole episodes."""
    plain = student(seen, returns, level)
    return max(plain, always(seen, returns, level)) if seen.size < FEW else plain


def always(seen, returns, level):
    """What starts that no pair has seen may move, however many pairs there are."""
    return (-math.log((1 - CONFIDENCE) / 2) * max(one.std(ddof=1) for one in returns) / seen.size,) * 2


def limits(variance, third, quantile):
    shift = quantile**2 * third / variance / 2
    half = math.hypot(shift, quantile * math.sqrt(variance))
    return half - shift, half + shift


def parts(seen, level):
    from scipy.special import stdtrit

    off = seen - seen.mean()
    return off, float(off @ off) / (seen.size - 1) / seen.size, -float(stdtrit(seen.size - 1, level))


def skewness(seen, returns, level):
    """An interval that allows for the skewness that was seen, on both sides."""
    off, variance, quantile = parts(seen, level)
    return limits(variance, float((off**3).mean()) / seen.size**2, quantile)


def johnson(seen, returns, level):
    """Johnson's (1978) modified t test of a difference of 0."""
    off, variance, quantile = parts(seen, level)
    spread, third = variance * seen.size, float((off**3).mean())
    moved = seen.mean() + third / (6 * spread * seen.size) + third / (3 * spread**2) * seen.mean() ** 2
    shift, half = seen.mean() - moved, quantile * math.sqrt(variance)
    return half + shift, half - shift


def largest(seen, returns, level):
    """A t interval with one more of the largest contribution on either side, as far as few are effective."""
    off, variance, quantile = parts(seen, level)
    share = min(1.0, 2 * float((off**4).sum()) / float(off @ off) ** 2)
    one = np.abs(off).max() / seen.size
    half = limits(variance + share * one**2, share * one**3, quantile)[1]
    return half, half


def bernstein(seen, returns, level):
    """An empirical Bernstein bound (Maurer and Pontil, 2009), with the range of the returns seen."""
    size = max(one.max() for one in returns) - min(one.min() for one in returns)
    bound = math.log(2 / level)
    half = math.sqrt(2 * seen.var(ddof=1) * bound / seen.size) + 7 * 2 * size * bound / (3 * (seen.size - 1))
    return half, half


def from_pairs(least):
    """The paired t interval from this many pairs on."""
    return lambda *args: student(*args) if args[0].size >= least else (math.inf, math.inf)


STATISTICS = {
    "t": student,
    "t from 15 pairs": from_pairs(15),
    "t from 20 pairs": from_pairs(20),
    "t from 25 pairs": from_pairs(25),
    "Johnson's t": johnson,
    "skewness interval": skewness,
    "largest once more": largest,
    "empirical Bernstein": bernstein,
    "t and unseen starts": unseen,
    "t and unseen starts, any number": lambda seen, *rest: max(student(seen, *rest), always(seen, *rest)),
}


def compute(item):
    """Races of a part of a cell: what rido.Race names and spends, and what each statistic does."""
    _, name, gamma, part, races = item
    pair = pair_of(name)
    budget, found = budget_of(pair, gamma), []
    size = 1000 + 50 * int(budget / pair.cost.mean())  # more than cut trajectories take
    for race in range(races):
        rng = np.random.default_rng([list(PAIRS).index(name), round(1000 * gamma), part, race])
        rows = rng.integers(len(pair.cost), size=size)
        found.append({"race": raced(pair, rows, gamma, budget), **plain(pair, rows, gamma, budget, STATISTICS)})
    difference = pair.difference(gamma)
    sign = 0 if pair.equal else int(np.sign(difference.mean()))
    return {"sign": sign, "mean": difference.mean(), "median": float(np.median(difference)), "races": found}


def cells(parts, *, quick):
    """Return the parts of all cells; those of one cell come one after the other."""
    names = ["a2c, ddpg LunarLander", "ppo Hopper, with falls", "equal, CartPole"] if quick else list(PAIRS)
    for part in range(1 if quick else parts):
        for gamma in (1.0, 0.99):
            for name in names:
                yield f"{name} {gamma:g} {part}", name, gamma, part, QUICK if quick else PART


def read(folder, items):
    """Return what is known of each cell, by pair and gamma."""
    known = {}
    for key, name, gamma, *_ in items:
        path = folder / f"{key.replace(' ', '-').replace(',', '')}.json"
        if path.exists():
            found = json.loads(path.read_text(encoding="utf-8"))
            known.setdefault((name, gamma), {**found, "races": []})["races"] += found["races"]
    return known


def rates(cell, method):
    """Return the shares of right, wrong and undecided races, and the mean transitions."""
    named, spent = np.array([race[method] for race in cell["races"]]).T
    right = np.mean((named == cell["sign"]) & (named != 0))
    wrong = np.mean((named != cell["sign"]) & (named != 0))
    return right, wrong, 1 - right - wrong, spent.mean()


def told(cell, method, over):
    """Return cells of a table: transitions over those of other methods, and rates."""
    right, wrong, undecided, spent = rates(cell, method)
    ratios = (f"{spent / rates(cell, one)[3]:.2f}" for one in over)
    return [*ratios, f"{100 * right:.0f} / {100 * wrong:.1f} / {100 * undecided:.0f}"]


def page(known, before):
    """Return the text of the section."""
    head = ["pair", "gamma", "races", "right / wrong / undecided: t"]
    head += ["same bounds, whole episodes", "over t", "race over t", "over same bounds", "race"]
    if before:
        head += ["before: over t", "before"]
    tables = []
    for title, names in (("For tuning", TUNING), ("Held out", HELD_OUT)):
        lines = [row(*head), rule(len(head))]
        for (name, gamma), cell in known.items():
            if name in names:
                line = [name, f"{gamma:g}", len(cell["races"]), *told(cell, "t", ())]
                ours = told(cell, "t and unseen starts", ("t",))
                line += [ours[1], ours[0], *told(cell, "race", ("t", "t and unseen starts"))]
                old = before.get((name, gamma))
                if old:  # the same pairs of episodes
                    both = zip(old["races"], cell["races"], strict=False)
                    old = {**cell, "races": [{**new, "race": one["race"]} for one, new in both]}
                lines.append(row(*line, *(told(old, "race", ("t",)) if old else ["", ""] if before else ())))
        tables += [f"{title}:", lines]
    lines = [row("bounds", "transitions over t: geometric mean", "largest", "wrong: largest", "pairs", "equal pairs")]
    lines.append(rule(6))
    for method in STATISTICS:
        apart = [cell for cell in known.values() if cell["sign"]]
        plain = [cell for (name, _), cell in known.items() if cell["sign"] and not name.startswith("skewed")]
        even = [cell for cell in known.values() if not cell["sign"]]
        ratios = [rates(cell, method)[3] / rates(cell, "t")[3] for cell in plain]
        wrong = [[100 * rates(cell, method)[1] for cell in some] for some in (apart, even)]
        lines.append(
            row(
                method,
                f"{np.exp(np.mean(np.log(ratios))):.2f}",
                f"{max(ratios):.2f}",
                f"{max(map(max, wrong)):.1f}%",
                f"{max(wrong[0]):.1f}%",
                f"{max(wrong[1]):.1f}%",
            )
        )
    return paragraphs(ABOUT, *tables, BOUNDS, lines)


TITLE = "Recorded agents"
HEAD = "# Races on public agents\n"
ABOUT = """\
`python benchmarks/races.py`: races on recorded episodes of public agents, whose rows are pairs with the same
start. t: whole episodes with a paired t test, in rounds that grow by a fifth, with the boundaries of `rido.Race`. Same
bounds: whole episodes with the bounds of `rido.Race`. A budget pays for about as many pairs as tell the difference in
nine of ten races, 30 to 200; of equal policies for 100. All rows of a line see the same pairs of episodes. Rates in
percent; 80 races leave a standard error of 2.4 to a rate of 5%. Equal policies are copies on other starts or with
noise, so that any decision is wrong. Over t: transitions over those of the t test. Before: the version that planned by
the default strategy and allowed for one more of the largest contribution."""
BOUNDS = """\
What the bounds cost, on whole episodes: transitions over those of the t test, over all pairs but the equal and the
skewed, and the largest rate of wrong winners over all pairs, over those that differ and over those that are equal."""


def main():
    """Compute what is missing, and write the section."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--cells", type=Path, default=Path("/tmp/rido-banks"))
    parser.add_argument("--before", type=Path, help="cells that an earlier version made by the same command")
    parser.add_argument("--parts", type=int, default=RACES // PART, help=f"parts of {PART} races of each pair")
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    if not FOLDER.is_dir():
        sys.exit(f"RIDO_BANKS must be a folder of recorded episodes, got {FOLDER}")
    folder = options.cells / ("quick" if options.quick else "full")
    folder.mkdir(parents=True, exist_ok=True)
    items = list(cells(options.parts, quick=options.quick))
    for item in items:
        path = folder / f"{item[0].replace(' ', '-').replace(',', '')}.json"
        if not path.exists():
            found = compute(item)
            path.write_text(json.dumps(found, default=float), encoding="utf-8")
            print(item[0], flush=True)
    before = read(options.before, items) if options.before else {}
    text = page(read(folder, items), before)
    update(options.output, [(TITLE, text)], head=HEAD, headings=[TITLE])


if __name__ == "__main__":
    main()
