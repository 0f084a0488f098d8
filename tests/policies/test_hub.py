"""Agents on the Hugging Face hub, from its cache: nothing here uses a network."""

import sys

import gymnasium as gym
import numpy as np
import pytest

import rido
from helpers import needs
from rido.policies.hub import pinned
from rido.policies.resolve import resolve_policy, shipped_agent
from rido.policies.untrusted import UntrustedFileError

COMMITS = {"main": "a" * 40, "v1": "b" * 40}
CARTPOLE = gym.make("CartPole-v1")
SPACES = dict(observation_space=CARTPOLE.observation_space, action_space=CARTPOLE.action_space)


@pytest.fixture
def repository(tmp_path, monkeypatch):
    """Puts files into the cache, as huggingface_hub lays them out, and cuts the network off."""
    constants = needs("huggingface_hub.constants", "hub")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))

    def make(name, files, revision="main"):
        base = tmp_path / f"models--{name.replace('/', '--')}"
        (base / "refs").mkdir(parents=True, exist_ok=True)
        (base / "refs" / revision).write_text(COMMITS[revision])
        folder = base / "snapshots" / COMMITS[revision]
        for file, content in files.items():
            (folder / file).parent.mkdir(parents=True, exist_ok=True)
            content(folder / file) if callable(content) else (folder / file).write_bytes(content)
        return folder

    return make


def test_the_file_named_as_the_repository_or_the_only_one(repository):
    folder = repository("sb3/ppo-Walk-v0", {"ppo-Walk-v0.zip": b"1", "other.zip": b"2", "README.md": b""})
    assert pinned("hf:sb3/ppo-Walk-v0").path == folder / "ppo-Walk-v0.zip"
    assert pinned("hf:sb3/ppo-Walk-v0/other.zip").path == folder / "other.zip"
    older = repository("sb3/ppo-Walk-v0", {"agents/agent.onnx": b"3"}, revision="v1")
    for revision in ("v1", COMMITS["v1"]):
        assert pinned(f"hf:sb3/ppo-Walk-v0@{revision}").path == older / "agents" / "agent.onnx"
        assert pinned(f"hf:sb3/ppo-Walk-v0@{revision}/agents/agent.onnx").path == older / "agents" / "agent.onnx"
    repository("me/two", {"a.zip": b"", "b.npz": b""})
    with pytest.raises(
        ValueError, match=r"name its file, as in hf:me/two/agent.zip, got 'hf:me/two'; agents: a.zip, b.npz"
    ):
        pinned("hf:me/two")
    with pytest.raises(ConnectionError, match="hf:me/absent could not be downloaded"):
        pinned("hf:me/absent")


@pytest.mark.parametrize("name", ["hf:", "hf:one", "hf:a/b@", "hf:a b/c"])
def test_other_names_are_refused(name):
    with pytest.raises(ValueError, match=r"policy must be hf:org/name, hf:org/name@revision or either with /file\.zip"):
        pinned(name)


def test_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(ImportError, match=r'pip install "rido\[hub\]"'):
        pinned("hf:org/name")


def test_an_npz_is_evaluated_by_its_name(repository):
    repository("me/pendulum", {"agent.npz": shipped_agent("rido:pendulum").read_bytes()})
    settings = dict(budget=600, gamma=0.9, horizon=20, seed=0)
    found = rido.evaluate("Pendulum-v1", "hf:me/pendulum", **settings)
    assert found.policy == "hf:me/pendulum"
    assert found.value == rido.evaluate("Pendulum-v1", "rido:pendulum", **settings).value


def test_an_sb3_agent_comes_with_its_statistics_and_runs_no_code(repository):
    sb3 = needs("stable_baselines3", "sb3")
    from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

    envs = VecNormalize(DummyVecEnv([lambda: gym.make("CartPole-v1")]), clip_obs=1.5)
    envs.obs_rms.update(np.random.default_rng(0).normal(2, 1, size=(100, 4)))
    model = sb3.PPO("MlpPolicy", envs, seed=0, device="cpu")
    repository("me/ppo", {"ppo.zip": model.save, "vec_normalize.pkl": envs.save})
    policy = resolve_policy("hf:me/ppo", **SPACES)
    rows = np.random.default_rng(1).normal(size=(9, 4)).astype(np.float32)
    expected, _ = model.predict(envs.normalize_obs(rows), deterministic=True)
    np.testing.assert_array_equal(policy(rows, [None] * 9), expected)
    assert policy.normalisation == "observations normalised by vec_normalize.pkl"

    model.policy_kwargs = {"hook": print}  # a class or function that is not on the list
    folder = repository("me/hooked", {"ppo.zip": model.save})
    with pytest.raises(UntrustedFileError, match=rf"{folder}.*and give the path instead of hf:me/hooked"):
        resolve_policy("hf:me/hooked", **SPACES, trust=True)


def test_statistics_in_another_folder_are_named(repository):
    """They are used where they are beside the agent, as another test shows."""
    sb3 = needs("stable_baselines3", "sb3")
    model = sb3.PPO("MlpPolicy", CARTPOLE, seed=0, device="cpu")
    repository("me/apart", {"agents/ppo.zip": model.save, "vec_normalize.pkl": b"anything"})
    remark = "hf:me/apart has vec_normalize.pkl in another folder than the agent, which was not used"
    assert resolve_policy("hf:me/apart", **SPACES).remarks == (remark,)
    settings = dict(gamma=0.9, horizon=20, budget=400, seed=0)
    for workers in (1, 2):
        assert remark in rido.evaluate("CartPole-v1", "hf:me/apart", workers=workers, **settings).remarks
    race = rido.compare("CartPole-v1", ["hf:me/apart", "random"], workers=2, **settings)
    assert remark in race.remarks
