"""An agent that was trained on normalised observations and comes without their statistics is warned of, no other is."""

import shutil

import gymnasium as gym
import numpy as np
import pytest

import rido
from helpers import needs
from rido.evaluation.recorded import read_run
from rido.policies import sb3, sb3_zip

sb3s = needs("stable_baselines3", "sb3")
vec_env = pytest.importorskip("stable_baselines3.common.vec_env")

ENV = "Pendulum-v1"
SETTINGS = dict(budget=200, gamma=0.9, horizon=20, seed=0)


class Doubles(gym.ObservationWrapper):
    """Observations of float64, as those of MuJoCo."""

    def __init__(self, env):
        super().__init__(env)
        self.observation_space = gym.spaces.Box(-np.inf, np.inf, (3,), np.float64)

    def observation(self, observation):
        return observation.astype(np.float64)


class Named(gym.ObservationWrapper):
    def __init__(self, env):
        super().__init__(env)
        self.observation_space = gym.spaces.Dict(state=env.observation_space)

    def observation(self, observation):
        return {"state": observation}


def trained(algorithm, wrapper=None, **normalize):
    """An agent after a little training, with a VecNormalize of these settings if there are any."""
    env = vec_env.DummyVecEnv([lambda: gym.make(ENV) if wrapper is None else wrapper(gym.make(ENV))])
    env = vec_env.VecNormalize(env, **normalize) if normalize else env
    small = dict(A2C=dict(n_steps=60), PPO=dict(n_steps=60, batch_size=60, n_epochs=1))
    settings = small.get(algorithm, dict(buffer_size=200, batch_size=8))
    kind = "MultiInputPolicy" if wrapper is Named else "MlpPolicy"
    return getattr(sb3s, algorithm)(kind, env, seed=0, device="cpu", **settings).learn(120)


@pytest.fixture(scope="module")
def agents():
    return {
        "raw": trained("PPO"),
        "normalised": trained("PPO", norm_reward=True),
        "rewards alone": trained("PPO", Doubles, norm_obs=False),
        "off-policy": trained("SAC", norm_reward=True),
        "off-policy, raw": trained("SAC"),
    }


def saved(model, path):
    model.save(path)
    return path


def missing(warnings):
    return [warning for warning in warnings if "VecNormalize" in warning]


@pytest.mark.parametrize(
    ("algorithm", "wrapper", "normalize", "expected"),
    [
        ("PPO", None, {}, False),
        ("PPO", Doubles, {}, False),
        ("PPO", Named, {}, False),
        ("PPO", Named, dict(norm_reward=False), True),
        ("PPO", Doubles, dict(norm_obs=False), False),
        ("A2C", None, dict(norm_reward=False), True),
        ("A2C", None, {}, False),
        ("SAC", None, {}, None),
        ("SAC", Doubles, {}, None),
        ("SAC", Doubles, dict(norm_obs=False), None),
        ("SAC", Doubles, dict(norm_reward=False), True),
        ("TD3", None, dict(norm_reward=False), True),
    ],
)
def test_a_zip_tells_how_its_agent_was_trained(algorithm, wrapper, normalize, expected, tmp_path):
    path = saved(trained(algorithm, wrapper, **normalize), tmp_path / "agent.zip")
    assert sb3.saw_normalised(getattr(sb3s, algorithm).load(path, device="cpu")) is expected


@pytest.mark.parametrize("name", ["normalised", "off-policy"])
def test_a_missing_normalisation_is_a_warning_wherever_a_result_is_read(name, agents, tmp_path):
    path, run = saved(agents[name], tmp_path / "agent.zip"), tmp_path / "run.rido"
    result = rido.evaluate(ENV, path, **SETTINGS, run=run)
    (warning,) = missing(result.warnings)
    assert warning.endswith(
        "agent.zip was trained under VecNormalize, and its observations are not normalised now: put "
        "vecnormalize.pkl beside it"
    )
    assert f"warning: {warning}" in result.summary() and warning in result.to_dict()["warnings"] and result.reproducible
    assert missing(read_run(run).evaluation.warnings) == [warning]
    assert missing(rido.evaluate(ENV, path, **SETTINGS, run=run).warnings) == [warning]
    assert missing(rido.evaluate(ENV, path, **SETTINGS, workers=2).warnings) == [warning]
    agents[name].get_vec_normalize_env().save(tmp_path / "vecnormalize.pkl")
    assert missing(rido.evaluate(ENV, path, **SETTINGS).warnings) == []


def test_a_comparison_and_a_suite_warn_too(agents, tmp_path):
    path, run = saved(agents["normalised"], tmp_path / "agent.zip"), tmp_path / "run.rido"
    policies = {"agent": path, "random": "random"}
    found = rido.compare(ENV, policies, **SETTINGS, run=run)
    assert len(missing(found.warnings)) == 1 and found.reproducible
    assert rido.comparison.compare.read_comparison(run).warnings == found.warnings
    assert rido.compare(ENV, policies, **SETTINGS, run=run).warnings == found.warnings
    suite = rido.Suite({"it": rido.Task(ENV, gamma=0.9, horizon=20)}, policies, budget=200)
    for _ in range(2):
        assert len(missing(suite.run(tmp_path / "suite").warnings)) == 1


@pytest.mark.parametrize("name", ["normalised", "off-policy"])
def test_a_model_that_is_given_itself_is_known_too(name, agents, tmp_path):
    path = saved(agents[name], tmp_path / "agent.zip")
    assert missing(rido.evaluate(ENV, agents[name], **SETTINGS).warnings) == []  # its VecNormalize is used
    loaded = type(agents[name]).load(path, device="cpu")
    for workers in (1, 2):
        (warning,) = missing(rido.evaluate(ENV, loaded, **SETTINGS, workers=workers).warnings)
        assert warning.startswith(type(loaded).__name__) and warning.endswith("load it with env=VecNormalize.load(...)")


def test_a_file_with_a_similar_name_is_named(agents, tmp_path):
    """Those of CheckpointCallback have the steps of the zip in their names."""
    path = saved(agents["normalised"], tmp_path / "rl_model_200_steps.zip")
    for name in (
        "rl_model_vecnormalize_100_steps",
        "rl_model_vecnormalize_200_steps",
        "rl_model_replay_buffer_200_steps",
    ):
        agents["normalised"].get_vec_normalize_env().save(tmp_path / f"{name}.pkl")
    (warning,) = missing(rido.evaluate(ENV, path, **SETTINGS).warnings)
    assert warning.endswith("copy rl_model_vecnormalize_200_steps.pkl to rl_model_200_steps/vecnormalize.pkl beside it")
    (tmp_path / "rl_model_200_steps").mkdir()
    shutil.copy(tmp_path / "rl_model_vecnormalize_200_steps.pkl", tmp_path / "rl_model_200_steps/vecnormalize.pkl")
    assert missing(rido.evaluate(ENV, path, **SETTINGS).warnings) == []


def test_a_file_beside_an_agent_that_does_not_tell(agents, tmp_path):
    raw, unknown = (saved(agents[name], tmp_path / f"{name[:3]}.zip") for name in ("raw", "off-policy, raw"))
    agents["normalised"].get_vec_normalize_env().save(tmp_path / "vec_normalize_final.pkl")
    assert missing(rido.evaluate(ENV, raw, **SETTINGS).warnings) == []  # this one was trained without
    (warning,) = missing(rido.evaluate(ENV, unknown, **SETTINGS).warnings)
    assert warning.endswith(
        "off.zip may have been trained under VecNormalize: if so, copy vec_normalize_final.pkl to "
        "off/vecnormalize.pkl beside it"
    )


@pytest.mark.parametrize("name", ["raw", "rewards alone", "off-policy, raw"])
def test_no_false_alarms(name, agents, tmp_path):
    path = saved(agents[name], tmp_path / "agent.zip")
    for agent in (path, type(agents[name]).load(path, device="cpu")):
        assert missing(rido.evaluate(lambda: Doubles(gym.make(ENV)), agent, **SETTINGS).warnings) == []


def test_public_agents_are_warned_of_where_their_statistics_are_taken_away_and_nowhere_else(agents_dir):
    for path in sorted(agents_dir.rglob("*.zip")):
        model = sb3_zip._load_model(path, sb3_zip._data(path), True)
        spaces = (model.observation_space, model.action_space)
        normalised = any(file.is_file() for file in sb3_zip.statistics_files(path))
        assert sb3_zip.load_agent(path, *spaces).warnings == ()
        vars(model).update(sb3_zip._last_observations(path, sb3_zip._data(path), False))
        assert len(sb3.missing_normalisation(model)) == normalised, path
