"""Suites: error of the scores, right orders, time of a whole suite, kills. Makes results/suite.md.

    python benchmarks/suite --output results/suite.md --folder /tmp/rido-suite --repetitions 40

Agents and banks of recorded trajectories are kept in ``--folder``. ``--sections banks,run`` makes some
sections again and keeps the others.
"""

import json
import subprocess
import sys
import time
from functools import partial
from multiprocessing import get_context
from pathlib import Path

import agents
import banks
import kills
import live
import numpy as np

sys.path.append(str(Path(__file__).parents[1]))
from sections import page_parser, update

BUDGETS = (400_000, 800_000, 1_600_000)
LONGEST = 688  # steps of a trajectory
COLUMNS = (
    "| budget | repetitions | error over that of equal episodes | 95% intervals hold | pairs called sure, of 28 "
    "| repetitions with a wrong one | leader right | whole order right |",
    "|---|---|---|---|---|---|---|---|",
)
HEAD = "# Suites\n\nMade by `python benchmarks/suite --output results/suite.md`.\n"


def banks_section(folder, repetitions, workers):
    recorded = banks.record(folder)
    lines = [
        f"On banks of recorded trajectories, whose means are the truth: {len(agents.TASKS)} tasks and "
        f"{len(agents.NAMES)} policies (shipped agents, checkpoints of a training, noise on the weights, the random "
        f"policy), discount {agents.GAMMA}, rido's default horizons (50 to 688 steps). The score is 0 for the random "
        "policy and 1 for the shipped agent of each task. The error is the root mean squared one of all policies' "
        "scores, over that of equally many whole episodes of each policy in each task for the same transitions, which "
        "is exact; its interval is a bootstrap over the repetitions. The constants of the allocation were chosen on "
        "these banks, with the first 6 repetitions of the first budget.",
        "",
        *COLUMNS,
    ]
    with get_context("forkserver").Pool(workers) as pool:
        for budget in BUDGETS:
            seeds = range(repetitions if budget == BUDGETS[0] else repetitions // 2)
            lines.append(bank_row(pool, folder, LONGEST, budget, seeds))
    scores = ", ".join(f"{name} {score:.3f}" for name, score in banks.truth(recorded, banks.tasks_of(recorded)).items())
    return "\n".join([*lines, "", f"True scores: {scores}."])


def short_section(folder, repetitions, workers):
    lines = [
        "The same with horizons of at most 200 steps, other seeds, nothing chosen on it. Less can be gained there: the "
        "first steps count for more, and the tasks cost about the same.",
        "",
        *COLUMNS,
    ]
    with get_context("forkserver").Pool(workers) as pool:
        lines.append(bank_row(pool, folder, 200, 200_000, range(100, 100 + repetitions // 2)))
    return "\n".join(lines)


def bank_row(pool, folder, steps, budget, seeds):
    """Returns a row of the table: suites over at most so many steps."""
    found = pool.map(partial(banks.repetition, folder), [(steps, budget, seed) for seed in seeds], chunksize=1)
    errors, equal = (np.array([one[key] for one in found]) for key in ("errors", "equal"))
    draws = np.random.default_rng(0).integers(len(found), size=(2000, len(found)))
    ratio = np.sqrt(errors.mean() / equal.mean())
    low, high = np.quantile(np.sqrt(errors[draws].mean(axis=(1, 2)) / equal.mean()), [0.025, 0.975])
    means = {key: np.mean([one[key] for one in found]) for key in ("holds", "sure", "leader", "order")}
    wrong = sum(one["wrong"] > 0 for one in found)
    return (
        f"| {budget:,} | {len(found)} | {ratio:.2f} ({low:.2f} to {high:.2f}), 1/{1 / ratio:.2f} "
        f"| {means['holds']:.3f} | {means['sure']:.1f} | {wrong} of {len(found)} "
        f"| {100 * means['leader']:.0f}% | {100 * means['order']:.0f}% |"
    )


def run_section(folder, workers):
    agents.write_suite(folder, banks.references(banks.record(folder)), BUDGETS[0])
    out = folder / f"run-{time.time_ns()}"
    command = [sys.executable, "-m", "rido", "suite", str(folder / "suite.toml"), "-o", str(out), "--json"]
    timed = []
    for _ in range(2):
        started = time.perf_counter()
        told = json.loads(subprocess.run([*command, "--workers", str(workers)], capture_output=True, check=True).stdout)
        timed.append(time.perf_counter() - started)
    names = ", ".join(f"{row['name']} {row['score']:.3f}" for row in told["policies"])
    sure = sum(len(row["beats"]) for row in told["policies"])
    return (
        f"The same suite in the simulator, by `rido suite suite.toml --workers {workers}` with a budget of "
        f"{BUDGETS[0]:,} transitions, on two cores that others were using too: {timed[0]:.0f} s with the leaderboard "
        f"and 48 reports. The same command again, with everything recorded: {timed[1]:.0f} s. Scores: {names}; "
        f"{sure} of 28 pairs are sure."
    )


def kills_section(folder, number):
    found = kills.study(folder / "kills", number)
    return (
        f"A suite of three tasks and three policies ({found['seconds']:.0f} s when left alone), killed with SIGKILL at "
        f"random moments and started again: {found['kills']} kills in {found['suites']} suites, {found['between']} of "
        f"them with a part of the trajectories recorded ({100 * found['least']:.0f}% to {100 * found['most']:.0f}%). "
        f"Recorded trajectories lost: {found['lost']} times. Suites that ended with another leaderboard (HTML, "
        f"Markdown or CSV, byte by byte) or simulated a trajectory twice: {found['other']}."
    )


def live_section(folder):
    memory = Path("/dev/shm")  # whose writes take no time of a disk, which varies more than what is measured
    found = live.study((memory if memory.is_dir() else folder) / "rido-live")
    alone, beside = (1000 * np.array(found[key]) for key in ("alone", "beside"))
    return (
        f"A writer of a file in memory that aims at {live.UPDATES:,} updates a second, on cores that others were using "
        f"too (it reached {np.median(found['rates']):,.0f}); {live.RUNS} runs of {live.SECONDS:g} s, every second one "
        "with `rido watch` and a reader of its events beside it. An update took "
        f"{np.median(alone):.3f} ms alone ({alone.min():.3f} to {alone.max():.3f}) and "
        f"{np.median(beside):.3f} ms beside it ({beside.min():.3f} to {beside.max():.3f}). "
        f"The server used {100 * np.median(found['busy']):.0f}% of a core. "
        f"The last state was there {max(found['delays']):.2f} s after the last update at the latest."
    )


SECTIONS = {
    "banks": ("Errors and orders", lambda o: banks_section(o.folder, o.repetitions, o.workers)),
    "short": ("Shorter horizons", lambda o: short_section(o.folder, o.repetitions, o.workers)),
    "run": ("Six tasks, eight policies", lambda o: run_section(o.folder, o.workers)),
    "kills": ("Kills", lambda o: kills_section(o.folder, o.kills)),
    "live": ("The live page", lambda o: live_section(o.folder)),
}


def main():
    parser = page_parser(__doc__, SECTIONS)
    parser.add_argument("--folder", type=Path, default=Path("/tmp/rido-suite"))
    parser.add_argument("--repetitions", type=int, default=40)
    parser.add_argument("--kills", type=int, default=30)
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    agents.write_agents(options.folder)
    new = ((title, make(options)) for title, make in map(SECTIONS.get, options.sections))
    update(options.output, new, head=HEAD, headings=[title for title, _ in SECTIONS.values()])


if __name__ == "__main__":
    main()
