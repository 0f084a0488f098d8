"""Networks of torch, objects with predict(), and functions of one observation."""

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces

import rido
from helpers import needs
from rido.policies.base import BLOCK
from rido.policies.resolve import resolve_policy
from rido.simulators.parallel.serialization import deserialize, serialize

LINE = spaces.Box(-np.inf, np.inf, (3,), np.float64)
ARM = spaces.Box(np.array([-1, -2], np.float32), np.array([1, 0.5], np.float32))
ROWS = np.random.default_rng(0).normal(size=(21, 3))


def generators(rows, seed=0):
    return [np.random.default_rng([seed, row]) for row in range(rows)]


def resolve(policy, action_space=ARM, observation_space=LINE, **settings):
    return resolve_policy(policy, observation_space=observation_space, action_space=action_space, **settings)


@pytest.fixture(scope="module")
def torch():
    torch = needs("torch", "sb3")
    torch.manual_seed(0)
    return torch


def network(torch, outputs=2):
    return torch.nn.Sequential(torch.nn.Linear(3, 64), torch.nn.Tanh(), torch.nn.Linear(64, outputs))


class TestModules:
    def test_acts_as_it_does_in_torch(self, torch):
        assert resolve(network(torch).bfloat16())(ROWS, generators(21)).dtype == np.float32
        module = torch.nn.Sequential(network(torch), torch.nn.Dropout(0.5)).double()
        module[0][0].eval()
        policy = resolve(module)
        found = policy(ROWS, generators(21))
        assert module.training and not module[0][0].training  # each part as it was
        module.eval()
        with torch.no_grad():
            expected = module(torch.as_tensor(ROWS)).numpy()
        np.testing.assert_allclose(found, expected, rtol=1e-12)
        assert found.dtype == np.float64 and policy.reproducible and not policy.draws

    def test_floats_get_its_dtype_and_integers_stay(self, torch):
        seen = []

        class Module(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.embed, self.scale = torch.nn.Embedding(5, 2), torch.nn.Parameter(torch.ones(2))

            def forward(self, observations):
                seen.append((observations["place"].dtype, observations["speed"].dtype, torch.is_grad_enabled()))
                return self.embed(observations["place"]) + self.scale * observations["speed"]

        space = spaces.Dict(place=spaces.Discrete(5), speed=spaces.Box(-1, 1, (2,), np.float64))
        module = Module()
        batch = {"place": np.arange(5), "speed": np.ones((5, 2))}
        found = resolve(module, observation_space=space)(batch, generators(5))
        np.testing.assert_allclose(found, module.embed.weight.detach().numpy() + 1)
        assert set(seen) == {(torch.int64, torch.float32, False)}

    def test_scores_of_discrete_actions(self, torch):
        module = network(torch, 4)
        with torch.no_grad():
            best = module(torch.as_tensor(ROWS).float()).argmax(dim=1).numpy()
        policy = resolve(module, spaces.Discrete(4, start=2))
        np.testing.assert_array_equal(policy(ROWS, generators(21)), best + 2)
        with pytest.raises(ValueError, match=r"scores, which may be logits or Q-values: to sample, let it return"):
            resolve(module, spaces.Discrete(4), deterministic=False)(ROWS, generators(21))
        with pytest.raises(ValueError, match=r"scores of all actions for Discrete\(5\), got float32 of shape"):
            resolve(module, spaces.Discrete(5))(ROWS, generators(21))

    @pytest.mark.parametrize("kind", ["Categorical", "Normal"])
    def test_distributions(self, torch, kind):
        """Samples have the distribution's mean: 5 standard errors, a false alarm in 3 million."""

        class Actor(torch.nn.Sequential):
            def forward(self, observations):
                outputs = super().forward(observations)
                if kind == "Categorical":
                    return torch.distributions.Categorical(logits=outputs)
                return torch.distributions.Independent(torch.distributions.Normal(outputs, 0.3), 1)

        module, space = Actor(*network(torch)), spaces.Discrete(2) if kind == "Categorical" else ARM
        with torch.no_grad():
            expected = module(torch.as_tensor(ROWS).float())
        np.testing.assert_allclose(resolve(module, space)(ROWS, generators(21)), expected.mode, rtol=1e-5)
        policy = resolve(module, space, deterministic=False)
        before = torch.get_rng_state()
        rows = np.repeat(ROWS[:1], 1000, axis=0)
        found = policy(rows, generators(1000))
        assert policy.reproducible and torch.equal(before, torch.get_rng_state())
        np.testing.assert_array_equal(policy(rows[5:9], generators(1000)[5:9]), found[5:9])
        mean = expected.probs[0, 1] if kind == "Categorical" else expected.mean[0]
        assert np.all(np.abs(found.mean(axis=0) - mean.numpy()) < 5 * found.std(axis=0) / np.sqrt(1000))

    def test_outputs_that_are_no_actions_say_what_to_do(self, torch):
        class Pair(torch.nn.Linear):
            def forward(self, observations):
                return super().forward(observations), None

        with pytest.raises(
            ValueError, match=r"a tensor of actions or a distribution, got a tuple: wrap it in a module"
        ):
            resolve(Pair(3, 2))(ROWS, generators(21))

        class Squashed(torch.nn.Linear):
            def forward(self, observations):
                normal = torch.distributions.Normal(super().forward(observations), 1.0)
                return torch.distributions.TransformedDistribution(normal, torch.distributions.TanhTransform())

        with pytest.raises(ValueError, match=r"a TransformedDistribution, which has no mode: let it return the action"):
            resolve(Squashed(3, 2))(ROWS, generators(21))
        assert resolve(Squashed(3, 2), deterministic=False)(ROWS, generators(21)).shape == (21, 2)

    def test_for_one_observation(self, torch):
        class Flat(torch.nn.Linear):
            def forward(self, observation):
                assert observation.ndim == 1
                return super().forward(observation)

        module = Flat(3, 2)
        with torch.no_grad():
            expected = [module(torch.as_tensor(row).float()).numpy() for row in ROWS]
        np.testing.assert_array_equal(resolve(module)(ROWS, generators(21)), expected)

    def test_the_fingerprint_follows_weights_code_and_settings(self, torch):
        class Scaled(torch.nn.Linear):
            gain = 1.0

            def forward(self, observations):
                return self.gain * super().forward(observations)

        def make(seed, gain):
            torch.manual_seed(seed)
            module = Scaled(3, 2)
            module.gain = gain
            return module

        first = resolve(make(0, 1.0)).fingerprint
        assert first == resolve(make(0, 1.0).eval()).fingerprint
        assert first not in {resolve(make(1, 1.0)).fingerprint, resolve(make(0, 2.0)).fingerprint}

    def test_a_network_is_worth_what_a_loop_measures(self, torch):
        """Uniform evaluation of whole episodes against a loop over other seeds; 4.5 standard errors."""
        module = network(torch, 1)
        result = rido.evaluate("Pendulum-v1", module, budget=4000, gamma=1, horizon=20, strategy="uniform", seed=0)
        env, returns = gym.make("Pendulum-v1"), []
        for seed in range(200):
            observation, _ = env.reset(seed=seed)
            returns.append(0.0)
            for _ in range(20):
                action = module(torch.as_tensor(observation)).detach().numpy()
                observation, reward, *_ = env.step(action)
                returns[-1] += reward
        error = np.hypot(result.standard_error, np.std(returns) / np.sqrt(200))
        assert abs(result.value - np.mean(returns)) < 4.5 * error


class TestOneObservation:
    @pytest.mark.parametrize("space", [ARM, spaces.Discrete(3), spaces.MultiDiscrete([2, 5])], ids=str)
    def test_found_out_by_the_first_call(self, space):
        def act(observation):
            assert observation.shape == (3,)
            return int(observation[0] > 0) if space.shape == () else (observation[:2] > 0).astype(space.dtype)

        policy = resolve(act, space)
        found = policy(ROWS, generators(21))
        np.testing.assert_array_equal(found, [act(row) for row in ROWS])
        np.testing.assert_array_equal(policy(ROWS[3:5], generators(2)), found[3:5])

    def test_a_constant_is_one_action(self):
        found = resolve(lambda observation: np.array([0.5, 0.25]))(ROWS, generators(21))
        np.testing.assert_array_equal(found, np.tile([0.5, 0.25], (21, 1)))

    def test_as_many_numbers_as_rows_do_not_mislead(self):
        """With 8 numbers in an observation, a number for each of them looks like an action for each of 8 rows."""
        line, rows = spaces.Box(-1, 1, (BLOCK,)), np.random.default_rng(0).normal(size=(10, BLOCK))
        policy = resolve(lambda observation: np.where(observation[0] > 0, 1, 2), spaces.Discrete(3), line)
        np.testing.assert_array_equal(policy(rows, generators(10)), np.where(rows[:, 0] > 0, 1, 2))
        batched = resolve(lambda observations: np.where(observations[:, 0] > 0, 1, 2), spaces.Discrete(3), line)
        np.testing.assert_array_equal(batched(rows, generators(10)), np.where(rows[:, 0] > 0, 1, 2))

    def test_dictionaries_and_generators(self):
        space = spaces.Dict(a=LINE, b=spaces.Discrete(4))

        def act(observation, generator):
            return observation["a"][:2] + observation["b"] + generator.normal(size=2)

        batch = {"a": ROWS, "b": np.arange(21) % 4}
        found = resolve(act, observation_space=space)(batch, generators(21))
        noise = [generator.normal(size=2) for generator in generators(21)]
        np.testing.assert_array_equal(found, ROWS[:, :2] + batch["b"][:, None] + noise)

    def test_texts_and_single_numbers(self):
        """A batch of texts is a tuple of strings; a number is the action of a box of one number."""
        space = spaces.Dict(a=LINE, mission=spaces.Text(20))
        batch = {"a": ROWS, "mission": tuple(f"go {row}" for row in range(21))}
        expected = ROWS[:, :1] + np.arange(21)[:, None]

        def one(observation):
            return observation["a"][0] + float(observation["mission"][3:])

        def several(observations):
            return observations["a"][:, 0] + [float(text[3:]) for text in observations["mission"]]

        for act in (one, several):
            policy = resolve(act, spaces.Box(-99, 99, (1,)), space)
            np.testing.assert_array_equal(policy(batch, generators(21)), expected)
        choice = resolve(lambda observations: (observations[:, :1] > 0).astype(int), spaces.Discrete(2))
        np.testing.assert_array_equal(choice(ROWS, generators(21)), ROWS[:, 0] > 0)

    def test_errors_say_what_was_given_and_expected(self):
        with pytest.raises(ValueError, match=r"\(8, 2\) for 8 observations, got \(8, 3\), or of shape \(2,\) for one"):
            resolve(lambda observations: observations)(ROWS, generators(21))
        with pytest.raises(
            ValueError, match=r"for a batch of shape \(8, 3\), or of shape \(2,\) for one .* got \(1,\)"
        ):
            resolve(lambda observation: observation[[int(observation[0] > 5)]])(ROWS, generators(21))
        with pytest.raises(ZeroDivisionError):  # the same error for both is the function's own
            resolve(lambda observations: 1 / 0)(ROWS, generators(21))


class TestPredict:
    def test_scikit_learns_and_sb3s(self):
        class Learner:
            def predict(self, rows):
                assert rows.ndim == 2
                return rows[:, :2]

        class Agent:
            def predict(self, observation, deterministic=False):
                return observation[..., :2] * (1 if deterministic else 2), None

        for agent, factor in ((Learner(), 1), (Agent(), 1), (Agent().predict, 1)):
            policy = resolve(agent)
            np.testing.assert_array_equal(policy(ROWS, generators(21)), factor * ROWS[:, :2])
            assert policy.name.endswith(("Learner", "Agent"))
        np.testing.assert_array_equal(resolve(Agent(), deterministic=False)(ROWS, generators(21)), 2 * ROWS[:, :2])

    def test_the_predict_of_an_sb3_model_is_the_model(self, tmp_path):
        sb3 = needs("stable_baselines3", "sb3")
        model = sb3.PPO("MlpPolicy", "Pendulum-v1", seed=0, device="cpu")
        space = gym.make("Pendulum-v1").action_space
        rows = ROWS.astype(np.float32)
        policy = resolve(model.predict, space, model.observation_space)
        np.testing.assert_allclose(policy(rows, generators(21)), model.predict(rows, deterministic=True)[0], atol=1e-5)
        assert policy.normalisation == ""  # it is known that it was trained without
        assert deserialize(serialize("Pendulum-v1", model, {"horizon": 5})).policy.normalisation == ""
        model.save(tmp_path / "agent.zip")
        loaded = resolve(sb3.PPO.load(tmp_path / "agent.zip", device="cpu"), space, model.observation_space)
        assert loaded.normalisation.startswith("observations not normalised (the model came without the environment")
