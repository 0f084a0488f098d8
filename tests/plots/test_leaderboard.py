"""The leaderboard: a page, Markdown and CSV with the numbers of the suite; a browser shows and sorts them."""

import csv
import io
import re

import numpy as np
import pytest

import rido
import rido.envs
from helpers import needs
from rido import Task, Trajectories
from rido.plots.leaderboard import (
    leaderboard_csv,
    leaderboard_markdown,
    plot_scores,
    write_leaderboard,
)
from rido.suite.race import SuiteRace
from webpages import assert_readable, assert_text_fits, look, requests_of

needs("jinja2", "report")
needs("matplotlib", "report").use("Agg")

HOSTILE = "<script>alert(1)</script>"


@pytest.fixture(scope="module")
def board():
    """Four policies in two tasks; two of them and a task have names that are markup or long."""
    tasks = {
        HOSTILE: Task(HOSTILE, 0.9, 8, reference=(0.0, 10.0)),
        "b | c": Task("b", 1.0, 4, weight=2.0, reference=(0.0, 1.0)),
    }
    gains = {"step_9": 0.0, HOSTILE: 1.0, "step_10": 1.1, "checkpoints/of a long * name/" * 2: -1.0}
    race, rng = SuiteRace(tasks, list(gains), budget=2000), np.random.default_rng(0)
    while (asked := race.ask()) is not None:
        race.tell(
            {
                task: {
                    name: Trajectories(rng.normal(gains[name], 1, (one.lengths.size, tasks[task].steps)), one.lengths)
                    for name, one in requests.items()
                }
                for task, requests in asked.items()
            }
        )
    return race.result()


@pytest.fixture(scope="module")
def folder(board, tmp_path_factory):
    place = tmp_path_factory.mktemp("board") / "suite"
    assert write_leaderboard(board, place) == place / "leaderboard.html"
    return place


def test_the_page_is_one_file_whose_names_are_text(folder):
    page = (folder / "leaderboard.html").read_text()
    assert page.count("<script") == 1 and page.count("&lt;script&gt;") >= 6
    assert "http" not in page.replace("http-equiv", "") and "@import" not in page and "src=" not in page
    names = re.findall(r' id="(.*?)"', page)
    assert len(names) == len(set(names))


def test_every_run_has_a_report(board, folder):
    links = re.findall(r'<a href="(.*?)">', (folder / "leaderboard.html").read_text())
    assert len(links) == len(set(links)) == 8
    for link in links:
        assert "<script" not in (folder / link).read_text()
    assert f"{board.value('step_9', 'b | c').value}" in "".join((folder / link).read_text() for link in links)


@pytest.mark.parametrize("name", ["=1+1", "+1", "-1", "@SUM(A1)", "plain"])
def test_names_in_the_csv_are_no_formulas(name):
    tasks = {name: rido.Task("Pendulum-v1", gamma=0.9, horizon=5)}  # its rewards are negative
    board = rido.Suite(tasks, {name: "rido:pendulum", "other": "random"}, budget=60).run(progress=False)
    shown = name if name == "plain" else f"'{name}"
    rows = list(csv.reader(io.StringIO(leaderboard_csv(board))))[1:]
    assert {cell for row in rows for cell in row[:2]} == {shown, "other", ""}
    assert any(float(cell) < 0 for row in rows for cell in row[2:] if cell)  # numbers stay numbers


def test_the_csv_has_all_numbers(board):
    rows = list(csv.DictReader(io.StringIO(leaderboard_csv(board))))
    assert len(rows) == 4 * 3
    for row in rows:
        if row["task"]:
            value = board.value(row["policy"], row["task"])
            assert float(row["value"]) == value.value
            assert (float(row["interval_low"]), float(row["interval_high"])) == value.interval(0.95)
        else:
            assert float(row["score"]) == board.scores[row["policy"]].value
            assert (float(row["interval_low"]), float(row["interval_high"])) == board.interval(row["policy"])
    assert sum(int(row["transitions"]) for row in rows if row["task"]) == board.transitions


def test_markdown_has_a_row_for_each_policy_and_no_markup_of_names(board):
    text = leaderboard_markdown(board)
    rows = [line for line in text.splitlines() if line.startswith("|")]
    assert len(rows) == 2 + 4 and all(len(re.findall(r"(?<!\\)\|", row)) == 7 for row in rows)
    assert r"\<script\>alert(1)\</script\>" in text and "<script>" not in text
    assert board.ranking[0].replace("_", r"\_") in rows[2]


def test_the_picture_has_the_scores(board):
    ax = plot_scores(board)
    found = [(line.get_xdata()[0], *bar.get_segments()[0][:, 0]) for line, _, (bar,) in ax.containers]
    for (value, low, high), name in zip(found, board.ranking, strict=True):
        assert value == board.scores[name].value and (low, high) == pytest.approx(board.interval(name))


@pytest.mark.parametrize(("width", "scheme"), [(360, "dark"), (700, "light"), (1200, "light")])
def test_a_browser_shows_the_leaderboard(browser, board, folder, width, scheme):
    browser.get_log("performance")
    numbers = look(browser, folder / "leaderboard.html", width=width, scheme=scheme)
    assert {name: float(exact) for name, (exact, _) in numbers.items()} == {
        "transitions": board.transitions,
        "budget": 2000,
    }
    assert requests_of(browser, "file:") <= {(folder / "leaderboard.html").as_uri(), "data:,"}
    shown = browser.execute_script(
        "return [...document.querySelectorAll('#scores tbody tr')]"
        ".map(r => [r.cells[0].textContent, r.cells[1].dataset.value])"
    )
    assert [name for name, _ in shown] == list(board.ranking) and HOSTILE in board.ranking
    assert [float(value) for _, value in shown] == [board.scores[name].value for name in board.ranking]
    sure = browser.execute_script("return document.querySelectorAll('#pairs td.sure').length")
    assert sure == len(board.sure) > 0
    assert_text_fits(browser, width, texts_at_least=6)
    assert_readable(browser, scheme)


def test_a_click_sorts(browser, board, folder):
    look(browser, folder / "leaderboard.html")

    def click(column):
        browser.execute_script(f"document.querySelectorAll('#scores thead button')[{column}].click()")
        return browser.execute_script(
            "return [...document.querySelectorAll('#scores tbody th')].map(e => e.textContent)"
        )

    by_name = click(0)
    assert by_name.index("step_9") < by_name.index("step_10")  # numbers as numbers
    assert click(0) == by_name[::-1]
    spent = {name: sum(rewards.transitions_of(name) for rewards in board.rewards.values()) for name in board.ranking}
    assert [spent[name] for name in click(6)] == sorted(spent.values(), reverse=True)
    assert [spent[name] for name in click(6)] == sorted(spent.values())
    assert click(1) == list(board.ranking)


def test_the_page_prints_whole(browser, folder):
    look(browser, folder / "leaderboard.html", width=720)
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    cut = browser.execute_script(
        "return [...document.querySelectorAll('.wide')].filter(e => e.scrollWidth > e.clientWidth"
        " || getComputedStyle(e).overflowX != 'visible').length"
    )
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})
    assert cut == 0
