"""Rewards so far as a control variate, on recorded public agents: results/so_far.md.

``python benchmarks/trust/so_far.py --output results/so_far.md`` measures what is missing in ``results/so_far.jsonl``
and writes the page; a run that was interrupted goes on where it stopped. Both forms of the planner see the same
seeds. Variance is the exact one of the schedule and the predictions of each run, ``strategy.variance_in(bank)``, over
that of plain complete episodes at equal transitions.
"""

import argparse
import json
import time
from pathlib import Path

import numpy as np
from zoo import BANKS, HELD_OUT, TUNING, agent, geometric_mean

from rido import Adaptive

from sections import paragraphs, row, rule  # isort: skip

SHARES = {"without": 0.0, "with": 0.9}  # the setting so_far


def measured(name, gamma, multiple, share, runs):
    """What runs of one agent came to: means, all but coverage and seconds over those of plain episodes."""
    chosen = agent(name, gamma)
    bank, found = chosen.bank, []
    for run in range(runs):
        strategy = Adaptive(
            horizon=bank.horizon, budget=multiple * bank.horizon, gamma=gamma, settings={"so_far": share}
        )
        began = time.process_time()
        bank.run(strategy, np.random.default_rng([7, run]))
        seconds = time.process_time() - began
        estimate, explained = strategy.estimate(), strategy.explained()
        low, high = estimate.interval()
        variance = strategy.variance_in(bank.population, bank.weights)
        found.append(
            (
                variance * strategy.spent / chosen.unit,
                (estimate.value - bank.truth) ** 2 * strategy.spent / chosen.unit,
                estimate.standard_error**2 * strategy.spent / chosen.unit,
                low <= bank.truth <= high,
                explained > 0,
                explained,
                seconds,
            )
        )
    names = ("variance", "squared_error", "standard_error", "coverage", "used", "explained", "seconds")
    return dict(zip(names, np.mean(found, axis=0).tolist(), strict=True))


def rows(cells, agents, gammas, multiples):
    yield row(
        "agent", "gamma", "budget", "variance without", "with", "SE^2 without", "with", "coverage", "with", "used"
    )
    yield rule(10)
    for gamma in gammas:
        for multiple in multiples:
            pairs = [(name, *(cells.get(f"{name} {gamma:g} {multiple} {kind}") for kind in SHARES)) for name in agents]
            pairs = [(name, before, after) for name, before, after in pairs if before and after]
            for name, before, after in pairs:
                both = [f"{part[what]:.3f}" for what in ("variance", "standard_error") for part in (before, after)]
                held = [f"{part['coverage']:.2f}" for part in (before, after)]
                yield row(name, f"{gamma:g}", f"{multiple} T", *both, *held, f"{after['used']:.2f}")
            if len(pairs) > 1:
                means = [
                    f"**{geometric_mean([pair[kind][what] for pair in pairs]):.3f}**"
                    for what in ("variance", "standard_error")
                    for kind in (1, 2)
                ]
                held = [f"**{np.mean([pair[kind]['coverage'] for pair in pairs]):.2f}**" for kind in (1, 2)]
                yield row(f"**{len(pairs)} agents**", f"{gamma:g}", f"{multiple} T", *means, *held, "")


HEAD = """\
# Rewards so far as a control variate

Made by `python benchmarks/trust/so_far.py --output results/so_far.md --runs {runs} --multiples {multiples}`.
"With" is the default, "without" is `rido.Adaptive(settings={{"so_far": 0}})`. Variance is the exact one of the
schedules and predictions that were made, and SE^2 the squared standard error that was reported, both over the
variance of plain complete episodes at equal transitions. The last line of a group has geometric means. Used: share of
the runs that ended with residuals. All runs with it took {slower:.1f} times the processor time of those without."""


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--multiples", type=int, nargs="+", default=[20, 50, 200])
    options = parser.parse_args()
    if not BANKS.is_dir():
        print(f"skipped: no banks in {BANKS}; set RIDO_BANKS to their folder")
        return
    path, gammas = options.output.with_suffix(".jsonl"), (1.0, 0.99)
    cells = dict(map(json.loads, path.read_text().splitlines())) if path.is_file() else {}
    for multiple in options.multiples:
        for name in (*TUNING, *HELD_OUT):
            for gamma in gammas:
                for kind, share in SHARES.items():
                    key = f"{name} {gamma:g} {multiple} {kind}"
                    if key not in cells:
                        cells[key] = {"runs": options.runs, **measured(name, gamma, multiple, share, options.runs)}
                        with path.open("a", encoding="utf-8") as file:
                            file.write(json.dumps([key, cells[key]]) + "\n")
    seconds = {kind: [cell["seconds"] for key, cell in cells.items() if key.endswith(f" {kind}")] for kind in SHARES}
    head = HEAD.format(
        runs=min(cell["runs"] for cell in cells.values()), slower=sum(seconds["with"]) / sum(seconds["without"])
    )
    parts = [head]
    for title, agents in (("Held out", HELD_OUT), ("Tuning", TUNING)):
        parts += [f"## {title}", "\n".join(rows(cells, agents, gammas, options.multiples))]
    options.output.write_text(paragraphs(*parts) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
