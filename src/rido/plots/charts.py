"""Charts as plain SVG shapes in percent of their frame, for pages that load nothing and fit any screen."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rido.core.estimate import Estimate
from rido.core.schedule import Schedule

_MOST_POINTS = 1000


@dataclass(frozen=True)
class Tick:
    """A labelled place on an axis.

    Attributes:
        position: percent of the way from the left, or from the bottom.
        label: what is written there.
    """

    position: float
    label: str


@dataclass(frozen=True)
class Shape:
    """Something drawn.

    Attributes:
        kind: how it looks.
        path: an SVG path in a frame from (0, 0), top left, to (100, 100).
        label: what the legend calls it; "" leaves it out.
    """

    kind: Literal["area", "line", "band", "guide"]
    path: str
    label: str = ""


@dataclass(frozen=True)
class Chart:
    """A chart.

    Attributes:
        title: what it shows.
        x_label: what goes to the right.
        y_label: what goes up.
        shapes: what is drawn, back to front.
        x_ticks: labels from left to right.
        y_ticks: labels from bottom to top.
    """

    title: str
    x_label: str
    y_label: str
    shapes: tuple[Shape, ...]
    x_ticks: tuple[Tick, ...]
    y_ticks: tuple[Tick, ...]

    @property
    def legend(self) -> tuple[Shape, ...]:
        """Shapes that have a label."""
        return tuple(shape for shape in self.shapes if shape.label)


def schedule_chart(schedule: Schedule) -> Chart:
    """Returns the samples of each time step, and those of a uniform schedule of as many transitions."""
    top = float(schedule.counts[0])
    frame = _Frame((0.0, float(schedule.horizon)), (0.0, top))
    changes = np.flatnonzero(np.diff(schedule.counts)) + 1
    edges = np.concatenate([[0], changes, [schedule.horizon]])
    outline = "".join(f"V{frame.y(schedule.counts[start])}H{frame.x(end)}" for start, end in itertools.pairwise(edges))
    average = frame.y(schedule.transitions / schedule.horizon)
    shapes = (
        Shape("area", f"M0,100{outline}V100Z", "collected"),
        Shape("guide", f"M0,{average}H100", "uniform, for as many transitions"),
    )
    return Chart("Where the samples went", "time step", "samples", shapes, frame.x_ticks(), frame.y_ticks())


def weights_chart(weights: ArrayLike) -> Chart:
    """Returns the weights f_t: what one sample of each step adds to the variance of the estimate."""
    values = np.asarray(weights, dtype=np.float64)
    groups = np.array_split(values, min(_MOST_POINTS, values.size))
    heights = np.array([group.mean() for group in groups])
    frame = _Frame((0.0, float(values.size)), (min(0.0, heights.min()), max(0.0, heights.max())))
    steps = (np.arange(heights.size) + 0.5) * values.size / heights.size
    zero = (Shape("guide", f"M0,{frame.y(0.0)}H100"),) if heights.min() < 0 else ()
    shapes = (*zero, Shape("line", frame.line(steps, heights)))
    title = "What one sample of each step adds to the variance"
    return Chart(title, "time step", "weight", shapes, frame.x_ticks(), frame.y_ticks())


def estimates_chart(transitions: Sequence[int], estimates: Sequence[Estimate], confidence: float = 0.95) -> Chart:
    """Returns the estimate and its interval against the transitions that were spent."""
    known = [
        (taken, estimate.value, *estimate.interval(confidence))
        for taken, estimate in zip(transitions, estimates, strict=True)
        if math.isfinite(estimate.standard_error)
    ]
    taken, values, lows, highs = np.array(known, dtype=np.float64).reshape(-1, 4).T
    if taken.size == 0:
        return Chart("Estimate against transitions", "transitions", "return", (), (), ())
    frame = _Frame((0.0, taken[-1]), (lows.min(), highs.max()))
    band = frame.line(taken, highs) + frame.line(taken[::-1], lows[::-1]).replace("M", "L") + "Z"
    shapes = (
        Shape("band", band, f"{confidence:.0%} interval"),
        Shape("line", frame.line(taken, values), "estimate"),
    )
    return Chart("Estimate against transitions", "transitions", "return", shapes, frame.x_ticks(), frame.y_ticks())


class _Frame:
    """Maps data to percent, y downwards as in SVG."""

    def __init__(self, x_range: tuple[float, float], y_range: tuple[float, float]) -> None:
        self._x_range = x_range
        low, high = y_range
        margin = 0.05 * (high - low) or 1.0
        self._y_range = (low - margin if low else 0.0, high + margin)

    def x(self, value: float) -> float:
        return round(_percent(value, self._x_range), 2)

    def y(self, value: float) -> float:
        return round(100 - _percent(value, self._y_range), 2)

    def line(self, xs: NDArray[np.float64], ys: NDArray[np.float64]) -> str:
        return "M" + "L".join(f"{self.x(x)},{self.y(y)}" for x, y in zip(xs, ys, strict=True))

    def x_ticks(self) -> tuple[Tick, ...]:
        return _ticks(self._x_range)

    def y_ticks(self) -> tuple[Tick, ...]:
        return _ticks(self._y_range)


def _percent(value: float, edges: tuple[float, float]) -> float:
    low, high = edges
    return 100 * (float(value) - low) / (high - low)


def _ticks(edges: tuple[float, float], count: int = 4) -> tuple[Tick, ...]:
    """Returns up to about ``count`` ticks at round numbers."""
    low, high = edges
    rough = (high - low) / count
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(size * power for size in (1, 2, 2.5, 5, 10) if size * power >= rough * (1 - 1e-9))
    indices = range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1)
    return tuple(Tick(round(_percent(index * step, edges), 2), f"{index * step:,.6g}") for index in indices)
