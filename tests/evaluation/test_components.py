"""Several components and discounts from the same trajectories: each as if it had been estimated alone."""

import json
from functools import partial
from typing import ClassVar

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from typer.testing import CliRunner

import rido
from environments import Costly, Mortal, TwoRewards, of_transition
from helpers import needs
from interrupted import act
from rido.cli import app
from rido.evaluation.recorded import read_run
from rido.record.database import RunFileError
from rido.record.runfile import RunFile
from rido.simulators.envs import lqg

HORIZON, GAMMA, DEATH = 20, 0.9, 0.1
HOSTILE = "<script>alert(1)</script>"


def costly(env=Costly, components=("cost",), **settings):
    settings = dict(gamma=GAMMA, horizon=HORIZON, budget=3000, seed=2) | settings
    return rido.evaluate(partial(env, death=DEATH), act, components=components, **settings)


def lqg_parts(observation, action, reward, following, info):
    return {"state": observation[0] ** 2, "effort": action[0] ** 2}


def hostile(observation, action, reward, following, info):
    return {HOSTILE: info["cost"]}


class TwoReturns:
    """A simulator of its own with two components: normal numbers, and their squares."""

    num_envs = 16
    components = ("score", "square")

    def rollout(self, lengths, seeds):
        rewards = np.zeros((len(seeds), max(lengths), 2))
        for row, (length, seed) in enumerate(zip(lengths, seeds, strict=True)):
            rewards[row, :length, 0] = np.random.default_rng(seed).normal(size=length)
        rewards[..., 1] = rewards[..., 0] ** 2
        return rido.Trajectories(rewards, lengths)


class TestAgainstSeparateRuns:
    def test_with_full_length_trajectories_the_bits_are_the_same(self):
        together = costly(strategy="uniform", components=("cost", "is_success"))
        alone = costly(strategy="uniform", components=None)
        assert together.value == alone.value and together.estimate == alone.estimate
        assert list(together.components) == ["reward", "cost", "is_success"]
        assert together.transitions == alone.transitions and alone.components == {"reward": alone.estimate}

        class Cost(Costly):
            def step(self, action):
                observation, _, terminated, truncated, info = super().step(action)
                return observation, info["cost"], terminated, truncated, {}

        assert together.components["cost"] == costly(Cost, None, strategy="uniform").estimate

    def test_several_discounts_are_those_of_separate_runs(self):
        gammas = (0.5, 1.0, 0.9)
        together = costly(gamma=gammas, components=None, strategy="uniform")
        assert together.value == together.components["reward, gamma 1"].value
        for gamma in gammas:
            found = together.components[f"reward, gamma {gamma:g}"]
            alone = costly(gamma=gamma, components=None, strategy="uniform").estimate
            assert found.gamma == gamma and found.value == pytest.approx(alone.value, rel=1e-12)
            assert found.interval() == pytest.approx(alone.interval(), rel=1e-9)

    def test_every_component_has_every_discount(self):
        found = costly(gamma=(0.5, 0.9), strategy="uniform")
        assert list(found.components) == [
            f"{name}, gamma {gamma}" for name in ("reward", "cost") for gamma in (0.5, 0.9)
        ]
        alone = costly(gamma=0.5, strategy="uniform").components["cost"]
        assert found.components["cost, gamma 0.5"].value == pytest.approx(alone.value, rel=1e-12)

    def test_a_plan_for_the_reward_alone_is_that_of_a_plain_run(self):
        together, alone = costly(plan_for="reward"), costly(components=None)
        assert together.estimate == alone.estimate and together.trajectories == alone.trajectories
        assert together.uniform_transitions == alone.uniform_transitions
        assert costly(plan_for="cost").value == costly(plan_for="cost").components["cost"].value


def test_closed_forms_of_a_linear_system():
    """Intervals of 99.99%: a false alarm once in 1,600 seeds, and the seed is fixed."""
    horizon, gammas = 20, (0.8, 1.0)
    found = rido.evaluate("rido/LQG-v0", budget=20_000, gamma=gammas, horizon=horizon, seed=4, components=lqg_parts)
    gain, second, expected = lqg.riccati_gain(1.0), lqg.START**2 / 3, {}
    for name in found.components:
        expected[name] = 0.0
    for t in range(horizon):
        for gamma in gammas:
            expected[f"state, gamma {gamma:g}"] += gamma**t * second
            expected[f"effort, gamma {gamma:g}"] += gamma**t * gain**2 * second
        second = (1 - gain) ** 2 * second + 2 * lqg.NOISE
    for gamma in gammas:
        expected[f"reward, gamma {gamma:g}"] = lqg.expected_return(horizon, gamma, gain=gain)
    for name, (low, high) in found.intervals(0.9999).items():
        assert low < expected[name] < high, name
    joint = found.intervals(simultaneous=True)
    assert all(joint[name][0] < low < high < joint[name][1] for name, (low, high) in found.intervals().items())
    value, error = found.components["state, gamma 1"].value, found.components["state, gamma 1"].standard_error
    assert found.confidence_that(below={"state, gamma 1": value + 2 * error}) == pytest.approx(0.977, abs=0.01)


def test_early_ends_leave_zeros_in_every_component():
    """The cost lies within 4.5 standard errors of its expectation: a false alarm once in 100,000 seeds."""
    found = costly(budget=20_000).components
    expected = {
        "reward": Mortal.expected_return(HORIZON, GAMMA, DEATH),
        "cost": Costly.expected_cost(HORIZON, GAMMA, DEATH),
    }
    for name, estimate in found.items():
        assert abs(estimate.value - expected[name]) < 4.5 * estimate.standard_error


class TestWhereComponentsComeFrom:
    def test_a_function_of_the_transition(self):
        found = costly(components=of_transition).components
        assert list(found) == ["reward", "later", "twice", "action", "before"]
        assert found["twice"].value == 2 * found["reward"].value
        one = found["later"].value - found["before"].value  # each step adds 1 to the first number of the observation
        assert one == pytest.approx(float(np.sum((GAMMA * (1 - DEATH)) ** np.arange(HORIZON))), rel=0.1)

    def test_vector_rewards_as_they_are(self):
        plain, vector = costly(), costly(TwoRewards, None)
        assert (
            list(vector.components) == ["reward_0", "reward_1"] and vector.value == vector.components["reward_0"].value
        )
        assert vector.components["reward_1"].value == pytest.approx(plain.components["cost"].value, rel=1e-5)
        named = costly(TwoRewards, ("life", "price"), plan_for="price")
        assert list(named.components) == ["life", "price"] and named.value == named.components["price"].value
        more = costly(TwoRewards, lambda observation, action, reward, following, info: {"sum": reward.sum()})
        assert more.components["sum"].value == pytest.approx(sum(e.value for e in list(more.components.values())[:2]))

    def test_a_scalarised_vector_reward_is_a_plain_one(self):
        scalarised = rido.evaluate(
            lambda: gym.wrappers.TransformReward(TwoRewards(DEATH), lambda reward: float(reward[1])),
            act,
            gamma=GAMMA,
            horizon=HORIZON,
            budget=2000,
            seed=2,
        )
        assert list(scalarised.components) == ["reward"]

    @pytest.mark.parametrize("components", [("cost", "is_success"), of_transition])
    def test_vector_environments(self, components):
        class Batch(gym.vector.VectorEnv):
            """A VectorEnv that is not a list of environments."""

            metadata: ClassVar = {"autoreset_mode": AutoresetMode.DISABLED}

            def __init__(self):
                makers = [partial(Costly, death=DEATH)] * 8
                self._rows = SyncVectorEnv(makers, autoreset_mode=AutoresetMode.DISABLED)
                self.num_envs = 8
                self.single_observation_space = self._rows.single_observation_space
                self.single_action_space = self._rows.single_action_space

            def reset(self, *, seed=None, options=None):
                return self._rows.reset(seed=seed, options=options)

            def step(self, actions):
                return self._rows.step(actions)

        settings = dict(gamma=GAMMA, horizon=HORIZON, budget=1500, seed=2, components=components)
        assert rido.evaluate(Batch(), act, **settings).components == costly(**settings).components

    def test_a_simulator_of_ones_own(self):
        found = rido.evaluate(TwoReturns(), budget=4000, gamma=0.9, horizon=10, seed=1)
        assert list(found.components) == ["score", "square"]
        expected = float(np.sum(0.9 ** np.arange(10)))
        assert abs(found.components["square"].value - expected) < 4.5 * found.components["square"].standard_error

    def test_several_discounts_in_jax(self):
        needs("jax", "jax")
        import rido.jax

        settings = dict(budget=1000, horizon=10, seed=0, strategy="uniform")
        found = rido.evaluate(rido.jax.lqg(), gamma=(0.5, 0.9), **settings)
        alone = rido.evaluate(rido.jax.lqg(), gamma=0.9, **settings)
        assert found.value == alone.value and len(found.components) == 2
        with pytest.raises(ValueError, match="components need Gymnasium environments"):
            rido.evaluate(rido.jax.lqg(), gamma=0.9, components=("cost",), **settings)


class TestRuns:
    def test_workers_and_number_of_environments_change_no_bit(self):
        found = [costly(components=of_transition, **how) for how in ({}, {"num_envs": 3}, {"workers": 2})]
        assert found[0].components == found[1].components == found[2].components
        np.testing.assert_array_equal(found[0].joint.covariance, found[2].joint.covariance)

    def test_run_files_hold_everything(self, tmp_path):
        path, settings = tmp_path / "run.rido", dict(gamma=(0.8, 0.95), components=hostile)
        result = costly(run=path, **settings)
        again, read = costly(run=path, **settings), read_run(path).evaluation
        assert again.components == result.components == read.components
        assert read.summary() == result.summary() and read.to_dict()["components"] == result.to_dict()["components"]
        assert read.returns.quantities() == result.returns.quantities()
        for other in (
            {"gamma": 0.95},
            {"components": None},
            {"plan_for": "reward, gamma 0.8"},
            {"components": of_transition},
        ):
            with pytest.raises(RunFileError, match="is of another run"):
                costly(run=path, **(settings | other))
        plain = tmp_path / "plain.rido"
        costly(run=plain, components=None)
        with pytest.raises(RunFileError, match=r"its components is \[\], not"):
            costly(run=plain)

    @pytest.mark.parametrize("components", [("cost",), of_transition])
    def test_an_interrupted_run_goes_on(self, tmp_path, monkeypatch, components):
        path, append, written = tmp_path / "run.rido", RunFile.append, []

        def stop(self, *row):
            append(self, *row)
            written.append(row)
            if len(written) == 5:
                raise KeyboardInterrupt

        monkeypatch.setattr(RunFile, "append", stop)
        with pytest.raises(KeyboardInterrupt):
            costly(run=path, num_envs=2, components=components)
        monkeypatch.setattr(RunFile, "append", append)
        assert costly(run=path, components=components).components == costly(components=components).components

    def test_the_report_shows_names_as_text(self, tmp_path):
        needs("jinja2", "report")
        from rido.plots.report import report_html

        path = tmp_path / "run.rido"
        result = costly(run=path, components=hostile)
        page = report_html(read_run(path))
        assert "<script" not in page and page.count("&lt;script&gt;") >= 2
        assert "<h2>Components</h2>" in page and "<h2>Distribution of returns</h2>" in page
        assert "<script" not in result._repr_html_()

    def test_the_command_line(self):
        arguments = "evaluate environments:Costly --policy random --budget 1500 --horizon 20 --seed 1 --gamma 0.9"
        options = ["--gamma", "0.8", "--component", "cost", "--plan-for", "cost, gamma 0.8", "--json"]
        found = json.loads(CliRunner().invoke(app, [*arguments.split(), *options]).stdout)
        assert [part["name"] for part in found["components"]] == [
            f"{name}, gamma {gamma}" for name in ("reward", "cost") for gamma in (0.9, 0.8)
        ]
        assert found["value"] == found["components"][3]["value"] and found["plan_for"] == "cost, gamma 0.8"
        assert np.shape(found["covariance"]) == (4, 4)


def test_until_serves_the_leading_component():
    found = costly(until=1.0, budget=100_000)
    assert found.estimate.half_width() <= 1.0 and found.transitions < 100_000
    costs = costly(until=2.0, budget=100_000, plan_for="cost")
    assert costs.components["cost"].half_width() <= 2.0 and costs.value == costs.components["cost"].value


def test_with_sobol_starts_components_have_errors_from_replicates():
    found = costly(starts="sobol", budget=6000)
    assert found.components["cost"].degrees_of_freedom == found.estimate.degrees_of_freedom < 30
    with pytest.raises(ValueError, match="trajectories from Sobol points depend on each other"):
        found.returns.quantile(0.5)


def test_summary_and_joint_statements():
    found = costly(budget=20_000)
    assert [line.partition(":")[0] for line in found.summary().splitlines()[:2]] == [
        "interrupted.act in partial, reward",
        "cost",
    ]
    assert "planned for all" in found.summary()
    cost, reward = found.components["cost"], found.components["reward"]
    loose = found.confidence_that(
        below={"cost": cost.value + 4 * cost.standard_error}, above={"reward": reward.value - 4 * reward.standard_error}
    )
    assert 0.999 < loose < 1
    tight = {"cost": cost.interval(0.9)[1]}, {"reward": reward.interval(0.9)[0]}
    together = found.confidence_that(below=tight[0], above=tight[1])
    assert 0.9 - 1e-6 <= together < found.confidence_that(below=tight[0]) == pytest.approx(0.95)
    assert found.confidence_that(below={"cost": cost.value - 3 * cost.standard_error}) < 0.01
    with pytest.raises(ValueError, match="below must name components, of 'reward', 'cost', got 'costs'"):
        found.confidence_that(below={"costs": 1.0})


class NoCost(Costly):
    def step(self, action):
        *rest, info = super().step(action)
        if self.t > 3:
            info.pop("cost")
        return *rest, info


class BadCost(Costly):
    cost = np.nan

    def step(self, action):
        *rest, info = super().step(action)
        return *rest, info | {"cost": self.cost}


class VectorCost(BadCost):
    cost = np.zeros(2)


def late(observation, action, reward, following, info):
    return {"cost": 1.0} | ({"more": 1.0} if following[0] > 3 else {})


class TestWhatCannotBe:
    @pytest.mark.parametrize(
        ("settings", "message"),
        [
            (dict(env=NoCost), "info lacks the component 'cost', it has 'is_success', 'name': name others, or give a"),
            (dict(env=BadCost), "the component 'cost' is nan"),
            (dict(env=VectorCost), "component 'cost' must be one number for each transition, got array"),
            (dict(components=("name",)), "component 'name' must be one number for each transition, got 'Costly'"),
            (dict(components="cost"), "components must be names in info"),
            (dict(components=("cost", "cost")), "components must have different names"),
            (dict(components=("all",)), "components must have names of printable characters other than 'all'"),
            (dict(components=("a\nb",)), "components must have names of printable characters"),
            (dict(components=()), "components must be at least one name"),
            (dict(components=lambda *transition: [1.0]), "must return a dictionary of numbers, got a list"),
            (dict(components=lambda *transition: {"reward": 1.0}), "must return other names than reward, at least one"),
            (dict(components=lambda *transition: {}), "must return other names than reward, at least one, got none"),
            (dict(components=late), "returned 'more', which it had not before"),
            (dict(components=lambda transition: {}), "takes 1 positional argument but 5 were given"),
            (dict(env=TwoRewards), "components must name the 2 entries of the vector reward, got 1 names"),
            (dict(plan_for="costs"), "plan_for must be one of 'all', 'reward', 'cost', got 'costs'"),
            (dict(components=None, plan_for="cost"), "plan_for works only with components or several gamma"),
            (dict(critic="fit"), "do not go with a critic"),
            (dict(components=None, gamma=(0.5, 0.9), critic="fit"), "do not go with a critic"),
            (dict(reward_range=(0, 30)), "do not go with reward_range"),
            (dict(gamma=(0.9, 0.9)), "gamma must be a discount factor or several different ones"),
            (dict(gamma=(0.9, 1.5)), r"gamma must be in \(0, 1\], got 1.5"),
            (dict(simulator="envpool"), "components need Gymnasium environments"),
        ],
    )
    def test_is_named(self, settings, message):
        with pytest.raises((ValueError, RuntimeError), match=message):
            costly(**settings)

    def test_in_simulators_of_ones_own(self):
        settings = dict(budget=400, gamma=0.9, horizon=10, seed=1)
        with pytest.raises(ValueError, match="components must be None with a simulator of your own"):
            rido.evaluate(TwoReturns(), components=("score",), **settings)

        class Undeclared(TwoReturns):
            components = ("one", "two", "three")

        with pytest.raises(ValueError, match="must return rewards with the components one, two, three"):
            rido.evaluate(Undeclared(), **settings)

    def test_in_comparisons(self):
        settings = dict(gamma=GAMMA, horizon=HORIZON, budget=2000, seed=1)
        with pytest.raises(
            ValueError, match="takes rewards that are numbers, got rewards with the components reward_0"
        ):
            rido.compare(partial(TwoRewards, death=DEATH), {"one": act, "other": "random"}, **settings)
