"""Kinds of environments as ordinary people write them: spaces, dtypes, wrappers, and state in odd places."""

import functools
import itertools
import random
from collections import deque
from dataclasses import replace
from functools import partial

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from gymnasium.spaces.graph import GraphInstance
from gymnasium.vector import AutoresetMode, SyncVectorEnv, VectorEnv

import rido
from corpus.plain import Case

INFINITE = dict(low=-np.inf, high=np.inf)


class Line(gym.Env):
    """A point on a line that is pushed and drifts; the reward is less the farther it is from 0."""

    observation_space = spaces.Box(**INFINITE, shape=(2,), dtype=np.float32)
    action_space = spaces.Box(-1, 1, (1,), np.float32)
    metadata: dict = {"render_modes": []}  # noqa: RUF012
    noise, ends = 0.1, 0.0

    def __init__(self, world=0):
        self.world, self.x, self.t = world, 0.0, 0
        self.setup()

    def setup(self):
        pass

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t, self.x = 0, self.start()
        return self.see(), {}

    def start(self):
        return float(self.np_random.normal(1.0, 1.0))

    def drift(self):
        return self.noise * float(self.np_random.normal())

    def push(self, action):
        return float(np.asarray(action, dtype=np.float64).ravel()[0])

    def see(self):
        return np.array([self.x, self.t], dtype=np.float32)

    def reward(self):
        return -abs(self.x)

    def step(self, action):
        self.t += 1
        self.x += 0.4 * self.push(action) + self.drift()
        ended = bool(self.np_random.random() < self.ends)
        return self.see(), self.reward(), ended, False, {}


def towards(observation):
    """Pushes towards 0, by the first number that it sees."""
    x = np.asarray(observation, dtype=np.float64).ravel()[0]
    return np.array([-np.clip(x, -1, 1)], dtype=np.float32)


CASES: dict[str, Case] = {}


def case(policy=towards, *, name=None, **more):
    """Adds an environment to the corpus: a class, or a function of the world."""

    def add(env):
        words = name or (env.__doc__ or env.__name__).strip().splitlines()[0].rstrip(".")
        assert words not in CASES
        CASES[words] = Case(words, env, lambda: policy, **more)
        return env

    return add


case(name="a plain environment")(Line)

# --- Spaces of observations


@case()
class Doubles(Line):
    """Observations in float64."""

    observation_space = spaces.Box(**INFINITE, shape=(2,), dtype=np.float64)

    def see(self):
        return np.array([self.x, self.t])


@case()
class Scalars(Line):
    """Observations without an axis."""

    observation_space = spaces.Box(**INFINITE, shape=(), dtype=np.float32)

    def see(self):
        return np.array(self.x, dtype=np.float32)


def by_index(observation):
    return np.array([1.0 if int(observation) < 5 else -1.0], dtype=np.float32)


@case(by_index)
class Cells(Line):
    """Discrete observations."""

    observation_space = spaces.Discrete(11)

    def see(self):
        return int(np.clip(round(self.x) + 5, 0, 10))


@case(by_index)
class StartingCells(Cells):
    """Discrete observations that begin at -5."""

    observation_space = spaces.Discrete(21, start=-5)

    def see(self):
        return int(np.clip(round(self.x) + 5, -5, 15))


@case(lambda o: np.array([-1.0 if o[0] > o[1] else 1.0]))
class ManyCells(Line):
    """MultiDiscrete observations."""

    observation_space = spaces.MultiDiscrete([20, 20])

    def see(self):
        return np.array([int(np.clip(4 * self.x, 0, 19)), int(np.clip(-4 * self.x, 0, 19))])


@case(lambda o: np.array([-1.0 if o[0] else 1.0]))
class Bits(Line):
    """MultiBinary observations."""

    observation_space = spaces.MultiBinary(2)

    def see(self):
        return np.array([self.x > 0, self.x < 0], dtype=np.int8)


@case(lambda o: towards(o[0]) if o[1] < 5 else towards(-o[0]))
class Pairs(Line):
    """Tuples of an array and a number."""

    observation_space = spaces.Tuple([Line.observation_space, spaces.Discrete(100)])

    def see(self):
        return super().see(), self.t


@case(lambda o: towards(o["x"] - 0.1 * o["goal"][1]))
class Dictionaries(Line):
    """Dictionaries of arrays, as in robotics with goals."""

    observation_space = spaces.Dict(
        x=spaces.Box(**INFINITE, shape=(1,), dtype=np.float64), goal=spaces.Box(**INFINITE, shape=(3,))
    )

    def see(self):
        return {"x": np.array([self.x]), "goal": np.array([self.t, self.t / 2, 1], dtype=np.float32)}


@case(lambda o: towards(o["state"]["x"]) if o["flag"] else towards(o["state"]["pair"][0]))
class Nested(Line):
    """Dictionaries and tuples inside each other."""

    observation_space = spaces.Dict(
        flag=spaces.Discrete(2),
        state=spaces.Dict(
            x=spaces.Box(**INFINITE, shape=(1,)),
            pair=spaces.Tuple([spaces.Box(**INFINITE, shape=(1,)), spaces.MultiBinary(2)]),
        ),
    )

    def see(self):
        x = np.array([self.x], dtype=np.float32)
        return {"flag": self.t % 2, "state": {"x": x, "pair": (-x, np.array([0, 1], dtype=np.int8))}}


@case(lambda o: np.array([1.0 if o.startswith("left") else -1.0]))
class Words(Line):
    """Text observations."""

    observation_space = spaces.Text(30)

    def see(self):
        return ("left" if self.x < 0 else "right") + "o" * (self.t % 4)


@case(lambda o: np.array([-np.clip(sum(float(part[0]) for part in o) / max(len(o), 1), -1, 1)]))
class Sequences(Line):
    """Sequences whose length changes."""

    observation_space = spaces.Sequence(spaces.Box(**INFINITE, shape=(1,)))

    def see(self):
        return tuple(np.array([self.x * (k + 1)], dtype=np.float32) for k in range(1 + self.t % 3))


@case(lambda o: np.array([-np.clip(o.nodes.sum() / len(o.nodes), -1, 1)]))
class Graphs(Line):
    """Graphs whose number of nodes changes."""

    observation_space = spaces.Graph(spaces.Box(**INFINITE, shape=(2,)), spaces.Discrete(3))

    def see(self):
        nodes = np.full((1 + self.t % 3, 2), self.x, dtype=np.float32)
        links = np.array([[0, len(nodes) - 1]])
        return GraphInstance(nodes, np.array([self.t % 3]), links)


@case(lambda o: np.array([-1.0 if o[:, 4:].sum() > o[:, :4].sum() else 1.0]))
class Pictures(Line):
    """Pictures of bytes."""

    observation_space = spaces.Box(0, 255, (8, 8, 3), np.uint8)

    def see(self):
        picture = np.zeros((8, 8, 3), dtype=np.uint8)
        picture[self.t % 8, int(np.clip(4 + 2 * self.x, 0, 7))] = 200
        return picture


@case(lambda o: np.where(o[-1, 0] < -0.2, 1.0, -1.0).reshape(1))
class Stacked(Line):
    """The last four observations of eight numbers, stacked by hand."""

    observation_space = spaces.Box(**INFINITE, shape=(4, 8), dtype=np.float32)

    def reset(self, *, seed=None, options=None):
        self.frames = deque(maxlen=4)
        return super().reset(seed=seed)

    def see(self):
        self.frames.append(np.linspace(self.x, self.t, 8, dtype=np.float32))
        return np.stack([self.frames[0]] * (4 - len(self.frames)) + list(self.frames))


@case(lambda o: towards(o[-1] - 0.5 * (o[-1] - o[-2])))
def frame_stack(world):
    """Gymnasium's FrameStackObservation."""
    return gym.wrappers.FrameStackObservation(Line(world), 3)


@case()
def flattened(world):
    """Gymnasium's FlattenObservation of a dictionary."""
    return gym.wrappers.FlattenObservation(Dictionaries(world))


@case()
def rescaled(world):
    """Gymnasium's RescaleObservation and RescaleAction."""
    env = gym.wrappers.TransformObservation(Line(world), np.tanh, spaces.Box(-1, 1, (2,), np.float32))
    return gym.wrappers.RescaleAction(env, np.float32(-2), np.float32(2))


@case()
def time_aware(world):
    """Gymnasium's TimeAwareObservation with a limit, so that a longer horizon changes what is seen."""
    return gym.wrappers.TimeAwareObservation(gym.wrappers.TimeLimit(Line(world), 100))


@case(lambda o: np.array([0.3]))
class Nothing(Line):
    """Observations of no numbers."""

    observation_space = spaces.Box(**INFINITE, shape=(0,), dtype=np.float32)

    def see(self):
        return np.zeros(0, dtype=np.float32)


# --- Spaces of actions


class Steered(Line):
    """A line whose actions are numbers of choices."""

    action_space = spaces.Discrete(3)

    def push(self, action):
        return float(action) - 1


@case(lambda o: 0 if o[0] > 0 else 2)
class Choices(Steered):
    """Discrete actions."""


@case(lambda o: np.int64(1 if o[0] > 0 else 3))
class LateChoices(Steered):
    """Discrete actions that begin at 1."""

    action_space = spaces.Discrete(3, start=1)

    def push(self, action):
        return float(action) - 2


@case(lambda o: [0, 1] if o[0] > 0 else [2, 0])
class Joint(Steered):
    """MultiDiscrete actions."""

    action_space = spaces.MultiDiscrete([3, 2])

    def push(self, action):
        return float(action[0]) - 1 + 0.3 * float(action[1])


@case(lambda o: np.array([o[0] < 0, o[0] > 0]))
class Switches(Steered):
    """MultiBinary actions."""

    action_space = spaces.MultiBinary(2)

    def push(self, action):
        return float(action[0]) - float(action[1])


@case(lambda o: np.round(np.clip(-3 * o[:1], -3, 3)))
class Notches(Steered):
    """Integer actions in a box."""

    action_space = spaces.Box(-3, 3, (1,), np.int32)

    def push(self, action):
        return float(np.asarray(action)[0]) / 3


@case(lambda o: (np.array([-np.clip(o[0], -1, 1)]), 1))
class PairOfActions(Line):
    """Tuples of actions."""

    action_space = spaces.Tuple([Line.action_space, spaces.Discrete(2)])

    def push(self, action):
        return float(action[0][0]) * float(action[1])


@case(lambda o: {"push": np.array([-np.clip(o[0], -1, 1)])})
class NamedActions(Line):
    """Dictionaries of actions."""

    action_space = spaces.Dict(push=Line.action_space)

    def push(self, action):
        return float(action["push"][0])


@case(lambda o: -3 * o[:1])
class OutOfBounds(Line):
    """Actions beyond their bounds, which the environment takes as they are."""


@case(lambda o: np.array([[-0.5, 0.2], [0.1, -o[0] / 5]]))
class Matrices(Line):
    """Actions that are matrices."""

    action_space = spaces.Box(-1, 1, (2, 2), np.float64)

    def push(self, action):
        return float(np.trace(action))


# --- Numbers that do not fit their space


@case(lambda o: np.array([-1.0 if o[0] > 0.35 else 1.0]))
def divided(world):
    """Floats in a space of bytes: observation / 255 through TransformObservation."""
    return gym.wrappers.TransformObservation(Bytes(world), lambda o: o / 255.0, None)


class Bytes(Line):
    """A line seen through bytes."""

    observation_space = spaces.Box(0, 255, (2,), np.uint8)

    def see(self):
        return np.clip([100 + 40 * self.x, self.t], 0, 255).astype(np.uint8)


@case(lambda o: np.array([-1.0 if o[0] > 250 else 1.0]))
class Wraps(Line):
    """Integers beyond the bounds of their space: 300 among bytes."""

    observation_space = spaces.Box(0, 255, (2,), np.uint8)

    def see(self):
        return np.array([250 + int(100 * self.x), self.t])


@case(lambda o: np.array([-np.clip(o[0] - 2.0**26, -1, 1)]))
class Precise(Line):
    """Doubles in a space of single precision, which would lose them."""

    def see(self):
        return np.array([2.0**26 + self.x, self.t])


@case(lambda o: np.array([-0.5 if o[0] // 2 > 0 else 0.5]))
class Integers(Line):
    """Integers in a space of floats."""

    def see(self):
        return np.array([int(3 * self.x), self.t])


@case(lambda o: np.array([-0.7 if np.signbit(o[1]) else 0.7]))
class NegativeZero(Line):
    """Negative zero, which the policy tells from zero."""

    def see(self):
        return np.array([self.x, -0.0 if self.x > 0 else 0.0], dtype=np.float32)


@case(lambda o: towards(np.array(o)))
class Lists(Line):
    """Observations that are lists."""

    def see(self):
        return [self.x, float(self.t)]


@case(lambda o: np.array([-np.clip(o[0] % 1.0, -1, 1)]))
class Flags(Line):
    """Floats in a space of truth values."""

    observation_space = spaces.Box(0, 1, (2,), np.bool_)

    def see(self):
        return np.array([abs(np.sin(self.x)), 1.0])


@case(by_index)
class FloatCells(Line):
    """A float where the space is discrete."""

    observation_space = spaces.Discrete(11)

    def see(self):
        return float(np.clip(self.x + 5, 0, 10))


@case(lambda o: np.array([-1.0 if o["x"][0] > 0.5 else 1.0]))
class FloatsInDictionary(Line):
    """Floats in an integer part of a dictionary."""

    observation_space = spaces.Dict(x=spaces.Box(-100, 100, (1,), np.int32))

    def see(self):
        return {"x": np.array([self.x])}


@case(lambda o: towards(o))
class GrowsLonger(Line):
    """Observations that get longer after some steps."""

    def see(self):
        return np.zeros(2 + self.t // 5, dtype=np.float32) + np.float32(self.x)


@case(lambda o: np.array([-np.clip(o[0], -1, 1)], dtype=np.float16))
class Halves(Line):
    """Observations and actions of half precision."""

    observation_space = spaces.Box(**INFINITE, shape=(2,), dtype=np.float16)

    def see(self):
        return np.array([self.x, self.t], dtype=np.float16)


# --- How episodes end


@case()
class Mortal(Line):
    """Episodes that end early."""

    ends = 0.2


@case()
class ShortLived(Line):
    """Episodes of two or three steps."""

    def step(self, action):
        found = super().step(action)
        return (*found[:2], self.t >= 2 + (self.x > 0.5), False, {})


@case()
class NanAtTheEnd(Line):
    """NaN in the last observation of an episode."""

    def step(self, action):
        self.over = self.np_random.random() < 0.2
        found = super().step(action)
        return (*found[:2], bool(self.over), False, {})

    def see(self):
        return super().see() * (np.nan if self.t and self.over else 1.0)


@case()
class NanReward(Line):
    """NaN as a reward now and then."""

    def reward(self):
        return float("nan") if self.np_random.random() < 0.02 else -abs(self.x)


@case()
class Interrupted(Line):
    """Truncations by the environment itself, without a time limit."""

    def step(self, action):
        found = super().step(action)
        return (*found[:3], bool(self.np_random.random() < 0.2), {})


@case(options=(("end_on_truncation", True),), name="truncations that end the episode (end_on_truncation)")
class InterruptedForGood(Interrupted):
    pass


@case()
def limited(world):
    """A time limit at the horizon."""
    return gym.wrappers.TimeLimit(Line(world), 12)


def limit_of_six(world):
    return gym.wrappers.TimeLimit(Line(world), 6)


@case(given=lambda world: partial(limit_of_six, world))
def short_limit(world):
    """A time limit below the horizon, which is lifted."""
    return Line(world)


@case()
class NumpyFlags(Mortal):
    """Rewards and flags of numpy, without an axis."""

    def step(self, action):
        o, r, e, t, i = super().step(action)
        return o, np.array(r, dtype=np.float32), np.bool_(e), np.array(t), i


@case()
class RewardArrays(Line):
    """Rewards of shape (1,)."""

    def reward(self):
        return np.array([-abs(self.x)])


@case()
class WholeRewards(Line):
    """Rewards that are Python integers or truth values."""

    def reward(self):
        return abs(self.x) < 0.5 if self.t % 2 else -int(abs(self.x))


# --- Where random numbers come from


class FromZero(Line):
    """A line on which all randomness is in the noise."""

    noise = 0.5

    def start(self):
        return 0.5


@case()
class OwnGenerator(FromZero):
    """A generator made in the constructor, for the noise of steps."""

    def setup(self):
        self.generator = np.random.default_rng(self.world)

    def drift(self):
        return self.noise * float(self.generator.normal())


@case()
class OwnStarts(Line):
    """A generator made in the constructor, for the start."""

    noise = 0.0

    def setup(self):
        self.generator = np.random.default_rng(self.world)

    def start(self):
        return float(self.generator.normal())


@case()
class OldGenerator(FromZero):
    """numpy's RandomState, made in the constructor."""

    def setup(self):
        self.generator = np.random.RandomState(np.random.MT19937(self.world))

    def drift(self):
        return self.noise * float(self.generator.normal())


@case()
class Entropy(FromZero):
    """A generator made in the constructor from the system's entropy."""

    def setup(self):
        self.generator = np.random.default_rng()

    def drift(self):
        return self.noise * float(self.generator.normal())


def seed_globals():
    np.random.seed(1)  # noqa: NPY002
    random.seed(1)


@case(before=seed_globals)
class GlobalNumpy(FromZero):
    """The global generator of numpy."""

    def drift(self):
        return self.noise * float(np.random.normal())  # noqa: NPY002


@case(before=seed_globals)
class GlobalPython(FromZero):
    """The global generator of Python."""

    def drift(self):
        return self.noise * random.gauss(0, 1)


@case(before=seed_globals)
class SeedsGlobals(FromZero):
    """numpy's global generator, seeded by every reset."""

    def reset(self, *, seed=None, options=None):
        if seed is not None:
            np.random.seed(seed % 2**32)  # noqa: NPY002
        return super().reset(seed=seed)

    def drift(self):
        return self.noise * float(np.random.normal())  # noqa: NPY002


@case()
class SeededOnce(FromZero):
    """A generator made by the first reset, whose seed later ones ignore."""

    def setup(self):
        self.generator = None

    def reset(self, *, seed=None, options=None):
        if self.generator is None:
            self.generator = np.random.default_rng(seed)
        return super().reset(seed=seed)

    def drift(self):
        return self.noise * float(self.generator.normal())


@case()
class DrawnWorld(Line):
    """A world that the constructor draws from the system's entropy."""

    def setup(self):
        self.target = float(np.random.default_rng().normal(0.0, 3.0))

    def reward(self):
        return -abs(self.x - self.target)


@case()
class NoSeeding(FromZero):
    """A reset that does not pass its seed on."""

    def reset(self, *, seed=None, options=None):
        return super().reset(seed=None)


@case()
class SameEveryTime(Line):
    """Every reset seeds with 0: there is but one episode."""

    def reset(self, *, seed=None, options=None):
        return super().reset(seed=0)


class ObservationNoise(gym.ObservationWrapper):
    """Noise from a generator of the wrapper."""

    def __init__(self, env, world):
        super().__init__(env)
        self.generator = np.random.default_rng(world)

    def observation(self, observation):
        return observation + self.generator.normal(size=2).astype(np.float32)


@case()
def noisy_wrapper(world):
    """A wrapper with a generator made in its constructor."""
    return ObservationNoise(FromZero(world), world)


class Sticky(gym.Wrapper):
    """Repeats the last action now and then, by its own generator."""

    def __init__(self, env, world):
        super().__init__(env)
        self.generator, self.last = np.random.default_rng(world), np.zeros(1)

    def step(self, action):
        if self.generator.random() > 0.4:
            self.last = action
        return self.env.step(self.last)


@case(lambda o: np.array([np.sin(o[1])]))
def sticky(world):
    """Sticky actions from a generator made in a constructor; the last one survives resets."""
    return Sticky(Quiet(world), world)


class Quiet(Line):
    """Neither noise nor a random start."""

    noise = 0.0

    def start(self):
        return 0.5


@case()
class Levels(Quiet):
    """Levels dealt in the order of a list that the constructor shuffles."""

    def setup(self):
        self.levels = itertools.cycle(np.random.default_rng(self.world).normal(size=500).tolist())

    def start(self):
        return next(self.levels)


@case()
def shuffled_goals(world):
    """A wrapper that changes a parameter at every reset, from a generator made in its constructor."""

    class Randomised(gym.Wrapper):
        generator = np.random.default_rng(world)

        def __init__(self, env):
            super().__init__(env)
            self.generator = np.random.default_rng(world)

        def reset(self, **options):
            found = self.env.reset(**options)
            self.unwrapped.noise = 0.0
            self.unwrapped.x = float(self.generator.normal())
            return self.unwrapped.see(), found[1]

    return Randomised(Quiet(world))


# --- State in odd places

STATE = {"x": 0.0}
BUFFER = np.zeros(2, dtype=np.float32)
OPPONENTS: list[float] = []
CACHE: dict[int, float] = {}


def forget():
    STATE["x"] = 0.0
    BUFFER[:] = 0
    OPPONENTS.clear()
    CACHE.clear()
    Shared.x = 0.0
    Counted.resets = 0
    Dealer.deck = None


class Shared(gym.Env):
    """A position that belongs to the class."""

    observation_space, action_space, x = Line.observation_space, Line.action_space, 0.0

    def __init__(self, world=0):
        pass

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        Shared.x, self.t = float(self.np_random.normal(1, 1)), 0
        return np.array([Shared.x, 0], dtype=np.float32), {}

    def step(self, action):
        self.t += 1
        Shared.x += 0.4 * float(action[0]) + 0.1 * float(self.np_random.normal())
        return np.array([Shared.x, self.t], dtype=np.float32), -abs(Shared.x), False, False, {}


case(before=forget)(Shared)


@case(before=forget)
class PhysicsClient(Line):
    """One physics client in the process, as a module's global."""

    def reset(self, *, seed=None, options=None):
        found = super().reset(seed=seed)
        STATE["x"] = self.x
        return found

    def step(self, action):
        self.x = STATE["x"]
        found = super().step(action)
        STATE["x"] = self.x
        return found


@case(before=forget)
class OwnX(Line):
    """A global that only rewards depend on."""

    def reward(self):
        STATE["x"] = 0.8 * STATE["x"] + self.x if self.t > 1 else self.x
        return -abs(STATE["x"])


@case(before=forget, unseen=True)
class Counted(Line):
    """A curriculum: a counter of the class makes later episodes harder."""

    resets = 0

    def start(self):
        Counted.resets += 1
        return super().start() + min(Counted.resets, 400) / 100


@case(unseen=True)
class Wears(Line):
    """A robot that wears out with every episode of an instance."""

    def setup(self):
        self.age = 0

    def start(self):
        self.age += 1
        return super().start() + min(self.age, 60) / 10


@case(before=forget)
class Dealer(Quiet):
    """A deck of cards that belongs to the class, shuffled when it is used up."""

    deck = None

    def start(self):
        if not Dealer.deck:
            Dealer.deck = np.random.default_rng(self.world).permutation(np.linspace(-2, 2, 52)).tolist()
        return Dealer.deck.pop()


@case(before=forget)
class Bulletin(Line):
    """Neighbours leave what they did in a list of the module, and the reward compares with it."""

    def reward(self):
        OPPONENTS.append(self.x)
        return self.x - OPPONENTS[-2] if len(OPPONENTS) > 1 and self.t > 1 else 0.0


@case(before=forget)
class Cached(Line):
    """A cache of the module by the time step, filled by whoever comes first."""

    def drift(self):
        return 0.3 * CACHE.setdefault(self.t, float(np.sin(7 * self.world + self.t)))


@case(before=forget)
class CachedNoise(Line):
    """A cache of functools on a method that draws."""

    def setup(self):
        self.wind = functools.lru_cache(self.draw)

    def draw(self, cell):
        return float(self.np_random.normal())

    def drift(self):
        return 0.4 * self.wind(round(self.x))


@case()
class Forgetful(Line):
    """A reset that leaves the position where it was."""

    def start(self):
        return 0.5 * self.x + float(self.np_random.normal())


@case(lambda o: towards(o) if o[1] % 2 else -towards(o))
class InPlace(Line):
    """One observation that is written over in every step."""

    def setup(self):
        self.seen = np.zeros(2, dtype=np.float32)

    def see(self):
        self.seen[:] = self.x, self.t
        return self.seen


@case(before=forget)
class SharedBuffer(Line):
    """One buffer of the module for the observations of all environments."""

    def see(self):
        BUFFER[:] = self.x, self.t
        return BUFFER


@case(lambda o: towards(o["x"]))
class InPlaceDictionary(Line):
    """One dictionary that is written over in every step."""

    observation_space = spaces.Dict(x=spaces.Box(**INFINITE, shape=(1,)))

    def setup(self):
        self.seen = {"x": np.zeros(1, dtype=np.float32)}

    def see(self):
        self.seen["x"][0] = self.x
        return self.seen


@case()
class Trail(Line):
    """A mutable default argument that all instances share."""

    def __init__(self, world=0, trail=[]):  # noqa: B006
        super().__init__(world)
        self.trail = trail

    def reset(self, *, seed=None, options=None):
        self.trail.clear()
        return super().reset(seed=seed)

    def reward(self):
        self.trail.append(self.x)
        return -float(np.ptp(self.trail))


# --- Wrappers that keep state


class RunningRewards(gym.Wrapper):
    """CleanRL's way: rewards are divided by the deviation of a running discounted return."""

    def __init__(self, env):
        super().__init__(env)
        self.n, self.mean, self.square, self.running = 1e-4, 0.0, 1.0, 0.0

    def step(self, action):
        o, r, e, t, i = self.env.step(action)
        self.running = self.running * 0.99 + r
        self.n += 1
        delta = self.running - self.mean
        self.mean += delta / self.n
        self.square += delta * (self.running - self.mean)
        if e or t:
            self.running = 0.0
        return o, r / np.sqrt(self.square / self.n + 1e-8), e, t, i


@case()
def running_rewards(world):
    """A running normaliser of rewards of the user's own."""
    return RunningRewards(Line(world))


class RunningObservations(gym.ObservationWrapper):
    """Observations less their running mean."""

    def __init__(self, env):
        super().__init__(env)
        self.n, self.sum = 0, np.zeros(2)

    def observation(self, observation):
        self.n, self.sum = self.n + 1, self.sum + observation
        return (observation - self.sum / self.n).astype(np.float32)


@case()
def running_observations(world):
    """A running normaliser of observations of the user's own."""
    return RunningObservations(Line(world))


@case()
def gymnasium_rewards(world):
    """Gymnasium's NormalizeReward."""
    return gym.wrappers.NormalizeReward(Line(world))


@case()
def gymnasium_observations(world):
    """Gymnasium's NormalizeObservation without the statistics of training."""
    return gym.wrappers.NormalizeObservation(Line(world))


class Repeats(gym.Wrapper):
    """Repeats an action for three steps."""

    def step(self, action):
        total = 0.0
        for _ in range(3):
            o, r, e, t, i = self.env.step(action)
            total += r
            if e or t:
                break
        return o, total, e, t, i


@case()
def repeated(world):
    """An action repeat."""
    return Repeats(Mortal(world))


class Delayed(gym.Wrapper):
    """Actions take effect two steps later."""

    def __init__(self, env, clears):
        super().__init__(env)
        self.clears, self.waiting = clears, deque([np.zeros(1)] * 2)

    def reset(self, **options):
        if self.clears:
            self.waiting = deque([np.zeros(1)] * 2)
        return self.env.reset(**options)

    def step(self, action):
        self.waiting.append(action)
        return self.env.step(self.waiting.popleft())


@case()
def delayed(world):
    """Delayed actions, forgotten at a reset."""
    return Delayed(Line(world), True)


@case()
def delayed_across(world):
    """Delayed actions that a reset does not clear."""
    return Delayed(Line(world), False)


@case()
def statistics(world):
    """Gymnasium's RecordEpisodeStatistics and OrderEnforcing."""
    return gym.wrappers.RecordEpisodeStatistics(gym.wrappers.OrderEnforcing(Line(world)))


class Smoothed(gym.RewardWrapper):
    """Rewards smoothed over time, and over episodes."""

    smooth = 0.0

    def reward(self, reward):
        self.smooth = 0.5 * self.smooth + 0.5 * reward
        return self.smooth


@case(unseen=True)
def smoothed(world):
    """Rewards smoothed by a wrapper that does not know of resets."""
    return Smoothed(Line(world))


class Lives(gym.Wrapper):
    """An episode ends with a life, and only a lost game is started again."""

    lives = 0

    def reset(self, **options):
        if self.lives == 0:
            self.lives = 3
            self.last = self.env.reset(**options)
        return self.last

    def step(self, action):
        o, r, e, t, i = self.env.step(action)
        if abs(self.unwrapped.x) > 1.5:
            self.lives, e = self.lives - 1, True
        self.last = (o, i)
        return o, r, e, t, i


@case()
def lives(world):
    """Episodes that end with a life, after which the game goes on."""
    return Lives(Line(world))


# --- Other ways to give an environment


case(name="an instance", given=Line)(Line)


def wrapped(world):
    return Delayed(OwnGenerator(world), False)


case(name="an instance with state in a wrapper", given=wrapped)(wrapped)


gym.register("CorpusLine-v0", entry_point="corpus.environments:Line", max_episode_steps=50)


case(name="an id", given=lambda world: "CorpusLine-v0")(Line)


class Rows(VectorEnv):
    """Vectorised lines without autoreset, and with ``reset_mask`` or without."""

    metadata: dict = {"autoreset_mode": AutoresetMode.DISABLED}  # noqa: RUF012

    def __init__(self, num_envs=8, *, masked=True, coupled=False, seeds=True):
        self.num_envs, self.masked, self.coupled, self.seeds = num_envs, masked, coupled, seeds
        self.single_observation_space, self.single_action_space = Line.observation_space, Line.action_space
        self.observation_space = gym.vector.utils.batch_space(self.single_observation_space, num_envs)
        self.action_space = gym.vector.utils.batch_space(self.single_action_space, num_envs)
        self.x, self.t, self.generators = np.zeros(num_envs), np.zeros(num_envs), [None] * num_envs

    def reset(self, *, seed=None, options=None):
        mask = (options or {}).get("reset_mask") if self.masked else None
        given = seed if isinstance(seed, (list, tuple)) else [seed] * self.num_envs
        for row in range(self.num_envs):
            if mask is None or mask[row]:
                if self.generators[row] is None or (given[row] is not None and self.seeds):
                    wanted = given[row] if self.seeds else 7
                    self.generators[row] = np.random.default_rng(row if wanted is None else wanted)
                self.t[row], self.x[row] = 0, self.generators[row].normal(1, 1)
        return np.stack([self.x, self.t], axis=1).astype(np.float32), {}

    def step(self, actions):
        self.t += 1
        self.x = self.x + 0.4 * actions[:, 0] + 0.1 * np.array([g.normal() for g in self.generators])
        ends = np.array([g.random() < 0.15 for g in self.generators])
        reward = -np.abs(self.x - (self.x.mean() if self.coupled else 0.0))
        seen = np.stack([self.x, self.t], axis=1).astype(np.float32)
        return seen, reward, ends, np.zeros(self.num_envs, dtype=bool), {}


class OneRow(gym.Env):
    """What a user steps by hand: one row of a vectorised environment."""

    observation_space, action_space = Line.observation_space, Line.action_space

    def __init__(self, rows):
        self.rows = rows

    def reset(self, *, seed=None, options=None):
        return self.rows.reset(seed=[seed])[0][0], {}

    def step(self, action):
        seen, rewards, ends, cuts, _ = self.rows.step(np.asarray(action)[None])
        return seen[0], rewards[0], ends[0], cuts[0], {}


def rows(name, given, policy=towards, **more):
    case(policy, name=name, given=given, **more)(lambda world: OneRow(Rows(1)))


rows("a vectorised environment without autoreset", lambda world: Rows())
rows("one that ignores reset_mask", lambda world: Rows(masked=False))
rows("one whose rows share a state", lambda world: Rows(coupled=True))
rows("one that gives all rows the same seed", lambda world: Rows(seeds=False))
rows("Gymnasium's SyncVectorEnv", lambda world: SyncVectorEnv([partial(OneRow, Rows(1)) for _ in range(4)]))


def disabled(envs):
    return SyncVectorEnv(envs, autoreset_mode=AutoresetMode.DISABLED)


case(name="SyncVectorEnv without autoreset", given=lambda world: disabled([partial(Line, world)] * 4))(Line)
case(name="the same, generators in constructors", given=lambda world: disabled([partial(OwnGenerator, world)] * 4))(
    OwnGenerator
)


# --- The same environments, with a policy that is known to take batches


def first_numbers(observations):
    """Pushes each row towards 0, by the first number that it sees."""
    numbers = np.asarray(observations, dtype=np.float64)
    return -np.clip(numbers.reshape(len(numbers), -1)[:, :1], -1, 1)


def by_rows(policy):
    return lambda observation: policy(np.asarray(observation)[None])[0]


BATCHED = getattr(rido, "batched", lambda function: function)  # earlier versions found it out

for known in list(CASES.values()):
    spaces_of = known.env(0)
    if spaces_of.action_space.shape != (1,) or spaces_of.observation_space.shape in (None, (0,)):
        continue
    CASES[f"{known.name}, batches"] = replace(
        known, name=f"{known.name}, batches", policy=lambda: BATCHED(first_numbers), act=by_rows
    )
