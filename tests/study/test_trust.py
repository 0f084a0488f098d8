"""The quick form of benchmarks/trust runs, and its statistics are right where the answer is known."""

import dataclasses
import re
import runpy
import sys
from pathlib import Path

import numpy as np
import pytest
from sections import sections_of

from rido import Uniform

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "trust"


@pytest.fixture(scope="module")
def script():
    """Globals of the script, and its modules."""
    found = runpy.run_path(str(SCRIPT))
    return {**found, **{name: sys.modules[name] for name in ("cells", "sources", "pages")}}


@pytest.fixture(scope="module")
def pages(script, tmp_path_factory):
    folder = tmp_path_factory.mktemp("results")
    output = folder / "trust.md"
    script["main"](["--quick", "--output", str(output), "--banks", str(folder)])
    return sections_of(output)


def source(script, name, gamma, size=3000):
    return script["sources"].Source("problem", name, gamma, size)


def uniform_cell(script, name="growing hazard 0.6, 0 on failure, gamma 0.99", gamma=0.99, repetitions=300):
    """A cell in which uniform stands for the default too."""
    chosen = source(script, name, gamma)
    people = script["sources"].population(chosen)
    settings = dict(horizon=people.bank.horizon, budget=20 * people.bank.horizon, gamma=gamma)
    runs = script["cells"].run_many(lambda: Uniform(**settings), people, repetitions, 5)
    values = [people.uniform_value(settings["budget"], np.random.default_rng([6, k])) for k in range(2000)]
    return script["cells"].Cell(
        source=chosen,
        budget=20,
        default=runs,
        uniform=runs,
        reference=np.array(values) - people.truth,
        variance=people.variance,
        length=people.length,
        truth_error=people.error,
    )


def test_all_sections_are_there(script, pages):
    assert tuple(pages) == script["HEADINGS"]
    for heading, page in pages.items():
        lines = [*page.splitlines(), ""]
        first_rows = [lines[i + 1] for i, line in enumerate(lines) if line and set(line) <= set("|-")]
        # A table of what falls short may be empty.
        assert any(re.search(r"\| .*\d.* \|$", row) for row in first_rows), heading
        assert "nan" not in page, heading


def test_sections_can_be_made_alone_and_others_stay(script, tmp_path):
    output = tmp_path / "trust.md"
    output.write_text("# Old\n\n## Stopping at a width\n\nas it was\n\n## Zero-width intervals\n\nold\n")
    script["main"](["--quick", "--output", str(output), "--sections", "zero"])
    found = sections_of(output)
    assert list(found) == ["Zero-width intervals", "Stopping at a width"]
    assert found["Stopping at a width"] == "as it was" and "of 100 runs" in found["Zero-width intervals"]
    assert "of 100 runs of all sections" in output.read_text()


def test_unknown_sections_are_refused(script, capsys):
    with pytest.raises(SystemExit):
        script["main"](["--sections", "sparse,nothing"])
    assert "got nothing" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["Taxi, 0.1 random, gamma 0.99", "falling hazard 0.2, -100 on failure, gamma 0.99"])
def test_the_reference_is_what_the_strategy_does(script, name):
    people = script["sources"].population(source(script, name, 0.99))
    for seed in range(20):
        strategy = Uniform(horizon=people.bank.horizon, budget=20 * people.bank.horizon, gamma=0.99)
        people.bank.run(strategy, np.random.default_rng(seed))
        value = people.uniform_value(strategy.budget, np.random.default_rng(seed))
        assert value == pytest.approx(strategy.estimate().value, rel=1e-12)


def test_uniform_is_as_good_as_itself(script):
    cell = uniform_cell(script)
    ratio, low, high = cell.ratio()
    assert ratio == pytest.approx(1) and low == pytest.approx(1) and high == pytest.approx(1)
    bias, error = cell.bias()
    assert bias == pytest.approx(cell.reference.mean() / cell.scale) and error < 0.03


def test_what_uniform_needs_is_what_it_took(script):
    """Uniform's own claim is its budget up to the noise of both: 10%, and the true one known to 3%."""
    low, middle, high = uniform_cell(script).claims()
    assert 0.8 < middle < 1.25 and low <= middle <= high


def test_a_worse_estimate_is_found_out(script):
    """Errors twice as large, and a shift of half a standard deviation of uniform's."""
    cell, replace = uniform_cell(script), dataclasses.replace
    runs = cell.default
    doubled = replace(cell, default=replace(runs, errors=2 * runs.errors))
    assert doubled.ratio()[0] == pytest.approx(4)
    shifted = replace(cell, default=replace(runs, errors=runs.errors + cell.scale / 2))
    assert shifted.bias()[0] - cell.bias()[0] == pytest.approx(0.5)
