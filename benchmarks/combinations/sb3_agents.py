"""Agents of Stable-Baselines3 and sb3-contrib; those without a state are compared with SB3's evaluate_policy."""

import tempfile
from pathlib import Path

import numpy as np
from common import FOLDER, perturb, seeded_torch


def sb3(env, algorithm, kind="MlpPolicy", *, zipped=False, deterministic=True, normalised=False, hub=False, **settings):
    import sb3_contrib
    import stable_baselines3
    from stable_baselines3.common.evaluation import evaluate_policy
    from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

    seeded_torch()
    envs = DummyVecEnv([lambda: env])
    if normalised:
        envs = VecNormalize(envs, norm_reward=False)
    make = getattr(stable_baselines3, algorithm, None) or getattr(sb3_contrib, algorithm)
    model = make(kind, envs, seed=0, device="cpu", **settings)
    if normalised:  # statistics are gathered, and weights barely trained
        model.learn(2 * model.n_steps)
        envs.training = False
    else:
        perturb(model.policy, scale=0.5 if "Cnn" in kind else 1.0)
    policy = model
    if zipped or hub:
        folder = Path(tempfile.mkdtemp(dir=FOLDER))
        if hub:
            folder = _cached_repository("me/agent")
        model.save(folder / "agent.zip")
        if normalised:
            envs.save(folder / "vecnormalize.pkl")
        policy = "hf:me/agent" if hub else folder / "agent.zip"

    def evaluate(episodes, horizon, seed):
        import gymnasium as gym

        limited = DummyVecEnv([lambda: gym.wrappers.TimeLimit(env, horizon)])
        if normalised:
            limited = VecNormalize.load(folder / "vecnormalize.pkl", limited)
            limited.training = limited.norm_reward = False
        limited.seed(seed)
        options = dict(n_eval_episodes=episodes, deterministic=deterministic, return_episode_rewards=True, warn=False)
        return evaluate_policy(model, limited, **options)[0]

    return policy, evaluate


def _cached_repository(name):
    """A folder in the cache of huggingface_hub, as if it had been downloaded; the network is off."""
    from huggingface_hub import constants

    constants.HF_HUB_OFFLINE, constants.HF_HUB_CACHE = True, str(FOLDER / "hub")
    base, commit = FOLDER / "hub" / f"models--{name.replace('/', '--')}", "c" * 40
    (base / "refs").mkdir(parents=True)
    (base / "refs" / "main").write_text(commit)
    (base / "snapshots" / commit).mkdir(parents=True)
    return base / "snapshots" / commit


def recurrent_ppo(env, *, deterministic=True, kind="MlpLstmPolicy"):
    """The independent value is a loop with sb3-contrib's own predict."""
    policy, _ = sb3(env, "RecurrentPPO", kind, zipped=True, policy_kwargs=dict(lstm_hidden_size=16))
    from sb3_contrib import RecurrentPPO

    model, memory = RecurrentPPO.load(policy, device="cpu"), {"state": None}

    def act(seen, first):
        start = np.array([first])
        state = None if first else memory["state"]
        action, memory["state"] = model.predict(seen, state, start, deterministic=deterministic)
        return action

    return policy, act
