"""``rido suite``: a file in, a folder with a leaderboard out."""

import json

import pytest
from typer.testing import CliRunner

from rido.cli import app

SUITE = """
budget = 3000
[tasks.earth]
env = "Pendulum-v1"
gamma = 0.9
horizon = 30
[tasks.moon]
env = "Pendulum-v1"
gamma = 0.9
horizon = 20
env_kwargs = { g = 1.62 }
[policies]
agent = "rido:pendulum"
random = "random"
"""


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "pendulums.toml"
    path.write_text(SUITE)
    return path


def run(*arguments):
    return CliRunner().invoke(app, ["suite", *map(str, arguments)])


def test_a_suite_is_run_and_resumed(file, tmp_path):
    first = run(file)
    assert first.exit_code == 0 and "pairs is significant at 95% confidence" in first.output
    folder = tmp_path / "pendulums"
    page = (folder / "leaderboard.html").read_bytes()
    assert {path.name for path in folder.iterdir()} == {
        "leaderboard.html",
        "leaderboard.md",
        "leaderboard.csv",
        "runs",
        "trajectories",
    }
    again = run(file, "--json")
    told = json.loads(again.stdout)
    assert told["ranking"][0] == "agent" and told["page"] == str(folder / "leaderboard.html")
    assert (folder / "leaderboard.html").read_bytes() == page


def test_help_says_that_a_file_can_name_code():
    assert "runs Python code" in " ".join(run("--help").output.replace("│", " ").split())


def test_errors_are_one_line(file, tmp_path):
    file.write_text(SUITE.replace("0.9", "1.9"))
    found = run(file, "--no-page", "-o", tmp_path / "out")
    assert (
        found.exit_code == 1
        and found.output.startswith("rido: task earth: gamma must be")
        and not (tmp_path / "out").exists()
    )
