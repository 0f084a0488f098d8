"""Suites in real environments: any parallelism, recorded, resumed, extended and read from files."""

import json
import signal
from functools import partial
from unittest.mock import patch

import numpy as np
import pytest

import rido
from environments import Mortal
from interrupted import Choosy, act, always, doomed_run, never, slow_suite, start
from rido.evaluation.recorded import read_run
from rido.evaluation.source import Live
from rido.record.database import RunFileError
from rido.simulators.base import SimulationError

TASKS = {
    "short": rido.Task(partial(Choosy, death=0.05), gamma=0.95, horizon=10, reference=(0.0, 1.0)),
    "long": rido.Task(partial(Choosy, death=0.1), gamma=0.9, horizon=20, weight=2.0, reference=(0.0, 20.0)),
}
POLICIES = {"never": never, "act": act, "always": always}


def numbers(board):
    return json.dumps(board.to_dict(), allow_nan=False, sort_keys=True)


def simulated(run):
    """Runs something; returns its result and the transitions that were simulated for it."""
    total, simulate = [0], Live.next

    def counted(live, request):
        piece = simulate(live, request)
        total[0] += piece.trajectories.transitions
        return piece

    with patch.object(Live, "next", counted):
        return run(), total[0]


@pytest.fixture(scope="module")
def board():
    return rido.Suite(TASKS, POLICIES, budget=4000, seed=3).run()


def test_the_number_of_environments_and_workers_does_not_change_a_bit(board):
    suite = rido.Suite(TASKS, POLICIES, budget=4000, seed=3)
    assert numbers(suite.run(num_envs=3)) == numbers(board)
    assert numbers(suite.run(workers=2)) == numbers(board)
    assert board.ranking[0] == "always" and 0 < board.transitions <= 4000


def test_values_are_those_of_a_closed_form(board):
    """Within 4.5 standard errors, which fails by chance once in 30,000."""
    for name, death in (("short", 0.05), ("long", 0.1)):
        task = TASKS[name]
        worth = Mortal.expected_return(task.horizon, task.gamma, death)
        bonus = 0.2 * np.sum((task.gamma * (1 - death)) ** np.arange(task.horizon))
        for policy, truth in (("never", worth), ("always", worth + bonus)):
            found = board.value(policy, name)
            assert abs(found.value - truth) < 4.5 * found.standard_error


def test_a_recorded_suite_is_not_simulated_again(board, tmp_path):
    suite = rido.Suite(TASKS, POLICIES, budget=4000, seed=3)
    first, spent = simulated(lambda: suite.run(tmp_path / "runs"))
    assert numbers(first) == numbers(board) and spent == board.transitions
    again, spent = simulated(lambda: suite.run(tmp_path / "runs"))
    assert numbers(again) == numbers(board) and spent == 0
    files = list((tmp_path / "runs").glob("*.rido"))
    assert len(files) == 6
    with pytest.raises(RunFileError, match="is of a suite"):
        read_run(files[0])


def test_what_is_there_serves_suites_with_other_policies_tasks_and_budgets(board, tmp_path):
    one_task = {"short": TASKS["short"]}
    rido.Suite(one_task, {"never": never, "act": act}, budget=1500, seed=3).run(tmp_path)
    found, spent = simulated(lambda: rido.Suite(TASKS, POLICIES, budget=4000, seed=3).run(tmp_path))
    assert numbers(found) == numbers(board)  # what is there changes nothing
    assert 0 < spent < 0.9 * board.transitions
    changed = rido.Suite(one_task, {"never": never, "act": never}, budget=1000, seed=3).run(tmp_path)
    assert changed.difference("act", "never").value == 0  # a policy of the same name that is another one


def test_a_suite_that_is_killed_again_and_again_ends_in_the_same_numbers(tmp_path):
    for calls in (1, 8, 30):
        child = start(doomed_run, slow_suite, (tmp_path / "killed",), calls, 0.002)
        child.join()
        assert child.exitcode == -signal.SIGKILL
    found, spent = simulated(lambda: slow_suite(tmp_path / "killed"))
    expected, whole = simulated(lambda: slow_suite(None))
    assert found == expected and spent < whole


def test_a_file_says_it_all(tmp_path):
    from rido.policies.npz import MlpPolicy
    from rido.policies.resolve import shipped_agent

    agent = MlpPolicy.load(shipped_agent("rido:pendulum"))
    for task in ("earth", "moon"):
        (tmp_path / "agents" / task).mkdir(parents=True)
        for seed in (1, 2):
            agent.save(tmp_path / f"agents/{task}/seed_{seed}.npz")
    text = """
        budget = 20000
        [tasks.earth]
        env = "Pendulum-v1"
        gamma = 0.9
        reference = [0, 1]
        [tasks.moon]
        env = "Pendulum-v1"
        gamma = 0.9
        horizon = 30
        weight = 2
        env_kwargs = { g = 1.62 }
        reference = [-100, 0]
        [policies]
        "our agent" = "agents/{task}/seed_*.npz"
        other = { earth = "rido:pendulum", moon = "random" }
        random = "random"
    """
    (tmp_path / "suite.toml").write_text(text)
    suite = rido.Suite.read(tmp_path / "suite.toml")
    assert list(suite.policies["moon"]) == ["our agent 1", "our agent 2", "other", "random"]
    assert suite.tasks["earth"].horizon == 66 and suite.tasks["moon"].env_kwargs == {"g": 1.62}
    assert suite.policies["moon"]["other"] == "random" and suite.policies["earth"]["other"] == "rido:pendulum"
    board = suite.run()
    assert board.difference("our agent 1", "our agent 2").value == 0
    assert board.ranking[-1] == "random"
    for wrong, message in (
        ("budget = 1\nbudjet = 2", "got 'budjet'"),
        ("budget = 1", "must have tasks"),
        ("budget = 1\ntasks = 1\npolicies = 2", "tasks of suite .* must be a table"),
        ("budget =", "must be a TOML file"),
        (text.replace("weight", "wait"), "task moon: it must have .* only, got 'wait'"),
        (text.replace("gamma = 0.9", "", 1), "task earth: it must have gamma"),
        (text.replace('earth = "rido:pendulum", ', ""), "policy other must be given for each task, got none for earth"),
        (text.replace('random = "random"', '"our agent 1" = "random"'), "got our agent 1 more than once"),
        (text.replace("reference = [0, 1]", ""), "reference must be given for all tasks or .* got none for earth: "),
        (text.replace("reference = [-100, 0]", ""), "reference must be given for all tasks or .* got none for moon: "),
        (text.replace("20000", "20"), "budget must pay for 2 full-length"),
    ):
        (tmp_path / "wrong.toml").write_text(wrong)
        with pytest.raises(ValueError, match=message):
            rido.Suite.read(tmp_path / "wrong.toml")
    (tmp_path / "agents/moon/seed_2.npz").unlink()
    with pytest.raises(ValueError, match="got our agent 2 in only one of earth and moon"):
        rido.Suite.read(tmp_path / "suite.toml")
    with pytest.raises(ValueError, match=r"missing\.toml: No such file"):
        rido.Suite.read(tmp_path / "missing.toml")


def test_a_policy_that_the_seed_does_not_control_is_named():
    rng = np.random.default_rng(0)

    def moody(observations):
        return rng.integers(2, size=len(observations))

    board = rido.Suite({"short": TASKS["short"]}, {"never": never, "moody": moody}, budget=200).run()
    assert any(warning.startswith("short: ") and "acts differently" in warning for warning in board.warnings)
    assert "warning: short: " in board.summary()


class Broken(Mortal):
    def step(self, action):
        raise RuntimeError("the motor is broken")


def test_an_error_names_the_policy_and_the_task():
    tasks = {"short": TASKS["short"], "garage": rido.Task(Broken, gamma=0.9, horizon=5, reference=(0.0, 1.0))}
    with pytest.raises(SimulationError, match=r"never in garage: .*the motor is broken"):
        rido.Suite(tasks, POLICIES, budget=4000).run()
