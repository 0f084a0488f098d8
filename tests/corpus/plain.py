"""The reference: the loop that a user would write. And what rido says of the same case, with a verdict."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

import rido
from rido.simulators.base import SimulationError, trajectory_seeds

EPISODES = 600  # of plain loops together, for the truth of a case
MISS = 4.0  # standard errors beyond which a value is wrong
VERDICTS = ("right", "refused", "warned", "silent")
STRATEGY_WARNINGS = ("all ", "too few", "1 of ", "the interval reaches")


def by_author(policy: Any) -> Callable[[Any], Any]:
    """Returns how the author calls a policy in an episode that begins: with one observation."""
    if hasattr(policy, "reset"):
        policy.reset()
    if callable(policy):
        return policy

    def act(observation):
        found = policy.predict(observation)
        return found[0] if isinstance(found, tuple) else found

    return act


def on_batches(policy: Any) -> Callable[[Any], Any]:
    return lambda observation: np.asarray(policy(np.asarray(observation)[None]))[0]


@dataclass(frozen=True)
class Case:
    """An environment and a policy.

    Attributes:
        env: makes the environment of a world; worlds differ where an environment draws by itself.
        policy: makes the policy.
        horizon: steps of an episode.
        act: how the author calls the policy in an episode; see :func:`by_author`.
        before: puts state of the process back before a run.
        unseen: whether nothing can see what is wrong, see docs/warnings.md.
        given: what rido gets where that is not ``env`` of a world: an instance, an id, or rows.
        options: of :func:`rido.evaluate`.
    """

    name: str
    env: Callable[[int], Any]
    policy: Callable[[], Any]
    horizon: int = 12
    act: Callable[[Any], Callable[[Any], Any]] = by_author
    before: Callable[[], None] = lambda: None
    unseen: bool = False
    given: Callable[[int], Any] | None = None
    options: tuple[tuple[str, Any], ...] = ()


@dataclass(frozen=True)
class Verdict:
    """What came of a case: ``kind`` is one of VERDICTS, ``z`` the miss in standard errors, ``text`` what was said."""

    kind: str
    z: float = math.nan
    text: str = ""


def plain_loop(case: Case, seeds: list[int], world: int, gamma: float) -> list[float]:
    """Returns the discounted return of an episode from each seed, in one environment, one after the other."""
    case.before()
    env, policy, returns = case.env(world), case.policy(), []
    for seed in seeds:
        observation, _ = env.reset(seed=seed)
        act, total = case.act(policy), 0.0
        for step in range(case.horizon):
            action = _to_numpy(act(observation), env)
            observation, reward, terminated, truncated, _ = env.step(action)
            total += gamma**step * float(np.asarray(reward).reshape(()) if np.size(reward) == 1 else np.nan)
            if terminated or truncated:
                break
        returns.append(total)
    return returns


def _to_numpy(action: Any, env: Any) -> Any:
    """An action in the shape of the space, as a user would pass it on."""
    if hasattr(action, "detach"):
        action = action.detach().numpy()
    if isinstance(action, (tuple, dict)) or env.action_space.shape is None:
        return action
    shape = env.action_space.shape
    return np.asarray(action).reshape(shape) if np.size(action) == math.prod(shape) else action


@functools.cache
def truth(case: Case, episodes: int, gamma: float) -> tuple[float, float, float]:
    """Mean return of plain loops of this many episodes, its standard error, and the share of returns that repeat."""
    loops = max(2, math.ceil(EPISODES / episodes))
    found = [
        plain_loop(case, trajectory_seeds(10_000 + loop, 0, episodes), 10_000 + loop, gamma) for loop in range(loops)
    ]
    returns, means = np.array(found), np.mean(found, axis=1)
    # Episodes of one loop may depend on each other, loops do not.
    error = max(means.std(ddof=1) / math.sqrt(loops), returns.std(ddof=1) / math.sqrt(returns.size))
    return float(means.mean()), float(error), repeats(found[0])


def repeats(returns: Any) -> float:
    """The share of returns that another episode has too, to the last bit."""
    return 1 - np.unique(returns).size / np.size(returns)


def judge(
    case: Case,
    *,
    num_envs: int | None,
    workers: int = 1,
    strategy: Any = "adaptive",
    gamma: float = 0.9,
    seed: int = 0,
    episodes: int = 40,
) -> Verdict:
    """Evaluates a case, and compares the result with the plain loop's."""
    case.before()
    budget = episodes * case.horizon
    settings = dict(horizon=case.horizon, gamma=gamma, strategy=strategy, budget=budget, seed=seed, workers=workers)
    try:
        env = functools.partial(case.env, seed) if case.given is None else case.given(seed)
        policy = case.policy()
        result = rido.evaluate(env, policy, progress=False, num_envs=num_envs, **settings, **dict(case.options))
    except (ValueError, ImportError, SimulationError) as error:
        return Verdict("refused" if "\n" not in str(error) else "silent", text=str(error))
    except Exception as error:
        return Verdict("silent", text=f"raised {error!r}")
    said = [text for text in result.warnings if not text.startswith(STRATEGY_WARNINGS)]
    value, error, usual = truth(case, episodes, gamma)
    spread = math.hypot(result.standard_error, error)
    z = 0.0 if math.isclose(result.value, value, rel_tol=1e-6) else (result.value - value) / max(spread, 1e-300)
    copied = result.full_length is not None and copies(result) > usual + 0.25
    if abs(z) <= MISS and not copied:
        return Verdict("right", z, "; ".join(said))
    return Verdict("warned" if said else "silent", z, "; ".join(said) or ("copies of the same noise" if copied else ""))


def copies(result: Any) -> float:
    """The share of full-length trajectories whose return another one has too."""
    found = np.asarray(result.full_length.values).ravel()
    return repeats(found) if found.size else 0.0
