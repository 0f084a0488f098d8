"""EvalCallback does what SB3's callback and evaluate_policy do, where docs/stable_baselines3.md says so.

The behaviours are those of SB3's own tests (test_callbacks, test_utils, test_vec_normalize, test_her).
"""

import inspect
import warnings
from functools import partial

import gymnasium as gym
import numpy as np
import pytest

pytest.importorskip("stable_baselines3", reason='stable_baselines3 is missing: pip install "rido[sb3]"')

import stable_baselines3.common.callbacks as theirs
import torch
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from stable_baselines3 import A2C, DQN, PPO, SAC
from stable_baselines3.common.atari_wrappers import ClipRewardEnv, EpisodicLifeEnv
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.envs import BitFlippingEnv, IdentityEnv
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.logger import KVWriter, Logger
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import (
    DummyVecEnv,
    SubprocVecEnv,
    VecCheckNan,
    VecEnvWrapper,
    VecExtractDictObs,
    VecFrameStack,
    VecMonitor,
    VecNormalize,
    VecTransposeImage,
)

import rido
from rido.integrations.sb3 import EvalCallback

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")


def learn(callback, env="CartPole-v1", steps=32, algorithm=PPO, policy="MlpPolicy"):
    """Trains for a few steps, with an evaluation by the callback, and returns the model."""
    options = dict(batch_size=16) if algorithm is PPO else {}
    network = dict(net_arch=[8])
    model = algorithm(policy, env, n_steps=16, seed=0, device="cpu", policy_kwargs=network, **options)
    return model.learn(steps, callback=callback)


def cartpole():
    return gym.make("CartPole-v1")


class Note(theirs.BaseCallback):
    """Counts its calls, and answers."""

    def __init__(self, answer=True):
        super().__init__()
        self.answer = answer

    def _on_step(self):
        assert isinstance(self.parent, EvalCallback | theirs.CallbackList)
        return self.answer


class Memory(KVWriter):
    def __init__(self):
        self.rows = []

    def write(self, key_values, key_excluded, step=0):
        self.rows.append((step, dict(key_values)))

    def close(self):
        pass


def test_arguments_are_sb3s_in_their_order_with_their_defaults(tmp_path):
    names = {}
    for callback in (theirs.EvalCallback, EvalCallback):
        parameters = inspect.signature(callback).parameters.values()
        names[callback] = [(p.name, p.default) for p in parameters if p.kind is not p.KEYWORD_ONLY]
    assert names[EvalCallback] == names[theirs.EvalCallback]
    best, after = Note(), Note()
    callback = EvalCallback(
        cartpole(), best, after, 2, 16, tmp_path / "log", tmp_path / "best", True, False, 0, False, seed=0
    )
    learn(callback)
    assert (after.n_calls, callback.n_eval_episodes, callback.budget) == (2, 2, 1000) and best.n_calls >= 1
    assert (tmp_path / "log" / "evaluations.npz").is_file() and (tmp_path / "best" / "best_model.zip").is_file()


@pytest.mark.parametrize("freq", [0, -1])
def test_a_frequency_that_is_not_positive_means_never(freq):
    callback = EvalCallback("CartPole-v1", eval_freq=freq, seed=0)
    learn(callback)
    assert callback.last_evaluation is None


@pytest.mark.parametrize("algorithm", [A2C, SAC, DQN])
def test_it_works_beside_sb3s_other_callbacks(algorithm, tmp_path):
    env_id = "CartPole-v1" if algorithm is DQN else "Pendulum-v1"
    options = dict(policy_kwargs=dict(net_arch=[8]), device="cpu", seed=0)
    model = algorithm("MlpPolicy", env_id, **options)
    ours = EvalCallback(
        gym.make(env_id),
        theirs.CallbackList([Note(), theirs.StopTrainingOnRewardThreshold(1e9)]),
        theirs.StopTrainingOnNoModelImprovement(max_no_improvement_evals=2, min_evals=1),
        n_eval_episodes=1,
        eval_freq=8,
        best_model_save_path=tmp_path,
        verbose=0,
        warn=False,
        seed=0,
    )
    checkpoint = theirs.CheckpointCallback(save_freq=20, save_path=tmp_path)
    every = theirs.EveryNTimesteps(16, Note())
    every.callback.parent = ours
    model.learn(32, callback=[checkpoint, ours, every], progress_bar=False)
    assert ours.n_calls == model.num_timesteps == ours.num_timesteps
    assert ours.callback.locals["self"] is model  # a child sees the locals of training


def test_no_improvement_stops_the_training():
    """Identity pays 100 whatever the agent does: the first evaluation is the best for ever."""
    stop = theirs.StopTrainingOnNoModelImprovement(max_no_improvement_evals=2, min_evals=1)
    model = A2C("MlpPolicy", IdentityEnv(), seed=0, device="cpu")
    model.learn(100, callback=EvalCallback(IdentityEnv(), None, stop, 1, 5, verbose=0, seed=0))
    assert model.num_timesteps == 20


@pytest.mark.parametrize("answer", [False, np.bool_(False), torch.tensor(False)])
@pytest.mark.parametrize("which", ["callback_on_new_best", "callback_after_eval"])
def test_a_child_can_stop_the_training(which, answer):
    callback = EvalCallback("CartPole-v1", eval_freq=4, verbose=0, seed=0, **{which: Note(answer)})
    assert learn(callback).num_timesteps == 4


def test_a_vec_env_without_a_time_limit_gives_the_exact_value():
    callback = EvalCallback(DummyVecEnv([IdentityEnv] * 3), eval_freq=16, verbose=0, seed=0)
    learn(callback, IdentityEnv(), algorithm=A2C)
    assert callback.last_mean_reward == 100.0 and callback.budget == 500
    assert callback.last_evaluation.environment == "IdentityEnv"


def test_episodes_longer_than_the_time_limit_that_was_found_are_told():
    class Longer(IdentityEnv):
        """Episodes have one step more from the second on."""

        def reset(self, **options):
            self.ep_length = 5 + (self.num_resets > 0)
            return super().reset(**options)

    with pytest.warns(UserWarning, match="episodes are longer than 5 steps"):
        learn(EvalCallback(Longer(), eval_freq=32, verbose=0, seed=0), IdentityEnv())


def test_an_environment_that_is_never_truncated_needs_a_horizon():
    class Endless(IdentityEnv):
        def step(self, action):
            observation, reward, _, _, info = super().step(action)
            return observation, reward, False, False, info

    with pytest.raises(ValueError, match="horizon must be given"):
        EvalCallback(Endless(), seed=0)
    assert EvalCallback(Endless(), horizon=50, seed=0).budget == 250


class Chance(gym.Env):
    """Ends after 1 to 4 steps, with a success in 3 of 10 episodes at random, at the end of which it pays 1."""

    observation_space, action_space = spaces.Box(-1, 1, (1,)), spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.left = int(self.np_random.integers(1, 5))
        self.succeeds = bool(self.np_random.random() < 0.3)
        return np.zeros(1, np.float32), {}

    def step(self, action):
        self.left -= 1
        ended = self.left == 0
        info = {"is_success": self.succeeds} if ended else {}
        return np.zeros(1, np.float32), float(ended and self.succeeds), ended, False, info


@pytest.mark.parametrize("env", [Chance, DummyVecEnv([Chance] * 2)])
def test_lengths_and_successes_are_logged_with_the_right_timestep(env, tmp_path):
    memory = Memory()
    callback = EvalCallback(env, eval_freq=12, log_path=tmp_path, verbose=0, budget=4000, horizon=10, seed=0)
    model = DQN("MlpPolicy", Chance(), seed=0, device="cpu")
    model.set_logger(Logger(None, [memory]))
    model.learn(24, callback=callback)
    logged = [(step, row) for step, row in memory.rows if "eval/mean_reward" in row]
    assert [step for step, _ in logged] == [12, 24]
    for _, row in logged:
        # About 1,600 episodes: lengths have a standard deviation of 1.12, successes of 0.46. Six standard errors of
        # either are 0.17 and 0.07; a false alarm comes in one of 500 million.
        assert abs(row["eval/mean_ep_length"] - 2.5) < 0.17 and abs(row["eval/success_rate"] - 0.3) < 0.07
    saved = np.load(tmp_path / "evaluations.npz")
    assert saved["timesteps"].tolist() == [12, 24]
    assert {saved[key].shape for key in ("results", "ep_lengths", "successes")} == {(2, 2)}


def test_success_of_a_goal_environment_is_known(tmp_path):
    """A single bit is right after one flip or two."""
    callback = EvalCallback(
        BitFlippingEnv(n_bits=1, max_steps=3), eval_freq=16, horizon=3, log_path=tmp_path, verbose=0, seed=0
    )
    learn(callback, BitFlippingEnv(n_bits=1, max_steps=3), policy="MultiInputPolicy")
    assert np.load(tmp_path / "evaluations.npz")["successes"].tolist() == [[1, 1], [1, 1]]


def test_rl_zoos_plots_read_the_file(tmp_path):
    """What rl_zoo3.plots.all_plots computes from several runs: the last evaluation of each, and their deviation."""
    last = []
    for run in range(2):
        callback = EvalCallback("CartPole-v1", eval_freq=16, log_path=tmp_path / str(run), verbose=0, seed=0)
        learn(callback)
        log = np.load(tmp_path / str(run) / "evaluations.npz")
        last.append((log["results"][-1], callback.last_mean_reward))
        assert len(log["timesteps"]) == len(log["results"].mean(axis=1)) == 2
    np.testing.assert_allclose(np.array([row for row, _ in last]).squeeze().mean(axis=-1), [mean for _, mean in last])


ENVS = {
    "factory": lambda: cartpole,
    "environment": cartpole,
    "monitored": lambda: Monitor(cartpole()),
    "vectorised": lambda: make_vec_env("CartPole-v1", 2),
    "wrapped": lambda: VecCheckNan(VecMonitor(DummyVecEnv([cartpole] * 2))),
    "processes": lambda: VecMonitor(SubprocVecEnv([partial(gym.make, "CartPole-v1")] * 2)),
    "gymnasium": lambda: SyncVectorEnv([cartpole] * 2, autoreset_mode=AutoresetMode.SAME_STEP),
}


def evaluated(env):
    callback = EvalCallback(env, eval_freq=16, budget=1000, verbose=0, seed=0)
    learn(callback, steps=16)
    found = callback.last_evaluation  # not its transitions: one environment alone has no rehearsal
    return found.value, found.standard_error, found.trajectories


@pytest.fixture(scope="module")
def of_the_id():
    return evaluated("CartPole-v1")


@pytest.mark.parametrize("kind", ENVS)
def test_every_kind_of_environment_gives_the_same_value(kind, of_the_id):
    env = ENVS[kind]()
    assert evaluated(env) == of_the_id
    if kind != "factory":
        env.close()


class Image(gym.Env):
    """A small picture of where the dot is; moving right pays. The agent sees it in a dictionary or alone."""

    def __init__(self, in_dict=False):
        image = spaces.Box(0, 255, (8, 8, 3), np.uint8)
        self.in_dict = in_dict
        self.observation_space = spaces.Dict({"image": image, "other": spaces.Discrete(2)}) if in_dict else image
        self.action_space = spaces.Discrete(3)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place, self.steps = int(self.np_random.integers(8)), 0
        return self.see(), {}

    def see(self):
        image = np.zeros((8, 8, 3), np.uint8)
        image[:, self.place] = 255
        return {"image": image, "other": 0} if self.in_dict else image

    def step(self, action):
        self.place, self.steps = (self.place + int(action)) % 8, self.steps + 1
        return self.see(), float(self.place), False, self.steps >= 8, {}


WRAPPED = {
    "frame stack": lambda: VecFrameStack(make_vec_env("CartPole-v1", 2), 3),
    "normalised frame stack": lambda: VecNormalize(
        VecFrameStack(make_vec_env("CartPole-v1", 2), 2), training=False, norm_reward=False
    ),
    "image": lambda: VecTransposeImage(DummyVecEnv([Image] * 2)),
    "stacked image": lambda: VecFrameStack(VecTransposeImage(DummyVecEnv([Image])), 2, "first"),
    "part of a dictionary": lambda: VecExtractDictObs(DummyVecEnv([lambda: Image(in_dict=True)]), "image"),
    "image as it is": lambda: DummyVecEnv([Image]),
}


class Compare(theirs.BaseCallback):
    """Compares an evaluation with SB3's of the same model at the same time."""

    def __init__(self, make):
        super().__init__()
        self.make = make

    def _on_step(self):
        env, result = self.make(), self.parent.last_evaluation
        if isinstance(env, VecNormalize):
            env.obs_rms = self.training_env.obs_rms
        rewards, _ = evaluate_policy(self.model, env, 60, return_episode_rewards=True)
        # Five standard deviations of the difference are a false alarm in 2 million.
        error = np.hypot(result.standard_error, np.std(rewards) / np.sqrt(len(rewards)))
        assert abs(result.value - np.mean(rewards)) <= 5 * error
        return True


@pytest.mark.parametrize("make", WRAPPED.values(), ids=WRAPPED)
def test_wrappers_show_the_agent_what_sb3_shows(make):
    compare = Compare(make)
    learn(EvalCallback(make(), None, compare, budget=1500, eval_freq=16, verbose=0, seed=0), make(), steps=16)
    assert compare.n_calls == 1


class Clipped(SubprocVecEnv):
    """Says what ClipRewardEnv(Monitor(env)) in another process would say."""

    def __init__(self):
        self.num_envs = 1

    def env_is_wrapped(self, wrapper_class, indices=None):
        return [wrapper_class in (gym.RewardWrapper, Monitor)]


class Unknown(VecEnvWrapper):
    def reset(self):
        return self.venv.reset()

    def step_wait(self):
        return self.venv.step_wait()


def test_what_cannot_be_translated_is_refused_in_one_line():
    with pytest.raises(ValueError, match="VecNormalize around VecFrameStack, got it inside"):
        EvalCallback(VecFrameStack(VecNormalize(make_vec_env("CartPole-v1")), 2), seed=0)
    with pytest.raises(ValueError, match="must not be a Unknown: give a function that makes one environment"):
        EvalCallback(Unknown(make_vec_env("CartPole-v1")), seed=0)
    with pytest.raises(ValueError, match="must be a DummyVecEnv where a wrapper changes what its Monitor counts"):
        EvalCallback(Clipped(), seed=0)
    with pytest.raises(ValueError, match="eval_env must make a gymnasium"):
        EvalCallback(lambda: make_vec_env("CartPole-v1"), seed=0)
    with pytest.raises(ValueError, match="eval_env must be an id"):
        EvalCallback(5, seed=0)


def test_statistics_of_training_go_to_the_evaluation_environment():
    train, evaluation = (
        VecNormalize(make_vec_env("CartPole-v1", seed=0), training=training) for training in (True, False)
    )
    learn(EvalCallback(evaluation, eval_freq=32, verbose=0, seed=0), train)
    assert evaluation.obs_rms.count == train.obs_rms.count > 1
    np.testing.assert_array_equal(evaluation.obs_rms.mean, train.obs_rms.mean)
    learn(EvalCallback(cartpole(), eval_freq=32, verbose=0, seed=0), train)  # SB3 wants both wrapped alike
    with pytest.raises(ValueError, match="wrap both"):
        learn(EvalCallback(evaluation, eval_freq=32, verbose=0, seed=0), cartpole())


def test_a_model_and_its_policy_are_worth_the_same():
    model = A2C("MlpPolicy", "Pendulum-v1", seed=0, device="cpu")
    settings = dict(budget=1000, gamma=1.0, seed=0)
    values = {rido.evaluate("Pendulum-v1", agent, **settings).value for agent in (model, model.policy)}
    assert len(values) == 1


class Zero(gym.RewardWrapper):
    def reward(self, reward):
        return 0.0


@pytest.mark.parametrize("vectorise", [lambda make: make(), lambda make: DummyVecEnv([make] * 2)])
def test_rewards_are_those_that_a_monitor_sees(vectorise, of_the_id):
    values = []
    for make in (lambda: Zero(Monitor(cartpole())), lambda: Zero(cartpole())):
        values.append(evaluated(vectorise(make))[0])
    assert values == [of_the_id[0], 0] and values[0] > 0


class Lives:
    def __init__(self, env):
        self.env = env

    def lives(self):
        return self.env.left


class Game(gym.Env):
    """Three lives of two steps each; a step pays the number of lives left, and a new life begins with the next step."""

    observation_space, action_space = spaces.Box(0, 9, (1,)), spaces.Discrete(2)

    def __init__(self):
        self.ale = Lives(self)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps, self.left = 0, 3
        return np.array([3.0], np.float32), {}

    def step(self, action):
        self.steps += 1
        reward, self.left = self.left, 3 - self.steps // 2
        return np.array([self.left], np.float32), float(reward), self.left == 0, False, {}


def test_a_lost_life_is_not_the_end_of_an_episode():
    """With SB3's wrappers for Atari, its Monitor says what an episode is; SB3 and rido agree on 3+3+2+2+1+1 = 12."""

    def make():
        return ClipRewardEnv(EpisodicLifeEnv(Monitor(Game())))

    callback = EvalCallback(make(), eval_freq=16, horizon=6, verbose=0, budget=200, seed=0)
    model = learn(callback, make(), steps=16)
    rewards, _ = evaluate_policy(model, make(), 3, return_episode_rewards=True)
    assert rewards == [12.0] * 3 and callback.last_mean_reward == 12.0


def test_render_and_warnings_are_the_users_choice():
    shown = []

    class Shown(IdentityEnv):
        def render(self, mode="human"):
            shown.append(1)

    callback = EvalCallback(
        Shown(ep_length=5), n_eval_episodes=2, eval_freq=16, render=True, warn=False, verbose=0, seed=0
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        learn(callback, IdentityEnv(), steps=16)
    assert len(shown) == callback.last_evaluation.transitions == 10
    with pytest.warns(UserWarning, match="trajectories"):
        learn(EvalCallback(IdentityEnv(), n_eval_episodes=2, eval_freq=16, verbose=0, seed=0), IdentityEnv(), steps=16)
