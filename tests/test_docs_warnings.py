"""docs/warnings.md has every warning that the source can emit and no other; docs/troubleshooting.md quotes errors."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
BLOCK = re.compile(r"^```text\n(.*?)^```", re.MULTILINE | re.DOTALL)
HOLDER = re.compile(r"(note|warning)s?$")  # what a variable or a parameter is called that holds warnings
LISTS = ("tuple[str, ...]", "list[str]")  # what functions return that find warnings
FEWEST_WORDS = 4  # of a warning: shorter strings are names
UNSEEN = r".* trajectories of full length: outcomes rarer than 1 in .* may be unseen"  # in each summary, no warning


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


def test_every_way_to_warn_is_found():
    source = """
warnings.warn(f"{file} was made by another version")
notes.append("a note that is appended")
self.notes += ["a note that is added" if hot else "a note that replaces it"]
Result(warnings=("a warning that is passed",), name="not a warning at all")
def find(x) -> list[str]:
    return [f"a {x} that is returned"]
"""
    texts = ("x was made by another version", "a note that is appended", "a note that is added")
    texts += ("a note that replaces it", "a warning that is passed", "a thing that is returned")
    found = warnings_of(source)
    assert len(found) == len(texts)
    assert all(any(re.fullmatch(pattern, text) for pattern in found) for text in texts)


def test_the_page_has_every_warning_and_no_other():
    patterns = {}
    for file in sorted((ROOT / "src").rglob("*.py")):
        patterns |= dict.fromkeys(warnings_of(file.read_text(encoding="utf-8")), file.name)
    assert len(patterns) > 10
    page = (ROOT / "docs/warnings.md").read_text(encoding="utf-8")
    quoted = [" ".join(text.split()) for text in BLOCK.findall(page)]
    missing = [f"{file}: {text}" for text, file in patterns.items() if not any(re.fullmatch(text, q) for q in quoted)]
    assert missing == [], "quote these in docs/warnings.md, with when they appear, what they mean and what to do"
    stale = [text for text in quoted if not any(re.fullmatch(pattern, text) for pattern in [*patterns, UNSEEN])]
    assert stale == [], "no line of the source makes these"


def test_links_in_warnings_lead_to_their_section():
    page = (ROOT / "docs/warnings.md").read_text(encoding="utf-8")
    sections = {re.sub(r"\W+", "-", title.lower()) for title in re.findall(r"^## (.*)$", page, re.MULTILINE)}
    links = re.findall(r"docs/warnings\.md#([\w-]+)", page)
    assert len(links) >= 4 and set(links) <= sections


def test_troubleshooting_quotes_errors_as_they_are():
    page = " ".join((ROOT / "docs/troubleshooting.md").read_text(encoding="utf-8").split())
    quoted = re.findall(r'\*"(.*?)"\*', page)
    trees = [ast.parse(file.read_text(encoding="utf-8")) for file in (ROOT / "src").rglob("*.py")]
    constants = [node.value for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Constant)]
    texts = [value for value in constants if isinstance(value, str)]
    assert len(quoted) > 10
    assert [quote for quote in quoted if not any(quote in text for text in texts)] == []
