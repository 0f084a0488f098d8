"""Where the rewards of benchmarks/trust come from, and what is true of them."""

import os
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
from reward_processes import ZOO
from validation import problem

from rido.simulators import trajectory_seeds
from rido.simulators.gymnasium import GymnasiumSimulator
from rido.study.strategies import Bank

TRAINED = Path(__file__).parent / "agents"
ZOO_AGENTS = Path(os.environ.get("RIDO_AGENTS", Path(__file__).parents[3] / "shared" / "agents"))


@dataclass(frozen=True)
class Agent:
    """An agent in its environment.

    Attributes:
        env: Gymnasium's id.
        policy: Path of the agent.
        horizon: Steps of an episode.
        episodes: Episodes to record, about what a core does in three minutes.
    """

    env: str
    policy: Path
    horizon: int
    episodes: int


AGENTS = {
    "cartpole-20k": Agent("CartPole-v1", TRAINED / "cartpole-20k.npz", 500, 20_000),
    "cartpole-10": Agent("CartPole-v1", TRAINED / "cartpole-10.npz", 500, 20_000),
    "cartpole-30": Agent("CartPole-v1", TRAINED / "cartpole-30.npz", 500, 20_000),
    "acrobot": Agent("Acrobot-v1", TRAINED / "acrobot.npz", 500, 15_000),
    "mountaincar": Agent("MountainCar-v0", TRAINED / "mountaincar.npz", 200, 20_000),
    "pendulum": Agent("Pendulum-v1", ZOO_AGENTS / "ppo" / "Pendulum-v1" / "Pendulum-v1.zip", 200, 10_000),
}


@dataclass(frozen=True)
class Source:
    """A population of trajectories that everything is drawn from.

    Attributes:
        kind: "problem" of the validation suite, "zoo", or "agent".
        name: Name among its kind.
        gamma: Discount factor.
        size: Trajectories in the population.
        banks: Folder of recorded episodes.
    """

    kind: str
    name: str
    gamma: float
    size: int
    banks: str = ""

    @property
    def label(self):
        return f"{self.name}, gamma {self.gamma:g}" if self.kind == "agent" else self.name


class Population:
    """All trajectories of a source, of which the mean return is the truth.

    Attributes:
        bank: From which strategies draw.
        truth: The expected return.
        error: Standard error of the truth as an estimate for the environment itself.
        variance: Variance of a return.
        length: Mean steps of a full-length trajectory.
    """

    def __init__(self, rewards, steps, gamma):
        self.bank = Bank(rewards, gamma=gamma, steps=steps)
        self.steps = steps
        self.discounts = gamma ** np.arange(self.bank.horizon)
        self.truth = self.bank.truth
        self.variance = float((self.bank.rewards @ self.discounts).var())
        self.error = np.sqrt(self.variance / len(rewards))
        self.length = float(steps.mean())

    def oracle_error(self, budget):
        """Standard error of the best schedule for the true weights; steps that no trajectory reaches are left out."""
        reached = int(np.count_nonzero(self.bank.survival))
        bank = Bank(self.bank.rewards[:, :reached], gamma=self.bank.gamma, steps=self.steps)
        return float(np.sqrt(bank.best_schedule(budget).variance(bank.weights)))

    def uniform_value(self, budget, rng):
        """The estimate of ``Uniform``, from the same draws as ``Bank.run`` but without a strategy's bookkeeping."""
        horizon, left = self.bank.horizon, budget
        sums, count = np.zeros(horizon), 0
        while left >= horizon:
            rows = rng.integers(self.steps.size, size=left // horizon)
            sums += self.bank.rewards[rows].sum(axis=0)
            count += rows.size
            left -= int(self.steps[rows].sum())
        return float(self.discounts @ (sums / count))


@lru_cache(maxsize=2)
def population(source):
    if source.kind == "agent":
        with np.load(bank_path(source.name, source.size, source.banks)) as file:
            rewards, steps = file["rewards"].astype(np.float64), file["steps"]
    else:
        zoo = [process.name for process in ZOO]
        process = problem(source.name) if source.kind == "problem" else ZOO[zoo.index(source.name)]
        rewards, steps = process.sample(np.random.default_rng([13, *source.name.encode()]), source.size)
    return Population(rewards, steps, source.gamma)


def bank_path(name, episodes, folder):
    return Path(folder) / f"trust-{name}-{episodes}.npz"


def record(name, episodes, folder):
    """Records full-length episodes of an agent, unless they are there already."""
    path, agent = bank_path(name, episodes, folder), AGENTS[name]
    if path.is_file():
        return
    simulator = GymnasiumSimulator(agent.env, agent.policy, horizon=agent.horizon, num_envs=min(episodes, 256))
    batch = simulator.rollout(np.full(episodes, agent.horizon), trajectory_seeds(2027, 0, episodes))
    simulator.close()
    path.parent.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(path, rewards=batch.rewards.astype(np.float32), steps=batch.steps)
