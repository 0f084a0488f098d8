"""Odd arguments for every public function, and odd command lines: each must work or be refused in one line.

``python -m benchmarks.fuzz`` makes 10,000 calls and writes ``results/fuzz.md``; ``--calls`` and ``--seed`` change that.
Call ``i`` of a seed is always the same: a function, one or two of its arguments, and an odd value for each. A call is
clean if it works, or if rido itself raises a ``ValueError``, ``ImportError``, ``OSError`` or ``SimulationError`` of one
line that names one of the arguments. Anything else is a raw error: another type, an error that numpy, Gymnasium or
Python raised, more than one line, or 30 seconds without an answer.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import random
import re
import resource
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction
from functools import cache, partial
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np

import rido
from rido.simulators.base import SimulationError

CALLS, SEED = 10_000, 20_261
_SECONDS = 30  # after which a call counts as a raw error
_BYTES = 12 * 2**30  # of address space, beyond which an odd size is a MemoryError and not a dead machine
_HOME = Path(rido.__file__).parent
_CLEAN = (ValueError, ImportError, OSError, SimulationError)
# What a message may call an argument whose name is not in it.
_WORDS = {
    "env": ("environment",),
    "eval_env": ("env",),
    "policies": ("policy", "names"),
    "files": ("policies", "file"),
    "critic": ("value function",),
    "trajectories": ("rewards",),
    "flat": ("rewards",),
    "tasks": ("task",),
    "path": ("suite",),
}


# Numbers that start processes, each of which imports for seconds.
_SLOW = {"workers": ("2", "7", "np.int8(5)", "array(5)", "'workers'", "'ray'")}


class Walk(gym.Env[np.ndarray, int]):
    """Five steps on a line: quick, and with no surprises of its own."""

    observation_space = gym.spaces.Box(-np.inf, np.inf, (2,), np.float64)
    action_space = gym.spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self._at = self.np_random.normal(size=2)
        return self._at.copy(), {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        self._at += [2 * int(action) - 1, 1.0]
        return self._at.copy(), float(self._at[0]), False, False, {"cost": 1.0}


class _Odd:
    """Every conversion of it fails."""

    def __float__(self) -> float:
        raise RuntimeError("no float")

    def __index__(self) -> int:
        raise RuntimeError("no index")

    def __iter__(self) -> Iterator[Any]:
        raise RuntimeError("no items")

    def __repr__(self) -> str:
        return "an\nodd\nobject"


def _torch(value: Any) -> Any:
    import torch

    return torch.tensor(value)


ODD: dict[str, Callable[[], Any]] = {
    **{
        repr(value): partial(lambda value: value, value)
        for value in (None, True, False, -1, 0, 1, 2, 7, -0.5, 0.5, 2.5, 1e300, 1e-320, 1j, ..., NotImplemented)
    },
    **{repr(text): partial(str, text) for text in ("", "0.5", "5", "nan", "random", "none", "a\nb", "\ud800", "\0")},
    **{repr(value): partial(float, value) for value in ("nan", "inf", "-inf")},
    "10**400": lambda: 10**400,
    "-10**400": lambda: -(10**400),
    "10**5000": lambda: 10**5000,
    "b'x'": lambda: b"x",
    "bytearray": lambda: bytearray(3),
    **{
        repr(value): partial(eval, repr(value))
        for value in ([], [1], [1, 2, 3], [0.5, 0.5], [None], [[1, 2], [3]], [[]], (), (0, 1), (1, 0), (None, None))
    },
    **{repr(value): partial(eval, repr(value)) for value in ({}, {1: 2}, {"a": 1}, {"a": "b", "c": None}, {1, 2})},
    "set()": set,
    "range(3)": lambda: range(3),
    "iterator": lambda: iter([1, 2]),
    "object()": object,
    "int": lambda: int,
    "dict": lambda: dict,
    "ValueError": lambda: ValueError,
    "ValueError('x')": lambda: ValueError("x"),
    "lambda": lambda: lambda: None,
    "lambda *a, **k": lambda: lambda *a, **k: None,
    "lambda x: x": lambda: lambda x: x,
    "lambda x: 1 / 0": lambda: lambda x: 1 / 0,
    "print": lambda: print,
    "np": lambda: np,
    "Decimal('0.5')": lambda: Decimal("0.5"),
    "Decimal('sNaN')": lambda: Decimal("sNaN"),
    "Fraction(1, 2)": lambda: Fraction(1, 2),
    "np.float32(0.5)": lambda: np.float32(0.5),
    "np.float64('nan')": lambda: np.float64("nan"),
    "np.int8(5)": lambda: np.int8(5),
    "np.bool_(True)": lambda: np.bool_(True),
    "np.str_('random')": lambda: np.str_("random"),
    "np.datetime64": lambda: np.datetime64("2020-01-01"),
    "array(0.9)": lambda: np.array(0.9),
    "array(5)": lambda: np.array(5),
    "array([0.9])": lambda: np.array([0.9]),
    "array([])": lambda: np.array([]),
    "array([3, 2, 1])": lambda: np.array([3, 2, 1]),
    "array of text": lambda: np.array(["a", "b"]),
    "array of objects": lambda: np.array([None, object()], dtype=object),
    "array of complex": lambda: np.array([1j, 2.0]),
    "array of NaN": lambda: np.array([np.nan, 1.0]),
    "array 2x3": lambda: np.ones((2, 3)),
    "array 1x2x3x4": lambda: np.ones((1, 2, 3, 4)),
    "uint64 max": lambda: np.array([2**64 - 1], dtype=np.uint64),
    "structured": lambda: np.zeros(2, dtype=[("a", int)]),
    "masked": lambda: np.ma.masked,
    "torch 0.5": lambda: _torch(0.5),
    "torch [1, 2]": lambda: _torch([1, 2]),
    "Path('/')": lambda: Path("/"),
    "Path('no/such')": lambda: Path("no/such"),
    "open file": lambda: io.StringIO("x"),
    "odd": _Odd,
    "[odd]": lambda: [_Odd()],
    "Walk": lambda: Walk,
    "Walk()": Walk,
    "Discrete": lambda: gym.spaces.Discrete(3),
    "Schedule": lambda: rido.Schedule([3, 2]),
    "Trajectories": lambda: rido.Trajectories([[1.0, 2.0]], [2]),
    "Uniform()": lambda: rido.Uniform(),
    "Adaptive": lambda: rido.Adaptive,
    "RewardMoments": lambda: rido.RewardMoments(3, gamma=0.5),
}


@dataclass(frozen=True)
class Target:
    """A public function.

    Attributes:
        call: the function, or what makes it anew for each call and calls it.
        arguments: those of an ordinary call, made anew for each call.
        more: names of arguments that an ordinary call leaves out.
        heavy: whether it needs packages that take seconds to import.
        weight: how often it is called, relative to its number of arguments.
    """

    call: Callable[..., Any]
    arguments: Callable[[], dict[str, Any]] = dict
    more: tuple[str, ...] = ()
    heavy: bool = False
    weight: float = 1.0


@cache
def evaluation() -> Any:
    return rido.evaluate(Walk, "random", gamma=0.9, horizon=5, budget=200, seed=0, progress=False)


@cache
def comparison() -> Any:
    two = {"a": "random", "b": lambda o: 1}
    return rido.compare(Walk, two, gamma=0.9, horizon=5, budget=400, seed=0, progress=False)


@cache
def leaderboard() -> Any:
    return suite().run(progress=False)


def suite(**changed: Any) -> Any:
    task = {"env": Walk, "gamma": 0.9, "horizon": 5}
    given = {"tasks": {"one": task}, "policies": {"a": "random", "b": lambda o: 1}, "budget": 300, **changed}
    return rido.Suite(**given)


def spent(kind: Any = None, **options: Any) -> Any:
    """Returns a strategy that was told everything."""
    strategy = (kind or rido.Adaptive)(horizon=4, budget=60, gamma=0.9, **options)
    generator = np.random.default_rng(0)
    while (schedule := strategy.ask()) is not None:
        strategy.tell(batch(schedule, generator))
    return strategy


def batch(schedule: Any, generator: np.random.Generator) -> Any:
    return rido.Trajectories(generator.normal(size=(schedule.trajectories, schedule.horizon)), schedule.lengths)


def moments() -> Any:
    found = rido.RewardMoments(4, gamma=0.9)
    found.update(batch(rido.Schedule([6, 6, 4, 4]), np.random.default_rng(1)))
    return found


def asked(strategy: Any) -> Any:
    strategy.ask()
    return strategy


@cache
def torch_policy() -> Any:
    import torch

    class Gibbs(torch.nn.Linear):
        def forward(self, observations: Any) -> Any:
            return torch.distributions.Categorical(logits=super().forward(observations.to(torch.float32)))

    torch.manual_seed(0)
    return Gibbs(2, 2)


@cache
def gradient() -> Any:
    return rido.gradient(Walk, torch_policy(), gamma=0.9, horizon=5, budget=100, seed=0, progress=False)


def _of(make: Callable[[], Any], method: str) -> Callable[..., Any]:
    """Returns what calls a method of an object that is made anew."""
    return lambda **arguments: getattr(make(), method)(**arguments)


_COLLECT = ("end_on_truncation", "env_kwargs", "deterministic", "starts", "reseed", "num_envs", "workers", "simulator")
_EVALUATE = (
    *("components", "plan_for", "reward_range", "time_budget", "until", "max_resets", "reset_cost", "strategy"),
    *("critic", "step_timeout", "run", "trust", *_COLLECT),
)


def _ordinary(**more: Any) -> Callable[[], dict[str, Any]]:
    common = {"env": Walk, "gamma": 0.9, "horizon": 5, "seed": 0, "progress": False}
    return lambda: {**common, **more}


def targets() -> dict[str, Target]:
    """Returns every public function by its name."""
    two = {"a": "random", "b": lambda o: 1}

    def full(strategy: Any) -> Any:
        return batch(strategy.ask(), np.random.default_rng(2))

    kinds = {"Uniform": (), "Robust": (), "Rido": ("batch", "beta", "delta", "reward_range")}
    kinds["Adaptive"] = ("unbiased", "until", "reset_price", "lockstep")
    sized = {"horizon": 4, "budget": 60, "gamma": 0.9}
    pair = {"name": "a", "other": "b"}
    found = {
        "evaluate": Target(rido.evaluate, _ordinary(policy="random", budget=60), _EVALUATE, weight=2),
        "compare": Target(
            rido.compare,
            _ordinary(policies=two, budget=60),
            ("confidence", "tolerance", "stop", "run", "step_timeout", "trust", *_COLLECT),
            weight=2,
        ),
        "Suite": Target(suite, dict, ("tasks", "policies", "budget", "seed", "confidence", "deterministic", "base")),
        "Suite.run": Target(
            _of(suite, "run"),
            lambda: {"progress": False},
            ("folder", "workers", "num_envs", "simulator", "step_timeout", "trust"),
        ),
        "Suite.read": Target(rido.Suite.read, lambda: {"path": "suite.toml"}),
        "Task": Target(
            rido.Task,
            lambda: {"env": Walk, "gamma": 0.9},
            ("horizon", "weight", "env_kwargs", "reference"),
        ),
        "batched": Target(rido.batched, lambda: {"function": lambda o: o}),
        "check": Target(rido.check, lambda: {"env": Walk}, ("policy", "env_kwargs", "deterministic", "trust", "seed")),
        "allocate": Target(rido.allocate, lambda: {"weights": [3.0, 2.0, 1.0], "budget": 30}, ("costs", "minimum")),
        "Race": Target(
            rido.Race,
            lambda: {"names": ["a", "b"], **sized},
            ("confidence", "tolerance", "starts", "lockstep"),
        ),
        "Race.tell": Target(
            lambda trajectories: asked(rido.Race(["a", "b"], **sized)).tell(trajectories), lambda: {"trajectories": {}}
        ),
        "Race.dealt": Target(
            lambda lengths: asked(rido.Race(["a", "b"], **sized)).dealt(lengths), lambda: {"lengths": [4, 4]}
        ),
        "Schedule": Target(rido.Schedule, lambda: {"counts": [3, 2, 1]}),
        "Schedule.from_lengths": Target(rido.Schedule.from_lengths, lambda: {"lengths": [3, 2], "horizon": 3}),
        "Schedule.uniform": Target(rido.Schedule.uniform, lambda: {"horizon": 3, "budget": 10}),
        "Schedule.robust": Target(rido.Schedule.robust, lambda: {"horizon": 3, "budget": 10, "gamma": 0.9}),
        "Schedule.optimal": Target(rido.Schedule.optimal, lambda: {"weights": [1.0, 2.0], "budget": 10}, ("costs",)),
        "Schedule.variance": Target(rido.Schedule([3, 2]).variance, lambda: {"weights": [1.0, 2.0]}),
        "Trajectories": Target(rido.Trajectories, lambda: {"rewards": [[1.0, 2.0]], "lengths": [2]}, ("steps",)),
        "Trajectories.from_flat": Target(
            rido.Trajectories.from_flat, lambda: {"flat": [1.0, 2.0], "lengths": [2]}, ("steps", "copy")
        ),
        "Trajectories.counts": Target(rido.Trajectories([[1.0, 2.0]], [2]).counts, lambda: {"horizon": 3}),
        "Trajectories.select": Target(
            rido.Trajectories([[1.0], [2.0]], [1, 1]).select, lambda: {"rows": np.array([True, False])}
        ),
        "RewardMoments": Target(rido.RewardMoments, lambda: {"horizon": 3, "gamma": 0.9}, ("metric",)),
        "RewardMoments.update": Target(
            _of(moments, "update"), lambda: {"trajectories": rido.Trajectories([[1.0]], [1])}
        ),
        "RewardMoments.merge": Target(_of(moments, "merge"), lambda: {"other": moments()}),
        "RewardMoments.component": Target(_of(moments, "component"), lambda: {"index": 0}),
        "RewardMoments.weights": Target(_of(moments, "weights"), dict, ("covariance", "beta", "reward_range")),
        "RewardMoments.weights_by_fold": Target(_of(moments, "weights_by_fold"), lambda: {"folds": 2}),
        "Oracle": Target(rido.Oracle, lambda: {"weights": [4.0, 3, 2, 1], **sized}, ("costs",)),
        "Adaptive.change_until": Target(_of(partial(spent, until=1.0), "change_until"), lambda: {"until": 0.5}),
        "Adaptive.forecast": Target(_of(spent, "forecast"), lambda: {"width": 1.0}),
        "Evaluation.interval": Target(_of(evaluation, "interval"), dict, ("confidence",)),
        "Evaluation.intervals": Target(_of(evaluation, "intervals"), dict, ("confidence", "simultaneous")),
        "Evaluation.confidence_that": Target(
            _of(evaluation, "confidence_that"), lambda: {"below": {"reward": 1.0}}, ("above",)
        ),
        "Evaluation.plot": Target(_of(evaluation, "plot"), dict, ("ax",), heavy=True),
        "Estimate.interval": Target(lambda **a: evaluation().estimate.interval(**a), dict, ("confidence",)),
        "Estimate.half_width": Target(lambda **a: evaluation().estimate.half_width(**a), dict, ("confidence",)),
        "Estimate.plus": Target(lambda **a: evaluation().estimate.plus(**a), lambda: {"values": np.ones(3)}),
        "Comparison.bounds": Target(_of(comparison, "bounds"), lambda: dict(pair)),
        "Comparison.difference": Target(_of(comparison, "difference"), lambda: dict(pair)),
        "Comparison.interval": Target(_of(comparison, "interval"), lambda: {"name": "a"}),
        "Comparison.pairing_gain": Target(_of(comparison, "pairing_gain"), lambda: dict(pair)),
        "Comparison.plot": Target(_of(comparison, "plot"), dict, ("ax",), heavy=True),
        "Leaderboard.bounds": Target(_of(leaderboard, "bounds"), lambda: dict(pair)),
        "Leaderboard.chance": Target(_of(leaderboard, "chance"), lambda: dict(pair)),
        "Leaderboard.comparison": Target(_of(leaderboard, "comparison"), lambda: {"task": "one"}),
        "Leaderboard.difference": Target(_of(leaderboard, "difference"), lambda: dict(pair)),
        "Leaderboard.interquartile_mean": Target(_of(leaderboard, "interquartile_mean"), lambda: {"names": "a"}),
        "Leaderboard.interval": Target(_of(leaderboard, "interval"), lambda: {"name": "a"}),
        "Leaderboard.probability_of_improvement": Target(
            _of(leaderboard, "probability_of_improvement"), lambda: {"names": "a", "others": "b"}
        ),
        "Leaderboard.run": Target(_of(leaderboard, "run"), lambda: {"name": "a", "task": "one"}),
        "Leaderboard.value": Target(_of(leaderboard, "value"), lambda: {"name": "a", "task": "one"}),
        "gradient": Target(
            lambda **a: rido.gradient(**{"policy": torch_policy(), **a}),
            _ordinary(budget=60),
            ("policy", "strategy", "baseline", "critic", "end_on_truncation", "env_kwargs", "projections", "num_envs"),
            heavy=True,
        ),
        **_simulators(),
        **_sb3(),
        **_jax(),
        **_envs(),
    }
    for name, options in kinds.items():
        kind = getattr(rido, name)
        found[name] = Target(kind, lambda: dict(sized), options)
        found[f"{name}.begin"] = Target(_of(kind, "begin"), lambda: dict(sized), options)
        found[f"{name}.change_budget"] = Target(_of(partial(spent, kind), "change_budget"), lambda: {"budget": 80})
        found[f"{name}.tell"] = Target(
            _of(lambda kind=kind: asked(kind(**sized)), "tell"),
            lambda kind=kind: {"trajectories": full(kind(**sized))},
        )
        found[f"{name}.variance"] = Target(_of(partial(spent, kind), "variance"), lambda: {"weights": [4.0, 3, 2, 1]})
        found[f"{name}.divide"] = Target(
            _of(lambda kind=kind: kind(**{**sized, "budget": 200}), "divide"), dict, ("replicated", "cross_fitted")
        )
        found[f"{name}.set_objective"] = Target(
            _of(lambda kind=kind: kind(**sized), "set_objective"), lambda: {"metric": None}, ("leading",)
        )
        found[f"{name}.guaranteed_interval"] = Target(
            _of(partial(spent, kind), "guaranteed_interval"), lambda: {"reward_range": (-9, 9)}, ("confidence",)
        )
    return found


def _simulators() -> dict[str, Target]:
    from rido.comparison.recorded import compare_results
    from rido.policies.resolve import resolve_policy
    from rido.simulators.gymnasium import GymnasiumSimulator

    ordinary = {"env": Walk, "policy": "random", "horizon": 5}
    spaces = {"observation_space": Walk.observation_space, "action_space": Walk.action_space}
    returns = {"a": [0.0, 1.0, 1.0], "b": [1.0, 0.0, 0.0]}
    return {
        "GymnasiumSimulator": Target(
            GymnasiumSimulator,
            lambda: dict(ordinary),
            ("gamma", "env_kwargs", "num_envs", "deterministic", "trust", "end_on_truncation", "reseed", "components"),
        ),
        "GymnasiumSimulator.rollout": Target(
            _of(lambda: GymnasiumSimulator(**ordinary), "rollout"), lambda: {"lengths": [3, 3], "seeds": [1, 2]}
        ),
        "resolve_policy": Target(resolve_policy, lambda: {"policy": "random", **spaces}, ("deterministic", "trust")),
        "compare_results": Target(compare_results, lambda: {"files": returns}, ("confidence", "tolerance")),
    }


def _sb3() -> dict[str, Target]:
    def callback(**arguments: Any) -> Any:
        import rido.sb3

        return rido.sb3.EvalCallback(**arguments)

    more = ("callback_on_new_best", "callback_after_eval", "n_eval_episodes", "eval_freq", "log_path", "deterministic")
    more += ("best_model_save_path", "render", "verbose", "warn", "budget", "gamma", "strategy", "critic", "confidence")
    return {"sb3.EvalCallback": Target(callback, lambda: {"eval_env": Walk, "horizon": 5, "seed": 0}, more, heavy=True)}


def _jax() -> dict[str, Target]:
    def call(function: str, /, **arguments: Any) -> Any:
        import rido.jax

        return getattr(rido.jax, function)(**arguments)

    def lqg() -> Any:
        return call("lqg")

    def gymnax() -> Any:
        import gymnax

        return gymnax.make("CartPole-v1")[0]

    found = {
        "JaxCritic": (lambda: {"function": lambda o, t: 0.0}, ()),
        "JaxEnv": (
            lambda: {"name": "walk", "reset": lambda key: (0.0, 0.0), "step": lambda s, a, k: (s, s, 0.0, False)},
            ("time_limit", "policy", "reset_from"),
        ),
        "JaxSimulator": (
            lambda: {"env": lqg(), "horizon": 5},
            ("policy", "gamma", "env_kwargs", "num_envs", "deterministic", "trust"),
        ),
        "StochasticPolicy": (
            lambda: {"params": {"a": np.ones(1)}, "sample": lambda p, o, k: o, "log_prob": lambda p, o, a: 0.0},
            (),
        ),
        "adapt": (lambda: {"env": lqg()}, ("env_kwargs",)),
        "from_brax": (lambda: {"env": lqg()}, ()),
        "from_gymnax": (lambda: {"env": gymnax()}, ("params",)),
        "lqg": (dict, ("noise",)),
        "navigation": (dict, ("noise",)),
        "navigation_expert": (lambda: {"observation": np.ones(2)}, ()),
    }
    made = {
        f"jax.{name}": Target(partial(call, name), arguments, more, heavy=True, weight=0.5)
        for name, (arguments, more) in found.items()
    }
    ordinary = {"gamma": 0.9, "horizon": 5, "budget": 60, "seed": 0, "progress": False}
    more = ("env", "policy", *(name for name in _EVALUATE if name != "workers"))
    made["evaluate in JAX"] = Target(
        lambda **a: rido.evaluate(**{"env": lqg(), **a}), lambda: dict(ordinary), more, heavy=True, weight=0.2
    )
    return made


def _envs() -> dict[str, Target]:
    import rido.envs

    found: dict[str, Target] = {}
    for name in ("FirstStep", "LastStep", "LQG", "Navigation"):
        options = ("noise",) if name in ("LQG", "Navigation") else ("noise", "horizon")
        found[f"envs.{name}Env"] = Target(getattr(rido.envs, f"{name}Env"), dict, options)
        vector = getattr(rido.envs, f"{name}VectorEnv")
        found[f"envs.{name}VectorEnv"] = Target(vector, dict, ("num_envs", *options))
    found["envs.LinearPolicy"] = Target(rido.envs.LinearPolicy, lambda: {"gain": 0.5})
    found["envs.default_policy"] = Target(
        rido.envs.default_policy, lambda: {"env_id": "rido/LQG-v0", "gamma": 0.9}, ("noise",)
    )
    found["envs.expert"] = Target(rido.envs.expert, lambda: {"observations": np.ones((1, 2))})
    return found


@dataclass
class Call:
    """One call: a function and the odd values of some of its arguments, by their labels."""

    target: str
    odd: dict[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.target}({', '.join(f'{name}={label}' for name, label in self.odd.items())})"


def draw(number: int, seed: int, known: dict[str, Target]) -> Call:
    """Returns call ``number`` of a seed."""
    chance = random.Random(f"{seed} {number}")
    names = sorted(known)
    arguments = {name: sorted({*known[name].arguments(), *known[name].more} - {"progress"}) for name in names}
    weights = [known[name].weight * len(arguments[name]) for name in names]
    target = chance.choices(names, weights)[0]
    several = min(len(arguments[target]), chance.choice((1, 1, 2)))
    odd = {}
    for name in chance.sample(arguments[target], several):
        odd[name] = chance.choice([label for label in sorted(ODD) if label not in _SLOW.get(name, ())])
    return Call(target, odd)


def outcome(call: Call, known: dict[str, Target]) -> tuple[str, str]:
    """Makes a call; returns "works", "refused" or "raw", and what was raised."""
    target = known[call.target]
    try:
        with _limited(), contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            target.call(**{**target.arguments(), **{name: ODD[label]() for name, label in call.odd.items()}})
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            raise
        text = str(error)
        where = traceback.extract_tb(error.__traceback__)[-1]
        said = f"{type(error).__name__}: {text[:300]} [{Path(where.filename).name}:{where.lineno}]"
        names = {*target.arguments(), *target.more}
        words = [word for name in names for word in (name, *_WORDS.get(name, ()))]
        own = Path(where.filename).is_relative_to(_HOME)
        named = isinstance(error, SimulationError) or any(re.search(rf"\b{word}", text) for word in words)
        clean = isinstance(error, _CLEAN) and own and text and "\n" not in text and named
        return ("refused" if clean else "raw"), said
    return "works", ""


@contextlib.contextmanager
def _limited() -> Iterator[None]:
    """Interrupts what takes too long, and keeps warnings to itself."""

    def late(*_: object) -> None:
        raise TimeoutError(f"no answer in {_SECONDS} seconds")

    before = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, _SECONDS)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def fuzz(calls: range, seed: int, known: dict[str, Target], shown: bool = False) -> dict[str, Counter[str]]:
    """Makes calls in an empty folder; returns how they ended, by function, and every raw error under "raw"."""
    found: dict[str, Counter[str]] = {name: Counter() for name in known}
    found["raw"] = Counter()
    home = Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            for number in calls:
                call = draw(number, seed, known)
                ended, said = outcome(call, known)
                found[call.target][ended] += 1
                if ended == "raw":
                    found["raw"][f"{call}: {said}"] += 1
                    if shown:
                        print(f"{number} {call}: {said}", flush=True)
        finally:
            os.chdir(home)
    return found


def page(found: dict[str, Counter[str]], calls: int, seed: int) -> str:
    """Returns the results as Markdown."""
    ended = sum((counts for name, counts in found.items() if name != "raw"), Counter())
    lines = [
        "# Odd arguments",
        "",
        f"`python -m benchmarks.fuzz --output results/fuzz.md`: {calls:,} calls with seed {seed}, each with one or two",
        f"odd arguments of {len(ODD)} kinds. {ended['works']:,} worked, {ended['refused']:,} were refused in one line",
        f"that names an argument, and {ended['raw']:,} ended otherwise.",
        "",
        "| function | calls | worked | refused | raw |",
        "|---|---|---|---|---|",
    ]
    for name in sorted(set(found) - {"raw"}):
        counts = found[name]
        lines.append(f"| {name} | {counts.total()} | {counts['works']} | {counts['refused']} | {counts['raw']} |")
    return "\n".join([*lines, *(f"\n- `{error}`" for error in found["raw"])]) + "\n"


def main() -> None:
    """Makes the calls and writes the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=CALLS)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--only", default="", help="functions whose names contain this")
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    resource.setrlimit(resource.RLIMIT_AS, (_BYTES, _BYTES))
    known = {name: target for name, target in targets().items() if options.only in name}
    started = time.monotonic()
    found = fuzz(range(options.first, options.first + options.calls), options.seed, known, shown=True)
    ended = sum((counts for name, counts in found.items() if name != "raw"), Counter())
    print(f"{dict(ended)} in {time.monotonic() - started:.0f} s")
    if options.output is not None:
        options.output.write_text(page(found, options.calls, options.seed), encoding="utf-8")
    sys.exit(ended["raw"] > 0)


if __name__ == "__main__":
    main()
