"""Pictures: what is drawn is what was passed in, into the axes that were passed in."""

import itertools
import sys

import numpy as np
import pytest

import rido
from helpers import needs, random_batch
from rido import plots
from rido.plots import style
from rido.study import compare_strategies

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
    return [
        compare_strategies(["uniform", "rido"], rewards, budget=budget, gamma=1.0, repetitions=8)
        for budget in (60, 600)
    ]


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


def labels(axes):
    """Returns the height in pixels of each label that is written beside the axes."""
    axes.figure.canvas.draw()
    boxes = {text.get_text(): text.get_window_extent() for text in axes.texts}
    assert all(box.x0 > axes.get_window_extent().x1 for box in boxes.values())
    return boxes


def test_lines_are_labelled_where_they_end(ax):
    plots.plot_schedule(rido.Schedule([9, 2]), label="mine", ax=ax)
    for name, end in (("mine", 2), ("uniform", 5.5)):
        box = labels(ax)[name]
        assert (box.y0 + box.y1) / 2 == pytest.approx(ax.transData.transform((0, end))[1], abs=4)


def test_labels_of_lines_that_end_together_do_not_overlap(ax):
    for name in ("one", "two", "three"):
        plots.plot_schedule(rido.Schedule([9, 2]), label=name, uniform=False, ax=ax)
    boxes = sorted(labels(ax).values(), key=lambda box: box.y0)
    assert len(boxes) == 3 and all(low.y1 <= high.y0 + 1 for low, high in itertools.pairwise(boxes))
    assert labels(ax)["two"].y0 == pytest.approx(ax.transData.transform((0, 2))[1], abs=8)


def test_axes_are_logarithmic_where_lines_would_bend(comparisons, ax):
    taken, found = estimates()
    assert plots.plot_estimates(taken, found, ax=ax).get_xscale() == "log"
    figure, (few, many, several) = plt.subplots(1, 3)
    assert plots.plot_schedule(rido.Schedule([5, 3, 1]), ax=few).get_yscale() == "linear"
    assert plots.plot_schedule(rido.Schedule([500, 3, 1]), ax=many).get_yscale() == "log"
    plots.plot_comparison(comparisons, ax=several)
    assert several.get_xscale() == several.get_yscale() == "log"
    assert [label.get_text() for label in several.get_xticklabels()] == ["60", "600"]
    plt.close(figure)


def test_drawing_leaves_the_settings_of_other_pictures_alone(ax):
    before = dict(matplotlib.rcParams)
    plots.plot_schedule(rido.Schedule([5, 3, 1]), ax=ax)
    assert dict(matplotlib.rcParams) == before and ax.spines["top"].get_visible()


@pytest.mark.parametrize("background", ["#ffffff", "#1c2128"])
def test_every_colour_has_contrast_on_light_and_dark(background):
    low, high = (np.minimum, np.maximum)
    lights = np.array([luminance(colour) for colour in style.STRATEGIES.values()])
    page = luminance(background)
    assert ((high(lights, page) + 0.05) / (low(lights, page) + 0.05)).min() >= 3  # WCAG AA for graphics


def luminance(colour):
    """Relative luminance, as WCAG defines it."""
    channels = np.array(matplotlib.colors.to_rgb(colour))
    linear = np.where(channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4)
    return float(linear @ [0.2126, 0.7152, 0.0722])


def test_new_axes_are_made_where_none_are_given():
    axes = plots.plot_schedule(rido.Schedule([2, 1]))
    assert axes.figure is plt.gcf()
    plt.close(axes.figure)


def test_without_matplotlib_the_message_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ImportError, match=r'pip install "rido\[plot\]"'):
        plots.plot_schedule(rido.Schedule([2, 1]))
