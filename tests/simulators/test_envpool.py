"""EnvPool gives the same distribution as Gymnasium, and the same bits for the same seeds in any number of threads."""

from functools import partial

import numpy as np
import pytest
from scipy import stats

import rido
from helpers import needs
from rido.record.database import RunFileError
from rido.simulators import SimulationError, trajectory_seeds
from rido.simulators.base import narrow_seed
from rido.simulators.factory import resolve_horizon
from rido.simulators.gymnasium import GymnasiumSimulator
from traps import assert_same, tanh_policy

needs("envpool", "envpool")
pytestmark = pytest.mark.filterwarnings("ignore:.*Box (low|high)'s precision")

from rido.simulators.envpool import EnvPoolSimulator  # noqa: E402

LENGTHS = np.random.default_rng(3).integers(1, 41, 70)
SEEDS = trajectory_seeds(11, 0, LENGTHS.size)


def upright(observations):
    return (observations[:, 2] > 0).astype(np.int64)


@pytest.mark.parametrize(("env", "policy"), [("Pendulum-v1", tanh_policy), ("CartPole-v1", "random")])
def test_bit_identical_for_any_number_of_environments_and_threads(env, policy):
    reference = EnvPoolSimulator(env, policy, horizon=40, num_envs=100, threads=1)
    for num_envs, threads in ((1, 1), (3, 2), (32, 2)):
        simulator = EnvPoolSimulator(env, policy, horizon=40, num_envs=num_envs, threads=threads)
        assert_same(simulator, reference, LENGTHS, SEEDS)
        assert simulator.reproducible and not simulator.capabilities.found.notes
    alone = [reference.rollout(LENGTHS[i : i + 1], SEEDS[i : i + 1]).flat for i in range(LENGTHS.size)]
    np.testing.assert_array_equal(np.concatenate(alone), reference.rollout(LENGTHS, SEEDS).flat)
    longer = reference.rollout(np.full(LENGTHS.size, 40), SEEDS).rewards
    short = reference.rollout(LENGTHS, SEEDS).rewards
    for row, length in enumerate(LENGTHS):
        np.testing.assert_array_equal(short[row, :length], longer[row, :length])


@pytest.mark.parametrize("reseed", [True, False])
@pytest.mark.parametrize("num_envs", [2, 8])
def test_early_ends_agree_with_gymnasium(reseed, num_envs):
    """Lengths of 400 CartPole episodes; a tool that favours short ones is caught. False alarm 1 in 10,000."""
    ours = EnvPoolSimulator("CartPole-v1", "random", horizon=60, num_envs=num_envs, reseed=reseed)
    theirs = GymnasiumSimulator("CartPole-v1", "random", horizon=60)
    lengths = np.full(400, 60)
    batches = [simulator.rollout(lengths, trajectory_seeds(5, 0, 400)) for simulator in (ours, theirs)]
    assert stats.ks_2samp(*[batch.steps for batch in batches]).pvalue > 1e-4
    assert (batches[0].rewards == (np.arange(60) < batches[0].steps[:, None])).all()  # the step that resets is not one
    seen = ours.observe(lengths, trajectory_seeds(6, 0, 400))
    assert len(seen.observations) == seen.trajectories.transitions + 400
    np.testing.assert_array_equal(seen.terminated[seen.trajectories.steps < 60], True)


def test_a_termination_at_the_horizon_is_told_from_the_time_limit():
    simulator = EnvPoolSimulator("CartPole-v1", upright, horizon=500)
    steps = simulator.rollout(np.full(30, 500), range(30)).steps
    common = int(np.bincount(steps).argmax())
    seen = EnvPoolSimulator("CartPole-v1", upright, horizon=common).observe(np.full(30, common), range(30))
    np.testing.assert_array_equal(seen.terminated, steps <= common)


@pytest.mark.parametrize("reseed", [True, False])
def test_short_episodes_are_collected_within_the_budget(reseed):
    settings = dict(horizon=200, budget=3000, gamma=1.0, strategy="uniform", seed=1, progress=False)
    result = rido.evaluate("CartPole-v1", "random", simulator=EnvPoolSimulator, num_envs=4, reseed=reseed, **settings)
    assert 2800 < result.transitions <= 3000 and result.trajectories > 100


def test_the_own_time_limit_is_lifted():
    simulator = EnvPoolSimulator("Pendulum-v1", tanh_policy, horizon=300)  # its own is 200
    assert simulator.rollout(np.full(5, 300), range(5)).transitions == 1500


class Turning:
    """The way to the goal of MiniGrid's empty room, by the direction and by what is in front of the agent."""

    def __call__(self, observations):
        wall = observations["image"][:, 3, 5, 0] == 2
        return np.where(wall & (observations["direction"] == 0), 1, 2)


def plain_loop(env_id, policy, seed, most, **arguments):
    """The discounted rewards of one episode of EnvPool's own environment, stepped by hand."""
    import envpool

    env = envpool.make(env_id, env_type="gymnasium", num_envs=1, seed=[narrow_seed(seed)], **arguments)
    (observation, _), rewards = env.reset(), []
    for _ in range(most):
        observation, reward, terminated, truncated, _ = env.step(policy(observation))
        rewards.append(float(reward[0]))
        if terminated[0] or truncated[0]:
            break
    return rewards


@pytest.mark.parametrize(("horizon", "limit"), [(20, None), (256, None), (300, 1000)])
def test_rewards_that_know_the_time_limit_are_those_of_the_environment(horizon, limit):
    """MiniGrid pays 1 - 0.9 t / max_episode_steps at the goal."""
    arguments = {} if limit is None else {"max_episode_steps": limit}
    simulator = EnvPoolSimulator("MiniGrid-Empty-8x8-v0", Turning(), horizon=horizon, env_kwargs=arguments)
    batch = simulator.rollout(np.full(2, horizon), SEEDS[:2])
    expected = plain_loop("MiniGrid-Empty-8x8-v0", Turning(), SEEDS[0], horizon, **arguments)
    assert expected[-1] == pytest.approx(1 - 0.9 * 11 / (limit or 256)) and len(expected) == 11
    assert batch.rewards[0, :11].tolist() == expected and batch.steps[0] == 11
    assert simulator.capabilities.found.remarks == ()


@pytest.mark.parametrize(
    ("env", "horizon", "arguments", "limit"),
    [
        ("MiniGrid-Empty-8x8-v0", 300, {}, 256),
        ("Maze-v0", 101, {}, 100),  # Jumanji's, which stays inside
        ("Pendulum-v1", 60, {"max_episode_steps": 50}, 50),
    ],
)
def test_a_limit_that_cannot_be_lifted_is_refused(env, horizon, arguments, limit):
    with pytest.raises(ValueError, match=f"horizon must be at most the environment's time limit of {limit} steps"):
        EnvPoolSimulator(env, "random", horizon=horizon, env_kwargs=arguments)
    cut = EnvPoolSimulator(env, "random", horizon=horizon, env_kwargs=arguments, end_on_truncation=True)
    assert cut.rollout(np.full(3, horizon), SEEDS[:3]).steps.max() <= limit


def test_the_default_horizon_is_that_of_envpool():
    for simulator in ("envpool", EnvPoolSimulator, partial(EnvPoolSimulator, threads=1)):
        assert resolve_horizon("Catch-v0", None, 0.9, simulator=simulator) == 66  # 0.9^66 < 0.001
        assert resolve_horizon("MiniGrid-Empty-5x5-v0", None, 1, simulator=simulator) == 100
        assert resolve_horizon("Ant-v5", None, 1, env_kwargs={"max_episode_steps": 30}, simulator=simulator) == 30
    result = rido.evaluate("Catch-v0", "random", gamma=0.9, budget=500, simulator="envpool", seed=1)
    assert 500 - 66 < result.transitions <= 500  # less than one trajectory is left
    with pytest.raises(
        ValueError, match="horizon must be given where gamma is 1 and the environment has no time limit"
    ):
        rido.evaluate("Catch-v0", "random", gamma=1, budget=500, simulator="envpool")


@pytest.mark.parametrize(
    ("env", "action"),
    [("CartPole-v1", 2), ("CartPole-v1", -1), ("CartPole-v1", 0.5), ("FrozenLake-v1", 4), ("Pendulum-v1", np.nan)],
)
def test_invalid_actions_are_refused(env, action):
    def acts(observation):
        return np.full(1, action) if env == "Pendulum-v1" else np.asarray(action)

    for kind in (EnvPoolSimulator, GymnasiumSimulator):
        with pytest.raises(SimulationError) as caught:
            kind(env, acts, horizon=10).rollout(np.full(3, 10), SEEDS[:3])
        assert caught.value.step == 0
        if kind is EnvPoolSimulator:
            assert caught.value.reason.startswith("the policy must return actions of ")


def test_a_run_file_knows_its_simulator(tmp_path):
    settings = dict(gamma=0.9, horizon=20, seed=1, run=tmp_path / "run.rido")
    begun = rido.evaluate("Pendulum-v1", tanh_policy, budget=300, **settings)
    for simulator in ("envpool", partial(EnvPoolSimulator, threads=1)):
        with pytest.raises(RunFileError, match="its simulator is 'gymnasium', not 'envpool'; give another file"):
            rido.evaluate("Pendulum-v1", tanh_policy, budget=600, simulator=simulator, **settings)
    assert rido.evaluate("Pendulum-v1", tanh_policy, budget=300, workers=2, **settings).value == begun.value
    settings["run"] = tmp_path / "race.rido"
    race = dict(policies=["random", tanh_policy], budget=400, **settings)
    rido.compare("Pendulum-v1", **race)
    with pytest.raises(RunFileError, match="its simulator is 'gymnasium', not 'envpool'"):
        rido.compare("Pendulum-v1", simulator="envpool", **race)


def test_a_folder_of_a_suite_keeps_simulators_apart(tmp_path):
    suite = rido.Suite(
        {"swing": rido.Task("Pendulum-v1", gamma=0.9, horizon=5)}, {"a": tanh_policy, "b": "random"}, budget=200
    )
    suite.run(tmp_path)
    recorded, alone = suite.run(tmp_path, simulator="envpool").to_dict(), suite.run(simulator="envpool").to_dict()
    for found in (recorded, alone):
        del found["remarks"]  # on how long resets took
    assert recorded == alone


def test_without_seeds_the_result_says_so():
    simulator = EnvPoolSimulator("CartPole-v1", "random", horizon=40, reseed=False, num_envs=4)
    one, other = (simulator.rollout(LENGTHS, SEEDS) for _ in range(2))
    assert not np.array_equal(one.steps, other.steps)
    assert not simulator.reproducible
    assert simulator.capabilities.found.notes == ("EnvPool draws starts and noise that the seed does not control",)


def test_evaluation_agrees_with_gymnasium():
    """Two independent estimates, z-test with a false alarm of 1 in 10,000."""
    settings = dict(budget=20_000, gamma=0.95, horizon=100, seed=1)
    ours = rido.evaluate(EnvPoolSimulator("Pendulum-v1", tanh_policy, horizon=100), **settings)
    theirs = rido.evaluate("Pendulum-v1", tanh_policy, **settings)
    assert abs(ours.value - theirs.value) < 3.9 * np.hypot(ours.standard_error, theirs.standard_error)


def test_errors_name_the_trajectory():
    def fails(observations, generators):
        if any(generator is not fails.spare and generator.random() > 0.999 for generator in generators):
            raise RuntimeError("no idea what to do")
        return np.zeros((len(observations), 1), dtype=np.float32)

    fails.spare = None
    simulator = EnvPoolSimulator("Pendulum-v1", fails, horizon=40, num_envs=4)
    with pytest.raises(SimulationError, match="no idea what to do") as caught:
        simulator.rollout(LENGTHS, SEEDS)
    assert caught.value.seed == SEEDS[caught.value.trajectory]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            dict(env="CartPol-v1"),
            r"env must be one of the \d+ ids that EnvPool has, got 'CartPol-v1'; did you mean Cart",
        ),
        (dict(env_kwargs={"g": 9}), r"env_kwargs must be EnvPool's arguments of Pendulum-v1, got {'g': 9}"),
        (dict(env_kwargs={"seed": 3, "num_envs": 2}), "env_kwargs must leave num_envs, seed to rido, got {"),
        (dict(env_kwargs={"batch_size": 2}), "env_kwargs must leave batch_size to rido, got {'batch_size': 2}"),
        (dict(policy=None), "policy must be given"),
        (dict(threads=0), "threads must be an integer of at least 1, got 0"),
    ],
)
def test_bad_arguments_are_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        EnvPoolSimulator(**{"env": "Pendulum-v1", "policy": "random", "horizon": 40, **arguments})
    with pytest.raises(ValueError, match=r"seeds must be an integer for each of 2 trajectories, got \[1\]"):
        EnvPoolSimulator("Pendulum-v1", "random", horizon=40).rollout(np.array([4, 4]), [1])


def test_a_policy_that_mixes_rows_is_called_with_one():
    settings = dict(gamma=0.9, horizon=10, budget=200, seed=1, simulator="envpool")
    right = rido.evaluate("Pendulum-v1", lambda o: -o[:1] / np.linalg.norm(o), **settings)
    result = rido.evaluate("Pendulum-v1", rido.batched(lambda o: -o[:, :1] / np.linalg.norm(o)), **settings)
    np.testing.assert_allclose(result.value, right.value, rtol=1e-6)
    assert "acts differently on several observations at once" in result.warnings[0]
    plain = rido.batched(lambda o: -o[:, :1] / np.linalg.norm(o, axis=1, keepdims=True))
    assert rido.evaluate("Pendulum-v1", plain, **settings).warnings == ()
