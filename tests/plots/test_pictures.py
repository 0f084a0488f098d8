"""Pictures: what is drawn is what was passed in, into the axes that were passed in."""

import sys

import numpy as np
import pytest

import rido
from helpers import needs, random_batch
from rido import plots
from rido.study import compare

matplotlib = needs("matplotlib", "plot")
matplotlib.use("Agg")
from matplotlib import pyplot as plt  # noqa: E402


@pytest.fixture
def ax():
    figure, axes = plt.subplots()
    yield axes
    figure.canvas.draw()  # a picture that cannot be rendered fails here
    plt.close(figure)


def estimates():
    moments = rido.RewardMoments(5, gamma=0.9)
    taken, found = [], []
    for seed in range(4):
        moments.update(random_batch(seed, horizon=5, trajectories=20))
        taken.append(moments.transitions)
        found.append(rido.Estimate.from_moments(moments))
    return taken, found


def test_a_schedule_is_drawn_as_it_is(ax):
    schedule = rido.Schedule([5, 3, 1])
    assert plots.plot_schedule(schedule, ax=ax) is ax
    values, edges, _ = ax.patches[0].get_data()
    assert values.tolist() == [5, 3, 1] and edges.tolist() == [0, 1, 2, 3]
    assert ax.lines[0].get_ydata()[0] == 3  # nine transitions in three steps
    assert ax.get_xlabel() == "time step" and ax.get_ylabel() == "samples"


def test_repetitions_of_a_schedule_give_their_mean_and_a_band_around_it(ax):
    plots.plot_schedule([rido.Schedule([5, 3, 1]), rido.Schedule([7, 3, 3])], ax=ax)
    mean, _, _ = ax.patches[0].get_data()
    high, _, low = ax.patches[1].get_data()
    assert mean.tolist() == [6, 3, 2]
    # Two repetitions: t(1) = 12.706 times the standard error 1.
    assert high == pytest.approx([18.706, 3, 14.706], abs=1e-3) and low == pytest.approx(2 * mean - high)
    with pytest.raises(ValueError, match="same horizon"):
        plots.plot_schedule([rido.Schedule([5]), rido.Schedule([7, 3])], ax=ax)


def test_weights_and_their_pooled_regression(ax):
    plots.plot_weights([4.0, 1.0, 3.0], ax=ax)
    raw, pooled = (line.get_ydata().tolist() for line in ax.lines)
    assert raw == [4, 1, 3] and pooled == [4, 2, 2]


def test_weights_of_repetitions_have_a_band(ax):
    plots.plot_weights([[4.0, 1.0], [6.0, 1.0]], pooled=False, ax=ax)
    assert ax.lines[0].get_ydata().tolist() == [5, 1] and len(ax.collections) == 1


def test_estimates_and_intervals_against_transitions(ax):
    taken, found = estimates()
    plots.plot_estimates(taken, found, truth=1.0, ax=ax)
    assert ax.lines[0].get_xdata().tolist() == taken
    assert ax.lines[0].get_ydata().tolist() == [estimate.value for estimate in found]
    edges = ax.collections[0].get_paths()[0].vertices[:, 1]
    assert edges.min() == min(estimate.interval()[0] for estimate in found)
    assert edges.max() == max(estimate.interval()[1] for estimate in found)


def test_estimates_without_an_error_are_left_out(ax):
    moments = rido.RewardMoments(2, gamma=1.0)
    moments.update(rido.Trajectories([[1.0, 2.0]], [2]))
    plots.plot_estimates([2], [rido.Estimate.from_moments(moments)], ax=ax)
    assert ax.lines[0].get_xdata().size == 0


@pytest.fixture(scope="module")
def comparisons():
    rewards = np.random.default_rng(0).normal(size=(500, 6)) * 0.5 ** np.arange(6)
    return [compare(["uniform", "rido"], rewards, budget=budget, gamma=1.0, repetitions=8) for budget in (60, 600)]


def test_a_comparison_has_a_point_for_each_strategy(comparisons, ax):
    plots.plot_comparison(comparisons[0], ax=ax)
    shown = {
        label.get_text(): line.get_ydata()[0] for label, line in zip(ax.get_xticklabels(), points(ax), strict=True)
    }
    assert shown == {name: comparisons[0][name].mse for name in ("uniform", "rido")}


def points(axes):
    return [container.lines[0] for container in axes.containers]


def test_several_budgets_give_a_line_and_a_band_for_each_strategy(comparisons, ax):
    plots.plot_comparison(comparisons, ax=ax)
    assert [line.get_label() for line in ax.lines] == ["uniform", "rido", "best possible"]
    assert ax.lines[1].get_xdata().tolist() == [60, 600] and len(ax.collections) == 2
    assert ax.lines[1].get_ydata().tolist() == [comparison["rido"].mse for comparison in comparisons]


def test_schedules_of_a_comparison_have_bands(comparisons, ax):
    plots.plot_schedules(comparisons[1], ax=ax)
    mean, band = (patch.get_data() for patch in ax.patches[2:])
    assert mean[0].tolist() == comparisons[1]["rido"].counts.tolist()
    assert band[0].tolist() == comparisons[1]["rido"].counts_high.tolist()
    assert band[2].tolist() == comparisons[1]["rido"].counts_low.tolist()


def test_new_axes_are_made_where_none_are_given():
    axes = plots.plot_schedule(rido.Schedule([2, 1]))
    assert axes.figure is plt.gcf()
    plt.close(axes.figure)


def test_without_matplotlib_the_message_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    with pytest.raises(ImportError, match=r'pip install "rido\[plot\]"'):
        plots.plot_schedule(rido.Schedule([2, 1]))
