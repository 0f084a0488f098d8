"""Wrong winners: races between equal policies, and between policies of which one is better by a standard error."""

import math
from collections import defaultdict

import numpy as np
import racing

REPETITIONS = {2: 1000, 8: 200, 30: 50}  # by the number of policies; half as many where one is better
PART = 50  # repetitions of one task
TRAJECTORIES = 150  # that the budget pays for, of each policy


def cells(folder, *, quick):
    size = 5 if quick else PART
    for ahead in (0, 1):
        for number, repetitions in REPETITIONS.items():
            for name in racing.PROCESSES:
                for part in range(1 if quick else repetitions // PART // (1 + ahead)):
                    yield f"errors {name} {number} {ahead} {part}", run, (name, number, ahead, size, part)


def run(name, number, ahead, repetitions, part):
    """Returns for each race if its winner is wrong, is right, its looks, and if the leader's interval held."""
    process, names = racing.PROCESSES[name], [f"policy {index}" for index in range(number)]
    seed = np.random.SeedSequence(1, spawn_key=(list(racing.PROCESSES).index(name), number, ahead, part))
    rng, found = np.random.default_rng(seed), []
    distance = ahead * process.deviation * math.sqrt(2 / TRAJECTORIES)  # a standard error of an unpaired difference
    for _ in range(repetitions):
        budget = number * process.horizon * TRAJECTORIES
        result, looks = racing.race(process, names, budget=budget, rng=rng, ahead=distance)
        wrong = result.best is not None and (ahead == 0 or result.best != names[0])
        leader = result.ranking[0]
        low, high = result.interval(leader)
        held = low <= process.mean + (distance if leader == names[0] else 0.0) <= high
        found.append([int(wrong), int(result.best is not None and not wrong), looks, int(held)])
    return found


def page(found):
    rows = defaultdict(list)
    for key, races in found.items():
        _, *name, number, ahead, _ = key.split(" ")
        rows[int(ahead), int(number), " ".join(name)] += races
    text = [
        f"Races of K policies with a budget of {TRAJECTORIES} full-length trajectories for each, at a confidence of "
        "95%: how often a policy is called the best wrongly. First where all are equal, then where one is better by "
        "the standard error that its difference to another would have at that budget without common seeds.",
        "",
        "| one is better by | K | process | races | wrong | right | leader's interval holds | looks, median (least) |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for (ahead, number, name), races in rows.items():
        wrong, right, looks, held = np.array(races).T
        text.append(
            f"| {'one standard error' if ahead else 'nothing'} | {number} | {name} | {len(races):,} | "
            f"{100 * wrong.mean():.1f}% | {100 * right.mean():.1f}% | {100 * held.mean():.1f}% | "
            f"{np.median(looks):.0f} ({looks.min()}) |"
        )
    return "\n".join(text)
