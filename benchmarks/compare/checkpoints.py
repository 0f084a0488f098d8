"""Trains an agent for each MuJoCo environment of the study, and keeps checkpoints on the way.

    python benchmarks/compare/checkpoints.py reacher swimmer halfcheetah ant

The hyperparameters are those of benchmarks/train_agents.py. The files go to benchmarks/compare/agents/.
"""

import sys
from pathlib import Path

from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.vec_env import DummyVecEnv, VecMonitor, VecNormalize

from rido.policies.export import export

sys.path.insert(0, str(Path(__file__).parents[1]))
from train_agents import TRAININGS

CHECKPOINTS = Path(__file__).parent / "agents"
STEPS = {"reacher": 120_000, "swimmer": 200_000, "halfcheetah": 200_000, "ant": 200_000}
NUMBER = 5  # of checkpoints, evenly spaced


class Checkpoints(BaseCallback):
    """Exports the agent every so many transitions."""

    def __init__(self, name):
        super().__init__()
        self.name, self.every = name, STEPS[name] // NUMBER
        self.due = self.every

    def _on_step(self):
        return True

    def _on_rollout_end(self):
        if self.num_timesteps >= self.due:
            export(self.model).save(CHECKPOINTS / f"{self.name}-{self.due}.npz")
            self.due += self.every


def train(name):
    training = TRAININGS[name]
    envs = VecNormalize(VecMonitor(DummyVecEnv([training.make] * training.num_envs)), gamma=training.gamma)
    model = PPO(
        "MlpPolicy",
        envs,
        learning_rate=training.learning_rate,
        n_steps=training.num_steps // 2,
        batch_size=training.batch_size,
        gamma=training.gamma,
        gae_lambda=training.gae_lambda,
        policy_kwargs={"net_arch": [64, 64], "log_std_init": training.log_std},
        seed=1,
        device="cpu",
    )
    model.learn(STEPS[name], callback=Checkpoints(name))


if __name__ == "__main__":
    CHECKPOINTS.mkdir(exist_ok=True)
    for chosen in sys.argv[1:] or STEPS:
        train(chosen)
