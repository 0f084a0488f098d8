"""Components and several discounts from one run: their errors beside those of separate runs, and what scalars pay.

    git worktree add /tmp/before 0fc72c1
    python benchmarks/signals.py --output results/signals.md --before /tmp/before/src

Trajectories of LQG are simulated here, those of MuJoCo agents are drawn from a bank of recorded ones, so that all
expected returns are known. The agents are those of the RL Baselines3 Zoo in the directory that RIDO_AGENTS names.
Repetitions are kept beside the banks, so that a run that was stopped goes on.
``--before`` is the source of the commit before rewards could have components; without it, speed is not measured.
"""

import argparse
import json
import os
import subprocess
import sys
import time
import warnings
from functools import lru_cache
from multiprocessing import get_context
from pathlib import Path

import numpy as np

import rido
from rido.simulators.bank import BankSimulator
from rido.simulators.base import trajectory_seeds
from rido.simulators.envs import lqg
from rido.simulators.gymnasium import GymnasiumSimulator

AGENTS = Path(os.environ.get("RIDO_AGENTS", Path(__file__).parents[2] / "shared" / "agents"))
GAMMAS = (0.9, 0.99, 1.0)
ROWS = 1000  # of a bank
MUJOCO = {
    "Swimmer": ("Swimmer-v5", "trpo/Swimmer-v3/Swimmer-v3.zip", ("reward_ctrl",)),
    "HalfCheetah": ("HalfCheetah-v5", "ppo/HalfCheetah-v3/HalfCheetah-v3.zip", ("reward_ctrl",)),
}
HORIZONS = {"LQG": 50, "Swimmer": 200, "HalfCheetah": 200}
BUDGETS = {"LQG": 5000, "Swimmer": 20_000, "HalfCheetah": 20_000}
REPETITIONS = {"LQG": 200, "Swimmer": 100, "HalfCheetah": 100}
SPEED_ROUNDS = 30  # in each of them, both versions are timed


class Lqg:
    """The LQG domain under its optimal policy for gamma 1: the reward, and the cost of the action in it."""

    num_envs = 1 << 16
    names = ("reward", "effort")

    def __init__(self, column=None):
        self._column, self.components = column, self.names if column is None else ()

    def rollout(self, lengths, seeds):
        rng, gain = np.random.default_rng(seeds[0]), lqg.riccati_gain(1.0)
        state, found = rng.uniform(-lqg.START, lqg.START, len(lengths)), np.zeros((len(lengths), max(lengths), 2))
        for t in range(max(lengths)):
            action, noise = -gain * state, rng.normal(scale=np.sqrt(lqg.NOISE), size=(2, len(lengths)))
            found[:, t] = np.transpose([state**2 + (action + noise[0]) ** 2, action**2])
            state = state + action + noise.sum(axis=0)
        return rido.Trajectories(found if self._column is None else found[..., self._column], lengths)

    @staticmethod
    def expected():
        """Expected returns, a row for each component and a column for each discount."""
        horizon, gain, second, found = (
            HORIZONS["LQG"],
            lqg.riccati_gain(1.0),
            lqg.START**2 / 3,
            np.zeros((2, len(GAMMAS))),
        )
        found[0] = [lqg.expected_return(horizon, gamma, gain=gain) for gamma in GAMMAS]
        for t in range(horizon):
            found[1] += np.array(GAMMAS) ** t * gain**2 * second
            second = (1 - gain) ** 2 * second + 2 * lqg.NOISE
        return found


class Bank:
    """Draws from recorded trajectories with several components, or with one of them."""

    num_envs = 1 << 16

    def __init__(self, rewards, names, column=None):
        self.names, self._rewards = names, rewards if column is None else rewards[..., column]
        self.components = names if column is None else ()
        self._picker = BankSimulator(np.arange(len(rewards))[:, None])

    def rollout(self, lengths, seeds):
        rows = self._picker.rollout(np.ones(len(seeds), dtype=int), seeds).flat.astype(int)
        return rido.Trajectories(self._rewards[rows, : max(lengths)], lengths)

    def expected(self):
        discounts = np.array(GAMMAS)[:, None] ** np.arange(self._rewards.shape[1])
        return np.einsum("tc,gt->cg", self._rewards.mean(axis=0), discounts)


def record(name, folder):
    """Returns a bank of full-length trajectories, from a file if it was recorded before."""
    path = folder / f"{name}.npz"
    env, agent, components = MUJOCO[name]
    if not path.exists():
        simulator = GymnasiumSimulator(env, AGENTS / agent, horizon=HORIZONS[name], components=components)
        found = simulator.rollout(np.full(ROWS, HORIZONS[name]), trajectory_seeds(1, 0, ROWS))
        np.savez_compressed(path, rewards=found.rewards)
        simulator.close()
    return np.load(path)["rewards"], ("reward", *components)


@lru_cache
def simulators(name, folder):
    """Returns the simulator of all components, and one for each of them."""
    if name == "LQG":
        return Lqg(), [Lqg(column) for column in range(len(Lqg.names))]
    rewards, names = record(name, folder)
    return Bank(rewards, names), [Bank(rewards, names, column) for column in range(len(names))]


def repetition(case):
    """Returns values and whether intervals hold for each method: one run, separate runs, plain episodes."""
    name, folder, seed = case
    warnings.simplefilter("ignore")
    together, single = simulators(name, folder)
    settings = dict(horizon=HORIZONS[name], budget=BUDGETS[name], seed=seed)
    one = rido.evaluate(together, gamma=GAMMAS, **settings)
    plain = rido.evaluate(together, gamma=GAMMAS, strategy="uniform", **settings)
    separate = [rido.evaluate(part, gamma=gamma, **settings).estimate for part in single for gamma in GAMMAS]
    rows = [list(one.components.values()), separate, list(plain.components.values())]
    truth = together.expected().ravel()
    values = [[estimate.value for estimate in row] for row in rows]
    held = [
        [bool(low <= true <= high) for (low, high), true in zip((e.interval() for e in row), truth, strict=True)]
        for row in rows
    ]
    joint = one.intervals(simultaneous=True).values()
    return values, held, all(bool(low <= true <= high) for (low, high), true in zip(joint, truth, strict=True))


def study(name, folder, workers):
    """Returns the lines of a table, and a note on it."""
    repetitions = REPETITIONS[name]
    folder.mkdir(parents=True, exist_ok=True)
    simulators(name, folder)  # records what is missing
    path = folder / f"{name}.json"
    found = json.loads(path.read_text()) if path.exists() else []
    cases = [(name, folder, seed) for seed in range(len(found), repetitions)]
    with get_context("forkserver").Pool(workers) as pool:
        for cell in pool.imap(repetition, cases):
            found.append(cell)
            path.write_text(json.dumps(found))
    values, held, together = map(np.array, zip(*found, strict=True))
    simulator, _ = simulators(name, folder)
    truth = simulator.expected().ravel()
    squares = (values - truth) ** 2  # repetition, method, column
    labels = [f"{part}, {gamma:g}" for part in simulator.names for gamma in GAMMAS]
    lines = []
    for column, label in enumerate(labels):
        ratios = [ratio(squares[:, 0, column], squares[:, other, column]) for other in (1, 2)]
        holds = " | ".join(f"{share:.3f}" for share in held[:, :, column].mean(axis=0))
        bias = (values[:, 0, column] - truth[column]).mean() / (values[:, 0, column].std() / np.sqrt(len(values)))
        lines.append(f"| {name} | {label} | {truth[column]:.4g} | {' | '.join(ratios)} | {holds} | {bias:+.1f} |")
    budget = BUDGETS[name]
    note = (
        f"- {name}: {repetitions} repetitions, T = {HORIZONS[name]}, {budget:,} transitions in one run and in plain "
        f"episodes, {len(labels) * budget:,} in the {len(labels)} separate runs. All simultaneous 95% intervals of one "
        f"run held in {together.mean():.3f} of the repetitions."
    )
    return lines, note


def ratio(above, below):
    """Returns a ratio of means with half the width of its 95% interval, by the delta method."""
    found, parts = above.mean() / below.mean(), above / above.mean() - below / below.mean()
    return f"{found:.2f} ± {1.96 * found * parts.std(ddof=1) / np.sqrt(parts.size):.2f}"


def exact():
    """Returns lines on runs with the same seeds that must agree to the last bit."""
    env, agent, components = MUJOCO["HalfCheetah"]
    lines = []
    for strategy, plan_for in (("uniform", None), ("adaptive", "reward")):
        settings = dict(gamma=0.99, horizon=100, budget=4000, seed=1, strategy=strategy)
        one = rido.evaluate(env, AGENTS / agent, components=components, plan_for=plan_for, **settings)
        alone = rido.evaluate(env, AGENTS / agent, **settings)
        same = (one.value, one.standard_error) == (alone.value, alone.standard_error)
        lines.append(
            f"| HalfCheetah, {strategy}, planned for {plan_for or 'all'} | {one.value!r} | {alone.value!r} | {same} |"
        )
    settings = dict(horizon=50, budget=5000, seed=1, strategy="uniform")
    one = rido.evaluate(Lqg(0), gamma=GAMMAS, **settings).components
    for gamma in GAMMAS:
        alone, found = rido.evaluate(Lqg(0), gamma=gamma, **settings).value, one[f"reward, gamma {gamma:g}"].value
        lines.append(f"| LQG, uniform, gamma {gamma:g} | {found!r} | {alone!r} | {found == alone} |")
    return lines


def timings():
    """Returns processor seconds of plain evaluations; run in a process of its own for each version."""
    rng = np.random.default_rng(0)
    bank = BankSimulator(rng.normal(size=(200, 200)).cumsum(axis=1))

    def loop():
        strategy, first = rido.Adaptive(horizon=200, budget=100_000, gamma=0.99), 0
        while (schedule := strategy.ask()) is not None:
            strategy.tell(bank.rollout(schedule.lengths, trajectory_seeds(1, first, schedule.trajectories)))
            first += schedule.trajectories
        strategy.estimate()

    works = {
        "Adaptive on a bank": loop,
        "evaluate on LQG": lambda: rido.evaluate("rido/LQG-v0", budget=10_000, gamma=0.9, horizon=50, seed=1),
        "evaluate on Pendulum": lambda: rido.evaluate("Pendulum-v1", "rido:pendulum", budget=4000, gamma=0.9, seed=1),
        "uniform on a bank": lambda: rido.evaluate(
            bank, budget=400_000, gamma=0.99, horizon=200, seed=1, strategy="uniform"
        ),
    }
    found = {}
    for name, work in works.items():
        work()
        times = []
        for _ in range(3):
            started = time.process_time()
            work()
            times.append(time.process_time() - started)
        found[name] = min(times)
    print(json.dumps(found))


def speed(before):
    """Returns lines with the time of this version over that of another one, in turn."""
    sources = [Path(rido.__file__).parents[1], Path(before)]
    rounds = []
    for _ in range(SPEED_ROUNDS):
        both = []
        for source in sources:
            env = os.environ | {"PYTHONPATH": str(source), "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
            code = f"import runpy; runpy.run_path({str(Path(__file__))!r}, run_name='signals')['timings']()"
            done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True)
            both.append(json.loads(done.stdout))
        rounds.append(both)
    lines = []
    for name in rounds[0][0]:
        ratios = np.array([new[name] / old[name] for new, old in rounds])
        least = [min(both[version][name] for both in rounds) for version in (0, 1)]
        mean, error = np.log(ratios).mean(), 2.05 * np.log(ratios).std(ddof=1) / np.sqrt(ratios.size)
        low, high = np.exp([mean - error, mean + error])
        lines.append(
            f"| {name} | {least[1]:.3g} s | {np.exp(mean):.3f} | [{low:.3f}, {high:.3f}] | {least[0] / least[1]:.3f} |"
        )
    return lines


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--before", type=Path)
    parser.add_argument("--banks", type=Path, default=Path("/tmp/rido-signals"))
    parser.add_argument("--workers", type=int, default=1)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    tables, notes = [], []
    for name in HORIZONS:
        lines, note = study(name, options.banks, options.workers)
        tables, notes = tables + lines, [*notes, note]
    page = [
        "# Several signals from one run",
        "",
        "Made by `python benchmarks/signals.py --output results/signals.md --before SRC`; the script says what SRC is.",
        "",
        "## Components and discounts: one run beside separate runs",
        "",
        'One run estimates two components under three discounts, with `plan_for="all"`. Separate runs plan for one',
        "component and one discount each, with the same budget for each of them. Plain episodes are one run with full",
        "length. The control cost is a part of the reward. MSE is the mean squared error; ± is half of a 95% interval.",
        "",
        "| case | component, gamma | expected | MSE over separate runs' | MSE over plain episodes' "
        "| 95% interval holds: one run | separate | plain | mean error of one run, SE |",
        "|---|---|---|---|---|---|---|---|---|",
        *tables,
        "",
        *notes,
        "- Where discounts want other schedules, one run is a compromise, and a separate run with the same budget for",
        "  that one alone has less error; `plan_for=` chooses it. HalfCheetah falls rarely, which few runs show: no",
        "  method holds 95% there.",
        "",
        "## The same seeds",
        "",
        "Value of the reward from a run with components or several discounts, and from a plain run.",
        "",
        "| run | together | alone | equal |",
        "|---|---|---|---|",
        *exact(),
        "",
        "Discounts below the largest multiply rewards by `(gamma / largest)^t` first, which rounds differently.",
    ]
    if options.before is not None:
        page += [
            "",
            "## Speed of scalar evaluation",
            "",
            f"Processor time of this version over that of the commit before, in turn, {SPEED_ROUNDS} rounds of new",
            "processes, in each the least of three runs. Ratios are averaged as logarithms. Other work shared the",
            "processors.",
            "",
            "| work | before, least | mean ratio | 95% interval | ratio of the least |",
            "|---|---|---|---|---|",
            *speed(options.before),
        ]
    options.output.write_text("\n".join(page) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
