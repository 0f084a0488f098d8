"""docs/warnings.md has every warning that the source can emit and no other; docs/troubleshooting.md quotes errors."""

import ast
import re
import subprocess
import sys

from warned import ROOT, patterns, warnings_of

BLOCK = re.compile(r"^```text\n(.*?)^```", re.MULTILINE | re.DOTALL)
UNSEEN = r".* trajectories of full length: outcomes rarer than 1 in .* may be unseen"  # in each summary, no warning


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
    assert len(patterns()) > 10
    page = (ROOT / "docs/warnings.md").read_text(encoding="utf-8")
    quoted = [" ".join(text.split()) for text in BLOCK.findall(page)]
    missing = [f"{file}: {text}" for text, file in patterns().items() if not any(re.fullmatch(text, q) for q in quoted)]
    assert missing == [], "quote these in docs/warnings.md, with when they appear, what they mean and what to do"
    stale = [text for text in quoted if not any(re.fullmatch(pattern, text) for pattern in [*patterns(), UNSEEN])]
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


def test_a_warning_that_is_not_found_in_the_source_fails_the_test_that_emits_it(tmp_path):
    code = """
from dataclasses import replace
import rido

def test_it():
    result = rido.evaluate("rido/LQG-v0", budget=20, gamma=0.9, horizon=5, seed=1)
    replace(result, warnings=("-".join(["never", "said", "before"]),))
"""
    (tmp_path / "test_it.py").write_text(code)
    command = [sys.executable, "-m", "pytest", "-c", ROOT / "pyproject.toml", "-p", "conftest", tmp_path / "test_it.py"]
    done = subprocess.run(command, cwd=ROOT / "tests", capture_output=True, text=True)
    assert "does not find where the source warns of this: never-said-before" in done.stdout and done.returncode == 1
