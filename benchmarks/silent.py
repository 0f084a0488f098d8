"""The corpus of tests/corpus against plain loops, in 1, 4 and 16 environments and with 2 workers.

    python benchmarks/silent.py --output results/silent.md

It writes the table, and beside it a JSON file with every verdict, which keeps what other versions gave: run an older
version with ``PYTHONPATH=.../src python benchmarks/silent.py --label before --output results/silent.md``.
"""

import argparse
import collections
import json
import math
import sys
import warnings
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from corpus import environments, policies
from corpus.plain import MISS, VERDICTS, judge

CONFIGURATIONS = {"1": (1, 1), "4": (4, 1), "16": (16, 1), "2 workers": (4, 2)}
KINDS = {"environments": environments.CASES, "policies": policies.CASES}


def run(path, label, names, episodes):
    """Judges every case, and writes verdicts as they come; those that are there already are kept."""
    known = json.loads(path.read_text()) if path.exists() else {}
    mine = known.setdefault(label, {})
    for name in names:
        for kind, cases in KINDS.items():
            # Every third case first, so that a run that is stopped has seen all kinds; the next one goes on.
            for each in (one for first in range(3) for one in list(cases.values())[first::3]):
                key = f"{name} | {kind} | {each.name}"
                if key in mine or (name == "2 workers" and each.name.endswith(", batches")):
                    continue
                num_envs, workers = CONFIGURATIONS[name]
                found = judge(each, num_envs=num_envs, workers=workers, episodes=episodes)
                z = round(found.z, 2) if math.isfinite(found.z) else None
                mine[key] = [found.kind, z, found.text, each.unseen]
                path.write_text(json.dumps(known, indent=0))
    return known


def known_case(key):
    """Whether the corpus still has a case."""
    _, kind, name = key.split(" | ", 2)
    return name in KINDS[kind]


def table(known):
    """The counts of each version and configuration, and every case that is not right."""
    lines = ["# Nothing silent", "", __doc__.split("\n\n")[0].replace("The corpus", "The corpus") + "", ""]
    sizes = ", ".join(f"{len(cases)} {kind}" for kind, cases in KINDS.items())
    lines += [
        f"{sizes}; of the environments about half with a function of one observation, the others with",
        f"one that is said to take batches. A value is right within {MISS:g} standard errors of a plain loop",
        "that the test wrote, where no return appears twice that is once in the loop. By chance a right case of 40",
        "normal trajectories misses in 1 of 3,000; seeds are fixed, so the same cases are right in every run.",
        "With 2 workers, where starting them takes most of the time, cases of one observation only; a run that is",
        "stopped has tried every third first, and the next one goes on.",
        "",
        "    python benchmarks/silent.py --output results/silent.md",
        "",
        f"| version | run in | {' | '.join(VERDICTS)} |",
        f"|---|---|{'--:|' * len(VERDICTS)}",
    ]
    for label, verdicts in known.items():
        for name in CONFIGURATIONS:
            counts = collections.Counter(
                v[0] for key, v in verdicts.items() if key.startswith(f"{name} |") and known_case(key)
            )
            if counts:
                lines.append(f"| {label} | {name} | {' | '.join(str(counts[kind]) for kind in VERDICTS)} |")
    for label, verdicts in known.items():
        lines += [
            "",
            f"## {label.capitalize()}: what was not right",
            "",
            "| case | verdicts | z | what was said |",
            "|---|---|---|---|",
        ]
        grouped = collections.defaultdict(list)
        for key, verdict in verdicts.items():
            if not known_case(key):
                continue
            name, _, each = key.split(" | ", 2)
            grouped[each].append((name, verdict))
        for each, found in grouped.items():
            bad = [(name, v) for name, v in found if v[0] != "right"]
            if bad:
                said = ", ".join(f"{name}: {v[0]}" for name, v in bad)
                worst = max((v[1] for _, v in bad if v[1] is not None), key=abs, default=None)
                text = bad[0][1][2].replace("|", "/")[:160]
                lines.append(f"| {each} | {said} | {'' if worst is None else worst} | {text} |")
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=Path("results/silent.md"))
    parser.add_argument("--label", default="now", help="name of the version that runs")
    parser.add_argument("--episodes", type=int, default=40)
    parser.add_argument("--only", nargs="*", choices=list(CONFIGURATIONS), default=list(CONFIGURATIONS))
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    known = run(options.output.with_suffix(".json"), options.label, options.only, options.episodes)
    options.output.write_text(table(known))


if __name__ == "__main__":
    main()
