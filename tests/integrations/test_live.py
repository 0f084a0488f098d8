"""LiveRun: what files tell while they grow is what the run returns in the end."""

import json
import time
from functools import partial

import numpy as np
import pytest

import rido
from environments import Mortal
from interrupted import act, always, never
from rido.core.digits import with_interval
from rido.evaluation.recorded import read_run
from rido.integrations import watch
from rido.integrations.watch import LiveRun
from rido.record.header import WORKERS
from rido.record.runfile import RunFile
from runfiles import edit

ENV = partial(Mortal, death=0.05)


@pytest.fixture(autouse=True)
def without_leisure(monkeypatch):
    """Files are read whenever they are asked for, however long that takes."""
    monkeypatch.setattr(watch, "_LEISURE", 0.0)


SETTINGS = dict(gamma=0.95, horizon=20, budget=4000, seed=3)


def test_an_evaluation_is_followed_to_its_end(tmp_path, monkeypatch):
    path = tmp_path / "a.rido"
    run, seen, append = LiveRun(path), [None], RunFile.append

    def look():
        if (state := run.state()) is not seen[-1]:
            json.dumps(state, allow_nan=False)
            seen.append(state)
        return state

    assert look()["kind"] == "waiting"
    monkeypatch.setattr(RunFile, "append", lambda *row: (append(*row), look())[0])
    result = rido.evaluate(ENV, act, **SETTINGS, num_envs=2, run=path)
    state = look()
    taken = [one["transitions"] for one in seen[2:]]
    assert len(taken) > 5 and taken == sorted(taken)
    assert state["transitions"] == result.transitions
    assert state["trajectories"] == result.trajectories and state["counts"] == result.schedule.counts.tolist()
    assert state["value"] == with_interval(result.value, *result.interval())
    assert state["rounds"][-1] == pytest.approx([state["transitions"], result.value, *result.interval()])
    assert state["budget"] == 4000 and 0 <= state["forecast"] < 0.01 * state["seconds"]  # under a trajectory is left
    assert state["title"] == f"{result.policy} in {result.environment}"


def test_workers_alive_are_told_and_change_no_number(tmp_path, monkeypatch):
    path, seen, append, began = tmp_path / "a.rido", [], RunFile.append, time.time()
    run = LiveRun(path)
    monkeypatch.setattr(RunFile, "append", lambda *row: (append(*row), seen.append(run.state()))[0])
    result = rido.evaluate(ENV, act, **SETTINGS, num_envs=2, workers=2, run=path)
    assert {state["workers"] for state in seen} <= {(1, 2), (2, 2)}  # the second one may get ready too late
    assert all(began < state["written"] < time.time() and state["patience"] >= 5 for state in seen)
    assert run.state()["workers"] == (0, 2)
    assert read_run(path).evaluation.value == result.value
    again = rido.evaluate(ENV, act, **SETTINGS, run=path)
    assert again.value == result.value == rido.evaluate(ENV, act, **SETTINGS).value
    assert run.state()["workers"] == (0, 2)  # nothing was left to do


def test_files_that_do_not_tell_of_workers_are_followed(tmp_path):
    path = tmp_path / "a.rido"
    rido.evaluate(ENV, act, **SETTINGS, run=path)
    assert LiveRun(path).state()["workers"] == (0, 1)
    edit(path, ("DELETE FROM state WHERE name = ?", (WORKERS,)))
    state = LiveRun(path).state()
    assert state["workers"] is state["written"] is None and state["value"]


def test_reading_changes_nothing_and_reads_once(tmp_path):
    path = tmp_path / "a.rido"
    rido.evaluate(ENV, act, **SETTINGS, run=path)
    before, run = path.read_bytes(), LiveRun(path)
    assert run.state() is run.state()
    assert path.read_bytes() == before and [file.name for file in tmp_path.iterdir()] == ["a.rido"]


def test_a_comparison_is_followed(tmp_path):
    found = rido.compare(ENV, [never, act, always], **SETTINGS, run=tmp_path / "a.rido")
    state = LiveRun(tmp_path / "a.rido").state()
    assert state["kind"] == "comparison" and [row[0] for row in state["rows"]] == list(found.ranking)
    assert state["rows"][0][1] == with_interval(found.values[found.ranking[0]].value, *found.interval(found.ranking[0]))
    assert state["transitions"] == found.transitions and state["value"] == found.summary().splitlines()[0]
    assert state["workers"] == (0, 1)


def test_the_folder_of_a_suite_is_followed(tmp_path):
    tasks = {"short": rido.Task(ENV, gamma=0.9, horizon=10)}
    run = LiveRun(tmp_path)
    assert run.state()["kind"] == "waiting"
    board = rido.Suite(tasks, {"never": never, "act": act}, budget=1000).run(tmp_path / "trajectories")
    state = run.state()
    assert state["kind"] == "suite" and state["transitions"] == board.transitions and state["workers"] == (0, 1)
    assert [row[:2] for row in state["rows"]] == [["short", "act"], ["short", "never"]]
    rido.Suite(tasks, {"never": never, "act": act, "always": always}, budget=1000).run(tmp_path / "trajectories")
    state = run.state()
    assert [row[1] for row in state["rows"]] == ["act", "always", "never"]


def test_a_damaged_file_is_said_and_others_are_no_runs(tmp_path):
    (tmp_path / "a.rido").write_bytes(np.random.default_rng(0).bytes(500))
    state = LiveRun(tmp_path / "a.rido").state()
    assert state["kind"] == "waiting" and "is not a database" in state["problem"]
