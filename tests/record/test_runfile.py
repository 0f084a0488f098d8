"""Run files: recognised before they are touched, checked when they are read, and resumable after every failure."""

import importlib.util
import os
import shutil
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from functools import partial
from pathlib import Path
from random import Random

import numpy as np
import pytest
from typer.testing import CliRunner

import rido
from rido.cli import app
from rido.evaluation import source
from rido.evaluation.recorded import read_run
from rido.record import database
from rido.record.database import RunFileError
from rido.record.header import WORKERS, Piece
from rido.record.runfile import RunFile
from runfiles import reopen


def load_attacks():
    path = Path(__file__).parents[2] / "benchmarks" / "faults" / "storage.py"
    specification = importlib.util.spec_from_file_location("storage_attacks", path)
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


attacks = load_attacks()
KINDS = {
    **attacks.KINDS,
    "uniform": partial(attacks.KINDS["adaptive"], strategy="uniform"),
    "robust": partial(attacks.KINDS["adaptive"], strategy="robust"),
    "rido": partial(attacks.KINDS["adaptive"], strategy="rido"),
    "unbiased": partial(attacks.KINDS["adaptive"], strategy=rido.Adaptive(unbiased=True)),
    "until": partial(attacks.KINDS["adaptive"], until=0.01),
    "function": partial(attacks.KINDS["fit"], critic=lambda observations, steps_to_go: 5 * observations[:, 0]),
    "reset cost": partial(attacks.KINDS["fit"], reset_cost=2.0),
    "auto": partial(attacks.KINDS["fit"], critic="auto", reset_cost=2.0),
}


def strategy_of(**settings):
    return rido.Oracle(weights=np.linspace(2, 1, settings.pop("horizon")), **settings)


KINDS["oracle"] = partial(attacks.KINDS["adaptive"], strategy=strategy_of)


@pytest.fixture
def quick(monkeypatch):
    """Many pieces, and no long waits for locks."""
    monkeypatch.setattr(source, "_PIECE_SECONDS", 1e-4)
    monkeypatch.setattr(database, "_PATIENCE", 0.1)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """The path of a finished run in many pieces."""
    path = tmp_path_factory.mktemp("finished") / "run.rido"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(source, "_PIECE_SECONDS", 1e-4)
        KINDS["adaptive"](run=path)
    return path


@pytest.fixture
def run(finished, tmp_path, quick):
    """A copy of the finished run, for one test."""
    return Path(shutil.copy(finished, tmp_path))


def files(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


# Reports


@pytest.mark.parametrize("kind", KINDS)
def test_a_report_says_what_the_run_said_from_the_trajectories_alone(kind, tmp_path, quick):
    path = tmp_path / "run.rido"
    result = attacks.numbers(KINDS[kind](run=path))
    told = read_run(path)
    assert attacks.numbers(told.evaluation) == result
    assert told.estimates[-1] == told.evaluation.estimate


class Cutting(rido.Uniform):
    """A user's own strategy: half of its trajectories are cut."""

    def _plan(self, left):
        return None if self.spent else rido.Schedule(np.repeat([20, 10], self.horizon // 2))


def test_trajectories_that_a_strategy_of_the_users_own_cut_are_told_with_a_warning(tmp_path):
    path = tmp_path / "run.rido"
    result = rido.evaluate(
        attacks.Noise(), budget=800, strategy=lambda **known: Cutting(**known), run=path, **attacks.SETTINGS
    )
    told = read_run(path).evaluation
    assert (told.value, told.standard_error, told.schedule) == (result.value, result.standard_error, result.schedule)
    assert "a strategy of your own planned this run" in told.warnings[0] and not result.warnings
    assert told.strategy == result.strategy == "cutting"


def test_a_run_that_is_planned_otherwise_today_is_read_with_a_warning(run, monkeypatch):
    """As after a change of the planner: the same trajectories, told together."""
    before = read_run(run).evaluation
    monkeypatch.setattr(rido.Adaptive, "_pilot_size", lambda self: 3)
    found = read_run(run).evaluation
    assert "another version of rido" in found.warnings[0] and not any("another" in one for one in before.warnings)
    assert (found.transitions, found.trajectories, found.schedule) == (
        before.transitions,
        before.trajectories,
        before.schedule,
    )
    assert abs(found.value - before.value) < before.standard_error
    with pytest.raises(RunFileError, match="planned otherwise"):
        KINDS["adaptive"](run=run)


def test_the_warning_of_a_width_that_was_not_reached_is_in_the_report(tmp_path):
    KINDS["until"](run=tmp_path / "run.rido")
    assert any("farther than until=0.01" in warning for warning in read_run(tmp_path / "run.rido").evaluation.warnings)


def test_damaged_files_are_refused_or_say_the_same():
    """A mutant without checksums gives 12 wrong numbers and 4 tracebacks in 200 files."""
    counts = attacks.run(150, seed=5)
    assert counts["wrong numbers"] == counts["tracebacks"] == 0
    assert counts["refused"] > 40 and counts["same numbers"] > 40  # much of a file is unused


@pytest.mark.parametrize(
    ("statement", "where"),
    [
        ("UPDATE pieces SET seconds = seconds + 1 WHERE number = 1", "piece 1"),
        ("UPDATE pieces SET round = 1 WHERE number = 0", "piece 0"),
        ("UPDATE header SET name = 'Gamma' WHERE name = 'gamma'", "setting"),
        ("UPDATE header SET value = '0.8' WHERE name = 'gamma'", "setting"),
        ("UPDATE state SET value = '[1, 2, 3]' WHERE name = 'workers'", "state"),
        ("UPDATE decisions SET value = '5' WHERE name = 'rehearsed'", "decision 0"),
        ("DELETE FROM pieces WHERE number = 0", "piece 0"),
        ("DELETE FROM header WHERE name = 'seed'", "setting 'seed'"),
        ("DROP TABLE decisions", "its list of tables"),
        ("CREATE TABLE more (name TEXT)", "its list of tables"),
    ],
)
def test_every_row_is_protected(run, statement, where):
    with closing(sqlite3.connect(run)) as file, file:
        file.execute(statement)
    for use in (read_run, lambda path: KINDS["adaptive"](run=path)):
        with pytest.raises(RunFileError, match=f"is damaged at {where}.*; restore a copy of it, or delete it"):
            use(run)


def test_a_file_that_lacks_its_last_pieces_is_an_earlier_moment_of_the_run(run):
    """As one that was put back from a backup."""
    clean = read_run(run)
    with closing(sqlite3.connect(run)) as file, file:
        file.execute("DELETE FROM pieces WHERE number > 3")
    earlier = read_run(run)
    assert earlier.estimates == clean.estimates[: len(earlier.estimates)] != clean.estimates
    assert KINDS["adaptive"](run=run).value == clean.evaluation.value


# Recognising


@pytest.mark.parametrize("mode", ["DELETE", "WAL"])
def test_files_of_others_are_not_touched(mode, tmp_path):
    path = tmp_path / "photos.db"
    with closing(sqlite3.connect(path)) as photos:
        photos.execute(f"PRAGMA journal_mode = {mode}")
        photos.execute("CREATE TABLE photos (name TEXT)")
        photos.execute("CREATE TABLE configuration (name TEXT, value TEXT)")
    before = files(tmp_path)
    for use in (read_run, lambda path: KINDS["adaptive"](run=path)):
        with pytest.raises(RunFileError, match="is an SQLite file, but no run file of rido; it was not changed"):
            use(path)
        assert files(tmp_path) == before


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (":memory:", "a run is recorded in a file on disk"),
        ("folder", "it is a folder"),
        ("pipe", "it is a pipe, a socket or a device"),
        ("/dev/null", "it is a pipe, a socket or a device"),
        ("text", "file is not a database"),
        ("text/run.rido", "Not a directory"),
        ("n" * 300, "File name too long"),
    ],
)
def test_what_cannot_be_a_run_file_is_refused_in_one_line(name, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("folder").mkdir()
    os.mkfifo("pipe")
    Path("text").write_text("hello")
    before = sorted(path.name for path in tmp_path.iterdir())
    for use in (read_run, lambda path: KINDS["adaptive"](run=path)):
        with pytest.raises(RunFileError, match=f"cannot be used: .*{message}"):
            use(name)
    assert sorted(path.name for path in tmp_path.iterdir()) == before


def test_a_null_character_is_refused_in_one_line():
    with pytest.raises(RunFileError, match=r"cannot be used: .*null"):
        read_run("a\0b")
    with pytest.raises(ValueError, match=r"^run must be a path, got 'a\\x00b'$"):
        KINDS["adaptive"](run="a\0b")


def test_the_command_line_says_it_in_one_line(run, tmp_path):
    (tmp_path / "folder").mkdir()
    evaluate = [
        "evaluate",
        "rido/LQG-v0",
        "--budget",
        "500",
        "--gamma",
        "0.9",
        "--horizon",
        "20",
        "--seed",
        "1",
        "--run",
    ]
    for command in ([*evaluate, tmp_path / "folder"], ["report", tmp_path / "folder"], [*evaluate, run]):
        shown = CliRunner().invoke(app, [str(part) for part in command])
        assert shown.exit_code == 1 and isinstance(shown.exception, SystemExit)
        assert shown.stderr.startswith("rido: run file") and shown.stderr.count("\n") == 1 and not shown.stdout


def set_version(path, version, application=database.APPLICATION_ID):
    with closing(sqlite3.connect(path)) as file:
        file.execute(f"PRAGMA user_version = {version}")
        file.execute(f"PRAGMA application_id = {application}")


def test_older_files_are_upgraded_step_by_step(run, monkeypatch):
    result, steps = read_run(run).evaluation, []
    monkeypatch.setattr(database, "FORMAT", 7)
    monkeypatch.setattr(database, "_UPGRADES", {5: lambda file: steps.append(5), 6: lambda file: steps.append(6)})
    before = files(run.parent)
    assert read_run(run).evaluation.value == result.value
    assert steps == [5, 6] and files(run.parent) == before  # reading upgrades a copy
    steps.clear()
    assert KINDS["adaptive"](run=run).value == result.value
    assert steps == [5, 6, 5, 6] and run.read_bytes()[60:64] == (7).to_bytes(4)  # its goals are read first
    assert KINDS["adaptive"](run=run).value == result.value and len(steps) == 4


def test_an_upgrade_that_fails_changes_nothing(run, monkeypatch):
    def fail(file):
        file.execute("DROP TABLE state")
        file.execute("SELECT * FROM missing")

    monkeypatch.setattr(database, "FORMAT", 6)
    monkeypatch.setattr(database, "_UPGRADES", {5: fail})
    before = run.read_bytes()
    with pytest.raises(RunFileError, match="no such table: missing"):
        KINDS["adaptive"](run=run)
    assert run.read_bytes() == before


@pytest.mark.parametrize(("version", "message"), [(6, "format 6 of a later rido.*: update rido"), (2, "is unknown")])
def test_versions_that_are_not_known_are_refused(run, version, message):
    set_version(run, version)
    before = files(run.parent)
    for use in (read_run, lambda path: KINDS["adaptive"](run=path)):
        with pytest.raises(RunFileError, match=message):
            use(run)
    assert files(run.parent) == before


def test_files_of_format_3_are_refused_as_such(tmp_path):
    path = tmp_path / "old.rido"
    with closing(sqlite3.connect(path)) as old, old:
        old.execute("CREATE TABLE configuration (name TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT")
        old.execute("INSERT INTO configuration VALUES ('format', '3')")
    before = files(tmp_path)
    for use in (read_run, lambda path: KINDS["adaptive"](run=path)):
        with pytest.raises(RunFileError, match=r"it has format 3 of an earlier rido.*; give another file name"):
            use(path)
    assert files(tmp_path) == before


# Errors


@pytest.mark.parametrize("cause", attacks.CAUSES)
def test_a_run_that_could_not_write_resumes(cause, run, tmp_path):
    clean = attacks.numbers(read_run(run).evaluation)
    tmp_path.chmod(0o755)
    for folder in tmp_path.parents[:2]:
        if os.getuid() == 0:
            folder.chmod(0o755)  # for the user without rights
    for seed in range(2):
        place = tmp_path / f"place{seed}"
        place.mkdir()
        found = list(attacks.CAUSES[cause](place, Random(seed), clean))
        assert found == ["failed in one line", "resumed after a failure"]


def test_a_replaced_file_is_noticed(run, tmp_path):
    copy = tmp_path / "copy"
    shutil.copy(run, copy)
    with reopen(run) as file:
        copy.replace(run)
        with pytest.raises(RunFileError, match="was deleted, moved or replaced while the run was going on"):
            file.set("name", 1)


def test_a_piece_and_the_workers_alive_are_one_transaction(run):
    piece, statements, began = Piece(0, rido.Trajectories([[1.0]], [1]), 0.0), [], time.time()
    with reopen(run) as file:
        file._database.set_trace_callback(statements.append)
        file.append(piece, (2, 3))
        file.append_resets(7, np.zeros(2), 0.0, (2, 3))
        assert [one for one in statements if one.startswith(("BEGIN", "COMMIT"))] == ["BEGIN IMMEDIATE", "COMMIT"] * 2
        with RunFile.read(run) as told:
            assert told.state(WORKERS, None)[:2] == [2, 3]
    with reopen(run) as file:
        *workers, written = file.state(WORKERS, None)
    assert workers == [0, 3] and began <= written <= time.time()  # all were closed


def test_two_processes_do_not_write_into_one_file(run):
    piece = Piece(0, rido.Trajectories([[1.0]], [1]), 0.0)
    with reopen(run) as first, reopen(run) as second:
        first.append(piece)
        with pytest.raises(RunFileError, match="is being written by another process"):
            second.append(piece)


def test_a_run_can_be_read_where_nothing_can_be_written(run, tmp_path):
    """By a user without rights, in a folder that is read-only: nothing is left behind."""
    value = read_run(run).evaluation.value
    for folder in tmp_path.parents:
        if folder.name.startswith(("pytest-", "popen-")):  # what pytest made for itself
            folder.chmod(0o755)
    tmp_path.chmod(0o555)
    run.chmod(0o444)
    drop = f"os.setuid({attacks.NOBODY});" if os.getuid() == 0 else ""
    read = "read_run(sys.argv[1]).evaluation.value"  # the first time for what is imported late
    code = f"import os, sys; from rido.evaluation.recorded import read_run; {read}; {drop} print(repr({read}))"
    shown = subprocess.run([sys.executable, "-c", code, run], capture_output=True, text=True)
    tmp_path.chmod(0o755)
    assert shown.stdout.strip() == repr(value), shown.stderr
    assert list(files(tmp_path)) == ["run.rido"]


def test_reading_sees_one_moment_of_a_run_that_goes_on(run):
    piece = Piece(0, rido.Trajectories([[1.0]], [1]), 0.0)
    with reopen(run) as writer, RunFile.read(run) as reader:
        pieces = sum(1 for _ in reader.pieces())
        writer.append(piece)
        assert sum(1 for _ in reader.pieces()) == pieces
