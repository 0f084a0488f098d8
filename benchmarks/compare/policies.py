"""Races between real agents, on banks of trajectories that were recorded with the same seeds for all."""

from pathlib import Path

import numpy as np
import racing
from scipy.special import stdtrit

from rido.policies.npz import MlpPolicy
from rido.policies.resolve import shipped_agent
from rido.simulators.base import trajectory_seeds
from rido.simulators.gymnasium import GymnasiumSimulator

CHECKPOINTS = Path(__file__).parent / "agents"  # checkpoints of a training, made by benchmarks/compare/checkpoints.py
PENDULUM_NOISE = (0.0, 0.03, 0.05, 0.08, 0.1, 0.15, 0.2, 0.3)
NOISE = (0.0, 0.02, 0.05, 0.1)
MUJOCO = {  # agent: steps of a trajectory, trajectories in the bank
    "reacher": (50, 1000),
    "swimmer": (200, 400),
    "halfcheetah": (200, 300),
    "ant": (200, 300),
}
ROWS = 4000  # of the Pendulum bank
RUNS = 50
INSTANCES = 5  # draws of the noise on the weights


def noisy(name, noise, seed):
    """Returns a shipped agent whose weights are multiplied by 1 + noise * N(0, 1)."""
    agent = MlpPolicy.load(shipped_agent(f"rido:{name}"), name=f"{name} {noise:g}")
    rng = np.random.default_rng(seed)
    factors = {
        key: 1 + noise * rng.standard_normal(array.shape) for key, array in agent.arrays.items() if "actor." in key
    }
    arrays = {
        key: (array * factors[key]).astype(array.dtype) if key in factors else array
        for key, array in agent.arrays.items()
    }
    return MlpPolicy(arrays, name=f"{noise:g}")


def line_up(name, kind):
    """Returns the agents of a race by name, and the environment that they act in."""
    about = MlpPolicy.load(shipped_agent(f"rido:{name}")).about
    if kind == "checkpoints":
        files = sorted(CHECKPOINTS.glob(f"{name}-*.npz"), key=lambda path: int(path.stem.rpartition("-")[2]))
        agents = {path.stem.rpartition("-")[2]: MlpPolicy.load(path) for path in files}
    else:
        agents = {f"{noise:g}": noisy(name, noise, seed) for seed, noise in enumerate(kind)}
    return agents, about["env"], about.get("env_kwargs", {})


def record(path, agents, env, env_kwargs, horizon, rows):
    """Returns {policy: (rewards, steps)} of agents by name on common seeds, recorded once and kept in a file."""
    if not path.exists():
        arrays = {}
        for name, agent in agents.items():
            simulator = GymnasiumSimulator(env, agent, horizon=horizon, env_kwargs=env_kwargs, num_envs=32)
            batch = simulator.rollout(np.full(rows, horizon), trajectory_seeds(0, 0, rows))
            arrays[f"{name} rewards"], arrays[f"{name} steps"] = batch.rewards, batch.steps
            simulator.close()
        np.savez(path, **arrays)
    with np.load(path) as file:
        return {name: (file[f"{name} rewards"], file[f"{name} steps"]) for name in agents}


def bank(folder, name, kind, horizon, rows):
    """Returns the recorded agents of a race."""
    label = kind if isinstance(kind, str) else "noise"
    return record(folder / f"bank-{name}-{label}-{horizon}-{rows}.npz", *line_up(name, kind), horizon, rows)


def pendulum_bank(folder, instance, rows):
    """Returns {policy: (rewards, steps)} of eight agents in Pendulum, whose JAX version is quick to record."""
    path = folder / f"bank-pendulum-{instance}-{rows}.npz"
    if not path.exists():
        from rido.simulators.jax import JaxSimulator, pendulum

        arrays, lengths = {}, np.full(rows, 200)
        for index, noise in enumerate(PENDULUM_NOISE):
            agent = noisy("pendulum", noise, [instance, index])
            simulator = JaxSimulator(pendulum(), in_jax(agent), horizon=200)
            batch = simulator.rollout(lengths, trajectory_seeds(instance, 0, rows))
            arrays[f"{noise:g}"] = batch.rewards
        np.savez(path, **arrays)
    with np.load(path) as file:
        return {name: (file[name], np.full(rows, 200)) for name in file.files}


def in_jax(agent):
    """Returns the actor of an agent as a function of one observation in JAX."""
    import jax.numpy as jnp

    arrays = {name: jnp.asarray(array) for name, array in agent.arrays.items() if name != "about"}
    layers = sum(name.startswith("actor.") for name in arrays) // 2

    def act(observation):
        scaled = (observation - arrays["mean"]) / arrays["deviation"]
        hidden = jnp.clip(scaled, -arrays["limit"], arrays["limit"])
        for layer in range(layers):
            hidden = hidden @ arrays[f"actor.{layer}.weight"] + arrays[f"actor.{layer}.bias"]
            hidden = jnp.tanh(hidden) if layer < layers - 1 else hidden
        return jnp.clip(hidden, arrays["low"], arrays["high"])

    return act


def pendulum_cells(folder, *, quick):
    rows, runs = (400, 4) if quick else (ROWS, RUNS)
    for instance in range(2 if quick else INSTANCES):
        yield f"pendulum {instance} equal", equal_allocation, (str(folder), instance, rows)
        for budget, share in ((80_000, 1), (400_000, 5)):
            yield f"pendulum {instance} {budget}", pendulum, (str(folder), instance, rows, budget, runs // share)


def pendulum(folder, instance, rows, budget, runs):
    """Returns for each race: whether the best was found, another was, who leads in the end, and the transitions."""
    recorded = pendulum_bank(Path(folder), instance, rows)
    truth = {name: float(rewards.sum(axis=1).mean()) for name, (rewards, _) in recorded.items()}
    best, rng, found = max(truth, key=truth.get), np.random.default_rng([7, budget, instance]), []
    for _ in range(runs):
        result = racing.bank_race(recorded, list(recorded), budget=budget, rng=rng, gamma=1.0)
        wrong = result.best is not None and result.best != best
        found.append([int(result.best == best), int(wrong), int(result.ranking[0] == best), result.transitions])
    return found


def equal_allocation(folder, instance, rows, share=0.95):
    """Returns the transitions with which the largest mean of unpaired trajectories is that of the best policy."""
    recorded = pendulum_bank(Path(folder), instance, rows)
    returns = np.array([rewards.sum(axis=1) for rewards, _ in recorded.values()])
    means, deviations = returns.mean(axis=1), returns.std(axis=1)
    best, draws = int(means.argmax()), np.random.default_rng(3).standard_normal((4000, len(means)))
    second = int(np.argsort(means)[-2])

    def found(count):  # the means of this many returns are normal
        return float(np.mean((means + draws * deviations / np.sqrt(count)).argmax(axis=1) == best))

    count = 1.0
    while found(count) < share:
        count *= 1.1
    return {
        "transitions": count * len(means) * 200,
        "gap": float(means[best] - means[second]),
        "deviation": float(deviations[best]),
        "paired": float((returns[best] - returns[second]).std()),
    }


def pendulum_page(found):
    text = [
        "The shipped agent with multiplicative noise on its weights (0, .03, .05, .08, .1, .15, .2, .3), T = 200, "
        "gamma 1; each row is another draw of the noise. Gap: between the best two, with the standard deviation of "
        "their difference on common seeds and of a return. The last column: equal numbers of unpaired trajectories "
        "with which the largest mean is that of the best policy in 95% of runs.",
        "",
        "| draw | gap | deviations | budget | runs | leader is the best | decided for it | wrong winner | spent "
        "| unpaired, equal |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for key, races in found.items():
        _, instance, budget = key.split(" ")
        if budget == "equal":
            continue
        equal = found[f"pendulum {instance} equal"]
        best, wrong, leads, spent = np.array(races).mean(axis=0)
        text.append(
            f"| {instance} | {equal['gap']:.3g} | {equal['paired']:.3g}, {equal['deviation']:.3g} | {int(budget):,} "
            f"| {len(races)} | {100 * leads:.1f}% | {100 * best:.1f}% | {100 * wrong:.1f}% | {spent:,.0f} "
            f"| {equal['transitions']:,.0f} |"
        )
    return "\n".join(text)


def mujoco_cells(folder, *, quick):
    for name, (horizon, rows) in MUJOCO.items():
        for kind in ("noise", "checkpoints"):
            if kind == "checkpoints" and not list(CHECKPOINTS.glob(f"{name}-*.npz")):
                continue
            size = (rows // 10, 4) if quick else (rows, RUNS // 5)
            yield f"mujoco {name} {kind}", mujoco, (str(folder), name, kind, horizon, *size)


def mujoco(folder, name, kind, horizon, rows, runs):
    """Returns transitions until the decision with and without common seeds, and those of tests with equal budgets."""
    recorded = bank(Path(folder), name, NOISE if kind == "noise" else kind, horizon, rows)
    names, rng = list(recorded), np.random.default_rng(11)
    returns = {policy: rewards.sum(axis=1) for policy, (rewards, _) in recorded.items()}
    order = sorted(names, key=lambda policy: -returns[policy].mean())
    separate = returns[order[0]].var() + returns[order[1]].var()
    most = len(names) * horizon * 3000
    found = {
        "values": {policy: float(returns[policy].mean()) for policy in order},
        "gain": float(separate / (returns[order[0]] - returns[order[1]]).var()),
        "t test": t_test_transitions(returns, order, horizon, most),
        "most": most,
    }
    for label, paired in (("paired", True), ("unpaired", False)):
        races = [racing.bank_race(recorded, names, budget=most, rng=rng, gamma=1.0, paired=paired) for _ in range(runs)]
        found[label] = [race.transitions for race in races]
        found[f"{label} wrong"] = sum(race.best not in (None, order[0]) for race in races)
    return found


def t_test_transitions(returns, order, horizon, most):
    """Returns the transitions of equal, unpaired trajectories at which t tests separate the best in half of the runs.

    The best is separated when all its differences exceed the quantile of Bonferroni's level; the median of the smallest
    statistic is taken from normal draws.
    """
    draws = np.random.default_rng(5).standard_normal((2000, len(order)))
    means, variances = (np.array([getattr(returns[name], what)() for name in order]) for what in ("mean", "var"))
    count = 5.0
    while count * len(order) * horizon < most:
        seen = means + draws * np.sqrt(variances / count)
        statistic = (seen[:, :1] - seen[:, 1:]) / np.sqrt((variances[0] + variances[1:]) / count)
        quantile = stdtrit(2 * count - 2, 1 - 0.05 / 2 / (len(order) - 1))
        if np.median(statistic.min(axis=1)) > quantile:
            break
        count *= 1.05
    return count * len(order) * horizon


def mujoco_page(found):
    text = [
        "Transitions until a decision at 95%, median over runs on recorded trajectories (gamma 1): races with common "
        "seeds, races without, and t tests on equal numbers of unpaired trajectories (Bonferroni, the number at which "
        "half of the runs decide). Gain: how many times less variance the difference of the best two has by common "
        "seeds.",
        "",
        "| agents | policies, best first | gain | race | race, unpaired | t tests | unpaired over paired | wrong |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for key, cell in found.items():
        _, name, kind = key.split(" ")
        paired, unpaired = np.median(cell["paired"]), np.median(cell["unpaired"])
        values = ", ".join(f"{policy}: {value:.4g}" for policy, value in cell["values"].items())
        text.append(
            f"| {name}, {kind} | {values} | {cell['gain']:.3g} | {_limit(paired, cell)} | {_limit(unpaired, cell)} | "
            f"{_limit(cell['t test'], cell)} | {unpaired / paired:.3g} | "
            f"{cell['paired wrong']} of {len(cell['paired'])} |"
        )
    return "\n".join(text)


def _limit(transitions, cell):
    return f"{transitions:,.0f}" if transitions < 0.98 * cell["most"] else f"more than {cell['most']:,}"
