"""Which model does a training keep? rido's EvalCallback next to that of Stable-Baselines3, with as many transitions."""

import tempfile
import warnings
from collections import defaultdict
from dataclasses import dataclass

import numpy as np

from rido.policies.export import export
from rido.simulators.base import trajectory_seeds
from rido.simulators.gymnasium import GymnasiumSimulator

TRAININGS = 20
EPISODES = 5  # of one evaluation, SB3's default
TRUE_EPISODES = 200  # of each checkpoint, on other seeds: its true return


@dataclass(frozen=True)
class Setting:
    """A training: PPO with these settings, evaluated every so many transitions."""

    env: str
    horizon: int
    steps: int
    every: int
    settings: dict


SETTINGS = {
    "CartPole": Setting("CartPole-v1", 500, 20_000, 2048, dict(n_steps=256, batch_size=64, n_epochs=10)),
    "Pendulum": Setting(
        "Pendulum-v1", 200, 40_000, 4096, dict(n_steps=1024, batch_size=64, gamma=0.9, learning_rate=1e-3, use_sde=True)
    ),
}


def cells(folder, *, quick):
    for name in SETTINGS:
        for training in range(1 if quick else TRAININGS):
            yield f"callback {name} {training}", train, (name, training, quick)


def train(name, seed, quick):
    """Trains once with all callbacks side by side; returns true returns, what each kept, and its transitions."""
    import torch
    from stable_baselines3 import PPO
    from stable_baselines3.common.callbacks import BaseCallback, CallbackList
    from stable_baselines3.common.callbacks import EvalCallback as PlainCallback
    from stable_baselines3.common.env_util import make_vec_env

    from rido.sb3 import EvalCallback

    torch.set_num_threads(1)
    setting, agents = SETTINGS[name], {}
    steps = 3 * setting.every if quick else setting.steps

    class Keep(BaseCallback):
        """Keeps a copy of the agent at every evaluation."""

        def _on_step(self):
            if self.n_calls % (setting.every // 4) == 0:
                agents[self.num_timesteps] = actor(self.model)
            return True

    class Count(PlainCallback):
        """Counts the transitions of SB3's episodes."""

        taken = 0

        def _log_success_callback(self, locals_, globals_):
            self.taken += 1

    kept = defaultdict(int)

    class Note(BaseCallback):
        def __init__(self, label):
            super().__init__()
            self.label = label

        def _on_step(self):
            kept[self.label] = self.num_timesteps
            return True

    with warnings.catch_warnings(), tempfile.TemporaryDirectory():
        warnings.simplefilter("ignore")
        envs = make_vec_env(setting.env, 4, seed=seed)
        model = PPO("MlpPolicy", envs, seed=seed, device="cpu", **setting.settings)
        options = dict(eval_freq=setting.every // 4, verbose=0)
        plain = {
            f"SB3, {count} episodes": Count(
                make_vec_env(setting.env, 1, seed=seed + 1000),
                Note(f"SB3, {count} episodes"),
                n_eval_episodes=count,
                **options,
            )
            for count in (EPISODES, 2 * EPISODES)
        }
        ours = EvalCallback(setting.env, Note("rido"), budget=EPISODES * setting.horizon, seed=seed + 2000, **options)
        model.learn(steps, callback=CallbackList([Keep(), *plain.values(), ours]))
    truth = {at: returns(agent, setting, 20 if quick else TRUE_EPISODES, seed) for at, agent in agents.items()}
    spent = {label: one.taken for label, one in plain.items()}
    spent["rido"] = sum(number for *_, number in ours._intervals)
    return {"truth": truth, "kept": dict(kept), "transitions": spent}


def actor(model):
    """Returns a copy of the agent as it is now: plain arrays, or SB3's own where its actions are squashed."""
    import io

    try:
        return export(model)
    except ValueError:
        buffer = io.BytesIO()
        model.save(buffer)
        buffer.seek(0)
        return type(model).load(buffer, device="cpu")


def returns(agent, setting, episodes, seed):
    """Returns the mean return of an agent and its standard error."""
    simulator = GymnasiumSimulator(setting.env, agent, horizon=setting.horizon, num_envs=32)
    batch = simulator.rollout(np.full(episodes, setting.horizon), trajectory_seeds(seed + 3000, 0, episodes))
    simulator.close()
    found = batch.rewards.sum(axis=1)
    return [float(found.mean()), float(found.std(ddof=1) / np.sqrt(episodes))]


def page(found):
    text = [
        f"{TRAININGS} trainings of each (PPO), with all callbacks side by side in the same training. rido's have the "
        f"transitions of {EPISODES} episodes of full length for each evaluation. Which model is kept, and how good it "
        f"is: its return over {TRUE_EPISODES} other episodes, next to that of the best checkpoint. A kept model counts "
        "as the best where its return is within one standard error of the best one's.",
        "",
        "| training | callback | kept the best | mean loss to the best | largest loss | evaluation transitions |",
        "|---|---|---|---|---|---|",
    ]
    for name in SETTINGS:
        trainings = [cell for key, cell in found.items() if key.split(" ")[1] == name]
        for label in trainings[0]["transitions"]:
            losses, hits, spent = [], [], []
            for cell in trainings:
                truth = cell["truth"]
                best = max(truth, key=lambda at: truth[at][0])
                own = truth[str(cell["kept"][label])]
                losses.append(truth[best][0] - own[0])
                hits.append(losses[-1] <= np.hypot(truth[best][1], own[1]))
                spent.append(cell["transitions"][label])
            text.append(
                f"| {name} | {label} | {sum(hits)} of {len(hits)} | {np.mean(losses):.3g} | {np.max(losses):.3g} | "
                f"{np.mean(spent):,.0f} |"
            )
    return "\n".join(text)
