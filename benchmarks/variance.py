"""What Sobol starts and critics that keep learning are worth, next to uniform and to the plain default.

Made by ``python benchmarks/variance.py --output results/variance.md --workers 2``: real runs of ``rido.evaluate``, with
its own planning. ``--sections pendulum`` makes some tables again and keeps the
others; every cell is kept in ``--cells``, so that a run that was stopped goes on. ``--quick`` is the short form that a
test runs. Truths come from many trajectories that start from Sobol points, or from the closed form for LQG; the error
of a truth is taken off. Uniform's variance is that of a return over the number of full-length trajectories.
"""

import json
import math
import re
import warnings
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path

import numpy as np
from sections import row, rule, study_parser, update

import rido
from rido.policies.npz import MlpPolicy
from rido.policies.resolve import shipped_agent
from rido.simulators.base import trajectory_seeds
from rido.simulators.envs import lqg
from rido.simulators.gymnasium import GymnasiumSimulator
from rido.simulators.sobol import SobolPoints

REPLICATES = 16  # of the sequences that truths come from
METHODS = {
    "default": {},
    "Sobol": {"starts": "sobol"},
    "auto": {"critic": "auto"},
    "Sobol, auto": {"starts": "sobol", "critic": "auto"},
}


@dataclass(frozen=True)
class Case:
    """An agent of rido's in its environment, and how often it is evaluated."""

    agent: str
    horizon: int
    gamma: float
    budget: int
    repetitions: int
    truth: int  # trajectories that the truth comes from

    @property
    def label(self):
        return f"{self.agent}, T = {self.horizon}, gamma {self.gamma:g}"


SECTIONS = {
    "pendulum": ("Pendulum", [Case("pendulum", 200, gamma, 20_000, 40, 8192) for gamma in (0.9, 0.99, 1.0)]),
    "mujoco": (
        "MuJoCo",
        [
            Case("swimmer", 200, 1.0, 20_000, 20, 2048),
            Case("reacher", 50, 1.0, 5_000, 60, 8192),
            Case("halfcheetah", 200, 0.99, 20_000, 24, 1024),
            Case("swimmer", 200, 0.99, 20_000, 20, 2048),
            Case("ant", 200, 0.99, 20_000, 8, 1024),
        ],
    ),
    "lqg": ("LQG: bias and coverage", [Case("lqg", 20, 0.9, 1_000, 300, 0)]),
}


def environment(case):
    """The environment and the policy of a case."""
    if case.agent == "lqg":
        return "rido/LQG-v0", None, {}
    agent = MlpPolicy.load(shipped_agent(f"rido:{case.agent}"))
    return agent.about["env"], agent, agent.about.get("env_kwargs", {})


def truth_of(case):
    """The true return, the variance of a single one, and the variance of this truth."""
    if case.agent == "lqg":
        truth, weights = lqg.expected_return(case.horizon, case.gamma), lqg.weights(case.horizon, case.gamma)
        return truth, float(weights.sum()), 0.0
    env, agent, kwargs = environment(case)
    simulator = GymnasiumSimulator(env, agent, horizon=case.horizon, env_kwargs=kwargs, num_envs=64)
    replicates = np.arange(case.truth) % REPLICATES
    points = SobolPoints(10**9, stream=0, replicates=REPLICATES).take(replicates)
    lengths = np.full(case.truth, case.horizon)
    batch = simulator.rollout(lengths, trajectory_seeds(10**9, 0, case.truth), points)
    simulator.close()
    returns = batch.rewards @ case.gamma ** np.arange(case.horizon)
    means = np.array([returns[replicates == replicate].mean() for replicate in range(REPLICATES)])
    return float(returns.mean()), float(returns.var(ddof=1)), float(means.var(ddof=1) / REPLICATES)


def run_cell(task):
    """Runs one repetition of one method, or the truth of a case."""
    case, method, seed, folder = task
    path = folder / re.sub(r"\W+", "-", f"{case.label} {case.budget} {method} {seed}.json")
    if not path.exists():
        warnings.simplefilter("ignore")
        if method == "truth":
            found = truth_of(case)
        else:
            env, agent, kwargs = environment(case)
            result = rido.evaluate(
                env,
                agent,
                env_kwargs=kwargs,
                gamma=case.gamma,
                horizon=case.horizon,
                budget=case.budget,
                seed=seed,
                progress=False,
                **METHODS[method],
            )
            low, high = result.interval()
            found = [result.value, result.standard_error, low, high, result.critic != "none", result.resets]
        path.write_text(json.dumps(found))
    return (case, method, seed), json.loads(path.read_text())


def page(cases, found):
    """A table: what each method leaves of uniform's error."""
    text = [
        "| case | budget | runs | method | uniform's variance over MSE | over mean SE^2 | mean error, SE | "
        "95% interval holds | critic used | resets |",
        rule(10),
    ]
    for case in cases:
        truth, variance, noise = found[case, "truth", 0]
        uniform = variance * case.horizon / case.budget
        for method in METHODS:
            runs = np.array([found[case, method, seed] for seed in range(case.repetitions)], dtype=float)
            values, errors, low, high, used, resets = runs.T
            off = values - truth
            error = (off**2).std(ddof=1) / math.sqrt(len(off))
            mse = max((off**2).mean() - noise, error)
            cells = [
                case.label,
                f"{case.budget:,}",
                len(off),
                method,
                f"{uniform / mse:.3g} ± {uniform / mse * error / mse:.2g}",
                f"{uniform / (errors**2).mean():.3g}",
                f"{off.mean() / math.hypot(off.std(ddof=1) / math.sqrt(len(off)), math.sqrt(noise)):+.1f}",
                f"{np.mean((low < truth) & (truth < high)):.3f}",
                f"{used.mean():.2f}",
                f"{resets.mean():,.0f}",
            ]
            text.append(row(*cells))
    return "\n".join(text)


def made(names, pool, folder, *, quick):
    for name in names:
        title, cases = SECTIONS[name]
        if quick:
            cases = [Case(c.agent, c.horizon, c.gamma, 20 * c.horizon, 2, 64 if c.truth else 0) for c in cases[:1]]
        tasks = [(case, "truth", 0, folder) for case in cases]
        tasks += [
            (case, method, seed, folder) for case in cases for seed in range(case.repetitions) for method in METHODS
        ]
        yield title, page(cases, dict(pool.imap_unordered(run_cell, tasks)))


def main(arguments=None):
    parser = study_parser(__doc__, SECTIONS)
    parser.add_argument("--cells", type=Path, default=Path("/tmp/rido-variance"))
    options = parser.parse_args(arguments)
    folder = options.cells / ("quick" if options.quick else "full")
    folder.mkdir(parents=True, exist_ok=True)
    head = f"# Sobol starts and critics that keep learning\n\n{' '.join(__doc__.split())}\n"
    with get_context("forkserver").Pool(options.workers) as pool:
        new = made(options.sections, pool, folder, quick=options.quick)
        update(options.output, new, head=head, headings=[title for title, _ in SECTIONS.values()])


if __name__ == "__main__":
    main()
