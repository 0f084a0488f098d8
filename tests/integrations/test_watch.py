"""The live page in a real browser, while a run goes on."""

import json
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from contextlib import contextmanager
from functools import partial

import pytest

import rido
from environments import Mortal
from interrupted import act, endless_run, never, start
from rido.core.digits import with_interval
from runfiles import edit
from webpages import assert_text_fits, look_at, requests_of

for package in ("starlette", "uvicorn", "jinja2"):
    pytest.importorskip(package, reason=f'{package} is missing: pip install "rido[watch]"')

HOSTILE = "<script>alert(1)</script>"


@contextmanager
def watched(browser, path):
    """The address of the live page of a run, served by the command in a process of its own."""
    command = [sys.executable, "-m", "rido", "watch", str(path), "--port", "0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        yield process.stdout.readline().rpartition(" ")[2].strip()
    finally:
        browser.get("about:blank")  # else it goes on asking the server
        browser.get_log("browser")
        process.terminate()
        assert process.wait(300) == 130  # interrupted


def wait_for(browser, script, expected, seconds=300):
    deadline = time.monotonic() + seconds
    while (found := browser.execute_script(f"return {script}")) != expected and time.monotonic() < deadline:
        time.sleep(0.1)
    assert found == expected


def test_a_browser_follows_a_run(browser, tmp_path):
    path, seen, results = tmp_path / "a.rido", set(), []

    class Followed(Mortal):
        """Takes its time until the browser has shown three states of the run."""

        def step(self, action):
            if len(seen - {""}) < 3:
                time.sleep(1e-3)
            return super().step(action)

    running = threading.Thread(
        target=lambda: results.append(
            rido.evaluate(Followed, act, gamma=0.95, horizon=20, budget=40_000, seed=3, num_envs=2, run=path)
        )
    )
    with watched(browser, path) as address:
        assert address.startswith("http://127.0.0.1:")
        browser.get_log("performance")
        look_at(browser, address, width=700)
        wait_for(browser, "document.querySelector('#value').textContent", "waiting for the file")
        running.start()
        while running.is_alive():
            seen.add(browser.execute_script("return document.querySelector('#transitions').dataset.value"))
            time.sleep(0.1)
        running.join()
        (result,) = results
        wait_for(browser, "document.querySelector('#transitions').dataset.value", str(result.transitions))
        shown = with_interval(result.value, *result.interval())
        wait_for(browser, "document.querySelector('#value').textContent", shown)
        assert len(seen - {""}) >= 3  # it moved while the run went on
        assert_text_fits(browser, 700, texts_at_least=4)
        assert all(url.startswith((address, "data:")) for url in requests_of(browser, "http:"))
        assert browser.get_log("browser") == []


def test_a_browser_shows_workers_until_the_run_is_killed(browser, tmp_path):
    path = tmp_path / "a.rido"
    running, shown = start(endless_run, path), "document.querySelector('#workers').textContent"
    try:
        with watched(browser, path) as address:
            look_at(browser, address, width=360)
            wait_for(browser, shown, "2 of 2")
            running.kill()
            running.join()
            silent = "unknown: nothing has been written for"
            wait_for(browser, f"{shown}.startsWith({silent!r})", True)
            look_at(browser, address, width=360)  # a page that is opened later knows it too
            wait_for(browser, f"{shown}.startsWith({silent!r})", True)
            texts = "['#workers', '#when'].map(name => document.querySelector(name).textContent.match(/\\d+/)[0])"
            workers, when = browser.execute_script(f"return {texts}")
            assert workers == when and int(when) >= 5
            assert browser.execute_script("return document.documentElement.scrollWidth") <= 360
    finally:
        running.kill()


@pytest.mark.parametrize(("width", "scheme"), [(360, "dark"), (1000, "light")])
def test_hostile_names_are_text_and_nothing_can_be_written(browser, tmp_path, width, scheme):
    path = tmp_path / "a.rido"
    settings = dict(gamma=0.95, horizon=20, budget=1000, seed=3, run=path)
    result = rido.evaluate(partial(Mortal, death=0.05), act, **settings)
    update = "UPDATE header SET value = json_quote(?) WHERE name = ?"
    edit(path, *((update, (HOSTILE, name)) for name in ("environment", "policy")))
    before = path.read_bytes()
    with watched(browser, path) as address:
        look_at(browser, address, width=width, scheme=scheme)
        wait_for(browser, "document.title", f"{HOSTILE} in {HOSTILE}")
        assert browser.execute_script("return document.querySelector('h1').textContent") == f"{HOSTILE} in {HOSTILE}"
        assert browser.execute_script("return document.scripts.length") == 1
        assert_text_fits(browser, width, texts_at_least=4)
        for changes, code in ((dict(method="POST"), 405), (dict(headers={"Host": "evil.example"}), 400)):
            with pytest.raises(urllib.error.HTTPError) as error:
                urllib.request.urlopen(urllib.request.Request(address, **changes), timeout=300)
            assert error.value.code == code
        with urllib.request.urlopen(f"{address}events", timeout=300) as events:
            assert json.loads(events.readline().removeprefix(b"data: "))["transitions"] == result.transitions
    assert path.read_bytes() == before


def test_a_browser_shows_the_runs_of_a_suite(browser, tmp_path):
    tasks = {HOSTILE: rido.Task(partial(Mortal, death=0.05), gamma=0.9, horizon=10)}
    board = rido.Suite(tasks, {"act": act, HOSTILE: never}, budget=400).run(tmp_path / "trajectories")
    with watched(browser, tmp_path) as address:
        look_at(browser, address, width=360)
        wait_for(browser, "document.querySelector('#transitions').dataset.value", str(board.transitions))
        rows = "[...document.querySelectorAll('tbody tr')].map(r => [...r.cells].slice(0, 2).map(c => c.textContent))"
        assert browser.execute_script(f"return {rows}") == [[HOSTILE, HOSTILE], [HOSTILE, "act"]]
        hidden = "['budget', 'forecast'].map(name => document.getElementById(name).checkVisibility())"
        assert browser.execute_script(f"return {hidden}") == [False, False]
        assert browser.execute_script("return document.documentElement.scrollWidth") <= 360
