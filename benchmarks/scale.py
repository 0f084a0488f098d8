"""Scaling out: the same numbers from any number of processes, what they gain, and how cost grows.

Run with ``make benchmarks``; writes a Markdown page to standard output, results/scale.json and results/scale.png. Names
of sections as arguments run only those; ``redraw`` draws the stored numbers again. Needs the agents of the RL
Baselines3 Zoo in the directory that RIDO_AGENTS names. Contestants take turns, and ratios are the medians of the turns'
ratios, because machines are shared and noisy.
"""

import json
import os
import random
import resource
import signal
import subprocess
import sys
import threading
import time
import warnings
from pathlib import Path

for _library in ("OMP", "OPENBLAS", "MKL"):
    os.environ.setdefault(f"{_library}_NUM_THREADS", "1")  # read when the libraries are loaded

import numpy as np  # noqa: E402

import rido  # noqa: E402
from rido.plots.style import GREY, REFERENCE, label_ends, logarithmic, style  # noqa: E402
from rido.simulators import trajectory_seeds  # noqa: E402
from rido.simulators.gymnasium import GymnasiumSimulator  # noqa: E402
from rido.simulators.parallel.processes import WorkerSimulator  # noqa: E402

AGENTS = Path(os.environ.get("RIDO_AGENTS", Path(__file__).parents[2] / "shared" / "agents"))
ANT = ("Ant-v5", AGENTS / "trpo" / "Ant-v3" / "Ant-v3.zip")
ANT_KWARGS = {"include_cfrc_ext_in_observation": False, "contact_cost_weight": 0}
ENVPOOL_KWARGS = {"use_contact_force": False, "contact_cost_weight": 0}
PENDULUM = ("Pendulum-v1", AGENTS / "ppo" / "Pendulum-v1" / "Pendulum-v1.zip")
FIGURE = Path(__file__).parents[1] / "results" / "scale.png"
BUDGETS = (10_000, 30_000, 100_000, 300_000, 1_000_000, 3_000_000, 10_000_000)
HORIZONS = (50, 100, 300, 1000, 3000, 10_000)
GROWTH_HORIZON, GROWTH_BUDGET = 50, 1_000_000
FIXED = {"budget": f"T = {GROWTH_HORIZON}", "horizon": f"budget {GROWTH_BUDGET:,}"}
MEASURED = {"seconds": "processor seconds", "megabytes": "peak memory in MB"}


class Striker(threading.Thread):
    """Kills random workers of a simulator at random moments, while it is running."""

    def __init__(self, simulator, kills, seconds):
        super().__init__(daemon=True)
        self.simulator, self.left, self.seconds, self.kills = simulator, kills, seconds, 0
        self.random = random.Random(0)
        self.start()

    def run(self):
        while self.left:
            time.sleep(self.random.uniform(0, self.seconds))
            if isinstance(self.simulator, WorkerSimulator):
                victims = self.simulator.pids
                if victims:
                    os.kill(self.random.choice(victims), signal.SIGKILL)
            else:
                import ray

                ray.kill(self.random.choice(list(self.simulator.actors.values())))
            self.kills += 1
            self.left -= 1


def crews(arguments, **settings):
    """The simulators that must agree, by name."""
    from rido.simulators.parallel.ray import RaySimulator

    for workers in (1, 2, 4):
        yield f"{workers} workers", lambda n=workers: WorkerSimulator(*arguments, workers=n, **settings)
    for actors in (1, 3):
        yield f"Ray, {actors} actors", lambda n=actors: RaySimulator(*arguments, num_actors=n, **settings)


def identity():
    """The same bits from any number of workers and actors, with and without kills."""
    print(
        "## The same numbers\n\nOne evaluation of 40,000 transitions (gamma 0.95, seed 1) in different crews; workers"
    )
    print("are killed by SIGKILL, actors by `ray.kill`, at random moments.\n")
    print("| | LQG | workers lost | Pendulum-v1, PPO agent | workers lost |\n|---|---|---|---|---|")
    rows, agree = {}, True
    for arguments, horizon in ((("rido/LQG-v0", None), 50), (PENDULUM, 200)):
        settings = dict(budget=40_000, gamma=0.95, horizon=horizon, seed=1)
        value = rido.evaluate(*arguments, **settings).value
        rows.setdefault("one process", []).extend([repr(value), "-"])
        for kills in (0, 3):
            for name, make in crews(arguments, horizon=horizon, gamma=0.95, max_failures=20):
                with make() as simulator:
                    striker = Striker(simulator, kills, 0.3) if kills else None
                    found = rido.evaluate(simulator, **settings).value
                    while striker is not None and striker.is_alive():
                        again = rido.evaluate(simulator, **settings).value
                        agree &= again == value
                    agree &= found == value
                    label = f"{name}, killed" if kills else name
                    shown = "the same" if found == value else repr(found)
                    rows.setdefault(label, []).extend([shown, str(simulator.failures)])
    for name, cells in rows.items():
        print(f"| {name} | {' | '.join(cells)} |")
    print(f"\nAll bits agree: **{'yes' if agree else 'no'}**.\n")


def kills(number=50):
    """Nothing is lost or counted twice, however often workers die."""
    lengths = np.random.default_rng(0).integers(1, 201, 120)
    reference = GymnasiumSimulator(*PENDULUM, horizon=200)
    wrong = collected = requests = 0
    with WorkerSimulator(*PENDULUM, workers=2, horizon=200, max_failures=50) as simulator:
        simulator.rollout(lengths, trajectory_seeds(0, 0, lengths.size))
        striker = Striker(simulator, number, 3.0)
        while striker.is_alive() or not requests:
            seeds = trajectory_seeds(requests + 1, 0, lengths.size)
            batch, expected = simulator.rollout(lengths, seeds), reference.rollout(lengths, seeds)
            rows = zip(batch.rewards, expected.rewards, strict=True)
            wrong += sum(not np.array_equal(ours, theirs) for ours, theirs in rows)
            collected += len(batch)
            requests += 1
        failures = simulator.failures
    print(f"## {number} kills\n\nTwo workers, Pendulum-v1, {number} kills at random moments of {requests} requests:")
    print(f"{failures} workers lost, {collected:,} trajectories asked for and returned, of which **{wrong}** differ")
    print("from what one process gives for the same seeds.\n")


def turns(contestants, rounds):
    """Lets all take turns; returns what they say, one row for each turn."""
    return np.array([[run() for run in contestants.values()] for _ in range(rounds)])


def processor_seconds(simulator):
    """What this process and the simulator's workers have computed so far."""
    seconds = time.process_time()
    for pid in getattr(simulator, "pids", []):
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        seconds += (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return seconds


def rate(simulator, budget, seed):
    """Transitions per second of a uniform evaluation, planning included; and processor seconds per transition."""
    before = processor_seconds(simulator)
    result = rido.evaluate(simulator, budget=budget, gamma=0.99, horizon=1000, strategy="uniform", seed=seed)
    spent = processor_seconds(simulator) - before
    return result.transitions / (result.seconds + result.planning_seconds), spent / result.transitions


def print_rates(contestants, turns, rivals):
    print("| | transitions/s, median | times the first | processor microseconds a transition |\n|---|---|---|---|")
    rates, work = turns[..., 0], 1e6 * np.median(turns[..., 1], axis=0)
    for column, name in enumerate(contestants):
        ratio = np.median(rates[:, column] / rates[:, 0])
        wanted = rivals.get(name, "")
        print(f"| {name} | {np.median(rates[:, column]):,.0f} | {ratio:.2f}{wanted} | {work[column]:.0f} |")
    print()


def speed(rounds=5, budget=32_000):
    """Workers and EnvPool against one process."""
    from rido.simulators.envpool import EnvPoolSimulator

    options = dict(horizon=1000, env_kwargs=ANT_KWARGS)
    simulators = {
        "one process": GymnasiumSimulator(*ANT, **options),
        "2 workers": WorkerSimulator(*ANT, workers=2, **options),
        "EnvPool, 2 threads": EnvPoolSimulator(*ANT, horizon=1000, env_kwargs=ENVPOOL_KWARGS, threads=2),
        "EnvPool, 2 threads, without seeds": EnvPoolSimulator(
            *ANT, horizon=1000, env_kwargs=ENVPOOL_KWARGS, threads=2, reseed=False
        ),
    }
    for simulator in simulators.values():  # makes all environments
        simulator.rollout(np.full(64, 2), range(64))
    rates = turns({name: lambda s=s: rate(s, budget, 1) for name, s in simulators.items()}, rounds)
    print(f"## Speed\n\nAnt-v5, the zoo's TRPO agent, {budget:,} transitions, T = 1,000, {rounds} turns,")
    print(f"{os.cpu_count()} processors, load {os.getloadavg()[0]:.1f}.\n")
    print_rates(simulators, rates, {"2 workers": " (wanted 1.7)", "EnvPool, 2 threads": " (wanted 2)"})
    simulators["2 workers"].close()


def cluster(rounds=5, budget=50_000):
    """Ray on one machine against workers."""
    os.environ["RAY_worker_niceness"] = "0"  # noqa: SIM112 - its default, 15, lets all others go first
    from rido.simulators.parallel.ray import RaySimulator

    options = dict(horizon=1000, env_kwargs=ANT_KWARGS)
    with WorkerSimulator(*ANT, workers=2, **options) as workers, RaySimulator(*ANT, num_actors=2, **options) as actors:
        simulators = {"2 workers": workers, "Ray, 2 actors": actors}
        for simulator in simulators.values():
            simulator.rollout(np.full(64, 2), range(64))
        rates = turns({name: lambda s=s: rate(s, budget, 1) for name, s in simulators.items()}, rounds)
    print(f"## Ray on one machine\n\nAnt-v5 as above, {budget:,} transitions, {rounds} turns, once warm, all at one")
    print(f"priority; load {os.getloadavg()[0]:.1f}.\n")
    print_rates(simulators, rates, {"Ray, 2 actors": " (wanted 0.91)"})


def point(budget, horizon):
    """Time and memory of one evaluation of LQG, in a process of its own."""
    rido.evaluate("rido/LQG-v0", budget=2 * horizon, gamma=0.99, horizon=horizon, strategy="uniform", seed=1)
    before = resource.getrusage(resource.RUSAGE_SELF)
    result = rido.evaluate("rido/LQG-v0", budget=budget, gamma=0.99, horizon=horizon, seed=1)
    after = resource.getrusage(resource.RUSAGE_SELF)
    print(
        json.dumps(
            {
                "seconds": after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime,
                "collecting": result.seconds,
                "megabytes": after.ru_maxrss / 1024,
                "extra": (after.ru_maxrss - before.ru_maxrss) / 1024,
            }
        )
    )


def measure(budget, horizon):
    """Medians over processes, if they are quick."""
    repetitions = 3 if budget < 1_000_000 else 1
    command = [sys.executable, "-W", "ignore", __file__, "point", str(budget), str(horizon)]
    runs = [json.loads(subprocess.run(command, capture_output=True, check=True).stdout) for _ in range(repetitions)]
    return {name: float(np.median([run[name] for run in runs])) for name in runs[0]}


def slope(sizes, values):
    """Of the least-squares line on log axes."""
    return float(np.polyfit(np.log(sizes), np.log(np.maximum(values, 1e-9)), 1)[0])


def growth():
    """How time and memory grow with the budget and the horizon."""
    studies = {
        "budget": (BUDGETS, [measure(budget, GROWTH_HORIZON) for budget in BUDGETS]),
        "horizon": (HORIZONS, [measure(GROWTH_BUDGET, horizon) for horizon in HORIZONS]),
    }
    print("## How cost grows\n\nLQG in one process, default strategy, gamma 0.99; processor seconds (planning and")
    print("simulating) and peak memory of the process, of which about 80 MB are Python and its libraries.\n")
    stored = {}
    for name, (sizes, points) in studies.items():
        print(f"| {name} ({FIXED[name]}) | seconds | peak MB |\n|---|---|---|")
        for size, values in zip(sizes, points, strict=True):
            print(f"| {size:,} | {values['seconds']:.2f} | {values['megabytes']:.0f} |")
        stored[name] = {"sizes": sizes} | {key: [values[key] for values in points] for key in MEASURED}
        slopes = []
        for key, label in MEASURED.items():
            fitted, last = slope(sizes, stored[name][key]), slope(sizes[-3:], stored[name][key][-3:])
            slopes.append(f"{label}: {fitted:.2f} over all, {last:.2f} over the last three")
        print(f"\nSlopes on log axes (wanted at most 1.05): {'; '.join(slopes)}.\n")
    FIGURE.with_suffix(".json").write_text(json.dumps(stored, indent=1) + "\n")
    redraw()
    print("![time and memory against budget and horizon](scale.png)\n")


@style()
def redraw():
    """Draw the picture from the stored numbers."""
    from matplotlib.figure import Figure  # not at the top: it would count in the memory of each point

    stored = json.loads(FIGURE.with_suffix(".json").read_text())
    figure = Figure(figsize=(8, 5), layout="constrained")
    axes = figure.subplots(2, 2, sharey="row")
    for column, (name, study) in enumerate(stored.items()):
        sizes = np.array(study["sizes"])
        for row, (key, label) in enumerate(MEASURED.items()):
            axis, values = axes[row, column], np.array(study[key])
            axis.plot(sizes, values, "o-", label="measured")
            if values[-1] > 2 * values[0]:
                axis.plot(sizes, values[-1] / sizes[-1] * sizes, color=GREY, label="slope 1", **REFERENCE)
            axis.set_xlabel(f"{name} ({FIXED[name]})")
            axis.set_ylabel(label if column == 0 else "")
    for row in axes:
        values = np.concatenate([axis.lines[0].get_ydata() for axis in row])
        row[0].set_ylim(0.6 * values.min(), 1.6 * values.max())
        for axis in row:
            logarithmic(axis, "x")
            logarithmic(axis, "y")
            label_ends(axis)
    figure.savefig(FIGURE)


SECTIONS = {"identity": identity, "kills": kills, "speed": speed, "cluster": cluster, "growth": growth}


def main():
    warnings.filterwarnings("ignore")
    if sys.argv[1:2] == ["point"]:
        point(int(sys.argv[2]), int(sys.argv[3]))
        return
    if sys.argv[1:] == ["redraw"]:
        redraw()
        return
    print("# Scaling out\n\nMade by `make benchmarks` (benchmarks/scale.py).\n")
    for name in sys.argv[1:] or SECTIONS:
        SECTIONS[name]()
        sys.stdout.flush()


if __name__ == "__main__":
    main()
