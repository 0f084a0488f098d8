"""What the rehearsal finds, and what it costs. Each environment here differs from a good one in one thing."""

import threading

import gymnasium as gym
import numpy as np
import pytest

import rido
from corpus import environments as kinds
from corpus import policies
from corpus.plain import plain_loop
from rido.evaluation.recorded import read_run
from rido.policies.functions import FunctionPolicy
from rido.simulators.base import Request, trajectory_seeds
from rido.simulators.gymnasium import GymnasiumSimulator
from rido.simulators.rehearsal import STEPS
from rido.simulators.repeatability import first_observations, remembers

SEEDS = [11, 12]


@rido.batched
def pushes(observations):
    return -np.clip(observations[:, :1], -1, 1)


def running():
    return kinds.running_rewards(0)


def rehearsed(env, policy=pushes, **settings):
    kinds.forget()
    simulator = GymnasiumSimulator(env, policy, horizon=20, **settings)
    return simulator, simulator.rehearse(SEEDS)


@pytest.mark.parametrize(
    ("env", "kind"),
    [
        (kinds.Line, "same"),
        (kinds.InPlace, "same"),
        (kinds.Mortal, "same"),
        (kinds.SharedBuffer, "same"),
        (kinds.Forgetful, "history"),
        (running, "history"),
        (kinds.Levels, "copies"),
        (kinds.OwnGenerator, "copies"),
        (kinds.SeededOnce, "copies"),
        (kinds.Wears, "copies"),
        (kinds.Shared, "shared"),
        (kinds.PhysicsClient, "shared"),
        (kinds.Trail, "shared"),
        (kinds.SeedsGlobals, "shared"),
        pytest.param(kinds.Entropy, "differ", marks=pytest.mark.entropy("no two of its numbers are the same")),
        (kinds.GlobalNumpy, "differ"),
        (kinds.NoSeeding, "differ"),
    ],
)
def test_it_tells_what_trajectories_depend_on(env, kind):
    _, found = rehearsed(env)
    assert found.kind == kind
    assert found.transitions <= 7 * STEPS <= 100


@pytest.mark.parametrize("num_envs", [1, 4])
def test_a_policy_that_mixes_rows_is_called_with_one(num_envs):
    mixing = rido.batched(lambda o: -o / np.linalg.norm(o))
    _, found = rehearsed(policies.Chase, mixing, num_envs=num_envs)
    assert found.mixes
    settings = dict(gamma=0.9, horizon=12, budget=480, seed=0)
    right = rido.evaluate(policies.Chase, lambda o: -o / np.linalg.norm(o), **settings)
    result = rido.evaluate(policies.Chase, mixing, num_envs=num_envs, **settings)
    np.testing.assert_allclose(result.value, right.value, rtol=1e-6)
    assert "acts differently on several observations at once" in result.warnings[0]
    _, found = rehearsed(policies.Chase, rido.batched(lambda o: -o / np.linalg.norm(o, axis=1, keepdims=True)))
    assert not found.mixes


def test_it_falls_back_to_one_environment_that_is_fresh():
    """The same bits as one environment, which nobody needs to rehearse for functions of one observation."""
    settings = dict(gamma=0.9, horizon=12, budget=480, seed=0, strategy="uniform")
    result = rido.evaluate(kinds.OwnGenerator, pushes, num_envs=16, **settings)
    alone = rido.evaluate(kinds.OwnGenerator, lambda o: -np.clip(o[:1], -1, 1), **settings)
    assert result.value == pytest.approx(alone.value, rel=1e-6)
    assert len(np.unique(result.returns.values)) == 40
    assert "would repeat the same noise" in result.warnings[0] and not result.reproducible


@pytest.mark.parametrize("num_envs", [1, 16])
def test_transitions_are_counted_in_result_and_file(tmp_path, num_envs):
    path = tmp_path / "run.rido"
    settings = dict(gamma=0.9, horizon=12, budget=480, seed=0, strategy="uniform", num_envs=num_envs)
    result = rido.evaluate(kinds.Line, pushes, run=path, **settings)
    again = rido.evaluate(kinds.Line, pushes, run=path, **settings)
    extra = result.transitions - 480
    assert 0 < extra <= 100 and again.transitions == result.transitions and again.value == result.value
    assert read_run(path).evaluation.transitions == result.transitions
    assert rido.evaluate(kinds.Line, lambda o: -o[:1], **settings).transitions == 480


class Chronicle(kinds.Line):
    """Writes down every step, in whichever process it is taken."""

    def __init__(self, path):
        super().__init__()
        self.path = path

    def step(self, action):
        with open(self.path, "a") as file:
            file.write(".")
        return super().step(action)


@pytest.mark.parametrize("act", [lambda o: -np.clip(o[:, :1], -1, 1), lambda o: -o[:, :1] / np.linalg.norm(o)])
def test_workers_count_every_step_of_a_function_that_turns_out_to_take_batches(tmp_path, act):
    """The second one mixes rows, so each worker calls it with one observation at a time."""
    steps = tmp_path / "steps"
    settings = dict(gamma=0.9, horizon=12, budget=240, seed=0, strategy="uniform")
    result = rido.evaluate(lambda: Chronicle(steps), act, workers=2, **settings)
    assert steps.stat().st_size == result.transitions <= 340
    right = rido.evaluate(kinds.Line, lambda o: act(o[None])[0], **settings)
    assert result.value == pytest.approx(right.value, rel=1e-6)


class Remembers:
    """Acts otherwise in every n-th call."""

    def __init__(self, every):
        self.every, self.calls = every, 0

    def __call__(self, observation):
        self.calls += 1
        return np.full(3, float(self.calls % self.every == 0))


class Forgets(Remembers):
    def reset(self):
        self.calls = 0


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        *[(Remembers(every), True) for every in (2, 3, 5, 8, 30, 60)],
        *[(Forgets(every), False) for every in (2, 3, 5, 8)],
        (policies.Pid(), True),
        (policies.Lstm(), True),
        (policies.Holds(), True),
        (policies.Slope(), True),
        (policies.Open(), True),
        (policies.Caches(), False),
        (policies.Noisy(), False),
        (policies.Coloured(), True),
        (policies.ColouredWithReset(), False),
        (policies.globally, False),
        (policies.same_noise, False),
        (lambda o: -o, False),
    ],
)
def test_a_memory_shows_in_what_resets_return(policy, expected):
    simulator = GymnasiumSimulator(policies.Chase, policy, horizon=20)
    assert isinstance(simulator.policy, FunctionPolicy)
    observations = first_observations(simulator._envs)
    before = vars(policy).copy() if hasattr(policy, "__dict__") else None
    assert remembers(simulator.policy, observations) is expected
    assert before is None or before.keys() == vars(policy).keys()


def test_a_memory_that_nothing_clears_keeps_episodes_whole(tmp_path):
    settings = dict(gamma=0.9, horizon=12, budget=485, seed=0, run=tmp_path / "run.rido")
    result = rido.evaluate(policies.Chase, policies.Holds(), **settings)
    seeds = trajectory_seeds(0, 0, 40)
    case = policies.CASES["an action is held for four steps, without reset"]
    assert result.value == pytest.approx(np.mean(plain_loop(case, seeds, 0, 0.9)), rel=1e-9)
    assert result.strategy == "uniform" and "remembers earlier calls" in result.warnings[0]
    assert rido.evaluate(policies.Chase, policies.Holds(), **settings).value == result.value
    with pytest.raises(ValueError, match=r"until must be None with .*Holds, which remembers earlier calls"):
        rido.evaluate(policies.Chase, policies.Holds(), gamma=0.9, horizon=12, budget=500, until=0.1)
    forgets = rido.evaluate(policies.Chase, policies.HoldsWithReset(), gamma=0.9, horizon=12, budget=485, seed=0)
    assert forgets.strategy == "adaptive" and not forgets.warnings


@pytest.mark.parametrize(
    "env_id", ["CartPole-v1", "Pendulum-v1", "FrozenLake-v1", "Taxi-v4", "Blackjack-v1", "Acrobot-v1"]
)
def test_no_alarm_for_good_environments(env_id):
    if env_id not in gym.registry:
        pytest.skip(f"this Gymnasium has no {env_id}")
    low = getattr(gym.make(env_id).action_space, "low", np.zeros((), dtype=int))
    policy = rido.batched(lambda o: np.stack([low] * _rows(o)))
    simulator = GymnasiumSimulator(env_id, policy, horizon=20)
    found = simulator.rehearse(SEEDS)
    assert found.kind == "same" and not found.mixes


def _rows(observations):
    return len(observations[0]) if isinstance(observations, tuple) else len(observations)


def test_a_comparison_refuses_a_memory_that_nothing_clears():
    given = {"holds": policies.Holds(), "pushes": lambda observation: -observation / 2}
    with pytest.raises(ValueError, match=r"holds must have a method reset\(\), for it remembers earlier calls"):
        rido.compare(policies.Chase, given, gamma=0.9, horizon=12, budget=600, seed=0)
    given["holds"] = policies.HoldsWithReset()
    assert not rido.compare(policies.Chase, given, gamma=0.9, horizon=12, budget=600, seed=0).warnings


@pytest.mark.entropy("no two of their numbers are the same")
@pytest.mark.parametrize("env", [kinds.DrawnWorld, kinds.Entropy])
@pytest.mark.parametrize("policy", ["random", kinds.towards])
def test_what_a_constructor_draws_without_a_seed_is_not_reproducible(env, policy):
    """In one environment nothing else would show it: resets repeat, and no global generator is used."""
    settings = dict(gamma=0.9, horizon=12, budget=480, seed=0)
    first, second = (rido.evaluate(env, policy, **settings) for _ in range(2))
    assert first.value != second.value and not first.reproducible
    assert any("another instance of the environment gives another" in warning for warning in first.warnings)
    assert first.transitions == 480 + 2 * STEPS


def test_nor_is_it_in_workers():
    result = rido.evaluate(kinds.DrawnWorld, "random", gamma=0.9, horizon=12, budget=480, seed=0, workers=2)
    assert not result.reproducible and any("another instance" in warning for warning in result.warnings)


class Numbered(kinds.Line):
    """Instances have a number and a lock, which decide on nothing."""

    made = 0

    def setup(self):
        type(self).made += 1
        self.number = self.made


class Locked(Numbered):
    def setup(self):
        super().setup()
        self.lock = threading.Lock()


@pytest.mark.parametrize("env", [kinds.Line, Numbered, Locked])
def test_instances_that_act_alike_are_reproducible(env):
    """Where attributes are the same no step is taken; where they differ, or cannot be compared, steps decide."""
    result = rido.evaluate(env, kinds.towards, gamma=0.9, horizon=12, budget=480, seed=0)
    assert result.reproducible and result.transitions == 480 + (0 if env is kinds.Line else 2 * STEPS)


def test_a_function_that_returns_the_same_environment_every_time_is_left_alone():
    """Closing it would end the run."""
    env = kinds.Line()
    env.close = lambda: closed.append(len(taken))
    closed, taken, step = [], [], env.step
    env.step = lambda action: taken.append(action) or step(action)
    result = rido.evaluate(lambda: env, kinds.towards, gamma=0.9, horizon=12, budget=480, seed=0)
    assert result.reproducible and set(closed) == {480} == {len(taken)}


LOOKED_INTO = []


class Part:
    """Notes that it was looked into."""

    def __getstate__(self):
        LOOKED_INTO.append(self)
        return {}


class OfParts(kinds.Line):
    def setup(self):
        self.part = Part()


def test_an_environment_that_runs_was_never_looked_into():
    """Python reads attributes of an object more slowly once all of them were listed."""
    simulator = GymnasiumSimulator(OfParts, kinds.towards, horizon=5)
    simulator.collect(Request(None, [1, 2], wants="trial"))
    assert len(LOOKED_INTO) >= 2
    assert simulator._envs.first.part not in LOOKED_INTO


def test_a_given_environment_is_not_looked_into():
    simulator = GymnasiumSimulator(OfParts(), kinds.towards, horizon=5)
    before = len(LOOKED_INTO)
    simulator.collect(Request(None, [1, 2], wants="trial"))
    assert len(LOOKED_INTO) == before
