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
from rido.evaluation.live import LiveRun
from rido.storage.runfile import RunFile

ENV = partial(Mortal, death=0.05)
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
    monkeypatch.setattr(RunFile, "append", lambda file, piece: (append(file, piece), look())[0])
    result = rido.evaluate(ENV, act, **SETTINGS, num_envs=2, run=path)
    state = look()
    run.close()
    taken = [one["transitions"] for one in seen[2:]]
    assert len(taken) > 5 and taken == sorted(taken) and state["transitions"] == result.transitions
    assert state["trajectories"] == result.trajectories and state["counts"] == result.schedule.counts.tolist()
    assert state["value"] == with_interval(result.value, *result.interval())
    assert state["rounds"][-1] == pytest.approx([result.transitions, result.value, *result.interval()])
    assert state["budget"] == 4000 and state["forecast"] == 0
    assert state["title"] == f"{result.policy} in {result.environment}"


def test_reading_changes_nothing_and_reads_once(tmp_path):
    path = tmp_path / "a.rido"
    rido.evaluate(ENV, act, **SETTINGS, run=path)
    before, run = path.read_bytes(), LiveRun(path)
    assert run.state() is run.state()
    with pytest.raises(Exception, match="readonly"):
        next(iter(run._followers.values()))._database.execute("DELETE FROM pieces")
    run.close()
    assert path.read_bytes() == before and [file.name for file in tmp_path.iterdir()] == ["a.rido"]


def test_a_comparison_is_followed(tmp_path):
    found = rido.compare(ENV, [never, act, always], **SETTINGS, run=tmp_path / "a.rido")
    state = LiveRun(tmp_path / "a.rido").state()
    assert state["kind"] == "comparison" and [row[0] for row in state["rows"]] == list(found.ranking)
    assert state["rows"][0][1] == with_interval(found.values[found.ranking[0]].value, *found.interval(found.ranking[0]))
    assert state["transitions"] == found.transitions and state["value"] == found.summary().splitlines()[0]


def test_the_folder_of_a_suite_is_followed(tmp_path):
    tasks = {"short": rido.Task(ENV, gamma=0.9, horizon=10)}
    run = LiveRun(tmp_path)
    assert run.state()["kind"] == "waiting"
    board = rido.Suite(tasks, {"never": never, "act": act}, budget=1000).run(tmp_path / "trajectories")
    state = run.state()
    assert state["kind"] == "suite" and state["transitions"] == board.transitions
    assert [row[:2] for row in state["rows"]] == [["short", "act"], ["short", "never"]]
    first = state
    rido.Suite(tasks, {"never": never, "act": act, "always": always}, budget=1000).run(tmp_path / "trajectories")
    deadline = time.monotonic() + 10
    while (state := run.state()) is first and time.monotonic() < deadline:
        time.sleep(0.05)
    assert [row[1] for row in state["rows"]] == ["act", "always", "never"]


def test_a_damaged_file_is_said_and_others_are_no_runs(tmp_path):
    (tmp_path / "a.rido").write_bytes(np.random.default_rng(0).bytes(500))
    state = LiveRun(tmp_path / "a.rido").state()
    assert state["kind"] == "waiting" and "is not a database" in state["problem"]
