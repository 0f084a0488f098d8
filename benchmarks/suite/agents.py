"""Six tasks and eight policies: shipped agents, checkpoints of a training, and agents with noise on their weights."""

import sys
from pathlib import Path

import numpy as np

from rido.policies.npz import MlpPolicy
from rido.policies.resolve import shipped_agent

sys.path.insert(0, str(Path(__file__).parents[1] / "compare"))
from policies import CHECKPOINTS, noisy

GAMMA = 0.99
TASKS = {  # agent, horizon (rido's default for this discount), further arguments of the environment, rows of the bank
    "ant": ("ant", 688, {}, 120),
    "halfcheetah": ("halfcheetah", 688, {}, 120),
    "pendulum": ("pendulum", 200, {}, 600),
    "pendulum on the moon": ("pendulum", 200, {"g": 1.62}, 600),
    "reacher": ("reacher", 50, {}, 600),
    "swimmer": ("swimmer", 688, {}, 120),
}
NOISE = {"noise 10%": 0.1, "noise 20%": 0.2, "noise 30%": 0.3, "noise 50%": 0.5}
CHECKPOINT_NOISE = {"earlier": 0.8, "later": 0.4}  # for agents of which there are no checkpoints
NAMES = ("shipped", *NOISE, *CHECKPOINT_NOISE, "random")


def environment(task):
    """Returns the id and the arguments of a task's environment."""
    agent, _, more, _ = TASKS[task]
    about = MlpPolicy.load(shipped_agent(f"rido:{agent}")).about
    return about["env"], {**about.get("env_kwargs", {}), **more}


def write_agents(folder):
    """Writes ``TASK/POLICY.npz`` for all policies but the random one."""
    for number, (task, (agent, *_)) in enumerate(TASKS.items()):
        (folder / task).mkdir(parents=True, exist_ok=True)
        files = sorted(CHECKPOINTS.glob(f"{agent}-*.npz"), key=lambda path: int(path.stem.rpartition("-")[2]))
        for name in NAMES[:-1]:
            if name in CHECKPOINT_NOISE and files:
                made = MlpPolicy.load(files[-1] if name == "later" else files[len(files) // 2])
            else:
                made = noisy(agent, {**NOISE, **CHECKPOINT_NOISE}.get(name, 0.0), [number, NAMES.index(name)])
            MlpPolicy(dict(made.arrays), name=name).save(folder / task / f"{name}.npz")


def policy(folder, task, name):
    return "random" if name == "random" else folder / task / f"{name}.npz"


def write_suite(folder, references, budget):
    """Writes the TOML file of the suite."""
    lines = [f"budget = {budget}", "seed = 1", ""]
    for task, (_, horizon, *_) in TASKS.items():
        env, kwargs = environment(task)
        low, high = references[task]
        arguments = ", ".join(f"{key} = {str(value).lower()}" for key, value in kwargs.items())
        lines += [f'[tasks."{task}"]', f'env = "{env}"', f"gamma = {GAMMA}", f"horizon = {horizon}"]
        lines += [f"reference = [{low:.6g}, {high:.6g}]", f"env_kwargs = {{ {arguments} }}", ""]
    lines += ["[policies]", *(f'"{name}" = "{{task}}/{name}.npz"' for name in NAMES[:-1]), 'random = "random"', ""]
    (folder / "suite.toml").write_text("\n".join(lines), encoding="utf-8")


def returns(rewards):
    return rewards @ GAMMA ** np.arange(rewards.shape[1])
