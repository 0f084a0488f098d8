"""Prints the rooms of the package, the imports between them and those on a cycle, in Markdown.

A room is a folder or a top-level module of the package. A module that only imports a public name from its room, such as
``rido/jax.py``, is a door, not a room. Imports within functions count; those for type checking alone do not.

Run ``python scripts/rooms.py [FOLDER]``, by default of src/rido.
"""

import ast
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path


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


def reachable(edges: dict[str, set[str]], start: str) -> set[str]:
    """Returns all rooms that one can get to from a room."""
    found, pending = set(), [start]
    while pending:
        for room in edges[pending.pop()] - found:
            found.add(room)
            pending.append(room)
    return found


def main(folder: Path) -> None:
    """Prints the table of rooms and the totals."""
    lines: dict[str, int] = defaultdict(int)
    modules: dict[str, int] = defaultdict(int)
    edges: dict[str, set[str]] = defaultdict(set)
    doors = {path.stem for path in folder.glob("*.py") if not path.stem.startswith("__") and is_door(path)}
    rooms = {path.stem for path in folder.iterdir() if (path.is_dir() and any(path.rglob("*.py")))}
    rooms |= {path.stem for path in folder.glob("*.py") if not path.stem.startswith("__")} - doors
    for path in sorted(folder.rglob("*.py")):
        room = path.relative_to(folder).parts[0].removesuffix(".py")
        lines[room] += len(path.read_text(encoding="utf-8").splitlines())
        modules[room] += 1
        targets = {name.split(".")[1] for name in imports(path, folder.name) if "." in name}
        edges[room] |= (targets & rooms) - {room} if room in rooms else set()
    cyclic = {(a, b) for a in rooms for b in edges[a] if a in reachable(edges, b)}
    print("| room | modules | lines | imports |\n|---|---|---|---|")
    for room in sorted(rooms, key=lambda name: (-len(reachable(edges, name)), name)):
        print(f"| {room} | {modules[room]} | {lines[room]:,} | {', '.join(sorted(edges[room])) or 'nothing'} |")
    total = sum(lines.values())
    print(
        f"\n{len(rooms)} rooms, {sum(len(edges[room]) for room in rooms)} imports between them, {len(cyclic)} on "
        "cycles; "
        f"{sum(modules.values())} modules, {total:,} lines, {total - lines['paper']:,} without the paper's room."
    )
    if doors:
        print(f"Doors: {', '.join(sorted(doors))}.")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parents[1] / "src" / "rido")
