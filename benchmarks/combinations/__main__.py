"""Does it work with what people have? Environments of many kinds with policies of many frameworks, against plain loops.

``python benchmarks/combinations`` runs every combination whose packages are installed, keeps the numbers of the others
from the last time, and writes results/combinations.json and results/combinations.md. Run it in an environment made from
requirements.txt, then in one made from requirements-rllib.txt. It takes a few minutes on two cores.
"""

import json
import math
import sys
import time
import warnings
import zlib
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import numpy as np
from combinations import COMBINATIONS
from scipy.stats import norm

import rido
from environments import ENVIRONMENTS

RESULTS = Path(__file__).resolve().parents[2] / "results"
BUDGET = 40  # full-length trajectories, in transitions
EPISODES = 60  # of the plain loop
PACKAGES = [
    "gymnasium",
    "mujoco",
    "ale-py",
    "minigrid",
    "numpy",
    "torch",
    "stable-baselines3",
    "sb3-contrib",
    "scikit-learn",
    "tianshou",
    "torchrl",
    "tensordict",
    "skrl",
    "flax",
    "brax",
    "jax",
    "onnxruntime",
    "huggingface_hub",
    "ray",
]
COLUMNS = [
    "environment",
    "kind",
    "policy",
    "value",
    "95% interval",
    "independent value",
    "difference in standard errors",
    "same for any num_envs",
]
ABOVE = """# Kinds of environments and policies

{count} combinations, each evaluated by `rido.evaluate` and by other means: SB3's `evaluate_policy`, or a plain loop of
{episodes} episodes with other seeds around the framework's own call for one observation. Agents are untrained; what
counts is that both numbers agree. Horizons are short (20 to 120 steps), gamma is 1. Written by
`python benchmarks/combinations` with the blocks of `docs/recipes.md`. RLlib ran in a virtual environment of its own,
with Gymnasium 1.2.2, which it pins; all others share one.

The largest difference is {worst:.1f} standard errors of the difference. Where all is right, the largest of {count} is
beyond {usual:.1f} in one table of 20. Rows have seeds of their own. A first table, whose rows shared theirs, had +3.4
for "random" in Levers, so that combination was repeated with 60 seeds against its closed form: error over standard
error has mean {mean:.2f} and standard deviation {deviation:.2f}.
"""


def loop(make, act, horizon, seed):
    """Returns of plain episodes, one environment and one observation at a time."""
    env, returns = make(), []
    for episode in range(EPISODES):
        observation, _ = env.reset(seed=seed + episode)
        total = 0.0
        for step in range(horizon):
            observation, reward, terminated, truncated, _ = env.step(act(observation, step == 0))
            total += float(reward)
            if terminated or truncated:
                break
        returns.append(total)
    return returns


def run(key, name, build, settings):
    """Evaluates one combination with rido and by the plain loop."""
    environment, seed = ENVIRONMENTS[name], zlib.crc32(key.encode()) % 10**6  # other trajectories in each row
    policy, independent = build(environment.make())
    atari = name.startswith("ALE")  # a reset takes 0.1 s, so few trajectories of full length
    options = dict(strategy="uniform") if atari else {}
    budget = BUDGET * environment.horizon // (2 if atari else 1)
    started = time.perf_counter()
    result = rido.evaluate(
        environment.make, policy, budget=budget, gamma=1, horizon=environment.horizon, seed=seed, **options, **settings
    )
    seconds = time.perf_counter() - started
    if getattr(independent, "__name__", "") == "evaluate":
        returns, beside = independent(EPISODES, environment.horizon, seed), "SB3 evaluate_policy"
    else:
        returns, beside = loop(environment.make, independent, environment.horizon, seed), "plain loop"
    low, high = result.interval()
    error = float(np.std(returns, ddof=1) / math.sqrt(len(returns)))
    together = math.hypot(error, result.standard_error)
    difference = result.value - float(np.mean(returns))
    return dict(
        kind=environment.kind,
        value=result.value,
        low=low,
        high=high,
        beside=beside,
        independent=float(np.mean(returns)),
        error=error,
        agreement=difference / together if together > 1e-12 else 0.0 if abs(difference) < 1e-9 else math.inf,
        reproducible=result.reproducible,
        normalisation=result.normalisation,
        seconds=seconds,
    )


def calibrate(seeds=60):
    """Mean and standard deviation of error over standard error of random actions in Levers, whose value is known."""
    levers = ENVIRONMENTS["Levers"]
    truth = (1 / 3 + 1 / 4) * sum(0.97**step for step in range(levers.horizon))  # 3% of the steps end an episode
    settings = dict(budget=BUDGET * levers.horizon, gamma=1, horizon=levers.horizon)
    results = [rido.evaluate(levers.make, "random", seed=seed, **settings) for seed in range(seeds)]
    scores = [(result.value - truth) / result.standard_error for result in results]
    return dict(mean=float(np.mean(scores)), deviation=float(np.std(scores, ddof=1)))


def page(rows, versions, calibration):
    """The table in Markdown."""
    worst = max(abs(row["agreement"]) for row in rows.values())
    usual = norm.isf(0.025 / len(rows))
    text = ABOVE.format(count=len(rows), episodes=EPISODES, worst=worst, usual=usual, **calibration)
    lines = [text, f"| {' | '.join(COLUMNS)} |", "|---" * len(COLUMNS) + "|"]
    for key, row in rows.items():
        name, policy = key.split(" | ")
        lines.append(
            f"| {name} | {row['kind']} | {policy} | {row['value']:.4g} | [{row['low']:.4g}, {row['high']:.4g}] | "
            f"{row['independent']:.4g} ± {row['error']:.2g}, {row['beside']} | {row['agreement']:+.1f} | "
            f"{'yes' if row['reproducible'] else 'no: global random numbers'} |"
        )
    lines += ["", "Versions: " + ", ".join(f"{name} {number}" for name, number in sorted(versions.items())) + ".", ""]
    return "\n".join(lines)


def _version(package):
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def main():
    """Runs what is asked for (names that contain the first argument), and writes the page."""
    wanted = sys.argv[1] if len(sys.argv) > 1 else ""
    file = RESULTS / "combinations.json"
    before = json.loads(file.read_text()) if file.is_file() else {"rows": {}, "versions": {}}
    rows, failures = {}, []
    for name, policy, build, settings in COMBINATIONS:
        key = f"{name} | {policy}"
        if wanted not in key:
            found = before["rows"].get(key)
        else:
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    found = run(key, name, build, settings)
                print(f"{key}: {found['value']:.4g}, {found['agreement']:+.1f}, {found['seconds']:.1f} s", flush=True)
            except ModuleNotFoundError as error:
                found = before["rows"].get(key)
                print(f"{key}: {error}", flush=True)
            except Exception as error:
                failures.append(f"{key}: {error!r}")
                print(f"{key} FAILED: {error!r}", flush=True)
                found = None
        if found is not None:
            rows[key] = found
    here = {package: _version(package) for package in PACKAGES}
    here = {"ray": here["ray"]} if here["ray"] else {package: found for package, found in here.items() if found}
    versions = {**before["versions"], **here}
    calibration = before.get("calibration") if wanted else None
    calibration = calibration or calibrate()
    file.write_text(json.dumps({"rows": rows, "versions": versions, "calibration": calibration}, indent=1) + "\n")
    (RESULTS / "combinations.md").write_text(page(rows, versions, calibration), encoding="utf-8")
    sys.exit("\n".join(failures) or None)


if __name__ == "__main__":
    main()
