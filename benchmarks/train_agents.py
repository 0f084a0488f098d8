"""Train the agents that come with rido: PPO of Stable-Baselines3 in current Gymnasium environments.

``python benchmarks/train_agents.py ant`` trains one agent, no name trains all. The hyperparameters follow
the RL Baselines3 Zoo, with more data per update so that an agent takes minutes on one core. A checkpoint is written
every 100,000 transitions into checkpoints/; ``--export`` exports the last one of a training that was stopped.
Agents are written to src/rido/policies/shipped/ with their training curve and the return that they reach;
results/agents.md and results/agents.png are made from these files. Needs ``pip install "rido[sb3,mujoco,plot]"``.
"""

import argparse
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.vec_env import DummyVecEnv, VecMonitor, VecNormalize

from rido.plots.style import BLUE, REFERENCE, VERMILLION, style
from rido.policies.export import export
from rido.policies.npz import MlpPolicy
from rido.simulators import trajectory_seeds
from rido.simulators.gymnasium import GymnasiumSimulator

ROOT = Path(__file__).parents[1]
AGENTS = ROOT / "src" / "rido" / "policies" / "shipped"
CHECKPOINTS = ROOT / "checkpoints"
RESULTS = ROOT / "results"
SAVE_EVERY = 100_000  # transitions
EPISODES = 100  # behind the return that is reported
POINTS = 200  # of a training curve at most


@dataclass(frozen=True)
class Training:
    """Settings of a training.

    Attributes:
        env: Gymnasium id of the environment.
        horizon: Steps of an episode.
        steps: Transitions to train on.
        gamma: Discount factor, also of the value function.
        gae_lambda: Lambda of generalised advantage estimation.
        env_kwargs: Arguments of the environment.
        learning_rate: Initial learning rate; it falls linearly to zero.
        num_envs: Environments that run side by side.
        num_steps: Transitions of each environment between two updates.
        batch_size: Transitions in a gradient step.
        log_std: Initial log standard deviation of the actions.
    """

    env: str
    horizon: int
    steps: int
    gamma: float
    gae_lambda: float
    env_kwargs: dict[str, Any] = field(default_factory=dict)
    learning_rate: float = 3e-4
    num_envs: int = 8
    num_steps: int = 512
    batch_size: int = 128
    log_std: float = 0.0

    def make(self):
        return gym.make(self.env, disable_env_checker=True, **self.env_kwargs)


# As in Ant-v3, where the zoo's agent was trained: 27 observations, and no contact cost, which was always zero.
ANT = {"include_cfrc_ext_in_observation": False, "contact_cost_weight": 0.0}
TRAININGS = {
    "pendulum": Training("Pendulum-v1", 200, 400_000, 0.9, 0.95, learning_rate=1e-3, num_envs=4, batch_size=64),
    "ant": Training("Ant-v5", 1000, 3_000_000, 0.99, 0.9, ANT, log_std=-1.0),
    "halfcheetah": Training("HalfCheetah-v5", 1000, 2_000_000, 0.98, 0.92, log_std=-1.0),
    "swimmer": Training(
        "Swimmer-v5", 1000, 1_000_000, 0.9999, 0.98, learning_rate=6e-4, num_envs=4, num_steps=1024, batch_size=256
    ),
    "reacher": Training("Reacher-v5", 50, 600_000, 0.9, 0.95, log_std=-1.0),
}


class Curve(BaseCallback):
    """Records the mean return of the last 100 training episodes at each update, and saves checkpoints."""

    def __init__(self, name):
        super().__init__()
        self.name = name
        self.points = []  # transitions, return, seconds
        self.began = time.perf_counter()
        self.saved = 0

    def _on_step(self):
        return True

    def _on_rollout_start(self):
        episodes = self.model.ep_info_buffer
        if episodes:
            mean, seconds = np.mean([episode["r"] for episode in episodes]), time.perf_counter() - self.began
            self.points.append((self.num_timesteps, mean, seconds))
            if len(self.points) % 10 == 1:
                print(f"{self.name}: {self.num_timesteps:,} steps, {seconds:.0f} s, return {mean:.1f}", flush=True)
        if self.num_timesteps - self.saved >= SAVE_EVERY:
            self.save()

    def _on_training_end(self):
        self._on_rollout_start()
        self.save()

    def save(self):
        self.saved = self.num_timesteps
        CHECKPOINTS.mkdir(exist_ok=True)
        self.model.save(CHECKPOINTS / f"{self.name}.zip")
        self.model.get_vec_normalize_env().save(str(CHECKPOINTS / f"{self.name}.pkl"))
        np.save(CHECKPOINTS / f"{self.name}.npy", np.array(self.points))


def train(name, steps):
    """Train an agent and save it as a checkpoint."""
    training = TRAININGS[name]
    envs = VecNormalize(VecMonitor(DummyVecEnv([training.make] * training.num_envs)), gamma=training.gamma)
    model = PPO(
        "MlpPolicy",
        envs,
        learning_rate=lambda left: training.learning_rate * left,
        n_steps=training.num_steps,
        batch_size=training.batch_size,
        n_epochs=10,
        gamma=training.gamma,
        gae_lambda=training.gae_lambda,
        policy_kwargs={"net_arch": [64, 64], "log_std_init": training.log_std},
        seed=1,
        device="cpu",
    )
    model.learn(steps or training.steps, callback=Curve(name))


def finish(name):
    """Measure the return of a checkpoint's agent, and export the agent."""
    training = TRAININGS[name]
    envs = VecNormalize.load(str(CHECKPOINTS / f"{name}.pkl"), DummyVecEnv([training.make]))
    model = PPO.load(CHECKPOINTS / f"{name}.zip", env=envs, device="cpu")
    points = np.load(CHECKPOINTS / f"{name}.npy")
    chosen = points[np.unique(np.linspace(0, len(points) - 1, POINTS).round().astype(int))]
    mean, standard_error, full_length = measure(export(model), training)
    about = {
        "env": training.env,
        "env_kwargs": training.env_kwargs,
        "horizon": training.horizon,
        "mean": round(mean, 4),
        "standard_error": round(standard_error, 4),
        "full_length": full_length,
        "episodes": EPISODES,
        "steps": model.num_timesteps,
        "seconds": round(points[-1, 2]),
        "curve": [[int(steps), round(value, 2)] for steps, value, _ in chosen],
    }
    AGENTS.mkdir(exist_ok=True)
    export(model, about).save(AGENTS / f"{name}.npz")
    print(f"{name}: return {mean:.1f} +- {standard_error:.1f}, {full_length:.0%} of full length", flush=True)


def measure(policy, training):
    """Mean undiscounted return of fresh episodes, its standard error, and the share of episodes of full length."""
    simulator = GymnasiumSimulator(training.env, policy, horizon=training.horizon, env_kwargs=training.env_kwargs)
    trajectories = simulator.rollout(np.full(EPISODES, training.horizon), trajectory_seeds(2026, 0, EPISODES))
    simulator.close()
    returns = trajectories.rewards.sum(axis=1)
    full_length = (trajectories.steps == training.horizon).mean()
    return float(returns.mean()), float(returns.std(ddof=1) / np.sqrt(EPISODES)), float(full_length)


def page(agents):
    """Write results/agents.md."""
    lines = [
        "# Agents",
        "",
        "The agents in `src/rido/policies/shipped/`, made by `python benchmarks/train_agents.py` on one busy core:",
        "PPO of Stable-Baselines3, observations and rewards normalised. The return is undiscounted and over whole",
        f"episodes: the mean of {EPISODES} fresh ones with deterministic actions, +- its standard error. gamma is the",
        "discount of training, which the value function is for; its values are in units of the environment's rewards.",
        "",
        "| agent | environment | episode | training steps | seconds | return | full length | gamma | network | kB |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for name, agent in agents.items():
        about = agent.about
        arguments = "".join(f", `{key}={value}`" for key, value in about["env_kwargs"].items())
        digits = 0 if about["standard_error"] > 2 else 2
        error = f"{about['standard_error']:,.{max(digits, 1)}f}"
        sizes = [agent.arrays[f"actor.{number}.bias"].size for number in range(2)]
        lines.append(
            f"| {name} | {about['env']}{arguments} | {about['horizon']:,} | {about['steps']:,} | {about['seconds']:,} "
            f"| {about['mean']:,.{digits}f} +- {error} | {about['full_length']:.0%} | {agent.gamma} "
            f"| {' x '.join(map(str, sizes))} tanh, twice | {(AGENTS / f'{name}.npz').stat().st_size / 1000:.0f} |"
        )
    lines += ["", "![Training curves](agents.png)", ""]
    (RESULTS / "agents.md").write_text("\n".join(lines))


@style()
def picture(agents):
    """Draw results/agents.png."""
    figure = Figure(figsize=(10, 5.2), layout="constrained")
    panels = figure.subplots(2, 3).flat
    for agent, panel in zip(agents.values(), panels, strict=False):
        about = agent.about
        steps, returns = np.array(about["curve"]).T
        panel.plot(steps / 1e6, returns, color=BLUE)
        panel.axhline(about["mean"], color=VERMILLION, **REFERENCE)
        panel.set_title(f"{about['env']}: {about['mean']:,.{0 if abs(about['mean']) > 100 else 1}f}")
        panel.set(xlim=(0, steps[-1] / 1e6), xlabel="million training steps", ylabel="undiscounted return")
    for panel in panels:
        panel.axis("off")
    key = [
        Line2D([], [], color=BLUE, label="mean of the last 100 training\nepisodes, sampled actions"),
        Line2D([], [], color=VERMILLION, label="mean of fresh episodes,\ndeterministic actions", **REFERENCE),
    ]
    panel.legend(handles=key, loc="center", fontsize=9)
    figure.savefig(RESULTS / "agents.png")


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("agents", nargs="*", metavar="agent", help=f"of {', '.join(TRAININGS)}; all if none is named")
    parser.add_argument("--steps", type=int, help="training steps, instead of the agent's own")
    parser.add_argument("--export", action="store_true", help="do not train, only export the checkpoints")
    parser.add_argument("--redraw", action="store_true", help="only write results/agents.md and .png again")
    arguments = parser.parse_args()
    if unknown := set(arguments.agents) - set(TRAININGS):
        parser.error(f"agent must be one of {', '.join(TRAININGS)}, got {', '.join(sorted(unknown))}")
    torch.set_num_threads(1)
    for name in () if arguments.redraw else arguments.agents or TRAININGS:
        if not arguments.export:
            train(name, arguments.steps)
        finish(name)
    agents = {name: MlpPolicy.load(path) for name in TRAININGS if (path := AGENTS / f"{name}.npz").is_file()}
    page(agents)
    picture(agents)


if __name__ == "__main__":
    main()
