"""Starts from Sobol points, through evaluate() and compare()."""

import subprocess
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

import rido
from environments import Mortal
from rido.comparison.compare import read_comparison
from rido.core.estimate import Estimate
from rido.core.reward_moments import RewardMoments
from rido.evaluation.recorded import read_run
from rido.record.database import RunFileError
from rido.record.runfile import RunFile
from rido.simulators.sobol import SobolPoints
from rido.strategies.division import Division

ROOT = Path(__file__).resolve().parents[2]
HORIZON, GAMMA, DEATH = 30, 0.95, 0.1


def act(observations):
    return np.zeros(len(observations), dtype=int)


def mortal(**settings):
    options = {"budget": 3000, "gamma": GAMMA, "horizon": HORIZON, "starts": "sobol", "seed": 0, **settings}
    return rido.evaluate(partial(Mortal, death=DEATH), act, **options)


class TestPoints:
    def test_points_do_not_depend_on_how_they_are_asked_for(self):
        whole = SobolPoints(7, stream=2, replicates=3).take(np.arange(60) % 3)
        parts = SobolPoints(7, stream=2, replicates=3)
        first = parts.take(np.arange(7) % 3)
        parts.skip(np.arange(7, 31) % 3)
        np.testing.assert_array_equal(
            np.concatenate([first, parts.take(np.arange(31, 60) % 3)]), whole[[*range(7), *range(31, 60)]]
        )

    def test_each_replicate_is_stratified_and_differs_from_the_others(self):
        """Of 64 consecutive points one lies in each of 64 equal intervals, in every coordinate."""
        points = SobolPoints(7, stream=2, replicates=2)
        one, other = points.take(np.zeros(64, dtype=int)), points.take(np.ones(64, dtype=int))
        for replicate in (one, other):
            assert (np.sort(np.floor(64 * replicate), axis=0) == np.arange(64)[:, None]).all()
        assert np.abs(one - other).min() > 0
        assert not np.array_equal(SobolPoints(8, stream=2, replicates=2).take(np.zeros(64, dtype=int)), one)


class TestReplicates:
    def test_the_error_is_that_of_the_replicates_means(self):
        """By hand: four replicates of two teams, with returns of their own."""
        rng, teams = np.random.default_rng(0), []
        values = np.array([[1.0, 3.0], [2.0, 6.0]])
        for row in values:
            team = []
            for value in row:
                moments = RewardMoments(2, gamma=1.0)
                rewards = rng.normal(size=(5, 2))
                rewards += value / 2 - rewards.mean(axis=0)
                moments.update(rido.Trajectories(rewards, np.full(5, 2)))
                team.append(moments)
            teams.append(team)
        found = Estimate.from_replicates(teams)
        within = np.mean([2.0, 8.0])  # variances of the means within a team
        assert found.value == pytest.approx(3.0) and found.degrees_of_freedom == 2
        assert found.standard_error == pytest.approx(np.sqrt(within / 4))
        different = Estimate.from_replicates(teams, same_means=False)
        welch = stats.ttest_ind(*values, equal_var=False)
        assert different.standard_error == found.standard_error
        assert different.degrees_of_freedom == pytest.approx(welch.df) and welch.df < 2

    def test_replicates_of_unequal_size_have_the_right_error(self):
        """Independent trajectories of two lengths, 3,000 repetitions: both variances are known to 3%."""
        rng, values, squares = np.random.default_rng(2), [], []
        for _ in range(3000):
            team = []
            for full, short in ((1, 2), (3, 1), (1, 3), (1, 1)):
                moments = RewardMoments(2, gamma=1.0)
                rewards = rng.normal(size=(full + short, 2)) + rng.normal(size=(full + short, 1))
                moments.update(rido.Trajectories(rewards, [2] * full + [1] * short))
                team.append(moments)
            found = Estimate.from_replicates([team])
            values.append(found.value)
            squares.append(found.standard_error**2)
        assert np.mean(squares) == pytest.approx(np.var(values), rel=0.1)

    def test_replicates_of_a_team_take_turns(self):
        division = Division(teams=2, members=3)
        groups = division.deal(np.array([0, 1, 0, 0, 1, 0]), np.array([1, 0]))
        assert groups.tolist() == [1, 3, 2, 0, 4, 1]

    def test_gains_tell_what_even_starts_leave(self):
        """The first reward depends on the start alone, the second on noise: only the first gains."""
        division, groups, rng = Division(teams=2, members=8), [], np.random.default_rng(1)
        points = SobolPoints(3, stream=0, replicates=16)
        for group in range(16):
            start = points.take(np.full(64, group))[:, 0]
            moments = RewardMoments(2, gamma=1.0)
            moments.update(rido.Trajectories(np.stack([start, rng.normal(size=64)], axis=1), np.full(64, 2)))
            groups.append(moments)
        first, second = division.gains(0, groups)
        # v_0 = 1/12 + 1 of which 1 is left; v_1 = 1. A share from 7 degrees of freedom is above 0.2 but in 1 of 1,000.
        assert second > 0.2 and first == pytest.approx(second * 12 / 13, rel=0.1)


@pytest.mark.parametrize("critic", [None, "fit"])
def test_the_estimate_is_right_and_its_interval_holds(critic):
    """15 runs: the mean is off by more than 5 standard errors in 1 of 5,000, fewer than 10 hold in 1 of 10,000."""
    truth = Mortal.expected_return(HORIZON, GAMMA, DEATH)
    results = [mortal(seed=seed, critic=critic, budget=1000, max_resets=320) for seed in range(15)]
    errors = np.array([result.value for result in results]) - truth
    assert abs(errors.mean()) < 5 * errors.std(ddof=1) / np.sqrt(15)
    assert sum(low < truth < high for low, high in (result.interval() for result in results)) >= 10


def test_even_starts_pay_where_the_start_decides():
    """Rewards that depend on the start alone: 9 times less variance; 4 is missed by chance in less than 1 of 1,000.

    Rewards so far tell the start, too, so they are left out.
    """
    plain = rido.Adaptive(settings={"so_far": 0})
    settings = dict(horizon=5, gamma=1.0, budget=1000, death=0.0, strategy=plain)
    env = partial(Mortal, death=settings.pop("death"))
    random, sobol = (
        np.var([rido.evaluate(env, act, **settings, starts=starts, seed=seed).value for seed in range(40)])
        for starts in ("random", "sobol")
    )
    assert sobol < random / 4


@pytest.mark.parametrize("critic", [None, "auto"])
def test_parallelism_and_run_files_do_not_change_a_bit(critic, tmp_path):
    alone = mortal(critic=critic)
    assert mortal(critic=critic, num_envs=3).value == alone.value
    path = tmp_path / "run.rido"
    recorded = mortal(critic=critic, run=path)
    again = read_run(path).evaluation
    assert recorded.value == again.value == alone.value and again.standard_error == alone.standard_error
    assert mortal(critic=critic, run=path).value == alone.value
    with pytest.raises(RunFileError, match="its starts is 'sobol', not 'random'"):
        mortal(critic=critic, run=path, starts="random")


def test_an_interrupted_run_goes_on_at_the_same_points(tmp_path, monkeypatch):
    path, append, written = tmp_path / "run.rido", RunFile.append, []

    def stop(self, *row):
        append(self, *row)
        written.append(row)
        if len(written) == 7:
            raise KeyboardInterrupt

    monkeypatch.setattr(RunFile, "append", stop)
    with pytest.raises(KeyboardInterrupt):
        mortal(run=path, num_envs=2)
    monkeypatch.setattr(RunFile, "append", append)
    assert mortal(run=path).value == mortal().value


def test_compare_takes_the_same_points_for_all(tmp_path):
    policies = {"one": "random", "other": act}
    settings = dict(gamma=GAMMA, horizon=HORIZON, budget=6000, starts="sobol", seed=0)
    env, path = partial(Mortal, death=DEATH), tmp_path / "compare.rido"
    found = rido.compare(env, policies, **settings)
    assert found.difference("one", "other").value == 0  # actions change nothing here
    assert rido.compare(env, policies, **settings, run=path, num_envs=2).values == found.values
    assert read_comparison(path).values == found.values


def test_what_cannot_be_is_named():
    with pytest.raises(ValueError, match="starts must be one of 'random', 'sobol', got 'even'"):
        mortal(starts="even")
    with pytest.raises(
        ValueError, match="budget must pay for 18 full-length trajectories with Sobol starts, 540 trans"
    ):
        mortal(budget=500)
    with pytest.raises(ValueError, match="starts='sobol' works only with a simulator that takes points, not"):
        bank = rido.simulators.BankSimulator(np.ones((50, 5)))
        rido.evaluate(bank, gamma=1.0, horizon=5, budget=1000, starts="sobol", seed=0)
    with pytest.raises(ValueError, match="reseed must be True with starts='sobol', got False"):
        mortal(reseed=False)
    with pytest.raises(ValueError, match="'robust' planned fewer: use strategy 'adaptive'"):
        mortal(strategy="robust", budget=600)


def test_the_study_has_a_short_form(tmp_path):
    page = tmp_path / "variance.md"
    study = [sys.executable, ROOT / "benchmarks" / "variance.py", "--quick", "--output", page, "--cells", tmp_path]
    subprocess.run([*study, "--sections", "lqg,reacher,planned"], check=True, capture_output=True)
    rows = [line.split(" | ") for line in page.read_text().splitlines() if line.startswith("| lqg")]
    assert [row[3] for row in rows] == ["plain episodes", "default", "Sobol", "auto", "Sobol, auto"]
    assert "| reacher, T = 50, gamma 1 | 1,000 | 2 |" in page.read_text()
    assert "| CartPole, T = 200, gamma 0.9 | 4,000 | 2 |" in page.read_text()
