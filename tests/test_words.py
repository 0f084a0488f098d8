"""One vocabulary: a class name means one class, and phrases that a native reader stumbles over stay out."""

import ast
import re
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCES = sorted((ROOT / "src" / "rido").rglob("*.py"))
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
PAGES += [path for end in ("html", "js") for path in sorted((ROOT / "src" / "rido").rglob(f"*.{end}"))]

PHRASES = {  # what stands in the way, and what to say
    r"so many\b(?! (?:of|that|as)\b)": "this many, or the number",
    r"\b(?:an?|has|have)\s(?:[\w'-]+\s){1,3}of its own\b": "its",
    r"\b(?:has|have|need)\s(?:[\w'-]+\s){1,3}of their own\b": "their",
    r"\bwhat is left of\b": "the rest of",
    r"\bas ever\b": "as before",
    r"\bgenerators? of ours\b": "our generator",
    r"\bfor ever\b": "forever",
    r"\bwho draws\b": "the policy that draws",
    r"\bsurely\b": "significantly",
    r"\bmust come with(?:out)?\b": "works only with",
    r"\bgot others\b": "say what is wrong with the value",
}


def test_a_class_name_means_one_class():
    names = Counter(
        node.name
        for path in SOURCES
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ClassDef)
    )
    assert [name for name, count in names.items() if count > 1] == []


@pytest.mark.parametrize(("phrase", "better"), PHRASES.items())
def test_phrases_that_are_not_english_stay_out(phrase, better):
    found = [
        f"{path.relative_to(ROOT)}:{text.count(chr(10), 0, match.start()) + 1}: say {better!r}"
        for path in [*SOURCES, *PAGES]
        for text in [path.read_text(encoding="utf-8")]
        for match in re.finditer(phrase.replace(" ", r"\s+"), text, re.IGNORECASE)
    ]
    assert found == []
