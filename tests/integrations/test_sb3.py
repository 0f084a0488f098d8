"""EvalCallback in real, very short training runs."""

import subprocess
import sys

import numpy as np
import pytest

pytest.importorskip("stable_baselines3", reason='stable_baselines3 is missing: pip install "rido[sb3]"')

from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback, StopTrainingOnRewardThreshold
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.logger import KVWriter, Logger
from stable_baselines3.common.vec_env import VecNormalize

import rido
from rido.integrations.eval_envs import Episodes, EvalEnvs
from rido.integrations.sb3 import EvalCallback


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
        assert row["eval/mean_ep_length"] == pytest.approx(row["eval/mean_reward"])  # every step pays 1
    saved = np.load(tmp_path / "evaluations.npz")
    assert saved["timesteps"].tolist() == [64, 128, 192]
    means = [row["eval/mean_reward"] for row in logged]
    np.testing.assert_allclose(saved["results"].mean(axis=1), means, rtol=1e-12)
    errors = saved["results"].std(axis=1) / np.sqrt(saved["results"].shape[1])
    assert errors[-1] == pytest.approx(callback.last_evaluation.standard_error)
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
    sb3 = SB3(make_vec_env("CartPole-v1", 8, seed=0), 80)
    callback = EvalCallback("CartPole-v1", None, sb3, budget=8000, eval_freq=64, verbose=0, seed=2)
    model.learn(64, callback=callback)
    assert sb3.agrees_with(callback.last_evaluation)


def test_the_agents_own_value_function_may_help():
    model, _ = ppo("Pendulum-v1")
    sb3 = SB3(make_vec_env("Pendulum-v1", 8, seed=0), 50)
    callback = EvalCallback("Pendulum-v1", None, sb3, budget=4000, eval_freq=64, critic="policy", verbose=0, seed=2)
    model.learn(64, callback=callback)
    assert sb3.agrees_with(callback.last_evaluation) and callback.last_evaluation.critic == "policy"


def test_the_statistics_of_training_are_used():
    train = VecNormalize(make_vec_env("Pendulum-v1", 2, seed=0))
    model, _ = ppo(train)
    frozen = VecNormalize(make_vec_env("Pendulum-v1", 8, seed=1), training=False, norm_reward=False)
    frozen.obs_rms = train.obs_rms
    sb3 = SB3(frozen, 100)
    callback = EvalCallback("Pendulum-v1", None, sb3, budget=4000, eval_freq=64, verbose=0, seed=0)
    model.learn(128, callback=callback)
    assert sb3.agrees_with(callback.last_evaluation) and callback.last_mean_reward < -200


def test_differences_are_those_of_the_same_seeds_over_the_shorter_length():
    new, old = Episodes(3), Episodes(3)
    new.add(rido.Trajectories([[5.0, 5, 5], [1, 2, 3], [1, 1, 1]], [3, 3, 3]), [1, 2, 3])
    old.add(rido.Trajectories([[0.0, 1, 1]], [3]), [3])
    old.add(rido.Trajectories([[1.0, 1, 1], [4, 4, 4]], [3, 2]), [2, 1])
    found = new.difference(old, 1.0)
    # Seed 3: 1, 0, 0; seed 2: 0, 1, 2; seed 1: 1, 1 over two steps.
    assert found.schedule == rido.Schedule([3, 3, 2]) and found.value == pytest.approx(2 / 3 + 2 / 3 + 1)
    assert Episodes(3).difference(old, 1.0) is None


def test_one_agent_is_no_better_than_itself_however_many_episodes_the_budget_pays_for():
    envs, found = EvalEnvs("CartPole-v1", gamma=1.0, horizon=20, render=False), []
    space = make_vec_env("CartPole-v1").observation_space
    for budget in (1000, 1700):
        episodes = Episodes(20)
        settings = dict(simulator=envs.simulator(episodes), horizon=20, budget=budget, gamma=1.0, seed=3)
        rido.evaluate(envs.open(episodes, space), lambda seen: int(seen[0] > 0), progress=False, **settings)
        found.append(episodes)
    assert found[1].difference(found[0], 1.0).value == 0


def test_the_larger_mean_of_paired_differences_is_saved(tmp_path, monkeypatch):
    """The rewards of 20 episodes on the same seeds: a common part, and differences of 0.5 or more on the mean."""
    rng = np.random.default_rng(0)
    common, levels = rng.normal(0, 100, 20), iter([10.0, 9.5, 11.0, 10.5])

    def evaluate(env, model, *, simulator, seed, **options):
        rewards = np.zeros((20, 500))
        rewards[:, 0] = common + next(levels) + rng.normal(0, 0.5, 20)
        batch = rido.Trajectories(rewards, np.full(20, 500))
        simulator.keywords["episodes"].add(batch, list(range(20)))
        told = rido.RewardMoments(500, gamma=1.0)
        told.update(batch)
        estimate = rido.Estimate.from_moments(told)
        return rido.Evaluation(estimate, 10_000, 20, 1e4, "uniform", "env", "policy", 0, True, 0.0, 0.0)

    monkeypatch.setattr("rido.integrations.sb3.evaluate", evaluate)
    saved = []

    class Count(BaseCallback):
        def _on_step(self):
            saved.append(self.parent.num_timesteps)
            return True

    model, _ = ppo()
    callback = EvalCallback(
        "CartPole-v1", Count(), budget=1000, eval_freq=16, best_model_save_path=tmp_path, verbose=0, seed=0
    )
    model.learn(64, callback=callback)
    assert saved == [16, 48] and callback.best_mean_reward > callback.last_mean_reward


def test_callbacks_of_sb3_can_stop_the_training(capsys):
    model, _ = ppo()
    callback = EvalCallback("CartPole-v1", StopTrainingOnRewardThreshold(1.0), budget=1000, eval_freq=16, seed=0)
    model.learn(64, callback=callback)
    assert model.num_timesteps == 16 and "New best mean reward!" in capsys.readouterr().out


def test_a_single_trajectory_does_not_freeze_the_best_model():
    """One full-length trajectory has an infinite standard error; later models still replace it."""
    model, _ = ppo("Pendulum-v1")
    callback = EvalCallback("Pendulum-v1", n_eval_episodes=1, eval_freq=16, verbose=0, seed=0)
    values, errors, bests = [], [], []

    class Note(BaseCallback):
        def _on_step(self):
            values.append(callback.last_mean_reward)
            errors.append(callback.last_evaluation.standard_error)
            bests.append(callback.best_mean_reward)
            return True

    callback.callback = Note()
    model.learn(128, callback=callback)
    assert np.isinf(errors).all() and bests == np.maximum.accumulate(values).tolist() and len(set(bests)) > 1


def test_the_saved_agent_is_worth_what_the_callback_said(tmp_path):
    train = VecNormalize(make_vec_env("CartPole-v1", 2, seed=0))
    train.obs_rms.mean, train.obs_rms.var = np.full(4, 0.3), np.full(4, 0.01)  # without them the agent acts otherwise
    model, _ = ppo(train)
    callback = EvalCallback("CartPole-v1", budget=2000, eval_freq=64, best_model_save_path=tmp_path, verbose=0, seed=0)
    model.learn(128, callback=callback)
    told, zipped = callback.last_evaluation, tmp_path / "best_model.zip"
    again = rido.evaluate("CartPole-v1", zipped, budget=2000, gamma=1.0, seed=told.seed)
    assert again.value == told.value == callback.best_mean_reward
    (tmp_path / "vecnormalize.pkl").unlink()
    bare = rido.evaluate("CartPole-v1", zipped, budget=2000, gamma=1.0, seed=told.seed)
    assert bare.value != told.value and bare.warnings[0].startswith("best_model.zip was trained under VecNormalize")


def test_statistics_of_another_training_are_told(tmp_path):
    VecNormalize(make_vec_env("CartPole-v1")).save(tmp_path / "vecnormalize.pkl")
    model, _ = ppo()
    callback = EvalCallback("CartPole-v1", budget=1000, eval_freq=64, best_model_save_path=tmp_path, verbose=0, seed=0)
    with pytest.warns(UserWarning, match=r"vecnormalize.pkl is not of this training"):
        model.learn(1, callback=callback)


def test_without_sb3_the_message_says_what_to_install():
    code = "import sys; sys.modules['stable_baselines3'] = None; import rido.sb3"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.stderr.splitlines()[-1].endswith('pip install "rido[sb3]"')
