"""A file of each type that holds an agent: of Pendulum, by the suffix. ONNX is written byte by byte."""

import shutil

import numpy as np

from helpers import needs
from rido.policies.resolve import shipped_agent

WEIGHT = np.random.default_rng(1).normal(size=(3, 2)).astype(np.float32)


def write_zip(path):
    sb3 = needs("stable_baselines3", "sb3")
    sb3.PPO("MlpPolicy", "Pendulum-v1", seed=0, device="cpu").save(path)


def write_npz(path):
    shutil.copy(shipped_agent("rido:pendulum"), path)


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


def write_onnx(path, inputs, outputs=("action",), weight=WEIGHT):
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


def write_pendulum_onnx(path):
    needs("onnxruntime", "onnx")
    write_onnx(path, {"observation": ("rows", 3)}, weight=WEIGHT[:, :1] / 10)


WRITERS = {".zip": write_zip, ".npz": write_npz, ".onnx": write_pendulum_onnx}


def agent_file(folder, suffix, name="agent"):
    """Writes an agent and returns its path."""
    path = folder / f"{name}{suffix}"
    WRITERS[suffix](path)
    return path
