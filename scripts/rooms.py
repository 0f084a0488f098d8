"""Prints the rooms of the package, the imports between them and those on a cycle, in Markdown.

A room is a folder or a top-level module of the package. A module that only imports a public name from its room, such as
``rido/jax.py``, is a door, not a room. Imports within functions count; those for type checking alone do not.

``python scripts/rooms.py`` prints the rooms of src/rido. ``python scripts/rooms.py --before 0f729ba --output
results/rooms.md`` writes a page that compares them with those of a commit.
"""

import argparse
import ast
import io
import subprocess
import tarfile
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = """# Rooms

Made by `python scripts/rooms.py --before {before} --output results/rooms.md`. A room is a folder or a top-level module
of `src/rido`. An import is on a cycle if its target also imports its room, directly or by way of others.

| | rooms | imports between them | on cycles | modules | lines | without the paper's reproduction |
|---|---|---|---|---|---|---|
| before ({before}) | {old} |
| after | {new} |

## After

{new_table}

## Before

{old_table}
"""


class Rooms:
    """The rooms below a folder: their sizes and the imports between them."""

    def __init__(self, folder: Path) -> None:
        self.lines: dict[str, int] = defaultdict(int)
        self.modules: dict[str, int] = defaultdict(int)
        self.edges: dict[str, set[str]] = defaultdict(set)
        self.paper = 0
        top = {path.stem: path for path in folder.glob("*.py") if not path.stem.startswith("__")}
        self.doors = {name for name, path in top.items() if is_door(path)}
        self.names = {path.name for path in folder.iterdir() if path.is_dir() and any(path.rglob("*.py"))}
        self.names |= set(top) - self.doors
        for path in sorted(folder.rglob("*.py")):
            place = path.relative_to(folder)
            room, size = place.parts[0].removesuffix(".py"), len(path.read_text(encoding="utf-8").splitlines())
            self.lines[room] += size
            self.modules[room] += 1
            self.paper += size if "paper" in place.parts else 0
            targets = {name.split(".")[1] for name in imports(path, folder.name) if "." in name}
            if room in self.names:
                self.edges[room] |= (targets & self.names) - {room}

    def reachable(self, start: str) -> set[str]:
        """Returns all rooms that a room imports, also by way of others."""
        found: set[str] = set()
        pending = [start]
        while pending:
            new = self.edges[pending.pop()] - found
            found |= new
            pending += new
        return found

    def totals(self) -> list[int]:
        """Returns rooms, imports, imports on cycles, modules, lines, and lines without the paper's reproduction."""
        edges = [(a, b) for a in self.names for b in self.edges[a]]
        cyclic = [(a, b) for a, b in edges if a in self.reachable(b)]
        total = sum(self.lines.values())
        modules = sum(self.modules.values())
        return [len(self.names), len(edges), len(cyclic), modules, total, total - self.paper]

    def table(self) -> str:
        """Returns one row for each room, those that import most first."""
        rows = ["| room | modules | lines | imports |", "|---|---|---|---|"]
        for room in sorted(self.names, key=lambda name: (-len(self.reachable(name)), name)):
            targets = ", ".join(sorted(self.edges[room])) or "nothing"
            rows.append(f"| {room} | {self.modules[room]} | {self.lines[room]:,} | {targets} |")
        if self.doors:
            rows.append(f"\nDoors: {', '.join(sorted(self.doors))}.")
        return "\n".join(rows)


def is_door(path: Path) -> bool:
    """Whether a module has nothing but a docstring and imports."""
    body = ast.parse(path.read_text(encoding="utf-8")).body
    return all(
        isinstance(node, ast.ImportFrom) or isinstance(getattr(node, "value", None), ast.Constant) for node in body
    )


def imports(path: Path, package: str) -> Iterator[str]:
    """Yields the modules of the package that a file imports."""
    pending: list[ast.AST] = [ast.parse(path.read_text(encoding="utf-8"))]
    while pending:
        node = pending.pop()
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.split(".")[0] == package)
        elif isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == package:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        pending += ast.iter_child_nodes(node)


def at_commit(commit: str) -> Rooms:
    """Returns the rooms of the package at a commit."""
    archive = subprocess.run(["git", "archive", commit, "src/rido"], cwd=ROOT, capture_output=True, check=True).stdout
    with tempfile.TemporaryDirectory() as folder:
        with tarfile.open(fileobj=io.BytesIO(archive)) as file:
            file.extractall(folder, filter="data")
        return Rooms(Path(folder) / "src" / "rido")


def main() -> None:
    """Prints the rooms, or writes the page that compares them with those of a commit."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--before", metavar="COMMIT", help="Compare with this commit.")
    parser.add_argument("--output", type=Path, help="Write the comparison into this file.")
    options = parser.parse_args()
    now = Rooms(ROOT / "src" / "rido")
    if options.before is None:
        rooms, edges, cyclic, modules, lines, rest = now.totals()
        print(f"{now.table()}\n")
        print(f"{rooms} rooms, {edges} imports between them, {cyclic} on cycles")
        print(f"{modules} modules, {lines:,} lines, {rest:,} without the paper's reproduction")
        return
    then = at_commit(options.before)
    old, new = (" | ".join(f"{number:,}" for number in rooms.totals()) for rooms in (then, now))
    page = PAGE.format(before=options.before, old=old, new=new, old_table=then.table(), new_table=now.table())
    if options.output is None:
        print(page)
    else:
        options.output.write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main()
