"""Environments of other people's packages: rido beside a plain loop, with "random" and with a rule of one observation.

    python benchmarks/strangers.py --environments DIR --cells FILE --output results/strangers.md

A group of packages that fit together has a virtual environment in DIR, which is made if it is missing. The cells file
gets a line for each id and policy as it is done; a run that is started again goes on after the last one. ``--source``
names the src of another version of rido, ``--before`` the cells that it gave.

The loop is what everybody writes: reset with a seed, act on one observation, step, add up the rewards. A rule draws no
random numbers, so every trajectory of rido is replayed in the loop with its seed, and all rewards must be the same
bits. Where they are not, and with "random", values are compared: beyond 4 standard errors the comparison is repeated
with four times as many trajectories, and only if these differ too the cell is not right.
"""

import argparse
import importlib
import json
import os
import signal
import subprocess
import sys
import time
import warnings
import zlib
from collections import Counter
from pathlib import Path

import numpy as np
from strangers_rules import jax_random, jax_rule, rule
from strangers_table import GROUPS, NOTES

POLICIES = ("random", "rule")
ALONE = "without its package"  # what rido says to the id alone, which most packages register only when imported
VERDICTS = ("right", "refused", "warned", "WRONG", "crashed", "the loop fails")
TRAJECTORIES = 30  # worth of transitions of rido, and of the loop
SECONDS = 0.5  # of the loop, from which on there are fewer trajectories
FEWEST = 8  # trajectories
LIMIT = 90  # seconds of CPU time for a cell
FAR = 4.0  # standard errors


class TooSlow(BaseException):
    @staticmethod
    def stop(*_):
        raise TooSlow


def wide_or_narrow_reset(env, seed):
    """Reset with the seed, or with its lower 31 bits where the first wide seed shows that no more are taken."""
    if not any(env is one for one in NARROW):
        try:
            return env.reset(seed=seed)
        except (ValueError, OverflowError, TypeError):
            NARROW.append(env)
    return env.reset(seed=seed & 0x7FFFFFFF)


NARROW = []


def play(env, act, seed, length):
    """Rewards of one trajectory, as in everybody's loop."""
    observation, _ = wide_or_narrow_reset(env, seed)
    rewards = []
    for _ in range(length):
        observation, reward, terminated, truncated, _ = env.step(act(observation))
        rewards.append(np.array(reward, dtype=np.float64).reshape(np.shape(reward) if np.size(reward) > 1 else ()))
        if terminated or truncated:
            break
    return np.array(rewards)


def play_in_jax(env, act, seed, length):
    import jax

    params = env.default_params
    key, start = jax.random.split(jax.random.PRNGKey(seed))
    observation, state = JITTED.setdefault("reset", jax.jit(env.reset_env))(start, params)
    rewards = []
    for _ in range(length):
        key, to_act, to_step = jax.random.split(key, 3)
        action = JITTED.setdefault("act", jax.jit(act))(observation, to_act)
        step = JITTED.setdefault("step", jax.jit(env.step_env))
        observation, state, reward, done, _ = step(to_step, state, action, params)
        rewards.append(float(reward))
        if done:
            break
    return np.array(rewards)


JITTED = {}


class Case:
    """One id with one policy."""

    def __init__(self, package, name, policy):
        self.package, self.policy = package, policy
        self.name = name
        name, _, options = name.partition("?")
        self.kwargs = dict(pair.split("=") for pair in options.split("&")) if options else {}
        self.jax = package.kind == "gymnax"
        if package.kind == "id":
            self.env, self.given = None, f"{package.module}:{name}" if package.module else name
        else:
            self.given = package.make(name)
        for module in package.imports:
            importlib.import_module(module)

    def open(self):
        import gymnasium as gym

        if self.package.kind == "id":
            return gym.make(self.given, disable_env_checker=True, **self.kwargs)
        return self.given if self.jax else self.given()

    def begin(self):
        self.env = env = self.open()
        if self.jax:
            space = env.action_space(env.default_params)
            self.horizon = self.package.horizon
            self.play = play_in_jax
            JITTED.clear()
            if self.policy == "random":
                self.asked = self.act = jax_random(space)
            else:
                self.asked = one = jax_rule(space)
                self.act = lambda observation, key: one(observation)
            return
        limit = env.spec.max_episode_steps if env.spec is not None else None
        self.horizon, self.play = min(limit or self.package.horizon, self.package.horizon), play
        self.asked = "random"
        if self.policy == "rule":
            self.asked = self.act = rule(zlib.crc32(self.name.encode()), env.observation_space, env.action_space)
        else:
            env.action_space.seed(1)
            self.act = lambda observation: env.action_space.sample()

    def loop(self, count, first=1_000_000, seconds=SECONDS):
        """Returns of this number of trajectories, or of those for which there is time, and transitions a second."""
        returns, steps, started = [], 0, time.process_time()
        while len(returns) < count and (len(returns) < FEWEST or time.process_time() - started < seconds):
            rewards = self.play(self.env, self.act, first + len(returns), self.horizon)
            returns.append(rewards.sum(axis=0))
            steps += len(rewards)
        return np.array(returns), steps / max(time.process_time() - started, 1e-3)

    def ask(self, budget, seed, **settings):
        import rido

        simulator, log = (None, []) if self.jax else recorder()
        options = {"env_kwargs": self.kwargs} if self.kwargs else {}
        given = dict(gamma=1.0, horizon=self.horizon, budget=budget, seed=seed, progress=False, simulator=simulator)
        return rido.evaluate(self.given, self.asked, **given, **options, **settings), log

    def same_rewards(self, log):
        """Whether the loop gets the same bits from the same seeds."""
        env = self.open()
        for seeds, found in log:
            places = np.cumsum(found.lengths) - found.lengths
            for seed, length, steps, place in zip(seeds, found.lengths, found.steps, places, strict=True):
                rewards = self.play(env, self.act, int(seed), int(length))
                if not np.array_equal(rewards, found.flat[place : place + steps]):
                    return False
        return True

    def distance(self, result, returns):
        """The largest difference of a component, in standard errors of both."""
        estimates = list(result.components.values())
        columns = returns.reshape(len(returns), -1).T
        if len(columns) != len(estimates):
            return np.inf
        distances = []
        for estimate, column in zip(estimates, columns, strict=True):
            error = np.hypot(estimate.standard_error, column.std(ddof=1) / len(column) ** 0.5)
            difference = abs(estimate.value - column.mean())
            tiny = 1e-9 * max(1.0, abs(column.mean()))
            distances.append(0.0 if difference <= tiny else difference / error if error > 0 else np.inf)
        return float(max(distances))


def recorder():
    """A simulator that keeps the seeds and the rewards of the trajectories that rido collects."""
    from rido.simulators.gymnasium import GymnasiumSimulator

    log = []

    class Recorder(GymnasiumSimulator):
        def collect(self, request):
            batch = super().collect(request)
            if len(batch.trajectories):
                # A round ends where the budget does, perhaps before all that was asked for.
                log.append((list(request.seeds)[: len(batch.trajectories)], batch.trajectories))
            return batch

    return Recorder, log


def judge(case):
    """Verdict and how it came about."""
    from rido.simulators.base import SimulationError

    try:
        case.begin()
        returns, speed = case.loop(TRAJECTORIES)
        loop_fails = ""
    except Exception as error:
        loop_fails = one_line(error)
        returns, speed = None, 1e9
        if not hasattr(case, "asked"):
            case.asked, case.horizon = "random", case.package.horizon
    budget = int(np.clip(speed * SECONDS, FEWEST * case.horizon, TRAJECTORIES * case.horizon))
    advice, size, seed = {}, 1, 1
    while True:
        try:
            result, log = case.ask(budget * size, seed, **advice)
        except (ValueError, ImportError, SimulationError) as error:
            if "end_on_truncation=True" in str(error) and not advice:
                advice = {"end_on_truncation": True}
                continue
            plain = str(error).strip() and "\n" not in str(error)
            fails_too = "; the loop fails too: " + loop_fails if loop_fails else ""
            return "refused" if plain else "crashed", one_line(error) + fails_too
        except Exception as error:
            return "crashed", one_line(error)
        if loop_fails:
            return "the loop fails", loop_fails
        note = "".join(f", {name}=True as a refusal advised" for name in advice)
        if case.policy == "rule" and not case.jax and case.same_rewards(log):
            return "right", "same bits" + note
        distance = case.distance(result, returns)
        if distance <= FAR:
            return "right", f"{distance:.1f} standard errors" + note
        if size > 1:
            break
        size, seed = 4, 2
        returns, _ = case.loop(4 * TRAJECTORIES, first=2_000_000, seconds=4 * SECONDS)
    said = f"{distance:.1f} standard errors: {result.value:.6g} for {returns.mean(axis=0)}"
    return ("warned", f"{said}; {result.warnings[0]}") if result.warnings else ("WRONG", said)


def alone(name):
    from rido.simulators.opening import find_spec

    try:
        find_spec(name)
    except (ValueError, ImportError) as error:
        return "prefix named" if f":{name}" in str(error).replace(f"'package:{name}'", "") else "refused", str(error)
    return "right", "registered by an entry point"


def one_line(error):
    return f"{type(error).__name__}: {' '.join(str(error).split())[:400]}"


def play_group(group, cells, only):
    """Runs in the environment of a group: does what is not in the cells file yet."""
    warnings.filterwarnings("ignore")
    done = {(cell["package"], cell["id"], cell["policy"]) for cell in read(cells) if cell["verdict"] != "begun"}
    signal.signal(signal.SIGPROF, TooSlow.stop)
    for package in GROUPS[group].packages:  # before one of them is imported
        for name in package.ids.split() if package.module and not only else ():
            if (package.name, name, ALONE) not in done:
                note(cells, group, package.name, name, ALONE, *alone(name.partition("?")[0]))
    for package in GROUPS[group].packages:
        for name in package.ids.split():
            for policy in POLICIES:
                if (package.name, name, policy) in done or (only and only not in (name, package.name)):
                    continue
                note(cells, group, package.name, name, policy, "begun", "")
                started = time.process_time()
                signal.setitimer(signal.ITIMER_PROF, LIMIT)
                try:
                    verdict, how = judge(Case(package, name, policy))
                except TooSlow:
                    verdict, how = "crashed", f"not done after {LIMIT} s of CPU time"
                except Exception as error:
                    verdict, how = "crashed", "the benchmark: " + one_line(error)
                finally:
                    signal.setitimer(signal.ITIMER_PROF, 0)
                note(cells, group, package.name, name, policy, verdict, how, time.process_time() - started)


def note(cells, group, package, name, policy, verdict, how, seconds=0.0):
    cell = dict(group=group, package=package, id=name, policy=policy, verdict=verdict, how=how, s=round(seconds, 1))
    with Path(cells).open("a") as file:
        file.write(json.dumps(cell) + "\n")


def read(cells):
    lines = Path(cells).read_text().splitlines() if Path(cells).exists() else []
    found = {(cell["package"], cell["id"], cell["policy"]): cell for cell in map(json.loads, lines)}
    every = [
        (one.name, name, policy) for one in packages() for name in one.ids.split() for policy in (*POLICIES, ALONE)
    ]
    return [found[key] for key in every if key in found]


def packages():
    return [package for group in GROUPS.values() for package in group.packages]


def interpreter(group, folder):
    """The Python of a group's virtual environment, made if it is missing."""
    if not GROUPS[group].pip:
        return sys.executable
    python = Path(folder) / group / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", Path(folder) / group], check=True)
        for line in GROUPS[group].pip:
            subprocess.run([python, "-m", "pip", "install", "--quiet", *line.split()], check=True)
    return str(python)


def run_group(group, arguments):
    python = interpreter(group, arguments.environments)
    known = {"SDL_VIDEODRIVER": "dummy", "MUJOCO_GL": "egl", "JAX_PLATFORMS": "cpu", "OMP_NUM_THREADS": "1"}
    environment = {**os.environ, **known, "PYTHONPATH": str(arguments.source), "PYTHONWARNINGS": "ignore"}
    command = [python, __file__, "--child", group, "--cells", arguments.cells, "--only", arguments.only]
    while subprocess.run(command, env=environment, stdout=subprocess.DEVNULL, stderr=arguments.errors).returncode:
        begun = [cell for cell in read(arguments.cells) if cell["verdict"] == "begun" and cell["group"] == group]
        if not begun:  # it died before the first cell
            raise SystemExit(f"group {group} did not start")
        for cell in begun:
            about = (cell[key] for key in ("group", "package", "id", "policy"))
            note(arguments.cells, *about, "crashed", "the process died")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--environments", default="strangers", help="folder of the virtual environments")
    parser.add_argument("--cells", required=True, help="file of results, which a later run goes on with")
    parser.add_argument("--groups", nargs="*", default=[g for g in GROUPS if GROUPS[g].pip], choices=GROUPS)
    parser.add_argument("--only", default="", help="one id or package")
    parser.add_argument(
        "--source", default=Path(__file__).resolve().parents[1] / "src", help="src of the version of rido"
    )
    parser.add_argument("--before", default="", help="cells of an earlier version, whose counts the page shows too")
    parser.add_argument("--output", default="", help="the page")
    parser.add_argument("--child", default="", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        play_group(arguments.child, arguments.cells, arguments.only)
        return
    with Path(f"{arguments.cells}.errors").open("a") as arguments.errors:
        for group in arguments.groups:
            run_group(group, arguments)
    if arguments.output:
        Path(arguments.output).write_text(
            page(read(arguments.cells), read(arguments.before) if arguments.before else [])
        )


def page(cells, before):
    command = "python benchmarks/strangers.py --environments DIR --cells FILE --output results/strangers.md"
    lines = [
        "# Environments of other people's packages",
        "",
        f"Made by `{command}`.",
        "",
        *__doc__.splitlines()[7:],
        "",
    ]
    lines += [f"| ids | {' | '.join(VERDICTS)} |", "|---" * (len(VERDICTS) + 1) + "|"]
    for label, found in (("before, ", before), ("", cells)):
        for policy in POLICIES if found else ():
            told = Counter(cell["verdict"] for cell in found if cell["policy"] == policy)
            lines.append(f"| {label}{policy} | {' | '.join(str(told[verdict]) for verdict in VERDICTS)} |")
    if before:
        lines += ["", "The earlier version was tried on fewer of these ids. What it got wrong:", ""]
        lines += [f"- {c['id']}, {c['policy']}: {c['how']}" for c in before if c["verdict"] in ("WRONG", "crashed")]
    for label, found in (("Before: of", before), ("Of", cells)):
        told = Counter(cell["verdict"] for cell in found if cell["policy"] == ALONE)
        if told:
            right, named = told["right"], told["prefix named"]
            text = f"{label} {told.total()} ids given without their package {right} work and {named} are answered with "
            lines += ["", text + "the module that registers them."]
    lines += ["", "## What is not right", "", "| id | policy | verdict | |", "|---|---|---|---|"]
    for cell in cells:
        if cell["policy"] in POLICIES and cell["verdict"] != "right":
            note = next((f" ({text})" for start, text in NOTES.items() if cell["id"].startswith(start)), "")
            how = cell["how"].replace("|", "/") + note
            lines.append(f"| {cell['id']} | {cell['policy']} | {cell['verdict']} | {how} |")
    by_id = {}
    for cell in cells:
        by_id.setdefault((cell["package"], cell["id"]), {})[cell["policy"]] = cell
    for package in packages():
        rows = {name: pair for (owner, name), pair in by_id.items() if owner == package.name}
        if rows:
            lines += ["", f"## {package.name}", "", "| id | random | rule |", "|---|---|---|"]
        for name, pair in rows.items():
            shown = [
                pair[p]["how" if pair[p]["verdict"] == "right" else "verdict"] if p in pair else "" for p in POLICIES
            ]
            lines.append(f"| {name} | {' | '.join(shown)} |")
    lines += ["", "## Installation", ""]
    lines += [f"- {group}: `pip install {line}`" for group, one in GROUPS.items() for line in one.pip]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
