"""Pictures of a comparison of policies: one row for each, with the numbers of the comparison."""

import dataclasses

import numpy as np
import pytest

import rido
from helpers import needs
from rido import plots
from rido.plots.style import BLUE, GREY

matplotlib = needs("matplotlib", "plot")
matplotlib.use("Agg")
from matplotlib import pyplot as plt  # noqa: E402

LONG = "checkpoints/a $folder$ of\nmany/ppo_pendulum_000100_steps"


@pytest.fixture
def ax():
    figure, axes = plt.subplots()
    yield axes
    figure.canvas.draw()  # a picture that cannot be rendered fails here
    plt.close(figure)


@pytest.fixture(scope="module")
def comparison():
    """Three policies: the first drops out, the other two are left."""
    rng, race = np.random.default_rng(2), rido.Race([LONG, "old", "new"], horizon=2, budget=600, gamma=1.0)
    gains = {LONG: -3.0, "old": 0.0, "new": 0.05}
    while (asked := race.ask()) is not None:
        names, schedule = asked
        common = rng.normal(0, 5, (schedule.trajectories, 2))
        rewards = {name: common + rng.normal(gains[name], 1, common.shape) for name in names}
        race.tell({name: rido.Trajectories(rewards[name], schedule.lengths) for name in names})
    found = race.result()
    assert list(found.exits) == [LONG] and not found.decided
    return found


def rows(axes):
    """Returns value, low, high and colour of each row, by its label."""
    found = {}
    for label, (line, _, (bar,)) in zip(axes.get_yticklabels(), axes.containers, strict=True):
        (row,), (value,) = line.get_ydata(), line.get_xdata()
        ((low, at), (high, _)) = bar.get_segments()[0]
        assert at == row == len(found)
        found[label.get_text()] = (value, low, high, line.get_color())
    return found


def test_intervals_are_those_of_the_comparison(comparison, ax):
    assert comparison.plot(ax) is ax
    shown = rows(ax)
    for name, label in zip(comparison.ranking, shown, strict=True):
        assert shown[label][:3] == pytest.approx((comparison.values[name].value, *comparison.interval(name)))
        assert shown[label][3] == (GREY if name == LONG else BLUE)
    assert ax.get_ylim() == (2.5, -0.5)  # the best is on top


def test_differences_are_paired_and_0_is_marked(comparison, ax):
    plots.plot_differences(comparison, ax)
    leader, *others = comparison.ranking
    shown = list(rows(ax).values())
    for name, (value, low, high, _) in zip(others, shown, strict=True):
        assert value == comparison.difference(name, leader).value
        assert (low, high) == pytest.approx(comparison.bounds(name, leader))
    assert [low < 0 < high for _, low, high, _ in shown] == [True, False]
    assert any(line.get_linestyle() == "--" and set(line.get_xdata()) == {0} for line in ax.lines)


def test_exits_are_where_policies_dropped_out(comparison, ax):
    plots.plot_exits(comparison, ax)
    ends = [(line.get_xdata()[-1], line.get_marker()) for line in ax.lines if line.get_marker() != "None"]
    assert ends == [(comparison.transitions, ">")] * 2 + [(comparison.eliminated[LONG], "o")]


@pytest.mark.parametrize("draw", [plots.plot_intervals, plots.plot_exits, plots.plot_differences])
def test_long_names_lose_their_middle_and_are_no_formulas(comparison, draw, ax):
    label = draw(comparison, ax).get_yticklabels()[-1]
    assert label.get_text() == "checkpoints…000100_steps" and not label.get_parse_math()


def test_intervals_without_an_end_are_left_out(comparison, ax):
    plots.plot_differences(dataclasses.replace(comparison, level=0.0), ax)
    assert len(ax.containers) == 2 and not any(container.has_xerr for container in ax.containers)


def test_new_axes_have_room_for_every_row(comparison):
    many = dataclasses.replace(comparison, ranking=comparison.ranking * 10)
    few, more = (plots.plot_exits(each).figure for each in (comparison, many))
    assert more.get_figheight() > 3 * few.get_figheight()
    plt.close("all")
