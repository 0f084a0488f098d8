"""Samplers of the validation problems against closed forms, dynamic programming and the real environments."""

import numpy as np
import pytest
import tabular
from reward_processes import ZOO
from validation import FAMILIES, GAMMAS, SUCCESS_CHANCES, hazards, problem, problems

EPISODES = 40_000
REAL_EPISODES = 3000


def deviation(values, expected):
    """The mean's distance from what is expected, in standard errors."""
    return (np.mean(values) - expected) / (np.std(values, ddof=1) / np.sqrt(len(values)))


def returns(single, rng, n):
    rewards, _ = single.sample(rng, n)
    return rewards @ single.gamma ** np.arange(single.horizon)


@pytest.mark.parametrize("single", problems(), ids=lambda p: p.name)
class TestEveryProblem:
    def test_exact_return_is_the_mean_of_samples(self, single):
        """4.5 standard errors: a false alarm once in 3,000 runs of the whole suite."""
        assert abs(deviation(returns(single, np.random.default_rng(5), EPISODES), single.truth)) < 4.5

    def test_expected_rewards_are_the_means_of_samples(self, single):
        """5.5 standard errors at each of 4,000 steps: a false alarm once in 6,000 runs.

        A rare reward may be missing from all samples, so the variance is at least that of 20 of the largest size.
        """
        rewards, _ = single.sample(np.random.default_rng(6), EPISODES)
        variance = np.maximum(rewards.var(axis=0), 20 * np.abs(rewards).max() ** 2 / EPISODES)
        assert (np.abs(rewards.mean(axis=0) - single.means) < 5.5 * np.sqrt(variance / EPISODES)).all()

    def test_samples_are_whole_and_end_where_they_say(self, single):
        rewards, steps = single.sample(np.random.default_rng(0), 500)
        assert rewards.shape == (500, single.horizon) and np.isfinite(rewards).all()
        assert 1 <= steps.min() <= steps.max() <= single.horizon
        assert not rewards[np.arange(single.horizon) >= steps[:, None]].any()

    def test_returns_vary(self, single):
        assert returns(single, np.random.default_rng(1), 2000).std() > 0


class TestSuite:
    def test_names_are_unique_and_not_those_of_the_zoo(self):
        names = [single.name for single in problems()]
        assert len(set(names)) == len(names)
        assert not {single.name.partition(", gamma")[0] for single in problems()} & {process.name for process in ZOO}
        assert not {single.draw for single in problems()} & {process.draw for process in ZOO}

    def test_has_the_families_at_both_discounts(self):
        assert {single.family for single in problems()} == set(FAMILIES)
        assert {single.gamma for single in problems()} == set(GAMMAS) == {1.0, 0.99}
        tables = {single.name.partition(",")[0] for single in problems() if single.family == "tabular"}
        assert tables == {"FrozenLake 4x4", "FrozenLake 8x8", "CliffWalking", "Taxi", "Blackjack"}
        assert SUCCESS_CHANCES == (0.02, 0.1, 0.5, 0.9, 0.98)

    def test_unknown_names_are_refused(self):
        with pytest.raises(ValueError, match="name must be that of a validation problem, got 'nothing'"):
            problem("nothing")


class TestClosedForms:
    @pytest.mark.parametrize("chance", SUCCESS_CHANCES)
    def test_success(self, chance):
        """A geometric series over the lengths 15 to 60."""
        assert problem(f"success {chance:g}, gamma 1").truth == pytest.approx(chance)
        discounted = chance / 46 * (0.99**14 - 0.99**60) / 0.01
        assert problem(f"success {chance:g}, gamma 0.99").truth == pytest.approx(discounted)

    @pytest.mark.parametrize("shape", ["growing", "constant", "falling"])
    @pytest.mark.parametrize("total", [0.05, 0.2, 0.6])
    def test_hazards_add_up(self, shape, total):
        hazard = hazards(shape, total, 100)
        assert 1 - np.prod(1 - hazard) == pytest.approx(total)
        assert np.sign(hazard[-1] - hazard[0]).item() == pytest.approx(
            {"growing": 1, "constant": 0, "falling": -1}[shape]
        )

    def test_constant_hazard(self):
        """Geometric lifetimes: the mean of min(tau, T) is (1 - (1 - h)^T) / h."""
        hazard = hazards("constant", 0.2, 100)[0]
        assert problem("constant hazard 0.2, 0 on failure, gamma 1").truth == pytest.approx(0.2 / hazard)
        kept = 0.99 * (1 - hazard)
        discounted = (1 - kept**100) / (1 - kept)
        assert problem("constant hazard 0.2, 0 on failure, gamma 0.99").truth == pytest.approx(discounted)
        punished = (1 - 100 * (rare := hazards("constant", 0.05, 100)[0])) * 0.05 / rare
        assert problem("constant hazard 0.05, -100 on failure, gamma 1").truth == pytest.approx(punished)

    @pytest.mark.parametrize("gamma", GAMMAS)
    def test_goals(self, gamma):
        """The law of the goal's step as a sum of four geometric ones, by convolution."""
        single = problem(f"goal after 60, 0.1 never, gamma {gamma:g}")
        chance = 4 / 64
        geometric = chance * (1 - chance) ** np.arange(100)
        law = geometric
        for _ in range(3):
            law = np.convolve(law, geometric)[:100]
        discounts = gamma ** np.arange(100)
        paid = np.cumsum(discounts)
        expected = 0.9 * np.sum(law * (10 * discounts - paid)) - (1 - 0.9 * law.sum()) * paid[-1]
        assert single.truth == pytest.approx(expected)


def backward(chain, horizon, gamma):
    """The expected return by dynamic programming from the last step to the first, state by state."""
    values = np.zeros(chain.start.size)
    for _ in range(horizon):
        continued = np.where(chain.ends, 0.0, values[chain.following])
        values = (chain.chances * (chain.rewards + gamma * continued)).sum(axis=1)
    return float(chain.start @ values)


CHAINS = {
    "FrozenLake 4x4, optimal": lambda: tabular.frozen_lake("4x4"),
    "FrozenLake 4x4, 0.3 random": lambda: tabular.frozen_lake("4x4", 0.3),
    "FrozenLake 8x8, optimal": lambda: tabular.frozen_lake("8x8"),
    "CliffWalking, 0.1 random": lambda: tabular.cliff_walking(0.1),
    "Taxi, 0.1 random": lambda: tabular.taxi(0.1),
    "Blackjack, sticks at 18": lambda: tabular.blackjack(18),
}


@pytest.mark.parametrize("name", CHAINS)
class TestTabular:
    def test_probabilities_sum_to_one(self, name):
        chain = CHAINS[name]()
        np.testing.assert_allclose(chain.chances.sum(axis=1), 1)
        assert chain.start.sum() == pytest.approx(1)

    @pytest.mark.parametrize("gamma", GAMMAS)
    def test_both_directions_of_dynamic_programming_agree(self, name, gamma):
        single = problem(f"{name}, gamma {gamma:g}")
        assert backward(CHAINS[name](), single.horizon, gamma) == pytest.approx(single.truth)


def real_returns(env, act, horizon, episodes):
    """Undiscounted returns and lengths of real episodes."""
    totals, lengths = np.zeros(episodes), np.zeros(episodes)
    for episode in range(episodes):
        observation, _ = env.reset(seed=episode)
        for _ in range(horizon):
            observation, reward, terminated, _, _ = env.step(act(observation))
            totals[episode] += reward
            lengths[episode] += 1
            if terminated:
                break
    return totals, lengths


def real_environment(name):
    from gymnasium.envs import toy_text

    rng = np.random.default_rng(3)
    if name.startswith("Blackjack"):
        return toy_text.BlackjackEnv(sab=True), lambda observation: int(observation[0] < 18)
    kinds = {
        "FrozenLake 4x4": lambda: toy_text.FrozenLakeEnv(map_name="4x4", is_slippery=True),
        "FrozenLake 8x8": lambda: toy_text.FrozenLakeEnv(map_name="8x8", is_slippery=True),
        "CliffWalking": toy_text.CliffWalkingEnv,
        "Taxi": toy_text.TaxiEnv,
    }
    kind, _, policy = name.partition(", ")
    env = kinds[kind]()
    best, epsilon = tabular.optimal_policy(env.P), float(policy.split()[0]) if "random" in policy else 0.0
    return env, lambda state: int(rng.integers(len(env.P[0]))) if rng.random() < epsilon else int(best[state])


@pytest.mark.parametrize("name", CHAINS)
def test_real_environments_agree(name):
    """Means of returns and of lengths within 4.5 standard errors: a false alarm once in 12,000 runs of these tests."""
    single = problem(f"{name}, gamma 1")
    episodes = REAL_EPISODES // 4 if "8x8" in name else REAL_EPISODES
    totals, lengths = real_returns(*real_environment(name), single.horizon, episodes)
    assert abs(deviation(totals, single.truth)) < 4.5
    _, steps = single.sample(np.random.default_rng(4), EPISODES)
    error = np.sqrt(steps.var() / EPISODES + lengths.var() / episodes)
    assert abs(lengths.mean() - steps.mean()) < 4.5 * error
