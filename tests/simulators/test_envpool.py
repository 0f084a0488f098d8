"""EnvPool gives the same distribution as Gymnasium, and the same bits for the same seeds in any number of threads."""

import numpy as np
import pytest
from scipy import stats

import rido
from helpers import needs
from rido.simulators import SimulationError, trajectory_seeds
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
        assert simulator.reproducible and not simulator.capabilities.notes
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


def test_the_own_time_limit_is_lifted():
    simulator = EnvPoolSimulator("Pendulum-v1", tanh_policy, horizon=300)  # its own is 200
    assert simulator.rollout(np.full(5, 300), range(5)).transitions == 1500


def test_without_seeds_the_result_says_so():
    simulator = EnvPoolSimulator("CartPole-v1", "random", horizon=40, reseed=False, num_envs=4)
    one, other = (simulator.rollout(LENGTHS, SEEDS) for _ in range(2))
    assert not np.array_equal(one.steps, other.steps)
    assert not simulator.reproducible
    assert simulator.capabilities.notes == ("EnvPool draws starts and noise that the seed does not control",)


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
        (dict(policy=None), "policy must be given"),
        (dict(threads=0), "threads must be an integer of at least 1, got 0"),
    ],
)
def test_bad_arguments_are_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        EnvPoolSimulator(**{"env": "Pendulum-v1", "policy": "random", "horizon": 40, **arguments})
    with pytest.raises(ValueError, match="seeds must be one for each of 2 trajectories, got 1"):
        EnvPoolSimulator("Pendulum-v1", "random", horizon=40).rollout(np.array([4, 4]), [1])
