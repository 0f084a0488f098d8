"""Which policy is better: wrong winners, trials and transitions to a decision. Makes the tables of results/compare.md.

    python benchmarks/compare --output results/compare.md --workers 2

``--sections errors,binary`` makes some tables again and keeps the others. Every cell is kept in ``--cells``, a folder
of its own, so that a run that was stopped goes on; ``--quick`` uses a hundredth of the repetitions.
"""

import argparse
import re
from functools import partial
from multiprocessing import get_context
from pathlib import Path

import binary
import callback
import errors
import racing

import policies

SECTIONS = {
    "errors": ("Wrong winners", errors.cells, errors.page),
    "binary": ("Two-valued outcomes", binary.cells, binary.page),
    "pendulum": ("Eight Pendulum policies", policies.pendulum_cells, policies.pendulum_page),
    "mujoco": ("MuJoCo", policies.mujoco_cells, policies.mujoco_page),
    "callback": ("The model that a training keeps", callback.cells, callback.page),
}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--sections", default=",".join(SECTIONS))
    parser.add_argument("--cells", type=Path, default=Path("/tmp/rido-compare"))
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    folder = options.cells / ("quick" if options.quick else "full")
    folder.mkdir(parents=True, exist_ok=True)
    old = options.output.read_text(encoding="utf-8") if options.output.exists() else ""
    parts = dict(re.findall(r"^## (.+?)\n(.*?)(?=^## |\Z)", old, flags=re.M | re.S))
    with get_context("forkserver").Pool(options.workers) as pool:
        for name in options.sections.split(","):
            title, cells, page = SECTIONS[name]
            items = list(cells(folder, quick=options.quick))
            found = dict(pool.imap_unordered(partial(racing.work, folder), items))
            parts[title] = "\n" + page({key: found[key] for key, *_ in items}) + "\n"
            body = [f"## {title}\n{parts[title].rstrip()}\n" for title, *_ in SECTIONS.values() if title in parts]
            head = "# Which policy is better\n\nMade by `python benchmarks/compare --output results/compare.md`.\n"
            options.output.write_text("\n".join([head, *body]), encoding="utf-8")


if __name__ == "__main__":
    main()
