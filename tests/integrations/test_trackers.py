"""Trackers: what their own files hold is what was logged."""

import math
import struct

import numpy as np
import pytest

import rido
from helpers import needs
from rido.integrations.trackers import MLflow, TensorBoard, WeightsAndBiases, log_evaluation, log_leaderboard

needs("matplotlib", "trackers")


class Noise:
    num_envs = 8

    def rollout(self, lengths, seeds):
        rewards = np.stack([np.random.default_rng(seed).normal(1, 2, lengths.max()) for seed in seeds])
        return rido.Trajectories(rewards, lengths)


class Kept:
    """A tracker of one's own."""

    def __init__(self):
        self.numbers, self.pictures = {}, []

    def log_numbers(self, numbers, *, step):
        self.numbers |= {(name, step): number for name, number in numbers.items()}

    def log_picture(self, name, picture, *, step):
        self.pictures.append((name, step, len(picture.axes)))


@pytest.fixture(scope="module")
def result():
    return rido.evaluate(Noise(), budget=1000, gamma=0.9, horizon=20, seed=1)


def expected(result, step):
    low, high = result.interval()
    numbers = dict(value=result.value, ci_low=low, ci_high=high, standard_error=result.standard_error)
    return {(f"eval/{name}", step): number for name, number in {**numbers, "transitions": 1000}.items()}


def test_any_object_with_two_methods_is_a_tracker(result):
    tracker = Kept()
    log_evaluation(tracker, result, step=5)
    assert tracker.numbers == expected(result, 5) and tracker.pictures == [("eval/schedule", 5, 1)]


def test_numbers_that_are_not_finite_are_left_out():
    class Constant(Noise):
        def rollout(self, lengths, seeds):
            return rido.Trajectories(np.zeros((lengths.size, lengths.max())), lengths)

    tracker = Kept()
    log_evaluation(tracker, rido.evaluate(Constant(), budget=100, gamma=0.9, horizon=5, seed=1))
    assert ("eval/ci_low", 0) not in tracker.numbers and all(map(math.isfinite, tracker.numbers.values()))


def test_a_leaderboard_is_logged_by_policy():
    tasks = {"a": rido.Task("Pendulum-v1", gamma=0.9, horizon=10)}
    board = rido.Suite(tasks, {"agent": "rido:pendulum", "random": "random"}, budget=500).run()
    tracker = Kept()
    log_leaderboard(tracker, board, step=2)
    assert tracker.numbers["suite/agent/value", 2] == board.scores["agent"].value
    assert tracker.numbers["suite/random/ci_high", 2] == board.interval("random")[1]
    assert tracker.pictures == [("suite/scores", 2, 1)]


def test_tensorboard_files_have_the_numbers_and_the_picture(result, tmp_path):
    proto = pytest.importorskip("tensorboardX.proto.event_pb2", reason='pip install "rido[trackers]"')
    with TensorBoard(tmp_path) as tracker:
        log_evaluation(tracker, result, step=7)
    (file,) = tmp_path.iterdir()
    content, numbers, pictures = file.read_bytes(), {}, {}
    while content:  # records of TensorFlow: length, its checksum, the event, its checksum
        (length,) = struct.unpack("<Q", content[:8])
        event, content = proto.Event.FromString(content[12 : 12 + length]), content[16 + length :]
        for value in event.summary.value:
            if value.HasField("image"):
                pictures[value.tag, event.step] = value.image.encoded_image_string[:4]
            else:
                numbers[value.tag, event.step] = value.simple_value
    assert numbers == pytest.approx(expected(result, 7), rel=1e-6)
    assert pictures == {("eval/schedule", 7): b"\x89PNG"}


def test_mlflow_keeps_the_numbers_and_the_picture(result, tmp_path, monkeypatch):
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")  # MLflow 3 prefers databases
    pytest.importorskip("mlflow", reason='mlflow is missing: pip install "rido[trackers]"')
    from mlflow import MlflowClient

    with MLflow(tmp_path.as_uri(), run_name="pendulum") as tracker:
        log_evaluation(tracker, result, step=7)
    client = MlflowClient(tmp_path.as_uri())
    (run,) = client.search_runs([client.get_experiment_by_name("rido").experiment_id])
    assert {(name, 7): number for name, number in run.data.metrics.items()} == pytest.approx(expected(result, 7))
    assert run.info.run_name == "pendulum" and run.info.status == "FINISHED"
    assert [file.path for file in client.list_artifacts(run.info.run_id, "eval")] == ["eval/schedule-7.png"]


def test_wandb_writes_a_run_without_a_network(result, tmp_path):
    pytest.importorskip("wandb", reason='wandb is missing: pip install "rido[trackers]"')
    with WeightsAndBiases(mode="offline", dir=str(tmp_path), project="test") as tracker:
        log_evaluation(tracker, result, step=7)
        tracker.log_numbers({"end": 1.0}, step=8)  # a step is written when the next one begins
        logged = dict(tracker._run.summary)
    assert logged["eval/value"] == result.value and logged["eval/transitions"] == 1000
    assert list(tmp_path.rglob("*.wandb")) and list(tmp_path.rglob("schedule*.png"))
