"""EvalCallback: evaluates an agent while Stable-Baselines3 trains it; needs the extra ``sb3``."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import stdtrit

from rido.core import checks
from rido.evaluation.evaluate import CriticName, evaluate
from rido.evaluation.result import Evaluation
from rido.strategies import Strategy
from rido.strategies.names import StrategyName

try:
    from stable_baselines3.common.callbacks import BaseCallback, EventCallback
    from stable_baselines3.common.vec_env import DummyVecEnv, VecEnv, VecEnvWrapper, VecMonitor, VecNormalize
except ImportError as error:
    raise ImportError('rido.integrations.sb3 needs stable-baselines3: pip install "rido[sb3]"') from error

if TYPE_CHECKING:
    import gymnasium as gym


class EvalCallback(EventCallback):
    """Evaluates the agent every so often, and keeps the best one; what SB3's ``EvalCallback`` does, with error bars.

    It logs ``eval/mean_reward``, ``eval/ci_low``, ``eval/ci_high`` and ``eval/transitions``. A model counts as better
    than the best one so far, and is saved, only when it is better by more than the error of both evaluations. Where
    the training environment is a ``VecNormalize``, observations are normalised as they are at that time in training;
    rewards never are.

    Args:
        eval_env: an id, a function that makes an environment, an environment, or a ``DummyVecEnv`` of some.
        callback_on_new_best: called when there is a new best model.
        callback_after_eval: called after every evaluation.
        budget: transitions of one evaluation, in place of a number of episodes.
        eval_freq: evaluate at every ``eval_freq``-th call of the callback.
        log_path: folder of ``evaluations.npz``: ``timesteps`` and ``results`` (as SB3 writes them, with one column),
            ``ci_low``, ``ci_high``, ``transitions``.
        best_model_save_path: folder of ``best_model.zip``.
        deterministic: whether the agent takes its most likely action or samples one.
        verbose: 1 to print each result.
        gamma: discount factor; 1, as in SB3's mean reward, if not given.
        horizon: steps over which the return is summed; the environment's time limit if not given and gamma is 1.
        strategy: as in :func:`rido.evaluate`.
        critic: as in :func:`rido.evaluate`; "policy" lets the agent's own value function carry the estimate.
        confidence: of the interval, and of the error by which a new best model must be better.
        seed: what the evaluations' randomness comes from; every evaluation has its own part of it.

    Attributes:
        best_mean_reward: value of the best model.
        last_mean_reward: value of the last evaluation.
        last_evaluation: all of the last evaluation.

    Example:
        >>> from stable_baselines3 import PPO
        >>> model = PPO("MlpPolicy", "CartPole-v1", n_steps=64, seed=0, device="cpu")
        >>> callback = EvalCallback("CartPole-v1", budget=2000, eval_freq=64, seed=0, verbose=0)
        >>> _ = model.learn(64, callback=callback)
        >>> callback.last_evaluation.transitions
        2000
    """

    def __init__(
        self,
        eval_env: str | Callable[[], gym.Env[Any, Any]] | gym.Env[Any, Any] | VecEnv,
        callback_on_new_best: BaseCallback | None = None,
        callback_after_eval: BaseCallback | None = None,
        *,
        budget: int,
        eval_freq: int = 10_000,
        log_path: str | Path | None = None,
        best_model_save_path: str | Path | None = None,
        deterministic: bool = True,
        verbose: int = 1,
        gamma: float = 1.0,
        horizon: int | None = None,
        strategy: StrategyName | Strategy | Callable[..., Strategy] = "adaptive",
        critic: CriticName | Callable[..., Any] | None = None,
        confidence: float = 0.95,
        seed: int | None = None,
    ) -> None:
        super().__init__(callback_after_eval, verbose=verbose)
        self.callback_on_new_best = callback_on_new_best
        if callback_on_new_best is not None:
            callback_on_new_best.parent = self
        self.eval_env = _plain(eval_env)
        self.eval_freq = checks.integer("eval_freq", eval_freq, least=1)
        self.log_path = None if log_path is None else Path(log_path) / "evaluations.npz"
        self.best_model_save_path = None if best_model_save_path is None else Path(best_model_save_path)
        self.confidence = checks.probability("confidence", confidence)
        self.best_mean_reward = -math.inf
        self.last_mean_reward = -math.inf
        self.last_evaluation: Evaluation | None = None
        self._options: dict[str, Any] = {
            "budget": checks.integer("budget", budget, least=1),
            "gamma": checks.discount("gamma", gamma),
            "horizon": horizon,
            "strategy": strategy,
            "critic": critic,
            "deterministic": deterministic,
        }
        self._seeds = np.random.default_rng(seed)
        self._best: Evaluation | None = None
        self._log: list[tuple[int, float, float, float, int]] = []

    def _init_callback(self) -> None:
        for folder in (self.best_model_save_path, self.log_path.parent if self.log_path is not None else None):
            if folder is not None:
                folder.mkdir(parents=True, exist_ok=True)
        if self.callback_on_new_best is not None:
            self.callback_on_new_best.init_callback(self.model)

    def _on_step(self) -> bool:
        if self.n_calls % self.eval_freq != 0:
            return True
        result = self._evaluate()
        self._record(result)
        going_on = True
        if self._best is None or _is_better(result, self._best, self.confidence):
            if self.verbose >= 1:
                print("New best mean reward!")
            self._best = result
            self.best_mean_reward = result.value
            if self.best_model_save_path is not None:
                self.model.save(self.best_model_save_path / "best_model")
            if self.callback_on_new_best is not None:
                going_on = self.callback_on_new_best.on_step()
        return going_on and self._on_event()

    def _evaluate(self) -> Evaluation:
        seed = int(self._seeds.integers(1 << 32))
        return evaluate(self.eval_env, self.model, seed=seed, progress=False, **self._options)

    def _record(self, result: Evaluation) -> None:
        """Writes one result into the logger, the file and the terminal."""
        low, high = result.interval(self.confidence)
        self.last_evaluation = result
        self.last_mean_reward = result.value
        self._log.append((self.num_timesteps, result.value, low, high, result.transitions))
        if self.log_path is not None:
            timesteps, values, lows, highs, transitions = map(np.array, zip(*self._log, strict=True))
            np.savez(
                self.log_path,
                timesteps=timesteps,
                results=values[:, None],
                ci_low=lows,
                ci_high=highs,
                transitions=transitions,
            )
        if self.verbose >= 1:
            print(f"Eval num_timesteps={self.num_timesteps}, mean_reward={result.value:.6g} [{low:.6g}, {high:.6g}]")
        self.logger.record("eval/mean_reward", result.value)
        self.logger.record("eval/ci_low", low)
        self.logger.record("eval/ci_high", high)
        self.logger.record("eval/transitions", result.transitions)
        self.logger.record("time/total_timesteps", self.num_timesteps, exclude="tensorboard")
        self.logger.dump(self.num_timesteps)


def _is_better(new: Evaluation, best: Evaluation, confidence: float) -> bool:
    """Whether a result is better than another by more than the error of their difference.

    A result of a single full-length trajectory has no standard error; then the larger mean is better, as in SB3.
    """
    error = math.hypot(new.standard_error, best.standard_error)
    if not math.isfinite(error):
        return new.value > best.value
    freedom = min(new.estimate.degrees_of_freedom, best.estimate.degrees_of_freedom)
    return new.value - best.value > float(stdtrit(freedom, (1 + confidence) / 2)) * error


def _plain(env: Any) -> Any:
    """Returns the Gymnasium environments inside SB3's; anything else as it is.

    VecNormalize is left out because the agent brings the statistics of its training, VecMonitor because only it would
    be confused by trajectories that stop before the end.
    """
    if not isinstance(env, VecEnv):
        return env
    while isinstance(env, VecEnvWrapper):
        if not isinstance(env, VecNormalize | VecMonitor):
            raise ValueError(f"eval_env must not be wrapped in {type(env).__name__}: give a function that makes it")
        env = env.venv
    if not isinstance(env, DummyVecEnv):
        raise ValueError(f"eval_env must be a DummyVecEnv where it is a VecEnv, got {type(env).__name__}")
    from gymnasium.vector import AutoresetMode, SyncVectorEnv

    envs = iter(env.envs)
    return SyncVectorEnv([lambda: next(envs)] * env.num_envs, autoreset_mode=AutoresetMode.DISABLED)
