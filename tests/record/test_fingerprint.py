"""Fingerprints: other content is another fingerprint, the same content is the same one in any process."""

import functools
import os
import subprocess
import sys
import threading
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest

import rido
from environments import Mortal
from helpers import needs
from rido.policies.base import Policy
from rido.policies.npz import MlpPolicy
from rido.record.database import RunFileError
from rido.record.fingerprint import fingerprint, identify
from rido.simulators import BankSimulator
from rido.simulators.gymnasium import GymnasiumSimulator
from traps import zeros

GAIN = 2.0


def scaled(observations):
    return GAIN * observations


def with_default(observations, gain=1.0):
    return gain * observations


def linear(gain):
    def act(observations):
        return np.clip(gain * observations, -1, 1)

    return act


class Linear:
    def __init__(self, gain):
        self.gain = np.array([gain])

    def __call__(self, observations):
        return self.gain * observations

    def act(self, observations):
        return self.gain * observations


@dataclass(frozen=True)
class Settings:
    gain: float
    names: tuple[str, ...] = ("a", "b")
    more: dict[str, set[str]] = field(default_factory=lambda: {"letters": set("abcdefgh")})


class Recursive:
    def __init__(self, number):
        self.number, self.me = number, self


class Steady(Policy):
    name = "steady"

    def __init__(self, gain):
        self.gain = gain

    def __call__(self, observations, generators):
        return self.gain * observations


def torch_network(scale):
    torch = needs("torch", "sb3")
    network = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.Tanh())
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.fill_(scale)
    return network


def jax_closure(scale):
    jnp = needs("jax.numpy", "jax")
    weights = scale * jnp.ones(3)
    return lambda observation: weights * observation


def jitted(scale):
    return needs("jax", "jax").jit(jax_closure(scale))


MAKERS = {
    "closure": linear,
    "nested": lambda gain: partial(linear(gain), 3),
    "lambda": lambda gain: lambda observations: gain * observations,
    "object": Linear,
    "method": lambda gain: Linear(gain).act,
    "dataclass": Settings,
    "cycle": Recursive,
    "array": lambda gain: {"weights": np.full((2, 3), gain), "names": ["a"]},
    "objects": lambda gain: np.array([gain, "a", None], dtype=object),
    "cached": lambda gain: functools.cache(linear(gain)),
    "space": lambda gain: gym.spaces.Box(-gain, gain, (2,)),
    "policy": Steady,
    "bank": lambda gain: BankSimulator([[gain, 2.0], [3.0, 4.0]]),
    "torch": torch_network,
    "jax": jax_closure,
    "jit": jitted,
}


@pytest.mark.parametrize("kind", MAKERS)
def test_content_tells_things_apart(kind):
    make = MAKERS[kind]
    assert fingerprint(make(0.5)) == fingerprint(make(0.5)) != fingerprint(make(0.25))


def test_code_constants_defaults_and_globals_count(monkeypatch):
    def one(observations):
        return observations + 1

    def two(observations):
        return observations + 2

    def product(observations):
        return observations * 1

    assert len({fingerprint(function) for function in (one, two, product)}) == 3
    before = fingerprint(with_default)
    monkeypatch.setattr(with_default, "__defaults__", (2.0,))
    assert fingerprint(with_default) != before
    before = fingerprint(scaled)
    monkeypatch.setattr(sys.modules[__name__], "GAIN", 3.0)
    assert fingerprint(scaled) != before


def test_a_class_counts_with_its_methods():
    def make(factor):
        class Acts:
            @property
            def double(self):
                return factor

            def __call__(self, observations):
                return self.double * observations

        return Acts()

    assert fingerprint(make(1)) == fingerprint(make(1)) != fingerprint(make(2))


def test_where_a_generator_stands_does_not_count():
    rng = np.random.default_rng(0)

    def act(observations):
        return rng.normal(size=observations.shape)

    before = fingerprint(act)
    act(np.zeros(3))
    assert fingerprint(act) == before


def test_the_order_of_keys_does_not_count():
    assert fingerprint({"a": 1, "b": 2}) == fingerprint({"b": 2, "a": 1}) != fingerprint({"a": 2, "b": 1})


def test_another_process_finds_the_same():
    program = (
        "import test_fingerprint as t, rido.record.fingerprint as f; "
        "print([f.fingerprint(make(0.5)) for make in t.MAKERS.values()], f.fingerprint(t.scaled, t.with_default))"
    )
    here = Path(__file__).parent
    found = set()
    for seed in ("1", "2"):
        path = os.pathsep.join([str(here), str(Path(rido.__file__).parents[1]), *sys.path])
        environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": path}
        found.add(subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True).stdout)
    assert len(found) == 1 and len(found.pop()) > 64 * len(MAKERS)


class Opaque:
    """A policy that holds something without content."""

    def __init__(self):
        self.lock = threading.Lock()

    def __call__(self, observations):
        return np.zeros(len(observations), dtype=int)

    def act(self, observations):
        return np.zeros(len(observations), dtype=int)


def test_what_cannot_be_read_needs_a_name():
    opaque = Opaque()
    for policy in (opaque, opaque.act):
        with pytest.raises(ValueError, match=r"policy must have content .* with a _thread\.lock inside: give it an"):
            identify("policy", policy)
    opaque.name = "first"
    first = identify("policy", opaque)
    assert first == identify("policy", opaque.act)
    opaque.name = "second"
    assert identify("policy", opaque) != first
    opaque.fingerprint = "abc"
    assert identify("policy", opaque) == "abc"


# Runs that go on


def flat(value):
    return lambda observations, steps_to_go: np.full(len(observations), value)


class Loaded:
    """A simulator of one's own with a parameter, whose rewards it scales."""

    num_envs = 8

    def __init__(self, scale):
        self.scale = scale

    def rollout(self, lengths, seeds):
        rewards = [np.random.default_rng(s).normal(self.scale, 1, n) for n, s in zip(lengths, seeds, strict=True)]
        return rido.Trajectories(np.concatenate(rewards), lengths)


def pendulum(policy, **settings):
    return rido.evaluate("Pendulum-v1", policy, **{"budget": 300, "gamma": 0.9, "horizon": 20, "seed": 1, **settings})


MORTAL = partial(Mortal, death=0.1)


def mortal(policy=zeros, env=MORTAL, **settings):
    return rido.evaluate(env, policy, **{"budget": 500, "gamma": 0.9, "horizon": 20, "seed": 1, **settings})


def act_on(gain):
    return lambda observations: gain * observations[:, 1:2]


def ppo(shift):
    model = needs("stable_baselines3", "sb3").PPO("MlpPolicy", "Pendulum-v1", seed=0, device="cpu")
    model.policy.action_net.bias.data += shift
    return model


RUNS = {
    "function": lambda gain: partial(pendulum, act_on(gain)),
    "model": lambda gain: partial(pendulum, ppo(gain)),
    "simulator": lambda gain: lambda **s: rido.evaluate(Loaded(gain), budget=300, gamma=0.9, horizon=20, seed=1, **s),
    "our simulator": lambda gain: (
        lambda **s: rido.evaluate(
            GymnasiumSimulator("Pendulum-v1", act_on(gain), horizon=20), budget=300, gamma=0.9, horizon=20, seed=1, **s
        )
    ),
    "environment": lambda gain: partial(mortal, env=partial(Mortal, death=gain / 10)),
    "critic": lambda gain: partial(mortal, critic=flat(gain)),
}


@pytest.mark.parametrize("kind", RUNS)
def test_a_run_goes_on_with_what_it_began_with_and_with_nothing_else(kind, tmp_path):
    """The old number was returned for whatever had the same name."""
    path = tmp_path / "run.rido"
    first = RUNS[kind](1.0)(run=path)
    assert RUNS[kind](1.0)(run=path).value == first.value
    with pytest.raises(RunFileError, match=r"is of another run: its [a-z]+ had other code or numbers; give"):
        RUNS[kind](2.0)(run=path)


def test_workers_go_on_with_what_one_process_began(tmp_path):
    def constant(action):
        return lambda observations: np.full(len(observations), action)

    first = mortal(constant(0), run=tmp_path / "run.rido")
    assert mortal(constant(0), run=tmp_path / "run.rido", workers=2).value == first.value
    with pytest.raises(RunFileError, match="its policy had other code or numbers"):
        mortal(constant(1), run=tmp_path / "run.rido", workers=2)


def test_a_policy_without_readable_content_is_refused_only_where_a_run_is_recorded(tmp_path):
    mortal(Opaque())
    with pytest.raises(ValueError, match="give it an attribute name, another one for each policy"):
        mortal(Opaque(), run=tmp_path / "run.rido")
    assert not (tmp_path / "run.rido").exists()


def test_an_environment_that_exists_already_is_known_by_what_made_it(tmp_path):
    def made(**kwargs):
        return gym.make("Pendulum-v1", **kwargs)

    def evaluate(env):
        return rido.evaluate(env, "random", budget=300, gamma=0.9, horizon=20, seed=1, run=tmp_path / "run.rido")

    env = made(g=9.0)
    first = evaluate(env)
    assert evaluate(env).value == evaluate(made(g=9.0)).value == first.value
    with pytest.raises(RunFileError, match="its environment had other code or numbers"):
        evaluate(made(g=5.0))
    with pytest.raises(ValueError, match="env must be an id or a function that makes it where a run is recorded"):
        rido.evaluate(Mortal(), zeros, budget=300, gamma=0.9, horizon=20, run=tmp_path / "other.rido")


def test_agents_of_arrays_are_known_by_them():
    arrays = MlpPolicy.load(next((Path(rido.__file__).parent).rglob("*.npz"))).arrays
    other = {**arrays, "actor.0.bias": arrays["actor.0.bias"] + np.float32(1)}
    assert MlpPolicy(arrays).fingerprint == MlpPolicy(arrays).fingerprint != MlpPolicy(other).fingerprint
