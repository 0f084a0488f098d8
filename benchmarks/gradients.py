"""What lengths that are planned for the policy gradient are worth: error, bias, and transitions until a policy is good.

    python benchmarks/gradients.py --output results/gradients.md

``--sections lqg`` makes some sections again and keeps the others; ``--quick`` is a short form of everything. Errors on
LQG are measured against the closed form. Those of networks are measured on banks of recorded trajectories, whose mean
and weights are known. Learning runs are real runs of ``rido.gradient``.
"""

import argparse
import itertools
import json
import math
from pathlib import Path

import gymnasium as gym
import numpy as np
import torch
from gymnasium.vector import AutoresetMode

import rido
from rido.core.trajectories import positions
from rido.gradients.gpomdp import Gpomdp, random_directions
from rido.policies.differentiable import DifferentiablePolicy, differentiable_policy
from rido.simulators.base import Batch
from rido.simulators.envs.base import DomainVectorEnv
from rido.simulators.envs.lqg import NOISE, START
from rido.simulators.gymnasium import GymnasiumSimulator
from rido.strategies.division import Division

GAMMAS = (0.9, 0.99, 1.0)
NEVER = "not reached"


class LinearGaussian(DifferentiablePolicy):
    """a ~ N(-gain s, deviation^2), with the parameters gain and log deviation, in numpy."""

    name, size = "linear-Gaussian", 2

    def __init__(self, parameters):
        self.gain, self.deviation = parameters[0], math.exp(parameters[1])

    def __call__(self, observations, generators):
        raise NotImplementedError("simulate() acts")

    def _all_scores(self, states, actions):
        noise = (actions + self.gain * states) / self.deviation
        return np.stack([-noise * states / self.deviation, noise**2 - 1], axis=1)

    def scores(self, observations, actions, directions):
        return self._all_scores(observations, actions) @ directions.T

    def weighted_scores(self, observations, actions, weights):
        return weights @ self._all_scores(observations, actions)

    def unflatten(self, vector):
        return vector


def simulate(policy, lengths, rng):
    """LQG trajectories of these lengths, the longest first, all steps of all of them at once."""
    horizon, alive = int(lengths.max()), np.cumsum(np.bincount(lengths)[:0:-1])[::-1]
    states, actions, rewards = np.zeros((lengths.size, horizon + 1)), *np.zeros((2, lengths.size, horizon))
    states[:, 0] = rng.uniform(-START, START, lengths.size)
    for step in range(horizon):
        rows = slice(alive[step])
        noise = rng.standard_normal((3, alive[step]))
        actions[rows, step] = -policy.gain * states[rows, step] + policy.deviation * noise[0]
        controls = actions[rows, step] + math.sqrt(NOISE) * noise[1]
        rewards[rows, step] = states[rows, step] ** 2 + controls**2
        states[rows, step + 1] = states[rows, step] + controls + math.sqrt(NOISE) * noise[2]
    taken, seen = (np.arange(horizon + extra) < lengths[:, None] + extra for extra in (0, 1))
    trajectories = rido.Trajectories(rewards[taken], lengths)
    return Batch(trajectories, states[seen], np.zeros(lengths.size, dtype=bool), actions[taken])


def expected_return(parameters, horizon, gamma):
    """J in closed form, also for complex parameters: the cost to go is A s^2 + B."""
    gain, variance = parameters[0], np.exp(2 * parameters[1])
    curvature = constant = 0.0
    for _ in range(horizon):
        constant = variance + NOISE + gamma * (curvature * (variance + 2 * NOISE) + constant)
        curvature = 1 + gain**2 + gamma * (1 - gain) ** 2 * curvature
    return curvature * START**2 / 3 + constant


def exact_gradient(parameters, horizon, gamma):
    """The gradient of J by complex steps, exact to rounding."""
    steps = np.asarray(parameters) + 1e-30j * np.eye(2)
    return np.array([expected_return(step, horizon, gamma).imag / 1e-30 for step in steps])


def run_lqg(strategy, parameters, rng, *, baseline):
    """The gradient that a strategy finds, and its reported squared error."""
    policy = LinearGaussian(parameters)
    strategy.divide(cross_fitted=baseline)
    estimator = Gpomdp(policy, horizon=strategy.horizon, gamma=strategy.gamma, directions=np.eye(2))
    strategy.serve(estimator.metric)
    baselines = None
    while (schedule := strategy.ask()) is not None:
        lengths = schedule.lengths
        teams = strategy.dealt(lengths)
        strategy.tell(estimator.add(simulate(policy, lengths, rng), teams))
        if baseline:
            baselines = estimator.baselines(strategy.division)
            strategy.follow(estimator.groups(strategy.division, baselines))
    return estimator.vector(strategy.division, baselines), np.trace(strategy.joint().covariance[1:, 1:])


def known_weights(parameters, horizon, gamma, trajectories, rng):
    """Trace weights f_t of LQG from a large sample."""
    policy, directions = LinearGaussian(parameters), np.eye(2)
    own, both, later = np.zeros((3, 2, horizon))
    rounds = max(1, trajectories // 20_000)
    for _ in range(rounds):
        estimator = Gpomdp(policy, horizon=horizon, gamma=gamma, directions=directions)
        lengths = np.full(trajectories // rounds, horizon)
        signals = estimator.add(simulate(policy, lengths, rng), np.zeros(lengths.size, dtype=np.int64))
        rows = np.moveaxis(signals.flat.reshape(lengths.size, horizon, 3)[..., 1:], -1, 0) * gamma ** np.arange(horizon)
        tails = 2 * np.cumsum(rows[..., ::-1], axis=-1)[..., ::-1] - rows
        own += rows.mean(axis=1) / rounds
        later += tails.mean(axis=1) / rounds
        both += (rows * tails).mean(axis=1) / rounds
    return (both - own * later).sum(axis=0)


def lqg(quick):
    """Bias and error on LQG."""
    horizon, parameters = 20, (0.4, 0.0)
    budget = 50 * horizon
    yield from [
        "## LQG: bias and error against the closed form",
        "",
        f"`rido/LQG-v0`, T = {horizon}, a ~ N(-0.4 s, 1), gradient with respect to the gain and the log deviation, a "
        f"budget of {budget} transitions. The exact gradient comes from the closed form of J by complex steps. Mean "
        "error: of both components, in standard errors of the mean over all repetitions. Uniform and oracle: sum "
        "f_t / n_t with weights from 1,000,000 trajectories; with a baseline, uniform is measured in as many runs. "
        "Reported: mean of the squared `standard_error` over the MSE.",
        "",
        "| gamma | strategy | repetitions | mean error, gain | mean error, log deviation | uniform's MSE over this | "
        "this over the oracle's | reported |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for index, gamma in enumerate(GAMMAS):
        exact = exact_gradient(parameters, horizon, gamma)
        weights = known_weights(
            parameters, horizon, gamma, 20_000 if quick else 1_000_000, np.random.default_rng(index)
        )
        uniform = float(weights.sum()) * horizon / budget
        oracle = rido.Schedule.optimal(weights, budget).variance(weights)
        cases = [
            ("Adaptive(unbiased=True)", lambda **given: rido.Adaptive(unbiased=True, **given), False, 5_000),
            ("adaptive", rido.Adaptive, False, 400),
            ("adaptive, baseline", rido.Adaptive, True, 100),
        ]
        if gamma == 0.9:  # the first 400 have a mean error of -3.1 standard errors, so there are more
            cases.insert(2, ("adaptive, again", rido.Adaptive, False, 1_000))
        for name, make, baseline, count in cases:
            count = count // 50 if quick else count
            rng = np.random.default_rng([7, index, count])
            settings = dict(horizon=horizon, budget=budget, gamma=gamma)
            found = [run_lqg(make(**settings), parameters, rng, baseline=baseline) for _ in range(count)]
            errors = np.array([vector for vector, _ in found]) - exact
            reported = np.mean([square for _, square in found])
            bias = errors.mean(axis=0) / errors.std(axis=0, ddof=1) * math.sqrt(count)
            squares = np.sum(errors**2, axis=1)
            reference, best = uniform, ratio(squares, oracle)
            if baseline:
                others = [run_lqg(rido.Uniform(**settings), parameters, rng, baseline=True)[0] for _ in range(count)]
                reference, best = float(np.mean(np.sum((np.array(others) - exact) ** 2, axis=1))), ""
            gain = reference / squares.mean()
            noise = gain * squares.std() / squares.mean() / math.sqrt(count)
            yield (
                f"| {gamma:g} | {name} | {count:,} | {bias[0]:+.1f} | {bias[1]:+.1f} | {gain:.2f} ± {noise:.2f} "
                f"| {best} | {reported / squares.mean():.2f} |"
            )


def ratio(squares, reference):
    """The mean of squared errors over a reference, with its standard error."""
    return f"{squares.mean() / reference:.2f} ± {squares.std() / math.sqrt(squares.size) / reference:.2f}"


class Network(torch.nn.Module):
    """64 x 64, with a categorical head or a normal one."""

    def __init__(self, observations, actions, *, discrete, seed):
        super().__init__()
        torch.manual_seed(seed)
        sizes = (observations, 64, 64, actions)
        layers = [layer for pair in itertools.pairwise(sizes) for layer in (torch.nn.Linear(*pair), torch.nn.Tanh())]
        self.layers = torch.nn.Sequential(*layers[:-1])
        with torch.no_grad():
            self.layers[-1].weight *= 0.1
        self.log_deviation = None if discrete else torch.nn.Parameter(torch.zeros(actions))

    def forward(self, observations):
        outputs = self.layers(observations)
        if self.log_deviation is None:
            return torch.distributions.Categorical(logits=outputs)
        return torch.distributions.Normal(2 * outputs, self.log_deviation.exp())


class FastPendulum(DomainVectorEnv):
    """Gymnasium's Pendulum-v1 for many trajectories at once, without its time limit."""

    noise_size = 0

    def __init__(self, num_envs):
        box = gym.spaces.Box(-np.inf, np.inf, (3,), np.float64)
        super().__init__(num_envs, observation_space=box, action_space=gym.spaces.Box(-2, 2, (1,), np.float32))

    def start(self, generator):
        angle, speed = generator.uniform([-np.pi, -1.0], [np.pi, 1.0])
        return np.array([np.cos(angle), np.sin(angle), speed])

    def transition(self, states, actions, noise):
        angles, speeds = np.arctan2(states[:, 1], states[:, 0]), states[:, 2]
        torques = np.clip(actions[:, 0], -2, 2)
        rewards = -(angles**2 + 0.1 * speeds**2 + 0.001 * torques**2)
        speeds = np.clip(speeds + (15 * np.sin(angles) + 3 * torques) * 0.05, -8, 8)
        angles = angles + speeds * 0.05
        return np.stack([np.cos(angles), np.sin(angles), speeds], axis=1), rewards


class FastCartPole(DomainVectorEnv):
    """Gymnasium's CartPole-v1 for many trajectories at once, without its time limit."""

    noise_size = 0
    metadata = {"autoreset_mode": AutoresetMode.DISABLED, "reset_generators": True}  # noqa: RUF012

    def __init__(self, num_envs):
        box = gym.spaces.Box(-np.inf, np.inf, (4,), np.float64)
        super().__init__(num_envs, observation_space=box, action_space=gym.spaces.Discrete(2))

    def start(self, generator):
        return generator.uniform(-0.05, 0.05, 4)

    def transition(self, states, actions, noise):
        place, speed, angle, turn = states.T
        force, sine, cosine = np.where(actions == 1, 10.0, -10.0), np.sin(angle), np.cos(angle)
        push = (force + 0.05 * turn**2 * sine) / 1.1
        turning = (9.8 * sine - cosine * push) / (0.5 * (4 / 3 - 0.1 * cosine**2 / 1.1))
        moving = push - 0.05 * turning * cosine / 1.1
        following = [place + 0.02 * speed, speed + 0.02 * moving, angle + 0.02 * turn, turn + 0.02 * turning]
        return np.stack(following, axis=1), np.ones(len(states))

    def step(self, actions):
        observations, rewards, _, truncated, infos = super().step(actions)
        fallen = (np.abs(observations[:, 0]) > 2.4) | (np.abs(observations[:, 2]) > 12 * 2 * np.pi / 360)
        return observations, rewards, fallen, truncated, infos


TASKS = {
    "CartPole-v1": (FastCartPole, dict(observations=4, actions=2, discrete=True)),
    "Pendulum-v1": (FastPendulum, dict(observations=3, actions=1, discrete=False)),
}


def learn(name, seed, strategy, *, updates, budget, gamma, rate, goal=math.inf, horizon=200):
    """Trains a network by gradients of equal budgets until it reaches the goal; returns it and what that took."""
    make, sizes = TASKS[name]
    network = Network(**sizes, seed=seed)
    optimizer = torch.optim.Adam(network.parameters(), lr=rate, maximize=True)
    spent = 0
    for update in range(updates):
        if goal < math.inf and value_of(network, make(256), gamma, horizon) >= goal:
            return network, spent
        settings = dict(gamma=gamma, horizon=horizon, budget=budget, seed=1000 * seed + update)
        found = rido.gradient(make(64), network, strategy=strategy, baseline="step", **settings)
        for parameter, part in zip(network.parameters(), found.value.values(), strict=True):
            parameter.grad = torch.as_tensor(part, dtype=parameter.dtype)
        optimizer.step()
        spent += found.transitions
    return network, math.inf


@torch.no_grad()
def value_of(network, envs, gamma, horizon):
    """The mean return over a fixed set of starts, with actions sampled: much less noisy than a gradient's estimate."""
    torch.manual_seed(5)
    observations, _ = envs.reset(seed=5)
    total, alive = 0.0, np.ones(envs.num_envs, dtype=bool)
    for step in range(horizon):
        actions = network(torch.as_tensor(observations, dtype=torch.float32)).sample().numpy()
        observations, rewards, ended, _, _ = envs.step(actions)
        total += gamma**step * float(np.mean(rewards * alive))
        alive &= ~ended
    return total


def bank_of(name, network, trajectories, horizon):
    """The policy of a network, and recorded full-length trajectories."""
    env = gym.make(name)
    policy = differentiable_policy(network, env.observation_space, env.action_space)
    simulator = GymnasiumSimulator(name, policy, horizon=horizon)
    observed = simulator.observe(np.full(trajectories, horizon), range(trajectories))
    simulator.close()
    return policy, observed


def networks(quick):
    """Error of the gradients of networks, on banks."""
    horizon, trajectories, repetitions = 200, 40 if quick else 1_000, 2 if quick else 40
    yield from [
        "## CartPole and Pendulum, 64 x 64 networks",
        "",
        f"T = {horizon}, a budget of {50 * horizon:,} transitions. Each policy is evaluated on a bank of "
        f"{trajectories:,} recorded trajectories; {repetitions} runs draw from it with replacement. Errors are those "
        "of 16 random projections. Uniform and oracle: sum f_t / n_t with the bank's weights. Planned: the same sum "
        "for the counts of the runs, which is much less noisy than the mean squared error. Reported: mean of the "
        "squared `standard_error` over the MSE. "
        'Baseline: v_t as in `baseline="step"`, from the bank.',
        "",
        "| policy | mean length | gamma | baseline | uniform's over the oracle's | uniform's over MSE | uniform's over "
        "planned | planned over the oracle's | MSE over the oracle's | reported |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    cases = [
        ("CartPole-v1", "CartPole, random", 0),
        ("CartPole-v1", "CartPole, 20 updates", 2 if quick else 20),
        ("Pendulum-v1", "Pendulum, random", 0),
        ("Pendulum-v1", "Pendulum, 40 updates", 2 if quick else 40),
    ]
    for name, label, updates in cases:
        settings = dict(updates=updates, budget=4_000, gamma=0.99 if "Cart" in name else 0.9, rate=0.01)
        network, _ = learn(name, 0, "uniform", **settings)
        policy, observed = bank_of(name, network, trajectories, horizon)
        directions = random_directions(policy.size, 16, np.random.default_rng(1))
        for gamma in GAMMAS:
            estimator = Gpomdp(policy, horizon=horizon, gamma=gamma, directions=directions)
            plain = estimator.add(observed, np.arange(trajectories) % 2)
            values = estimator.baselines(Division(2)).mean(axis=0)
            helped = Gpomdp(policy, horizon=horizon, gamma=gamma, directions=directions, critic=StepValues(values))
            for baseline, signals in (("none", plain), ("step", helped.add(observed, np.arange(trajectories) % 2))):
                yield (
                    f"| {label} | {signals.steps.mean():.0f} | {gamma:g} | {baseline} | "
                    + replay(signals, gamma, horizon, repetitions)
                )


class StepValues(rido.predictors.base.Critic):
    """A baseline of each step as a critic."""

    name, rowwise = "step", True

    def __init__(self, values):
        self._values = values

    def __call__(self, observations, steps_to_go):
        return self._values[-1 - steps_to_go]


def replay(signals, gamma, horizon, repetitions):
    """Runs the default strategy on a bank; returns the cells of a row."""
    rows = signals.flat.reshape(len(signals), horizon, -1)
    metric = [0.0] + [1.0] * (rows.shape[2] - 1)
    whole = rido.RewardMoments(horizon, gamma=gamma, metric=metric)
    whole.update(signals)
    weights, costs, truth = whole.weights(), whole.survival, whole.means @ whole.discounts
    weights = weights * (1 - 1 / len(signals))
    budget = 50 * horizon
    uniform = float(weights.sum()) * float(costs.sum()) / budget
    oracle = rido.Schedule.optimal(weights, budget, costs=np.maximum(costs, 1e-3)).variance(weights)
    rng, squares, planned, reported = np.random.default_rng(3), [], [], []
    for _ in range(repetitions):
        strategy = rido.Adaptive(horizon=horizon, budget=budget, gamma=gamma)
        strategy.serve(metric)
        while (schedule := strategy.ask()) is not None:
            lengths = schedule.lengths
            drawn = rng.integers(len(signals), size=lengths.size)
            place = np.repeat(drawn * horizon, lengths) + positions(lengths)
            strategy.tell(
                rido.Trajectories.from_flat(signals.flat[place], lengths, np.minimum(lengths, signals.steps[drawn]))
            )
        joint = strategy.joint()
        squares.append(np.sum((joint.values - truth)[1:] ** 2))
        reported.append(np.trace(joint.covariance[1:, 1:]))
        planned.append(strategy.variance(weights))
    squares = np.array(squares)
    gain = uniform / squares.mean()
    noise = gain * squares.std() / squares.mean() / math.sqrt(repetitions)
    return (
        f"{uniform / oracle:.2f} | {gain:.2f} ± {noise:.2f} | {uniform / np.mean(planned):.2f} | "
        f"{np.mean(planned) / oracle:.2f} | {ratio(squares, oracle)} | {np.mean(reported) / squares.mean():.2f} |"
    )


def learn_lqg(seed, strategy, *, updates, budget, gamma, rate, goal, horizon=20):
    """Trains the linear policy; returns the transitions until its expected cost is at most the goal."""
    rng, parameters = np.random.default_rng([11, seed]), torch.tensor([0.1, 0.0], dtype=torch.float64)
    optimizer = torch.optim.Adam([parameters], lr=rate)
    for update in range(updates):
        if expected_return(parameters.numpy(), horizon, gamma) <= goal:
            return update * budget
        vector, _ = run_lqg(
            strategy(horizon=horizon, budget=budget, gamma=gamma), parameters.tolist(), rng, baseline=True
        )
        parameters.grad = torch.as_tensor(vector)
        optimizer.step()
    return math.inf


def learning(quick):
    """Transitions to a given return, adaptive against full length."""
    yield from [
        "## Learning: transitions to a given return",
        "",
        'The same learning rule for both: Adam on gradients of equal budgets, with `baseline="step"`. They differ in '
        "the lengths alone: planned (adaptive) or full. LQG counts as solved when its exact cost has covered 95% of "
        "the way to the best one; the networks when their mean return from 256 fixed starts, which is not counted, has "
        "reached the goal.",
        "",
        "| task | gamma | T | budget of each | goal | seeds | lengths | reached | median transitions | quartiles |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for gamma in (0.9, 1.0):
        horizon, budget = 20, 400
        first = expected_return((0.1, 0.0), horizon, gamma)
        best = min(expected_return((gain, -9.0), horizon, gamma) for gain in np.linspace(0.3, 0.8, 501))
        goal = best + 0.05 * (first - best)
        for name, make in (("adaptive", rido.Adaptive), ("full length", rido.Uniform)):
            settings = dict(updates=3 if quick else 150, budget=budget, gamma=gamma, rate=0.02, goal=goal)
            spent = [learn_lqg(seed, make, **settings) for seed in range(1 if quick else 12)]
            yield (f"| LQG | {gamma:g} | 20 | {budget:,} | cost {goal:.0f} | {len(spent)} | {name} | {reached(spent)}")
    for task, gamma, budget, goal, updates in (
        ("Pendulum-v1", 0.9, 4_000, -50.0, 30),
        ("CartPole-v1", 0.99, 4_000, 70.0, 40),
    ):
        for name in ("adaptive", "uniform"):
            settings = dict(updates=2 if quick else updates, budget=budget, gamma=gamma, rate=0.01, goal=goal)
            spent = [learn(task, seed, name, **settings)[1] for seed in range(1 if quick else 5)]
            label = "full length" if name == "uniform" else name
            yield (f"| {task} | {gamma:g} | 200 | {budget:,} | {goal:g} | {len(spent)} | {label} | {reached(spent)}")


def reached(spent):
    """How many runs reached the goal, and after how many transitions."""
    low, middle, high = np.quantile(spent, [0.25, 0.5, 0.75], method="inverted_cdf")
    shown = [NEVER if math.isinf(number) else f"{number:,.0f}" for number in (middle, low, high)]
    return f"{np.isfinite(spent).sum()} | {shown[0]} | {shown[1]} to {shown[2]} |"


SECTIONS = {"lqg": lqg, "networks": networks, "learning": learning}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--sections", nargs="+", choices=SECTIONS, default=list(SECTIONS))
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    cells = options.output.with_suffix(".json")
    kept = json.loads(cells.read_text()) if cells.exists() else {}
    for name in options.sections:
        kept[name] = []
        for line in SECTIONS[name](options.quick):
            print(line, flush=True)
            kept[name].append(line)
    cells.write_text(json.dumps(kept, indent=1))
    head = [
        "# Policy gradients",
        "",
        "Made by `python benchmarks/gradients.py --output results/gradients.md`, in parts.",
        "",
    ]
    parts = [line for name in SECTIONS if name in kept for line in (*kept[name], "")]
    options.output.write_text("\n".join([*head, *parts]))


if __name__ == "__main__":
    main()
