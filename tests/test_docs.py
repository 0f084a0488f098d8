"""What the README and the documentation say works: every Python block and every ``rido`` command in them is run.

Those of the tutorial are run by its build.
"""

import html
import json
import re
import shlex
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest
from typer.testing import CliRunner

import rido
from helpers import needs
from rido.cli import app

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
PAGES = [
    "README.md",
    "docs/index.md",
    "docs/compare.md",
    "docs/suite.md",
    "docs/episodes.md",
    "docs/components.md",
    "docs/gradients.md",
    "docs/simulator.md",
    "docs/gpu.md",
    "docs/strategy.md",
    "docs/contributing.md",
    "docs/troubleshooting.md",
]
BLOCK = re.compile(r"^```(python|sh)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def commands(script):
    """Returns the ``rido`` commands of a shell block, without installing or building anything."""
    parts = re.split(r"&&|\n", script.replace("\\\n", " "))
    return [shlex.split(part)[1:] for part in parts if part.strip().startswith("rido ")]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """An empty working directory, in which nothing opens a window."""
    needs("stable_baselines3", "sb3")
    needs("matplotlib", "plot").use("Agg")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("page", PAGES)
def test_every_example_runs(page, folder):
    found = BLOCK.findall((ROOT / page).read_text(encoding="utf-8"))
    assert found and sum(language == "python" or bool(commands(text)) for language, text in found) > 0
    namespace = {"__name__": "__main__"}
    for language, text in found:
        if language == "python":
            exec(compile(text, f"{page} (example)", "exec"), namespace)
            continue
        for arguments in commands(text):
            result = CliRunner().invoke(app, arguments)
            assert result.exit_code == 0, f"rido {shlex.join(arguments)}: {result.output}"


def test_the_mathematics_links_every_public_name():
    text = (ROOT / "docs/mathematics.md").read_text(encoding="utf-8")
    assert [name for name in rido.__all__ if f"{{any}}`rido.{name}`" not in text] == []


def test_the_readme_shows_what_its_first_command_prints():
    (_, script), *_ = BLOCK.findall(README)
    (shown,) = re.findall(r"^```text\n(.*?)^```", README, re.MULTILINE | re.DOTALL)
    assert CliRunner().invoke(app, commands(script)[0]).stdout == shown


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The documentation as it is built, with its examples executed; any warning is an error."""
    for package in ("sphinx", "latex2mathml"):
        pytest.importorskip(package, reason=f"{package} is missing: pip install --group docs")
    needs("matplotlib", "plot")
    folder = tmp_path_factory.mktemp("docs")
    build = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-d", folder / "cache", ROOT / "docs"]
    result = subprocess.run([*build, folder / "site"], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    return folder / "site"


def text_of(page):
    return html.unescape(re.sub(r"<[^>]*>", "", page.read_text(encoding="utf-8")))


def test_the_tutorial_shows_what_its_examples_print_and_draw(site):
    page, text = (site / "tutorial.html").read_text(encoding="utf-8"), text_of(site / "tutorial.html")
    first = "evaluate rido/LQG-v0 --budget 5000 --gamma 0.9 --horizon 50 --seed 1"
    assert first in text and CliRunner().invoke(app, first.split()).stdout in text
    resumed, uninterrupted = re.search(r"^(-\d+\.\d{6,}) (-\d+\.\d{6,})$", text, re.MULTILINE).groups()
    assert resumed == uninterrupted
    assert text.count("warning: ") == 2
    pictures = re.findall(r'<div class="figure">(<svg.*?</svg>)', page, re.DOTALL)
    assert len(pictures) == 2 and all("currentColor" in picture for picture in pictures)


def test_the_reference_has_every_command_and_option(site):
    text = text_of(site / "cli.html")
    wide = CliRunner(env={"COLUMNS": "200"})
    names = re.findall(r"^\W+(\w+) ", wide.invoke(app, ["--help"]).stdout.partition("Commands")[2], re.MULTILINE)
    assert {"evaluate", "plan", "report"} <= set(names)
    for name in names:
        section = text.partition(f"rido {name}\N{PILCROW SIGN}")[2].partition("\N{PILCROW SIGN}")[0]
        usage = wide.invoke(app, [name, "--help"]).stdout
        options = re.findall(r"^\W+?(--[\w-]+)", usage, re.MULTILINE)
        assert "--help" in options and [option for option in options if option not in section] == []
        defaults = re.findall(r"\[default: [^\];]*", usage)
        assert [default for default in defaults if default not in section] == []


class Loaded(HTMLParser):
    """Addresses of what a page loads: scripts, styles, pictures and frames, but not links."""

    def __init__(self):
        super().__init__()
        self.addresses = []

    def handle_starttag(self, tag, attributes):
        named = dict(attributes)
        loads = named.get("src"), named.get("srcset"), named.get("data"), named.get("href") if tag == "link" else None
        self.addresses += [address for address in loads if address]


def test_no_page_loads_anything_from_elsewhere(site):
    pages = list(site.rglob("*.html"))
    assert len(pages) > 10 and any("</math>" in page.read_text(encoding="utf-8") for page in pages)
    for page in pages:
        parser = Loaded()
        parser.feed(page.read_text(encoding="utf-8"))
        assert parser.addresses and [address for address in parser.addresses if "//" in address] == [], page.name
    for sheet in site.rglob("*.css"):
        assert re.findall(r"(?:url\(|@import)\s*['\"]?(?:https?:)?//[^)]*", sheet.read_text(encoding="utf-8")) == []


def test_a_browser_renders_formulas_and_asks_for_files_alone(site, browser):
    page = (site / "mathematics.html").as_uri()
    browser.get(page)
    events = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    requests = [event["params"] for event in events if event["method"] == "Network.requestWillBeSent"]
    asked = [request["request"]["url"] for request in requests if request["documentURL"] == page]
    assert page in asked and {url.partition(":")[0] for url in asked} <= {"file", "data"}
    lowered = browser.execute_script(  # the index below its letter, in a fraction of the letter's height
        "const [base, index] = document.querySelector('math msub').children;"
        "const [above, below] = [base, index].map(part => part.getBoundingClientRect());"
        "return (below.bottom - above.bottom) / above.height"
    )
    assert 0 < lowered < 0.5
    formulas = browser.execute_script(
        "return [...document.querySelectorAll('math')].map(formula => formula.textContent)"
    )
    assert len(formulas) > 50 and "\\" not in "".join(formulas)
