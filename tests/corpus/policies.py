"""Kinds of policies as ordinary people write them: what they compute, return and remember."""

import functools
import itertools
import math
from collections import deque
from functools import partial

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from corpus.plain import Case, by_author, on_batches

WIDE = dict(low=-np.inf, high=np.inf, dtype=np.float32)


class Chase(gym.Env):
    """A point among three axes is pushed, drifts and is paid for being near 0. What is seen has as many numbers."""

    action_space = spaces.Box(-1, 1, (3,), np.float32)
    observation_space = spaces.Box(**WIDE, shape=(3,))
    size = 3

    def __init__(self, world=0):
        self.x = np.zeros(self.size)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t, self.x = 0, self.np_random.normal(0.5, 1.0, self.size)
        return self.see(), {}

    def see(self):
        return self.x.astype(np.float32)

    def push(self, action):
        return np.asarray(action, dtype=np.float64)

    def step(self, action):
        self.t += 1
        self.x = self.x + 0.3 * self.push(action) + 0.1 * self.np_random.normal(size=self.size)
        weights = np.arange(1, self.size + 1)
        return self.see(), -float(weights @ np.abs(self.x)) / self.size, False, False, {}


class Choose(Chase):
    """The same with three actions, each of which pushes its axis."""

    action_space = spaces.Discrete(3)

    def push(self, action):
        return -np.sign(self.x) * (np.arange(3) == int(action))


class Turn(Chase):
    """One axis, one number."""

    action_space, observation_space, size = spaces.Box(-1, 1, (1,), np.float32), spaces.Box(**WIDE, shape=(1,)), 1


class Eight(Chase):
    """Eight axes."""

    action_space, observation_space, size = spaces.Box(-1, 1, (8,), np.float32), spaces.Box(**WIDE, shape=(8,)), 8


class Frames(Choose):
    """Four frames of eight numbers."""

    observation_space = spaces.Box(**WIDE, shape=(4, 8))

    def reset(self, *, seed=None, options=None):
        self.frames = deque(maxlen=4)
        return super().reset(seed=seed)

    def see(self):
        self.frames.append(np.tile(self.x, 3)[:8])
        return np.array([self.frames[0]] * (4 - len(self.frames)) + list(self.frames), dtype=np.float32)


class Cells(Choose):
    """Two cells in one number."""

    observation_space = spaces.Discrete(9)

    def see(self):
        return int(3 * np.clip(np.round(self.x[0] + 1), 0, 2) + np.clip(np.round(self.x[1] + 1), 0, 2))


class Named(Choose):
    """A dictionary."""

    observation_space = spaces.Dict(x=spaces.Box(**WIDE, shape=(3,)), t=spaces.Discrete(100))

    def see(self):
        return {"x": self.x.astype(np.float32), "t": self.t}


CASES: dict[str, Case] = {}


def add(name, policy, env=Chase, **more):
    """Adds a policy: a function of an observation, or what makes an object."""
    assert name not in CASES
    CASES[name] = Case(name, env, policy, **more)


def function(name, env=Chase, **more):
    """Adds a function as it stands."""

    def adding(policy):
        add(name, lambda: policy, env, **more)
        return policy

    return adding


def thing(name, env=Chase, **more):
    """Adds a class, of which each run makes an object."""

    def adding(policy):
        add(name, policy, env, **more)
        return policy

    return adding


# --- Functions of one observation that mix rows when they get a batch

function("a lambda")(lambda o: -0.5 * o)
function("-o / norm(o)")(lambda o: -o / np.linalg.norm(o))
function("less the mean")(lambda o: o.mean() - o)
function("sorted")(lambda o: -np.sort(o) / 3)
function("cumsum")(lambda o: -np.cumsum(o) / 3)
function("roll")(lambda o: -np.roll(o, 1) / 3)
function("flipped")(lambda o: -o[::-1] / 3)
function("divided by the largest")(lambda o: -o / np.max(np.abs(o)))
function("clipped to a norm")(lambda o: -o * min(1, 1 / (1e-8 + np.linalg.norm(o))))
function("as far as it is unlike the first")(lambda o: (o[0] - o) / 4)
function("softmax")(lambda o: -np.exp(o - o.max()) / np.exp(o - o.max()).sum())
function("if norm(o) > 1")(lambda o: -o if np.linalg.norm(o) > 1 else np.zeros(3))
function("if o.any()")(lambda o: -o / 2 if (o > 0.5).any() else 0.1 * o)
function("if o.sum() > 0")(lambda o: -np.tanh(o) if o.sum() > 0 else o * 0)
function("outer and trace")(lambda o: -o * np.trace(np.outer(o, o)) / (1 + o @ o) / 2)
function("argmax", Choose)(lambda o: np.argmax(np.abs(o)))
function("argsort", Choose)(lambda o: np.argsort(-np.abs(o))[0])
function("int(argmax)", Choose)(lambda o: int(np.argmax(np.abs(o))))
function("an if with and", Choose)(lambda o: 2 if abs(o[2]) > 0.3 and abs(o[2]) > abs(o[0]) else 0)
function("where on the last frame", Frames)(lambda o: np.where(o[-1, 3] < -0.2, 2, 0))
function("argmax of the mean frame", Frames)(lambda o: np.abs(o.mean(axis=0)[:3]).argmax())
function("eight numbers by their mean", Eight)(lambda o: -(o - o.mean()) / 2)
function("eight numbers by their norm", Eight)(lambda o: -o / np.linalg.norm(o))
function("a mean of one number", Turn)(lambda o: -np.tanh([o.mean()]))
function("a float of one number", Turn)(lambda o: float(-np.tanh(o[0])))
function("math of one number", Turn)(lambda o: [-math.tanh(o[0])])
function("a table", Cells)(lambda o: [0, 1, 2, 2, 1, 0, 1, 2, 0][o])
function("a table of numpy", Cells)(lambda o: np.array([0, 1, 2, 2, 1, 0, 1, 2, 0])[o])
function("divmod of a cell", Cells)(lambda o: divmod(int(o), 3)[0])
function("a part of a dictionary", Named)(lambda o: np.abs(o["x"]).argmax())
function("two parts of a dictionary", Named)(lambda o: o["t"] % 3 if o["x"][0] > 0 else 2)

# --- What is returned

function("a list")(lambda o: [-float(x) / 2 for x in o])
function("a tuple of floats", Chase)(lambda o: tuple(-float(x) / 2 for x in o))
function("an int", Choose)(lambda o: 0 if o[0] > 0 else 2)
function("a truth value", Choose)(lambda o: bool(o[0] > 0))
function("numpy's int", Choose)(lambda o: np.int32(0 if o[0] > 0 else 2))
function("a 0-d array", Choose)(lambda o: np.array(0 if o[0] > 0 else 2))
function("an array of one number", Choose)(lambda o: np.array([0 if o[0] > 0 else 2]))
function("a whole float", Choose)(lambda o: 0.0 if o[0] > 0 else 2.0)
function("doubles")(lambda o: -o.astype(np.float64) / 3)
function("half precision")(lambda o: (-o / 3).astype(np.float16))
function("a row of a batch")(lambda o: -o[None] / 3)
function("nothing")(lambda o: None)
function("words", Choose)(lambda o: "left")
function("a dictionary")(lambda o: {"action": -o})
function("an action and a state")(lambda o: (-o / 2, None))
function("too many numbers")(lambda o: np.append(-o, 0.0))
function("NaN now and then")(lambda o: -np.log(o) / 3 if o[0] < 0 else -o / 3)
function("writes into the observation")(lambda o: np.negative(o, out=o) / 2)


@function("clips in place")
def clips(o):
    o.clip(-0.5, 0.5, out=o)
    return -o


BUFFER = np.zeros(3, dtype=np.float32)


@function("one buffer for all actions")
def buffered(o):
    np.multiply(o, -0.4, out=BUFFER)
    return BUFFER


# --- Ways to write a policy


def gains(o, k, weights):
    return -k * weights * o


add("a partial", lambda: partial(gains, k=0.5, weights=np.array([1.0, 0.5, 0.2])))


def closed(scale):
    def act(observation):
        return -np.clip(scale * observation, -1, 1)

    return act


add("a closure", lambda: closed(0.7))


class Agent:
    """An agent with methods."""

    def __init__(self):
        self.weights = np.random.default_rng(0).normal(size=(3, 3)) / 4

    def act(self, observation):
        return -np.tanh(self.weights @ observation + observation / 2)

    def predict(self, observation, deterministic=True):
        return self.act(observation), None


add("a bound method", lambda: Agent().act)
thing("an object with predict")(Agent)
add("a bound predict", lambda: Agent().predict, act=lambda p: lambda o: p(o)[0])


@thing("predict of rows alone", act=lambda p: lambda o: p.predict(o[None])[0])
class RowsOnly:
    def predict(self, observations):
        (_rows, _columns) = observations.shape
        return -observations / 2


@thing("predict with a state")
class Stateful:
    def predict(self, observation, state=None, episode_start=None, deterministic=True):
        state = np.zeros_like(observation) if state is None else state
        state = 0.5 * state + observation
        return -np.tanh(state), state

    def reset(self):
        self.state = None


def stateful_act(policy):
    memory = {"state": None}

    def act(observation):
        action, memory["state"] = policy.predict(observation, memory["state"])
        return action

    return act


CASES["predict with a state"] = Case("predict with a state", Chase, Stateful, act=stateful_act)


@function("a batch of rows", act=on_batches)
def of_rows(observations):
    return -np.tanh(observations[:, [1, 0, 2]])


@function("a batch, by matrices", act=on_batches)
def by_matrices(observations):
    return -np.tanh(np.einsum("ij,bj->bi", np.eye(3) / 2, observations))


@function("matrices of either", Chase)
def of_either(observations):
    return -np.tanh(observations @ (np.eye(3) * 0.5))


@function("draws from the generator it gets", act=lambda p: partial(p, generator=np.random.default_rng(3)))
def drawing(observation, generator):
    return -observation / 3 + 0.3 * generator.normal(size=3)


def recurrent_act(policy):
    memory = {"state": None}

    def act(observation):
        begins = np.array([memory["state"] is None])
        actions, memory["state"] = policy(observation[None], memory["state"], begins)
        return actions[0]

    return act


@function("a recurrent function", act=recurrent_act)
def recurrent(observations, state, episode_start):
    state = np.zeros_like(observations) if state is None else state
    state = 0.7 * state + observations
    return -np.tanh(state / 2), state


# --- Memories


class Pid:
    """A controller with an integral and a derivative."""

    def __init__(self):
        self.integral, self.last = np.zeros(3), None

    def __call__(self, o):
        self.integral = self.integral + o
        slope = 0 if self.last is None else o - self.last
        self.last = o
        return -np.clip(0.4 * o + 0.1 * self.integral + 0.2 * slope, -1, 1)


class PidWithReset(Pid):
    def reset(self):
        self.__init__()


class Lstm:
    """An LSTM of two cells by hand."""

    def __init__(self):
        self.h, self.c = np.zeros(3), np.zeros(3)

    def __call__(self, o):
        gate = 1 / (1 + np.exp(-(o + self.h)))
        self.c = gate * self.c + (1 - gate) * np.tanh(o)
        self.h = gate * np.tanh(self.c)
        return -2 * self.h


class LstmWithReset(Lstm):
    def reset(self):
        self.__init__()


class Holds:
    """An action is held for four steps."""

    def __init__(self):
        self.calls, self.action = 0, None

    def __call__(self, o):
        if self.calls % 4 == 0:
            self.action = -np.tanh(o)
        self.calls += 1
        return self.action


class HoldsWithReset(Holds):
    def reset(self):
        self.__init__()


class Limited:
    """A rate limiter."""

    def __init__(self):
        self.last = np.zeros(3)

    def __call__(self, o):
        self.last = self.last + np.clip(-np.tanh(o) - self.last, -0.15, 0.15)
        return self.last


class LimitedWithReset(Limited):
    def reset(self):
        self.__init__()


class Steps:
    """A counter of steps: brakes at first, and pushes later."""

    def __init__(self):
        self.t = 0

    def __call__(self, o):
        self.t += 1
        return -np.tanh(o) if self.t < 4 else 0.3 * np.tanh(o)


class StepsWithReset(Steps):
    def reset(self):
        self.t = 0


class Average:
    """The mean of the last three observations."""

    def __init__(self):
        self.seen = deque(maxlen=3)

    def __call__(self, o):
        self.seen.append(np.array(o))
        return -np.tanh(np.mean(self.seen, axis=0))


class AverageWithReset(Average):
    def reset(self):
        self.__init__()


class Slope:
    """What changed since the last observation."""

    last = None

    def __call__(self, o):
        slope = 0 * o if self.last is None else o - self.last
        self.last = o
        return -np.tanh(o + 3 * slope)


class Open:
    """A plan in open loop, which repeats."""

    def __init__(self):
        self.plan = itertools.cycle(np.linspace(-1, 0.5, 12))

    def __call__(self, o):
        return np.full(3, next(self.plan))


class OpenWithReset(Open):
    def reset(self):
        self.__init__()


for kind in (Pid, Lstm, Holds, Limited, Steps, Average, Open):
    thing(f"{kind.__doc__[:-1].lower()}, without reset")(kind)
for kind in (PidWithReset, LstmWithReset, HoldsWithReset, LimitedWithReset, StepsWithReset, AverageWithReset):
    thing(f"{kind.__bases__[0].__doc__[:-1].lower()}, with reset")(kind)
thing("a plan in open loop, with reset")(OpenWithReset)
thing("what changed since the last observation")(Slope)


@thing("a switch after 60 calls")
class Switches:
    calls = 0

    def __call__(self, o):
        self.calls += 1
        return -np.tanh(o) if self.calls <= 60 else 0.5 * np.tanh(o)


@thing("a switch after 6 calls of an episode")
class SwitchesEarly(Switches):
    def __call__(self, o):
        self.calls += 1
        return -np.tanh(o) if self.calls <= 6 else 0.5 * np.tanh(o)

    def reset(self):
        self.calls = 0


@thing("running means of observations")
class Running:
    def __init__(self):
        self.n, self.sum = 1, np.zeros(3)

    def __call__(self, o):
        self.n, self.sum = self.n + 1, self.sum + o
        return -np.tanh(o - self.sum / self.n)


MEMORY: dict = {}


def forget():
    MEMORY.clear()
    np.random.seed(2)  # noqa: NPY002


@function("a memory in a global", before=forget)
def remembers(o):
    MEMORY["x"] = 0.8 * MEMORY.get("x", np.zeros(3)) + 0.2 * o
    return -np.tanh(2 * MEMORY["x"])


@function("a memory in its own attribute", before=lambda: setattr(attributed, "last", np.zeros(3)))
def attributed(o):
    attributed.last = 0.8 * attributed.last + 0.2 * o
    return -np.tanh(2 * attributed.last)


def sends():
    def acts():
        o, total = (yield), 0
        while True:
            total = 0.8 * total + o
            o = yield -np.tanh(total)

    running = acts()
    next(running)
    return lambda o: running.send(o)


add("a generator function", sends)


@thing("a member of an ensemble for each episode")
class Ensemble:
    def __init__(self):
        self.generator = np.random.default_rng(0)
        self.reset()

    def reset(self):
        self.gain = self.generator.uniform(0.1, 1.0)

    def __call__(self, o):
        return -self.gain * o


@thing("a cache by what it sees")
class Caches:
    def __init__(self):
        self.known = {}

    def __call__(self, o):
        return self.known.setdefault(o.tobytes(), -np.tanh(o))


@thing("a cache by rounded observations")
class CachesRounded(Caches):
    def __call__(self, o):
        return self.known.setdefault(tuple(np.round(o)), -np.tanh(o))


add("functools' cache of a cell", lambda: functools.lru_cache(lambda o: int(o) % 3), Cells)

# --- Random numbers


@function("default_rng(0) inside the call")
def same_noise(o):
    return -o / 3 + 0.5 * np.random.default_rng(0).normal(size=o.shape)


@thing("a generator made in the constructor")
class Noisy:
    def __init__(self):
        self.generator = np.random.default_rng(5)

    def __call__(self, o):
        return -o / 3 + 0.5 * self.generator.normal(size=3)


@thing("a generator from the system's entropy")
class Entropic(Noisy):
    def __init__(self):
        self.generator = np.random.default_rng()


@function("numpy's global generator", before=forget)
def globally(o):
    return -o / 3 + 0.5 * np.random.normal(size=3)  # noqa: NPY002


@function("greedy but now and then", Choose, before=forget)
def greedy(o):
    return np.random.randint(3) if np.random.random() < 0.3 else int(np.argmax(np.abs(o)))  # noqa: NPY002


@thing("coloured noise, never reset")
class Coloured(Noisy):
    noise = 0.0

    def __call__(self, o):
        self.noise = 0.8 * self.noise + 0.3 * self.generator.normal(size=3)
        return -o / 3 + self.noise


@thing("coloured noise, reset")
class ColouredWithReset(Coloured):
    def reset(self):
        self.noise = 0.0


@thing("exploration that decays with its calls", unseen=True)
class Decays(Noisy):
    calls = 0

    def __call__(self, o):
        self.calls += 1
        return -o / 3 + max(0, 1 - self.calls / 300) * self.generator.normal(size=3)


@thing("plans in a copy of the environment")
class Plans:
    def __init__(self):
        self.model = Chase()
        self.model.reset(seed=0)

    def __call__(self, o):
        def after(push):
            self.model.x = o.astype(np.float64)
            return self.model.step(np.full(3, push))[1]

        return np.full(3, max((-0.8, 0.0, 0.8), key=after))


# --- Torch


def torch_case(name, make, env=Chase, act=None, **more):
    def built():
        import torch

        torch.manual_seed(0)
        return make(torch)

    def tensors(policy):
        import torch

        def call(o):
            with torch.no_grad():
                return policy.eval()(torch.as_tensor(o, dtype=next(policy.parameters()).dtype)[None])[0].numpy()

        return call

    add(name, built, env, act=act or tensors, **more)


def network(torch, *layers):
    return torch.nn.Sequential(torch.nn.Linear(3, 16), *layers, torch.nn.Linear(16, 3), torch.nn.Tanh())


GENERATOR = np.random.default_rng(8)


def random_actions(observation):
    return GENERATOR.uniform(-1, 1, 3)


torch_case("a network", lambda torch: network(torch, torch.nn.Tanh()))
torch_case("a network in double precision", lambda torch: network(torch, torch.nn.Tanh()).double())
torch_case("a network in half precision", lambda torch: network(torch, torch.nn.Tanh()).to(torch.bfloat16),
           act=lambda p: lambda o: half_precision(p, o))  # fmt: skip
torch_case("a network with batch norm in training", lambda torch: network(torch, torch.nn.BatchNorm1d(16)).train())
torch_case("a network with dropout in training", lambda torch: network(torch, torch.nn.Dropout(0.5)).train())


def half_precision(policy, o):
    import torch

    with torch.no_grad():
        return policy(torch.as_tensor(o, dtype=torch.bfloat16)[None])[0].float().numpy()


def tensor_function(torch):
    def act(o):
        o = torch.as_tensor(o)
        return -o / torch.linalg.norm(o)

    return act


torch_case("a function that returns tensors", tensor_function, act=by_author)


def scored(torch):
    return torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.Tanh(), torch.nn.Linear(8, 3))


def greedily(policy):
    import torch

    return lambda o: int(policy(torch.as_tensor(o)[None]).argmax())


torch_case("a network of scores", scored, Choose, act=greedily)


def wrapped_network(torch):
    net = network(torch, torch.nn.Tanh())
    return lambda o: net(torch.as_tensor(o).unsqueeze(0)).squeeze(0).detach().numpy()


torch_case("a network in a lambda", wrapped_network, act=by_author)


def mixing(torch):
    class Mixes(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = torch.nn.Linear(3, 3)

        def forward(self, x):
            x = self.linear(x)
            return -x / torch.linalg.norm(x)

    return Mixes()


torch_case("a network that divides by the norm of its batch", mixing)


def own_noise(torch):
    class Explores(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = torch.nn.Linear(3, 3)

        def forward(self, x):
            return torch.tanh(self.linear(x)) + 0.3 * torch.randn(x.shape)

    return Explores()


torch_case("a network that draws", own_noise)


def hidden(torch):
    class Remembers(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.cell, self.state = torch.nn.GRUCell(3, 3), None

        def forward(self, x):
            self.state = self.cell(x, self.state)
            return self.state

        def reset(self):
            self.state = None

    return Remembers()


def hidden_act(policy):
    import torch

    policy.reset()

    def call(o):
        with torch.no_grad():
            return policy(torch.as_tensor(o)[None])[0].numpy()

    return call


torch_case("a network with a state, with reset", hidden, act=hidden_act)


def overridden():
    from stable_baselines3 import PPO

    class Mine(PPO):
        def predict(self, observation, state=None, episode_start=None, deterministic=False):
            return -np.tanh(observation), None

    return Mine("MlpPolicy", Chase(), device="cpu", seed=0, n_steps=8, batch_size=8)


def model():
    from stable_baselines3 import PPO

    return PPO("MlpPolicy", Chase(), device="cpu", seed=0, n_steps=8, batch_size=8)


def predicts(policy):
    return lambda o: policy.predict(o, deterministic=True)[0]


add("an SB3 model", model, act=predicts)
add("an SB3 model whose predict is overridden", overridden, act=predicts)
add("predict of an SB3 model in a lambda", lambda: (lambda m: lambda o: m.predict(o, deterministic=True)[0])(model()))
add('"random"', lambda: "random", act=lambda p: random_actions)
