"""Published ways to sample for policy evaluation beside rido, on their own grid worlds. Makes results/peers.md.

    python benchmarks/peers --output results/peers.md --workers 2

Every cell is kept in ``--cells``, a folder of its own, so that a run that was stopped goes on. ``--quick`` takes one
policy of the smallest world and a few repetitions.
"""

from __future__ import annotations

import argparse
from multiprocessing import get_context
from pathlib import Path

from page import page
from problems import Problem, choices


def main(arguments: list[str] | None = None) -> None:
    """Measure everything and write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--cells", type=Path, default=Path("/tmp/rido-peers"))
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args(arguments)
    repetitions = 5 if options.quick else 200
    folder = options.cells / ("quick" if options.quick else "full")
    folder.mkdir(parents=True, exist_ok=True)
    chosen = [Problem(number, *choice, repetitions, folder) for number, choice in enumerate(choices(options.quick))]
    if options.workers == 1:
        cells = [problem.measure() for problem in chosen]
    else:
        with get_context("forkserver").Pool(options.workers) as pool:
            cells = pool.map(Problem.measure, chosen, chunksize=1)
    options.output.write_text(page(cells, repetitions), encoding="utf-8")


if __name__ == "__main__":
    main()
