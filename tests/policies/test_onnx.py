"""Agents in ONNX files."""

import sys

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces

import rido
from agentfiles import WEIGHT, write_onnx
from helpers import needs
from rido.policies.resolve import resolve_policy

LINE = spaces.Box(-np.inf, np.inf, (3,), np.float64)
ARM = spaces.Box(-2, 2, (2,))
ROWS = np.random.default_rng(0).normal(size=(21, 3))


def resolve(policy, action_space=ARM, observation_space=LINE, **settings):
    needs("onnxruntime", "onnx")
    return resolve_policy(policy, observation_space=observation_space, action_space=action_space, **settings)


@pytest.mark.parametrize("shape", [("rows", 3), (1, 3), (4, 3), (3,)], ids=str)
def test_acts_by_its_matrix(shape, tmp_path):
    policy = resolve(write_onnx(tmp_path / "agent.onnx", {"observation": shape}))
    found = policy(ROWS, [None] * 21)
    np.testing.assert_allclose(found, ROWS.astype(np.float32) @ WEIGHT, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(policy(ROWS[5:8], [None] * 3), found[5:8])
    assert policy.name.endswith("agent.onnx") and not policy.draws and len(policy.fingerprint) == 64


def test_scores_dictionaries_and_several_outputs(tmp_path):
    scores = resolve(
        str(write_onnx(tmp_path / "scores.onnx", {"x": ("rows", 3)}, ["logits"])), spaces.Discrete(2, start=1)
    )
    best = (ROWS.astype(np.float32) @ WEIGHT).argmax(axis=1) + 1
    np.testing.assert_array_equal(scores(ROWS, [None] * 21), best)
    with pytest.raises(ValueError, match="may be logits or Q-values"):
        resolve(tmp_path / "scores.onnx", spaces.Discrete(2), deterministic=False)(ROWS, [None] * 21)
    write_onnx(tmp_path / "several.onnx", {"x": ("rows", 3)}, ["action", "value"])
    assert resolve(tmp_path / "several.onnx", observation_space=spaces.Dict(x=LINE))({"x": ROWS}, [None] * 21).any()
    with pytest.raises(ValueError, match=r"environment must have observations x for .*several.onnx, got y"):
        resolve(tmp_path / "several.onnx", observation_space=spaces.Dict(y=LINE))({"y": ROWS}, [None] * 21)
    write_onnx(tmp_path / "unnamed.onnx", {"x": ("rows", 3)}, ["a", "b"])
    with pytest.raises(ValueError, match="must have one output, or one called 'action', got a, b"):
        resolve(tmp_path / "unnamed.onnx")


def test_evaluated_by_its_path_also_in_workers(tmp_path):
    path = write_onnx(tmp_path / "agent.onnx", {"observation": ("rows", 3)}, weight=WEIGHT[:, :1].copy())
    needs("onnxruntime", "onnx")
    settings = dict(budget=400, gamma=0.9, horizon=20, seed=0)
    found = rido.evaluate("Pendulum-v1", str(path), **settings)
    again = rido.evaluate("Pendulum-v1", lambda rows: rows @ WEIGHT[:, :1], **settings)
    assert found.value == pytest.approx(again.value, rel=1e-5) and found.reproducible
    assert rido.evaluate("Pendulum-v1", path, simulator="workers", **settings).value == found.value


def test_errors(tmp_path, monkeypatch):
    space = gym.make("Pendulum-v1").action_space
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "onnxruntime", None)
        (tmp_path / "agent.onnx").write_bytes(b"")
        with pytest.raises(ImportError, match=r'pip install "rido\[onnx\]"'):
            resolve_policy(tmp_path / "agent.onnx", observation_space=LINE, action_space=space)
    with pytest.raises(ValueError, match=r"path of an existing ONNX file, got absent\.onnx"):
        resolve("absent.onnx")
    (tmp_path / "damaged.onnx").write_bytes(b"nothing")
    with pytest.raises(ValueError, match="policy must be an ONNX file, got"):
        resolve(tmp_path / "damaged.onnx")
