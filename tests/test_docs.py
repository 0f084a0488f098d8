"""What the README and the documentation say works: every Python block and every ``rido`` command in them is run."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

import rido
from helpers import needs
from rido.cli import app

ROOT = Path(__file__).resolve().parents[1]
PAGES = [
    "README.md",
    "docs/index.md",
    "docs/tutorial.md",
    "docs/episodes.md",
    "docs/simulator.md",
    "docs/strategy.md",
    "docs/contributing.md",
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


def test_the_documentation_builds_without_warnings(tmp_path):
    pytest.importorskip("sphinx", reason="sphinx is missing: pip install --group docs")
    build = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-d", tmp_path / "cache", ROOT / "docs"]
    result = subprocess.run([*build, tmp_path / "site"], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert (tmp_path / "site" / "api.html").is_file()
