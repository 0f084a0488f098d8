"""What Sobol starts and critics that keep learning are worth, next to uniform and to the plain default.

Made by ``python benchmarks/variance.py --output results/variance.md --workers 2``: real runs of ``rido.evaluate``, with
its own planning. ``--sections pendulum`` makes some tables again and keeps the others; every cell is kept in
``--cells``, so that a run that was stopped goes on, and ``--stored`` makes tables of those that there are. ``--quick``
is the short form that a test runs. Agents are those of the RL Baselines3 Zoo, which are in the folder that RIDO_AGENTS
names; Reacher is played by the agent that ships with rido, CartPole by a controller that errs now and then, and the
off-policy agents are trained by the study itself. Truths come from many trajectories that start from Sobol points, or
from the closed form for LQG; the error of a truth is taken off. Uniform's variance is that of a return over the number
of full-length trajectories.
"""

import json
import math
import re
import warnings
from dataclasses import dataclass, replace
from multiprocessing import get_context
from pathlib import Path

import numpy as np
from critic import AGENTS, ENVIRONMENTS, balance
from off_policy import trained
from planned import planned_variance
from sections import row, rule, study_parser, update
from truths import sobol_truth

import rido
from rido.policies.npz import MlpPolicy
from rido.policies.resolve import shipped_agent
from rido.simulators.envs import lqg

GOALS = "What was asked for, and what was reached"  # a section that is written by hand and kept
METHODS = {
    "plain episodes": {"strategy": "uniform"},
    "default": {},
    "Sobol": {"starts": "sobol"},
    "auto": {"critic": "auto"},
    "Sobol, auto": {"starts": "sobol", "critic": "auto"},
}
PLANNED = "planned, "  # before the name of a method: its variance by the true weights
MAIN_METHODS, CRITICS = ("plain episodes", "default", "Sobol", "Sobol, auto"), ("default", "auto")


@dataclass(frozen=True)
class Case:
    """A trained agent in its environment, and how often it is evaluated."""

    agent: str
    horizon: int
    gamma: float
    budget: int
    repetitions: int
    truth: int  # trajectories that the truth or the weights come from; 0 where these are known or not needed
    methods: tuple[str, ...] = tuple(METHODS)
    deterministic: bool = True

    @property
    def label(self):
        drawn = "" if self.deterministic else ", actions drawn"
        return f"{self.agent}, T = {self.horizon}, gamma {self.gamma:g}{drawn}"


SECTIONS = {
    "pendulum": (
        "Pendulum",
        [Case("Pendulum", 200, gamma, 20_000, 200, 8192, MAIN_METHODS) for gamma in (0.9, 0.99, 1.0)],
    ),
    "swimmer": (
        "Swimmer",
        [Case("Swimmer", 200, 1.0, 20_000, 200, 2048, MAIN_METHODS), Case("Swimmer", 200, 0.99, 20_000, 200, 2048)],
    ),
    "reacher": ("Reacher", [Case("reacher", 50, 1.0, 5_000, 200, 65_536, MAIN_METHODS)]),
    "chaotic": (
        "HalfCheetah and Ant",
        [Case("HalfCheetah", 200, 0.99, 20_000, 200, 2048), Case("Ant", 200, 0.99, 20_000, 200, 2048)],
    ),
    "off-policy": (
        "Off-policy agents on Pendulum",
        [
            Case(agent, 200, 0.99, 10_000, 100, 8192, deterministic=deterministic)
            for agent, deterministic in [("SAC", True), ("SAC", False), ("TQC", False), ("TD3", True)]
        ],
    ),
    "critics": (
        '"auto" against none',
        [
            Case(agent, horizon, gamma, 50 * horizon, 60, 0, CRITICS)
            for agent, (_, _, horizon, _, _) in ENVIRONMENTS.items()
            for gamma in (0.9, 0.99)
        ],
    ),
    "planned": (
        "Variance by the true weights",
        [
            Case(agent, horizon, gamma, budget, 20, 1000, CRITICS)
            for agent, horizon, gamma, budget in [
                ("CartPole", 200, 0.9, 10_000),
                ("CartPole", 200, 0.99, 10_000),
                ("HalfCheetah", 200, 0.99, 20_000),
                ("HalfCheetah", 200, 1.0, 20_000),
                ("HalfCheetah", 500, 0.99, 25_000),
                ("Ant", 200, 0.99, 20_000),
                ("Ant", 200, 1.0, 20_000),
                ("Ant", 500, 0.99, 25_000),
                ("Swimmer", 200, 1.0, 20_000),
            ]
        ],
    ),
    "lqg": (
        "LQG: bias and coverage",
        [Case("lqg", 20, 0.9, 1_000, 300, 0), Case("lqg", 20, 0.9, 1_000, 5000, 0, ("Sobol, auto",))],
    ),
}


def environment(case, folder):
    """The environment and the policy of a case."""
    if case.agent == "lqg":
        return "rido/LQG-v0", None, {}
    if case.agent in ("SAC", "TD3", "TQC"):
        return "Pendulum-v1", trained(case.agent, folder), {}
    if case.agent in ENVIRONMENTS:
        env, path, _, _, kwargs = ENVIRONMENTS[case.agent]
        return env, balance if path is None else AGENTS / path, kwargs
    agent = MlpPolicy.load(shipped_agent(f"rido:{case.agent}"))
    return agent.about["env"], agent, agent.about.get("env_kwargs", {})


def truth_of(case, folder):
    """The true return, the variance of a single one, and the variance of this truth."""
    if case.agent == "lqg":
        truth, weights = lqg.expected_return(case.horizon, case.gamma), lqg.weights(case.horizon, case.gamma)
        return truth, float(weights.sum()), 0.0
    env, agent, kwargs = environment(case, folder)
    settings = dict(horizon=case.horizon, gamma=case.gamma, size=case.truth, deterministic=case.deterministic)
    return sobol_truth(env, agent, env_kwargs=kwargs, **settings)


def path_of(case, method, seed, folder):
    """The file of a cell."""
    return folder / re.sub(r"\W+", "-", f"{case.label} {case.budget} {method} {seed}.json")


def run_cell(task):
    """Runs one repetition of one method, or the truth of a case."""
    case, method, seed, folder = task
    path = path_of(*task)
    if not path.exists():
        warnings.simplefilter("ignore")
        if method == "truth":
            found = truth_of(case, folder)
        elif method.startswith(PLANNED):
            settings = dict(horizon=case.horizon, gamma=case.gamma, budget=case.budget, seed=seed, size=case.truth)
            found = planned_variance(*environment(case, folder), **settings, **METHODS[method.removeprefix(PLANNED)])
        else:
            env, agent, kwargs = environment(case, folder)
            result = rido.evaluate(
                env,
                agent,
                env_kwargs=kwargs,
                gamma=case.gamma,
                horizon=case.horizon,
                budget=case.budget,
                deterministic=case.deterministic,
                seed=seed,
                progress=False,
                **METHODS[method],
            )
            low, high = result.interval()
            found = [result.value, result.standard_error, low, high, result.critic != "none", result.resets]
        path.write_text(json.dumps(found))
    return (case, method, seed), json.loads(path.read_text())


def uniform_over_mse(case, values, found):
    """Uniform's variance over the mean squared error of some runs, and its standard error."""
    truth, variance, noise = found[case, "truth", 0]
    squares = (values - truth) ** 2
    error = squares.std(ddof=1) / math.sqrt(squares.size)
    mse = max(squares.mean() - noise, error)
    ratio = variance * case.horizon / case.budget / mse
    return f"{ratio:.3g} ± {ratio * error / mse:.2g}"


def against_none(cases, found):
    """A table: what "auto" leaves of the error without a critic, with the same seeds."""
    text = [
        "Real runs with the same seeds. Ratios below 1 are gains. The spread is the variance of the values over runs.",
        "",
        "| case | budget | runs | SE^2, auto over none | spread, auto over none | critic used | resets |",
        rule(7),
    ]
    for case in cases:
        seeds = [s for s in range(case.repetitions) if all((case, method, s) in found for method in CRITICS)]
        if len(seeds) < 2:
            continue
        none, auto = (np.array([found[case, method, s] for s in seeds], dtype=float).T for method in CRITICS)
        cells = [
            case.label,
            f"{case.budget:,}",
            len(seeds),
            ratio_of_means(auto[1] ** 2, none[1] ** 2),
            ratio_of_means((auto[0] - auto[0].mean()) ** 2, (none[0] - none[0].mean()) ** 2),
            f"{auto[4].mean():.2f}",
            f"{auto[5].mean():,.0f}",
        ]
        text.append(row(*cells))
    return "\n".join(text)


def by_weights(cases, found):
    """A table: the variance that runs have by the true weights, without the luck of their draws."""
    text = [
        "The variance that a run has by its schedule, its critic and the true weights f_t, which are those of "
        f"{cases[0].truth:,} recorded trajectories (`benchmarks/planned.py`). Starts are random. Mean over the runs, "
        "over uniform's variance: below 1 is a gain. The last two columns compare runs with the same seeds.",
        "",
        "| case | budget | runs | default | auto | critic used | auto over default | worst run |",
        rule(8),
    ]
    for case in cases:
        seeds = [s for s in range(case.repetitions) if all((case, PLANNED + m, s) in found for m in CRITICS)]
        if len(seeds) < 2:
            continue
        none, auto = (np.array([found[case, PLANNED + m, s] for s in seeds], dtype=float).T for m in CRITICS)
        cells = [
            case.label,
            f"{case.budget:,}",
            len(seeds),
            f"{none[0].mean():.3f}",
            f"{auto[0].mean():.3f}",
            f"{auto[1].mean():.2f}",
            ratio_of_means(auto[0], none[0]),
            f"{(auto[0] / none[0]).max():.2f}",
        ]
        text.append(row(*cells))
    return "\n".join(text)


def ratio_of_means(above, below):
    """The ratio of two means over the same seeds, and its standard error."""
    ratio = above.mean() / below.mean()
    error = (above - ratio * below).std(ddof=1) / below.mean() / math.sqrt(above.size)
    return f"{ratio:.3f} ± {error:.3f}"


def against_uniform(cases, found):
    """A table: what each method leaves of uniform's error."""
    text = [
        "| case | budget | runs | method | uniform's variance over MSE | over mean SE^2 | over median SE^2 | "
        "mean error, SE | 95% interval holds | critic used | resets |",
        rule(11),
    ]
    for case in cases:
        truth, variance, noise = found[case, "truth", 0]
        uniform = variance * case.horizon / case.budget
        for method in case.methods:
            runs = [found[case, method, seed] for seed in range(case.repetitions) if (case, method, seed) in found]
            if len(runs) < 2:
                continue
            runs = np.array(runs, dtype=float)
            values, errors, low, high, used, resets = runs.T
            off = values - truth
            cells = [
                case.label,
                f"{case.budget:,}",
                len(off),
                method,
                uniform_over_mse(case, values, found),
                f"{uniform / (errors**2).mean():.3g}",
                f"{uniform / np.median(errors**2):.3g}",
                f"{off.mean() / math.hypot(off.std(ddof=1) / math.sqrt(len(off)), math.sqrt(noise)):+.1f}",
                f"{np.mean((low < truth) & (truth < high)):.3f}",
                f"{used.mean():.2f}",
                f"{resets.mean():,.0f}",
            ]
            text.append(row(*cells))
    return "\n".join(text)


def made(names, pool, folder, *, quick, stored):
    for name in names:
        title, cases = SECTIONS[name]
        if quick:
            cases = [
                replace(case, budget=20 * case.horizon, repetitions=2, truth=min(64, case.truth)) for case in cases[:1]
            ]
        prefix = PLANNED if name == "planned" else ""
        tasks = [(case, "truth", 0, folder) for case in cases if not prefix and (case.truth or case.agent == "lqg")]
        runs = [
            (case, prefix + method, seed, folder)
            for case in cases
            for method in case.methods
            for seed in range(case.repetitions)
            if not stored or path_of(case, prefix + method, seed, folder).exists()
        ]
        tasks += sorted(runs, key=lambda task: task[2])  # a study that is stopped has as many runs of each method
        page = {"critics": against_none, "planned": by_weights}.get(name, against_uniform)
        yield title, page(cases, dict(pool.imap_unordered(run_cell, tasks)))


def main(arguments=None):
    parser = study_parser(__doc__, SECTIONS)
    parser.add_argument("--cells", type=Path, default=Path("/tmp/rido-variance"))
    parser.add_argument("--stored", action="store_true", help="tables of the cells that there are, without others")
    options = parser.parse_args(arguments)
    folder = options.cells / ("quick" if options.quick else "full")
    folder.mkdir(parents=True, exist_ok=True)
    head = f"# Sobol starts and critics that keep learning\n\n{' '.join(__doc__.split())}\n"
    with get_context("forkserver").Pool(options.workers) as pool:
        new = made(options.sections, pool, folder, quick=options.quick, stored=options.stored)
        headings = [GOALS, *(title for title, _ in SECTIONS.values())]
        update(options.output, new, head=head, headings=headings)


if __name__ == "__main__":
    main()
