"""EvalCallback in real, very short training runs."""

import subprocess
import sys

import gymnasium as gym
import numpy as np
import pytest

pytest.importorskip("stable_baselines3", reason='stable_baselines3 is missing: pip install "rido[sb3]"')

from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback, StopTrainingOnRewardThreshold
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.logger import KVWriter, Logger
from stable_baselines3.common.vec_env import SubprocVecEnv, VecFrameStack, VecNormalize

from rido.integrations.sb3 import EvalCallback, _is_better


class Memory(KVWriter):
    """Keeps what SB3's logger writes."""

    def __init__(self):
        self.rows = []

    def write(self, key_values, key_excluded, step=0):
        self.rows.append(dict(key_values))

    def close(self):
        pass


def ppo(env="CartPole-v1"):
    model = PPO("MlpPolicy", env, n_steps=64, batch_size=64, n_epochs=1, seed=0, device="cpu")
    memory = Memory()
    model.set_logger(Logger(None, [memory]))
    return model, memory


def test_it_logs_the_mean_reward_with_its_interval(tmp_path):
    model, memory = ppo()
    callback = EvalCallback(
        "CartPole-v1", budget=3000, eval_freq=64, log_path=tmp_path, best_model_save_path=tmp_path, verbose=0, seed=2
    )
    model.learn(192, callback=callback)
    logged = [row for row in memory.rows if "eval/mean_reward" in row]
    assert len(logged) == 3
    for row in logged:
        assert row["eval/ci_low"] < row["eval/mean_reward"] < row["eval/ci_high"]
        assert 2500 < row["eval/transitions"] <= 3000
    saved = np.load(tmp_path / "evaluations.npz")
    assert saved["timesteps"].tolist() == [64, 128, 192]
    assert saved["results"].tolist() == [[row["eval/mean_reward"]] for row in logged]
    assert callback.last_mean_reward == logged[-1]["eval/mean_reward"]
    assert PPO.load(tmp_path / "best_model", device="cpu").num_timesteps > 0


class SB3(BaseCallback):
    """Evaluates the same model at the same time with SB3's own function."""

    def __init__(self, env, episodes):
        super().__init__()
        self.env, self.episodes = env, episodes

    def _on_step(self):
        self.returns, _ = evaluate_policy(self.model, self.env, self.episodes, return_episode_rewards=True)
        return True

    def agrees_with(self, result):
        # Both have a normal error; five standard deviations of the difference are a false alarm in 2 million.
        error = np.hypot(result.standard_error, np.std(self.returns) / np.sqrt(self.episodes))
        return abs(result.value - np.mean(self.returns)) < 5 * error


def test_it_agrees_with_sb3():
    model, _ = ppo()
    sb3 = SB3(make_vec_env("CartPole-v1", 8, seed=0), 200)
    callback = EvalCallback("CartPole-v1", None, sb3, budget=20_000, eval_freq=64, verbose=0, seed=2)
    model.learn(64, callback=callback)
    assert sb3.agrees_with(callback.last_evaluation)


def test_the_agents_own_value_function_may_help():
    model, _ = ppo("Pendulum-v1")
    sb3 = SB3(make_vec_env("Pendulum-v1", 8, seed=0), 50)
    callback = EvalCallback("Pendulum-v1", None, sb3, budget=4000, eval_freq=64, critic="policy", verbose=0, seed=2)
    model.learn(64, callback=callback)
    assert sb3.agrees_with(callback.last_evaluation) and callback.last_evaluation.critic == "policy"


def test_environments_may_be_made_passed_or_vectorised():
    envs = [
        lambda: gym.make("CartPole-v1"),
        gym.make("CartPole-v1"),
        make_vec_env("CartPole-v1", 2),
        VecNormalize(make_vec_env("CartPole-v1", 1)),
    ]
    values = set()
    for env in envs:
        model, _ = ppo()
        callback = EvalCallback(env, budget=1500, eval_freq=32, horizon=100, verbose=0, seed=0)
        model.learn(32, callback=callback)
        values.add(callback.last_mean_reward)
    assert len(values) == 1


def test_the_statistics_of_training_are_used():
    train = VecNormalize(make_vec_env("Pendulum-v1", 2, seed=0))
    model, _ = ppo(train)
    frozen = VecNormalize(make_vec_env("Pendulum-v1", 8, seed=1), training=False, norm_reward=False)
    frozen.obs_rms = train.obs_rms
    sb3 = SB3(frozen, 100)
    callback = EvalCallback("Pendulum-v1", None, sb3, budget=4000, eval_freq=64, verbose=0, seed=0)
    model.learn(128, callback=callback)
    assert sb3.agrees_with(callback.last_evaluation) and callback.last_mean_reward < -200


def evaluation(value, error):
    from rido import Estimate, Evaluation, Schedule

    estimate = Estimate(value, error, 99, Schedule([100]), 1.0, False)
    return Evaluation(estimate, 100, 100, 100.0, "uniform", "env", "policy", 0, True, 0.0, 0.0)


@pytest.mark.parametrize(
    ("value", "error", "better"),
    [(12.0, 1.0, False), (13.0, 1.0, True), (9.0, 0.0, False)],
)
def test_better_means_by_more_than_the_error(value, error, better):
    # The difference to 10 +- 1 has standard error sqrt(2), of which t(99) = 1.984 times is 2.81.
    assert _is_better(evaluation(value, error), evaluation(10.0, 1.0), 0.95) is better


@pytest.mark.parametrize("errors", [(np.inf, 1.0), (1.0, np.inf), (np.inf, np.inf)])
def test_without_an_error_the_larger_mean_is_better(errors):
    """A single trajectory has no standard error; as in SB3, training still finds a better model."""
    new, best = errors
    assert _is_better(evaluation(11.0, new), evaluation(10.0, best), 0.95)
    assert not _is_better(evaluation(10.0, new), evaluation(10.0, best), 0.95)
    assert not _is_better(evaluation(9.0, new), evaluation(10.0, best), 0.95)


def test_only_a_clear_improvement_is_saved(tmp_path, monkeypatch):
    results = iter([evaluation(10, 1), evaluation(12, 1), evaluation(20, 1), evaluation(19, 1)])
    monkeypatch.setattr("rido.integrations.sb3.evaluate", lambda *arguments, **options: next(results))
    saved = []

    class Count(BaseCallback):
        def _on_step(self):
            saved.append(self.parent.best_mean_reward)
            return True

    model, _ = ppo()
    callback = EvalCallback("CartPole-v1", Count(), budget=500, eval_freq=16, best_model_save_path=tmp_path, verbose=0)
    model.learn(64, callback=callback)
    assert saved == [10, 20] and callback.best_mean_reward == 20 and callback.last_mean_reward == 19


def test_callbacks_of_sb3_can_stop_the_training(capsys):
    model, _ = ppo()
    callback = EvalCallback("CartPole-v1", StopTrainingOnRewardThreshold(1.0), budget=1000, eval_freq=16, seed=0)
    model.learn(64, callback=callback)
    assert model.num_timesteps == 16 and "New best mean reward!" in capsys.readouterr().out


def test_what_cannot_be_evaluated_is_refused():
    with pytest.raises(ValueError, match="must not be wrapped in VecFrameStack"):
        EvalCallback(VecFrameStack(make_vec_env("CartPole-v1"), 2), budget=500)
    workers = SubprocVecEnv([lambda: gym.make("CartPole-v1")])
    with pytest.raises(ValueError, match="must be a DummyVecEnv"):
        EvalCallback(workers, budget=500)
    workers.close()
    with pytest.raises(ValueError, match="eval_freq must be an integer of at least 1"):
        EvalCallback("CartPole-v1", budget=500, eval_freq=0)


def test_without_sb3_the_message_says_what_to_install():
    code = "import sys; sys.modules['stable_baselines3'] = None; import rido.sb3"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.stderr.splitlines()[-1].endswith('pip install "rido[sb3]"')
