"""Attacks on rido: the tables of results/faults.md.

Run ``python benchmarks/faults --output results/faults.md``; ``--sections storage,commands`` makes some again and
keeps the others. Every attack is drawn from the seed that the page names.
"""

import sys
from pathlib import Path

import commands
import extremes
import interrupts
import kills
import misbehaviour
import remote
import storage

sys.path.append(str(Path(__file__).parents[1]))
from sections import page_parser, paragraphs, row, rule, update

SEED = 0
BEFORE = """\
Before these attacks were answered: of 600 bit flips 34 gave wrong numbers, 16 wrong labels and 113 tracebacks; 16 of
1,020 fuzzed command lines and 10 of 16 damaged zips showed a traceback; 67 of 700 random ask/tell problems raised, and
60 gave a standard error of 0 or infinity where returns varied; environments that ignore their seed were called
reproducible; a step that never returned was waited for without end."""
SECTIONS = {
    "storage": (
        "Run files",
        "1,000 damaged or bit-flipped run files, 50 moments at which writing fails (full disk, size limit, read-only).",
        lambda: storage.run(1000, SEED, moments=50),
    ),
    "kills": (
        "Kills",
        "200 times SIGKILL at random moments of five kinds of run, each started again until it ends.",
        lambda: kills.run(200, SEED),
    ),
    "commands": ("Command lines", "5,000 fuzzed command lines.", lambda: commands.run(5000, SEED)),
    "interrupts": (
        "Interrupts",
        "40 interrupts (Ctrl-C, SIGTERM) from the interpreter's start on: status 130, one line, no process left.",
        lambda: interrupts.run(40, SEED),
    ),
    "environments": (
        "Environments, policies and critics",
        "100 that misbehave (hang, crash, exit, print, wrong types, NaN, changes in place), workers 1 and 2, Ray.",
        lambda: misbehaviour.run(100, SEED, with_ray=True),
    ),
    "remote": (
        "Hub, EnvPool, workers and Ray",
        "A hub that hangs, redirects, cuts or answers pages, and agents that move; EnvPool's limits, actions and "
        "arguments; lost workers, and nodes with other code.",
        remote.run,
    ),
    "numbers": (
        "Numbers",
        "3,000 random ask/tell problems, 1,000 of evaluate() in ordinary ranges and 1,000 in extreme ones.",
        lambda: extremes.run(3000, SEED),
    ),
}


HEAD = f"""\
# What attacks find

Made by `python benchmarks/faults --output results/faults.md`, seed {SEED}. {BEFORE}
"""


def made(names):
    for name in names:
        title, text, attack = SECTIONS[name]
        rows = [row(what, f"{count:,}") for what, count in attack().items()]
        yield title, paragraphs(text, [row("what", "count"), rule(2), *rows])


def main():
    options = page_parser(__doc__, SECTIONS).parse_args()
    update(options.output, made(options.sections), head=HEAD, headings=[title for title, *_ in SECTIONS.values()])


if __name__ == "__main__":
    main()
