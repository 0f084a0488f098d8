"""Files that ask for memory which they do not have."""

import base64
import io
import json
import pickle
import struct
import tracemalloc
import zipfile
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest

from helpers import needs
from rido.policies.npz import MlpPolicy
from rido.policies.sb3_zip import load_agent
from rido.policies.untrusted import UntrustedFileError, check_weights, unpickle

needs("stable_baselines3", "sb3")

HUGE = 300_000_000  # bytes or numbers: more than the 64 MiB that small files may ask for
SPACES = gym.spaces.Box(-1, 1, (3,), np.float32), gym.spaces.Box(-2, 2, (1,), np.float32)


class Asks:
    """Unpickling it calls a function."""

    def __init__(self, function, *arguments):
        self.call = function, arguments

    def __reduce__(self):
        return self.call


def new(kind, *arguments):
    """A pickle that makes an object by the opcode NEWOBJ."""
    names = f"c{kind.__module__}\n{kind.__name__}\n".encode()
    return b"\x80\x02" + names + pickle.dumps(arguments, 2)[2:-1] + b"\x81."


def peak(function, *arguments, **options):
    tracemalloc.start()
    try:
        with pytest.raises((ValueError, MemoryError, EOFError)) as caught:
            function(*arguments, **options)
        return caught.value, tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def _pickles():
    import torch

    yield b"\x80\x05\x96" + struct.pack("<Q", HUGE) + b"x."  # BYTEARRAY8 without its bytes
    yield new(np.ndarray, (HUGE,))
    yield new(np.void, HUGE)
    yield pickle.dumps(Asks(np.ndarray, (HUGE,)))
    yield pickle.dumps(Asks(np._core.multiarray.scalar, np.dtype(f"V{HUGE}")))
    yield pickle.dumps(Asks(torch.nn.Linear, HUGE, 1))
    yield pickle.dumps(Asks(gym.spaces.Box, 0, 1, (HUGE,)))
    yield pickle.dumps(Asks(np.random.SeedSequence, 1))


@pytest.mark.parametrize("content", list(_pickles()))
def test_pickles_allocate_no_more_than_they_have(content):
    error, size = peak(unpickle, content, Path("a.pkl"), trust=False)
    assert len(content) < 300 and size < 2**20, error


def test_a_shape_in_a_pickle_is_not_believed():
    content = pickle.dumps(Asks(np._core.multiarray._reconstruct, np.ndarray, (HUGE,), b"b"))
    assert unpickle(content, Path("a.pkl"), trust=False).size == 0


def test_ordinary_arrays_generators_and_spaces_are_read():
    space = gym.spaces.Dict(a=gym.spaces.Box(0, 1, (2,)), b=gym.spaces.Discrete(3))
    space.seed(1)
    given = [np.arange(6.0).reshape(2, 3), np.float32(2.5), np.dtype("f4"), bytearray(b"abc"), np.bool_(True), space]
    found = unpickle(pickle.dumps([*given, np.random.default_rng(3)], 5), Path("a.pkl"), trust=False)
    assert np.array_equal(found[0], given[0]) and found[1:6] == given[1:6]
    assert found[6].random() == np.random.default_rng(3).random() and type(found[1]) is np.float32


def npz(**headers):
    """An npz whose arrays are headers alone."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name, shape in headers.items():
            header = io.BytesIO()
            np.lib.format.write_array_header_1_0(header, {"descr": "<f8", "fortran_order": False, "shape": shape})
            archive.writestr(f"{name}.npy", header.getvalue())
    return file.getvalue()


def test_an_npz_is_as_long_as_its_bytes(tmp_path):
    (tmp_path / "agent.npz").write_bytes(npz(about=(HUGE,)))
    error, size = peak(MlpPolicy.load, tmp_path / "agent.npz")
    assert "must be an npz written by MlpPolicy.save()" in str(error) and size < 2**20


@pytest.fixture(scope="module")
def agent(tmp_path_factory):
    from stable_baselines3 import PPO

    path = tmp_path_factory.mktemp("agents") / "agent.zip"
    PPO("MlpPolicy", gym.make("Pendulum-v1"), n_steps=8, batch_size=8, device="cpu", seed=0).save(path)
    return path


def changed(agent, path, weights=None, **pickles):
    """Writes an agent whose weights or settings are others."""
    with zipfile.ZipFile(agent) as archive, zipfile.ZipFile(path, "w") as other:
        for name in archive.namelist():
            content = archive.read(name)
            if name == "data":
                data = json.loads(content)
                for key, value in pickles.items():
                    data[key] = {":type:": "x", ":serialized:": base64.b64encode(pickle.dumps(value)).decode()}
                content = json.dumps(data).encode()
            other.writestr(name, weights if name == "policy.pth" and weights is not None else content)
    return path


def test_networks_are_no_larger_than_their_weights(agent, tmp_path):
    path = changed(agent, tmp_path / "a.zip", policy_kwargs={"net_arch": [20_000, 20_000]})
    with pytest.raises(ValueError, match="its networks must have at most 67,108,864 bytes"):
        load_agent(path, *SPACES)


def test_spaces_have_a_size(agent, tmp_path):
    space = gym.spaces.Box(0, 255, (1,), np.uint8)
    space._shape = (20_000, 20_000, 3)
    with pytest.raises(ValueError, match=r"spaces must have at most 67,108,864 numbers, got 1\.2e\+09"):
        load_agent(changed(agent, tmp_path / "a.zip", observation_space=space), *SPACES)


@pytest.mark.parametrize("content", [pickle.dumps(Asks(bytearray, 10)), pickle.dumps({"numel": HUGE}, 2)])
def test_weights_allocate_no_more_than_they_have(content, agent, tmp_path):
    assert "weights must be at most" in str(peak(check_weights, content)[0])
    with pytest.raises(ValueError, match="weights must be at most"):
        load_agent(changed(agent, tmp_path / "a.zip", content), *SPACES)


def test_nothing_is_trusted_unless_it_is_said(agent, tmp_path):
    import rido

    path = changed(agent, tmp_path / "a.zip", observation_space=Asks(input, "code"))
    common = dict(gamma=0.9, horizon=5, budget=60, seed=1)
    suite = rido.Suite({"a": rido.Task("Pendulum-v1", gamma=0.9, horizon=5)}, {"a": path, "b": "random"}, budget=60)
    for run in (
        lambda: rido.evaluate("Pendulum-v1", path, **common),
        lambda: rido.compare("Pendulum-v1", {"a": path, "b": "random"}, **common),
        suite.run,
    ):
        with pytest.raises(UntrustedFileError, match=r"builtins\.input, .* --trust, RIDO_TRUST=1 or trust=True"):
            run()
    assert rido.evaluate("Pendulum-v1", agent, **common).transitions == 60 + 4 * 14  # those of the rehearsal
