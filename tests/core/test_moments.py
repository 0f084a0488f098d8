"""RewardMoments against the definitions, written out with loops over pairs of steps."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers import random_batch
from rido import RewardMoments, Trajectories
from rido.core.moments import union


def moments_of(*batches, horizon, gamma=0.9):
    moments = RewardMoments(horizon, gamma=gamma)
    for batch in batches:
        moments.update(batch)
    return moments


def weights_by_definition(rewards, lengths, horizon, gamma, covariance, beta=1.0, width=1.0):
    """f_t with the estimators of Appendix A.3 of the paper, or the paired ones, as they are defined."""
    reach = [[i for i in range(len(lengths)) if lengths[i] > t] for t in range(horizon)]
    weights = np.zeros(horizon)
    for t in range(horizon):
        n = len(reach[t])
        deviation = np.std([rewards[i, t] for i in reach[t]], ddof=1)
        weights[t] = gamma ** (2 * t) * (deviation + width * np.sqrt(2 * np.log(beta) / n)) ** 2
        for u in range(t + 1, horizon):
            xs, ys = rewards[reach[u], t], rewards[reach[u], u]
            if covariance == "paired":
                c = np.cov(xs, ys, ddof=1)[0, 1]
            else:
                c = np.mean(xs * ys) - np.mean(rewards[reach[t], t]) * np.mean(ys)
            c += 3 * width**2 * np.sqrt(2 * np.log(beta) / len(reach[u]))
            weights[t] += 2 * gamma ** (t + u) * c
    return weights


@settings(max_examples=40)
@given(st.integers(1, 12), st.integers(2, 12), st.integers(0, 2**32 - 1), st.sampled_from(["paired", "paper"]))
def test_weights_are_those_of_the_definition(horizon, trajectories, seed, covariance):
    batch = random_batch(seed, horizon, trajectories)
    moments = moments_of(batch, horizon=horizon)
    arguments = (batch.rewards, batch.lengths, horizon, 0.9, covariance)
    np.testing.assert_allclose(moments.weights(covariance), weights_by_definition(*arguments), rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(
        moments.weights(covariance, beta=7.0, reward_range=(-2.0, 3.0)),
        weights_by_definition(*arguments, beta=7.0, width=5.0),
        rtol=1e-9,
        atol=1e-9,
    )


def test_means_and_variances_are_those_of_each_column():
    batch = random_batch(3, 9, 20)
    moments = moments_of(batch, horizon=9)
    for t in range(9):
        column = batch.rewards[batch.lengths > t, t]
        assert moments.counts[t] == column.size
        assert moments.means[t] == pytest.approx(column.mean(), rel=1e-12)
        assert moments.variances[t] == pytest.approx(column.var(ddof=1), rel=1e-12)


@settings(max_examples=30)
@given(st.integers(0, 2**32 - 1), st.integers(1, 6))
def test_any_split_over_workers_gives_the_same_numbers(seed, workers):
    horizon, rng = 30, np.random.default_rng(seed)
    batches = [random_batch(int(rng.integers(2**32)), horizon, int(rng.integers(2, 9))) for _ in range(8)]
    whole = moments_of(*batches, horizon=horizon)
    parts = [RewardMoments(horizon, gamma=0.9) for _ in range(workers)]
    for batch in rng.permutation(len(batches)):
        parts[rng.integers(workers)].update(batches[batch])
    while len(parts) > 1:  # merge in a random tree
        one, other = rng.choice(len(parts), 2, replace=False)
        parts[one].merge(parts[other])
        del parts[other]
    for covariance in ("paired", "paper"):
        np.testing.assert_allclose(parts[0].weights(covariance), whole.weights(covariance), rtol=1e-9, atol=1e-12)
    np.testing.assert_array_equal(parts[0].counts, whole.counts)
    np.testing.assert_allclose(parts[0].means, whole.means, rtol=1e-9)


def test_an_offset_of_all_rewards_leaves_paired_weights_alone():
    batch = random_batch(0, 50, 40)
    shifted = Trajectories(batch.flat + 1e8, batch.lengths)
    plain = moments_of(batch, horizon=50).weights()
    far = moments_of(shifted, horizon=50).weights()
    assert np.abs(far - plain).max() / np.abs(plain).max() < 1e-6
    # The paper's estimator multiplies means of different samples and is not so lucky.
    plain, far = (
        moments_of(b, horizon=50).weights("paper") for b in (batch, Trajectories(batch.flat + 10, batch.lengths))
    )
    assert np.abs(far - plain).max() / np.abs(plain).max() > 0.1


def test_early_ends_count_as_zeros_up_to_the_planned_length_only():
    batch = Trajectories([[1.0, 2.0, 3.0], [1.0, 7.0, 7.0], [1.0, 2.0, 0.0]], lengths=[3, 3, 2], steps=[3, 1, 2])
    moments = moments_of(batch, horizon=3)
    np.testing.assert_array_equal(batch.rewards[1], [1, 0, 0])
    np.testing.assert_array_equal(moments.counts, [3, 3, 2])
    np.testing.assert_allclose(moments.means, [1, 4 / 3, 1.5])
    np.testing.assert_allclose(moments.survival, [1, 2 / 3, 1 / 2])
    assert moments.transitions == batch.transitions == 6


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: RewardMoments(0, gamma=0.9), "horizon must be an integer of at least 1, got 0"),
        (lambda: RewardMoments(3, gamma=0.0), r"gamma must be in \(0, 1\], got 0.0"),
        (lambda: moments_of(horizon=3).weights(), "weights need at least 2 trajectories of the full length 3, got 0"),
        (
            lambda: moments_of(random_batch(0, 4, 3), horizon=3),
            "trajectories must be no longer than the horizon 3, got 4",
        ),
        (lambda: moments_of(random_batch(0, 3, 3), horizon=3).weights(beta=0.5), "beta must be at least 1"),
        (lambda: moments_of(random_batch(0, 3, 3), horizon=3).weights("pairs"), "covariance must be one of"),
        (
            lambda: moments_of(random_batch(0, 3, 3), horizon=3).weights(reward_range=(1, 0)),
            r"reward_range must be \(low, high\) with low < high, got \(1, 0\)",
        ),
        (lambda: moments_of(horizon=3).merge(moments_of(horizon=4)), "other must have horizon 3 and gamma 0.9, got 4"),
    ],
)
def test_bad_input_is_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_folds_add_up_to_the_weights_and_are_those_of_their_trajectories():
    batch = random_batch(11, 6, 14)
    moments = moments_of(batch, horizon=6)
    folds = moments.weights_by_fold(3)
    np.testing.assert_allclose(folds.sum(axis=0), moments.weights(), rtol=1e-12)
    discounts = 0.9 ** np.arange(6)
    terms = np.zeros((len(batch), 6))
    for i in range(len(batch)):
        for t in range(batch.lengths[i]):
            own = discounts[t] * (batch.rewards[i, t] - moments.means[t])
            terms[i, t] = own**2 / (moments.counts[t] - 1)
            for u in range(t + 1, batch.lengths[i]):
                later = discounts[u] * (batch.rewards[i, u] - moments.means[u])
                terms[i, t] += 2 * own * later / (moments.counts[u] - 1)
    # Every fold has a third of the trajectories, so some three of them make up its sum at the first step.
    assert np.count_nonzero(terms[:, 0]) == 14
    chosen = [sum(terms[i, 0] for i in range(14) if mask >> i & 1) for mask in range(1 << 14)]
    for fold in folds:
        assert np.abs(np.array(chosen) - fold[0]).min() < 1e-9


class TestPartsWithMeansOfTheirOwn:
    lengths = np.array([5, 5, 5, 3, 5, 5, 2])
    parts = (slice(4), slice(4, None))

    def rows(self, offset):
        """Trajectories with the same covariances, of which the later part has other means."""
        rows = np.random.default_rng(4).normal(size=(7, 5)).cumsum(axis=1)
        rows[4:] += offset * np.arange(1, 6)
        return rows

    def moments(self, offset):
        rows = self.rows(offset)
        return [moments_of(Trajectories(rows[part], self.lengths[part]), horizon=5) for part in self.parts]

    def test_their_weights_do_not_depend_on_the_means(self):
        apart, alike = (union(self.moments(offset), same_means=False) for offset in (100.0, 0.0))
        np.testing.assert_allclose(apart.weights(), alike.weights(), rtol=1e-9)
        np.testing.assert_allclose(apart.weights_by_fold(3), alike.weights_by_fold(3), rtol=1e-9)
        np.testing.assert_allclose(apart.variances, alike.variances, rtol=1e-9)
        assert union(self.moments(100.0)).weights()[0] > 100 * apart.weights()[0]

    def test_their_weights_are_pooled_covariances(self):
        """Products of deviations from the means of each part, over the trajectories less the parts."""
        rows, weights = self.rows(3.0), np.zeros(5)
        for t in range(5):
            for u in range(t, 5):
                total, count = 0.0, 0
                for part in self.parts:
                    own, lengths = rows[part], self.lengths[part]
                    centres = [own[lengths > step, step].mean() for step in (t, u)]
                    total += np.prod(own[lengths > u][:, [t, u]] - centres, axis=1).sum()
                    count += np.count_nonzero(lengths > u)
                weights[t] += (1 if t == u else 2) * 0.9 ** (t + u) * total / (count - 2)
        np.testing.assert_allclose(union(self.moments(3.0), same_means=False).weights(), weights, rtol=1e-9)

    def test_as_few_full_length_trajectories_as_parts_count_as_alike(self):
        pieces = [moments_of(Trajectories([[x, 2 * x]], [2]), horizon=2) for x in (1.0, 3.0)]
        np.testing.assert_array_equal(union(pieces, same_means=False).weights(), union(pieces).weights())


def test_contributions_are_sums_over_the_planned_steps():
    batch = random_batch(13, 20, 40)
    moments = moments_of(batch, horizon=20)
    coefficients, centre = np.linspace(1, 2, 20), np.linspace(-1, 1, 20)
    terms = [
        (row[:length] - centre[:length]) @ coefficients[:length]
        for row, length in zip(batch.rewards, batch.lengths, strict=True)
    ]
    found = moments.contributions(coefficients, centre)
    assert found.squares.sum() == pytest.approx(np.sum(np.square(terms)))
    assert found.cubes == pytest.approx(np.sum(np.power(terms, 3)))
    assert found.fourths == pytest.approx(np.sum(np.power(terms, 4)))
    for length in range(21):
        assert found.trajectories[length] == np.sum(batch.lengths == length)
        own = [term for term, other in zip(terms, batch.lengths, strict=True) if other == length]
        assert found.squares[length] == pytest.approx(np.sum(np.square(own)))


@pytest.mark.parametrize("centre", [None, 7.0])
def test_steps_that_no_trajectory_took_are_zeros_like_others(centre):
    """Rewards after early ends are zeros, whether it is said that they were not taken or not."""
    rng = np.random.default_rng(3)
    lengths = np.array([40, 40, 12, 40, 25, 3])
    steps = np.minimum(lengths, [9, 4, 12, 1, 11, 2])
    rewards = rng.normal(2, 1, (lengths.size, 40)) * (np.arange(40) < steps[:, None])
    known, zeros = RewardMoments(40, gamma=0.9), RewardMoments(40, gamma=0.9)
    known.update(Trajectories(rewards, lengths, steps))
    zeros.update(Trajectories(rewards, lengths))
    np.testing.assert_allclose(known.weights(), zeros.weights(), rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(known.weights("paper"), zeros.weights("paper"), rtol=1e-12, atol=1e-12)
    given = known.means if centre is None else np.where(np.arange(40) == 30, centre, known.means)
    expected = zeros.terms(known.discounts, given)
    np.testing.assert_allclose(known.terms(known.discounts, given), expected, rtol=1e-12, atol=1e-12)
    by_hand = [known.discounts[:length] @ (row - given)[:length] for row, length in zip(rewards, lengths, strict=True)]
    np.testing.assert_allclose(np.sort(expected), np.sort(by_hand), rtol=1e-12, atol=1e-12)


def test_a_signal_pairs_the_first_trajectories_as_they_were_told():
    """One part has only the first trajectories of a batch whose lengths are in no order."""
    rng = np.random.default_rng(8)
    lengths, rewards = np.array([3, 5, 4, 5, 5, 3, 4]), rng.normal(size=(2, 7, 5))
    parts = [RewardMoments(5, gamma=0.9) for _ in range(2)]
    parts[0].update(Trajectories(rewards[0], lengths))
    parts[1].update(Trajectories(rewards[1][:5], lengths[:5]))
    expected = RewardMoments(5, gamma=0.9)
    expected.update(Trajectories((rewards[0] - rewards[1])[:5], lengths[:5]))
    found = RewardMoments.of_signal(parts, [1, -1])
    np.testing.assert_array_equal(found.counts, expected.counts)
    np.testing.assert_allclose(found.weights(), expected.weights(), rtol=1e-12)
