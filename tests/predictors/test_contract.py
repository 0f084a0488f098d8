"""What every critic promises, however it came to its values."""

from functools import partial

import numpy as np
import pytest

import rido
from environments import Mortal
from rido.policies.base import ValueFunction
from rido.predictors.base import AgentCritic, FunctionCritic, signal
from rido.predictors.features import FeatureExtractor, Sample
from rido.predictors.learning import Learner
from rido.simulators.gymnasium import GymnasiumSimulator

HORIZON, GAMMA, DEATH = 12, 0.9, 0.1


def act(observations):
    return np.zeros(len(observations), dtype=int)


def simulator():
    return GymnasiumSimulator(partial(Mortal, death=DEATH), act, horizon=HORIZON)


def network(observations, steps_to_go):
    """A random network: it knows nothing, and its matrix products round by the batch."""
    rng = np.random.default_rng(0)
    inputs = np.column_stack([observations, steps_to_go / 10])
    return np.tanh(inputs @ rng.normal(size=(3, 16))) @ rng.normal(size=16) * 20


def linear(observations, steps_to_go):
    return observations[:, 0] + observations[:, 1] * steps_to_go


linear.rowwise = True


def infinite_horizon(observations):
    return 10 * np.asarray(observations[:, 1], dtype=float)


def fitted():
    observed = simulator().observe(np.full(60, HORIZON), range(1000, 1060))
    view = FeatureExtractor(simulator().observation_space, None)
    sample = Sample(observed.trajectories, observed.terminated, view(observed.observations))
    learner = Learner(
        view, members=1, groups=2, horizon=HORIZON, gamma=GAMMA, budget=100.0, resets=10_000.0, required=True
    )
    learner.add(sample, np.arange(60) % 2)
    learner.learn()
    return learner.critic()


def jax_function():
    pytest.importorskip("jax", reason="needs the extra jax")
    from rido.predictors.jax import JaxCritic

    return JaxCritic(lambda observation, steps_to_go: observation[1] * steps_to_go - observation[0])


CRITICS = {
    "function": lambda: FunctionCritic(network),
    "function, row by row": lambda: FunctionCritic(linear),
    "agent": lambda: AgentCritic(ValueFunction(infinite_horizon, discount=0.9)),
    "agent, row by row": lambda: AgentCritic(ValueFunction(infinite_horizon, discount=1.0, rowwise=True)),
    "fitted": fitted,
    "jax": jax_function,
}


@pytest.fixture(params=CRITICS)
def make(request):
    return CRITICS[request.param]


def batch(rows):
    rng = np.random.default_rng(rows)
    observations = np.column_stack([rng.integers(0, HORIZON, rows), rng.normal(size=rows)]).astype(np.float32)
    return observations, HORIZON - observations[:, 0].astype(np.int64)


@pytest.mark.parametrize("rows", [1, 2, 9, 1500])
def test_one_finite_number_for_each_observation(make, rows):
    values = make()(*batch(rows))
    assert values.shape == (rows,) and values.dtype == np.float64 and np.isfinite(values).all()


def test_the_same_batch_has_the_same_values_to_the_last_bit(make):
    critic, (observations, steps_to_go) = make(), batch(40)
    together = critic(observations, steps_to_go)
    np.testing.assert_array_equal(critic(observations, steps_to_go), together)
    if critic.rowwise:
        alone = [critic(observations[i : i + 1], steps_to_go[i : i + 1])[0] for i in range(40)]
        np.testing.assert_array_equal(alone, together)


def test_a_trajectory_has_the_same_residuals_whatever_is_collected_with_it(make):
    critic, seeds = make(), np.arange(30)
    together = signal(critic, simulator().observe(np.full(30, HORIZON), seeds), horizon=HORIZON, gamma=GAMMA)
    for i in (0, 7, 29):
        alone = signal(critic, simulator().observe(np.array([HORIZON]), seeds[i : i + 1]), horizon=HORIZON, gamma=GAMMA)
        np.testing.assert_array_equal(alone.trajectories.rewards[0], together.trajectories.rewards[i])
        assert alone.starts[0] == together.starts[i]


def test_start_value_and_residuals_add_up_to_the_return_of_every_full_length_trajectory(make):
    observed = simulator().observe(np.full(50, HORIZON), range(50))
    made = signal(make(), observed, horizon=HORIZON, gamma=GAMMA)
    discounts = GAMMA ** np.arange(HORIZON)
    np.testing.assert_allclose(
        made.starts + made.trajectories.rewards @ discounts, observed.trajectories.rewards @ discounts, rtol=1e-9
    )


def test_the_estimate_is_right_whatever_the_critic_says(make):
    """Within 5 standard errors of the truth: a false alarm in about one of 100,000 seeds."""
    env = partial(Mortal, death=DEATH)
    result = rido.evaluate(env, act, budget=6000, gamma=GAMMA, horizon=HORIZON, critic=make(), seed=0)
    assert abs(result.value - Mortal.expected_return(HORIZON, GAMMA, DEATH)) < 5 * result.standard_error
    assert result.critic == make().name


def test_the_fingerprint_tells_critics_apart(make):
    critic = make()
    assert critic.name and isinstance(critic.name, str)
    assert critic.fingerprint == make().fingerprint and len(critic.fingerprint) == 64
    others = [other().fingerprint for kind, other in CRITICS.items() if other is not make and kind != "jax"]
    assert critic.fingerprint not in others
