"""Two-valued outcomes: trials until a decision, next to tests with a fixed number of trials."""

import math
from collections import defaultdict

import numpy as np
from scipy.stats import binom, hypergeom

import rido

RATES = ((0.5, 0.6), (0.9, 0.95))
POWER = 0.9
CORRELATIONS = (0.0, 0.25)
REPETITIONS = 300
PART = 100
FACTORS = (1.1, 1.2, 1.3)  # budgets that are tried, as multiples of Fisher's number of trials


def cells(folder, *, quick):
    repetitions = REPETITIONS // 20 if quick else REPETITIONS
    for low, high in RATES:
        trials = fisher_trials(low, high)
        for correlation in CORRELATIONS:
            for factor in FACTORS:
                for part in range(max(1, repetitions // PART)):
                    name = f"binary {low} {high} {correlation} {factor} {trials} {part}"
                    yield name, run, (low, high, correlation, int(factor * trials), min(PART, repetitions), part)


def fisher_trials(low, high, alpha=0.05):
    """Returns the fewest trials of each with which Fisher's exact test, two-sided, has the power."""
    few, many = 10, 4000
    while many - few > 1:
        middle = (few + many) // 2
        few, many = (few, middle) if _fisher_power(middle, low, high, alpha) >= POWER else (middle, many)
    return many


def _fisher_power(trials, low, high, alpha):
    power, counts = 0.0, np.arange(trials + 1)
    ones, others = binom.pmf(counts, trials, low), binom.pmf(counts, trials, high)
    for total in range(2 * trials + 1):
        possible = np.arange(max(0, total - trials), min(trials, total) + 1)
        weight = ones[possible] * others[total - possible]
        if weight.sum() < 1e-9:
            continue
        null = hypergeom.pmf(possible, 2 * trials, trials, total)
        order = np.argsort(null)
        exceeded = np.empty_like(null)
        exceeded[order] = np.cumsum(null[order])  # two-sided: all outcomes that are not more probable
        power += weight[exceeded <= alpha].sum()
    return power


def run(low, high, correlation, trials, repetitions, part):
    """Returns for each race: whether the better policy was found, the worse one was, and the trials of each."""
    rng = np.random.default_rng([int(1000 * low), int(1000 * correlation), trials, part])
    found = []
    for _ in range(repetitions):
        race = rido.Race(["worse", "better"], horizon=1, budget=2 * trials, gamma=1.0)
        while (asked := race.ask()) is not None:
            count = asked[1].trajectories
            one, other = success(rng, count, low, high, correlation)
            race.tell(
                {
                    "worse": rido.Trajectories(one[:, None], np.ones(count, dtype=int)),
                    "better": rido.Trajectories(other[:, None], np.ones(count, dtype=int)),
                }
            )
        result = race.result()
        found.append([int(result.best == "better"), int(result.best == "worse"), result.trajectories / 2])
    return found


def success(rng, count, low, high, correlation):
    """Draws outcomes of two policies with these rates of success and this correlation."""
    both = low * high + correlation * math.sqrt(low * (1 - low) * high * (1 - high))
    draw = rng.random(count)
    one = draw < low
    other = (draw < both) | ((draw >= low) & (draw < low + high - both))
    return one.astype(float), other.astype(float)


def page(found):
    rows = defaultdict(list)
    for key, races in found.items():
        _, low, high, correlation, factor, trials, _ = key.split(" ")
        rows[float(low), float(high), float(correlation), int(trials), float(factor)] += races
    text = [
        "Trials of each policy until a decision at 95%. Fisher's exact test (two-sided, 5%) takes a fixed number of "
        f"trials for a power of {POWER:.0%}. A race may take more at most, and takes fewer in the mean: the "
        "first budget with which its power is at least as large.",
        "",
        "| success | correlation | Fisher's trials | race's budget | power | wrong | mean trials | over Fisher's |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for low, high, correlation, trials in dict.fromkeys(key[:4] for key in rows):
        for factor in FACTORS:
            right, wrong, taken = np.array(rows[low, high, correlation, trials, factor]).T
            if right.mean() >= POWER or factor == FACTORS[-1]:
                mean = taken.mean()
                text.append(
                    f"| {low:g} against {high:g} | {correlation:g} | {trials} | {int(factor * trials)} | "
                    f"{right.mean():.3f} | {100 * wrong.mean():.1f}% | {mean:.0f} | {mean / trials:.2f} |"
                )
                break
    return "\n".join(text)
