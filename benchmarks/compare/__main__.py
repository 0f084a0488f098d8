"""Which policy is better: wrong winners, trials and transitions to a decision. Makes the tables of results/compare.md.

    python benchmarks/compare --output results/compare.md --workers 2

``--sections errors,binary`` makes some tables again and keeps the others. Every cell is kept in ``--cells``, a folder
of its own, so that a run that was stopped goes on; ``--quick`` uses a hundredth of the repetitions.
"""

import sys
from functools import partial
from multiprocessing import get_context
from pathlib import Path

import binary
import callback
import errors
import racing

import policies

sys.path.append(str(Path(__file__).parents[1]))
from sections import study_parser, update

HEAD = "# Which policy is better\n\nMade by `python benchmarks/compare --output results/compare.md`.\n"
SECTIONS = {
    "errors": ("Wrong winners", errors.cells, errors.page),
    "binary": ("Two-valued outcomes", binary.cells, binary.page),
    "pendulum": ("Eight Pendulum policies", policies.pendulum_cells, policies.pendulum_page),
    "mujoco": ("MuJoCo", policies.mujoco_cells, policies.mujoco_page),
    "callback": ("The model that a training keeps", callback.cells, callback.page),
}


def made(names, pool, folder, *, quick):
    for name in names:
        title, cells, page = SECTIONS[name]
        items = list(cells(folder, quick=quick))
        found = dict(pool.imap_unordered(partial(racing.work, folder), items))
        yield title, page({key: found[key] for key, *_ in items})


def main():
    parser = study_parser(__doc__, SECTIONS)
    parser.add_argument("--cells", type=Path, default=Path("/tmp/rido-compare"))
    options = parser.parse_args()
    folder = options.cells / ("quick" if options.quick else "full")
    folder.mkdir(parents=True, exist_ok=True)
    with get_context("forkserver").Pool(options.workers) as pool:
        new = made(options.sections, pool, folder, quick=options.quick)
        update(options.output, new, head=HEAD, headings=[title for title, *_ in SECTIONS.values()])


if __name__ == "__main__":
    main()
