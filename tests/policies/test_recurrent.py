"""Policies with a state: it belongs to the trajectory, whatever runs beside it."""

import gymnasium as gym
import numpy as np
import pytest

import rido
from helpers import needs
from rido.policies.recurrent import RecurrentPolicy
from rido.policies.resolve import resolve_policy
from rido.simulators.gymnasium import GymnasiumSimulator
from rido.simulators.parallel.processes import WorkerSimulator

ENV, HORIZON = "Pendulum-v1", 25
LENGTHS = np.array([25, 3, 25, 17, 1, 9, 25, 12, 25, 6, 25])  # so that trajectories begin while others run
SEEDS = list(range(100, 100 + LENGTHS.size))


def resolve(policy, env=ENV, **settings):
    made = gym.make(env)
    return resolve_policy(policy, observation_space=made.observation_space, action_space=made.action_space, **settings)


def rollout(policy, num_envs=4, **settings):
    simulator = GymnasiumSimulator(ENV, policy, horizon=HORIZON, num_envs=num_envs, **settings)
    return simulator.rollout(LENGTHS, SEEDS).flat


def by_hand(act):
    """Rewards of the same trajectories, one after the other; ``act(observation, state)`` gets None at the start."""
    rewards, env = [], gym.make(ENV)
    for length, seed in zip(LENGTHS, SEEDS, strict=True):
        observation, _ = env.reset(seed=seed)
        state = None
        for _ in range(length):
            action, state = act(observation, state)
            observation, reward, *_ = env.step(action)
            rewards.append(reward)
    return np.array(rewards)


@pytest.fixture(scope="module")
def lstm():
    """A RecurrentPPO agent whose actions depend on what it saw before, with statistics of observations."""
    contrib = needs("sb3_contrib", "sb3")
    import torch
    from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

    envs = VecNormalize(DummyVecEnv([lambda: gym.make(ENV)]), clip_obs=3.0)
    envs.obs_rms.update(np.random.default_rng(0).normal([0.3, 0, 1], [1, 1, 4], size=(500, 3)))
    settings = dict(n_lstm_layers=2, lstm_hidden_size=16)
    model = contrib.RecurrentPPO("MlpLstmPolicy", envs, policy_kwargs=settings, seed=0, device="cpu")
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in model.policy.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator) / parameter.shape[-1] ** 0.5)
    return model


@pytest.fixture
def zipped(lstm, tmp_path):
    lstm.save(tmp_path / "agent.zip")
    lstm.get_vec_normalize_env().save(tmp_path / "vecnormalize.pkl")
    return tmp_path / "agent.zip"


class TestRecurrentPPO:
    def test_acts_as_its_own_predict_in_a_loop(self, lstm, zipped):
        def act(observation, state):
            scaled = lstm.get_vec_normalize_env().normalize_obs(observation)
            start = np.array([state is None])
            return lstm.predict(scaled, state=state, episode_start=start, deterministic=True)

        def forgetful(observation, state):
            return act(observation, None)

        expected = by_hand(act)
        assert np.abs(expected - by_hand(forgetful)).max() > 0.1
        for source in (lstm, zipped):
            np.testing.assert_allclose(rollout(source), expected, rtol=1e-4, atol=1e-4)

    @pytest.mark.parametrize("deterministic", [True, False])
    def test_the_same_bits_beside_any_others(self, lstm, deterministic):
        alone = rollout(lstm, 1, deterministic=deterministic)
        for num_envs in (3, 16):
            np.testing.assert_array_equal(rollout(lstm, num_envs, deterministic=deterministic), alone)

    def test_samples_have_predicts_distribution(self, lstm):
        """400 first actions from each; a difference of more than 5 standard errors has probability 6e-7."""
        policy = resolve(lstm, deterministic=False)
        rows = np.tile(np.array([0.5, -0.5, 1.0], np.float32), (400, 1))
        ours = policy(rows, [np.random.default_rng([1, row]) for row in range(400)])
        theirs, _ = lstm.predict(policy.prepare(rows), deterministic=False)
        error = np.sqrt((ours.var() + theirs.var()) / 400)
        assert policy.reproducible and abs(ours.mean() - theirs.mean()) < 5 * error and ours.std() > 0.1

    def test_a_run_that_resumes_gives_the_same(self, zipped, tmp_path, monkeypatch):
        settings = dict(budget=400, gamma=0.95, horizon=HORIZON, seed=3)
        plain = rido.evaluate(ENV, zipped, **settings)
        assert "observations normalised by vecnormalize.pkl" in plain.summary() and plain.reproducible

        step, calls = RecurrentPolicy.step, []

        def interrupted(self, *arguments):
            calls.append(1)
            if len(calls) > 60:
                raise KeyboardInterrupt
            return step(self, *arguments)

        monkeypatch.setattr(RecurrentPolicy, "step", interrupted)
        with pytest.raises(KeyboardInterrupt):
            rido.evaluate(ENV, zipped, run=tmp_path / "run.rido", num_envs=2, **settings)
        monkeypatch.setattr(RecurrentPolicy, "step", step)
        resumed = rido.evaluate(ENV, zipped, run=tmp_path / "run.rido", **settings)
        assert (resumed.value, resumed.standard_error) == (plain.value, plain.standard_error)
        assert rido.evaluation.recorded.read_run(tmp_path / "run.rido").evaluation.normalisation == plain.normalisation

    def test_its_zip_loads_without_trust_and_it_has_no_value_function(self, lstm, zipped):
        policy = resolve(zipped, trust=False)
        assert policy.value_function() is None and policy.fingerprint != resolve(lstm).fingerprint
        assert resolve(lstm).normalisation == "observations normalised by the model's VecNormalize"


def gru(seed=0, sampling=False):
    torch = needs("torch", "sb3")

    class Gru(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.cell, self.head = torch.nn.GRUCell(3, 12), torch.nn.Linear(12, 1)

        def forward(self, observations, state, episode_start):
            if state is None:
                assert episode_start.all()
                state = torch.zeros(len(observations), 12)
            assert not torch.is_grad_enabled() and not self.training
            state = self.cell(observations, state)
            mean = 2 * torch.tanh(self.head(state))
            return (torch.distributions.Normal(mean, 0.5) if sampling else mean), state

    torch.manual_seed(seed)
    return Gru()


class TestOwn:
    def test_a_gru_acts_as_in_a_loop(self):
        import torch

        module = gru()

        def act(observation, state):
            with torch.no_grad():
                state = torch.zeros(1, 12) if state is None else state
                state = module.cell(torch.as_tensor(observation)[None], state)
                return 2 * torch.tanh(module.head(state))[0].numpy(), state

        found = rollout(module)
        np.testing.assert_allclose(found, by_hand(act), rtol=1e-4, atol=1e-4)
        assert module.training
        for num_envs in (1, 3, 16):
            np.testing.assert_array_equal(rollout(module, num_envs), found)
        assert resolve(module).fingerprint == resolve(gru()).fingerprint != resolve(gru(1)).fingerprint

    def test_a_gru_that_samples_draws_from_the_trajectorys_generator(self):
        found = rollout(gru(sampling=True), 1, deterministic=False)
        np.testing.assert_array_equal(rollout(gru(sampling=True), 7, deterministic=False), found)
        assert not np.array_equal(rollout(gru(sampling=True), deterministic=True), found)

    def test_a_function_whose_state_is_a_dictionary(self):
        """Remembers how often it acted and draws: the state of a row never comes from another one."""

        def act(observations, state, episode_start, generators):
            assert (state is None) == episode_start.all() and episode_start.all() == episode_start.any()
            rows = len(observations)
            state = {"steps": np.zeros(rows), "first": observations} if state is None else state
            noise = np.array([generator.normal(size=1) for generator in generators])
            actions = state["first"][:, :1] * np.cos(state["steps"])[:, None] + noise
            return actions, {"steps": state["steps"] + 1, "first": state["first"]}

        rewards, env = [], gym.make(ENV)
        for length, seed in zip(LENGTHS, SEEDS, strict=True):
            first, _ = env.reset(seed=seed)
            generator = np.random.default_rng([seed, 1])
            rewards += [env.step(first[:1] * np.cos(step) + generator.normal(size=1))[1] for step in range(length)]
        for num_envs in (1, 5):
            np.testing.assert_array_equal(rollout(act, num_envs), np.array(rewards))
        with WorkerSimulator(ENV, act, horizon=HORIZON, num_envs=2, workers=1) as pool:
            np.testing.assert_array_equal(pool.rollout(LENGTHS, SEEDS).flat, np.array(rewards))

    def test_an_object_with_sb3s_predict(self):
        class Remembers:
            def __init__(self, keeps):
                self.keeps = keeps

            def predict(self, observation, state=None, episode_start=None, deterministic=False):
                assert deterministic and (state is None or self.keeps)
                state = observation if state is None else state
                return state[:, 2:], state if self.keeps else None

        np.testing.assert_array_equal(rollout(Remembers(False)), by_hand(lambda seen, _: (seen[2:], None)))

        def first(seen, state):
            state = seen if state is None else state
            return state[2:], state

        np.testing.assert_array_equal(rollout(Remembers(True)), by_hand(first))
        assert resolve(Remembers(True).predict).name.endswith("Remembers")

    def test_wrong_results_are_refused(self):
        zeros = np.zeros((8, 3), np.float32)
        with pytest.raises(ValueError, match="must return a pair, actions and state, got ndarray"):
            resolve(lambda observations, state, episode_start: zeros)(zeros, [None] * 8)
        with pytest.raises(ValueError, match=r"actions of shape \(8, 1\) for 8 observations, got \(8, 3\)"):
            resolve(lambda observations, state, episode_start: (zeros, zeros))(zeros, [None] * 8)
