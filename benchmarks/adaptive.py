"""How good the adaptive strategy is, next to the paper's, uniform and robust: the tables of results/adaptive.md.

Run ``python benchmarks/adaptive.py --output results/adaptive.md``; ``--quick`` is the short form that a test runs. The
sections can be made one at a time with ``--sections``; others in the output stay as they are. Real rewards come from
banks in the directory ``--banks``; what is not there is recorded first, with the agents of the RL Baselines3 Zoo
in the directory that RIDO_AGENTS names.

Each part of the strategy that can be switched off is switched off by its settings.
"""

import math
import os
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path

import numpy as np
from reward_processes import ZOO, random_process
from sections import made, mapping, paragraphs, row, rule, study_parser, update

from rido import Adaptive
from rido.study.strategies import Bank, compare_strategies

NAMES = ("uniform", "robust", "rido", "adaptive")
FRESH = range(20_000, 20_050)  # held out: never looked at before the strategy was finished
AGENTS = Path(os.environ.get("RIDO_AGENTS", Path(__file__).parents[2] / "shared" / "agents"))
OLD_ANT = {"include_cfrc_ext_in_observation": False, "contact_cost_weight": 0}
REAL = {
    "pendulum": ("Pendulum-v1", "ppo/Pendulum-v1/Pendulum-v1.zip", 200, 4000, {}),
    "swimmer": ("Swimmer-v5", "trpo/Swimmer-v3/Swimmer-v3.zip", 500, 1500, {}),
    "halfcheetah": ("HalfCheetah-v5", "ppo/HalfCheetah-v3/HalfCheetah-v3.zip", 500, 1500, {}),
    "ant": ("Ant-v5", "trpo/Ant-v3/Ant-v3.zip", 500, 1500, OLD_ANT),
}


@dataclass(frozen=True)
class Source:
    """Where rewards come from: the zoo by name, a random process by seed, or a recorded agent."""

    kind: str
    name: str
    gamma: float
    trajectories: int = 20_000
    banks: str = ""

    @property
    def label(self):
        return f"{self.name} {self.gamma:g}" if self.kind == "real" else self.name


@lru_cache(maxsize=4)
def rewards_of(source):
    """Rewards and steps of a bank."""
    if source.kind == "paper":
        return record_lqg(source.trajectories)
    if source.kind == "real":
        return tuple(np.load(Path(source.banks) / f"{source.name}{end}.npy") for end in ("", "_steps"))
    index = [process.name for process in ZOO].index(source.name) if source.kind == "zoo" else int(source.name)
    process = ZOO[index] if source.kind == "zoo" else random_process(index)
    return process.sample(np.random.default_rng([1 if source.kind == "zoo" else 2, index]), source.trajectories)


def record(name, folder):
    """Records full-length trajectories of an agent with rido's own simulator."""
    from rido.simulators.base import trajectory_seeds
    from rido.simulators.gymnasium import GymnasiumSimulator

    env, agent, horizon, count, env_kwargs = REAL[name]
    simulator = GymnasiumSimulator(env, AGENTS / agent, horizon=horizon, env_kwargs=env_kwargs)
    batch = simulator.rollout(np.full(count, horizon), trajectory_seeds(0, 0, count))
    folder.mkdir(parents=True, exist_ok=True)
    np.save(folder / f"{name}.npy", batch.rewards)
    np.save(folder / f"{name}_steps.npy", batch.steps)


def record_lqg(count, horizon=100):
    """Rewards and steps of the paper's LQG."""
    from rido.simulators.base import trajectory_seeds
    from rido.simulators.gymnasium import GymnasiumSimulator

    simulator = GymnasiumSimulator("rido/LQG-v0", None, horizon=horizon, num_envs=1000)
    batch = simulator.rollout(np.full(count, horizon), trajectory_seeds(0, 0, count))
    return batch.rewards, batch.steps


def zoo_sources(trajectories, light_only=False):
    return [
        Source("zoo", process.name, process.gamma, trajectories)
        for process in ZOO
        if process.name != "deterministic" and (process.light_tailed or not light_only)
    ]


def run_comparison(task):
    """One bank, one budget: what the tables need of each strategy."""
    source, budget, names, repetitions, off = task
    rewards, steps = rewards_of(source)
    budget = budget * rewards.shape[1] if budget < 1000 else budget
    if off != "nothing":
        names = {"adaptive": partial(Adaptive, settings=SWITCHES[off])}
    result = compare_strategies(names, rewards, steps=steps, gamma=source.gamma, budget=budget, repetitions=repetitions)
    return {
        r.name: (r.relative_variance, r.coverage, r.warned, r.bias / math.sqrt(result.oracle_variance))
        for r in result.results
    }


class Table:
    """Results by source, budget and strategy."""

    def __init__(self, run, sources, budgets, names, repetitions, off="nothing"):
        self.sources, self.budgets, self.names, self.repetitions = sources, budgets, names, repetitions
        tasks = [(s, b, names, repetitions[b], off) for s in sources for b in budgets]
        found = run(run_comparison, tasks)
        self.cells = {
            (task[0].label, task[1], name): cell
            for task, row in zip(tasks, found, strict=True)
            for name, cell in row.items()
        }

    def column(self, budget, name, what=0):
        return np.array([self.cells[source.label, budget, name][what] for source in self.sources])

    def variance_rows(self):
        """Geometric mean and worst, one row for each strategy."""
        budgets = [f"{b} T" if b < 1000 else f"{b:,}" for b in self.budgets]
        yield row("geometric mean (worst)", *budgets, *(["all"] if len(budgets) > 1 else []))
        yield rule(1 + len(budgets) + (len(budgets) > 1))
        for name in self.names:
            columns = [self.column(b, name) for b in self.budgets]
            if len(columns) > 1:
                columns.append(np.concatenate(columns))
            yield row(name, *(f"{geometric_mean(c):.3f} ({c.max():.2f})" for c in columns))

    def detail_rows(self, name="adaptive"):
        budgets = [f"{b} T" if b < 1000 else f"{b:,}" for b in self.budgets]
        others = [other for other in self.names if other != name]
        yield row("", *(f"{name}, {b}" for b in budgets), *(f"{other}, {budgets[0]}" for other in others))
        yield rule(1 + len(budgets) + len(others))
        for source in self.sources:
            ours = [self.cells[source.label, b, name][0] for b in self.budgets]
            theirs = [self.cells[source.label, self.budgets[0], other][0] for other in others]
            yield row(source.label, *(f"{value:.2f}" for value in ours + theirs))

    def coverage_rows(self):
        light = np.array([next(p for p in ZOO if p.name == s.name).light_tailed for s in self.sources])
        yield row(
            "strategy",
            "budget",
            "repetitions",
            "mean coverage",
            "lowest, light tails",
            "lowest",
            "warned, light",
            "warned, others",
        )
        yield rule(8)
        for name in self.names:
            for b in self.budgets:
                coverage, warned = self.column(b, name, 1), self.column(b, name, 2)
                worst = self.sources[int(np.argmin(np.where(light, coverage, 2)))].name
                yield row(
                    name,
                    f"{b} T",
                    self.repetitions[b],
                    f"{coverage.mean():.3f}",
                    f"{coverage[light].min():.3f} ({worst})",
                    f"{coverage.min():.3f}",
                    f"{warned[light].mean():.2f}",
                    f"{warned[~light].mean():.2f}",
                )

    def low_rows(self, budget, below=0.92, name="adaptive"):
        yield row("process", "coverage", "warned")
        yield rule(3)
        for source, coverage, warned in zip(
            self.sources, self.column(budget, name, 1), self.column(budget, name, 2), strict=True
        ):
            if coverage < below:
                yield row(source.label, f"{coverage:.3f}", f"{warned:.2f}")


def geometric_mean(values):
    return float(np.exp(np.mean(np.log(values))))


def zoo_section(run, effort, banks):
    repetitions = {10: effort.zoo[0], 50: effort.zoo[1], 200: effort.zoo[2]}
    table = Table(run, zoo_sources(effort.bank), list(repetitions), NAMES, repetitions)
    yield (
        "Variance: the zoo",
        paragraphs(
            f"Variance over the oracle's; {len(table.sources)} processes, mean of {effort.zoo} repetitions.",
            table.variance_rows(),
            table.detail_rows(),
        ),
    )
    yield (
        "Coverage of the 95% interval",
        paragraphs(
            "The same runs.",
            table.coverage_rows(),
            "Adaptive at 50 T, processes below 0.92:",
            table.low_rows(50),
        ),
    )


def held_out_section(run, effort, banks):
    sources = [
        Source("random", str(seed), random_process(seed).gamma, effort.bank) for seed in FRESH[: effort.held_out]
    ]
    repetitions = dict.fromkeys((50, 200), effort.variance)
    table = Table(run, sources, [50, 200], NAMES, repetitions)
    yield (
        "Variance: random processes held out",
        paragraphs(
            f"Seeds {FRESH[0]} to {sources[-1].name} of `random_process`; {effort.variance} repetitions.",
            table.variance_rows(),
        ),
    )


def real_section(run, effort, banks):
    for name in effort.real:
        if not (banks / f"{name}.npy").is_file():
            record(name, banks)
    sources = [
        Source("real", name, gamma, banks=str(banks)) for name in effort.real for gamma in (1.0, 0.999, 0.99, 0.9)
    ]
    table = Table(run, sources, [5000, 20_000], NAMES, dict.fromkeys((5000, 20_000), effort.variance))
    yield (
        "Variance: real rewards",
        paragraphs(
            f"Recorded rewards of trained agents; {effort.variance} repetitions.",
            table.variance_rows(),
            table.detail_rows(),
        ),
    )


def lqg_section(run, effort, banks):
    sources = [Source("paper", f"LQG, gamma {gamma:g}", gamma, effort.bank) for gamma in (0.99, 0.999)]
    budgets = (10, 15, 20, 30)
    table = Table(run, sources, budgets, ("rido", "adaptive"), dict.fromkeys(budgets, 2 * effort.variance))
    yield (
        "Variance: the paper's LQG",
        paragraphs(
            f"T = 100, where one step in a hundred matters; {2 * effort.variance} repetitions.",
            table.variance_rows(),
        ),
    )


def run_until(task):
    """How often the interval held the truth when the run stopped itself, and what it spent and forecast."""
    source, multiple, repetitions = task
    rewards, steps = rewards_of(source)
    bank = Bank(rewards, steps=steps, gamma=source.gamma)
    horizon = bank.horizon
    width = 1.96 * math.sqrt(bank.best_schedule(multiple * horizon).variance(bank.weights))
    held, spent, forecast = [], [], []
    for repetition in range(repetitions):
        strategy = Adaptive(horizon=horizon, budget=10 * multiple * horizon, gamma=source.gamma, until=width)
        rng = np.random.default_rng([3, repetition])
        strategy.tell(bank.draw(strategy.ask().lengths, rng))
        forecast.append(strategy.forecast() / (multiple * horizon))
        bank.run(strategy, rng)
        low, high = strategy.estimate().interval()
        held.append(low <= bank.truth <= high)
        spent.append(strategy.spent / (multiple * horizon))
    return np.mean(held), np.mean(spent), np.median(forecast)


def until_section(run, effort, banks):
    sources = zoo_sources(effort.bank, light_only=True)
    lines = [row("width of", "mean coverage", "lowest", "spent", "forecast after the pilot"), rule(5)]
    for multiple in effort.until_widths:
        found = np.array(run(run_until, [(source, multiple, effort.until) for source in sources]))
        worst = sources[int(found[:, 0].argmin())].name
        lines.append(
            row(
                f"{multiple} T",
                f"{found[:, 0].mean():.3f}",
                f"{found[:, 0].min():.3f} ({worst})",
                f"{found[:, 1].mean():.2f}",
                f"{np.median(found[:, 2]):.2f}",
            )
        )
    yield (
        "Stopping at a width",
        paragraphs(
            "`until` on the light-tailed processes: the width is the oracle's normal 95% half-width at this budget,\n"
            f"and what was spent and forecast is relative to that budget. {effort.until} repetitions each.",
            lines,
        ),
    )


def run_bias(task):
    """Errors of many runs, in standard deviations of the oracle."""
    source, unbiased, seeds = task
    rewards, steps = rewards_of(source)
    bank = Bank(rewards, steps=steps, gamma=source.gamma)
    budget = 20 * bank.horizon
    scale = math.sqrt(bank.best_schedule(budget).variance(bank.weights))
    errors = []
    for seed in seeds:
        strategy = Adaptive(horizon=bank.horizon, budget=budget, gamma=source.gamma, unbiased=unbiased)
        bank.run(strategy, np.random.default_rng([4, seed]))
        estimate = strategy.estimate()
        low, high = estimate.interval()
        errors.append(((estimate.value - bank.truth) / scale, low <= bank.truth <= high))
    return errors


def bias_section(run, effort, banks):
    lines = [row("process", "unbiased", "repetitions", "mean error", "in standard errors", "MSE", "coverage"), rule(7)]
    for name in ("termination", "rare early"):
        source = next(source for source in zoo_sources(effort.bank) if source.name == name)
        for unbiased, repetitions in ((False, effort.plain), (True, effort.unbiased)):
            chunks = np.array_split(np.arange(repetitions), 20)
            found = np.concatenate(run(run_bias, [(source, unbiased, chunk.tolist()) for chunk in chunks]))
            errors, held = found[:, 0], found[:, 1]
            error = errors.std(ddof=1) / math.sqrt(repetitions)
            lines.append(
                row(
                    name,
                    unbiased,
                    f"{repetitions:,}",
                    f"{errors.mean():+.4f}",
                    f"{errors.mean() / error:+.1f}",
                    f"{np.mean(errors**2):.2f}",
                    f"{held.mean():.3f}",
                )
            )
    yield "Bias", paragraphs("Errors in standard deviations of the oracle, MSE in its variances; budget 20 T.", lines)


SWITCHES = {
    "nothing": {},
    "teams: one": {"teams_until": 0.0},
    "short pilot trajectories": {"reach": 1e-300},
    "phases of a third: doubling": {"growth": 1.0},
    "caution": {"caution": 0.0},
    "unseen events": {"unseen": 0.0},
    "few trajectories": {"few": 0.0},
    "all three: the data's weights": {"caution": 0.0, "unseen": 0.0, "few": 0.0},
}


def ablation_section(run, effort, banks):
    zoo = zoo_sources(effort.bank)
    real = [Source("real", name, gamma, banks=str(banks)) for name in effort.real for gamma in (1.0, 0.999, 0.99, 0.9)]
    lines = [row("switched off", "zoo, 10 T", "zoo, 50 T", "real, 5,000", "real, 20,000", "all"), rule(6)]
    for off in SWITCHES:
        columns = []
        for sources, budget in ((zoo, 10), (zoo, 50), (real, 5000), (real, 20_000)):
            table = Table(run, sources, [budget], ("adaptive",), {budget: effort.ablation}, off)
            columns.append(table.column(budget, "adaptive"))
        columns.append(np.concatenate(columns))
        lines.append(row(off, *(f"{geometric_mean(c):.3f} ({c.max():.2f})" if c.size else "" for c in columns)))
    yield (
        "What each part is worth",
        paragraphs(
            f"Geometric mean (worst) of variance over the oracle's with one part off; {effort.ablation} repetitions.\n"
            "Teams, unseen events and few trajectories cost something here: they are for sparse rewards.",
            lines,
        ),
    )


SECTIONS = {
    "held-out": held_out_section,
    "lqg": lqg_section,
    "real": real_section,
    "bias": bias_section,
    "zoo": zoo_section,
    "until": until_section,
    "ablation": ablation_section,
}


@dataclass(frozen=True)
class Effort:
    """Repetitions of each section."""

    zoo: tuple[int, int, int] = (40, 60, 20)
    bank: int = 20_000
    held_out: int = 50
    variance: int = 10
    real: tuple[str, ...] = tuple(REAL)
    until: int = 200
    until_widths: tuple[int, ...] = (15, 50)
    plain: int = 4000
    unbiased: int = 20_000
    ablation: int = 12


QUICK = Effort(
    zoo=(4, 8, 2),
    bank=3000,
    held_out=6,
    variance=3,
    real=(),
    until=4,
    until_widths=(15,),
    plain=20,
    unbiased=100,
    ablation=2,
)


HEAD = """\
# Adaptive against the oracle

Made by `python benchmarks/adaptive.py --output results/adaptive.md`, section by section (`--sections`). \
Variance is that of the estimator under the
schedule that was collected, by the true weights, over that of the best schedule for the true weights: 1 is as good
as knowing everything beforehand.
"""
HEADINGS = (
    "Variance: the zoo",
    "Variance: random processes held out",
    "Variance: real rewards",
    "Variance: the paper's LQG",
    "Coverage of the 95% interval",
    "Stopping at a width",
    "Bias",
    "What each part is worth",
)


def main(arguments=None):
    parser = study_parser(__doc__, SECTIONS)
    parser.add_argument("--banks", type=Path, default=Path("banks"))
    options = parser.parse_args(arguments)
    effort = QUICK if options.quick else Effort()
    names = [name for name in options.sections if name != "real" or effort.real]
    with mapping(options.workers) as run:
        new = made(names, SECTIONS, run, effort, options.banks)
        update(options.output, new, head=HEAD, headings=HEADINGS)


if __name__ == "__main__":
    main()
