"""Train the classic control agents of benchmarks/trust: PPO, stopped while the agent still fails now and then.

``python benchmarks/trust/train.py`` trains all agents, or those that are named. Every few updates the deterministic
policy is measured on fresh episodes. The first checkpoint whose share of failing episodes lies in the recipe's range is
written to benchmarks/trust/agents/; where a seed never gets there, the next one is tried. Needs
``pip install "rido[sb3]"``.
"""

import argparse
import json
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.vec_env import DummyVecEnv, VecMonitor, VecNormalize

from rido.policies.export import export
from rido.policies.npz import MlpPolicy
from rido.simulators import trajectory_seeds
from rido.simulators.gymnasium import GymnasiumSimulator

AGENTS = Path(__file__).parent / "agents"
EPISODES = 1000  # of the share that is stated: its standard error is 0.013 at 0.2
GLANCE = 200  # episodes of a first look, so that hopeless checkpoints cost little
NEAR = 0.08  # how far from the range the first look may lie


class Energy(gym.Wrapper):
    """MountainCar with its mechanical energy as shaping, so that PPO learns in a minute. For training only."""

    SCALE = 6e4  # from the bottom to the top of the hill the shaping adds up to about 100

    def reset(self, **options):
        observation, info = super().reset(**options)
        self._energy = self.energy(observation)
        return observation, info

    def step(self, action):
        observation, reward, terminated, truncated, info = super().step(action)
        before, self._energy = self._energy, self.energy(observation)
        return observation, reward + self.SCALE * (self._energy - before), terminated, truncated, info

    @staticmethod
    def energy(observation):
        position, velocity = map(float, observation)
        return velocity**2 / 2 + 0.0025 / 3 * np.sin(3 * position)


@dataclass(frozen=True)
class Recipe:
    """How an agent is trained and when it is taken.

    Attributes:
        env: Gymnasium's id of the environment.
        horizon: Steps of an episode.
        failing: Lowest and highest share of failing episodes.
        steps: First and last number of training transitions at which a checkpoint may be taken.
        ends_well: Whether an episode that ends before the horizon is a success; a failure if not.
        latest: Half of the failures come after this step at least.
        every: Updates between two checkpoints.
        num_envs: Environments side by side.
        normalise: Whether observations and rewards are normalised.
        shaping: A wrapper for training only.
        settings: Other settings of PPO.
    """

    env: str
    horizon: int
    failing: tuple[float, float]
    steps: tuple[int, int]
    ends_well: bool = False
    latest: int = 0
    every: int = 1
    num_envs: int = 1
    normalise: bool = False
    shaping: Any = None
    settings: dict[str, Any] = field(default_factory=dict)

    def make(self):
        env = gym.make(self.env, disable_env_checker=True)
        return env if self.shaping is None else self.shaping(env)

    def measure(self, policy, episodes):
        """Share of failing episodes, and the step by which half of the failures have come."""
        simulator = GymnasiumSimulator(self.env, policy, horizon=self.horizon, num_envs=64)
        found = simulator.rollout(np.full(episodes, self.horizon), trajectory_seeds(7, 0, episodes))
        simulator.close()
        early = found.steps < self.horizon
        failed = ~early if self.ends_well else early
        return float(failed.mean()), float(np.median(found.steps[failed])) if failed.any() else np.inf

    def accepts(self, share, middle, slack=0.0):
        return self.failing[0] - slack <= share <= self.failing[1] + slack and middle >= self.latest


def several(n_steps):
    settings = dict(n_steps=n_steps, gae_lambda=0.94, n_epochs=4, batch_size=64)
    return dict(ends_well=True, num_envs=8, normalise=True, settings=settings)


RECIPES = {
    # The plain settings of Stable-Baselines3, trained for 20,000 transitions: failures come late.
    "cartpole-20k": Recipe("CartPole-v1", 500, (0.16, 0.26), (20_000, 20_480), latest=400),
    "cartpole-10": Recipe("CartPole-v1", 500, (0.07, 0.13), (12_000, 40_000)),
    "cartpole-30": Recipe("CartPole-v1", 500, (0.26, 0.34), (12_000, 40_000)),
    "acrobot": Recipe("Acrobot-v1", 500, (0.05, 0.30), (10_000, 150_000), **several(256)),
    "mountaincar": Recipe("MountainCar-v0", 200, (0.05, 0.30), (1000, 20_000), shaping=Energy, **several(32)),
}


class Stop(BaseCallback):
    """Ends training at the first checkpoint that the recipe accepts."""

    def __init__(self, recipe):
        super().__init__()
        self.recipe, self.updates, self.found = recipe, 0, None

    def _on_step(self):
        return self.found is None

    def _on_rollout_start(self):
        self.look()

    def look(self):
        self.updates += 1
        recipe = self.recipe
        if self.found is not None or self.num_timesteps < recipe.steps[0] or self.updates % recipe.every:
            return
        policy = export(self.model)
        share, middle = recipe.measure(policy, GLANCE)
        print(f"  {self.num_timesteps:,} transitions: {share:.0%} fail, half of them by step {middle:g}", flush=True)
        if recipe.accepts(share, middle, NEAR):
            share, middle = recipe.measure(policy, EPISODES)
            if recipe.accepts(share, middle):
                # Stopping takes one more step, which changes the statistics of VecNormalize: keep what was measured.
                self.found = policy, share, middle, self.num_timesteps


def train(name, seeds):
    """Trains one seed after the other until a checkpoint is accepted, and writes its agent."""
    recipe = RECIPES[name]
    for seed in seeds:
        print(f"{name}, seed {seed}", flush=True)
        started = time.perf_counter()
        envs = VecMonitor(DummyVecEnv([recipe.make] * recipe.num_envs))
        if recipe.normalise:
            envs = VecNormalize(envs, gamma=0.99)
        model, stop = PPO("MlpPolicy", envs, seed=seed, device="cpu", **recipe.settings), Stop(recipe)
        model.learn(recipe.steps[1], callback=stop)
        stop.look()
        if stop.found is None:
            continue
        policy, share, middle, steps = stop.found
        about = {
            "env": recipe.env,
            "horizon": recipe.horizon,
            "failing": round(share, 3),
            "failing_by_step": middle,
            "episodes": EPISODES,
            "seed": seed,
            "steps": steps,
            "seconds": round(time.perf_counter() - started),
        }
        AGENTS.mkdir(exist_ok=True)
        MlpPolicy({**policy.arrays, "about": np.array(json.dumps(about))}).save(AGENTS / f"{name}.npz")
        print(f"{name}: {about}", flush=True)
        return
    print(f"{name}: no checkpoint was accepted")


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("agents", nargs="*", metavar="agent", help=f"of {', '.join(RECIPES)}; all if none is named")
    parser.add_argument("--seeds", type=int, default=20, help="seeds to try at most")
    arguments = parser.parse_args()
    if unknown := set(arguments.agents) - set(RECIPES):
        parser.error(f"agent must be one of {', '.join(RECIPES)}, got {', '.join(sorted(unknown))}")
    torch.set_num_threads(1)
    for name in arguments.agents or RECIPES:
        train(name, range(arguments.seeds))


if __name__ == "__main__":
    main()
