"""EvalCallback: evaluates an agent while Stable-Baselines3 trains it; needs the extra ``sb3``."""

from __future__ import annotations

import copy
import math
import re
import secrets
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import numpy as np

from rido.core import checks
from rido.evaluation.evaluate import CriticName, evaluate
from rido.evaluation.result import Evaluation
from rido.strategies import Strategy
from rido.strategies.names import STRATEGIES, StrategyName

try:
    from stable_baselines3.common.callbacks import BaseCallback, EventCallback
    from stable_baselines3.common.vec_env import VecEnv, VecNormalize, unwrap_vec_normalize

    from rido.integrations.eval_envs import Episodes, EvalEnvs
except ImportError as error:
    raise ImportError('rido.integrations.sb3 needs stable-baselines3: pip install "rido[sb3]"') from error

if TYPE_CHECKING:
    import gymnasium as gym

_STATISTICS = "vecnormalize.pkl"  # beside best_model.zip, where rido.evaluate looks for it


def _callback(name: str, value: Any) -> Any:
    return checks.instance(name, value, BaseCallback)


class EvalCallback(EventCallback):
    """Evaluates the agent at regular steps and keeps the best one; what SB3's ``EvalCallback`` does, with error bars.

    It takes SB3's arguments in SB3's order. It logs ``eval/mean_reward``, ``eval/mean_ep_length``,
    ``eval/success_rate`` where the environment's info has ``is_success``, ``eval/ci_low``, ``eval/ci_high`` and
    ``eval/transitions``. Every evaluation has the same seeds, and the rewards of the best model are remembered: a new
    model is compared with it trajectory by trajectory, and is saved when it is better by more than the error of that
    difference. Where the training environment is a ``VecNormalize``, observations are normalised as they are at that
    time in training; rewards never are.

    Args:
        eval_env: an id, a function that makes an environment, an environment, or a ``VecEnv``.
        callback_on_new_best: called when there is a new best model.
        callback_after_eval: called after every evaluation.
        n_eval_episodes: episodes of one evaluation, each of ``horizon`` transitions in the budget. A single one
            leaves nothing to plan, and strategy "uniform" runs it.
        eval_freq: evaluate at every ``eval_freq``-th call of the callback; never if it is not positive.
        log_path: folder of ``evaluations.npz``, which readers of SB3's file read: ``timesteps``, ``results``,
            ``ep_lengths`` and ``successes`` have two columns. Those of ``results`` have the value as their mean and its
            standard error as theirs. ``ci_low``, ``ci_high`` and ``transitions`` are new.
        best_model_save_path: folder of ``best_model.zip``, with ``vecnormalize.pkl`` where training has a
            ``VecNormalize``. :func:`rido.evaluate` uses both.
        deterministic: whether the agent takes its most likely action or samples one.
        render: whether to render every step.
        verbose: 1 to print each result.
        warn: whether to warn of what an evaluation warns of.
        budget: transitions of one evaluation; ``n_eval_episodes * horizon`` if not given.
        gamma: discount factor; 1, as in SB3's mean reward, if not given.
        horizon: steps over which the return is summed. If not given and gamma is 1, the environment's time limit; where
            it declares none, the length of the first episode that it truncates under random actions.
        strategy: as in :func:`rido.evaluate`.
        critic: as in :func:`rido.evaluate`; "policy" uses the agent's own value function as a control variate.
        confidence: of the interval.
        seed: what the evaluations' randomness comes from; drawn if not given, and the same for all evaluations.

    Attributes:
        best_mean_reward: value of the best model.
        last_mean_reward: value of the last evaluation.
        last_evaluation: all of the last evaluation.
        budget: transitions of one evaluation.
        evaluations_timesteps: training steps before each evaluation.
        evaluations_results: for each evaluation, what ``results`` has in the file.
        evaluations_length: for each evaluation, the mean length of an episode, twice.
        evaluations_successes: for each evaluation, the success rate, twice.

    Example:
        >>> from stable_baselines3 import PPO
        >>> model = PPO("MlpPolicy", "CartPole-v1", n_steps=64, seed=0, device="cpu")
        >>> callback = EvalCallback("CartPole-v1", budget=2000, eval_freq=64, seed=0, verbose=0)
        >>> _ = model.learn(64, callback=callback)
        >>> callback.last_evaluation.transitions
        1783
    """

    @checks.checked(
        n_eval_episodes=partial(checks.integer, least=1, most=10**9),
        eval_freq=partial(checks.integer, least=-(2**62)),
        verbose=partial(checks.integer, least=0),
        callback_on_new_best=_callback,
        callback_after_eval=_callback,
    )
    def __init__(
        self,
        eval_env: str | Callable[[], gym.Env[Any, Any]] | gym.Env[Any, Any] | VecEnv,
        callback_on_new_best: BaseCallback | None = None,
        callback_after_eval: BaseCallback | None = None,
        n_eval_episodes: int = 5,
        eval_freq: int = 10_000,
        log_path: str | Path | None = None,
        best_model_save_path: str | Path | None = None,
        deterministic: bool = True,
        render: bool = False,
        verbose: int = 1,
        warn: bool = True,
        *,
        budget: int | None = None,
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
        self.eval_env = eval_env
        self._envs = EvalEnvs(eval_env, gamma=gamma, horizon=horizon, render=render)
        self.n_eval_episodes, self.eval_freq = n_eval_episodes, eval_freq
        if budget is None and n_eval_episodes == 1 and strategy == "adaptive":
            strategy = "uniform"
        self.budget = n_eval_episodes * self._envs.horizon if budget is None else budget
        self.log_path = None if log_path is None else Path(log_path) / "evaluations.npz"
        self.best_model_save_path = None if best_model_save_path is None else Path(best_model_save_path)
        self.warn, self.confidence = warn, confidence
        self.best_mean_reward = self.last_mean_reward = -math.inf
        self.last_evaluation: Evaluation | None = None
        self._options: dict[str, Any] = {
            "budget": self.budget,
            "gamma": gamma,
            "horizon": self._envs.horizon,
            "strategy": strategy,
            "critic": critic,
            "deterministic": deterministic,
        }
        if isinstance(strategy, str):  # raises before any training if the budget does not suffice
            checks.choice("strategy", strategy, get_args(StrategyName))
            STRATEGIES[strategy](horizon=self._envs.horizon, budget=self.budget, gamma=gamma)
        self._seed = secrets.randbits(32) if seed is None else seed
        self._best: Episodes | None = None  # of the best model
        self._warned: set[str] = set()
        self.evaluations_timesteps: list[int] = []
        self.evaluations_results: list[list[float]] = []
        self.evaluations_length: list[list[float]] = []
        self.evaluations_successes: list[list[float]] = []
        self._intervals: list[tuple[float, float, int]] = []

    def _init_callback(self) -> None:
        if self.best_model_save_path is not None:
            checks.made_folder("best_model_save_path", self.best_model_save_path)
        if self.log_path is not None:
            checks.made_folder("log_path", self.log_path.parent)
        training, evaluating = self._normalizers()
        if training is None and evaluating is not None and evaluating.norm_obs:
            raise ValueError("eval_env must not be a VecNormalize where the training environment is none: wrap both")
        folder = self.best_model_save_path
        if training is None and folder is not None and (folder / _STATISTICS).exists():
            self._warn(f"{folder / _STATISTICS} is not of this training, but rido.evaluate will use it: move it away")
        if self.callback_on_new_best is not None:
            self.callback_on_new_best.init_callback(self.model)

    def _on_step(self) -> bool:
        if self.eval_freq <= 0 or self.n_calls % self.eval_freq != 0:
            return True
        training, evaluating = self._normalizers()
        if training is not None and evaluating is not None:  # as SB3 does
            if training.norm_obs:
                evaluating.obs_rms = copy.deepcopy(training.obs_rms)
            evaluating.ret_rms = copy.deepcopy(training.ret_rms)
        result, episodes = self._evaluate()
        going_on = True
        if self._is_best(result, episodes):
            if self.verbose >= 1:
                print("New best mean reward!")
            self._best = episodes
            self.best_mean_reward = result.value
            if (folder := self.best_model_save_path) is not None:
                self.model.save(folder / "best_model")
                if training is not None:
                    training.save(str(folder / _STATISTICS))
            if self.callback_on_new_best is not None:
                going_on = self.callback_on_new_best.on_step()
        return going_on and self._on_event()

    def _normalizers(self) -> tuple[VecNormalize | None, VecNormalize | None]:
        """Returns the VecNormalize of training and that of evaluation, None where there is none."""
        evaluating = unwrap_vec_normalize(self.eval_env) if isinstance(self.eval_env, VecEnv) else None
        return self.model.get_vec_normalize_env(), evaluating

    def _is_best(self, result: Evaluation, episodes: Episodes) -> bool:
        if self._best is None:
            return True
        # By the difference alone: few models are significantly better than the one before.
        difference = episodes.difference(self._best, self._options["gamma"])
        return result.value > self.best_mean_reward if difference is None else difference.value > 0

    def _evaluate(self) -> tuple[Evaluation, Episodes]:
        episodes = Episodes(self._envs.horizon)
        result = evaluate(
            self._envs.open(episodes, self.model.observation_space),
            self.model,
            simulator=self._envs.simulator(episodes),
            seed=self._seed,
            progress=False,
            **self._options,
        )
        self.last_evaluation = result
        self.last_mean_reward = result.value
        for warning in result.warnings:
            self._warn(warning)
        if self._envs.probed and episodes.unfinished:
            self._warn(f"episodes are longer than {self._envs.horizon} steps, and the rest is left out: give a horizon")
        self._record(result, episodes)
        return result, episodes

    def _record(self, result: Evaluation, episodes: Episodes) -> None:
        low, high = result.interval(self.confidence)
        length, success = episodes.mean_length, episodes.success_rate
        half = math.sqrt(2) * result.standard_error if math.isfinite(result.standard_error) else 0.0
        self.evaluations_timesteps.append(self.num_timesteps)
        self.evaluations_results.append([result.value - half, result.value + half])
        self.evaluations_length.append([length, length])
        self._intervals.append((low, high, result.transitions))
        numbers = {"mean_reward": result.value, "ci_low": low, "ci_high": high, "mean_ep_length": length}
        numbers["transitions"] = result.transitions
        lines = [f"Eval num_timesteps={self.num_timesteps}, mean_reward={result.value:.6g} [{low:.6g}, {high:.6g}]"]
        lines.append(f"Episode length: {length:.2f}")
        if success is not None:
            self.evaluations_successes.append([success, success])
            numbers["success_rate"] = success
            lines.append(f"Success rate: {100 * success:.2f}%")
        if self.log_path is not None:
            columns: dict[str, Any] = dict(
                zip(("ci_low", "ci_high", "transitions"), zip(*self._intervals, strict=True), strict=True)
            )
            if self.evaluations_successes:
                columns["successes"] = self.evaluations_successes
            np.savez(
                self.log_path,
                timesteps=self.evaluations_timesteps,
                results=self.evaluations_results,
                ep_lengths=self.evaluations_length,
                **columns,
            )
        if self.verbose >= 1:
            print("\n".join(lines))
        for name, number in numbers.items():
            self.logger.record(f"eval/{name}", number)
        self.logger.record("time/total_timesteps", self.num_timesteps, exclude="tensorboard")
        self.logger.dump(self.num_timesteps)

    def _warn(self, text: str) -> None:
        """Warns once; the numbers in a warning change from evaluation to evaluation."""
        if self.warn and (kind := re.sub(r"\d[\d.,]*", "", text)) not in self._warned:
            self._warned.add(kind)
            warnings.warn(text, stacklevel=2)
