"""The quick form of benchmarks/strangers.py, and that its comparison sees what is wrong."""

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "strangers.py"


@pytest.fixture(scope="module")
def strangers():
    import strangers

    return strangers


def test_the_quick_form_finds_three_ids_right(tmp_path):
    page = tmp_path / "page.md"
    command = [sys.executable, SCRIPT, "--groups", "installed", "--cells", tmp_path / "cells", "--output", page]
    for _ in range(2):  # the second time everything is there
        subprocess.run(command, check=True)
    assert len((tmp_path / "cells").read_text().splitlines()) == 12
    text = page.read_text()
    assert "| random | 3 | 0 | 0 | 0 | 0 | 0 |" in text and "| rule | 3 | 0 | 0 | 0 | 0 | 0 |" in text
    assert text.count("same bits") == 3


@pytest.mark.parametrize("policy", ["random", "rule"])
def test_another_policy_or_another_reward_is_seen(strangers, policy):
    package = strangers.GROUPS["installed"].packages[0]

    class Other(strangers.Case):
        def begin(self):
            super().begin()
            self.asked = lambda observation: [0.9 + observation[0] / 10]

    class Costly(strangers.Case):
        def open(self):
            from gymnasium.wrappers import TransformReward

            env = super().open()
            return env if self.env is None else TransformReward(env, lambda reward: reward - 0.01)

    assert strangers.judge(Other(package, "MountainCarContinuous-v0", policy))[0] == "WRONG"
    verdict = strangers.judge(Costly(package, "MountainCarContinuous-v0", policy))
    assert verdict[0] == "right" and "standard errors" in verdict[1]  # not the same bits, but close
    assert strangers.judge(strangers.Case(package, "CartPol-v1", policy))[0] == "refused"
