"""Critics: exact whatever they say, and cheaper the more they know."""

import json
import math
from functools import partial

import gymnasium as gym
import numpy as np
import pytest
from scipy import stats

import rido
from environments import Mortal
from helpers import assert_calibrated, needs
from interrupted import kill_until_done, slow_run
from rido import Trajectories
from rido.evaluation import source
from rido.policies.resolve import resolve_policy
from rido.predictors.base import FunctionCritic, agent_critic, signal
from rido.predictors.features import FeatureExtractor
from rido.record.database import RunFileError
from rido.simulators import BankSimulator
from rido.simulators.envs import lqg
from rido.simulators.gymnasium import GymnasiumSimulator
from runfiles import edit


def act(observations):
    return (observations[:, 1] > 0).astype(int)


def network(observations, steps_to_go):
    """A random network: it knows nothing, and its matrix products round by the batch."""
    rng = np.random.default_rng(0)
    inputs = np.column_stack([np.asarray(observations).reshape(len(steps_to_go), -1), steps_to_go / 10])
    return np.tanh(inputs @ rng.normal(size=(inputs.shape[1], 16))) @ rng.normal(size=16) * 20


def mortal_value(observations, steps_to_go, gamma=0.95, death=0.1):
    """The true value of Mortal: reward t + 1 + start at step t until death."""
    clock, start = np.asarray(observations, dtype=float).T
    k = np.arange(int(steps_to_go.max()))
    alive = np.where(k < np.asarray(steps_to_go)[:, None], (gamma * (1 - death)) ** k, 0.0)
    return alive.sum(axis=1) * (clock + 1 + start) + alive @ k


def mortal(**settings):
    return rido.evaluate(partial(Mortal, death=0.1), act, **{"budget": 3000, "gamma": 0.95, "horizon": 30, **settings})


# The signal


@pytest.mark.parametrize("critic", [network, mortal_value])
@pytest.mark.parametrize("death", [0.0, 0.2, 1.0])
def test_the_signal_telescopes_to_the_return_of_every_trajectory(critic, death):
    horizon, gamma, rng = 12, 0.9, np.random.default_rng(1)
    simulator = GymnasiumSimulator(partial(Mortal, death=death), act, horizon=horizon)
    seen = simulator.observe(np.concatenate([np.full(20, horizon), rng.integers(1, horizon, 60)]), range(80))
    made = signal(FunctionCritic(critic), seen, horizon=horizon, gamma=gamma)
    rows = np.split(seen.observations, np.cumsum(seen.trajectories.steps + 1)[:-1])
    discounts = gamma ** np.arange(horizon)
    lengths = seen.trajectories.lengths
    for i, (length, steps) in enumerate(zip(lengths, seen.trajectories.steps, strict=True)):
        tail = 0.0
        if not seen.terminated[i] and length < horizon:
            tail = gamma**length * critic(rows[i][-1:], np.array([horizon - length]))[0]
        expected = discounts @ np.pad(seen.trajectories.rewards[i], (0, horizon - lengths.max())) + tail
        found = discounts @ made.trajectories.rewards[i] + made.starts[i]
        assert found == pytest.approx(expected, rel=1e-9, abs=1e-9)
        assert (made.trajectories.rewards[i, steps:] == 0).all()


def test_the_true_value_leaves_only_what_cannot_be_known():
    horizon, gamma = 30, 0.95
    seen = GymnasiumSimulator(partial(Mortal, death=0.0), act, horizon=horizon).observe(np.full(20, horizon), range(20))
    value = FunctionCritic(partial(mortal_value, death=0.0))
    assert (
        np.abs(signal(value, seen, horizon=horizon, gamma=gamma).trajectories.flat).max() < 1e-6
    )  # observations are float32


def test_a_critic_of_the_wrong_shape_or_without_numbers_is_named():
    with pytest.raises(ValueError, match=r"critic must return \d+ values, one per observation, got \(1,\)"):
        mortal(critic=lambda observations, steps_to_go: np.zeros(1), seed=0)
    with pytest.raises(ValueError, match="values of the critic must be finite, got nan"):
        mortal(critic=lambda observations, steps_to_go: np.full(len(observations), np.nan), seed=0)


# Exactness


def mortal_bank(rows=300, horizon=12):
    simulator = GymnasiumSimulator(partial(Mortal, death=0.15), act, horizon=horizon)
    seen = simulator.observe(np.full(rows, horizon), range(rows))
    observations = np.zeros((rows, horizon + 1, 2))
    observations[np.arange(horizon + 1) <= seen.trajectories.steps[:, None]] = seen.observations
    return BankSimulator(seen.trajectories.rewards, seen.trajectories.steps, observations)


@pytest.mark.parametrize(
    ("critic", "strategy"),
    [
        (network, "uniform"),
        (lambda o, k: 5 * mortal_value(o, k, death=0.15), "uniform"),
        (lambda o, k: mortal_value(o, k, death=0.15), "uniform"),
        (network, "robust"),
        ("fit", "uniform"),
    ],
    ids=["random network", "5 times too large", "true", "random network, robust", "fit"],
)
def test_any_critic_is_unbiased_and_covered_where_trajectories_end_early(critic, strategy):
    """The mean error is within 3.5 standard errors: one false alarm in 2,000 each, seeds fixed."""
    bank, gamma, repetitions = mortal_bank(), 0.95, 100 if critic == "fit" else 300
    truth = bank.expected_return(gamma)
    results = [
        rido.evaluate(
            bank, budget=240, gamma=gamma, horizon=12, strategy=strategy, critic=critic, seed=seed, max_resets=300
        )
        for seed in range(repetitions)
    ]
    values = np.array([result.value for result in results])
    assert abs(values.mean() - truth) < 3.5 * stats.sem(values)
    covered = np.mean([low < truth < high for low, high in (result.interval() for result in results)])
    assert covered > 0.95 - 3.5 * math.sqrt(0.95 * 0.05 / repetitions)
    assert all(result.transitions <= 240 for result in results)


def test_lqg_is_covered_and_the_riccati_value_carries_it():
    horizon, gamma = 20, 0.9
    table = np.array([lqg.value([0.0, 1.0], k, gamma) for k in range(horizon + 1)])

    def value(observations, steps_to_go):
        return table[steps_to_go, 0] + (table[steps_to_go, 1] - table[steps_to_go, 0]) * observations[:, 0] ** 2

    results = [
        rido.evaluate(
            "rido/LQG-v0", budget=1000, gamma=gamma, horizon=horizon, critic=value, max_resets=2000, seed=seed
        )
        for seed in range(40)
    ]
    assert_calibrated(results, lqg.expected_return(horizon, gamma))
    for result in results:
        assert result.resets == 2000 and result.transitions == 1000
        assert result.uniform_transitions > 20 * result.transitions
        assert result.critic_gain > 2  # 2,000 resets leave no more


# What is reported, and what it costs


def test_resets_are_as_many_as_their_share_asks_for():
    result = mortal(critic=network, seed=1, max_resets=10**6)
    plain = mortal(critic=network, seed=1, max_resets=64)
    assert plain.resets == 64
    assert 64 < result.resets < 10**6
    values = network(GymnasiumSimulator(Mortal, act, horizon=30).starts(range(5000)), np.full(5000, 30))
    share = values.var() / result.resets / result.standard_error**2
    assert share == pytest.approx(0.05, rel=0.25)


def test_resets_that_cost_count_against_the_budget():
    result = mortal(critic=network, seed=1, reset_cost=2.0)
    assert 0 < result.resets <= 150
    plain = mortal(critic=None, seed=1, reset_cost=2.0)
    for found in (result, plain):  # less than one episode stays unspent; a rehearsal takes at most 100 more
        resets, kept = (found.resets, 300) if found is result else (0, 0)
        assert 3000 - kept - 30 < found.transitions - 2 * resets <= 3000 - kept + 100
    with pytest.raises(ValueError, match="reset_cost must be at least 0 and finite, got -1"):
        mortal(critic=network, reset_cost=-1)
    with pytest.raises(ValueError, match="max_resets must be an integer of at least 2, got 1"):
        mortal(critic=network, max_resets=1)


def test_uniform_is_compared_on_rewards():
    """Uniform needs Var(return) / SE^2 trajectories, however good the critic is."""
    result = mortal(critic=mortal_value, seed=2, budget=20_000)
    returns = GymnasiumSimulator(partial(Mortal, death=0.1), act, horizon=30).rollout(np.full(4000, 30), range(4000))
    variance = (returns.rewards @ 0.95 ** np.arange(30)).var()
    expected = variance / result.standard_error**2 * returns.steps.mean()
    assert result.uniform_transitions == pytest.approx(expected, rel=0.2)


def test_results_tell_of_the_critic():
    result = mortal(critic=mortal_value, seed=0)
    assert result.critic.endswith("mortal_value")
    assert f"{result.resets:,} resets" in result.summary()
    exported = json.loads(json.dumps(result.to_dict(), allow_nan=False))
    assert (exported["critic"], exported["resets"]) == (result.critic, result.resets)
    plain = mortal(seed=0)
    assert (plain.critic, plain.resets) == ("none", 0) and math.isnan(plain.critic_gain)
    assert json.loads(json.dumps(plain.to_dict(), allow_nan=False))["critic_gain"] is None


@pytest.mark.parametrize("critic", [network, "fit", "auto"])
@pytest.mark.parametrize("strategy", ["adaptive", "uniform"])
def test_the_number_of_environments_does_not_change_a_bit(critic, strategy):
    results = [mortal(seed=9, num_envs=n, critic=critic, strategy=strategy) for n in (1, 3, 16)]
    assert len({(result.value, result.standard_error, result.critic, result.resets) for result in results}) == 1
    for result in results:  # less than one episode stays unspent; a rehearsal takes at most 100 more
        assert 3000 - 30 < result.transitions <= 3000 + 100


# Fitted and chosen critics


def test_a_fitted_critic_pays_on_pendulum(agents_dir):
    """A quarter of the budget gives a third of the error."""
    settings = dict(gamma=0.9, horizon=200, seed=0)
    agent = agents_dir / "ppo" / "Pendulum-v1" / "Pendulum-v1.zip"
    plain = rido.evaluate("Pendulum-v1", agent, budget=20_000, **settings)
    own, fitted, auto = (
        rido.evaluate("Pendulum-v1", agent, critic=critic, budget=5000, **settings)
        for critic in ("policy", "fit", "auto")
    )
    for result in (own, fitted, auto):
        assert result.standard_error < plain.standard_error / 3
    for one, other in ((own, plain), (fitted, plain), (auto, plain), (fitted, own)):  # the last are the most precise
        difference = abs(one.value - other.value) / math.hypot(one.standard_error, other.standard_error)
        assert difference < 4  # one false alarm in 15,000
    # A fitted critic may be the agent's value alone, where regressions add nothing to it.
    assert own.critic == "policy" and fitted.critic in ("policy", "fit") and auto.critic != "none"


def test_auto_takes_no_critic_where_there_is_nothing_to_know():
    rng = np.random.default_rng(0)
    bank = BankSimulator(rng.normal(size=(500, 20)), observations=rng.normal(size=(500, 21, 3)))
    results = [rido.evaluate(bank, budget=1000, gamma=0.95, horizon=20, critic="auto", seed=s) for s in range(20)]
    assert sum(result.critic == "none" for result in results) >= 18
    assert all(980 < result.transitions <= 1000 for result in results)  # the rest pays for no full trajectory


@pytest.mark.parametrize(
    "space",
    [
        gym.spaces.Box(-1, 1, (2, 3)),
        gym.spaces.Discrete(4, start=2),
        gym.spaces.MultiDiscrete([2, 3]),
        gym.spaces.MultiBinary(3),
        gym.spaces.Dict(b=gym.spaces.Discrete(3), a=gym.spaces.Tuple([gym.spaces.Box(0, 1, (2,))])),
    ],
)
def test_observations_are_flattened_as_gymnasium_does(space):
    from gymnasium.vector.utils import concatenate, create_empty_array

    space.seed(0)
    samples = [space.sample() for _ in range(5)]
    batch = concatenate(space, samples, create_empty_array(space, 5))
    expected = [gym.spaces.flatten(space, sample) for sample in samples]
    np.testing.assert_allclose(FeatureExtractor(space, None)(batch), expected)


class Pictures(gym.ObservationWrapper):
    """Mortal seen through a camera."""

    def __init__(self):
        super().__init__(Mortal())
        self.observation_space = gym.spaces.Box(0, 255, (8, 8, 3), np.uint8)

    def observation(self, observation):
        return np.full((8, 8, 3), int(observation[0]), dtype=np.uint8)


def test_where_a_critic_cannot_serve_auto_does_without():
    settings = dict(budget=1000, gamma=0.95, horizon=30, seed=0)
    result = rido.evaluate(Pictures, "random", critic="auto", **settings)
    assert result.critic == "none"
    assert any("no critic was used: critic cannot be fitted on images" in warning for warning in result.warnings)
    assert result.value == rido.evaluate(Pictures, "random", **settings).value
    with pytest.raises(ValueError, match="critic cannot be fitted on images"):
        rido.evaluate(Pictures, "random", critic="fit", **settings)
    given = rido.evaluate(Pictures, "random", critic=lambda o, k: o[:, 0, 0, 0] * 1.0, **settings)
    assert given.resets > 0


class Blind:
    """A simulator that shows no observations."""

    num_envs = 4

    def rollout(self, lengths, seeds):
        return Trajectories(
            np.concatenate([np.random.default_rng(s).normal(2, 1, n) for n, s in zip(lengths, seeds, strict=True)]),
            lengths,
        )


def test_simulators_without_observations_have_no_critic():
    settings = dict(budget=1000, gamma=0.9, horizon=10, seed=0)
    assert any("no critic" in warning for warning in rido.evaluate(Blind(), critic="auto", **settings).warnings)
    with pytest.raises(ValueError, match=r"critic works only with a simulator that returns observations, not Blind"):
        rido.evaluate(Blind(), critic=network, **settings)


def test_what_cannot_be_is_named():
    with pytest.raises(ValueError, match="critic must be one of 'policy', 'fit', 'auto', got 'best'"):
        mortal(critic="best")
    with pytest.raises(ValueError, match="critic 'policy' works only with an agent that has a value function"):
        mortal(critic="policy")
    with pytest.raises(ValueError, match="must pay for 6 full-length trajectories with a fitted critic"):
        mortal(critic="fit", strategy="uniform", budget=60)


# Agents


@pytest.mark.parametrize("algorithm", ["PPO", "A2C", "TRPO", "SAC", "TD3", "DDPG", "TQC", "DQN"])
@pytest.mark.parametrize("activation", ["ReLU", "GELU"])  # the second is not known in numpy
def test_agents_values_are_those_of_their_networks(algorithm, activation):
    torch, sb3, contrib = (needs(name, "sb3") for name in ("torch", "stable_baselines3", "sb3_contrib"))
    env = gym.make("CartPole-v1" if algorithm == "DQN" else "Pendulum-v1")
    options = {} if algorithm in ("PPO", "A2C", "TRPO") else {"buffer_size": 10}
    options["policy_kwargs"] = {"activation_fn": getattr(torch.nn, activation)}
    model = getattr(sb3, algorithm, None) or getattr(contrib, algorithm)
    model = model("MlpPolicy", env, seed=0, device="cpu", gamma=0.9, **options)
    policy = resolve_policy(model, observation_space=env.observation_space, action_space=env.action_space)
    observations = np.random.default_rng(0).normal(size=(20, *env.observation_space.shape)).astype(np.float32)
    with torch.no_grad():
        tensor = torch.as_tensor(observations)
        if algorithm in ("PPO", "A2C", "TRPO"):
            expected = model.policy.predict_values(tensor)[:, 0]
        elif algorithm == "DQN":
            expected = model.q_net(tensor).max(dim=1).values
        else:
            actions, _ = model.predict(observations, deterministic=True)
            scaled = torch.as_tensor(model.policy.scale_action(actions))
            judged = model.critic(tensor, scaled)
            expected = judged.mean(dim=(1, 2)) if algorithm == "TQC" else (judged[0] + judged[-1])[:, 0] / 2
    critic = agent_critic(policy)
    assert critic.rowwise == (activation == "ReLU")
    found = critic(observations, np.full(20, 3))
    np.testing.assert_allclose(found, expected.numpy() * (1 - 0.9**3), rtol=1e-4, atol=1e-5)


def test_normalised_rewards_are_undone(agents_dir):
    agent = agents_dir / "trpo" / "Swimmer-v3" / "Swimmer-v3.zip"
    needs("mujoco", "mujoco")
    simulator = GymnasiumSimulator("Swimmer-v5", agent, horizon=20)
    critic, normalised = agent_critic(simulator.policy), simulator.policy.vecnormalize
    starts = simulator.starts(range(4))
    import torch

    with torch.no_grad():
        raw = simulator.policy.model.policy.predict_values(torch.as_tensor(normalised.normalize_obs(starts)).float())
    expected = raw[:, 0].numpy() * math.sqrt(float(normalised.ret_rms.var) + normalised.epsilon)
    np.testing.assert_allclose(critic.infinite_horizon(starts), expected, rtol=1e-3)


class Shifted(gym.ObservationWrapper):
    """Short episodes of Pendulum, with observations far from 0."""

    def __init__(self):
        super().__init__(gym.make("Pendulum-v1", max_episode_steps=30))
        self.observation_space = gym.spaces.Box(-np.inf, np.inf, (3,), np.float32)

    def observation(self, observation):
        return (3 * observation + 5).astype(np.float32)


@pytest.fixture(scope="module")
def soft_actor(tmp_path_factory):
    """The zip of a SAC agent after a little training, observations and rewards normalised, and the agent."""
    sb3 = needs("stable_baselines3", "sb3")
    from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

    envs = VecNormalize(DummyVecEnv([Shifted]), gamma=0.9)
    options = dict(learning_rate=3e-3, learning_starts=100, policy_kwargs={"net_arch": [32, 32]})
    model = sb3.SAC("MlpPolicy", envs, gamma=0.9, seed=0, device="cpu", **options).learn(1000)
    folder = tmp_path_factory.mktemp("soft_actor")
    model.save(folder / "agent.zip")
    envs.save(folder / "vecnormalize.pkl")
    return folder / "agent.zip", model


class TestSoftActorCritic:
    def test_values_are_those_of_its_critics_in_units_of_the_rewards(self, soft_actor):
        import torch

        path, model = soft_actor
        simulator, normalised = GymnasiumSimulator(Shifted, path, horizon=30), model.get_vec_normalize_env()
        starts = simulator.starts(range(50))
        scaled = normalised.normalize_obs(starts)
        actions, _ = model.predict(scaled, deterministic=True)
        with torch.no_grad():
            judged = model.critic(torch.as_tensor(scaled).float(), torch.as_tensor(model.policy.scale_action(actions)))
        expected = (judged[0] + judged[1])[:, 0].numpy() / 2 * math.sqrt(float(normalised.ret_rms.var) + 1e-8)
        critic = agent_critic(simulator.policy)
        assert normalised.ret_rms.var > 4 and critic.rowwise and critic.discount == 0.9
        np.testing.assert_allclose(critic.infinite_horizon(starts), expected, rtol=1e-4, atol=1e-3)
        np.testing.assert_array_equal(critic.infinite_horizon(starts[7:10]), critic.infinite_horizon(starts)[7:10])

    @pytest.mark.parametrize("deterministic", [True, False])
    def test_estimates_are_unbiased_and_more_precise(self, soft_actor, deterministic):
        """The bias gives a false alarm once in 10,000 runs (4.7 standard errors, 29 degrees of freedom)."""
        settings = dict(gamma=0.9, horizon=30, strategy="uniform", deterministic=deterministic)
        truth = rido.evaluate(Shifted, soft_actor[0], budget=30_000, seed=0, **settings)
        settings |= dict(budget=600, critic="policy")
        values = np.array([rido.evaluate(Shifted, soft_actor[0], seed=1 + k, **settings).value for k in range(30)])
        error = math.hypot(values.std(ddof=1) / math.sqrt(30), truth.standard_error)
        assert abs(values.mean() - truth.value) < 4.7 * error
        assert values.std() < 0.7 * truth.standard_error * math.sqrt(30_000 / 600)

    def test_numbers_do_not_depend_on_how_many_environments_run_at_once(self, soft_actor):
        settings = dict(budget=1500, gamma=0.9, horizon=30, seed=3, critic="policy")
        one, five = (rido.evaluate(Shifted, soft_actor[0], num_envs=envs, **settings) for envs in (1, 5))
        assert (one.value, one.standard_error, one.schedule) == (five.value, five.standard_error, five.schedule)


# Run files


@pytest.mark.parametrize("critic", [network, "fit", "auto"])
def test_a_run_with_a_critic_resumes_with_the_same_numbers(critic, tmp_path, monkeypatch):
    monkeypatch.setattr(source, "_PIECE_SECONDS", 1e-4)
    monkeypatch.setattr(source, "_RESETS", 100)
    path = tmp_path / "run.rido"
    settings = dict(critic=critic, seed=4, max_resets=1000, num_envs=2)
    first = mortal(run=path, **settings)
    assert (first.value, first.resets) == (mortal(**settings).value, first.resets)
    called, original = [], GymnasiumSimulator.collect
    monkeypatch.setattr(GymnasiumSimulator, "collect", lambda self, *a: called.append(a) or original(self, *a))
    again = mortal(run=path, **settings)
    assert (again.value, again.standard_error, again.resets) == (first.value, first.standard_error, first.resets)
    assert not called
    for statement in (
        "DELETE FROM resets WHERE number >= (SELECT max(number) - 1 FROM resets)",
        "DELETE FROM resets",
        "DELETE FROM pieces WHERE number >= (SELECT max(number) - 5 FROM pieces)",
        "DELETE FROM pieces WHERE number >= 2",
    ):
        edit(path, *[("DELETE FROM resets",)] * ("pieces" in statement), (statement,))
        resumed = mortal(run=path, **settings)
        assert (resumed.value, resumed.standard_error, resumed.critic) == (
            first.value,
            first.standard_error,
            first.critic,
        )
    with pytest.raises(RunFileError, match="its critic is"):
        mortal(run=path, seed=4)


def test_kill_at_any_moment_loses_nothing_that_was_recorded(tmp_path):
    """At least 10 SIGKILLs at random moments; the run ends with the numbers of an undisturbed one."""
    path = tmp_path / "killed.rido"
    recorded = kill_until_done(path, "fit", growth=2)
    assert len(recorded) >= 10 and len(recorded[-1]) > 20
    assert slow_run(path, "fit") == slow_run(tmp_path / "undisturbed.rido", "fit")
