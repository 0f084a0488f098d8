"""Agents in ONNX files, written here byte by byte: the format is protocol buffers."""

import sys

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces

import rido
from helpers import needs
from rido.policies.resolve import resolve_policy

LINE = spaces.Box(-np.inf, np.inf, (3,), np.float64)
ARM = spaces.Box(-2, 2, (2,))
ROWS = np.random.default_rng(0).normal(size=(21, 3))
WEIGHT = np.random.default_rng(1).normal(size=(3, 2)).astype(np.float32)


def message(*fields):
    """Encodes fields, each a number with an int, text, bytes or an encoded message."""
    encoded = b""
    for number, content in fields:
        if isinstance(content, int):
            encoded += varint(number << 3) + varint(content)
        else:
            content = content.encode() if isinstance(content, str) else content
            encoded += varint(number << 3 | 2) + varint(len(content)) + content
    return encoded


def varint(number):
    low, high = number & 127, number >> 7
    return bytes([low | 128]) + varint(high) if high else bytes([low])


def put(name, *shape):
    dims = [(1, message((2, size) if isinstance(size, str) else (1, size))) for size in shape]
    tensor = message((1, 1), (2, message(*dims)))
    return message((1, name), (2, message((1, tensor))))


def write(path, inputs, outputs=("action",), weight=WEIGHT):
    """A file that multiplies its first input by a matrix; further outputs are its square root."""
    weights = message((1, weight.shape[0]), (1, weight.shape[1]), (2, 1), (8, "weight"), (9, weight.tobytes()))
    nodes = [message((1, next(iter(inputs))), (1, "weight"), (2, outputs[0]), (4, "MatMul"))]
    nodes += [message((1, outputs[0]), (2, name), (4, "Sqrt")) for name in outputs[1:]]
    graph = [(1, node) for node in nodes] + [(2, "agent"), (5, weights)]
    graph += [(11, put(name, *shape)) for name, shape in inputs.items()]
    rows = next(iter(inputs.values()))[:-1]
    graph += [(12, put(name, *rows, weight.shape[1])) for name in outputs]
    path.write_bytes(message((1, 8), (7, message(*graph)), (8, message((1, ""), (2, 17)))))
    return path


def resolve(policy, action_space=ARM, observation_space=LINE, **settings):
    needs("onnxruntime", "onnx")
    return resolve_policy(policy, observation_space=observation_space, action_space=action_space, **settings)


@pytest.mark.parametrize("shape", [("rows", 3), (1, 3), (4, 3), (3,)], ids=str)
def test_acts_by_its_matrix(shape, tmp_path):
    policy = resolve(write(tmp_path / "agent.onnx", {"observation": shape}))
    found = policy(ROWS, [None] * 21)
    np.testing.assert_allclose(found, ROWS.astype(np.float32) @ WEIGHT, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(policy(ROWS[5:8], [None] * 3), found[5:8])
    assert policy.name.endswith("agent.onnx") and not policy.draws and len(policy.fingerprint) == 64


def test_scores_dictionaries_and_several_outputs(tmp_path):
    scores = resolve(str(write(tmp_path / "scores.onnx", {"x": ("rows", 3)}, ["logits"])), spaces.Discrete(2, start=1))
    best = (ROWS.astype(np.float32) @ WEIGHT).argmax(axis=1) + 1
    np.testing.assert_array_equal(scores(ROWS, [None] * 21), best)
    with pytest.raises(ValueError, match="may be logits or Q-values"):
        resolve(tmp_path / "scores.onnx", spaces.Discrete(2), deterministic=False)(ROWS, [None] * 21)
    write(tmp_path / "several.onnx", {"x": ("rows", 3)}, ["action", "value"])
    assert resolve(tmp_path / "several.onnx", observation_space=spaces.Dict(x=LINE))({"x": ROWS}, [None] * 21).any()
    with pytest.raises(ValueError, match=r"environment must have observations x for .*several.onnx, got y"):
        resolve(tmp_path / "several.onnx", observation_space=spaces.Dict(y=LINE))({"y": ROWS}, [None] * 21)
    write(tmp_path / "unnamed.onnx", {"x": ("rows", 3)}, ["a", "b"])
    with pytest.raises(ValueError, match="must have one output, or one called 'action', got a, b"):
        resolve(tmp_path / "unnamed.onnx")


def test_evaluated_by_its_path_also_in_workers(tmp_path):
    path = write(tmp_path / "agent.onnx", {"observation": ("rows", 3)}, weight=WEIGHT[:, :1].copy())
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
        with pytest.raises(ImportError, match=r'pip install "rido\[onnx\]"'):
            resolve_policy("agent.onnx", observation_space=LINE, action_space=space)
    with pytest.raises(ValueError, match=r"path of an existing ONNX file, got absent\.onnx"):
        resolve("absent.onnx")
    (tmp_path / "damaged.onnx").write_bytes(b"nothing")
    with pytest.raises(ValueError, match="policy must be an ONNX file, got"):
        resolve(tmp_path / "damaged.onnx")
