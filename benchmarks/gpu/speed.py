"""Whole evaluations on a GPU next to bare rollouts: Pendulum, a chain of bodies, Brax's ant, and CartPole in MJX.

Writes a Markdown page.

Needs JAX, numpy and scipy; Brax and MuJoCo Playground are left out where they are missing. From the repository, on the
machine with the GPU:

    PYTHONPATH=src python benchmarks/gpu/speed.py > results/gpu.md

``--small`` runs the same code with small budgets on any machine, ``--only pendulum`` one environment, and
``--sections compare`` one section.
"""

import argparse
import contextlib
import functools
import math
import platform
import statistics
import textwrap
import time

import jax
import jax.numpy as jnp
import numpy as np
import scipy

import rido
import rido.jax

HIDDEN = 64
POLICIES = 64


def network(params, observation):
    """Two hidden layers; the parameters decide."""
    first, second, last = params
    return jnp.tanh(jnp.tanh(observation @ first) @ second) @ last


def squashed(params, observation):
    return jnp.tanh(network(params, observation))


def parameters(seed, inputs, outputs, scale):
    rng = np.random.default_rng(seed)
    shapes = ((2.0, (inputs, HIDDEN)), (1.5, (HIDDEN, HIDDEN)), (scale, (HIDDEN, outputs)))
    return [jnp.asarray(size * rng.normal(size=shape) / math.sqrt(shape[0]), jnp.float32) for size, shape in shapes]


class Case:
    """An environment with policies of one shape."""

    def __init__(self, name, env, apply, inputs, outputs, scale=2.0):
        self.name, self.env, self.apply = name, env, apply
        self.params = [parameters(seed, inputs, outputs, scale) for seed in range(64)]
        self._bare_seconds = {}

    def _bare(self, rows, horizon):
        def run(params, keys):
            def step(carry, _):
                states, observations, total = carry
                actions = jax.vmap(functools.partial(self.apply, params))(observations)
                moved, seen, rewards, _ = jax.vmap(self.env.step)(keys, states, actions)
                moved, seen = jax.tree.map(lambda new, old: new.astype(old.dtype), (moved, seen), carry[:2])
                return (moved, seen, total + rewards), None

            carry = (*jax.vmap(self.env.reset)(keys), jnp.zeros(rows))
            return jax.lax.scan(step, carry, None, horizon)[0][2]

        return jax.jit(run)

    def bare_seconds(self, horizon, transitions, most):
        """Returns the seconds of bare rollouts of so many transitions, whose rewards are only added up."""
        if (horizon, transitions) not in self._bare_seconds:
            rows = min(most, transitions // horizon)
            calls = round(transitions / horizon / rows)
            run, keys = self._bare(rows, horizon), [jax.random.split(jax.random.key(i), rows) for i in range(calls)]
            times = []
            for _ in range(4):
                started = time.perf_counter()
                jax.block_until_ready([run(self.params[0], part) for part in keys])
                times.append(time.perf_counter() - started)
            self._bare_seconds[horizon, transitions] = statistics.median(times[1:])
        return self._bare_seconds[horizon, transitions]

    def evaluate(self, policy=0, **settings):
        started = time.perf_counter()
        result = rido.evaluate(self.env, (self.apply, self.params[policy]), progress=False, **settings)
        return time.perf_counter() - started, result


def pendulum():
    return Case("Pendulum", rido.jax.pendulum(), network, 3, 1)


def chain():
    """Bodies joined by springs: a state of many arrays and a heavy step, for machines without Brax."""
    bodies, substeps, seconds = 12, 16, 0.002

    def observe(state):
        positions, velocities = jnp.stack(state["positions"]), jnp.stack(state["velocities"])
        return jnp.concatenate([(positions - positions[0]).ravel(), velocities.ravel()])

    def reset(key):
        places = 0.5 * jnp.arange(bodies)[:, None] * jnp.array([1.0, 0.0, 0.0]) + jnp.array([0.0, 0.0, 0.5])
        places += 0.05 * jax.random.normal(key, (bodies, 3))
        state = {"positions": [*places], "velocities": [*jnp.zeros((bodies, 3))], "forces": [*jnp.zeros((bodies, 8))]}
        return state, observe(state)

    def step(key, state, action):
        torques = jnp.zeros((bodies, 3)).at[:, 2].set(jnp.tanh(jnp.resize(action, bodies)))

        def move(carry, _):
            places, speeds = carry
            apart = places[1:] - places[:-1]
            length = jnp.linalg.norm(apart, axis=1, keepdims=True)
            pull = 400 * (length - 0.5) * apart / jnp.maximum(length, 1e-3)
            force = jnp.pad(pull, ((0, 1), (0, 0))) - jnp.pad(pull, ((1, 0), (0, 0))) + 20 * torques - 0.5 * speeds
            ground = jax.nn.softplus(-200 * places[:, 2:]) * jnp.array([0.0, 0.0, 1.0]) - jnp.array([0.0, 0.0, 9.81])
            speeds = jnp.clip(speeds + seconds * (force + ground), -20, 20)
            return (places + seconds * speeds, speeds), force

        start = jnp.stack(state["positions"]), jnp.stack(state["velocities"])
        (places, speeds), forces = jax.lax.scan(move, start, None, substeps)
        kept = jnp.resize(forces[-1], (bodies, 8))
        state = {"positions": [*places], "velocities": [*speeds], "forces": [*kept]}
        return state, observe(state), speeds[:, 0].mean() + places[:, 2].mean(), jnp.bool_(False)

    return Case("Chain of bodies", rido.jax.JaxEnv("Chain", reset, step), network, 6 * bodies, 8, 0.3)


def ant():
    from brax import envs

    env = envs.get_environment("ant", backend="spring")
    return Case("Brax ant (spring)", rido.jax.adapt(env), squashed, env.observation_size, env.action_size, 0.3)


def cartpole():
    from mujoco_playground import dm_control_suite

    env = dm_control_suite.load("CartpoleBalance", config_overrides={"impl": "jax"})
    name = "Playground CartpoleBalance (MJX)"
    return Case(name, rido.jax.adapt(env), squashed, env.observation_size, env.action_size)


CASES = (pendulum, chain, ant, cartpole)


def cases(only):
    """Yields the cases whose packages are there."""
    for make in CASES:
        if not only or make.__name__ == only:
            with contextlib.suppress(ImportError):
                yield make()


def speed_rows(case, settings, repeats, most):
    """Yields a row for each setting: the evaluation's time next to the bare rollout's."""
    for horizon, budget, gamma, strategy in settings:
        chosen = dict(horizon=horizon, budget=budget, gamma=gamma, strategy=strategy)
        first, _ = case.evaluate(seed=1000, **chosen)
        quick = case.evaluate(seed=0, **chosen)[0] < 1
        for seed in range(1, repeats if quick else 1):  # sizes that another seed needs are compiled now
            case.evaluate(seed=seed, **chosen)
        runs = sorted(
            (case.evaluate(seed=seed, **chosen) for seed in range(repeats if quick else 1)), key=lambda x: x[0]
        )
        seconds, result = runs[len(runs) // 2]
        bare = case.bare_seconds(horizon, budget, most) * result.transitions / budget
        yield (
            chosen,
            result,
            [
                case.name,
                f"{horizon:,}",
                f"{budget:.0e}",
                f"{gamma}",
                strategy,
                f"{first:.1f} s",
                f"{1000 * seconds:.0f} ms",
                f"{1000 * bare:.0f} ms",
                f"{seconds / bare:.2f}",
                f"{result.transitions / seconds:.3g}",
                f"{1000 * result.planning_seconds:.0f} ms",
                f"{result.trajectories:,}",
                f"{seconds * result.standard_error**2:.3g}",
            ],
        )


def evaluator_rows(case, budget, horizon):
    """Yields the time and error of Brax's own evaluator with as many transitions."""
    from brax import envs
    from brax.training import acting

    def make_policy(params):
        return lambda observation, key: (case.apply(params, observation), {})

    env = envs.training.wrap(envs.get_environment("ant", backend="spring"), episode_length=horizon)
    settings = dict(num_eval_envs=budget // horizon, episode_length=horizon, action_repeat=1, key=jax.random.PRNGKey(0))
    evaluator = acting.Evaluator(env, make_policy, **settings)
    for _ in range(2):  # both compile
        evaluator.run_evaluation(case.params[0], {})
    started = time.perf_counter()
    found = evaluator.run_evaluation(case.params[0], {})
    seconds, variance = time.perf_counter() - started, found["eval/episode_reward_std"] ** 2 / (budget // horizon)
    value = f"{found['eval/episode_reward']:.3f} +- {math.sqrt(variance):.2g}"
    yield [case.name, f"{budget:.0e}", f"{1000 * seconds:.0f} ms", value, f"{seconds * variance:.3g}"]


def comparison_rows(case, budget, horizon, most):
    """Yields the time of comparing policies that are equally good, so that the whole budget is spent."""

    def act(params, observation, key):
        number, layers = params
        action = case.apply(layers, observation)
        return action + 0.1 * jax.random.normal(jax.random.fold_in(key, number), action.shape)

    policies = {f"policy {number}": (act, (jnp.int32(number), case.params[0])) for number in range(POLICIES)}
    settings = dict(horizon=horizon, gamma=1.0, budget=budget, progress=False)
    times = []
    for seed in (0, 1, 1):  # sizes that another seed needs are compiled before the last
        started = time.perf_counter()
        result = rido.compare(case.env, policies, seed=seed, **settings)
        times.append(time.perf_counter() - started)
    seconds = times[-1]
    bare = case.bare_seconds(horizon, budget, most) * result.transitions / budget
    looks = f"{result.rewards.rounds} rounds, {len(result.exits)} dropped out"
    cells = [case.name, f"{result.transitions:.2e}", f"{times[0]:.1f} s", f"{1000 * seconds:.0f} ms"]
    cells += [f"{1000 * result.seconds:.0f} ms", f"{1000 * bare:.0f} ms", f"{bare / seconds:.2f}", looks]
    yield cells


def table(head, rows):
    print("| " + " | ".join(head) + " |")
    print("|" + "---|" * len(head))
    for row in rows:
        print("| " + " | ".join(row) + " |", flush=True)
    print()


def settings_of(case, small):
    if small:
        return [(20, 1_100_000, 0.9, "adaptive"), (20, 1_100_000, 0.9, "uniform")]
    if case.name == "Pendulum":
        large = [(200, 200_000_000, gamma, how) for gamma in (1.0, 0.9) for how in ("adaptive", "uniform")]
        long = [(1000, 200_000_000, 1.0, "adaptive"), (1000, 2_000_000, 1.0, "adaptive")]
        return [*large, *long, (200, 2_000_000, 1.0, "adaptive")]
    budgets = (20_000_000, 2_000_000)
    return [(200, b, gamma, how) for b in budgets for gamma in (1.0, 0.97) for how in ("adaptive", "uniform")]


def speed(done, options):
    """Yields the section on speed, and the one that says whether the numbers are right."""
    repeats, most = sizes_of(options)
    head = ["environment", "T", "budget", "gamma", "strategy", "first call", "later calls", "bare rollout", "ratio"]
    head += ["transitions/s", "planning", "trajectories", "s x error^2"]
    results = []

    def rows():
        for case in done:
            for chosen, result, row in speed_rows(case, settings_of(case, options.small), repeats, most):
                results.append((case, chosen, result))
                yield row

    text = f"""
        `rido.evaluate` from the call to the result: planning, seeds, rollouts, moments, error bars and warnings. The
        first call compiles; later ones are the median of {repeats} with other seeds (one run where it takes more than a
        second). Beside it is the bare rollout of as many transitions in the same process: full-length trajectories side
        by side whose rewards are only added up. The last column is seconds times squared standard error: half of it
        means the same error in half the time."""
    section("Speed", text, head, rows())

    def checks():
        for case, chosen, result in results:
            if chosen["strategy"] != "adaptive":
                continue
            _, uniform = case.evaluate(seed=7, **{**chosen, "strategy": "uniform"})
            _, again = case.evaluate(seed=result.seed, **chosen)
            distance = (result.value - uniform.value) / math.hypot(result.standard_error, uniform.standard_error)
            same = "the same bits" if again.value == result.value else "other bits"
            values = (f"{run.value!r} +- {run.standard_error:.2g}" for run in (result, uniform))
            yield [case.name, f"{chosen['horizon']}", f"{chosen['gamma']}", *values, f"{distance:+.2f}", same]

    head = ["environment", "T", "gamma", "adaptive", "uniform", "difference in standard errors", "again"]
    section(
        "Is it right?", "Adaptive against uniform evaluation, and against itself in the same process.", head, checks()
    )


def following(done, options):
    """Yields the time of further policies of the same shape."""

    def rows():
        for case in done:
            chosen = dict(horizon=20 if options.small else 200, budget=1_100_000 if options.small else 2_000_000)
            chosen |= dict(gamma=1.0, strategy="uniform")
            case.evaluate(seed=1, **chosen)
            again = min(case.evaluate(seed=2, **chosen)[0] for _ in range(3))
            new = [case.evaluate(policy, seed=2, **chosen)[0] for policy in (1, 2, 3)]
            yield [case.name, f"{1000 * again:.1f} ms", ", ".join(f"{1000 * seconds:.1f} ms" for seconds in new)]

    text = "Another set of parameters, `(apply, params)`. Compared with the first policy again."
    section("The next policy of the same shape", text, ["environment", "first policy again", "three new ones"], rows())


def compare(done, options):
    """Yields the time of a comparison of many policies."""
    text = """
        `rido.compare`, gamma 1, T = 200, of policies that are equally good and draw noise of their own, so that the
        whole budget is spent. Rollouts are the part of the time in which trajectories are collected. The speed is that
        of the whole call over that of the bare rollout of one policy without noise."""
    head = ["environment", "transitions", "first call", "later call", "rollouts", "bare rollout", "speed", ""]
    budget, horizon = (20_000, 20) if options.small else (20_000_000, 200)
    rows = (row for case in done for row in comparison_rows(case, budget, horizon, sizes_of(options)[1]))
    section(f"{POLICIES} policies compared in one program", text, head, rows)


def evaluator(done, options):
    """Yields the time of Brax's own evaluator."""
    for case in done:
        if case.name.startswith("Brax"):
            text = "`brax.training.acting.Evaluator`, gamma 1, T = 200, one episode for each environment; third call."
            head = ["environment", "transitions", "time", "value", "s x error^2"]
            horizon, budgets = (20, (2_000,)) if options.small else (200, (2_000_000, 20_000_000))
            rows = (row for budget in budgets for row in evaluator_rows(case, budget, horizon))
            section("Brax's own evaluator", text, head, rows)


def sizes_of(options):
    """Repetitions, and trajectories that run together at most in bare rollouts."""
    return (1, 1024) if options.small else (3, 1 << 20)


def section(title, text, head, rows):
    print(f"## {title}\n\n{textwrap.fill(' '.join(text.split()), 120)}\n")
    table(head, rows)


SECTIONS = {function.__name__: function for function in (speed, following, compare, evaluator)}


def main(arguments=None):
    parser = argparse.ArgumentParser()
    parser.add_argument("--small", action="store_true", help="small budgets, for machines without a GPU")
    parser.add_argument(
        "--only", default="", choices=["", "pendulum", "chain", "ant", "cartpole"], help="one environment"
    )
    parser.add_argument("--sections", nargs="+", default=list(SECTIONS), choices=list(SECTIONS))
    options = parser.parse_args(arguments)
    print("# Whole evaluations on a GPU\n")
    print(
        f"Made by `benchmarks/gpu/speed.py{' --small' if options.small else ''}` on one {jax.devices()[0].device_kind}"
    )
    print(f"with JAX {jax.__version__}, numpy {np.__version__}, scipy {scipy.__version__}, Python", end=" ")
    print(f"{platform.python_version()}. Policies are networks of two hidden layers of {HIDDEN} with random weights.\n")
    done = list(cases(options.only))
    for name in options.sections:
        SECTIONS[name](done, options)


if __name__ == "__main__":
    main()
