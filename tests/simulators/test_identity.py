"""An environment that is named by its id is known by its code: after an edit, recorded numbers are those of another."""

import importlib
import itertools
import os
import sys

import gymnasium as gym
import pytest

import rido
from rido.record import fingerprint as storage
from rido.record.database import RunFileError
from rido.simulators.identity import environment_fingerprint
from traps import zeros

FILES = {
    "edited_env.py": """
import gymnasium as gym
import numpy as np
from edited_physics import price
import edited_wrapper

class Edited(gym.Env):
    observation_space, action_space = gym.spaces.Box(-1, 1, (1,)), gym.spaces.Discrete(2)
    made = 0  # changes while the environment is used

    def __init__(self, gain=1.0):
        Edited.made += 1
        self.gain = gain

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(1, np.float32), {}

    def step(self, action):
        return np.zeros(1, np.float32), self.gain * price() * self.np_random.random(), False, False, {}

gym.register("Edited-v0", "edited_env:Edited", kwargs=dict(gain=1.0), additional_wrappers=(
    gym.envs.registration.WrapperSpec("Doubled", "edited_wrapper:Doubled", {}),))
""",
    "edited_physics.py": "def price():\n    return 1.0\n",
    "edited_wrapper.py": """
import gymnasium as gym

class Doubled(gym.RewardWrapper):
    def reward(self, reward):
        return 2.0 * reward
""",
}
EDITS = {
    "entry point": ("edited_env.py", "np.zeros(1, np.float32), self.gain", "np.zeros(1, np.float32), 3 * self.gain"),
    "its arguments": ("edited_env.py", "kwargs=dict(gain=1.0)", "kwargs=dict(gain=3.0)"),
    "a module that it uses": ("edited_physics.py", "1.0", "3.0"),
    "a wrapper": ("edited_wrapper.py", "2.0", "6.0"),
}
SETTINGS = dict(gamma=0.9, horizon=10, seed=1)


@pytest.fixture
def package(tmp_path, monkeypatch):
    """Writes modules as a user has them; returns what edits one of them and imports all anew."""
    folder = tmp_path / "code"
    folder.mkdir()
    monkeypatch.syspath_prepend(folder)
    clock = itertools.count(2**30)
    for name, content in FILES.items():
        (folder / name).write_text(content)

    def renew(name="edited_env.py", old="", new=""):
        text = (folder / name).read_text()
        assert old in text
        (folder / name).write_text(text.replace(old, new))
        os.utime(folder / name, (later := next(clock), later))  # compiled files are known by the second
        forget()

    def forget():
        gym.registry.pop("Edited-v0", None)
        for file in FILES:
            sys.modules.pop(file.removesuffix(".py"), None)
        importlib.invalidate_caches()

    yield renew
    forget()


def evaluate(**settings):
    return rido.evaluate("edited_env:Edited-v0", zeros, **{"budget": 200, **SETTINGS, **settings})


@pytest.mark.parametrize("edit", EDITS)
def test_a_run_file_is_refused_after_an_edit(edit, package, tmp_path):
    path = tmp_path / "run.rido"
    first = evaluate(run=path)
    package()
    assert evaluate(run=path).value == first.value
    assert evaluate(run=path, workers=2).value == first.value
    package(*EDITS[edit])
    with pytest.raises(RunFileError, match="its environment had other code or numbers; give another file name"):
        evaluate(run=path)
    assert evaluate().value == pytest.approx(3 * first.value)


@pytest.mark.parametrize("edit", EDITS)
def test_what_a_suite_recorded_is_not_used_after_an_edit(edit, package, tmp_path):
    suite = rido.Suite(
        {"it": rido.Task("edited_env:Edited-v0", gamma=0.9, horizon=10)}, {"a": zeros, "b": "random"}, budget=200
    )
    first = suite.run(tmp_path / "recorded")
    files = set((tmp_path / "recorded").iterdir())
    package()
    assert suite.run(tmp_path / "recorded").to_dict() == first.to_dict()
    assert set((tmp_path / "recorded").iterdir()) == files and len(files) == 2
    package(*EDITS[edit])
    again = suite.run(tmp_path / "recorded")
    assert again.value("a", "it").value == pytest.approx(3 * first.value("a", "it").value)


def test_a_comparison_is_refused_after_an_edit(package, tmp_path):
    settings = dict(policies={"a": zeros, "b": "random"}, budget=400, run=tmp_path / "run.rido", **SETTINGS)
    rido.compare("edited_env:Edited-v0", **settings)
    package(*EDITS["a wrapper"])
    with pytest.raises(RunFileError, match="its environment had other code or numbers"):
        rido.compare("edited_env:Edited-v0", **settings)


def test_an_installed_environment_is_known_by_its_source_and_version(monkeypatch):
    before = environment_fingerprint("Pendulum-v1")
    assert environment_fingerprint("Pendulum-v1") == before != environment_fingerprint("CartPole-v1")
    monkeypatch.setattr(storage.importlib.metadata, "version", lambda name: "0.0.1")
    assert environment_fingerprint("Pendulum-v1") != before


def test_an_id_that_gymnasium_does_not_know_is_known_by_its_name():
    assert (
        environment_fingerprint("Catch-v0") == environment_fingerprint("Catch-v0") != environment_fingerprint("Dig-v0")
    )
