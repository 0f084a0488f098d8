"""The quick form of benchmarks/trust/zoo.py: the default is hardly worse than plain episodes on recorded agents."""

import numpy as np
import pytest
import zoo


@pytest.fixture(scope="module")
def cells(banks_dir, tmp_path_factory):
    output = tmp_path_factory.mktemp("results") / "zoo.md"
    zoo.main(["--quick", "--output", str(output)])
    assert "nan" not in output.read_text() and output.with_suffix(".png").stat().st_size > 10_000
    return zoo.read(output.with_suffix(".jsonl"))


def test_the_default_is_hardly_worse_than_plain_episodes(cells):
    """Exact variances, means of 10 runs: 1.00 to 1.05 with errors of 0.02 at most; the earlier planner had 1.9 to 8."""
    found = {key: cell.variance for key, cell in cells.items() if key[3] in ("default", "uniform")}
    assert len(found) == 24 and max(found.values()) < 1.1


def test_cells_are_measured_once(tmp_path, monkeypatch):
    monkeypatch.setattr(zoo, "measured", lambda task: zoo.Cell(*task[:4], runs=1, variance=2.0))
    path, task = tmp_path / "cells.jsonl", ("a", 1.0, 5, "default", 3)
    first = zoo.measure(path, [task], 1)
    monkeypatch.setattr(zoo, "measured", None)
    again = zoo.measure(path, [task], 1)
    assert again.keys() == first.keys() and again[task[:4]].variance == 2.0 and np.isnan(again[task[:4]].claim)


def test_plain_episodes_have_the_variance_of_their_return():
    """Rewards of 1 until a failure: the squared error times transitions is known; its error in 2,000 runs is 3%."""
    steps = np.minimum(np.random.default_rng(0).geometric(0.1, 500), 50)
    agent = zoo.Agent("walks", 1.0, np.ones((500, 50)), steps)
    assert agent.unit == pytest.approx(steps.var() * steps.mean())
    cell = agent.plain_cell(200, 2000)
    assert cell.squared_error == pytest.approx(1.0, abs=0.15) and cell.coverage == pytest.approx(0.95, abs=0.02)


def test_without_banks_one_line_says_so(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(zoo, "BANKS", tmp_path)
    zoo.main(["--quick", "--output", str(tmp_path / "zoo.md")])
    assert capsys.readouterr().out.startswith("skipped: no bank of ") and not (tmp_path / "zoo.md").exists()
