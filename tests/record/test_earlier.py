"""Files that an earlier version of rido wrote are read and resumed with the numbers that it gave."""

import json
import shutil

import pytest

from earlier import CALLS, FOLDER, run, told
from rido.comparison.compare import read_comparison
from rido.evaluation.recorded import read_run

RESULTS = json.loads((FOLDER / "results.json").read_text())
ESTIMATED = ("uniform_transitions_low", "uniform_transitions_high")  # by a rule that may get better


def rounded(entry):
    """Numbers to nine digits, for processors round differently."""
    if isinstance(entry, dict):
        return {name: rounded(part) for name, part in entry.items() if name not in ESTIMATED}
    if isinstance(entry, (list, tuple)):
        return [rounded(part) for part in entry]
    return f"{entry:.9g}" if isinstance(entry, float) else entry


@pytest.mark.parametrize("name", [name for name in CALLS if name not in ("stopped", "race", "adaptive")])
def test_a_report_of_an_earlier_file_says_what_its_run_said(name):
    assert rounded(told(read_run(FOLDER / f"{name}.rido").evaluation)) == rounded(RESULTS[name])


def test_a_run_whose_planner_has_changed_since_is_read():
    """Its trajectories are the same. The numbers are too where it is planned today as it was then."""
    found, before = told(read_run(FOLDER / "adaptive.rido").evaluation), RESULTS["adaptive"]
    assert all(found[name] == before[name] for name in ("counts", "transitions", "trajectories", "seed", "strategy"))
    assert found["value"] == pytest.approx(before["value"], abs=0.5 * before["standard_error"])


def test_a_comparison_of_an_earlier_version_is_read():
    assert rounded(told(read_comparison(FOLDER / "race.rido"))) == rounded(RESULTS["race"])


def test_an_unfinished_run_of_an_earlier_version_is_read():
    found = read_run(FOLDER / "stopped.rido").evaluation
    assert found.transitions == 240


@pytest.mark.parametrize("name", [name for name in CALLS if name not in ("race", "adaptive")])
def test_a_run_of_an_earlier_version_resumes(name, tmp_path):
    path = tmp_path / "run.rido"
    shutil.copy(FOLDER / f"{name}.rido", path)
    call = run if name == "extended" else CALLS[name]
    assert rounded(told(call(path))) == rounded(RESULTS["extended" if name == "stopped" else name])
