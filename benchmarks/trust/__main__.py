"""Whether rido's default can be trusted on sparse rewards and rare failures: the tables of results/trust.md.

Run ``python benchmarks/trust --output results/trust.md``; ``--quick`` is the short form that a test runs. Sections can
be made one at a time with ``--sections``; others in the output stay as they are. ``--alternate`` halves the work: every
process once, with and without a discount in turn. Episodes of trained agents come from banks in the directory
``--banks``; what is not there is recorded first, in about eight minutes for all. The agents are in
benchmarks/trust/agents/ and, for Pendulum, in the directory that RIDO_AGENTS names.
"""

import math
import re
import sys
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

sys.path.append(str(Path(__file__).parents[1]))
from cells import Runs, outcome, run_cell, run_until, run_zero_widths
from pages import claims_page, coverage_page, error_page, zero_widths
from reward_processes import ZOO
from sections import made, mapping, paragraphs, row, rule, study_parser, update
from sources import AGENTS, Source, population, record
from validation import GAMMAS, problems

import rido

DENSE = ("white", "AR(1) 0.9, discounted", "decaying noise", "start state", "shaping", "level", "LQG", "termination")
CARTPOLES = ("cartpole-20k", "cartpole-10", "cartpole-30")
CONTROL = (*CARTPOLES, "acrobot", "mountaincar")
RAREST = ("success 0.02", "success 0.98", "growing hazard 0.05", "constant hazard 0.05", "falling hazard 0.05")
CASE = ("cartpole-20k", 0.99, 20_000)  # agent, discount and budget in transitions: 40 T
CAP = 10  # the most that a run with ``until`` may spend, in what the oracle would spend


@dataclass(frozen=True)
class Effort:
    """How much is run.

    Attributes:
        problems: Every how many of the validation problems are taken.
        alternate: Whether a process is taken once, with and without a discount in turn, and not twice.
        size: Trajectories drawn from a process, which are then all there is.
        budgets: In multiples of the horizon.
        repetitions: Runs of each strategy in a cell.
        references: More runs of uniform, for its MSE alone.
        episodes: Recorded of each agent at most.
        rarest: Runs of each of the rarest processes.
        until: Runs of each process with ``until``.
        until_at: What the oracle would spend, in multiples of the horizon.
        real: Runs in real environments, of each agent.
        control: Agents of the section on classic control.
        critics: Agents of the section on critics.
    """

    problems: int = 1
    alternate: bool = False
    size: int = 50_000
    budgets: tuple[int, ...] = (20, 50, 200)
    repetitions: int = 400
    references: int = 5000
    episodes: int = 20_000
    rarest: int = 2300
    until: int = 200
    until_at: int = 50
    real: int = 100
    control: tuple[str, ...] = CONTROL
    critics: tuple[str, ...] = (*CARTPOLES, "pendulum")


QUICK = Effort(
    problems=27,
    size=2000,
    budgets=(20, 50),
    repetitions=6,
    references=100,
    episodes=40,
    rarest=10,
    until=2,
    real=2,
    control=("mountaincar",),
    critics=("cartpole-20k",),
)


def in_turn(effort):
    """Every process once, with and without a discount in turn."""
    return [*problems()[:: 4 * effort.problems], *problems()[3 :: 4 * effort.problems]]


def problem_sources(effort, chosen=None):
    if chosen is None:
        chosen = in_turn(effort) if effort.alternate else problems()[:: effort.problems]
    return [Source("problem", problem.name, problem.gamma, effort.size) for problem in chosen]


def zoo_sources(effort, names):
    return [Source("zoo", process.name, process.gamma, effort.size) for process in ZOO if process.name in names]


def agent_source(name, gamma, effort, banks):
    episodes = min(effort.episodes, AGENTS[name].episodes)
    record(name, episodes, banks)
    return Source("agent", name, gamma, episodes, str(banks))


def cells_of(run, effort, sources, budgets):
    return run(run_cell, [(s, b, effort.repetitions, effort.references) for s in sources for b in budgets])


def sparse_section(run, effort, banks):
    cells = cells_of(run, effort, problem_sources(effort), effort.budgets)
    about = f"{effort.repetitions} repetitions, {effort.references:,} more of uniform for its MSE."
    if effort.alternate:
        about += "\nEach process has one of the two discounts, in turn (`--alternate`)."
    yield "Sparse rewards: error over uniform's", error_page(cells, about)
    yield "Sparse rewards: coverage and warnings", coverage_page(cells)
    yield "Sparse rewards: what uniform would need", claims_page(cells, 50)


def control_section(run, effort, banks):
    pairs = [(name, gamma) for name in effort.control for gamma in GAMMAS]
    if effort.alternate:
        pairs = [(name, GAMMAS[number % 2]) for number, name in enumerate(effort.control)]
    sources = [agent_source(name, gamma, effort, banks) for name, gamma in pairs]
    cells = cells_of(run, effort, sources, effort.budgets)
    errors = {cell.source.label: cell.truth_error / cell.scale for cell in cells if cell.budget == max(effort.budgets)}
    about = (
        f"Recorded episodes of agents that fail now and then, which are drawn again and are therefore all there is;\n"
        f"{effort.repetitions} repetitions. Their mean is known to at most {max(errors.values()):.2f} of uniform's "
        f"standard deviation at the largest budget."
    )
    yield "Classic control: error over uniform's", error_page(cells, about)
    yield "Classic control: coverage and warnings", coverage_page(cells)
    yield "Classic control: what uniform would need", claims_page(cells, 50)


def dense_section(run, effort, banks):
    cells = cells_of(run, effort, zoo_sources(effort, DENSE), (50,))
    yield "Dense rewards: what uniform would need", claims_page(cells, 50)


def zero_section(run, effort, banks):
    chosen = [problem for problem in problems() if problem.name.startswith(RAREST)]
    sources = problem_sources(effort, chosen)
    found = run(run_zero_widths, [(source, 20, effort.rarest) for source in sources])
    lines = [row("process", "runs", "zero width", "coverage", "warned"), rule(5)]
    for source, runs in zip(sources, found, strict=True):
        lines.append(
            row(source.label, runs.width.size, runs.zero_widths, f"{runs.coverage:.3f}", f"{runs.warned.mean():.2f}")
        )
    text = "Many short runs, 20 T, where success or failure is rarest. " + zero_widths(found)
    yield "Zero-width intervals", paragraphs(text, lines)


def evaluate_many(task):
    """Runs of rido.evaluate in the real environment; the truth is the mean of recorded episodes."""
    source, budget, settings, seeds = task
    agent, truth, found = AGENTS[source.name], population(source).truth, []
    for seed in seeds:
        result = rido.evaluate(
            agent.env, agent.policy, budget=budget, gamma=source.gamma, horizon=agent.horizon, seed=seed, **settings
        )
        found.append(outcome(result.value, result.interval(), truth, result.warnings, result.transitions))
    return np.array(found)


def real_runs(run, source, budget, settings, count):
    parts = np.array_split(np.arange(count), min(count, 10))
    found = run(evaluate_many, [(source, budget, settings, part.tolist()) for part in parts])
    return Runs(*np.concatenate(found).T)


def run_row(name, runs):
    return row(
        name,
        runs.errors.size,
        f"{math.sqrt(np.mean(runs.errors**2)):.4f}",
        f"{runs.errors.mean():+.4f}",
        f"{runs.coverage:.3f}",
        runs.zero_widths,
        f"{runs.warned.mean():.2f}",
    )


RUN_COLUMNS = ("runs", "RMSE", "mean error", "coverage", "zero width", "warned")


def case_section(run, effort, banks):
    name, gamma, budget = CASE
    source = agent_source(name, gamma, effort, banks)
    (cell,) = cells_of(run, effort, [source], [budget // AGENTS[name].horizon])
    spots = {
        f"{strategy}, real runs": real_runs(run, source, budget, dict(strategy=strategy), max(2, effort.real // 3))
        for strategy in ("adaptive", "uniform")
    }
    ratio, low, high = cell.ratio()
    lines = [row("", *RUN_COLUMNS), rule(7), run_row("default, bank", cell.default)]
    lines += [run_row("uniform, bank", cell.uniform), *(run_row(key, runs) for key, runs in spots.items())]
    uniform = math.sqrt(np.mean(cell.reference**2))
    text = (
        f"CartPole-v1, PPO trained for 20,000 steps, gamma {gamma:g}, budget {budget:,}, horizon 500. "
        f"{source.size:,} recorded episodes\nare the bank; their mean {population(source).truth:.4f} has a standard "
        f"error of {cell.truth_error:.4f}. MSE over uniform's {ratio:.2f} [{low:.2f}, {high:.2f}].\n"
        f"RMSE of uniform from {effort.references:,} runs: {uniform:.4f}. " + zero_widths([cell.default])
    )
    yield "The CartPole case", paragraphs(text, lines)


def until_section(run, effort, banks):
    light = [process.name for process in ZOO if process.light_tailed and process.name != "deterministic"]
    groups = {
        "sparse": problem_sources(effort, in_turn(effort)),
        "zoo, light tails": zoo_sources(effort, light[:: effort.problems]),
    }
    columns = ("coverage", "spent", "width kept", "at the cap", "warned", "warned where not kept")
    summary = [row("", "processes", "mean coverage", "lowest", "mean spent", "most spent", "width kept"), rule(7)]
    lines, everything = [row("process", *columns), rule(7)], []
    for group, sources in groups.items():
        found = run(run_until, [(source, effort.until_at, CAP, effort.until) for source in sources])
        everything += [runs for _, runs, _, _ in found]
        spent = np.array([ratios.mean() for _, _, ratios, _ in found])
        coverage = np.array([runs.coverage for _, runs, _, _ in found])
        summary.append(
            row(
                group,
                len(sources),
                f"{coverage.mean():.3f}",
                f"{coverage.min():.3f} ({sources[int(coverage.argmin())].label})",
                f"{spent.mean():.2f}",
                f"{spent.max():.2f} ({sources[int(spent.argmax())].label})",
                f"{np.mean([kept.mean() for *_, kept in found]):.3f}",
            )
        )
        for source, runs, ratios, kept in found:
            missed = f"{runs.warned[~kept].mean():.2f}" if not kept.all() else ""
            lines.append(
                row(
                    source.label,
                    f"{runs.coverage:.3f}",
                    f"{ratios.mean():.2f}",
                    f"{kept.mean():.3f}",
                    f"{np.mean(ratios >= 0.99 * CAP):.3f}",
                    f"{runs.warned.mean():.2f}",
                    missed,
                )
            )
    text = (
        f"The half-width is that of the oracle's normal 95% interval at {effort.until_at} T, and what was spent is "
        f"relative to that budget;\nat most {CAP} times as much may be spent. Every validation process once, with "
        f"and without a discount in turn. {effort.until} repetitions.\n" + zero_widths(everything)
    )
    yield "Stopping at a width", paragraphs(text, summary, lines)


def critic_section(run, effort, banks):
    lines, everything = [row("", *RUN_COLUMNS), rule(7)], []
    for name in effort.critics:
        if not AGENTS[name].policy.is_file():
            print(f"{name}: skipped, {AGENTS[name].policy.name} was not found in RIDO_AGENTS")
            continue
        source = agent_source(name, 0.99, effort, banks)
        runs = real_runs(run, source, 40 * AGENTS[name].horizon, dict(critic="auto"), effort.real)
        everything.append(runs)
        lines.append(run_row(source.label, runs))
    text = (
        '`rido.evaluate(..., critic="auto")` in the real environments, 40 T; the truth is the mean of recorded '
        f"episodes.\nCoverage of {effort.real} runs that hold in 0.95 is between "
        f"{0.95 - 1.96 * math.sqrt(0.0475 / effort.real):.2f} and 1. " + zero_widths(everything)
    )
    yield "A critic chosen by itself", paragraphs(text, lines)


SECTIONS = {
    "sparse": sparse_section,
    "control": control_section,
    "zero": zero_section,
    "case": case_section,
    "until": until_section,
    "critic": critic_section,
    "dense": dense_section,
}

HEADINGS = (
    "Sparse rewards: error over uniform's",
    "Sparse rewards: coverage and warnings",
    "Classic control: error over uniform's",
    "Classic control: coverage and warnings",
    "The CartPole case",
    "Zero-width intervals",
    "Stopping at a width",
    "A critic chosen by itself",
    "Sparse rewards: what uniform would need",
    "Classic control: what uniform would need",
    "Dense rewards: what uniform would need",
)


def head(pages):
    counts = [re.search(r"zero width: ([\d,]+) of ([\d,]+) runs", page) for page in pages.values()]
    zero, runs = (sum(int(found[i].replace(",", "")) for found in counts if found) for i in (1, 2))
    return (
        "# Can the default be trusted?\n\nMade by `python benchmarks/trust --output results/trust.md`, section by "
        "section (`--sections`).\nThe processes are those of `benchmarks/trust/validation.py` and agents of our own, "
        "on which nothing was tuned. Returns vary in\nall of them; the default's intervals have zero width in "
        f"{zero:,} of {runs:,} runs of all sections.\n"
    )


def main(arguments=None):
    parser = study_parser(__doc__, SECTIONS)
    parser.add_argument("--alternate", action="store_true")
    parser.add_argument("--banks", type=Path, default=Path("banks"))
    options = parser.parse_args(arguments)
    effort = replace(QUICK if options.quick else Effort(), alternate=options.alternate)
    with mapping(options.workers) as run:
        new = made(options.sections, SECTIONS, run, effort, options.banks)
        update(options.output, new, head=head, headings=HEADINGS)


if __name__ == "__main__":
    main()
