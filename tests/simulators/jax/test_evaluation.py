"""rido.evaluate and the command line with environments in JAX: built-in, gymnax's and Brax's."""

import importlib.util
import json
import math
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from scipy import stats
from typer.testing import CliRunner

from helpers import counted_compilations

pytest.importorskip("jax", reason='jax is missing: pip install "rido[jax]"')
pytest.importorskip("gymnax", reason="gymnax is missing: pip install --no-deps gymnax")
pytest.importorskip("brax", reason="brax is missing: see the dependency group test")

import gymnax
import jax
import jax.numpy as jnp
from brax import envs as brax_envs

import rido
import rido.jax
from rido.cli import app
from rido.evaluation import evaluate as evaluation
from rido.jax import JaxSimulator
from rido.simulators import factory, trajectory_seeds
from rido.simulators.envs.lqg import expected_return, value
from rido.simulators.gymnasium import GymnasiumSimulator
from rido.simulators.jax import programs
from rido.simulators.jax import summing as jax_summing
from rido.simulators.jax.device import Device

ROOT = Path(__file__).resolve().parents[3]
LQG = rido.jax.lqg()
SETTINGS = dict(gamma=0.9, horizon=30, num_envs=64)


def push(observation):
    return (observation[2] > 0.02).astype(jnp.int32)


def push_numpy(observations):
    return (observations[:, 2] > 0.02).astype(int)


def fall(observation):
    return -observation[1:2]


def constant(params, observation):
    return params


@pytest.fixture(params=[False, True], ids=["rewards", "sums"])
def summing(request, monkeypatch):
    """Whether only sums leave the device."""
    if request.param:
        monkeypatch.setattr(evaluation, "_SUMMED_BUDGET", 0)
    return request.param


def test_the_closed_form_is_found_and_the_same_seed_finds_the_same(summing):
    """Four standard errors, one false alarm in 15,000."""
    result = rido.evaluate(LQG, budget=6000, seed=3, **SETTINGS)
    assert abs(result.value - expected_return(30, 0.9)) < 4 * result.standard_error
    assert result.transitions == 6000 and result.schedule.transitions == 6000
    assert result.environment == "LQG in JAX" and result.reproducible
    assert result.uniform_transitions > 10 * result.transitions
    again = rido.evaluate(LQG, budget=6000, seed=3, **SETTINGS)
    untimed = [{**run.to_dict(), "seconds": 0, "planning_seconds": 0} for run in (result, again)]
    assert untimed[0] == untimed[1]
    assert rido.evaluate(LQG, budget=6000, seed=4, **SETTINGS).value != result.value


@pytest.mark.parametrize("strategy", ["uniform", "adaptive"])
@pytest.mark.parametrize("deaths", [(0.0, 0.005, 0.03), (0.03, 0.0)], ids=["earlier", "later"])
def test_the_next_policy_compiles_nothing_however_early_its_episodes_end(strategy, deaths, monkeypatch):
    """On a device as wide as a GPU: the numbers of slots do not depend on the policy."""

    def step(key, state, action):
        return state, state, jax.random.normal(key) + state[0], jax.random.uniform(key) < action

    env = rido.jax.JaxEnv("Mortal", lambda key: (jax.random.normal(key, (1,)),) * 2, step)
    device = Device(2048, latency=(256, 256), in_time_of_one=256, lanes=4)
    monkeypatch.setattr(Device, "default", lambda num_envs: device)
    monkeypatch.setattr(jax_summing, "_LEAST_COLUMNS", 32)
    monkeypatch.setattr(programs, "_CELLS", 1024)
    monkeypatch.setattr(evaluation, "_SUMMED_BUDGET", 0)

    def run(death):
        settings = dict(budget=80_000, gamma=1.0, horizon=40, strategy=strategy, seed=0)
        return rido.evaluate(env, (constant, jnp.float32(death)), **settings)

    with jax.log_compiles():
        with counted_compilations() as first:
            run(deaths[0])
        assert any("_run_blocks" in line for line in first)
        for death in deaths[1:]:
            with counted_compilations() as compiled:
                result = run(death)
            assert not compiled and result.transitions > 0.9 * 80_000


def test_until_and_other_strategies(summing):
    result = rido.evaluate(LQG, budget=6000, seed=0, until=150.0, **SETTINGS)
    low, high = result.interval()
    assert (high - low) / 2 <= 150 and result.transitions < 6000
    for strategy in ("uniform", "rido"):
        other = rido.evaluate(LQG, budget=4000, seed=1, strategy=strategy, **SETTINGS)
        assert abs(other.value - expected_return(30, 0.9)) < 4 * other.standard_error


def test_a_critic_in_jax_carries_the_estimate(summing):
    """With the true value function only the variance of the first states is left, and little of it with Sobol resets.

    Within 4.5 standard errors, one false alarm in 150,000 (in 2,000 with the 15 degrees of freedom of Sobol resets).
    """
    table = np.array([[float(value(s, h, 0.9)) for h in range(31)] for s in (0.0, 1.0)])
    curvature, constant = jnp.asarray(table[1] - table[0]), jnp.asarray(table[0])

    def critic(observation, steps_to_go):
        return curvature[steps_to_go] * observation[0] ** 2 + constant[steps_to_go]

    result = rido.evaluate(LQG, budget=3000, seed=0, critic=critic, max_resets=6000, **SETTINGS)
    among_starts = float(table[1, 30] - table[0, 30]) * 80**2 * math.sqrt(4 / 45)  # of a square of U[-80, 80]
    if summing:
        assert result.standard_error == pytest.approx(among_starts / math.sqrt(6000), rel=0.05)
    else:
        assert result.standard_error < among_starts / math.sqrt(6000) / 5
    assert result.critic_gain > 2 and result.resets == 6000
    assert abs(result.value - expected_return(30, 0.9)) < 4.5 * result.standard_error


def test_a_critic_can_be_fitted():
    result = rido.evaluate(LQG, budget=3000, seed=0, critic="fit", **SETTINGS)
    assert result.critic == "fit"
    assert abs(result.value - expected_return(30, 0.9)) < 4.5 * result.standard_error


def test_a_run_that_was_interrupted_ends_as_if_it_had_not_been(tmp_path, monkeypatch):
    whole = rido.evaluate(LQG, budget=3000, seed=2, run=tmp_path / "whole.rido", **SETTINGS)
    calls, collect = [], JaxSimulator.collect

    def interrupted(self, *request):
        calls.append(request)
        if len(calls) == 4:
            raise KeyboardInterrupt
        return collect(self, *request)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(JaxSimulator, "collect", interrupted)
        rido.evaluate(LQG, budget=3000, seed=2, run=tmp_path / "broken.rido", **SETTINGS)
    resumed = rido.evaluate(LQG, budget=3000, seed=2, run=tmp_path / "broken.rido", **SETTINGS)
    assert resumed.value == whole.value and resumed.schedule == whole.schedule


def test_gymnax_with_early_ends_agrees_with_gymnasium_and_with_uniform(summing):
    """CartPole under one policy; 4.2 standard errors each, one false alarm in 10,000 in all."""
    env, params = gymnax.make("CartPole-v1")
    adapted = rido.jax.from_gymnax(env, params)
    settings = dict(gamma=0.99, horizon=150, num_envs=64)
    runs = [
        rido.evaluate(adapted, push, budget=budget, seed=seed, strategy=strategy, **settings)
        for seed, (strategy, budget) in enumerate([("adaptive", 6000), ("uniform", 6000)])
    ]
    theirs = GymnasiumSimulator("CartPole-v1", push_numpy, horizon=150)
    returns = theirs.rollout(np.full(150, 150), trajectory_seeds(1, 0, 150)).rewards @ 0.99 ** np.arange(150)
    for run in runs:
        assert run.transitions <= 6000 < run.schedule.transitions  # unspent steps of early ends were spent
        error = math.hypot(run.standard_error, stats.sem(returns))
        assert abs(run.value - returns.mean()) < 4.2 * error
    error = math.hypot(*(run.standard_error for run in runs))
    assert abs(runs[0].value - runs[1].value) < 4.2 * error


def test_a_gymnax_environment_is_known_by_itself_with_its_time_limit():
    env, _ = gymnax.make("MountainCar-v0")
    assert factory.resolve_horizon(env, None, 1.0, simulator="jax") == 200
    with pytest.raises(ValueError, match="horizon must be at most the environment's time limit of 200 steps, got 201"):
        rido.evaluate(env, lambda observation: 0, budget=1000, gamma=0.9, horizon=201, seed=0)


class Forager:
    """As Craftax: gymnax's interface, where the parameter of the time limit has another name or does not exist."""

    name = "Forager"

    def __init__(self, **params):
        self.default_params = SimpleNamespace(**params, replace=lambda **new: SimpleNamespace(**{**params, **new}))

    def reset_env(self, key, params):
        return jnp.zeros(1), jnp.int32(0)

    def step_env(self, key, state, action, params):
        ended = state + 1 >= getattr(params, "max_timesteps", 1000)
        return jnp.ones(1), state + 1, jnp.where(state % 10 == 3, 1.0, 0.5), ended, {}


def test_a_time_limit_of_another_name_is_known_and_none_is_needed_with_a_horizon():
    settings = dict(budget=4000, gamma=1.0, seed=1)
    assert rido.evaluate(Forager(), lambda observation: 0, horizon=40, **settings).value == pytest.approx(22.0)
    limited = Forager(max_timesteps=40)
    assert rido.evaluate(limited, lambda observation: 0, **settings).value == pytest.approx(22.0)
    with pytest.raises(ValueError, match="horizon must be at most the environment's time limit of 40 steps, got 41"):
        rido.evaluate(limited, lambda observation: 0, horizon=41, **settings)


def test_brax_with_early_ends_agrees_with_uniform():
    """4.2 standard errors, one false alarm in 37,000."""
    env = rido.jax.adapt(brax_envs.get_environment("inverted_pendulum", backend="spring"))
    settings = dict(gamma=0.95, horizon=60, num_envs=16)
    runs = [
        rido.evaluate(env, fall, budget=3000, seed=seed, strategy=strategy, **settings)
        for seed, strategy in enumerate(["adaptive", "uniform"])
    ]
    assert all(run.transitions <= 3000 < run.schedule.transitions for run in runs)
    assert runs[0].environment == "InvertedPendulum"
    error = math.hypot(*(run.standard_error for run in runs))
    assert abs(runs[0].value - runs[1].value) < 4.2 * error


def test_the_command_line_reaches_it(tmp_path, monkeypatch):
    arguments = ["evaluate", "rido/LQG-v0", "--simulator", "jax", "--budget", "3000", "--gamma", "0.9", "--seed", "1"]
    result = CliRunner().invoke(app, [*arguments, "--horizon", "30", "--num-envs", "64", "--json"])
    found = json.loads(result.stdout)
    assert found["value"] == rido.evaluate(LQG, budget=3000, seed=1, **SETTINGS).value
    assert found["environment"] == "rido/LQG-v0" and found["policy"].startswith("linear")
    for more, message in [
        (["--workers", "2"], "workers must be 1 with simulator 'jax'"),
        (["--envpool"], "simulator must be given once"),
        (["--critic", "policy"], "critic 'policy' works only with an agent"),
        (["--policy", "random"], "policy must be a JAX function of one observation"),
    ]:
        result = CliRunner().invoke(app, [*arguments, *more])
        assert result.exit_code == 1
        assert message in result.stderr and result.stderr.count("\n") == 1


def test_an_id_has_the_horizon_that_it_has_elsewhere():
    assert factory.resolve_horizon("Pendulum-v1", None, 0.99, simulator="jax") == 200


def blocked(modules, script):
    """Runs a script in a process in which these modules cannot be imported."""
    block = f"import sys\nfor name in {modules!r}: sys.modules[name] = None\n"
    return subprocess.run([sys.executable, "-c", block + script], capture_output=True, text=True)


def test_the_built_in_domains_need_jax_alone():
    script = """
import rido, rido.jax
rido.jax.navigation(), rido.jax.pendulum()
env = rido.jax.lqg()
print(rido.evaluate(env, lambda state: -0.5 * state, budget=500, gamma=0.9, horizon=10, num_envs=16).transitions)
"""
    result = blocked(["gymnasium", "gymnax", "brax", "typer"], script)
    assert result.stdout == "500\n", result.stderr


def test_without_jax_there_is_one_line_that_says_how_to_get_it():
    result = blocked(["jax"], "import rido, rido.simulators\nimport rido.jax")
    assert result.stderr.endswith('ImportError: simulators in JAX need it: pip install "rido[jax]"\n')


def test_importing_rido_does_not_import_jax():
    result = blocked([], "import rido, sys; print('jax' in sys.modules)")
    assert result.stdout == "False\n"


def test_the_benchmark_runs_on_a_cpu(capsys, monkeypatch):
    """With a hundredth of its small budgets and of the budget from which on only sums leave the device."""
    spec = importlib.util.spec_from_file_location("gpu_benchmark", ROOT / "benchmarks" / "gpu" / "speed.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    evaluate, bare = module.Case.evaluate, module.Case.bare_seconds

    def evaluate_less(case, policy=0, *, budget, **settings):
        return evaluate(case, policy, budget=budget // 100, **settings)

    monkeypatch.setattr(evaluation, "_SUMMED_BUDGET", evaluation._SUMMED_BUDGET // 100)
    monkeypatch.setattr(module.Case, "evaluate", evaluate_less)
    monkeypatch.setattr(module.Case, "bare_seconds", lambda case, T, budget, most: bare(case, T, budget // 100, most))
    monkeypatch.setattr(module, "POLICIES", 4)
    module.main(["--small", "--only", "pendulum"])
    page = capsys.readouterr().out
    assert f"on one {jax.devices()[0].device_kind}" in page
    rows = [[cell.strip() for cell in line.split("|")] for line in page.splitlines() if "the same bits" in line]
    assert len(rows) == 1 and abs(float(rows[0][6])) < 4.2
