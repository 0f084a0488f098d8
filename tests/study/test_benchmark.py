"""The quick form of benchmarks/adaptive.py still says what results/adaptive.md says. All seeds are fixed."""

import importlib.util
import math
from pathlib import Path

import pytest
from sections import sections_of

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "adaptive.py"


@pytest.fixture
def pages(tmp_path):
    """Makes sections of the page."""
    spec = importlib.util.spec_from_file_location("adaptive_benchmark", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)

    def make(sections):
        module.main(["--quick", "--output", str(tmp_path / "adaptive.md"), "--sections", sections])
        return sections_of(tmp_path / "adaptive.md")

    return make


def rows(page, start):
    """Cells of the rows whose first cells are these."""
    lines = [[cell.strip() for cell in line.strip("|").split("|")] for line in page.splitlines() if "|" in line]
    return [cells[len(start) :] for cells in lines if cells[: len(start)] == list(start)]


def numbers(page, strategy):
    """Geometric means and worst ones of a strategy's row."""
    (cells,) = rows(page, [strategy])
    return [tuple(float(number.strip("()")) for number in cell.split()) for cell in cells]


def lowest_coverage(runs):
    """Of 95% intervals in so many runs, 3.5 standard errors below: one false alarm in 4,000."""
    return 0.95 - 3.5 * math.sqrt(0.95 * 0.05 / runs)


def test_variance_stays_close_to_the_oracles_and_intervals_hold(pages):
    """The oracle's schedule is for rewards, and residuals may do better; a few repetitions scatter by about 0.02."""
    made = pages("zoo")
    means = [mean for mean, _ in numbers(made["Variance: the zoo"], "adaptive")]
    for found, most in zip(means[:3], (1.4, 1.12, 1.05), strict=True):
        assert found < most
    assert all(numbers(made["Variance: the zoo"], name)[1][0] > means[1] for name in ("uniform", "robust", "rido"))
    for strategy in ("uniform", "adaptive"):
        ((repetitions, coverage, *_),) = rows(made["Coverage of the 95% interval"], [strategy, "50 T"])
        assert float(coverage) > lowest_coverage(31 * int(repetitions))


def test_variance_stays_close_to_the_oracles_on_processes_held_out(pages):
    held_out = numbers(pages("held-out")["Variance: random processes held out"], "adaptive")
    assert held_out[0][0] < 1.15 and held_out[1][0] < 1.08


def test_stopping_at_a_width_keeps_its_promise(pages):
    """At least 25 light-tailed processes, 4 repetitions each. No run stops before 50 trajectories, 3.3 times 15."""
    ((coverage, _, spent, forecast),) = rows(pages("until")["Stopping at a width"], ["15 T"])
    assert float(coverage) > lowest_coverage(25 * 4)
    assert 1 < float(spent) < 3.5 and 0.5 < float(forecast) < 2


def test_unbiased_is_unbiased(pages):
    """The mean error of 100 runs is within 3.5 standard errors: one false alarm in 2,000 for each of two processes."""
    page = pages("bias")["Bias"]
    for process in ("termination", "rare early"):
        ((repetitions, _, in_standard_errors, *_),) = rows(page, [process, "True"])
        assert int(repetitions) == 100 and abs(float(in_standard_errors)) < 3.5
