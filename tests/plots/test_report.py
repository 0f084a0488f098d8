"""The report: what a browser shows is what the run file holds."""

import dataclasses
import re
import shutil
import sqlite3
import sys
import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest

import rido
from rido.core.digits import to_digits
from rido.evaluation.recorded import read_run
from rido.plots.report import comparison_html, evaluation_html, report_html, write_comparison, write_report
from rido.record.database import RunFileError
from runfiles import edit
from webpages import assert_readable, assert_text_fits, look

HOSTILE = '<script>document.title = "taken"</script> & "quotes"'


class Noise:
    """A simulator with rewards that only its seeds decide."""

    num_envs = 8

    def rollout(self, lengths, seeds):
        rewards = np.stack([np.random.default_rng(seed).normal(1, 2, lengths.max()) for seed in seeds])
        return rido.Trajectories(rewards, lengths)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A finished run, the result that was returned, and its file."""
    path = tmp_path_factory.mktemp("run") / "a.rido"
    result = rido.evaluate(Noise(), budget=2000, gamma=0.9, horizon=30, seed=3, run=path)
    return path, result


@pytest.fixture(scope="module")
def hostile_run(run, tmp_path_factory):
    """The same run with names that are HTML."""
    path = tmp_path_factory.mktemp("hostile") / "a.rido"
    shutil.copy(run[0], path)
    update = "UPDATE header SET value = json_quote(?) WHERE name = ?"
    edit(path, *((update, (HOSTILE, name)) for name in ("environment", "policy")))
    return path


def test_a_run_file_tells_what_evaluate_returned(run):
    path, result = run
    recorded = read_run(path)
    same = ("value", "standard_error", "schedule", "transitions", "trajectories", "strategy", "seed", "environment")
    assert {name: getattr(recorded.evaluation, name) for name in same} == {name: getattr(result, name) for name in same}
    assert recorded.evaluation.uniform_transitions == pytest.approx(result.uniform_transitions)
    assert recorded.estimates[-1].value == result.value and recorded.transitions[-1] == 2000
    assert list(recorded.transitions) == sorted(recorded.transitions) and recorded.weights.shape == (30,)


def test_the_halves_of_an_unbiased_run_are_told_apart(tmp_path):
    def unbiased(**settings):
        return rido.Adaptive(unbiased=True, **settings)

    result = rido.evaluate(
        Noise(), budget=2000, gamma=0.9, horizon=30, seed=3, run=tmp_path / "a.rido", strategy=unbiased
    )
    recorded = read_run(tmp_path / "a.rido").evaluation
    assert recorded.value == result.value and recorded.interval() == result.interval()
    assert recorded.transitions == result.transitions and recorded.trajectories == result.trajectories


@pytest.mark.parametrize(("critic", "budget"), [("policy", 3000), ("fit", 3000), ("auto", 6000)])
def test_runs_with_a_critic_are_told_too(critic, budget, agents_dir, tmp_path):
    agent, path = agents_dir / "ppo" / "Pendulum-v1" / "Pendulum-v1.zip", tmp_path / "a.rido"
    result = rido.evaluate("Pendulum-v1", agent, budget=budget, gamma=0.9, seed=0, critic=critic, run=path)
    recorded = read_run(path)
    told, returned = recorded.evaluation.to_dict(), result.to_dict()
    assert told.pop("counts") == returned.pop("counts")
    assert all(told.pop(name) == returned.pop(name) for name in ("warnings", "remarks"))
    unknown = {"seconds", "planning_seconds", "reset_seconds"}
    assert {name: told[name] for name in told.keys() - unknown} == pytest.approx(
        {name: returned[name] for name in returned.keys() - unknown}
    )
    assert recorded.transitions[-1] == result.transitions and recorded.estimates[-1].value == result.value
    page = report_html(recorded)
    assert (f"critic {result.critic}" in page) == (result.critic != "none")


def test_reading_changes_nothing(run):
    path, _ = run
    before = path.read_bytes()
    read_run(path)
    assert path.read_bytes() == before and list(path.parent.iterdir()) == [path]


def test_files_that_are_no_runs_are_refused(tmp_path):
    text, empty, foreign = tmp_path / "text", tmp_path / "empty", tmp_path / "foreign"
    text.write_text("hello")
    empty.touch()
    with sqlite3.connect(foreign) as database:
        database.execute("CREATE TABLE things (name TEXT)")
    database.close()
    for path in (text, empty, foreign, tmp_path / "missing"):
        with pytest.raises(RunFileError, match=str(path)):
            read_run(path)
    assert empty.read_bytes() == b""


def test_a_run_without_a_finished_round_is_refused(run, tmp_path):
    path = tmp_path / "b.rido"
    shutil.copy(run[0], path)
    edit(path, ("DELETE FROM pieces",))
    with pytest.raises(RunFileError, match="no finished round yet"):
        read_run(path)


def test_a_notebook_shows_the_summary_and_the_schedule(run):
    piece = run[1]._repr_html_()
    assert "95% interval" in piece
    assert drawn_counts(piece) == pytest.approx(run[1].schedule.counts / run[1].schedule.counts[0], abs=1e-3)


def drawn_counts(page):
    """Returns the samples of each step over those of the first, read back from the first picture of a page."""
    svg = ElementTree.fromstring(re.search(r"<svg.*?</svg>", page, re.DOTALL)[0])
    (area,) = (path.get("d") for path in svg.iter("path") if path.get("style", "").startswith("fill: var(--main"))
    corners = np.array([float(number) for number in re.findall(r"[\d.]+", area)]).reshape(-1, 2)
    bottom = corners[0, 1]
    tops, right = bottom - corners[1:-1:2, 1], corners[2:-1:2, 0]
    steps = np.round(np.diff(right, prepend=corners[0, 0]) / (corners[-1, 0] - corners[0, 0]) * 30).astype(int)
    return np.repeat(tops / tops[0], steps)


def test_a_notebook_without_matplotlib_shows_the_summary(run, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    piece = run[1]._repr_html_()
    assert "95% interval" in piece and "<svg" not in piece


def test_the_same_run_gives_the_same_page(run):
    assert report_html(read_run(run[0])) == report_html(read_run(run[0]))


def test_the_report_shows_the_schedule_of_the_run(run):
    counts = run[1].schedule.counts
    assert drawn_counts(report_html(read_run(run[0]))) == pytest.approx(counts / counts[0], abs=1e-3)


def test_a_run_that_tells_little_has_a_page(run):
    recorded = dataclasses.replace(read_run(run[0]), weights=np.zeros(30), transitions=(), estimates=())
    assert report_html(recorded).count("<svg") == 3
    assert report_html(dataclasses.replace(recorded, weights=np.zeros(0))).count("<svg") == 2


def test_long_horizons_give_small_pages(run):
    recorded = read_run(run[0])
    weights = np.random.default_rng(0).normal(size=20_000)
    long = dataclasses.replace(recorded, weights=weights)
    assert len(report_html(long)) < 400_000


def test_names_are_escaped(hostile_run):
    page = report_html(read_run(hostile_run))
    assert "<script" not in page and "&lt;script&gt;" in page
    piece = evaluation_html(read_run(hostile_run).evaluation)
    assert "<script" not in piece and "&lt;script&gt;" in piece
    ElementTree.fromstring(piece.replace("<br>", "<br/>"))  # well-formed


def test_the_page_loads_nothing(run):
    page = report_html(read_run(run[0]))
    assert "http" not in page.replace("http-equiv", "") and "@import" not in page and page.count("<style") == 1
    names = re.findall(r' id="(.*?)"', page)
    assert len(names) == len(set(names))  # else a picture could use a part of another one
    assert set(re.findall(r"url\((.)", page)) == set(re.findall(r'(?:href|src)="([^d])', page)) == {"#"}


@pytest.mark.parametrize("package", ["jinja2", "matplotlib"])
def test_without_a_package_the_message_says_what_to_install(run, monkeypatch, package):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ImportError, match=rf'needs {package}: pip install "rido\[report\]"'):
        report_html(read_run(run[0]))


def show(browser, run_path, folder, *, width=1000, scheme="light"):
    """Opens the report of a run and returns the numbers on the page."""
    write_report(read_run(run_path), folder / "report.html")
    return look(browser, folder / "report.html", width=width, scheme=scheme)


def test_a_browser_shows_the_numbers_of_the_run(browser, run, tmp_path):
    path, result = run
    numbers = show(browser, path, tmp_path)
    low, high = result.interval()
    expected = {"value": result.value, "low": low, "high": high, "error": result.standard_error}
    expected |= {"transitions": 2000, "trajectories": result.trajectories, "uniform": result.uniform_transitions}
    assert {name: float(exact) for name, (exact, _) in numbers.items()} == pytest.approx(expected, rel=1e-12)
    assert tuple(numbers[name][1] for name in ("value", "low", "high")) == to_digits(result.value, low, high)
    for name in ("error", "transitions", "trajectories", "uniform"):
        exact, shown = numbers[name]
        assert float(shown.replace(",", "")) == pytest.approx(float(exact), rel=1e-3)
    pictures = browser.execute_script("""
        return [...document.querySelectorAll('svg')].map(s => [s.ariaLabel, s.getBoundingClientRect().width,
            [...s.querySelectorAll('path[clip-path]')].map(p => p.getTotalLength())])""")
    assert [name for name, _, _ in pictures] == [
        "Samples per time step",
        "Weight of each time step in the variance",
        "Estimate against transitions",
    ]
    assert all(width > 300 and paths and min(paths) > 0 for _, width, paths in pictures)


def test_a_browser_shows_hostile_names_as_text(browser, hostile_run, tmp_path):
    show(browser, hostile_run, tmp_path)
    assert browser.title == f"{HOSTILE} in {HOSTILE}"
    assert browser.execute_script("return document.scripts.length") == 0
    assert browser.execute_script("return document.querySelector('h1').textContent") == f"{HOSTILE} in {HOSTILE}"


@pytest.mark.parametrize("width", [360, 390, 1000])
def test_text_fits_and_nothing_needs_scrolling_sideways(browser, run, tmp_path, width):
    show(browser, run[0], tmp_path, width=width)
    assert_text_fits(browser, width)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_can_be_read_in_light_and_dark(browser, run, tmp_path, scheme):
    show(browser, run[0], tmp_path, scheme=scheme)
    assert_readable(browser, scheme)


@pytest.fixture(scope="module")
def compared():
    """A comparison whose second policy has a name that is HTML, and a long one."""
    policies = {"rido:pendulum": "rido:pendulum", HOSTILE: "random", 3 * "long/": "random"}
    return rido.compare("Pendulum-v1", policies, gamma=0.9, budget=6000, seed=1)


def test_the_page_of_a_comparison_has_its_numbers_and_no_scripts(compared):
    page = comparison_html(compared, f"gate better: pass: {HOSTILE}")
    assert "<script" not in page and page.count("&lt;script&gt;") >= 4  # verdict, table, three pictures
    for name, transitions in compared.eliminated.items():
        assert f"{transitions:,}</td></tr>" in page and f"{compared.values[name].value:.4g}</td>" in page
    early = comparison_html(dataclasses.replace(compared, level=0.0))  # before the first look
    assert "unknown to unknown" in early and 'id="verdict"' not in early


@pytest.mark.parametrize(("width", "scheme"), [(360, "dark"), (1000, "light")])
def test_a_browser_shows_the_page_of_a_comparison(browser, compared, tmp_path, width, scheme):
    write_comparison(compared, tmp_path / "a.html", "gate better: pass")
    numbers = look(browser, tmp_path / "a.html", width=width, scheme=scheme)
    expected = {"transitions": compared.transitions, "budget": 6000, "trajectories": compared.trajectories}
    assert {name: float(exact) for name, (exact, _) in numbers.items()} == expected
    assert browser.execute_script("return document.scripts.length") == 0
    texts = browser.execute_script(
        "return ['#best', '#verdict', 'tbody tr:nth-child(1) th'].map(e => document.querySelector(e).textContent)"
    )
    assert texts == ["rido:pendulum", "gate better: pass", "rido:pendulum"]
    names = browser.execute_script("return [...document.querySelectorAll('tbody th')].map(e => e.textContent)")
    assert names == list(compared.ranking) and HOSTILE in names
    assert_text_fits(browser, width, texts_at_least=6)
    assert_readable(browser, scheme)
