"""Agents that are plain arrays."""

import json
import math
import pickle
import subprocess
import sys
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest

import rido
from helpers import needs
from rido.policies.npz import MlpPolicy
from rido.policies.resolve import resolve_policy, shipped_agent, shipped_agents
from rido.predictors.base import agent_critic
from rido.simulators import trajectory_seeds
from rido.simulators.gymnasium import GymnasiumSimulator

PENDULUM = shipped_agent("rido:pendulum")


def generators(count, seed=0):
    return [np.random.default_rng([seed, row]) for row in range(count)]


def resolve(path, env_id="Pendulum-v1", **options):
    env = gym.make(env_id)
    return resolve_policy(path, observation_space=env.observation_space, action_space=env.action_space, **options)


def arrays_of_a_tiny_agent(**changes):
    """3 observations, 2 actions in [-1, 1], and values that are 5 whatever the observation."""
    random = np.random.default_rng(0)
    arrays = {
        "actor.0.weight": random.normal(size=(3, 4)),
        "actor.0.bias": random.normal(size=4),
        "actor.1.weight": random.normal(size=(4, 2)),
        "actor.1.bias": np.zeros(2),
        "critic.0.weight": np.zeros((3, 1)),
        "critic.0.bias": np.full(1, 5.0),
        "log_std": np.log([0.01, 0.1]),
        "low": -np.ones(2),
        "high": np.ones(2),
        "mean": np.zeros(3),
        "deviation": np.ones(3),
        "limit": np.array(10.0),
    }
    plain = {key: array.astype(np.float32) for key, array in arrays.items()}
    return {**plain, "gamma": np.array(0.5), "about": np.array("{}"), **changes}


@pytest.fixture(scope="module")
def trained():
    """A PPO agent after a little training, observations and rewards normalised, and observations to ask it about."""
    sb3 = needs("stable_baselines3", "sb3")
    from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

    envs = VecNormalize(DummyVecEnv([lambda: gym.make("Pendulum-v1")]), gamma=0.9, clip_obs=1.5)
    model = sb3.PPO("MlpPolicy", envs, n_steps=256, learning_rate=0.01, gamma=0.9, seed=0, device="cpu").learn(512)
    rows = np.random.default_rng(1).normal(size=(200, 3)) * [1.0, 1.0, 5.0]
    return model, rows.astype(np.float32)


class TestExport:
    def test_acts_and_judges_as_the_model_does(self, trained, tmp_path):
        import torch

        from rido.policies.export import export

        model, rows = trained
        normalised = model.get_vec_normalize_env()
        export(model, {"env": "Pendulum-v1"}).save(tmp_path / "agent.npz")
        policy = resolve(tmp_path / "agent.npz")
        scaled = normalised.normalize_obs(rows)
        assert (np.abs(scaled) == np.float32(1.5)).any()
        expected, _ = model.predict(scaled, deterministic=True)
        np.testing.assert_allclose(policy(rows, [None] * 200), expected, rtol=0, atol=1e-5)
        with torch.no_grad():
            values = model.policy.predict_values(torch.as_tensor(scaled).float())[:, 0].numpy()
        scale = math.sqrt(float(normalised.ret_rms.var) + normalised.epsilon)
        assert scale > 2
        critic = agent_critic(policy)
        np.testing.assert_allclose(critic.infinite_horizon(rows), values * scale, rtol=1e-5, atol=1e-5 * scale)
        np.testing.assert_allclose(
            critic(rows, np.full(200, 3)), critic.infinite_horizon(rows) * (1 - 0.9**3), rtol=1e-12
        )
        assert policy.about == {"env": "Pendulum-v1"}

    def test_agrees_with_the_zip_of_the_same_agent(self, trained):
        from rido.policies.export import export

        model, rows = trained
        plain, agent = export(model), resolve(model)
        np.testing.assert_allclose(plain(rows, [None] * 200), agent(rows, [None] * 200), rtol=0, atol=1e-5)
        np.testing.assert_allclose(
            agent_critic(plain).infinite_horizon(rows), agent_critic(agent).infinite_horizon(rows), rtol=1e-5, atol=1e-4
        )

    def test_without_statistics(self):
        sb3 = needs("stable_baselines3", "sb3")
        from rido.policies.export import export

        model = sb3.A2C("MlpPolicy", "Pendulum-v1", seed=0, device="cpu")
        rows = np.random.default_rng(1).normal(size=(50, 3)).astype(np.float32) * 20
        expected, _ = model.predict(rows, deterministic=True)
        np.testing.assert_allclose(export(model)(rows, [None] * 50), expected, rtol=0, atol=1e-5)

    def test_discrete_actions(self, tmp_path):
        """Sampled ones come as often as the model says; four standard errors, one false alarm in 15,000."""
        torch, sb3 = needs("torch", "sb3"), needs("stable_baselines3", "sb3")
        from rido.policies.export import export

        model = sb3.PPO("MlpPolicy", "Acrobot-v1", seed=0, device="cpu")
        with torch.no_grad():
            model.policy.action_net.bias += torch.tensor([0.0, 1.0, -1.0])
        export(model).save(tmp_path / "agent.npz")
        rows = np.random.default_rng(1).normal(size=(200, 6)).astype(np.float32)
        policy = resolve(tmp_path / "agent.npz", "Acrobot-v1")
        np.testing.assert_array_equal(policy(rows, [None] * 200), model.predict(rows, deterministic=True)[0])
        sampled = resolve(tmp_path / "agent.npz", "Acrobot-v1", deterministic=False)
        actions = sampled(np.repeat(rows[:1], 10_000, axis=0), generators(10_000))
        with torch.no_grad():
            chances = model.policy.get_distribution(torch.as_tensor(rows[:1])).distribution.probs[0].numpy()
        found = np.bincount(actions, minlength=3) / 10_000
        assert (np.abs(found - chances) < 4 * np.sqrt(chances * (1 - chances) / 10_000)).all()
        with pytest.raises(ValueError, match=r"environment must have observations of 6 numbers"):
            resolve(tmp_path / "agent.npz", "CartPole-v1")
        with pytest.raises(ValueError, match=r"environment must have actions of 3 choices for .*, got Discrete\(2\)"):
            policy.fits(gym.make("Acrobot-v1").observation_space, gym.make("CartPole-v1").action_space)

    @pytest.mark.parametrize(
        ("algorithm", "env_id", "activation", "message"),
        [
            ("DQN", "CartPole-v1", "ReLU", "with discrete or normal actions, got DQN"),
            ("PPO", "Pendulum-v1", "ReLU", "with tanh between them, got Linear, ReLU, Linear, ReLU, Linear"),
        ],
    )
    def test_refuses_what_it_cannot_hold(self, algorithm, env_id, activation, message):
        torch, sb3 = needs("torch", "sb3"), needs("stable_baselines3", "sb3")
        from rido.policies.export import export

        options = {"buffer_size": 10} if algorithm == "DQN" else {}
        kind = getattr(torch.nn, activation)
        model = getattr(sb3, algorithm)(
            "MlpPolicy", env_id, policy_kwargs={"activation_fn": kind}, device="cpu", **options
        )
        with pytest.raises(ValueError, match=message):
            export(model)


class TestActing:
    @pytest.mark.parametrize("deterministic", [True, False])
    def test_rows_do_not_depend_on_their_neighbours(self, deterministic):
        policy = MlpPolicy.load(PENDULUM, deterministic=deterministic)
        value = policy.value_function()
        assert policy.reproducible and policy.draws is not deterministic and value.rowwise
        random = np.random.default_rng(0)
        pool = random.normal(size=(60, 3)).astype(np.float32)
        alone = np.concatenate([policy(pool[[i]], [generators(60)[i]]) for i in range(60)])
        values = np.concatenate([value.infinite_horizon(pool[[i]]) for i in range(60)])
        for _ in range(40):
            index = random.choice(60, size=random.integers(1, 41), replace=False)
            fresh = generators(60)
            assert np.array_equal(policy(pool[index], [fresh[i] for i in index]), alone[index])
            assert np.array_equal(value.infinite_horizon(pool[index]), values[index])

    def test_sampled_actions_are_normal_around_the_deterministic_one(self):
        """The chance of a false alarm is below 1e-4: four bounds of more than 4.5 standard errors."""
        rows = np.zeros((20_000, 3), np.float32)
        tiny = arrays_of_a_tiny_agent(**{"actor.1.bias": np.array([0.2, -0.3], np.float32)})
        tiny["actor.1.weight"] = np.zeros((4, 2), np.float32)
        actions = MlpPolicy(tiny, deterministic=False)(rows, generators(len(rows)))
        again = MlpPolicy(tiny, deterministic=False)(rows, generators(len(rows)))
        assert np.array_equal(actions, again)
        spread = np.array([0.01, 0.1])
        assert (np.abs(actions.mean(axis=0) - [0.2, -0.3]) < 4.6 * spread / math.sqrt(len(rows))).all()
        assert (np.abs(actions.std(axis=0) / spread - 1) < 4.6 / math.sqrt(2 * len(rows))).all()
        assert np.array_equal(MlpPolicy(tiny)(rows[:1], [None]), np.array([[0.2, -0.3]], np.float32))

    def test_actions_stay_in_their_bounds(self):
        tiny = arrays_of_a_tiny_agent(**{"actor.1.bias": np.array([3.0, -3.0], np.float32)})
        assert MlpPolicy(tiny)(np.zeros((1, 3)), [None]).tolist() == [[1.0, -1.0]]

    def test_a_file_gives_the_agent_back(self, tmp_path):
        first = MlpPolicy(arrays_of_a_tiny_agent())
        first.save(tmp_path / "agent.npz")
        second = MlpPolicy.load(tmp_path / "agent.npz")
        rows = np.random.default_rng(0).normal(size=(9, 3))
        assert np.array_equal(first(rows, [None] * 9), second(rows, [None] * 9))
        assert second.gamma == 0.5 and agent_critic(second)(rows, np.full(9, 1)).tolist() == [2.5] * 9

    def test_fingerprint_follows_the_content(self, tmp_path):
        for folder, gamma in (("a", 0.5), ("b", 0.5), ("c", 0.6)):
            (tmp_path / folder).mkdir()
            MlpPolicy(arrays_of_a_tiny_agent(gamma=np.array(gamma))).save(tmp_path / folder / "agent.npz")
        a, b, c = (MlpPolicy.load(tmp_path / folder / "agent.npz") for folder in "abc")
        assert a.name.endswith("a/agent.npz") and a.fingerprint == b.fingerprint != c.fingerprint != ""

    def test_needs_neither_torch_nor_sb3(self):
        code = (
            "import sys, rido\n"
            f"rido.evaluate('Pendulum-v1', {str(PENDULUM)!r}, budget=600, gamma=0.9, critic='policy', seed=0)\n"
            "print([name for name in ('torch', 'stable_baselines3') if name in sys.modules])"
        )
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        assert done.stdout.strip() == "[]"


class TestShipped:
    def test_names(self):
        assert shipped_agents() == ("rido:ant", "rido:halfcheetah", "rido:pendulum", "rido:reacher", "rido:swimmer")

    def test_an_unknown_name_is_answered_with_those_there_are(self):
        with pytest.raises(ValueError, match=r"policy must be one of rido:ant, .*, rido:swimmer, got 'rido:cheetah'"):
            resolve("rido:cheetah")

    @pytest.mark.parametrize("name", shipped_agents())
    def test_acts_in_its_environment(self, name):
        path = shipped_agent(name)
        assert path.stat().st_size < 300_000
        about = MlpPolicy.load(path).about
        if name != "rido:pendulum":
            needs("mujoco", "mujoco")
        simulator = GymnasiumSimulator(about["env"], name, horizon=5, env_kwargs=about["env_kwargs"])
        assert simulator.policy.name == name
        rewards = simulator.rollout(np.full(2, 5), trajectory_seeds(0, 0, 2)).rewards
        simulator.close()
        assert rewards.shape == (2, 5) and np.isfinite(rewards).all()

    def test_pendulum_reaches_the_return_that_it_states(self):
        """Other episodes than those of the file: within 4.5 standard errors, a false alarm in 1e-5 of seeds."""
        about = MlpPolicy.load(PENDULUM).about
        simulator = GymnasiumSimulator("Pendulum-v1", PENDULUM, horizon=200)
        returns = simulator.rollout(np.full(200, 200), trajectory_seeds(7, 0, 200)).rewards.sum(axis=1)
        simulator.close()
        error = math.hypot(returns.std() / math.sqrt(200), about["standard_error"])
        assert abs(returns.mean() - about["mean"]) < 4.5 * error

    def test_its_own_critic_helps(self):
        settings = dict(budget=8000, gamma=0.9, horizon=200, seed=3)
        plain = rido.evaluate("Pendulum-v1", PENDULUM, **settings)
        helped = rido.evaluate("Pendulum-v1", PENDULUM, critic="policy", **settings)
        assert helped.standard_error < 0.5 * plain.standard_error
        assert abs(helped.value - plain.value) < 4.5 * math.hypot(plain.standard_error, helped.standard_error)

    @pytest.mark.parametrize(("policy", "name"), [(PENDULUM, "/".join(PENDULUM.parts[-3:])), ("rido:pendulum",) * 2])
    def test_workers_get_the_same_numbers(self, policy, name):
        settings = dict(budget=1200, gamma=0.9, horizon=200, seed=3, critic="policy")
        alone = rido.evaluate("Pendulum-v1", policy, **settings)
        shared = rido.evaluate("Pendulum-v1", policy, workers=2, **settings)
        assert alone.value == shared.value and alone.policy == shared.policy == name

    def test_another_environment_is_answered_with_the_one_it_was_trained_in(self):
        with pytest.raises(
            ValueError, match=r"of 3 numbers for rido:pendulum, got Box.*; it was trained in Pendulum-v1"
        ):
            resolve("rido:pendulum", "CartPole-v1")


class TestErrors:
    """One line each, from loading or from an environment that does not fit."""

    def load(self, path):
        with pytest.raises(ValueError) as caught:
            resolve(path)
        message = str(caught.value)
        assert "\n" not in message
        return message

    def test_no_file(self, tmp_path):
        assert (
            self.load(tmp_path / "absent.npz")
            == f"policy must be the path of an existing npz, got {tmp_path}/absent.npz"
        )
        assert "existing npz" in self.load("absent.npz")

    def test_not_an_npz(self, tmp_path):
        path = tmp_path / "agent.npz"
        requirement = f"policy must be an npz written by MlpPolicy.save(), got {path}: "
        path.write_text("nothing")
        assert self.load(path).startswith(requirement)
        path.write_bytes(b"")
        assert self.load(path).startswith(requirement)
        with path.open("wb") as file:
            np.save(file, np.zeros(3))
        assert self.load(path).startswith(requirement)
        path.write_bytes(PENDULUM.read_bytes()[:20_000])
        assert self.load(path).startswith(requirement)
        content = bytearray(PENDULUM.read_bytes())
        content[5000:5100] = bytes(100)
        path.write_bytes(content)
        assert self.load(path).startswith(requirement)

    def test_a_pickle_is_not_run(self, tmp_path):
        class Trap:
            def __reduce__(self):
                return Path.touch, (tmp_path / "ran",)

        path = tmp_path / "agent.npz"
        np.savez(path, **arrays_of_a_tiny_agent(low=np.array([Trap()], dtype=object)))
        assert "cannot create an OBJECT array" in self.load(path)
        path.write_bytes(pickle.dumps(Trap()))
        self.load(path)
        assert not (tmp_path / "ran").exists()

    @pytest.mark.parametrize(
        ("key", "value", "message"),
        [
            ("low", np.zeros(3, np.float32), "high must be float32 numbers of shape (3,), got float32 of (2,)"),
            ("deviation", np.ones(4, np.float32), "deviation must be float32 numbers of shape (3,)"),
            ("mean", np.zeros(3), "mean must be float32 numbers of shape (-1,), got float64 of (3,)"),
            ("limit", np.float32([np.nan]), "limit must be float32 numbers of shape ()"),
            ("actor.1.weight", np.zeros((5, 2), np.float32), "actor.1.weight must be float32 numbers of shape (4, 2)"),
            ("actor.1.bias", np.zeros(1, np.float32), "actor.1.bias must be float32 numbers of shape (2,)"),
            ("critic.0.bias", np.full(1, np.nan, np.float32), "critic.0.bias must be float32 numbers of shape (1,)"),
            (
                "critic.0.weight",
                np.zeros((3, 2), np.float32),
                "critic.0.weight must be float32 numbers of shape (3, 1)",
            ),
            ("gamma", np.array(1.5), "gamma must be in (0, 1], got 1.5"),
            ("about", np.array("nonsense"), "Expecting value"),
            ("log_std", None, "log_std"),
            ("critic.0.weight", None, "critic.0.weight"),
        ],
    )
    def test_arrays_that_do_not_fit(self, tmp_path, key, value, message):
        arrays = arrays_of_a_tiny_agent(**{key: value})
        np.savez(tmp_path / "agent.npz", **{key: array for key, array in arrays.items() if array is not None})
        assert message in self.load(tmp_path / "agent.npz")

    def test_an_environment_that_does_not_fit(self, tmp_path):
        about = {"env": "Made-v1", "env_kwargs": {"forces": False}}
        MlpPolicy(arrays_of_a_tiny_agent(about=np.array(json.dumps(about)))).save(tmp_path / "agent.npz")
        message = self.load(tmp_path / "agent.npz")
        assert "environment must have actions of 2 numbers for " in message and "(1,)" in message
        assert message.endswith("; it was trained in Made-v1, forces=False")
        with pytest.raises(
            ValueError, match=r"environment must have observations of 3 numbers for .*, got Box.*\(4,\)"
        ):
            resolve(PENDULUM, "CartPole-v1")
        with pytest.raises(ValueError, match=r"environment must have observations of 3 numbers for .*, got Discrete"):
            resolve(PENDULUM, "FrozenLake-v1")
