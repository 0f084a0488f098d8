"""Which changes of the code do the tests miss? One small change at a time, each in a copy, and the tests of its room.

Run ``python benchmarks/mutants.py --output results/mutants.md``. Changes are drawn with a seed from all comparisons,
arithmetic, numbers, conditions and calls whose result is not used; ``--count`` says how many of each room. A change is
caught if a test fails or does not end. Those that no test can see (another name for the same number) count as missed.
"""

import argparse
import ast
import os
import random
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
ROOMS = {
    "core": ("tests/core", "tests/strategies"),
    "strategies": ("tests/strategies",),
    "predictors": ("tests/predictors",),
    "comparison": ("tests/comparison",),
}
COMPARISONS = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
ARITHMETIC = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Pow: ast.Mult,
    ast.MatMult: ast.Add,
}
SECONDS = 1200  # more than the tests of a room take on a busy machine


@dataclass(frozen=True)
class Mutant:
    """One change: the file, the line, and its code before and after."""

    path: Path
    line: int
    before: str
    after: str
    source: str


def changes(tree):
    """Yields for each place that can change: the node, and a function that changes it in place."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare) and type(node.ops[0]) in COMPARISONS:
            yield node, lambda node=node: node.ops.__setitem__(0, COMPARISONS[type(node.ops[0])]())
        elif isinstance(node, ast.BinOp) and type(node.op) in ARITHMETIC and not is_text(node):
            yield node, lambda node=node: setattr(node, "op", ARITHMETIC[type(node.op)]())
        elif isinstance(node, ast.Constant) and type(node.value) in (int, float):
            yield node, lambda node=node: setattr(node, "value", node.value * 2 + (node.value == 0))
        elif isinstance(node, ast.IfExp | ast.If):
            yield node.test, lambda node=node: setattr(node, "test", ast.UnaryOp(ast.Not(), node.test))
        elif isinstance(node, ast.BoolOp):
            other = ast.Or if isinstance(node.op, ast.And) else ast.And
            yield node, lambda node=node, other=other: setattr(node, "op", other())


def is_text(node):
    """Whether an operation is on texts or types."""
    parts = (node.left, node.right)
    return any(isinstance(part, ast.JoinedStr | ast.Subscript) or getattr(part, "value", 0) is None for part in parts)


def code_nodes(tree):
    """The changes of a module outside annotations and error messages."""
    hidden = set()
    for node in ast.walk(tree):
        for name in ("annotation", "returns"):
            if (part := getattr(node, name, None)) is not None:
                hidden.update(map(id, ast.walk(part)))
        if isinstance(node, ast.Raise | ast.JoinedStr):
            hidden.update(map(id, ast.walk(node)))
    return [(node, change) for node, change in changes(tree) if id(node) not in hidden]


def mutants(room, count, rng):
    """A sample of changes of the modules of a room, each module in proportion to its places."""
    places = []
    for path in sorted((ROOT / "src" / "rido" / room).glob("*.py")):
        source = path.read_text()
        places += [(path, source, number) for number in range(len(code_nodes(ast.parse(source))))]
    for path, source, number in rng.sample(places, min(count, len(places))):
        tree = ast.parse(source)
        node, change = code_nodes(tree)[number]
        before = ast.get_source_segment(source, node) or ""
        change()
        yield Mutant(path, node.lineno, before, ast.unparse(node), ast.unparse(tree))


def caught(mutant, room):
    """Whether the tests of a room fail, those of the module first."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "src"
        shutil.copytree(ROOT / "src", copy, ignore=shutil.ignore_patterns("__pycache__"))
        changed = copy / mutant.path.relative_to(ROOT / "src")
        changed.write_text(mutant.source)
        environment = {**os.environ, "PYTHONPATH": str(copy), "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}
        own = [str(path) for path in ROOT.glob(f"tests/{room}/test_{mutant.path.stem}*.py")]
        for tests in ([*own, str(changed)], [str(ROOT / place) for place in ROOMS[room]]):
            command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", *tests]
            try:
                ended = subprocess.run(command, cwd=ROOT, env=environment, timeout=SECONDS, capture_output=True)
            except subprocess.TimeoutExpired:
                return True
            if ended.returncode not in (0, 5):
                return True
    return False


def write(options, lines, missed):
    """Writes the page on the rooms that are done."""
    rooms = "" if options.rooms == ",".join(ROOMS) else f"--rooms {options.rooms} "
    page = [
        "# Which changes of the code do the tests miss?",
        "",
        f"Made by `python benchmarks/mutants.py {rooms}--count {options.count} --seed {options.seed} --output "
        "results/mutants.md`: one small change at a time, and the tests of its room.",
        "",
        *lines,
        "",
        "Missed:",
        "",
        *missed,
    ]
    options.output.write_text("\n".join(page) + "\n")


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--output", type=Path)
    parser.add_argument("--rooms", default=",".join(ROOMS))
    parser.add_argument("--count", type=int, default=40, help="changes of each room")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    lines, missed = ["| room | changes | caught | share |", "|---|---|---|---|"], []
    for room in options.rooms.split(","):
        found = []
        for mutant in mutants(room, options.count, random.Random(f"{options.seed} {room}")):
            found.append(caught(mutant, room))
            place = f"{mutant.path.relative_to(ROOT)}:{mutant.line}"
            print("caught" if found[-1] else "MISSED", place, f"{mutant.before}  ->  {mutant.after}", flush=True)
            if not found[-1]:
                missed.append(f"- {place}: `{mutant.before}` became `{mutant.after}`")
        lines.append(f"| {room} | {len(found)} | {sum(found)} | {sum(found) / max(1, len(found)):.0%} |")
        if options.output:
            write(options, lines, missed)
    print("\n".join(lines))


if __name__ == "__main__":
    main()
