"""Banks of recorded trajectories, the same seeds for all policies, and suites that are raced on them."""

import agents
import numpy as np

import policies  # of benchmarks/compare, which agents puts on the path
import rido
from rido.suite.race import SuiteRace


def record(folder):
    """Returns {task: {policy: (rewards, steps)}}, recorded once and kept in a file for each task."""
    banks = {}
    for task, (_, horizon, _, rows) in agents.TASKS.items():
        acting = {name: agents.policy(folder, task, name) for name in agents.NAMES}
        banks[task] = policies.record(folder / f"bank {task}.npz", acting, *agents.environment(task), horizon, rows)
    return banks


def references(banks):
    """Returns the returns of the random policy and of the shipped agent, which have the scores 0 and 1."""
    return {
        task: tuple(float(agents.returns(bank[name][0]).mean()) for name in ("random", "shipped"))
        for task, bank in banks.items()
    }


def race(banks, tasks, budget, seed):
    """Runs a suite on the banks; returns its leaderboard."""
    running = SuiteRace(tasks, agents.NAMES, budget=budget)
    rows = {
        task: np.random.default_rng([seed, n]).integers(len(bank["random"][1]), size=100_000)
        for n, (task, bank) in enumerate(banks.items())
    }  # of the bank, for each trajectory
    while (asked := running.ask()) is not None:
        told = {}
        for task, requests in asked.items():
            told[task] = {}
            for name, request in requests.items():
                rewards, steps = banks[task][name]
                chosen = rows[task][request.first : request.first + request.lengths.size]
                ends = np.minimum(steps[chosen], request.lengths)
                told[task][name] = rido.Trajectories(rewards[chosen], request.lengths, ends)
        running.tell(told)
    return running.result()


def equal_episodes_error(banks, tasks, transitions):
    """Returns the variance of each policy's score from equally many whole episodes of all tasks and policies.

    It is exact: the variance of a return in the bank over the number of episodes that the transitions pay for.
    """
    per_episode = sum(steps.mean() for bank in banks.values() for _, steps in bank.values())
    episodes = transitions / per_episode
    weights = sum(task.weight for task in tasks.values())
    factors = {name: task.factor / weights for name, task in tasks.items()}
    return {
        name: sum(factors[task] ** 2 * agents.returns(bank[name][0]).var() for task, bank in banks.items()) / episodes
        for name in agents.NAMES
    }


def shortened(banks, steps):
    """Returns the banks over at most so many steps."""
    return {
        task: {name: (rewards[:, :steps], np.minimum(ends, steps)) for name, (rewards, ends) in bank.items()}
        for task, bank in banks.items()
    }


def tasks_of(banks):
    """Returns the tasks of the suite, normalised by the banks' means."""
    found = references(banks)
    return {
        task: rido.Task(task, agents.GAMMA, bank["random"][0].shape[1], reference=found[task])
        for task, bank in banks.items()
    }


def truth(banks, tasks):
    """Returns the true score of each policy."""
    return {
        name: float(np.mean([task.score(agents.returns(banks[key][name][0]).mean()) for key, task in tasks.items()]))
        for name in agents.NAMES
    }


def repetition(folder, item):
    """Runs one suite on the banks; returns its errors and what it called sure."""
    steps, budget, seed = item
    banks = shortened(record(folder), steps)
    tasks = tasks_of(banks)
    true, board = truth(banks, tasks), race(banks, tasks, budget, seed)
    equal = equal_episodes_error(banks, tasks, board.transitions)
    holds = [low <= true[name] <= high for name in agents.NAMES for low, high in [board.scores[name].interval(0.95)]]
    return {
        "errors": [(board.scores[name].value - true[name]) ** 2 for name in agents.NAMES],
        "equal": [equal[name] for name in agents.NAMES],
        "holds": float(np.mean(holds)),
        "sure": len(board.sure),
        "wrong": sum(true[better] < true[worse] for better, worse in board.sure),
        "leader": board.ranking[0] == max(true, key=true.get),
        "order": list(board.ranking) == sorted(true, key=true.get, reverse=True),
    }
