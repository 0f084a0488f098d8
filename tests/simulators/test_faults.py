"""Misbehaving environments, policies and critics end in one line or in the right number, with any number of workers.

``benchmarks/faults/misbehaviour.py`` runs all of them with two workers and on Ray too.
"""

import os
import re
import subprocess
import sys
import threading
import warnings
from functools import partial

import numpy as np
import pytest

import misbehaving
import rido
from environments import Counted, Mortal
from misbehaving import BadPolicy, BadReset, Misbehaving, OldReset, SharedBuffer, Unseeded, by_observation, plain
from rido.evaluation.recorded import read_run
from rido.simulators import Request, SimulationError
from rido.simulators.gymnasium import GymnasiumSimulator
from rido.simulators.parallel.processes import WorkerSimulator
from traps import zeros

CASES = misbehaving.cases()
IN_PROCESS = [name for name, case in CASES.items() if not case.fatal]
IN_WORKERS = [
    "result: 4 values",
    "result: longer observation",
    "result: no observation",
    "reset: observation alone",
    "old reset",
    "old step by id",
    "missing key",
    "step: sys.exit(0)",
    "make: sys.exit(0)",
    "policy: raise unpicklable",
    "shared buffer, critic",
    "unseeded step, numpy",
    "stateful policy",
]
FAULTS = (ValueError, ImportError, OSError, SimulationError)  # that the command line shows as one line


def evaluate(env, policy=zeros, **settings):
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "the environment's close raised")
        return rido.evaluate(env, policy, **{"budget": 1200, "gamma": 0.95, "horizon": 20, "seed": 1, **settings})


def check(case, monkeypatch, **settings):
    monkeypatch.chdir(os.getcwd())  # some change it
    if case.expected is not None:
        with pytest.raises(FAULTS, match=case.expected) as caught:
            evaluate(case.env, case.policy, critic=case.critic, **settings)
        return str(caught.value)
    result = evaluate(case.env, case.policy, critic=case.critic, **settings)
    if case.same_as is None:
        assert not result.reproducible and result.warnings
        return "; ".join(result.warnings)
    env, policy = case.same_as if isinstance(case.same_as, tuple) else (case.same_as, zeros)
    expected = evaluate(env, policy, critic=None if case.critic is None else misbehaving.critic)
    assert (result.value, result.standard_error) == (expected.value, expected.standard_error)
    assert result.reproducible
    return repr(result.value)


@pytest.mark.parametrize("name", IN_PROCESS)
def test_one_line_or_the_right_number(name, monkeypatch):
    check(CASES[name], monkeypatch)


@pytest.mark.parametrize("name", IN_WORKERS)
def test_the_same_line_with_two_workers(name, monkeypatch):
    def numberless(text):
        return re.sub(r"[\d.]+", "#", text)

    texts = [check(CASES[name], monkeypatch, workers=workers) for workers in (1, 2)]
    assert numberless(texts[0]) == numberless(texts[1])


@pytest.mark.parametrize(
    ("env", "policy", "what"),
    [
        (partial(Misbehaving, "hang", threshold=-9), zeros, "the environment's step"),
        (partial(BadReset, "hang"), zeros, "the environment's reset"),
        (plain, BadPolicy("hang"), "the policy"),
    ],
    ids=["step", "reset", "policy"],
)
def test_a_call_that_never_returns_is_named_after_two_timeouts(env, policy, what):
    with pytest.raises(SimulationError, match=rf"{what} did not return within 2 seconds \(timeout\), also") as caught:
        evaluate(env, policy, step_timeout=2, num_envs=1)
    step = 0 if what.endswith("reset") else 3
    assert (caught.value.trajectory, caught.value.step) == (0, step)


def test_a_call_that_holds_the_interpreter_is_found_too():
    env = partial(Misbehaving, "hang with the lock", threshold=-9)
    with pytest.raises(OSError, match=r"one of \d+ trajectories \(seeds .*\) took no step within 2 seconds"):
        evaluate(env, step_timeout=2)


def test_slow_steps_side_by_side_are_not_stuck():
    """Each of 8 environments takes 0.3 seconds for a step, so that all together need longer than the timeout."""
    slow = partial(Mortal, death=0.0, seconds=0.3)
    with WorkerSimulator(slow, zeros, workers=1, horizon=3, num_envs=8, timeout=1.5) as simulator:
        assert simulator.rollout(np.full(8, 3), range(8)).transitions == 24  # in each trial, or all of them fail


def test_a_step_timeout_does_not_change_the_result(tmp_path):
    results = [evaluate(Mortal, step_timeout=timeout).to_dict() for timeout in (None, 60)]
    for result in results:
        for name in ("seconds", "planning_seconds"):
            del result[name]
    assert results[0] == results[1]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (dict(step_timeout=0), "step_timeout must be positive and finite, got 0"),
        (dict(step_timeout=-1), "step_timeout must be positive and finite, got -1"),
        (dict(step_timeout=5, simulator="gymnasium"), "step_timeout must be None with simulator 'gymnasium', which"),
        (dict(step_timeout=5, simulator="jax"), "step_timeout must be None with simulator 'jax', which nothing can"),
    ],
)
def test_wrong_timeouts_are_named(settings, message):
    with pytest.raises(ValueError, match=message):
        evaluate(Mortal, **settings)


def test_an_environment_itself_cannot_have_a_step_timeout():
    env = Mortal()
    env.lock = threading.Lock()  # which cannot be sent
    with pytest.raises(ValueError, match="env must be an id or a function that makes the environment"):
        evaluate(env, step_timeout=5)


def test_the_command_line_has_it():
    code = "import misbehaving; from rido.cli import main; main()"
    arguments = ["evaluate", "Misbehaving4-v0", "--policy", "traps:zeros", "--gamma", "1", "--horizon", "20"]
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments, "--budget", "800", "--step-timeout", "30"],
        capture_output=True,
        text=True,
        cwd=os.path.dirname(misbehaving.__file__),
        timeout=300,
    )
    assert (done.returncode, done.stdout) == (1, "")
    (line,) = done.stderr.splitlines()
    assert re.match(rf"rido: trajectory \d+ failed at step 3 \(seed \d+\): {misbehaving.STEP}", line)


def test_what_a_worker_prints_is_not_on_standard_output(capfd):
    evaluate(partial(Misbehaving, "print to the descriptor"), workers=2)
    out, err = capfd.readouterr()
    assert out == "" and "raw noise" in err


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize(
    ("env", "policy", "note"),
    [
        (Unseeded, zeros, "the environment's first observation differs when it is reset with the same seed again"),
        (partial(Unseeded, "step", "numpy"), zeros, "the global random numbers of numpy.random were used"),
        (plain, BadPolicy(result="global"), "the global random numbers of numpy.random were used"),
        (plain, BadPolicy(result="own"), "BadPolicy acts differently when it gets the same observation again"),
        (plain, BadPolicy(result="stateful"), "BadPolicy acts differently when it gets the same observation again"),
    ],
    ids=["start", "step", "global policy", "policy's own generator", "stateful policy"],
)
def test_what_the_seed_does_not_control_is_noted(env, policy, note, workers, tmp_path):
    run = tmp_path / "run.rido"
    result = evaluate(env, policy, workers=workers, run=run)
    assert not result.reproducible and any(note in warning for warning in result.warnings)
    recorded = read_run(run).evaluation
    assert not recorded.reproducible and any(note in warning for warning in recorded.warnings)
    resumed = evaluate(env, policy, workers=workers, run=run)
    assert not resumed.reproducible and resumed.value == result.value


def test_the_check_takes_no_step_and_leaves_global_generators_alone():
    Counted.taken = 0
    state = np.random.get_state()[1].copy()  # noqa: NPY002
    for policy in (zeros, BadPolicy(result="global")):
        GymnasiumSimulator(Counted, policy, horizon=20).collect(Request(None, [1, 2], wants="trial"))
    assert Counted.taken == 0
    np.testing.assert_array_equal(np.random.get_state()[1], state)  # noqa: NPY002


@pytest.mark.parametrize("policy", ["random", by_observation])
@pytest.mark.parametrize("env", [Mortal, "CartPole-v1", "rido/LQG-v0", SharedBuffer])
def test_what_is_reproducible_is_not_suspected(env, policy):
    if env == "rido/LQG-v0":
        policy = None
    assert evaluate(env, policy).reproducible


def test_a_resumed_run_is_not_checked_again(tmp_path, monkeypatch):
    checked = []
    original = GymnasiumSimulator.collect

    def collect(self, request):
        checked.extend([request] if request.wants == "trial" else [])
        return original(self, request)

    monkeypatch.setattr(GymnasiumSimulator, "collect", collect)
    first, second = (evaluate(Mortal, run=tmp_path / "run.rido") for _ in range(2))
    assert len(checked) == 1 and first.value == second.value


def test_old_environments_are_named_by_the_simulator_too():
    simulator = GymnasiumSimulator(OldReset, zeros, horizon=10)
    with pytest.raises(SimulationError, match="the environment's reset takes no seed, Gymnasium's takes seed="):
        simulator.starts([1])
