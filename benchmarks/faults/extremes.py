"""Extremes of numbers and budgets: random problems that must neither raise nor give a useless error bar.

``run(count, seed)`` draws ``count`` ask/tell problems, a third as many of ``evaluate()`` in ordinary ranges and a third
in extreme ones (rewards from 1e-300 to 1e99, discounts whose powers underflow). It counts what must never happen:
exceptions and floating-point warnings, budgets exceeded, standard errors of 0 or infinity where returns vary, results
that are not JSON. The other counts say how many problems there were, and how many were refused before anything was
spent, as they must be where a budget does not pay for two resets.

Run as ``python benchmarks/faults/extremes.py``; ``python benchmarks/faults --sections numbers`` puts it on the page.
"""

import argparse
import json
import math
import sys
import time
import traceback
import warnings
from collections import Counter

import numpy as np

import rido
from rido.simulators.bank import BankSimulator

FAULTS = ("exceptions", "overruns", "useless errors", "not JSON", "late refusals")
GAMMAS = (1.0, 1.0, 0.999, 0.99, 0.9, 0.5, 0.1, 1e-3, 1e-10, 1e-200)
LARGEST = 1e99  # reward, in size


def draw_scale(rng, extreme):
    """A scale of rewards."""
    if not extreme:
        return 10.0 ** rng.uniform(-3, 3)
    return 10.0 ** rng.choice([-300, -200, -160, -100, 0, 50, 75, 90, 99, rng.uniform(-300, 99)])


def draw_rewards(rng, rows, horizon, *, extreme):
    """Rewards of one of several processes, shape (rows, horizon)."""
    scale, shape = draw_scale(rng, extreme), (rows, horizon)
    kind = rng.integers(8)
    with np.errstate(over="ignore"):
        if kind == 0:
            rewards = np.full(shape, scale)
        elif kind == 1:
            rewards = scale * (rng.random(shape) < rng.choice([0.01, 0.5]))
        elif kind == 2:
            rewards = scale * rng.standard_cauchy(shape)
        elif kind == 3:
            rewards = scale * rng.standard_normal(shape)
        elif kind == 4:  # each step has a scale of its own
            rewards = np.array([draw_scale(rng, extreme) for _ in range(horizon)]) * rng.standard_normal(shape)
        elif kind == 5:  # each reward has one
            rewards = np.array([draw_scale(rng, extreme) for _ in range(8)])[rng.integers(8, size=shape)]
        elif kind == 6:  # a large constant and a small deviation
            rewards = scale * (1 + 10.0 ** rng.uniform(-7, 0) * rng.standard_normal(shape))
        else:  # only the last step varies
            rewards = np.zeros(shape)
            rewards[:, -1] = scale * rng.standard_normal(rows)
    return np.clip(rewards, -LARGEST, LARGEST)


def draw_steps(rng, rows, horizon):
    """Steps after which the environment ends each trajectory."""
    if rng.random() < 0.6:
        return np.full(rows, horizon)
    return np.minimum(rng.geometric(min(1.0, rng.uniform(0.2, 5) / horizon), rows), horizon)


def draw_horizon(rng, most):
    return int(min(most, math.exp(rng.uniform(0, math.log(most + 1)))))


def returns_vary(rewards, gamma):
    """Whether the returns of full-length trajectories differ by more than rounding errors."""
    discounts = gamma ** np.arange(rewards.shape[1], dtype=np.float64)
    discounted = rewards * discounts
    returns = discounted.sum(axis=1)
    return float(np.ptp(returns / 2)) > max(1e-9 * float(np.abs(discounted).sum(axis=1).max()), 1e-305)


def draw_strategy(rng, horizon, gamma, until):
    """A strategy's class, its settings, and the full-length trajectories that its budget must pay for."""
    kind = rng.choice(["uniform", "robust", "oracle", "rido", "adaptive", "adaptive", "unbiased", "until"])
    if kind == "oracle":
        weights = draw_rewards(rng, 1, horizon, extreme=rng.random() < 0.5)[0]
        return rido.Oracle, {"weights": weights}, 1
    if kind == "rido":
        beta = rng.choice([1.0, 5.0])
        width = 10.0 ** rng.uniform(-300, 99)
        return rido.Rido, {"beta": beta, "reward_range": (-width, width)}, 2
    if kind == "adaptive":
        return rido.Adaptive, {"reset_price": float(rng.choice([0.0, 10.0]))}, 2
    if kind == "unbiased":
        return rido.Adaptive, {"unbiased": True}, 6
    if kind == "until":
        return rido.Adaptive, {"until": until}, 2
    return {"uniform": rido.Uniform, "robust": rido.Robust}[kind], {}, 1


def ask_tell_problem(rng, counts):
    """One run of a strategy on drawn rewards."""
    extreme = rng.random() < 0.7
    horizon, gamma = draw_horizon(rng, 300), float(rng.choice(GAMMAS))
    bank = draw_rewards(rng, 4000 // horizon + 50, horizon, extreme=extreme)
    ends = draw_steps(rng, len(bank), horizon)
    until = float(np.abs(bank).max() * 10.0 ** rng.uniform(-4, 1)) or 1.0
    make, settings, least = draw_strategy(rng, horizon, gamma, until)
    budget = int(least * horizon + rng.choice([0, 1, rng.integers(2 * horizon + 1), rng.integers(60 * horizon + 1)]))
    strategy = make(horizon=horizon, budget=budget, gamma=gamma, **settings)
    full = []
    while (schedule := strategy.ask()) is not None:
        rows = rng.integers(len(bank), size=schedule.trajectories)
        batch = rido.Trajectories(bank[rows], schedule.lengths, np.minimum(ends[rows], schedule.lengths))
        strategy.tell(batch)
        full.append(batch.rewards[batch.lengths == horizon][:, :horizon])
        strategy.warnings()
    estimate = strategy.estimate()
    counts["overruns"] += strategy.spent > budget
    seen = np.concatenate([rows for rows in full if rows.size])
    check_error(counts, estimate, seen, gamma)
    strategy.guaranteed_interval((float(min(bank.min(), 0.0)) - 1.0, float(max(bank.max(), 0.0)) + 1.0))


def check_error(counts, estimate, seen, gamma):
    """Counts a standard error of 0 or infinity, or an interval that is not a number."""
    error, (low, high) = estimate.standard_error, estimate.interval()
    useless = math.isnan(error) or math.isnan(low) or math.isnan(high) or not math.isfinite(estimate.value)
    if len(seen) > 1:
        useless |= math.isinf(error) or (error == 0 and returns_vary(seen, gamma))
    counts["useless errors"] += useless


class RecordingBank(BankSimulator):
    """A bank that remembers the full-length trajectories and how many transitions were taken."""

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.seen, self.taken = [], 0

    def collect(self, request):
        collected = super().collect(request)
        batch, horizon = collected.trajectories, self.rewards.shape[1]
        if len(batch):
            self.taken += batch.transitions
            self.seen += list(batch.rewards[batch.lengths == horizon][:, :horizon])
        return collected


def evaluate_problem(rng, counts, *, extreme):
    """One call of evaluate() on a bank of drawn trajectories."""
    horizon, gamma = draw_horizon(rng, 60), float(rng.choice(GAMMAS[: None if extreme else 7]))
    rows = int(rng.integers(5, 200))
    rewards, steps = draw_rewards(rng, rows, horizon, extreme=extreme), draw_steps(rng, rows, horizon)
    observations = rng.standard_normal((rows, horizon + 1, 2))
    bank = RecordingBank(rewards, steps, observations)
    scale = float(np.abs(bank.rewards).max()) or 1.0
    options = {"strategy": str(rng.choice(["uniform", "robust", "rido", "adaptive", "adaptive"]))}
    kind = rng.choice(["none", "none", "function", "fit", "auto"])
    budget = int(horizon * rng.uniform(2, 100))
    reset_cost = 0.0
    if kind != "none":
        options["critic"] = (lambda seen, to_go: scale / 8 * np.tanh(seen[:, 0])) if kind == "function" else str(kind)
        options["max_resets"] = None if rng.random() < 0.5 else int(rng.integers(2, 1000))
        reset_cost = options["reset_cost"] = float(rng.choice([0.0, 0.1, 1.0, 30.0, 1000.0]))
        if kind == "fit":
            if options["strategy"] == "robust":  # it may plan a single full-length trajectory, too few to fit on
                options["strategy"] = "uniform"
            budget = int(horizon * rng.uniform(20, 100) + 3 * reset_cost)
    elif rng.random() < 0.4:
        low, high = min(0.0, float(bank.rewards.min())), max(0.0, float(bank.rewards.max()))
        options["reward_range"] = (low - scale / 2, high + scale / 2)
    if options["strategy"] == "adaptive" and rng.random() < 0.5:
        options["until"] = scale * 10.0 ** float(rng.uniform(-4, 1))
        budget = int(budget * rng.choice([1, 1, 100]))
    try:
        result = rido.evaluate(
            bank, budget=budget, gamma=gamma, horizon=horizon, seed=int(rng.integers(1 << 32)), **options
        )
    except ValueError as error:
        if reset_cost == 0 or "reset_cost" not in str(error):
            raise
        counts["refused"] += 1
        counts["late refusals"] += bank.taken > 0
        return
    counts["overruns"] += result.transitions > budget or bank.taken + result.resets * reset_cost > budget + 1e-6
    check_error(counts, result.estimate, np.array(bank.seen) if kind == "none" else [], gamma)
    result.summary()
    try:
        json.dumps(result.to_dict(), allow_nan=False)
    except ValueError:
        counts["not JSON"] += 1


def run(count, seed, *, verbose=False):
    """Runs all problems.

    Args:
        count: ask/tell problems; of evaluate() there are a third as many in ordinary ranges and in extreme ones.
        seed: what all problems are drawn from.
        verbose: whether to print what each exception was.

    Returns:
        How often each thing happened; all of ``FAULTS`` must be 0.
    """
    counts = Counter(dict.fromkeys(FAULTS, 0), refused=0)
    kinds = {
        "ask/tell": (count, ask_tell_problem, {}),
        "evaluate, ordinary": (count // 3, evaluate_problem, {"extreme": False}),
        "evaluate, extreme": (count // 3, evaluate_problem, {"extreme": True}),
    }
    for number, (kind, (repeats, problem, options)) in enumerate(kinds.items()):
        for index in range(repeats):
            counts[kind] += 1
            before = sum(counts[fault] for fault in FAULTS)
            with warnings.catch_warnings():
                warnings.simplefilter("error", RuntimeWarning)
                try:
                    problem(np.random.default_rng([seed, number, index]), counts, **options)
                except Exception:
                    counts["exceptions"] += 1
                    if verbose:
                        traceback.print_exc(limit=-4)
            if verbose and sum(counts[fault] for fault in FAULTS) > before:
                print(f"fault in {kind}, seed {[seed, number, index]}", file=sys.stderr)
    return dict(counts)


def planning_seconds(horizon, gamma, rounds=3):
    """The most processor seconds that a plan takes after the pilot, for independent rewards and a budget of 60 T."""
    rng, seconds = np.random.default_rng(0), []
    strategy = rido.Adaptive(horizon=horizon, budget=60 * horizon, gamma=gamma)
    schedule = strategy.ask()
    while schedule is not None and len(seconds) < rounds:
        strategy.tell(rido.Trajectories(rng.standard_normal(schedule.transitions), schedule.lengths))
        started = time.process_time()
        schedule = strategy.ask()
        seconds.append(time.process_time() - started)
    return max(seconds)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=3000)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    found = run(arguments.count, arguments.seed, verbose=True)
    planning_seconds(10, 1.0)  # imports what planning needs
    found["planning seconds, T = 100,000"] = {
        f"gamma {gamma}": round(planning_seconds(100_000, gamma), 2) for gamma in (0.999, 0.9999, 1.0)
    }
    print(json.dumps(found, indent=1))
    sys.exit(any(found[fault] for fault in FAULTS))
