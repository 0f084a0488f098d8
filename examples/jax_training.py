"""PPO on Pendulum in pure JAX, in the style of PureJaxRL, with rido.evaluate between updates.

Training and evaluation run on the same device, in the same environment. Every evaluated policy is compiled anew, which
takes about a second.

python examples/jax_training.py             trains for 150 updates, 1.2 million steps
python examples/jax_training.py --updates 2
"""

import argparse
from functools import partial
from itertools import pairwise

import jax
import jax.numpy as jnp
from jax.example_libraries import optimizers

import rido
import rido.jax

NUM_ENVS, STEPS, HORIZON = 256, 32, 200
GAMMA, LAMBDA, EPOCHS, MINIBATCHES, CLIP = 0.95, 0.95, 8, 8, 0.2

ENV = rido.jax.pendulum()
ADAM = optimizers.adam(1e-3)


@jax.jit
def initial(key):
    """Return the weights of actor and critic, and the logarithm of the actor's standard deviation."""
    layers = list(pairwise((3, 64, 64, 1)))
    keys = jax.random.split(key, 2 * len(layers)).reshape(2, len(layers))
    actor, critic = [
        [(jax.random.normal(k, size) / size[0] ** 0.5, jnp.zeros(size[1])) for k, size in zip(row, layers, strict=True)]
        for row in keys
    ]
    return {"actor": actor, "critic": critic, "log_std": jnp.zeros(1)}


def forward(layers, x):
    """Return a network's output."""
    for weight, bias in layers[:-1]:
        x = jnp.tanh(x @ weight + bias)
    return x @ layers[-1][0] + layers[-1][1]


def act(params, observation):
    """Return the action without its noise for one observation, as rido takes it."""
    return 2.0 * forward(params["actor"], observation)


def log_prob(params, observation, action):
    """Return the logarithm of the density of an action, up to a constant."""
    error = (action - forward(params["actor"], observation)) / jnp.exp(params["log_std"])
    return (-0.5 * error**2 - params["log_std"]).sum(-1)


def collect(params, carry):
    """Take STEPS steps in all environments; an environment starts anew after HORIZON steps."""

    def step(carry, _):
        key, states, observations, age = carry
        key, noise, stepping, resetting = jax.random.split(key, 4)
        means = forward(params["actor"], observations)
        actions = means + jnp.exp(params["log_std"]) * jax.random.normal(noise, means.shape)
        moved, seen, rewards, _ = jax.vmap(ENV.step)(jax.random.split(stepping, NUM_ENVS), states, 2.0 * actions)
        fresh = jax.vmap(ENV.reset)(jax.random.split(resetting, NUM_ENVS))
        over = (age + 1) % HORIZON == 0
        following = GAMMA * forward(params["critic"], seen)[:, 0]  # a time limit is no end: its value counts
        moved, seen = jax.tree.map(
            lambda new, old: jnp.where(over.reshape(-1, *[1] * (old.ndim - 1)), new, old), fresh, (moved, seen)
        )
        values = forward(params["critic"], observations)[:, 0]
        delta = rewards / 10 + following - values
        row = observations, actions, log_prob(params, observations, actions), values, delta, over
        return (key, moved, seen, age + 1), row

    carry, (observations, actions, log_probs, values, deltas, over) = jax.lax.scan(step, carry, None, STEPS)

    def back(advantage, row):
        delta, over = row
        advantage = delta + GAMMA * LAMBDA * jnp.where(over, 0.0, advantage)
        return advantage, advantage

    _, advantages = jax.lax.scan(back, jnp.zeros(NUM_ENVS), (deltas, over), reverse=True)
    batch = observations, actions, log_probs, advantages, advantages + values
    return carry, jax.tree.map(lambda array: array.reshape(NUM_ENVS * STEPS, *array.shape[2:]), batch)


def loss(params, batch):
    """Return PPO's loss."""
    observations, actions, old, advantages, returns = batch
    ratio = jnp.exp(log_prob(params, observations, actions) - old)
    gain = (advantages - advantages.mean()) / (advantages.std() + 1e-8)
    policy_loss = -jnp.minimum(gain * ratio, gain * jnp.clip(ratio, 1 - CLIP, 1 + CLIP)).mean()
    return policy_loss + 0.5 * ((forward(params["critic"], observations)[:, 0] - returns) ** 2).mean()


@partial(jax.jit, static_argnames="count")
def train(optimizer, carry, count):
    """Make some updates, all on the device."""

    def update(state, _):
        optimizer, carry = state
        carry, batch = collect(ADAM.params_fn(optimizer), carry)

        def minibatch(optimizer, rows):
            part = jax.tree.map(lambda array: array[rows], batch)
            gradient = jax.grad(loss)(ADAM.params_fn(optimizer), part)
            return ADAM.update_fn(0, optimizers.clip_grads(gradient, 0.5), optimizer), None

        shape = EPOCHS * MINIBATCHES, NUM_ENVS * STEPS // MINIBATCHES
        optimizer, _ = jax.lax.scan(minibatch, optimizer, jax.random.randint(carry[0], shape, 0, NUM_ENVS * STEPS))
        return (optimizer, carry), None

    return jax.lax.scan(update, (optimizer, carry), None, count)[0]


def main(updates=150, every=50, budget=20_000, seed=0):
    """Train; return the parameters and the evaluations."""
    key, ages, starts, weights = jax.random.split(jax.random.key(seed), 4)
    states, observations = jax.jit(jax.vmap(ENV.reset))(jax.random.split(starts, NUM_ENVS))
    carry = key, states, observations, jax.random.randint(ages, (NUM_ENVS,), 0, HORIZON)
    optimizer, results = ADAM.init_fn(initial(weights)), []
    for count in range(every, updates + 1, every):
        optimizer, carry = train(optimizer, carry, every)
        policy = act, ADAM.params_fn(optimizer)  # parameters are arguments, so that only the first evaluation compiles
        result = rido.evaluate(ENV, policy, budget=budget, gamma=1.0, horizon=HORIZON, seed=seed)
        low, high = result.interval()
        print(f"step {count * STEPS * NUM_ENVS}: mean return {result.value:.0f}, 95% interval [{low:.0f}, {high:.0f}]")
        results.append(result)
    return ADAM.params_fn(optimizer), results


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="PPO on Pendulum in JAX, evaluated by rido.")
    parser.add_argument("--updates", type=int, default=150)
    parser.add_argument("--every", type=int, default=50)
    arguments = parser.parse_args()
    main(arguments.updates, min(arguments.every, arguments.updates))
