"""Files that an earlier version of rido wrote are read and resumed with the numbers that it gave."""

import json
import shutil

import pytest

from earlier import CALLS, FOLDER, run, told
from rido.comparison.compare import read_comparison
from rido.evaluation.recorded import read_run

RESULTS = json.loads((FOLDER / "results.json").read_text())


def rounded(entry):
    """Numbers to nine digits, for processors round differently."""
    if isinstance(entry, dict):
        return {name: rounded(part) for name, part in entry.items()}
    if isinstance(entry, (list, tuple)):
        return [rounded(part) for part in entry]
    return f"{entry:.9g}" if isinstance(entry, float) else entry


@pytest.mark.parametrize("name", [name for name in CALLS if name not in ("stopped", "race")])
def test_a_report_of_an_earlier_file_says_what_its_run_said(name):
    assert rounded(told(read_run(FOLDER / f"{name}.rido").evaluation)) == rounded(RESULTS[name])


def test_a_comparison_of_an_earlier_version_is_read():
    assert rounded(told(read_comparison(FOLDER / "race.rido"))) == rounded(RESULTS["race"])


def test_an_unfinished_run_of_an_earlier_version_is_read():
    found = read_run(FOLDER / "stopped.rido").evaluation
    assert 0 < found.transitions < RESULTS["plain"]["transitions"]


@pytest.mark.parametrize("name", [name for name in CALLS if name != "race"])
def test_a_run_of_an_earlier_version_resumes(name, tmp_path):
    path = tmp_path / "run.rido"
    shutil.copy(FOLDER / f"{name}.rido", path)
    call = run if name == "extended" else CALLS[name]
    assert rounded(told(call(path))) == rounded(RESULTS["plain" if name == "stopped" else name])
