"""Functions, random actions and objects with predict()."""

import numpy as np
import recipes


def batch_function(env):
    policy = recipes.policy("A function of batches")
    return policy, lambda seen, first: policy(seen[None])[0]


def one_function(env):
    return recipes.policy("A function of one observation"), lambda seen, first: int(seen[2] > 0)


def drawing_function(env):
    generator = np.random.default_rng(12345)

    def act(seen, first):
        push = seen[2] > 0
        return int(push) if generator.random() < 0.9 else int(not push)

    return recipes.policy("A function of one observation", 1), act


def damping(env):
    """A proportional controller of the first numbers that an environment shows."""
    size = env.action_space.shape[0]
    return lambda seen: -0.5 * seen[:, -size:].astype(float), lambda seen, first: -0.5 * seen[-size:].astype(float)


def towards_the_goal(env):
    batch = lambda seen: np.clip(seen["goal"] - seen["position"], -1, 1)  # noqa: E731
    return batch, lambda seen, first: np.clip(seen["goal"] - seen["position"], -1, 1)


def by_table(env):
    table = np.random.default_rng(0).integers(env.action_space.n, size=env.observation_space.n)
    return (lambda seen: table[seen]), lambda seen, first: int(table[seen])


def by_memory(env):
    """Fires, or moves by a byte of the console's memory."""
    batch = lambda seen: 1 + (seen.sum(axis=1, dtype=int) % 3 == 0)  # noqa: E731
    return batch, lambda seen, first: 1 + int(int(seen.sum(dtype=int)) % 3 == 0)


def by_direction(env):
    """Of one observation with text: turn at walls, else go forward more often than not."""

    def policy(observation, generator):
        ahead = observation["image"][3, 5, 0]  # 2 is a wall
        assert observation["mission"] == "get to the green goal square"
        return 2 if ahead != 2 and generator.random() < 0.8 else int(generator.integers(2))

    generator = np.random.default_rng(7)
    return policy, lambda seen, first: policy(seen, generator)


def nearest_lever(env):
    return (
        lambda seen: np.floor((seen + 1) / 2 * [3, 4]).clip(0, [2, 3]).astype(int),
        lambda seen, first: [min(int((seen[0] + 1) / 2 * 3), 2), min(int((seen[1] + 1) / 2 * 4), 3)],
    )


def random_actions(env):
    env.action_space.seed(99)
    return "random", lambda seen, first: env.action_space.sample()


def scikit_learn(env):
    from sklearn.tree import DecisionTreeClassifier

    rows = np.random.default_rng(0).normal(size=(500, env.observation_space.shape[0]))
    tree = DecisionTreeClassifier(max_depth=4, random_state=0).fit(rows, rows[:, 2] + 0.1 * rows[:, 1] > 0)
    tree.classes_ = np.array([0, 1])
    return recipes.policy("An object with predict", tree=tree), lambda seen, first: int(tree.predict(seen[None])[0])
