"""What the host does around the programs of a GPU, measured on any machine: sizes are those of a GPU.

    PYTHONPATH=src python benchmarks/gpu/host.py

- ``comparison``: CPU seconds of ``rido.compare`` with 64 policies whose rollouts are replayed from memory.
- ``slots``: steps of slots over transitions in the rounds of that comparison, for steps as heavy as those of an ant.
- ``compilations``: programs that are compiled for policies of one shape whose episodes end earlier and earlier.
"""

import argparse
import logging
import time
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np

import rido
import rido.jax
from rido.simulators.jax import layout, together

HEAVY = 1000  # bytes of a slot
ROUNDS = (128, 128, 256, 512, 538)  # full-length trajectories of each of 64 policies for 2e7 transitions, T = 200
POLICIES, LANES, HORIZON = 64, 256, 200


def gpu():
    with mock.patch("jax.default_backend", return_value="gpu"):
        return layout.Device.default(None)


def comparison(budget):
    """Prints the CPU time of a comparison without its rollouts, the least of four."""

    def act(params, observation, key):
        number, weights = params
        action = jnp.tanh(observation @ weights)
        return action + 0.1 * jax.random.normal(jax.random.fold_in(key, number), action.shape)

    weights = jnp.asarray(np.random.default_rng(0).normal(size=(3, 1)), jnp.float32)
    policies = {f"policy {number}": (act, (jnp.int32(number), weights)) for number in range(POLICIES)}
    roll_out, kept, turn = together.roll_out, [], iter(())

    def replayed(*given):
        place = next(turn)
        if place == len(kept):
            kept.append(jax.block_until_ready(roll_out(*given)))
        return kept[place]

    times = []
    with mock.patch.object(together, "roll_out", replayed):
        for _ in range(5):
            turn, started = iter(range(100)), time.process_time()
            settings = dict(gamma=1.0, horizon=HORIZON, budget=budget, seed=1, progress=False)
            result = rido.compare(rido.jax.pendulum(), policies, **settings)
            times.append(time.process_time() - started)
    print(f"comparison: {min(times[1:]):.2f} s on the host for {result.transitions:,} transitions, {len(kept)} rounds")


def slots():
    """Prints the steps that slots take, as far as no trajectory ends early."""
    lane, work = gpu().in_lanes(LANES), 0
    for count in ROUNDS:
        each = -(-count * POLICIES // LANES)
        wide = lane.choose_slots(np.full(HORIZON, each), HEAVY)
        waves, rest = divmod(each, wide)
        work += HORIZON * LANES * (waves * wide + (lane.fewer_slots(wide, rest, HEAVY) if rest else 0))
    print(f"slots: {work / (HORIZON * POLICIES * sum(ROUNDS)):.2f} steps of slots for each transition")


def compilations(strategy, budget, deaths):
    """Prints how many programs each policy compiles."""
    names, handler = [], logging.Handler()
    handler.emit = lambda record: names.append(record.getMessage())
    handler.addFilter(lambda record: record.getMessage().startswith("Finished XLA compilation"))
    logger = logging.getLogger("jax")
    logger.addHandler(handler)

    def step(key, state, action):
        moved = 0.9 * state + 0.1 * jax.random.normal(key, state.shape)
        return moved, moved[:2], moved.sum(), jax.random.uniform(key) < action

    def reset(key):
        state = jax.random.normal(key, (HEAVY // 4,))
        return state, state[:2]

    env = rido.jax.JaxEnv("Mortal", reset, step)
    for death in deaths:
        names.clear()
        policy = constant, jnp.float32(death)
        with jax.log_compiles():
            rido.evaluate(env, policy, budget=budget, gamma=1.0, horizon=HORIZON, strategy=strategy, seed=1)
        seconds = sum(float(name.split(" in ")[1].split()[0]) for name in names)
        print(f"compilations: {strategy}, an end with {death:g} a step: {len(names)} programs, {seconds:.1f} s")
    logger.removeHandler(handler)


def constant(params, observation):
    return params


def main(arguments=None):
    parser = argparse.ArgumentParser()
    parser.add_argument("--small", action="store_true", help="a smaller comparison, and no evaluations")
    options = parser.parse_args(arguments)
    device = gpu()
    with mock.patch.object(layout.Device, "default", lambda num_envs: device):
        comparison(2_000_000 if options.small else 20_000_000)
        slots()
        for strategy in () if options.small else ("uniform", "adaptive"):
            compilations(strategy, 1_200_000, (0.0, 0.002, 0.01))


if __name__ == "__main__":
    main()
