"""How often gates are wrong at the edges of their definitions, and how often they decide.

``python benchmarks/gates.py | tee results/gates.md`` takes about five minutes on one core.
"""

from __future__ import annotations

import numpy as np
from scipy.stats import beta

import rido
from rido.comparison.gate import Gate

RACES = 400
CASES = [  # gate, how much better the candidate is in standard deviations of the difference, what would be wrong
    (Gate("better", "old"), 0.0, "pass"),
    (Gate("better", "old"), 0.5, "fail"),
    (Gate("better", "old", 0.5), 0.5, "fail"),
    (Gate("not-worse", "old", 0.5), -0.5, "pass"),
    (Gate("not-worse", "old", 0.5), 0.0, "fail"),
]


def judged(gate: Gate, gain: float, seed: int) -> tuple[str, int]:
    """Returns the outcome of a race of at most 200 pairs that stops when the gate is decided, and its pairs."""
    rng, race = np.random.default_rng(seed), rido.Race(["old", "new"], horizon=1, budget=400, gamma=1.0)
    while (asked := race.ask()) is not None:
        names, schedule = asked
        common = rng.normal(0, 10, (schedule.trajectories, 1))
        noise = {name: rng.normal(gain * (name == "new"), 0.5**0.5, common.shape) for name in names}
        race.tell({name: rido.Trajectories(common + noise[name], schedule.lengths) for name in names})
        if gate.judge(race.result()).outcome != "undecided":
            break
    return gate.judge(race.result()).outcome, race.spent // 2


def main() -> None:
    """Prints the page."""
    print("# How often gates are wrong\n")
    print(
        f"`python benchmarks/gates.py`: {RACES} comparisons of two policies each, at most 200 pairs of trajectories, "
        "normal rewards.\nGain and tolerance are in standard deviations of a paired difference. A gate may be wrong in "
        "2.5% at 95% confidence.\nThe interval of the rate is Clopper and Pearson's.\n"
    )
    print("| gate | tolerance | gain | wrong would be | wrong | 95% interval | undecided | mean pairs |")
    print("|---|---:|---:|---|---:|---:|---:|---:|")
    for gate, gain, wrong in CASES:
        found = [judged(gate, gain, seed) for seed in range(RACES)]
        errors = sum(outcome == wrong for outcome, _ in found)
        low, high = beta.ppf([0.025, 0.975], [errors or 1e-9, errors + 1], [RACES - errors + 1, RACES - errors])
        undecided = np.mean([outcome == "undecided" for outcome, _ in found])
        print(
            f"| {gate.kind} | {gate.tolerance:g} | {gain:g} | {wrong} | {errors / RACES:.1%} | {low:.1%} to {high:.1%} "
            f"| {undecided:.0%} | {np.mean([pairs for _, pairs in found]):.0f} |"
        )


if __name__ == "__main__":
    main()
