"""A test that draws entropy fails, as does a skip that is not listed; another order is another order."""

import subprocess
import sys
from pathlib import Path

import pytest

import rido
import seeding

TESTS = Path(__file__).parent
EXAMPLE = """
import numpy as np, pytest, rido

def evaluate(**settings):
    rido.evaluate("rido/LQG-v0", budget=20, gamma=0.9, horizon=5, **settings)

def test_seeded():
    evaluate(seed=1)

def test_unseeded():
    evaluate()

@pytest.mark.entropy("nothing is asserted")
def test_marked():
    evaluate()

@pytest.mark.entropy
def test_marked_without_a_reason():
    evaluate()

def test_global_generators():
    assert np.random.random() == np.random.RandomState(0).random()

def test_skipped():
    pytest.skip("no reason")
"""


@pytest.mark.entropy("only what was seen of it is asserted")
def test_entropy_is_seen():
    rido.evaluate("rido/LQG-v0", budget=20, gamma=0.9, horizon=5)
    assert len(seeding.draws) == 1 and "loop.py" in seeding.draws[0]


@pytest.mark.parametrize("shuffle", [[], ["--shuffle", "1"]])
def test_what_depends_on_chance_fails(shuffle, tmp_path):
    (tmp_path / "test_example.py").write_text(EXAMPLE)
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-c",
        TESTS.parent / "pyproject.toml",
        "-p",
        "conftest",
        "--listed-skips",
    ]
    command += [*shuffle, "-vv", "--capture=no", "-p", "no:cacheprovider", tmp_path / "test_example.py"]
    done = subprocess.run(command, cwd=TESTS, capture_output=True, text=True)
    outcomes = [line.rpartition("::")[2].split() for line in done.stdout.splitlines() if "::test_" in line]
    found = {name: outcome for name, outcome, *_ in outcomes}
    assert done.returncode == 1 and "not listed in tests/conftest.py: no reason" in done.stdout, done.stdout
    assert {name for name, outcome in found.items() if outcome == "FAILED"} == {
        "test_unseeded",
        "test_marked_without_a_reason",
    }
    assert len(found) == 6 and (list(found) == sorted(found, key=EXAMPLE.index)) == (not shuffle)
