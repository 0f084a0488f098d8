"""compare(): several policies in real environments, in any parallelism, recorded and resumed."""

import json
from functools import partial

import numpy as np
import pytest

import rido
from environments import Mortal
from interrupted import act
from rido.comparison.compare import read_comparison
from rido.evaluation.recorded import read_run
from rido.policies.files import named_policies
from rido.record.database import RunFileError

ENV = partial(Mortal, death=0.05)
SETTINGS = dict(gamma=0.95, horizon=20, budget=4000, seed=3)


def make_policies():
    """Functions that are sent to workers as code, because no module has them."""

    def left(observations):
        return np.zeros(len(observations), dtype=int)

    def right(observations):
        return np.ones(len(observations), dtype=int)

    return {"left": left, "right": right, "mixed": act}


POLICIES = make_policies()


def numbers(result):
    told = result.to_dict()
    told.pop("seconds")
    return told


@pytest.fixture(scope="module")
def result():
    return rido.compare(ENV, POLICIES, **SETTINGS)


def test_the_number_of_environments_and_workers_does_not_change_a_bit(result):
    assert numbers(rido.compare(ENV, POLICIES, num_envs=3, **SETTINGS)) == numbers(result)
    assert numbers(rido.compare(ENV, POLICIES, workers=2, **SETTINGS)) == numbers(result)
    json.dumps(numbers(result), allow_nan=False)


def test_policies_that_follow_the_seed_have_no_notes_and_the_leader_is_behind_nobody(result):
    assert result.notes == ()
    leader, *others = result.to_dict()["policies"]
    assert leader["name"] == result.ranking[0] and "behind" not in leader
    for row in others:
        assert row["behind"] == result.difference(result.ranking[0], row["name"]).value


def test_trajectories_are_those_of_evaluate(result):
    """A policy's trajectories have the seeds that evaluate() gives them, so that its value is in reach of its own."""
    alone = rido.evaluate(ENV, POLICIES["left"], **SETTINGS)
    low, high = alone.interval(0.9999)
    assert low < result.values["left"].value < high


def test_a_recorded_comparison_resumes_and_can_be_read(result, tmp_path):
    path = tmp_path / "race.rido"
    assert numbers(rido.compare(ENV, POLICIES, run=path, **SETTINGS)) == numbers(result)
    assert numbers(read_comparison(path)) == numbers(result)
    assert numbers(rido.compare(ENV, POLICIES, run=path, workers=2, **SETTINGS)) == numbers(result)
    with pytest.raises(RunFileError, match="policies had other code"):
        rido.compare(ENV, {**POLICIES, "left": act}, run=path, **SETTINGS)
    with pytest.raises(RunFileError, match="is of a comparison"):
        read_run(path)
    rido.evaluate(ENV, act, run=tmp_path / "one.rido", **SETTINGS)
    with pytest.raises(RunFileError, match="is of an evaluation"):
        read_comparison(tmp_path / "one.rido")


def test_an_error_in_one_policy_is_passed_on():
    def broken(observations):
        raise RuntimeError("no action today")

    with pytest.raises(RuntimeError, match="no action today"):
        rido.compare(ENV, {"left": act, "broken": broken}, **SETTINGS)


def test_jax_environments_are_compared_too():
    import jax.numpy as jnp

    import rido.jax

    policies = {"idle": lambda seen: jnp.zeros(1), "push": lambda seen: 2 * jnp.ones(1)}
    found = rido.compare(rido.jax.pendulum(), policies, gamma=0.9, horizon=20, budget=20_000, seed=0)
    assert found.transitions <= 20_000 and set(found.ranking) == {"idle", "push"}


def test_envpool_compares_too():
    pytest.importorskip("envpool")
    found = rido.compare(
        "Pendulum-v1", ["rido:pendulum", "random"], simulator="envpool", gamma=0.9, budget=4000, seed=0
    )
    assert found.best == "rido:pendulum" and found.transitions < 4000


def test_policies_are_named_by_what_tells_them_apart(tmp_path):
    for place in ("a/best_model.zip", "b/best_model.zip", "steps/step_9.zip", "steps/step_10.zip"):
        (tmp_path / place).parent.mkdir(exist_ok=True)
        (tmp_path / place).touch()
    found = named_policies([tmp_path / "a/best_model.zip", tmp_path / "b/best_model.zip", "random", act, act])
    assert list(found) == ["a/best_model", "b/best_model", "random", "act 1", "act 2"]
    assert list(named_policies(tmp_path / "steps")) == ["step_9", "step_10"]
    assert list(named_policies(f"{tmp_path}/steps/*.zip")) == ["step_9", "step_10"]
    with pytest.raises(ValueError, match="folder or pattern"):
        named_policies(tmp_path / "none/*.zip")
    with pytest.raises(ValueError, match=r"policies must be 2 to 100, got 1: \['random'\]"):
        named_policies(["random"])


def test_a_time_limit_that_is_lifted_is_said(tmp_path):
    settings = dict(gamma=1.0, horizon=600, budget=3000, seed=0)
    found = rido.compare("CartPole-v1", {"act": act, "random": "random"}, run=tmp_path / "cart.rido", **settings)
    (remark,) = found.remarks
    assert "limit of 500 steps was lifted" in remark and remark in found.summary()
    assert read_comparison(tmp_path / "cart.rido").remarks == found.remarks


def test_own_simulators_are_for_race():
    class Own:
        def rollout(self, lengths, seeds):
            raise AssertionError

    with pytest.raises(ValueError, match=r"rido\.Race"):
        rido.compare(Own(), POLICIES, **SETTINGS)
