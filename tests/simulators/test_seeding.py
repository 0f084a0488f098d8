"""Seeding that is dear is remarked on, and can be left out."""

import copy
import pickle

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils import seeding

import rido
from environments import Mortal, SlowSeeding
from misbehaving import by_observation
from rido.simulators.base import trajectory_seeds
from rido.simulators.generators import generators, resets_with
from rido.simulators.gymnasium import GymnasiumSimulator
from traps import zeros

SETTINGS = dict(budget=100, gamma=0.95, horizon=5, seed=1, strategy="uniform")
NOTE = "environments were seeded once, not for each trajectory (reseed=False)"


def test_dear_seeding_is_remarked_on_and_can_be_left_out():
    SlowSeeding.seeded = 0
    dear = rido.evaluate(SlowSeeding, zeros, **SETTINGS)
    # Three check whether the seed repeats; after one, the policy turns out to take batches; four are a rehearsal; the
    # memory of the policy is tried on two at least.
    assert 10 <= SlowSeeding.seeded - dear.trajectories <= 16
    (remark,) = dear.remarks
    assert remark.startswith("seeding takes most of the time: a reset takes ") and "reseed=False" in remark
    assert dear.reproducible and dear.value == rido.evaluate(Mortal, zeros, **SETTINGS).value
    SlowSeeding.seeded = 0
    once = rido.evaluate(SlowSeeding, zeros, **SETTINGS, reseed=False, num_envs=2)
    assert once.remarks == () and once.warnings[0] == NOTE and not once.reproducible
    assert SlowSeeding.seeded == 2


def test_workers_remark_on_it_too():
    (remark,) = rido.evaluate(SlowSeeding, zeros, **SETTINGS, workers=2, num_envs=4).remarks
    assert remark.startswith("seeding takes most of the time")
    once = rido.evaluate(SlowSeeding, zeros, **SETTINGS, workers=2, reseed=False)
    assert once.remarks == () and once.warnings.count(NOTE) == 1 and not once.reproducible


def test_quick_seeding_is_no_matter():
    assert rido.evaluate(Mortal, zeros, **SETTINGS).remarks == ()


@pytest.mark.parametrize("num_envs", [1, 4])
def test_trajectories_without_seeds_are_different_and_right(num_envs):
    """Mean of 500 returns against the closed form, z-test with a false alarm of 1 in 10,000."""
    simulator = GymnasiumSimulator(Mortal, by_observation, horizon=20, num_envs=num_envs, reseed=False)
    first, second = (simulator.rollout(np.full(250, 20), range(250)) for _ in range(2))
    starts = simulator.starts(range(40))
    assert np.unique(starts[:, 1]).size == 40
    returns = np.concatenate([batch.rewards.sum(axis=1) for batch in (first, second)])
    assert np.unique(returns).size == 500
    assert abs(returns.mean() - Mortal.expected_return(20, 1.0, 0.1)) < 3.9 * returns.std() / np.sqrt(500)


def test_generators_that_are_seeded_together_are_numpys():
    seeds = [0, 1, 2**31, 2**32 - 1, 2**32, 2**63 - 1, 2**64 - 1, *trajectory_seeds(5, 0, 200)]
    for part in (seeds, seeds[:3]):
        expected = [np.random.default_rng([seed, 1]).bit_generator.state for seed in part]
        assert [generator.bit_generator.state for generator in generators(part)] == expected
        plain = [seeding.np_random(seed) for seed in part]
        with resets_with(part):
            assert seeding.np_random(3)[0].random() == np.random.default_rng(3).random()  # a seed of nobody
            found = [seeding.np_random(seed) for seed in part]
        for (ours, seed), (theirs, expected_seed) in zip(found, plain, strict=True):
            assert seed == expected_seed and type(ours) is type(theirs)
            assert ours.bit_generator.state == theirs.bit_generator.state
            for _ in range(2):
                assert ours.spawn(1)[0].random() == theirs.spawn(1)[0].random()
            copies = pickle.loads(pickle.dumps(ours)), copy.deepcopy(ours)
            assert len({one.random() for one in (ours, theirs, *copies)}) == 1


def test_environments_get_the_generators_that_gymnasium_makes():
    """Also where two of them are reset with the same seed: each has its own."""
    first, second = (gym.make("CartPole-v1").unwrapped for _ in range(2))
    expected = first.reset(seed=5)[0].tolist()
    with resets_with([5]):
        assert first.reset(seed=5)[0].tolist() == second.reset(seed=5)[0].tolist() == expected
        assert first.np_random is not second.np_random and seeding.np_random.__module__ != seeding.__name__
        with pytest.raises(gym.error.Error, match="Seed must be a python integer"):
            first.reset(seed=np.int64(5))
    assert seeding.np_random.__module__ == seeding.__name__


def test_seeds_do_not_depend_on_the_request():
    whole = trajectory_seeds(9, 0, 5000, stream=2)
    for first, count in ((0, 1), (1023, 2), (1024, 1024), (7, 3000), (4999, 1)):
        assert trajectory_seeds(9, first, count, stream=2) == whole[first : first + count]
