"""Every warning that the source can emit, found by the names of variables, and a check that the names suffice.

The names could miss a text: one in a variable that is called otherwise. So each warning of each result that any test
makes must be one of those that were found, or the test fails.
"""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
HOLDER = re.compile(r"(note|warning)s?$")  # what a variable or a parameter is called that holds warnings
LISTS = ("tuple[str, ...]", "list[str]")  # what functions return that find warnings
FEWEST_WORDS = 4  # of a warning: shorter strings are names


def places(tree):
    """Yields the expressions of a module whose strings are warnings."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            yield from (keyword.value for keyword in node.keywords if HOLDER.search(keyword.arg or ""))
            holder, _, method = ast.unparse(node.func).rpartition(".")
            if method == "warn" or HOLDER.search(holder):
                yield from node.args  # warnings.warn(...), notes.append(...)
        elif isinstance(node, ast.Assign | ast.AugAssign | ast.AnnAssign) and node.value is not None:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            if any(HOLDER.search(ast.unparse(target)) for target in targets):
                yield node.value
        elif isinstance(node, ast.FunctionDef) and node.returns is not None and ast.unparse(node.returns) in LISTS:
            found = [inner.value for inner in ast.walk(node) if isinstance(inner, ast.Return)]
            yield from (value for value in found if value is not None)


def strings(node):
    """Yields a pattern for each whole string in an expression, with anything in place of its fields."""
    if isinstance(node, ast.JoinedStr):
        yield "".join(re.escape(part.value) if isinstance(part, ast.Constant) else ".+" for part in node.values)
    elif isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield re.escape(node.value)
    else:
        for inner in ast.iter_child_nodes(node):
            yield from strings(inner)


def warnings_of(source):
    found = {pattern for place in places(ast.parse(source)) for pattern in strings(place)}
    return {pattern for pattern in found if len(pattern.split()) >= FEWEST_WORDS}


@cache
def patterns():
    """Patterns of all warnings, with the file that each comes from."""
    files = sorted((ROOT / "src").rglob("*.py"))
    return {pattern: file.name for file in files for pattern in warnings_of(file.read_text(encoding="utf-8"))}


given = set()  # the warnings of the results of a test


def watch():
    """Notes the warnings of all results from now on."""
    from rido.comparison.comparison import Comparison
    from rido.evaluation.result import Evaluation
    from rido.gradients.gradient import Gradient
    from rido.suite.leaderboard import Leaderboard

    def note(warnings):
        given.update(warnings)
        return warnings

    def noting(made):
        def init(self, *values, **named):
            made(self, *values, **named)
            note(self.warnings)

        return init

    for kind in (Evaluation, Gradient):
        kind.__init__ = noting(kind.__init__)
    for kind in (Comparison, Leaderboard):
        told = kind.warnings.fget
        kind.warnings = property(lambda self, told=told: note(told(self)))


def pytest_configure():
    watch()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item):
    given.clear()
    result = yield
    lost = [text for text in given if not any(re.search(one, text, re.DOTALL) for one in patterns())]
    if lost and lost[0] not in item.path.read_text(encoding="utf-8"):  # by a simulator that the test made
        pytest.fail(f"tests/warned.py does not find where the source warns of this: {lost[0]}", pytrace=False)
    return result
