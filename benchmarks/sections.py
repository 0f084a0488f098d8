"""Pages of results in Markdown: tables, and sections of which some are made again while the others stay."""

import argparse
import time
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from pathlib import Path


def row(*cells):
    return f"| {' | '.join(map(str, cells))} |"


def rule(columns):
    return "|---" * columns + "|"


def paragraphs(*parts):
    return "\n\n".join(part if isinstance(part, str) else "\n".join(part) for part in parts)


def page_parser(about, sections):
    """A parser of the page to write and of the names of the sections to make again."""

    def names(text):
        chosen = text.split(",")
        if unknown := set(chosen) - set(sections):
            raise argparse.ArgumentTypeError(f"must be of {', '.join(sections)}, got {', '.join(sorted(unknown))}")
        return chosen

    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--sections", type=names, default=list(sections))
    return parser


def study_parser(about, sections):
    """The same for studies that have a short form and run in several processes."""
    parser = page_parser(about, sections)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--quick", action="store_true")
    return parser


@contextmanager
def mapping(workers):
    """A function like ``map`` that returns a list, in so many processes."""
    if workers == 1:
        yield lambda function, tasks: list(map(function, tasks))
        return
    with ProcessPoolExecutor(workers) as pool:
        yield lambda function, tasks: list(pool.map(function, tasks))


def made(names, sections, *arguments):
    """Headings and texts of sections that are functions of these arguments; prints how long each took."""
    for name in names:
        started = time.perf_counter()
        yield from sections[name](*arguments)
        print(f"{name}: {time.perf_counter() - started:.0f} s", flush=True)


def sections_of(path):
    """Sections that a page has already, by heading."""
    if not path.is_file():
        return {}
    _, *parts = path.read_text(encoding="utf-8").split("\n## ")
    return {part.partition("\n")[0]: part.partition("\n")[2].strip() for part in parts}


def update(path, new, *, head, headings):
    """Writes sections into a page, after each one of them, and keeps the others that are there.

    Args:
        path: The page.
        new: Pairs of a heading and a text.
        head: What stands above the sections: a text, or a function of the sections by heading.
        headings: All headings, in the order of the page.
    """
    found = sections_of(path)
    for heading, text in new:
        found[heading] = text.strip()
        top = head(found) if callable(head) else head
        body = [f"\n## {name}\n\n{found[name]}\n" for name in headings if name in found]
        path.write_text("".join([top, *body]), encoding="utf-8")
