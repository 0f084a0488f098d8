"""rido.gradient against closed forms, explicit tables and policies that have no gradient."""

import json
import math
from types import SimpleNamespace

import gymnasium as gym
import numpy as np
import pytest

import rido
from helpers import assert_calibrated, needs
from rido.core.trajectories import Trajectories
from rido.gradients.gpomdp import Gpomdp, random_directions
from rido.policies.differentiable import StochasticPolicy, differentiable_policy
from rido.simulators.base import Batch
from rido.simulators.envs.lqg import NOISE, START
from rido.strategies.division import Division

ENV = gym.make("CartPole-v1")
SPACES = ENV.observation_space, ENV.action_space
TABLE = np.random.default_rng(3).normal(size=(2, 4)) / 4  # logits of the two actions, linear in the observation


@pytest.fixture(scope="module")
def torch():
    return needs("torch", "sb3")


def torch_policy(torch, hidden=0):
    class Softmax(torch.nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            layers = [torch.nn.Linear(4, hidden), torch.nn.Tanh()] if hidden else []
            last = torch.nn.Linear(hidden or 4, 2, bias=False, dtype=None if hidden else torch.float64)
            if not hidden:
                last.weight = torch.nn.Parameter(torch.tensor(TABLE))
            self.layers = torch.nn.Sequential(*layers, last)

        def forward(self, observations):
            return torch.distributions.Categorical(logits=self.layers(observations))

    return Softmax()


def jax_policy():
    jax = needs("jax", "jax")
    return StochasticPolicy(
        {"table": jax.numpy.asarray(TABLE)},
        sample=lambda params, key, observation: jax.random.categorical(key, params["table"] @ observation),
        log_prob=lambda params, observation, action: jax.nn.log_softmax(params["table"] @ observation)[action],
    )


@pytest.fixture(params=["torch", "jax"])
def policy(request):
    return torch_policy(needs("torch", "sb3")) if request.param == "torch" else jax_policy()


def synthetic(seed, lengths, horizon):
    """Trajectories of mixed lengths, a third of which end early, with random observations and actions."""
    rng = np.random.default_rng(seed)
    steps = np.where(rng.random(lengths.size) < 1 / 3, rng.integers(1, lengths + 1), lengths)
    terminated = (steps < lengths) | (rng.random(lengths.size) < 0.1)
    trajectories = Trajectories(rng.normal(1, 2, (lengths.size, horizon)), lengths, steps)
    observations = rng.normal(size=(int((steps + 1).sum()), 4))
    return Batch(trajectories, observations, terminated, rng.integers(0, 2, int(steps.sum())))


def scores_of(observed):
    """Score of each step of each trajectory in closed form, flattened: (one-hot - probabilities) times observation."""
    scores, first = [], 0
    for row, steps in enumerate(observed.trajectories.steps.tolist()):
        seen = observed.observations[first + row : first + row + steps]
        logits = seen @ TABLE.T
        chances = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
        chosen = np.eye(2)[observed.actions[first : first + steps]]
        scores.append(np.einsum("ta,to->tao", chosen - chances, seen).reshape(steps, 8))
        first += steps
    return scores


LENGTHS, HORIZON = np.array([7, 7, 7, 7, 5, 5, 4, 2, 2, 1, 1, 1]), 7
TEAMS = np.array([0, 1, 0, 1, 1, 0, 1, 0, 0, 1, 1, 0])


class TestTables:
    def test_one_backward_pass_gives_what_explicit_tables_give(self, policy):
        observed, gamma = synthetic(0, LENGTHS, HORIZON), 0.8
        expected, rewards = np.zeros(8), observed.trajectories.rewards
        for team in (0, 1):
            table = np.zeros((LENGTHS.size, HORIZON, 8))  # R_t S_t
            for row, scores in enumerate(scores_of(observed)):
                sums = np.cumsum(scores, axis=0)
                table[row, : len(sums)] = rewards[row, : len(sums), None] * sums
            for step in range(HORIZON):
                planned = (step < LENGTHS) & (team == TEAMS)
                expected += gamma**step * table[planned, step].mean(axis=0) / 2
        acting = differentiable_policy(policy, *SPACES)
        estimator = Gpomdp(acting, horizon=HORIZON, gamma=gamma, directions=np.eye(8))
        signals = estimator.add(observed, TEAMS)
        tolerance = 1e-12 if type(acting).__name__ == "TorchPolicy" else 1e-5  # JAX has 32 bits here
        np.testing.assert_allclose(estimator.vector(Division(2)), expected, rtol=tolerance, atol=tolerance)
        by_team = []
        for team in (0, 1):
            moments = rido.RewardMoments(HORIZON, gamma=gamma)
            moments.update(signals.select(team == TEAMS))
            by_team.append(moments.means @ moments.discounts)
        found = np.mean(by_team, axis=0)
        np.testing.assert_allclose(found[1:], expected, rtol=tolerance, atol=tolerance)

    def test_a_baseline_is_subtracted_from_the_reward_to_go(self, torch):
        lengths, teams, gamma = np.full(30, 6), np.arange(30) % 3, 0.9
        observed = synthetic(1, lengths, 6)
        acting = differentiable_policy(torch_policy(torch), *SPACES)
        estimator = Gpomdp(acting, horizon=6, gamma=gamma, directions=np.eye(8))
        estimator.add(observed, teams)
        values = estimator.baselines(Division(3))
        rewards, scores = observed.trajectories.rewards, scores_of(observed)
        for team in range(3):  # E |S_t|^2 R_t / E |S_t|^2 of the others, and the share of |S_t|^2 that is alive
            top, bottom, alive = np.zeros((3, 6))
            for row in np.flatnonzero(teams != team):
                sums = np.cumsum(scores[row], axis=0)
                squares = np.sum(np.vstack([sums, np.tile(sums[-1], (6 - len(sums), 1))]) ** 2, axis=1)
                top, bottom = top + squares * rewards[row], bottom + squares
                alive += squares * (np.arange(6) < len(sums))
            to_go = [sum(gamma ** (u - t) * top[u] / bottom[u] for u in range(t, 6)) for t in range(6)]
            np.testing.assert_allclose(values[team], [*(to_go / (alive / bottom)), 0.0])
        expected = np.zeros(8)
        for row, own in enumerate(scores):
            for step, score in enumerate(own):
                to_go = sum(gamma ** (u - step) * rewards[row, u] for u in range(step, 6))
                expected += gamma**step * score * (to_go - values[teams[row], step]) / 30
        np.testing.assert_allclose(estimator.vector(Division(3), values), expected)
        groups = estimator.groups(Division(3), values)
        np.testing.assert_allclose(np.mean([part.means @ part.discounts for part in groups], axis=0)[1:], expected)

    def test_projections_keep_the_trace(self, torch):
        """A false alarm in 2 million: the mean of 40 traces has the variance 2 tr(C^2) / 16 / 40."""
        observed, acting = synthetic(2, np.full(20, 7), 7), differentiable_policy(torch_policy(torch, 8), *SPACES)
        assert acting.size == 56

        def covariance(directions):
            estimator = Gpomdp(acting, horizon=7, gamma=1.0, directions=directions)
            rows = estimator.add(observed, np.zeros(20, dtype=np.int64)).rewards[..., 1:].sum(axis=1)
            return np.cov(rows.T) / 20

        exact, rng = covariance(np.eye(56)), np.random.default_rng(0)
        traces = [np.trace(covariance(random_directions(56, 16, rng))) for _ in range(40)]
        deviation = math.sqrt(2 * np.sum(exact**2) / 16 / 40)
        assert abs(np.mean(traces) - np.trace(exact)) < 5 * deviation < 0.5 * np.trace(exact)
        assert np.array_equal(random_directions(9, 16, rng), np.eye(9))


def lqg_slope(gain, horizon, gamma):
    """dJ/dK of a ~ N(-K s, 1) in closed form, by a complex step: the cost to go is A s^2 + B."""
    gain, curvature, constant = gain + 1e-30j, 0.0, 0.0
    for _ in range(horizon):
        constant = 1 + NOISE + gamma * (curvature * (1 + 2 * NOISE) + constant)
        curvature = 1 + gain**2 + gamma * (1 - gain) ** 2 * curvature
    return (curvature * START**2 / 3 + constant).imag / 1e-30


def square(states, steps_to_go):
    """About the cost to go."""
    return 1.5 * states[:, 0] ** 2


SETTINGS = [{}, {"baseline": "step"}, {"strategy": rido.Adaptive(unbiased=True)}, {"critic": square}]


@pytest.mark.parametrize("settings", SETTINGS)
def test_the_closed_form_of_lqg(torch, settings):
    class Linear(torch.nn.Linear):
        def forward(self, states):
            return torch.distributions.Normal(-super().forward(states), 1.0)

    policy = Linear(1, 1, bias=False, dtype=torch.float64)
    torch.nn.init.constant_(policy.weight, 0.4)
    asked = dict(gamma=0.9, horizon=5, budget=150, **settings)
    found = [rido.gradient("rido/LQG-v0", policy, seed=seed, **asked) for seed in range(16)]
    truth = lqg_slope(0.4, 5, 0.9)
    assert_calibrated([SimpleNamespace(value=one.vector[0], standard_error=one.standard_error) for one in found], truth)
    assert max(one.transitions for one in found) <= 150 and {one.value["weight"].shape for one in found} == {(1, 1)}


class TestGradient:
    def test_does_not_depend_on_the_number_of_environments(self, policy):
        asked = dict(gamma=0.95, horizon=20, budget=400, seed=3, baseline="step")
        one, five = (rido.gradient("CartPole-v1", policy, num_envs=number, **asked) for number in (1, 5))
        assert np.array_equal(one.vector, five.vector) and one.standard_error == five.standard_error
        assert one.schedule == five.schedule and one.returns == five.returns
        assert one.vector.size == 8 and np.ravel(next(iter(one.value.values()))).tolist() == pytest.approx(one.vector)

    @pytest.mark.parametrize("strategy", ["uniform", "robust", "rido"])
    def test_every_strategy_spends_its_budget(self, torch, strategy):
        asked = dict(gamma=0.9, horizon=10, budget=200, seed=0, strategy=strategy)
        found = rido.gradient("CartPole-v1", torch_policy(torch), **asked)
        assert 180 < found.transitions <= 200 and found.strategy == strategy and 0 < found.standard_error < np.inf
        np.testing.assert_allclose(found.vector, found.projections.values[1:], rtol=1e-9)

    def test_projections_of_the_vector_are_what_the_strategy_estimated(self, torch):
        found = rido.gradient("CartPole-v1", torch_policy(torch, 16), gamma=0.95, horizon=40, budget=1500, seed=0)
        assert found.directions.shape == (16, found.vector.size) and found.trajectories > 40
        np.testing.assert_allclose(found.directions @ found.vector, found.projections.values[1:], rtol=1e-3, atol=1e-5)
        assert found.standard_error**2 == pytest.approx(np.trace(found.projections.covariance[1:, 1:]))
        told, returns = json.loads(json.dumps(found.to_dict())), found.returns
        assert told["relative_error"] == found.relative_error == found.standard_error / np.linalg.norm(found.vector)
        assert told["return"] == returns.value and told["counts"][0] == found.trajectories
        assert "112 parameters" in found.summary() and "policy gradient of" in found.summary()

    def test_samples_of_other_distributions_and_actions_outside_the_box(self, torch):
        class Wide(torch.nn.Linear):
            def forward(self, observations):
                return torch.distributions.Laplace(super().forward(observations), 3.0)

        class Echo(gym.Env):
            observation_space, action_space = gym.spaces.Box(-9, 9, (1,)), gym.spaces.Box(-1, 1, (1,))

            def reset(self, *, seed=None, options=None):
                super().reset(seed=seed)
                return np.zeros(1, np.float32), {}

            def step(self, action):
                return np.zeros(1, np.float32), float(action[0]), False, False, {}

        from rido.simulators.gymnasium import GymnasiumSimulator

        acting = differentiable_policy(Wide(1, 1), Echo.observation_space, Echo.action_space)
        observed = GymnasiumSimulator(Echo, acting, horizon=5, num_envs=2).observe(np.array([5, 2, 4, 1]), range(4))
        assert observed.actions.shape == (12, 1) and np.abs(observed.actions).max() > 1
        np.testing.assert_array_equal(observed.trajectories.flat, np.clip(observed.actions[:, 0], -1, 1))
        alone = GymnasiumSimulator(Echo, acting, horizon=5, num_envs=1).observe(np.array([4]), [2])
        np.testing.assert_array_equal(alone.actions, observed.actions[7:11])

    def test_an_agent_of_stable_baselines3(self, torch):
        sb3 = needs("stable_baselines3", "sb3")
        model = sb3.PPO("MlpPolicy", "CartPole-v1", policy_kwargs={"net_arch": [8]}, device="cpu", seed=0)
        asked = dict(gamma=0.95, horizon=30, budget=600, seed=0)
        found = rido.gradient("CartPole-v1", model, **asked, critic="policy")
        assert list(found.value) == [name for name, _ in model.policy.named_parameters()] and found.critic == "policy"
        assert not found.value["value_net.weight"].any() and found.value["action_net.weight"].any()
        with pytest.raises(ValueError, match="policy must be an agent of PPO, A2C or TRPO"):
            rido.gradient("Pendulum-v1", sb3.TD3("MlpPolicy", "Pendulum-v1", device="cpu", buffer_size=1), **asked)

    @pytest.mark.parametrize("baseline", [None, "step"])
    @pytest.mark.parametrize("strategy", ["adaptive", "uniform", "robust", "rido"])
    def test_early_ends_pay_for_more_trajectories(self, torch, strategy, baseline):
        asked = dict(gamma=0.95, horizon=60, budget=1500, strategy=strategy, baseline=baseline)
        for seed in range(3):
            found = rido.gradient("CartPole-v1", torch_policy(torch), **asked, seed=seed)
            assert 1500 - 60 < found.transitions <= 1500 and found.trajectories > 1500 / 60


class TestRefusals:
    def refused(self, match, policy, env="CartPole-v1", **settings):
        with pytest.raises(ValueError, match=match):
            rido.gradient(env, policy, **(dict(gamma=0.9, horizon=10, budget=300, seed=0) | settings))

    def test_policies_without_a_gradient(self, torch):
        class Head(torch.nn.Linear):
            def __init__(self, inputs, outputs, make):
                super().__init__(inputs, outputs)
                self.make = make

            def forward(self, observations):
                return self.make(super().forward(observations))

        distributions = torch.distributions
        categorical = lambda outputs: distributions.Categorical(logits=outputs)  # noqa: E731
        normal = lambda outputs: distributions.Normal(outputs, 1.0)  # noqa: E731
        self.refused("got a Tensor: a deterministic policy has no policy gradient", torch.nn.Linear(4, 2))
        self.refused(r"distribution over Discrete\(2\).* got a Categorical .* over 3 choices", Head(4, 3, categorical))
        self.refused(r"distribution over Discrete\(2\).* got a Normal of shape \(2, 2\)", Head(4, 2, normal))
        self.refused("distribution over Box.* got a Categorical", Head(3, 2, categorical), "Pendulum-v1")
        self.refused(r"of shape \(2, 1\) for 2 .* got a Normal of shape \(2, 2\)", Head(3, 2, normal), "Pendulum-v1")
        self.refused("policy must be a torch module", lambda observations: observations)
        self.refused("parameters that require gradients", torch.nn.Flatten())

    def test_settings(self, torch):
        policy = torch_policy(torch)
        self.refused("until=None", policy, strategy=rido.Adaptive(until=1.0))
        self.refused(
            "baseline must be None with Adaptive", policy, strategy=rido.Adaptive(unbiased=True), baseline="step"
        )
        self.refused("baseline must be one of 'step'", policy, baseline="best")
        self.refused("has a value function", policy, critic="policy")
        self.refused(
            "leave horizon, budget and gamma open", policy, strategy=rido.Uniform(horizon=3, budget=9, gamma=1)
        )
        self.refused("projections must be", policy, projections=0)
        self.refused("env must be an environment of Gymnasium", policy, env=SimpleNamespace(rollout=len))
