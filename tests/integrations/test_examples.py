"""The examples train for a moment, and their evaluations agree with plain episodes of the agent that came out."""

import importlib.util
from functools import partial
from pathlib import Path

import gymnasium as gym
import numpy as np

from helpers import needs

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def load(name):
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def agrees(result, returns):
    """Five standard deviations of the difference of two means are a false alarm in 2 million."""
    error = np.hypot(result.standard_error, np.std(returns) / np.sqrt(len(returns)))
    return abs(result.value - np.mean(returns)) < 5 * error


def test_a_loop_in_the_style_of_cleanrl():
    needs("torch", "sb3")
    agent, results = load("cleanrl_style").main(updates=2, every=1, budget=3000)
    returns, env = [], gym.make("CartPole-v1")
    for episode in range(40):
        observation, _ = env.reset(seed=episode)
        total, over = 0.0, False
        while not over:
            observation, reward, terminated, truncated, _ = env.step(int(agent.act(observation[None])[0]))
            total, over = total + reward, terminated or truncated
        returns.append(total)
    assert len(results) == 2 and agrees(results[-1], returns)
    # What is left is less than an episode's 500 steps; the rehearsal takes at most 100 more.
    assert all(2500 < result.transitions <= 3100 for result in results)


def test_a_loop_that_spends_its_budget_by_gradients():
    """Its first gradient is that of the closed form: five standard errors are a false alarm in 2 million."""
    needs("torch", "sb3")
    policy, found = load("policy_gradient").main(updates=2, budget=500)
    gain, curvature, constant = 0.1 + 1e-30j, 0.0, 0.0  # of the cost to go, by a complex step
    for _ in range(20):
        constant = 1.1 + 0.9 * (1.2 * curvature + constant)
        curvature = 1 + gain**2 + 0.9 * (1 - gain) ** 2 * curvature
    slope = (curvature * 80**2 / 3 + constant).imag / 1e-30
    assert abs(found[0].value["gain"] - slope) < 5 * found[0].standard_error < 10 * abs(slope)
    assert all(gradient.transitions <= 500 for gradient in found) and policy.gain.item() != 0.1


def test_a_loop_in_jax():
    jax = needs("jax", "jax")
    example = load("jax_training")
    params, results = example.main(updates=2, every=2, budget=4000)
    policy = partial(example.act, params)

    def play(key):
        key, start = jax.random.split(key)

        def step(carry, key):
            state, observation = carry
            state, observation, reward, _ = example.ENV.step(key, state, policy(observation))
            return (state, observation), reward

        return jax.lax.scan(step, example.ENV.reset(start), jax.random.split(key, example.HORIZON))[1].sum()

    returns = jax.jit(jax.vmap(play))(jax.random.split(jax.random.key(7), 400))
    assert [result.transitions for result in results] == [4000] and agrees(results[-1], np.asarray(returns))
