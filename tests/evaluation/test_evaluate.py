"""evaluate(): right where others are known to be wrong, and nothing lost when something breaks."""

import json
import math
import random
import sqlite3
import time
from dataclasses import replace
from functools import partial
from itertools import pairwise

import gymnasium as gym
import numpy as np
import pytest
from scipy import stats

import rido
from environments import Faulty, Mortal, ShortIsSweet
from helpers import assert_calibrated, needs
from interrupted import kill_until_done, pieces, slow_run, start
from rido import Adaptive, Estimate, RewardMoments, Schedule, Trajectories
from rido.evaluation import source
from rido.evaluation.recorded import read_run
from rido.record.database import RunFileError
from rido.record.runfile import RunFile
from rido.simulators import SimulationError, factory
from rido.simulators.base import Capabilities, Found, Simulator
from rido.simulators.envs.lqg import expected_return
from rido.simulators.gymnasium import GymnasiumSimulator
from runfiles import edit


def act(observations):
    return (observations[:, 0] > 0).astype(int)


def mortal(**settings):
    return rido.evaluate(partial(Mortal, death=0.1), act, **{"budget": 3000, "gamma": 0.95, "horizon": 30, **settings})


@pytest.mark.parametrize("strategy", ["uniform", "robust", "rido"])
@pytest.mark.parametrize("gamma", [0.9, 1.0])
def test_lqg_is_covered_and_the_budget_is_spent(strategy, gamma):
    results = [
        rido.evaluate("rido/LQG-v0", budget=3000, gamma=gamma, horizon=15, strategy=strategy, seed=seed)
        for seed in range(40)
    ]
    assert_calibrated(results, expected_return(15, gamma))
    for result in results:
        assert result.transitions == 3000 == result.schedule.transitions
        assert result.trajectories == result.schedule.trajectories


@pytest.mark.parametrize("strategy", ["uniform", "robust", "rido"])
def test_early_ends_are_paid_back_and_covered(strategy):
    results = [mortal(strategy=strategy, seed=seed) for seed in range(40)]
    assert_calibrated(results, Mortal.expected_return(30, 0.95, 0.1))
    # The policy takes batches, so environments run side by side, which at most 100 transitions rehearse.
    assert all(2900 < result.transitions <= 3100 and result.schedule.transitions > 3000 for result in results)


@pytest.mark.parametrize(
    ("schedule", "shortens"),
    [
        (Schedule.uniform(20, 200), False),
        (Schedule.robust(20, 200, gamma=0.9), True),
        (Schedule([40] * 3 + [9] * 9 + [4] * 8), True),
    ],
)
def test_fixed_schedules_are_unbiased_under_random_termination(schedule, shortens):
    """2,000 repetitions, mean error within 3 standard errors: one false alarm in 370 each, seeds fixed.

    Counting zeros up to the horizon fails the same check where a schedule has short trajectories.
    """
    repetitions, horizon, gamma = 2000, 20, 0.9
    simulator = GymnasiumSimulator(partial(Mortal, death=0.15), act, horizon=horizon)
    batch = simulator.rollout(np.tile(schedule.lengths, repetitions), range(schedule.trajectories * repetitions))
    rewards = batch.rewards.reshape(repetitions, schedule.trajectories, -1)
    steps = batch.steps.reshape(repetitions, -1)

    def error_in_standard_errors(lengths_of):
        values = []
        for repetition in range(repetitions):
            moments = RewardMoments(horizon, gamma=gamma)
            moments.update(Trajectories(rewards[repetition], lengths_of(steps[repetition]), steps[repetition]))
            values.append(Estimate.from_moments(moments).value)
        return abs(np.mean(values) - Mortal.expected_return(horizon, gamma, 0.15)) / stats.sem(values)

    assert error_in_standard_errors(lambda steps: schedule.lengths) < 3
    wrong = error_in_standard_errors(lambda steps: np.where(steps < schedule.lengths, horizon, schedule.lengths))
    assert (wrong > 3) == shortens


@pytest.mark.parametrize("num_envs", [1, 8])
def test_short_episodes_are_not_favoured(num_envs):
    """The mean is 5; a tool that takes the first episodes to finish finds close to 10. False alarm 1 in 10,000."""
    result = rido.evaluate(
        ShortIsSweet, "random", budget=20_000, gamma=1.0, horizon=50, strategy="uniform", num_envs=num_envs, seed=1
    )
    assert abs(result.value - 5) < 4 * result.standard_error + 0.05
    assert 20_000 - 50 < result.transitions <= 20_000


@pytest.mark.parametrize("env_id", ["Pendulum-v1", "CartPole-v1"])
def test_uniform_agrees_with_evaluate_policy(env_id, agents_dir):
    """Within Monte Carlo error: 4 standard errors of the difference, one false alarm in 15,000."""
    ppo = needs("stable_baselines3", "sb3").PPO
    from stable_baselines3.common.env_util import make_vec_env
    from stable_baselines3.common.evaluation import evaluate_policy

    if env_id == "CartPole-v1":
        policy = ppo(
            "MlpPolicy", env_id, seed=3, device="cpu"
        )  # its untrained action flips with the pole: short episodes
        horizon, episodes = 500, 200
    else:
        policy = agents_dir / "ppo" / env_id / f"{env_id}.zip"
        horizon, episodes = 200, 60
    result = rido.evaluate(
        env_id, policy, budget=episodes * horizon, gamma=1.0, horizon=horizon, strategy="uniform", num_envs=8, seed=0
    )
    model = policy if env_id == "CartPole-v1" else ppo.load(policy, device="cpu", custom_objects=spaces_of(env_id))
    envs = make_vec_env(env_id, n_envs=10, seed=5)
    returns, _ = evaluate_policy(model, envs, n_eval_episodes=episodes, return_episode_rewards=True)
    error = math.hypot(result.standard_error, stats.sem(returns))
    assert abs(result.value - np.mean(returns)) < 4 * error + 1e-9


def spaces_of(env_id):
    env = gym.make(env_id)
    return {"observation_space": env.observation_space, "action_space": env.action_space}


def test_the_number_of_environments_does_not_change_a_bit():
    results = [mortal(seed=9, num_envs=n) for n in (1, 2, 7, 16)]
    assert len({result.value for result in results}) == 1
    assert len({result.standard_error for result in results}) == 1
    assert results[0].value != mortal(seed=10).value


@pytest.mark.entropy("it is the seed that is drawn")
def test_a_seed_is_drawn_and_reported():
    result = mortal()
    assert mortal(seed=result.seed).value == result.value
    assert mortal().value != result.value


def test_uniform_transitions_are_what_uniform_took():
    result = mortal(strategy="uniform", seed=0)
    assert result.uniform_transitions == pytest.approx(result.transitions, rel=0.1)
    better = rido.evaluate("rido/FirstStep-v0", budget=5000, gamma=1.0, horizon=10, seed=0)
    assert better.uniform_transitions == pytest.approx(10 * better.trajectories, rel=0.15)


def test_horizon_comes_from_the_discount_and_the_time_limit():
    assert factory.horizon_for(0.9) == 66 and 0.9**66 <= 1e-3 < 0.9**65
    short = rido.evaluate("Pendulum-v1", "random", budget=1000, gamma=0.9, seed=0)
    assert short.schedule.horizon == 66
    assert rido.evaluate("Pendulum-v1", "random", budget=1000, gamma=0.999, seed=0).schedule.horizon == 200
    assert rido.evaluate("CartPole-v1", "random", budget=1500, gamma=1, seed=0).schedule.horizon == 500
    with pytest.raises(ValueError, match="horizon must be given where gamma is 1"):
        rido.evaluate("rido/LQG-v0", budget=1000, gamma=1, seed=0)


def test_results_print_and_export():
    result = mortal(seed=0)
    text, (low, high) = result.summary(), result.interval()
    assert 2 < high - low < 20  # so that two digits of the half-width are one decimal
    assert f": {result.value:.1f}, 95% interval [{low:.1f}, {high:.1f}]" in text
    assert "uniform evaluation would have needed" in text
    exported = json.loads(json.dumps(result.to_dict(), allow_nan=False))
    assert exported["value"] == result.value and sum(exported["counts"]) == result.schedule.transitions
    alone = rido.evaluate("rido/LQG-v0", budget=30, gamma=0.95, horizon=30, strategy="uniform", seed=0)
    assert alone.schedule.counts.tolist() == [1] * 30
    assert json.loads(json.dumps(alone.to_dict(), allow_nan=False))["standard_error"] is None
    assert result.plot().get_xlabel() == "time step"


class Bank:
    """A simulator of one's own: anything with rollout()."""

    num_envs = 4

    def rollout(self, lengths, seeds):
        return Trajectories(
            np.concatenate([np.random.default_rng(s).normal(2, 1, n) for n, s in zip(lengths, seeds, strict=True)]),
            lengths,
        )


def test_own_simulators_serve_too():
    results = [rido.evaluate(Bank(), budget=500, gamma=1.0, horizon=10, seed=seed) for seed in range(40)]
    assert_calibrated(results, 20)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (dict(budget=29), "budget must pay for"),
        (dict(gamma=0), r"gamma must be in \(0, 1\], got 0"),
        (dict(gamma=1.2), r"gamma must be in \(0, 1\], got 1.2"),
        (dict(strategy="best"), "strategy must be one of 'adaptive', .*, got 'best'"),
        (dict(seed=-1), "seed must be an integer of at least 0, got -1"),
    ],
)
def test_bad_settings_are_named(settings, message):
    with pytest.raises(ValueError, match=message):
        mortal(**settings)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (dict(policy=act), "policy must be None with a simulator of your own, got <function act .*: it acts by itself"),
        (dict(workers=2), r"workers must be 1 with a simulator of your own, got 2: let its rollout\(\) use several"),
        (dict(policy=np.zeros(3)), "policy must be None with a simulator of your own, got array"),
        (dict(num_envs=3), "num_envs must be None .*, got 3: set the simulator's attribute num_envs"),
        (dict(simulator="nonsense"), "simulator must be None .*, got 'nonsense': leave it out"),
        (dict(simulator=GymnasiumSimulator), "simulator must be None .*, got <class"),
        (dict(env_kwargs={"noise": 1}), "env_kwargs must be None .*, got {'noise': 1}: make the simulator with them"),
        (dict(deterministic=False), "deterministic must be True .*, got False: make the simulator act as it should"),
    ],
)
def test_settings_that_an_own_simulator_would_ignore_are_refused(settings, message):
    with pytest.raises(ValueError, match=message) as caught:
        rido.evaluate(Bank(), **{"budget": 500, "gamma": 1.0, "horizon": 10, **settings})
    assert "\n" not in str(caught.value)
    rido.evaluate(Bank(), budget=500, gamma=1.0, horizon=10, env_kwargs={}, workers=np.int64(1), seed=0)


@pytest.mark.parametrize(
    ("simulator", "message"),
    [
        ("gymnasium", "workers must be 1 with simulator 'gymnasium', got 2: give simulator 'workers' or leave it out"),
        ("envpool", "workers must be 1 with simulator 'envpool', got 2: it has its own threads"),
        ("ray", r"workers must be 1 with simulator 'ray', got 2: simulator=partial\(RaySimulator, num_actors="),
        ("jax", "workers must be 1 with simulator 'jax', got 2: it uses the whole device"),
        (GymnasiumSimulator, "workers must be 1 with a function that makes a simulator, got 2: give the function"),
    ],
)
def test_workers_that_a_simulator_would_ignore_are_refused(simulator, message):
    with pytest.raises(ValueError, match=message):
        mortal(simulator=simulator, workers=2)


# Run files


@pytest.mark.entropy("a run file keeps the seed that was drawn")
def test_a_run_file_records_resumes_and_repeats(tmp_path, monkeypatch):
    monkeypatch.setattr(source, "_PIECE_SECONDS", 1e-4)
    path = tmp_path / "run.rido"
    first = mortal(run=path)
    assert len(pieces(path)) > 5
    collected = []
    original = GymnasiumSimulator.collect
    monkeypatch.setattr(GymnasiumSimulator, "collect", lambda self, *a: collected.append(a) or original(self, *a))
    again = mortal(run=path)
    assert (again.value, again.standard_error, again.seed) == (first.value, first.standard_error, first.seed)
    assert again.schedule == first.schedule and not collected
    edit(path, ("DELETE FROM pieces WHERE number >= (SELECT max(number) - 2 FROM pieces)",))  # were never written
    resumed = mortal(run=path, num_envs=3)
    assert (resumed.value, resumed.standard_error) == (first.value, first.standard_error)
    assert len(collected) >= 1


@pytest.mark.parametrize(
    ("change", "difference"),
    [
        (dict(budget=2000), "budget must be at least its 3,000 transitions, got 2,000"),
        (dict(gamma=0.9), "its gamma is 0.95, not 0.9"),
        (dict(horizon=20), "its horizon is 30, not 20"),
        (dict(strategy="uniform"), "its strategy is 'adaptive', not 'uniform'"),
        (dict(seed=2), "its seed is 1, not 2"),
        (dict(strategy=partial(Adaptive, unbiased=True)), "its options is"),
    ],
)
def test_a_run_file_of_another_run_is_refused(tmp_path, change, difference):
    mortal(run=tmp_path / "run.rido", seed=1)
    with pytest.raises(RunFileError, match=difference):
        mortal(run=tmp_path / "run.rido", **{"seed": 1, **change})


class Talkative(Bank):
    """A simulator that says why its numbers may differ, and whose rewards deserve a warning."""

    capabilities = Capabilities(found=Found(notes=("the robot is tired",)))

    def rollout(self, lengths, seeds):
        rewards = super().rollout(lengths, seeds).flat
        return Trajectories(np.where(rewards > 4, 1e3, 0.0), lengths)


@pytest.mark.parametrize(
    ("env", "settings", "said"),
    [
        (Talkative(), dict(), ["the robot is tired"]),
        (Talkative(), dict(critic="auto"), ["the robot is tired", "no critic was used"]),
        (partial(Mortal, death=0.1), dict(policy=act, time_budget=5.0), ["depended on the speed of the machine"]),
    ],
    ids=["simulator", "critic", "time"],
)
def test_a_reopened_run_remembers_what_to_know_of_it(env, settings, said, tmp_path):
    settings = dict(budget=2000, gamma=0.95, horizon=30, seed=1, run=tmp_path / "run.rido", **settings)
    first = rido.evaluate(env, **settings)
    assert not first.reproducible and all(any(text in warning for warning in first.warnings) for text in said)
    recorded = read_run(tmp_path / "run.rido").evaluation
    again = rido.evaluate(env, **settings)
    for other in (recorded, again):
        assert other.reproducible == first.reproducible and other.warnings == first.warnings
        assert (other.value, other.transitions) == (first.value, first.transitions)


def test_what_to_know_of_a_part_of_a_run_is_known_of_all(tmp_path, monkeypatch):
    """The first half was collected where rounding was not sure; the file remembers when the rest is."""
    monkeypatch.setattr(source, "_PIECE_SECONDS", 1e-4)
    path, simulator = tmp_path / "run.rido", GymnasiumSimulator(partial(Mortal, death=0.1), act, horizon=30)
    settings = dict(budget=2000, gamma=0.95, horizon=30, seed=1, run=path)
    noted = replace(simulator.capabilities, found=Found(notes=("the machine is new",)))
    with monkeypatch.context() as patch:
        patch.setattr(GymnasiumSimulator, "capabilities", noted)
        first = rido.evaluate(simulator, **settings)
    edit(path, ("DELETE FROM pieces WHERE number >= 3",))
    again = rido.evaluate(simulator, **settings)
    assert again.warnings == first.warnings and not again.reproducible and again.value == first.value
    assert read_run(path).evaluation.warnings == first.warnings and not read_run(path).evaluation.reproducible


def test_a_run_with_nothing_to_tell_is_reproducible(tmp_path):
    path = tmp_path / "run.rido"
    assert mortal(run=path, seed=0).reproducible
    assert mortal(run=path, seed=0).reproducible and read_run(path).evaluation.reproducible


def test_a_damaged_run_file_is_refused(tmp_path):
    (tmp_path / "noise.rido").write_bytes(random.Random(0).randbytes(4096))
    with pytest.raises(RunFileError, match="cannot be used: file is not a database"):
        mortal(run=tmp_path / "noise.rido", seed=1)
    with pytest.raises(RunFileError, match="cannot be used"):
        mortal(run=tmp_path / "missing" / "run.rido", seed=1)
    path = tmp_path / "run.rido"
    mortal(run=path, seed=1)
    with sqlite3.connect(path) as database:
        database.execute("UPDATE pieces SET rewards = zeroblob(length(rewards)) WHERE number = 0")
    with pytest.raises(RunFileError, match="is damaged at piece 0"):
        mortal(run=path, seed=1)
    with sqlite3.connect(tmp_path / "other.rido") as database:
        database.execute("CREATE TABLE photos (name TEXT)")
    with pytest.raises(RunFileError, match="cannot be used: it is an SQLite file, but no run file"):
        mortal(run=tmp_path / "other.rido", seed=1)


def test_everything_before_a_fault_stays_in_the_run_file(tmp_path, monkeypatch):
    monkeypatch.setattr(source, "_PIECE_SECONDS", 1e-6)
    path = tmp_path / "run.rido"
    with pytest.raises(
        SimulationError, match=r"trajectory \d+ failed at step 3 \(seed \d+\): the reward is nan"
    ) as caught:
        rido.evaluate(partial(Faulty, "nan"), act, budget=3000, gamma=0.95, horizon=30, num_envs=1, seed=2, run=path)
    assert len(pieces(path)) == caught.value.trajectory  # one trajectory a piece


def test_kill_at_any_moment_loses_nothing_that_was_recorded(tmp_path):
    """At least 20 SIGKILLs at random moments; the run ends with the numbers of an undisturbed one."""
    path = tmp_path / "killed.rido"
    recorded = kill_until_done(path)
    assert len(recorded) >= 20 and len(recorded[-1]) > 20
    for before, after in pairwise(recorded):
        assert after == list(range(len(after))) and len(after) >= len(before)
    assert slow_run(path) == slow_run(tmp_path / "undisturbed.rido")


def test_others_can_watch_a_run(tmp_path):
    path = tmp_path / "run.rido"
    child = start(slow_run, path)
    counts = []
    while child.is_alive():
        counts.append(len(pieces(path)))
        time.sleep(0.02)
    child.join()
    assert child.exitcode == 0
    assert counts == sorted(counts) and len(set(counts)) > 3
    told = read_run(path)
    value, standard_error, transitions, *_ = slow_run(path)
    assert told.transitions[-1] == transitions and 6000 < transitions <= 6100  # with the rehearsal
    assert (told.estimates[-1].value, told.estimates[-1].standard_error) == (value, standard_error)


def test_progress_shows_the_interval_that_the_result_prints(monkeypatch):
    shown = []
    update = "rich.progress.Progress.update"
    monkeypatch.setattr(update, lambda self, task, description: shown.append(description))
    for settings in (dict(), dict(until=300.0)):
        settings = dict(budget=2000, gamma=0.9, horizon=20, seed=1, progress=True, **settings)
        result = rido.evaluate("rido/LQG-v0", **settings)
        assert result.summary().splitlines()[0] == f"linear(0.588403) in rido/LQG-v0: {shown[-1]}"


def test_a_run_file_is_closed_where_the_first_check_fails(tmp_path, monkeypatch):
    class Silent(Simulator):
        num_envs, capabilities = 1, Capabilities(tries=True)

        def collect(self, request):
            assert request.wants == "trial"
            raise RuntimeError("no worker answers")

    closed, close = [], RunFile.close
    monkeypatch.setattr(RunFile, "close", lambda self: closed.append(self.path) or close(self))
    with pytest.raises(RuntimeError, match="no worker answers"):
        rido.evaluate(Silent(), budget=200, gamma=0.9, horizon=10, run=tmp_path / "a.rido", seed=0)
    assert closed == [tmp_path / "a.rido"]
