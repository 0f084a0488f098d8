"""Model cards: what the hub's own reader finds in them is the result of the run."""

import pytest
from typer.testing import CliRunner

import rido
from rido.cli import app

hub = pytest.importorskip("huggingface_hub", reason='huggingface_hub is missing: pip install "rido[hub]"')


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    path = tmp_path_factory.mktemp("run") / "a.rido"
    return path, rido.evaluate("Pendulum-v1", "rido:pendulum", budget=2000, gamma=0.9, horizon=40, seed=1, run=path)


def test_the_hubs_reader_finds_the_result(run, tmp_path):
    path, result = run
    told = CliRunner().invoke(app, ["card", str(path), "--name", "my pendulum"])
    assert told.exit_code == 0
    card = hub.ModelCard(told.stdout)
    (found,) = card.data.eval_results
    assert card.data.model_name == "my pendulum" and found.task_type == "reinforcement-learning"
    assert (found.dataset_name, found.metric_type, found.metric_value) == ("Pendulum-v1", "mean_reward", result.value)
    low, high = result.interval()
    expected = dict(interval_low=low, interval_high=high, confidence=0.95, transitions=result.transitions, seed=1)
    assert {key: found.metric_args[key] for key in expected} == expected
    assert found.metric_args["deterministic"] is True and found.metric_args["standard_error"] == result.standard_error
    assert "95% confidence interval [" in card.text and f"{result.transitions:,} transitions" in card.text
    written = CliRunner().invoke(app, ["card", str(path), "--name", "my pendulum", "-o", str(tmp_path / "README.md")])
    assert written.exit_code == 0 and (tmp_path / "README.md").read_text() == told.stdout


def test_what_is_no_run_is_refused(tmp_path):
    told = CliRunner().invoke(app, ["card", str(tmp_path / "none.rido")])
    assert told.exit_code == 1 and "is not there" in told.output
