"""The plain loop is the reference: trajectories are those of a loop as a user writes it, to the last bit."""

import inspect
from functools import partial

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv, VectorEnv

import rido
from helpers import needs
from rido.simulators.base import SimulationError
from rido.simulators.gymnasium import GymnasiumSimulator
from rido.simulators.parallel.processes import WorkerSimulator

LENGTHS = np.array([20, 3, 20, 11, 1, 7, 20])
SEEDS = list(range(50, 50 + LENGTHS.size))


def plain_loop(env, policy, reset=None):
    """Rewards of the trajectories, one after the other."""
    rewards = []
    for length, seed in zip(LENGTHS.tolist(), SEEDS, strict=True):
        observation, _ = env.reset(seed=seed)
        if reset is not None:
            reset()
        trajectory = []
        for _ in range(length):
            observation, reward, terminated, truncated, _ = env.step(policy(observation))
            trajectory.append(float(np.squeeze(reward)))
            if terminated or truncated:
                break
        rewards.append(trajectory)
    return rewards


def rollout(env, policy, **settings):
    simulator = GymnasiumSimulator(env, policy, horizon=20, **settings)
    return rewards_of(simulator.rollout(LENGTHS, SEEDS))


def rewards_of(batch):
    return [row[:steps].tolist() for row, steps in zip(batch.rewards, batch.steps, strict=True)]


def assert_plain(make, policy, make_policy=None, **settings):
    """Compares with the loop, for several numbers of environments; policies with a memory are made anew each time."""
    fresh = make_policy or (lambda: policy)
    first = fresh()
    expected = plain_loop(make(), first, getattr(first, "reset", None))
    for num_envs in (1, 4, 16):
        assert rollout(make, fresh(), num_envs=num_envs, **settings) == expected
    return expected


class Point(gym.Env):
    """A point in the plane that actions push; it may end early, far from the origin. Noise is in every step."""

    def __init__(self, actions=None, observations=None, wrap=lambda place: place, reward=float):
        self.action_space = actions or spaces.Box(-1, 1, (2,), np.float64)
        self.observation_space = observations or spaces.Box(-np.inf, np.inf, (2,), np.float64)
        self.wrap, self.reward = wrap, reward

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place = self.np_random.normal(size=2)
        return self.wrap(self.place.copy()), {}

    def step(self, action):
        push = np.resize(np.asarray(action, dtype=float), 2)
        self.place = self.place + 0.3 * push + 0.1 * self.np_random.normal(size=2)
        far = float(np.abs(self.place).sum())
        return self.wrap(self.place.copy()), self.reward(-far), far > 4, False, {}


MIXING = {
    "norm": lambda o: -o / np.linalg.norm(o),
    "softmax": lambda o: np.exp(o) / np.exp(o).sum(),
    "centred": lambda o: o - o.mean(),
    "sorted": lambda o: np.sort(o, axis=0),
    "cumulative": lambda o: np.cumsum(o, axis=0),
    "rolled": lambda o: np.roll(o, 1, axis=0),
    "condition": lambda o: -o if np.linalg.norm(o) > 1 else o,
    "largest": lambda o: -o / np.abs(o).max(),
}


@pytest.mark.parametrize("name", MIXING)
def test_functions_of_one_observation_mix_no_rows(name):
    assert_plain(Point, MIXING[name])


def test_functions_with_an_axis_as_long_as_a_block():
    frames = spaces.Box(-np.inf, np.inf, (4, 8), np.float64)
    make = partial(Point, spaces.Discrete(3), frames, lambda place: np.outer(np.arange(4), np.resize(place, 8)))
    assert_plain(make, lambda o: np.where(o[-1, 3] < -0.2, 2, 0))


@pytest.mark.parametrize("wrap", [lambda o: o / 255.0, lambda o: 300 + 0 * o, lambda o: o.astype(np.float64) / 3])
def test_observations_are_not_cast_to_their_space(wrap):
    pixels = spaces.Box(0, 255, (2,), np.uint8)
    assert_plain(partial(Point, None, pixels, lambda place: wrap(100 * place)), lambda o: -np.sign(o) * np.abs(o) % 1)


def test_agents_on_batches_get_observations_that_are_not_cast_either():
    make = partial(Point, None, spaces.Box(0, 255, (2,), np.uint8))
    act = lambda observations: np.clip(-observations[:, ::-1], -1, 1)  # noqa: E731
    expected = plain_loop(make(), lambda observation: act(observation[None])[0])
    assert rollout(make, rido.batched(act), num_envs=4) == expected


class Noisy(Point):
    """Noise from a generator made in the constructor, which the seed does not reach."""

    def __init__(self):
        super().__init__()
        self.noise = np.random.default_rng(7)

    def step(self, action):
        observation, reward, *rest = super().step(action)
        return observation, reward + self.noise.normal(), *rest


class Shared(Point):
    """All instances have one place."""

    hits = 0

    def reset(self, *, seed=None, options=None):
        Shared.hits = 0
        return super().reset(seed=seed)

    def step(self, action):
        Shared.hits += 1
        observation, reward, *rest = super().step(action)
        return observation, reward - Shared.hits, *rest


class Normalised(gym.Wrapper):
    """A user's own running normalisation of rewards."""

    def __init__(self):
        super().__init__(Point())
        self.count, self.squares = 1, 1.0

    def step(self, action):
        observation, reward, *rest = self.env.step(action)
        self.count, self.squares = self.count + 1, self.squares + reward**2
        return observation, reward / np.sqrt(self.squares / self.count), *rest


@pytest.mark.parametrize("make", [Noisy, Shared, Normalised])
def test_environments_with_a_state_of_their_own(make):
    assert_plain(make, MIXING["norm"])


class Counter:
    """Turns round after some steps."""

    def __init__(self):
        self.reset()

    def reset(self):
        self.t = 0

    def __call__(self, observation):
        self.t += 1
        return -observation if self.t > 5 else observation


class Held(Counter):
    """Holds each action for four steps."""

    def __call__(self, observation):
        if self.t % 4 == 0:
            self.action = -observation
        self.t += 1
        return self.action


class OnRows(Counter):
    """With a memory for each row of a batch."""

    def __call__(self, observations):
        assert observations.ndim == 2
        self.t = self.t + observations[:, :1]
        return -np.sign(self.t) * observations


class Predicts(Counter):
    """An object with predict(), as scikit-learn's, and a memory."""

    def __call__(self, observation):
        return self.predict(observation)

    def predict(self, observation):
        return Counter.__call__(self, observation)


class Late:
    """Turns round after 60 calls, and has no reset()."""

    def __init__(self):
        self.calls = 0

    def __call__(self, observation):
        self.calls += 1
        return observation if self.calls > 60 else -observation


@pytest.mark.parametrize("kind", [Counter, Held, Predicts, Late])
def test_policies_with_a_memory(kind):
    assert_plain(Point, None, kind)


def test_the_reset_of_a_method_of_an_object_and_of_a_partial():
    for wrap in (lambda policy: policy.__call__, lambda policy: partial(policy.__call__)):
        counter = Counter()
        expected = plain_loop(Point(), Counter().__call__, None)
        fresh = Counter()
        assert rollout(Point, wrap(counter)) == plain_loop(Point(), fresh, fresh.reset) != expected


def test_a_memory_for_each_row_of_a_batch():
    one = OnRows()
    expected = plain_loop(Point(), lambda observation: one(observation[None])[0], one.reset)
    for num_envs in (1, 4):
        assert rollout(Point, OnRows(), num_envs=num_envs) == expected


def test_a_reset_that_needs_arguments_is_refused():
    class Wants(Counter):
        def reset(self, place=None, *, more):
            pass

        def __init__(self):
            self.t = 0

    with pytest.raises(ValueError, match=r"policy must have a reset\(\) without arguments, .* got reset\(place=None"):
        GymnasiumSimulator(Point, Wants(), horizon=20)


def test_generators_inside_the_call():
    assert_plain(Point, lambda o: np.random.default_rng(0).normal(size=2) - o)


@pytest.mark.parametrize(
    ("space", "policy"),
    [
        (spaces.Discrete(3), lambda o: int(o[0] > 0)),
        (spaces.Discrete(3), lambda o: np.array(2 * (o[0] > 0))),
        (spaces.Discrete(3), lambda o: np.argmax([o[0], o[1], 0.1])),
        (spaces.Discrete(2), lambda o: bool(o[0] > 0)),
        (None, lambda o: [-float(o[0]), 0.5]),
        (None, lambda o: (-float(o[0]), 0.5)),
        (None, lambda o: np.float32([0.5, -0.25]) * np.sign(o)),
        (spaces.MultiDiscrete([3, 4]), lambda o: [1, int(o[0] > 0)]),
        (spaces.Box(-1, 1, (1,)), lambda o: -np.sign(o[0]) * 0.5),
        (spaces.Box(-1, 1, (1,)), lambda o: [-0.5 * np.sign(o[0])]),
    ],
)
def test_actions_of_all_kinds(space, policy):
    assert_plain(partial(Point, space), policy)


def test_the_environment_gets_an_int_where_the_policy_returns_a_number():
    got = []

    class Strict(Point):
        def step(self, action):
            got.append(action)
            return super().step({0: 0.5, 1: -0.5}[action])

    for act in (lambda o: 1, lambda o: np.array(1), lambda o: np.array([1]), lambda o: np.int64(1), lambda o: o[0] > 9):
        rollout(partial(Strict, spaces.Discrete(2)), act)
    assert {type(action) for action in got} == {int, np.int64}


def test_tensors_are_actions():
    torch = needs("torch", "sb3")
    make = Point
    expected = plain_loop(make(), lambda o: -o.astype(np.float32))
    assert rollout(make, lambda o: -torch.as_tensor(o, dtype=torch.float32)) == expected


def test_the_policy_gets_what_the_environment_returned():
    returned, got = [], []

    class Watched(Point):
        def keep(self, result):
            returned.append(result[0])
            return result

        def reset(self, *, seed=None, options=None):
            return self.keep(super().reset(seed=seed))

        def step(self, action):
            return self.keep(super().step(action))

    rollout(Watched, lambda o: got.append(o) or -o)
    ids = {id(observation) for observation in returned}
    assert len(got) > 50 and all(id(observation) in ids for observation in got)


class Seen(spaces.Sequence):
    pass


@pytest.mark.parametrize(
    ("space", "wrap", "policy"),
    [
        (
            spaces.Sequence(spaces.Box(-np.inf, np.inf, (2,), np.float64)),
            lambda place: (place,) * (1 + int(abs(place[0]) * 3)),
            lambda o: -sum(o) / len(o) / 3,
        ),
        (
            spaces.Graph(spaces.Box(-np.inf, np.inf, (2,), np.float64), None),
            lambda place: spaces.GraphInstance(np.tile(place, (2, 1)), None, None),
            lambda o: -o.nodes.mean(axis=0),
        ),
        (
            spaces.Dict(a=spaces.Sequence(spaces.Discrete(9)), b=spaces.Box(-np.inf, np.inf, (2,), np.float64)),
            lambda place: {"a": (1,) * int(abs(place[0]) * 3), "b": place},
            lambda o: -o["b"] * len(o["a"]) / 4,
        ),
    ],
    ids=["sequence", "graph", "dictionary"],
)
def test_observations_that_have_no_rows_are_not_taken_apart(space, wrap, policy):
    make = partial(Point, None, space, wrap)
    assert_plain(make, policy)
    result = rido.evaluate(make, policy, budget=200, gamma=1.0, horizon=20, seed=1)
    assert result.reproducible
    with pytest.raises(ValueError, match="policy must take one observation at a time where observations are"):
        rollout(make, rido.batched(policy))
    with pytest.raises(SimulationError, match=r"the policy raised TypeError\('mine'\)"):
        rollout(make, raising)
    with pytest.raises(ValueError, match="critic must be left out where observations are"):
        rido.evaluate(make, policy, budget=200, gamma=1.0, horizon=20, seed=1, critic=lambda o, steps: steps)
    assert rollout(make, "random") == rollout(make, "random", num_envs=1)


def raising(observation):
    raise TypeError("mine")


@pytest.mark.parametrize("reward", [lambda r: np.array([r]), lambda r: np.array(r), np.float32, np.float64])
@pytest.mark.parametrize("policy", [MIXING["norm"], rido.batched(lambda o: -o / 2)], ids=["one", "batches"])
def test_rewards_of_shape_one_are_numbers(reward, policy):
    make = partial(Point, reward=reward)
    expected = plain_loop(make(), policy)
    assert rollout(make, policy) == expected


class IgnoresMask(VectorEnv):
    """Resets all rows, whatever the mask says."""

    metadata = {"autoreset_mode": AutoresetMode.DISABLED}  # noqa: RUF012
    num_envs, listens = 3, False
    single_observation_space = observation_space = spaces.Box(-np.inf, np.inf, (1,), np.float64)
    single_action_space = spaces.Discrete(2)

    def __init__(self, listens):
        self.listens, self.places = listens, np.zeros((3, 1))

    def reset(self, *, seed=None, options=None):
        mask = options["reset_mask"] if self.listens else np.ones(3, dtype=bool)
        self.places[mask] = 0
        return self.places.copy(), {}

    def step(self, actions):
        self.places += 1 + actions[:, None]
        return self.places.copy(), self.places[:, :1], np.zeros(3, bool), np.zeros(3, bool), {}


def test_a_vector_environment_that_ignores_the_mask_is_refused():
    act = lambda o: int(o[0] % 2 == 0)  # noqa: E731
    lengths, seeds = np.array([9, 2, 9, 4, 5]), range(5)
    right = GymnasiumSimulator(IgnoresMask(True), act, horizon=20).rollout(lengths, seeds)
    expected = [2.0 * (t + 1) for t in range(9)]
    for row, length in zip(right.rewards, lengths, strict=True):
        assert row[:length].tolist() == expected[:length]
    with pytest.raises(SimulationError, match=r"changed observations of rows that options\['reset_mask'\] leaves out"):
        GymnasiumSimulator(IgnoresMask(False), act, horizon=20).rollout(lengths, seeds)


def test_rows_of_a_vector_environment_each_have_their_own_call():
    seen = []
    envs = SyncVectorEnv([Point] * 3, autoreset_mode=AutoresetMode.DISABLED)
    expected = plain_loop(Point(), MIXING["centred"])
    assert rollout(envs, lambda o: seen.append(o.shape) or MIXING["centred"](o)) == expected
    assert set(seen) == {(2,)}
    rows = gym.vector.AsyncVectorEnv([Point] * 3, autoreset_mode=AutoresetMode.DISABLED, context="forkserver")
    try:
        assert rollout(rows, MIXING["centred"]) == expected
        counter = Counter()
        assert rollout(rows, Counter()) == plain_loop(Point(), counter, counter.reset)
    finally:
        rows.close()


@pytest.mark.parametrize("policy", [MIXING["norm"], Counter()], ids=["function", "memory"])
def test_workers_give_the_same(policy):
    expected = plain_loop(Point(), policy, getattr(policy, "reset", None))
    with WorkerSimulator(Point, policy, workers=2, horizon=20) as simulator:
        assert rewards_of(simulator.rollout(LENGTHS, SEEDS)) == expected


def test_random_actions_are_the_same_in_sequence_and_side_by_side():
    for space in (
        None,
        spaces.Discrete(5, start=-2),
        spaces.MultiDiscrete([3, 4]),
        spaces.Box(-np.inf, 1, (2,), np.float64),
    ):
        make = partial(Point, space)
        rows = gym.vector.AsyncVectorEnv([make] * 3, autoreset_mode=AutoresetMode.DISABLED, context="forkserver")
        try:
            assert rollout(make, "random") == rollout(rows, "random")
        finally:
            rows.close()


def test_draws_belong_to_the_trajectory():
    def act(observation, generator):
        return generator.normal(size=2) - observation

    expected = []
    for length, seed in zip(LENGTHS.tolist(), SEEDS, strict=True):
        env, generator = Point(), np.random.default_rng([seed, 1])
        observation, _ = env.reset(seed=seed)
        rewards = []
        for _ in range(length):
            observation, reward, ended, _, _ = env.step(act(observation, generator))
            rewards.append(reward)
            if ended:
                break
        expected.append(rewards)
    assert rollout(Point, act) == expected


class TestAgentsWithTheirOwnPredict:
    """Row by row as their author wrote it, and not by their networks."""

    @pytest.fixture
    def kinds(self):
        sb3 = needs("stable_baselines3", "sb3")

        class Mine(sb3.PPO):
            def predict(self, observation, state=None, episode_start=None, deterministic=False):
                return int(observation[2] + observation[3] > 0), state

        def model(kind=sb3.PPO, env="CartPole-v1"):
            return kind("MlpPolicy", env, n_steps=8, device="cpu", seed=0)

        def of_class(env="CartPole-v1"):
            return model(Mine, env)

        def patched(env="CartPole-v1"):
            made = model(env=env)
            made.predict = partial(Mine.predict, made)
            return made

        def in_its_policy(env="CartPole-v1"):
            made = model(env=env)
            made.policy.predict = partial(Mine.predict, made)
            return made

        return [of_class, patched, in_its_policy, lambda env: in_its_policy(env).policy, lambda env: model(env=env)]

    def test_their_predict_is_called(self, kinds):
        make = partial(Point, spaces.Discrete(2), spaces.Box(-9, 9, (4,)), lambda place: np.resize(place, 4))
        expected = plain_loop(make(), lambda o: int(o[2] + o[3] > 0))
        *own, network = kinds
        assert rollout(make, network(make())) != expected
        for agent in own:
            assert rollout(make, agent(make())) == expected

    def test_by_the_callback_too(self, kinds):
        from rido.sb3 import EvalCallback

        for make in kinds[:2]:
            callback = EvalCallback("CartPole-v1", budget=2000, horizon=100, eval_freq=8, seed=0, verbose=0, warn=False)
            model = make()
            model.learn(8, callback=callback)
            assert callback.last_mean_reward > 80  # the network falls after about 10 steps, the rule after 200

    def test_their_fingerprint_tells_them_apart(self, kinds):
        from rido.policies.resolve import resolve_policy

        env = gym.make("CartPole-v1")
        spaces_of = dict(observation_space=env.observation_space, action_space=env.action_space)
        found = [resolve_policy(kinds[row]("CartPole-v1"), **spaces_of) for row in (0, 1, 4)]
        assert len({policy.fingerprint for policy in found}) == 3


def test_a_function_that_fails_on_one_observation_gets_batches():
    shapes = []

    def act(observations):
        shapes.append(observations.shape)
        return -observations[:, ::-1]

    expected = plain_loop(Point(), lambda o: -o[::-1])
    assert rollout(Point, act, num_envs=4) == expected
    assert shapes[0] == (2,) and set(shapes[1:]) == {(8, 2)}


def test_batched_says_so():
    shapes = []

    @rido.batched
    def act(observations):
        shapes.append(observations.shape)
        return -observations

    assert rollout(Point, act, num_envs=4) == plain_loop(Point(), lambda o: -o)
    assert set(shapes) == {(8, 2)} and "act" in act.name

    class Model:
        def predict(self, observations, deterministic=True):
            shapes.append(observations.shape)
            return -observations

    del shapes[:]
    assert rollout(Point, rido.batched(Model()), num_envs=4) == plain_loop(Point(), lambda o: -o)
    assert set(shapes) == {(8, 2)} and inspect.isfunction(act)


def test_the_number_of_environments_and_workers_does_not_change_a_result():
    settings = dict(budget=600, gamma=0.95, horizon=20, seed=3)
    results = [
        rido.evaluate(Point, MIXING["norm"], **settings, **more)
        for more in (dict(num_envs=1), dict(num_envs=16), dict(workers=2))
    ]
    assert len({(result.value, result.standard_error) for result in results}) == 1


class Server(Point):
    """Takes narrow seeds only, and a reset that fails leaves it without a connection that later ones close."""

    connected = None

    def reset(self, *, seed=None, options=None):
        if self.connected is False:
            raise RuntimeError("not connected to the server")
        if self.connected:
            self.connected = False
        if seed is not None and seed >= 2**32:
            raise ValueError("seed must be between 0 and 2**32 - 1")
        self.connected = True
        return super().reset(seed=seed, options=options)


@pytest.mark.parametrize("components", [None, lambda o, a, r, n, info: {"a": 1.0}])
def test_a_wide_seed_is_tried_while_the_environment_is_fresh(components):
    result = rido.evaluate(
        Server, lambda o: -o, gamma=0.9, horizon=5, budget=100, seed=0, components=components, progress=False
    )
    assert result.reproducible and result.transitions == 100
