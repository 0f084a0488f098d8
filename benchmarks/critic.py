"""What a critic is worth: error at equal transitions, and that it is exact whatever the critic.

Run with ``make benchmarks``; writes a Markdown page to standard output and the picture results/critic.png. Needs the
agents of the RL Baselines3 Zoo in the directory that RIDO_AGENTS names. Names of sections as arguments run these
alone; ``--repetitions`` runs fewer. ``redraw`` draws the picture from results/critic.json, without measuring again.

Trajectories of real environments are recorded once, with their observations, and drawn again for every repetition
(BankSimulator), so that the truth is the mean of the bank and the whole of ``rido.evaluate`` runs each time. Only the
picture is made in the real environment, because critics that learn must not meet the same trajectory twice.
"""

import argparse
import json
import math
import os
import time
import warnings
from functools import cache, partial
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from truths import sobol_truth

import rido
from rido.core.allocation import pool
from rido.plots.style import STRATEGIES, label_ends, logarithmic, short, style
from rido.simulators import BankSimulator, Batch, Capabilities, Simulator, trajectory_seeds
from rido.simulators.base import NO_TRAJECTORIES
from rido.simulators.envs import lqg
from rido.simulators.gymnasium import GymnasiumSimulator
from rido.study.strategies import true_weights as weights

AGENTS = Path(os.environ.get("RIDO_AGENTS", Path(__file__).parents[2] / "shared" / "agents"))
PICTURE = Path(__file__).parents[1] / "results" / "critic.png"
ANT = {"include_cfrc_ext_in_observation": False, "contact_cost_weight": 0}


class LQG(Simulator):
    """The LQG domain in one go per request: the same distribution as rido/LQG-v0, and much faster for tiny runs."""

    num_envs = 1 << 16
    capabilities = Capabilities(observes=True)

    def __init__(self, gamma):
        self.gain = lqg.riccati_gain(gamma)

    def collect(self, request):
        lengths, seeds = request.lengths, request.seeds
        if request.wants == "starts":
            first = np.random.default_rng(seeds).uniform(-lqg.START, lqg.START, (len(seeds), 1))
            return Batch(NO_TRAJECTORIES, first)
        random, rows, horizon = np.random.default_rng(seeds), len(seeds), int(lengths.max())
        states, rewards = np.empty((rows, horizon + 1)), np.empty((rows, horizon))
        states[:, 0] = random.uniform(-lqg.START, lqg.START, rows)
        for t in range(horizon):
            control, noise = math.sqrt(lqg.NOISE) * random.standard_normal((2, rows))
            control -= self.gain * states[:, t]
            rewards[:, t] = states[:, t] ** 2 + control**2
            states[:, t + 1] = states[:, t] + control + noise
        seen = np.arange(horizon + 1) <= np.asarray(lengths)[:, None]
        return Batch(rido.Trajectories(rewards, lengths), states[seen][:, None], np.zeros(rows, dtype=bool))


def lqg_critics(horizon, gamma):
    """The true value function, one that is 5 times too large, and a random network of about its size."""
    table = np.array([lqg.value([0.0, 1.0], k, gamma) for k in range(horizon + 1)])
    random = np.random.default_rng(0)
    first, second = random.normal(size=(2, 32)), random.normal(size=32) * 2000

    def true(observations, steps_to_go):
        return table[steps_to_go, 0] + (table[steps_to_go, 1] - table[steps_to_go, 0]) * observations[:, 0] ** 2

    def wrong(observations, steps_to_go):
        return 5 * true(observations, steps_to_go)

    def network(observations, steps_to_go):
        inputs = np.stack([observations[:, 0] / 40, steps_to_go / horizon], axis=1)
        return np.tanh(inputs @ first) @ second

    true.rowwise = wrong.rowwise = True
    return {"none": None, "true": true, "5 times too large": wrong, "random network": network, "fit": "fit"}


def repeat(simulator, truth, repetitions, **settings):
    """Errors, squared standard errors, whether 95% intervals hold, and results of many evaluations."""
    results = [rido.evaluate(simulator, seed=seed, **settings) for seed in range(repetitions)]
    errors = np.array([result.value for result in results]) - truth
    covered = np.array([low < truth < high for low, high in (result.interval() for result in results)])
    return errors, np.array([result.standard_error**2 for result in results]), covered, results


def exact(repetitions):
    """Unbiased and covered, whatever the critic."""
    horizon, gamma, budget = 20, 0.9, 1000
    truth, simulator = lqg.expected_return(horizon, gamma), LQG(gamma)
    print("## Exact for any critic\n")
    print(
        f"LQG, T = {horizon}, gamma {gamma}, budget {budget:,}, at most 2,000 resets. Uniform: {repetitions:,} "
        "repetitions (a fifth with a fitted critic); adaptive, whose plans bias it a little: a fifth.\n"
    )
    print("| strategy | critic | mean error, standard errors | 95% interval holds | RMSE |\n|---|---|---|---|---|")
    for strategy in ("uniform", "adaptive"):
        for name, critic in lqg_critics(horizon, gamma).items():
            count = repetitions // (5 if critic == "fit" else 1) // (5 if strategy == "adaptive" else 1)
            errors, _, covered, _ = repeat(
                simulator,
                truth,
                count,
                budget=budget,
                gamma=gamma,
                horizon=horizon,
                strategy=strategy,
                critic=critic,
                max_resets=2000,
            )
            bias = errors.mean() / (errors.std() / math.sqrt(count))
            rmse = math.sqrt((errors**2).mean())
            print(f"| {strategy} | {name} | {bias:+.2f} | {covered.mean():.3f} | {rmse:.1f} |", flush=True)


def riccati(repetitions):
    """LQG with the true value function."""
    horizon, gamma, budget, resets = 100, 0.9, 2000, 200_000
    simulator, truth = LQG(gamma), lqg.expected_return(horizon, gamma)
    uniform = lqg.weights(horizon, gamma).sum() * horizon / budget
    print("\n## LQG with the Riccati value\n")
    print(f"T = {horizon}, gamma {gamma}, budget {budget:,}, at most {resets:,} resets, {repetitions} repetitions.\n")
    print("| critic | MSE over uniform's | resets |\n|---|---|---|")
    for name in ("none", "true"):
        errors, _, _, results = repeat(
            simulator,
            truth,
            repetitions,
            budget=budget,
            gamma=gamma,
            horizon=horizon,
            critic=lqg_critics(horizon, gamma)[name],
            max_resets=resets,
        )
        ratio, taken = (errors**2).mean() / uniform, np.mean([result.resets for result in results])
        print(f"| {name} | 1/{1 / ratio:,.0f} | {taken:,.0f} |", flush=True)


def balance(observations, generators):
    """A controller of CartPole that errs now and then, so that poles fall at all times."""
    chosen = observations[:, 2] + 0.5 * observations[:, 3] + 0.1 * observations[:, 1] > 0
    random = np.array([generator.random(2) for generator in generators])
    return np.where(random[:, 0] < 0.3, random[:, 1] < 0.5, chosen).astype(int)


ENVIRONMENTS = {  # id, agent, horizon, rows of the bank, arguments
    "Pendulum": ("Pendulum-v1", "ppo/Pendulum-v1/Pendulum-v1.zip", 200, 4000, {}),
    "CartPole": ("CartPole-v1", None, 200, 4000, {}),
    "HalfCheetah": ("HalfCheetah-v5", "ppo/HalfCheetah-v3/HalfCheetah-v3.zip", 500, 400, {}),
    "Swimmer": ("Swimmer-v5", "trpo/Swimmer-v3/Swimmer-v3.zip", 500, 400, {}),
    "Ant": ("Ant-v5", "trpo/Ant-v3/Ant-v3.zip", 500, 400, ANT),
}


@cache
def bank(name):
    """The bank of an environment, with the policy that made it."""
    env, agent, horizon, rows, arguments = ENVIRONMENTS[name]
    policy = balance if agent is None else AGENTS / agent
    simulator = GymnasiumSimulator(env, policy, horizon=horizon, env_kwargs=arguments)
    observed = simulator.observe(np.full(rows, horizon), trajectory_seeds(2026, 0, rows))
    steps = observed.trajectories.steps
    observations = np.zeros((rows, horizon + 1, *observed.observations.shape[1:]), observed.observations.dtype)
    observations[np.arange(horizon + 1) <= steps[:, None]] = observed.observations
    made = BankSimulator(observed.trajectories.rewards, steps, observations)
    made.policy = simulator.policy
    simulator.close()
    return made


def uniform_variance(simulator, gamma, budget):
    """Variance of full-length trajectories alone for a budget: exact, because the bank is the whole world."""
    return weights(simulator.rewards, gamma).sum() * simulator.steps.mean() / budget


def pendulum(repetitions):
    """The targets on Pendulum."""
    simulator, budget = bank("Pendulum"), 20_000
    print("\n## Pendulum\n")
    print(f"T = 200, the zoo's PPO agent (trained for gamma 0.9), budget {budget:,}, {repetitions} repetitions.\n")
    print("| gamma | critic | MSE over uniform's | mean SE^2 over uniform's | 95% interval holds | used | resets | s |")
    print("|---|---|---|---|---|---|---|---|")
    for gamma in (0.9, 0.99):
        for critic in (None, "policy", "fit", "auto"):
            started = time.perf_counter()
            errors, squares, covered, results = repeat(
                simulator,
                simulator.expected_return(gamma),
                repetitions,
                budget=budget,
                gamma=gamma,
                horizon=200,
                critic=critic,
            )
            seconds = (time.perf_counter() - started) / repetitions
            uniform = uniform_variance(simulator, gamma, budget)
            print(
                f"| {gamma} | {critic or 'none'} | 1/{uniform / (errors**2).mean():,.1f} | "
                f"1/{uniform / squares.mean():,.1f} | {covered.mean():.3f} | {used(results)} | "
                f"{np.mean([result.resets for result in results]):,.0f} | {seconds:.2f} |",
                flush=True,
            )


def used(results):
    """How often each critic was taken."""
    names = [result.critic for result in results]
    return ", ".join(f"{name} {names.count(name)}" for name in sorted(set(names)))


def others(repetitions):
    """What "auto" does elsewhere, next to no critic."""
    print('\n## "auto" against none\n')
    print(
        f"Budget 50 T, {repetitions} repetitions on banks of recorded trajectories. Ratios below 1 are gains; "
        '"SE^2" compares the mean of the squared standard errors, which is less noisy than the MSE.\n'
    )
    print("| environment | T | gamma | MSE, auto over none | SE^2, auto over none | none over uniform | used |")
    print("|---|---|---|---|---|---|---|")
    for name in ENVIRONMENTS:
        simulator, horizon = bank(name), ENVIRONMENTS[name][2]
        for gamma in (0.9, 0.99):
            settings = {"budget": 50 * horizon, "gamma": gamma, "horizon": horizon}
            truth = simulator.expected_return(gamma)
            plain, plain_squares, _, _ = repeat(simulator, truth, repetitions, **settings)
            errors, squares, _, results = repeat(simulator, truth, repetitions, critic="auto", **settings)
            print(
                f"| {name} | {horizon} | {gamma} | {(errors**2).mean() / (plain**2).mean():.3f} "
                f"| {squares.mean() / plain_squares.mean():.3f} "
                f"| {plain_squares.mean() / uniform_variance(simulator, gamma, 50 * horizon):.3f} | {used(results)} |",
                flush=True,
            )


def fits(repetitions):
    """Why a ridge on random features and not boosted trees."""
    from sklearn.ensemble import HistGradientBoostingRegressor

    from rido.predictors.features import Sample
    from rido.predictors.regression import Basis, Normal

    simulator, pilots = bank("Pendulum"), max(2, repetitions // 60)
    rows, horizon = simulator.rewards.shape
    print("\n## Fitted critics\n")
    print(
        "Variance under the best schedule over uniform's, E[V(s_0)] known; Pendulum, fitted on 14 trajectories without "
        f"the agent's value, geometric mean of {pilots} pilots.\n"
    )
    print("| gamma | best schedule, no critic | boosted trees | ridge on random features |\n|---|---|---|---|")
    for gamma in (0.9, 0.99):
        uniform = uniform_variance(simulator, gamma, 1)
        ones = np.ones(horizon)
        left = {"none": np.sqrt(pool(weights(simulator.rewards, gamma), ones)).sum() ** 2 / uniform}
        ratios = {"trees": [], "ridge": []}
        for number in range(pilots):
            chosen = np.random.default_rng(number).choice(rows, 14, replace=False)
            seen = simulator.observations[chosen]
            pilot = Sample(
                rido.Trajectories(simulator.rewards[chosen], np.full(14, horizon)),
                np.zeros(14, dtype=bool),
                seen.reshape(-1, seen.shape[-1]).astype(float),
            )
            basis = Basis(pilot, 1.5, agent_value=False, horizon=horizon, gamma=gamma)
            to_go = np.zeros((14, horizon + 1))
            for t in reversed(range(horizon)):
                to_go[:, t] = simulator.rewards[chosen, t] + gamma * to_go[:, t + 1]
            steps_to_go = np.tile(np.arange(horizon, -1, -1), 14)
            trees = HistGradientBoostingRegressor(random_state=0, early_stopping=False)
            trees.fit(np.column_stack([pilot.features, steps_to_go]), to_go.ravel())
            critics = {
                "trees": lambda o, k, trees=trees: trees.predict(np.column_stack([o, k])),
                "ridge": partial(basis.value, Normal.of(basis, pilot, 0).solve(basis.free, 3e-4)[0]),
            }
            test = np.setdiff1d(np.arange(600), chosen)
            flat = simulator.observations[test].reshape(-1, seen.shape[-1])
            for name, critic in critics.items():
                values = critic(flat, np.tile(np.arange(horizon, -1, -1), test.size)).reshape(test.size, -1)
                values[:, -1] = 0
                signal = simulator.rewards[test] + gamma * values[:, 1:] - values[:, :-1]
                ratios[name].append(np.sqrt(pool(weights(signal, gamma), ones)).sum() ** 2 / uniform)
        left |= {name: np.exp(np.log(values).mean()) for name, values in ratios.items()}
        print(f"| {gamma} | {left['none']:.3f} | {left['trees']:.4f} | {left['ridge']:.4f} |", flush=True)


def cost(repetitions):
    """What the critic takes of the time."""
    print("\n## Time\n")
    print("Pendulum itself, not a bank; gamma 0.99, budget 20,000; medians of 5, in seconds.\n")
    print("| critic | collecting | planning, fitting | resets |\n|---|---|---|---|")
    policy = AGENTS / "ppo/Pendulum-v1/Pendulum-v1.zip"
    for critic in (None, "policy", "fit", "auto"):
        runs = [
            rido.evaluate("Pendulum-v1", policy, budget=20_000, gamma=0.99, horizon=200, critic=critic, seed=seed)
            for seed in range(5)
        ]
        times = [
            np.median([getattr(run, name) for run in runs]) for name in ("seconds", "planning_seconds", "reset_seconds")
        ]
        taken = np.median([run.resets for run in runs])
        print(f"| {critic or 'none'} | {times[0]:.2f} | {times[1]:.2f} | {times[2]:.2f} ({taken:,.0f}) |", flush=True)


def picture(repetitions):
    """MSE against budget for each strategy: the table, its numbers as JSON, and the picture of them."""
    env, agent, horizon, _, _ = ENVIRONMENTS["Pendulum"]
    gamma, budgets = 0.99, [2000, 4000, 8000, 16_000, 32_000]
    truth, _, noise = sobol_truth(env, AGENTS / agent, horizon=horizon, gamma=gamma, size=16_384)
    contestants = {
        "uniform": ("uniform", None),
        "robust": ("robust", None),
        "rido": ("rido", None),
        "adaptive": ("adaptive", None),
        "adaptive + critic": ("adaptive", "auto"),
    }
    print("\n## Picture\n\nresults/critic.png: Pendulum itself, not a bank; the zoo's PPO agent, T = 200, gamma 0.99.")
    print(f"MSE of {repetitions} repetitions per point, with 95% intervals from their spread.\n")
    print(f"| budget | {' | '.join(contestants)} |\n|---|{'---|' * len(contestants)}")
    curves = {}
    for name, (strategy, critic) in contestants.items():
        points = []
        for budget in budgets:
            settings = {"budget": budget, "gamma": gamma, "horizon": horizon, "strategy": strategy, "critic": critic}
            squares = repeat(env, truth, repetitions, policy=AGENTS / agent, **settings)[0] ** 2
            mse, half_width = squares.mean() - noise, 1.96 * squares.std(ddof=1) / math.sqrt(repetitions)
            points.append((mse, max(mse / 10, mse - half_width), mse + half_width))
        curves[name] = dict(zip(("mse", "low", "high"), np.transpose(points).tolist(), strict=True))
    for row, budget in enumerate(budgets):
        cells = (
            f"{curve['mse'][row]:.3g} ({curve['low'][row]:.3g} to {curve['high'][row]:.3g})"
            for curve in curves.values()
        )
        print(f"| {budget:,} | {' | '.join(cells)} |", flush=True)
    PICTURE.with_suffix(".json").write_text(json.dumps({"budgets": budgets, "curves": curves}, indent=1) + "\n")
    redraw()


@style()
def redraw():
    """Draw the picture from the stored numbers."""
    stored = json.loads(PICTURE.with_suffix(".json").read_text())
    budgets = stored["budgets"]
    figure = Figure(figsize=(6.4, 4), layout="constrained")
    ax = figure.subplots()
    for place, (name, curve) in enumerate(stored["curves"].items()):
        mse, low, high = (np.array(curve[key]) for key in ("mse", "low", "high"))
        # Bars side by side: the intervals of neighbours overlap.
        shifted = np.array(budgets) * 1.015 ** (place - 2)
        label = "RIDO (paper)" if name == "rido" else name
        ax.plot(shifted, mse, "o-", color=STRATEGIES[name], markersize=4, label=label)
        ax.errorbar(shifted, mse, [mse - low, high - mse], fmt="none", color=STRATEGIES[name], linewidth=1)
    logarithmic(ax, "x")
    logarithmic(ax, "y")
    ax.set_xticks(budgets, [short(budget) for budget in budgets])
    ax.set(xlabel="transitions", ylabel="mean squared error, 95% interval")
    ax.margins(x=0.03)
    ax.set_title("Error of the estimated return of a trained agent: Pendulum, $\\gamma$ = 0.99")
    label_ends(ax)
    figure.savefig(PICTURE)


SECTIONS = {  # with their repetitions
    "exact": (exact, 5000),
    "riccati": (riccati, 300),
    "pendulum": (pendulum, 300),
    "others": (others, 100),
    "fits": (fits, 300),
    "cost": (cost, 5),
    "picture": (picture, 100),
}


def main():
    warnings.filterwarnings("ignore")
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("sections", nargs="*", default=list(SECTIONS))
    parser.add_argument("--repetitions", type=int)
    arguments = parser.parse_args()
    if arguments.sections == ["redraw"]:
        redraw()
        return
    if arguments.sections == list(SECTIONS):
        print("# Critic\n\nMade by `make benchmarks` (benchmarks/critic.py).\n")
    for name in arguments.sections:
        run, repetitions = SECTIONS[name]
        run(arguments.repetitions or repetitions)


if __name__ == "__main__":
    main()
