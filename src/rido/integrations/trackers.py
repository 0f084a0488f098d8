"""Experiment trackers: evaluations in TensorBoard, Weights & Biases and MLflow; needs the extra ``trackers``.

Another tracker is any object with the two methods of :class:`Tracker`.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from rido.core.extras import import_extra
from rido.evaluation.result import Evaluation
from rido.plots.style import style
from rido.suite.leaderboard import Leaderboard

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class Tracker(Protocol):
    """What evaluations are logged to."""

    def log_numbers(self, numbers: Mapping[str, float], *, step: int) -> None:
        """Logs finite numbers by name, at a step of training."""

    def log_picture(self, name: str, picture: Figure, *, step: int) -> None:
        """Logs a picture, at a step of training."""


def log_evaluation(tracker: Tracker, evaluation: Evaluation, *, step: int = 0, prefix: str = "eval") -> None:
    """Logs the value, its interval, the transitions and a picture of the schedule.

    Args:
        tracker: where to log.
        evaluation: what :func:`rido.evaluate` returned.
        step: of training.
        prefix: what the names begin with, before a slash.
    """
    low, high = evaluation.interval()
    numbers = {
        "value": evaluation.value,
        "ci_low": low,
        "ci_high": high,
        "standard_error": evaluation.standard_error,
        "transitions": float(evaluation.transitions),
    }
    _log(tracker, step, prefix, numbers, "schedule", evaluation.plot)


def log_leaderboard(tracker: Tracker, board: Leaderboard, *, step: int = 0, prefix: str = "suite") -> None:
    """Logs the score of each policy with its interval, the transitions and a picture of all scores.

    Args:
        tracker: where to log.
        board: what :meth:`rido.Suite.run` returned.
        step: of training.
        prefix: what the names begin with, before a slash.
    """
    from rido.plots.leaderboard import plot_scores

    numbers = {"transitions": float(board.transitions)}
    for name in board.ranking:
        low, high = board.interval(name)
        numbers |= {f"{name}/value": board.scores[name].value, f"{name}/ci_low": low, f"{name}/ci_high": high}
    _log(tracker, step, prefix, numbers, "scores", partial(plot_scores, board))


def _log(
    tracker: Tracker, step: int, prefix: str, numbers: Mapping[str, float], picture: str, draw: Callable[..., Any]
) -> None:
    finite = {f"{prefix}/{name}": number for name, number in numbers.items() if math.isfinite(number)}
    tracker.log_numbers(finite, step=step)
    with style(extra="trackers"):
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure

        figure = Figure(figsize=(6.4, 3.6), layout="constrained")
        FigureCanvasAgg(figure)  # no window shows it
        draw(ax=figure.subplots())
        tracker.log_picture(f"{prefix}/{picture}", figure, step=step)


class _Closing(AbstractContextManager["Any"]):
    """A tracker that is closed at the end of a ``with`` block."""

    @abstractmethod
    def close(self) -> None:
        """Writes out everything."""

    def __exit__(self, *_: object) -> None:
        self.close()


class TensorBoard(_Closing):
    """Writes event files for TensorBoard.

    Args:
        folder: of the event files.
    """

    def __init__(self, folder: str | Path) -> None:
        self._writer = import_extra("TensorBoard", "tensorboardX", "trackers").SummaryWriter(str(folder))

    def log_numbers(self, numbers: Mapping[str, float], *, step: int) -> None:
        for name, number in numbers.items():
            self._writer.add_scalar(name, number, step)

    def log_picture(self, name: str, picture: Figure, *, step: int) -> None:
        self._writer.add_figure(name, picture, step, close=False)

    def close(self) -> None:
        self._writer.close()


class WeightsAndBiases(_Closing):
    """Logs to a run of Weights & Biases.

    Args:
        **settings: of ``wandb.init``, such as ``project="robots"``, or ``mode="offline"`` to send nothing.
    """

    def __init__(self, **settings: Any) -> None:
        wandb = import_extra("WeightsAndBiases", "wandb", "trackers")
        self._image, self._run = wandb.Image, wandb.init(**settings)

    def log_numbers(self, numbers: Mapping[str, float], *, step: int) -> None:
        self._run.log(dict(numbers), step=step)

    def log_picture(self, name: str, picture: Figure, *, step: int) -> None:
        self._run.log({name: self._image(picture)}, step=step)

    def close(self) -> None:
        self._run.finish()


class MLflow(_Closing):
    """Logs to a run of MLflow.

    Args:
        tracking_uri: where runs are kept: a folder as ``file:`` address, a database or a server.
        experiment: name of the experiment, made if it is not there.
        run_name: name of the run.
    """

    def __init__(self, tracking_uri: str, *, experiment: str = "rido", run_name: str | None = None) -> None:
        self._client = import_extra("MLflow", "mlflow", "trackers").MlflowClient(tracking_uri)
        found = self._client.get_experiment_by_name(experiment)
        number = self._client.create_experiment(experiment) if found is None else found.experiment_id
        self._run = self._client.create_run(number, run_name=run_name).info.run_id

    def log_numbers(self, numbers: Mapping[str, float], *, step: int) -> None:
        for name, number in numbers.items():
            self._client.log_metric(self._run, name, number, step=step)

    def log_picture(self, name: str, picture: Figure, *, step: int) -> None:
        self._client.log_figure(self._run, picture, f"{name}-{step}.png")

    def close(self) -> None:
        self._client.set_terminated(self._run)
