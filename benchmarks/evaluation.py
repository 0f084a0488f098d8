"""What evaluation costs: transitions per second next to SB3, and adaptive planning next to plain collection.

Run with ``make benchmarks``; writes a Markdown page to standard output. Needs the agents of the RL Baselines3 Zoo in
the directory that RIDO_AGENTS names. Contestants take turns and the ratios are of their medians, because machines
are shared and noisy.
"""

import os
import time
import warnings
from functools import partial
from pathlib import Path

import gymnasium as gym
import numpy as np
import torch
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.vec_env import DummyVecEnv

import rido
from rido.policies.sb3_zip import load_agent

AGENTS = Path(os.environ.get("RIDO_AGENTS", Path(__file__).parents[2] / "shared" / "agents"))
AGENT = AGENTS / "trpo" / "Ant-v3" / "Ant-v3.zip"
ANT = {"include_cfrc_ext_in_observation": False, "contact_cost_weight": 0}


class OldObservations(gym.ObservationWrapper):
    """The observations that the agent was trained on, for SB3's own evaluation."""

    def __init__(self, env):
        super().__init__(env)
        self.observation_space = gym.spaces.Box(-np.inf, np.inf, (111,), np.float64)

    def observation(self, observation):
        return np.concatenate([observation, np.zeros(84)])


def sb3(num_envs, transitions, horizon):
    """Transitions per second of SB3's evaluate_policy."""
    make = partial(gym.make, "Ant-v5", max_episode_steps=horizon, **ANT)
    agent = load_agent(AGENT, make().observation_space, make().action_space)
    envs = DummyVecEnv([lambda: OldObservations(make())] * num_envs)
    normalised = agent.vecnormalize
    normalised.set_venv(envs)
    normalised.training = normalised.norm_reward = False
    start = time.perf_counter()
    evaluate_policy(agent.model, normalised, n_eval_episodes=transitions // horizon, warn=False)
    return transitions / (time.perf_counter() - start)


def ours(strategy, transitions, horizon):
    """Transitions per second of rido.evaluate, everything included but loading the agent and MuJoCo's models."""
    result = rido.evaluate(
        "Ant-v5", AGENT, budget=transitions, gamma=0.99, horizon=horizon, strategy=strategy, env_kwargs=ANT, seed=0
    )
    return result.transitions / (result.seconds + result.planning_seconds)


def table(contestants, rounds):
    """Lets all take turns; returns median rates by name."""
    rates = {name: [] for name in contestants}
    for _ in range(rounds):
        for name, run in contestants.items():
            rates[name].append(run())
    return {name: float(np.median(values)) for name, values in rates.items()}


def main():
    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)  # faster for such small networks
    print(
        "# Evaluation: speed\n\nMade by `make benchmarks` (benchmarks/evaluation.py). Ant-v5, the zoo's TRPO agent.\n"
    )
    print("Transitions per second at 16,000 transitions, T = 1,000:\n")
    print("| | transitions/s | rido, times faster |\n|---|---|---|")
    rates = table(
        {
            "SB3 evaluate_policy, 1 env": lambda: sb3(1, 16_000, 1000),
            "SB3 evaluate_policy, 8 envs": lambda: sb3(8, 16_000, 1000),
            "rido, uniform": lambda: ours("uniform", 16_000, 1000),
        },
        rounds=3,
    )
    for name, rate in rates.items():
        print(f"| {name} | {rate:,.0f} | {rates['rido, uniform'] / rate:.2f} |")
    print("\nTime of a whole evaluation over that of plain uniform collection of as many transitions, T = 500:\n")
    print("| strategy | budget | time ratio |\n|---|---|---|")
    settings = [
        ("rido, batch 1,000", partial(rido.Rido, batch=1000), 8000, 7),
        ("default", None, 50_000, 3),
    ]
    for name, strategy, budget, rounds in settings:
        rates = table(
            {
                "uniform": lambda b=budget: ours("uniform", b, 500),
                name: lambda s=strategy, b=budget: ours(s or DEFAULT, b, 500),
            },
            rounds,
        )
        print(f"| {name} | {budget:,} | {rates['uniform'] / rates[name]:.3f} |")


DEFAULT = rido.evaluate.__kwdefaults__["strategy"]

if __name__ == "__main__":
    main()
