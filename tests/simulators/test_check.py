"""rido check: each question finds what it is about, and nothing in good environments."""

import json

import gymnasium as gym
import numpy as np
import pytest
from typer.testing import CliRunner

import rido
from corpus import environments as kinds
from corpus import policies
from rido.cli.commands import app


def found(env, policy="random", level="found", **options):
    kinds.forget()
    return {answer.name for answer in rido.check(env, policy, **options).answers if answer.level == level}


class Lazy(kinds.Line):
    """Ends by a truncation of its own."""

    def step(self, action):
        return (*super().step(action)[:3], self.t >= 9, {})


class Jumps(kinds.Line):
    """Pays 1,000 at the last of many steps."""

    def reward(self):
        return 1000.0 if self.t == 200 else -0.1


@pytest.mark.parametrize(
    ("env", "expected"),
    [
        ("CartPole-v1", set()),
        ("FrozenLake-v1", set()),
        (kinds.Line, set()),
        (kinds.InPlace, set()),
        (kinds.OwnGenerator, {"copies of noise"}),
        (kinds.Shared, {"shared state"}),
        pytest.param(kinds.Entropy, {"determinism"}, marks=pytest.mark.entropy("no two of its numbers are the same")),
        (kinds.GlobalNumpy, {"determinism", "global random numbers"}),
        (kinds.NoSeeding, {"determinism"}),
        (kinds.Wraps, {"dtype and bounds of observations"}),
        (kinds.divided, {"opening"}),
        (Lazy, {"time limit and termination"}),
        (lambda: gym.wrappers.Autoreset(kinds.Line()), {"autoreset"}),
        (lambda: gym.wrappers.NormalizeReward(kinds.Line()), {"opening"}),
        (kinds.NanReward, {"rewards"}),
        (kinds.GrowsLonger, {"steps"}),
        (kinds.Rows(), set()),
        (kinds.Rows(masked=False), {"reset_mask"}),
    ],
)
def test_environments(env, expected):
    assert found(env) == expected


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        (lambda o: -o / 2, set()),
        (rido.batched(lambda o: -o / 2), set()),
        (rido.batched(lambda o: -o / np.linalg.norm(o)), {"policy in batches"}),
        (policies.Pid(), {"memory of the policy", "the same episode"}),
        (policies.PidWithReset(), set()),
        (policies.Switches(), {"memory of the policy", "the same episode"}),
    ],
)
def test_policies(policy, expected):
    assert found(policies.Chase, policy) == expected


def test_notes_are_no_reason_to_worry():
    assert "rewards that jump" in found(Jumps, level="note")
    assert "starts" in found(kinds.Quiet, level="note")
    assert "memory of the policy" in found(policies.Chase, policies.Noisy(), level="note")
    assert "bounds of actions" in found(policies.Chase, lambda o: -10 * o, level="note")
    assert rido.check(kinds.Quiet).ok


def test_command():
    run = CliRunner().invoke
    good = run(app, ["check", "CartPole-v1", "--json"])
    assert good.exit_code == 0 and json.loads(good.stdout)["ok"] is True
    bad = run(app, ["check", "corpus.environments:OwnGenerator"])
    assert bad.exit_code == 1 and "found  copies of noise: fresh instances repeat" in bad.stdout
    assert run(app, ["check"]).exit_code == 2
