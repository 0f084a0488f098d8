"""Rules of one observation as a user would write them, for any observation and action space; none is linear."""

import gymnasium as gym
import numpy as np


def softmax(x):
    e = np.exp(x - x.max())
    return e / e.sum()


CONTINUOUS = (  # from an observation of numbers to as many
    lambda x: np.tanh(np.sort(x)),
    softmax,
    lambda x: (x - x.mean()) / (np.linalg.norm(x) + 1.0),
    lambda x: np.sin(np.cumsum(x)),
    lambda x: np.tanh(np.roll(x, 1) * x),
    lambda x: -x / np.linalg.norm(x) if np.linalg.norm(x) > 1 else x,
)
DISCRETE = (  # from an observation of numbers to a choice, before the remainder is taken
    lambda x: int(7 * np.linalg.norm(x)),
    lambda x: int(np.argmax(x)),
    lambda x: int(3 * np.sort(x)[len(x) // 2]),
    lambda x: 1 if x.max() > 2 * abs(x.mean()) else int(x.sum()),
)


def numbers(observation):
    """All numbers of an observation, by the names of its parts; a text is as much as its length."""
    if isinstance(observation, dict):
        return np.concatenate([numbers(observation[key]) for key in sorted(observation)])
    if isinstance(observation, tuple):
        return np.concatenate([numbers(part) for part in observation] or [np.zeros(1)])
    if isinstance(observation, str):
        return np.array([float(len(observation))])
    if hasattr(observation, "nodes"):  # of a Graph
        return np.ravel(observation.nodes).astype(float)
    found = np.nan_to_num(np.ravel(observation).astype(float))
    return found if found.size else np.zeros(1)


def rule(key, observations, actions):
    """The rule of an environment; ``key`` chooses among those that fit its spaces."""
    parts = observations.spaces if isinstance(observations, gym.spaces.Dict) else {}
    goal = parts.get("desired_goal")
    if isinstance(actions, gym.spaces.Dict):
        each = {name: rule(key, observations, part) for name, part in actions.items()}
        return lambda o: {name: act(o) for name, act in each.items()}
    if isinstance(actions, gym.spaces.Tuple):
        all_of_them = [rule(key, observations, part) for part in actions]
        return lambda o: tuple(act(o) for act in all_of_them)
    if isinstance(actions, gym.spaces.Box):
        if isinstance(goal, gym.spaces.Box):
            return toward(goal.shape[0], actions.shape[0])
        return continuous(CONTINUOUS[key % len(CONTINUOUS)], observations, actions)
    choose = DISCRETE[key % len(DISCRETE)]
    if isinstance(actions, gym.spaces.Discrete):
        first, count = int(actions.start), int(actions.n)
        if isinstance(observations, gym.spaces.Discrete):
            return lambda o: first + (int(o) ** 2 + 1) % count
        if isinstance(observations, gym.spaces.Box) and len(observations.shape) == 1:
            return lambda o: first + choose(o) % count
        return lambda o: first + choose(numbers(o)) % count
    if isinstance(actions, gym.spaces.MultiDiscrete):
        return lambda o: (np.resize(np.sort(np.abs(numbers(o)) * 7), actions.shape)).astype(int) % actions.nvec
    if isinstance(actions, gym.spaces.MultiBinary):
        return lambda o: (np.resize(numbers(o), actions.shape) > numbers(o).mean()).astype(np.int8)
    raise ValueError(f"there is no rule for {actions}")


def toward(goal, action):
    """A step towards the goal, whose first numbers are a place."""
    if goal == action:

        def act(o):
            d = o["desired_goal"] - o["achieved_goal"]
            return d / np.linalg.norm(d)

        return act

    def act_longer(o):
        d = (o["desired_goal"] - o["achieved_goal"])[:action]
        a = np.zeros(action)
        a[: len(d)] = d / (np.linalg.norm(d) + 1e-8)
        return a

    return act_longer


def continuous(form, observations, actions):
    plain = isinstance(observations, gym.spaces.Box) and observations.shape == actions.shape
    bounded = np.isfinite(actions.low).all() and np.isfinite(actions.high).all()
    middle = (actions.high.astype(float) + actions.low) / 2 if bounded else 0.0
    half = (actions.high.astype(float) - actions.low) / 2 if bounded else 1.0
    if plain:  # nothing must be cut off or repeated: a function of whole arrays, which also works on a batch
        return lambda o: middle + half * form(o)
    return lambda o: middle + half * np.resize(form(numbers(o)), actions.shape)


def jax_random(space):
    """As the loop of a user: a function of the observation and a key."""

    def act(observation, key):
        return space.sample(key)

    return act


def jax_rule(space):
    import jax
    import jax.numpy as jnp

    def act(observation):
        x = jnp.concatenate([jnp.ravel(leaf).astype(float) for leaf in jax.tree.leaves(observation)])
        if hasattr(space, "n"):
            return (7 * jnp.linalg.norm(jnp.sort(x)[: max(1, x.size // 2)])).astype(int) % space.n
        low, high = jnp.broadcast_to(space.low, space.shape), jnp.broadcast_to(space.high, space.shape)
        return low + (high - low) * (1 + jnp.resize(jnp.sin(jnp.cumsum(x)), space.shape)) / 2

    return act
