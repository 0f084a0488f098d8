import inspect
import shutil
import subprocess
import sys
from itertools import pairwise

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces

import rido
from helpers import needs
from rido.policies.base import BLOCK, Policy
from rido.policies.functions import FunctionPolicy, RandomPolicy
from rido.policies.loaders import code_needed
from rido.policies.resolve import resolve_policy
from rido.policies.untrusted import UntrustedFileError, unpickle

LINE = spaces.Box(-np.inf, np.inf, (3,), np.float64)
ARM = spaces.Box(np.array([-1, -2], np.float32), np.array([1, 0.5], np.float32))


def generators(rows, seed=0):
    return [np.random.default_rng([seed, row]) for row in range(rows)]


def resolve(policy, observation_space=LINE, action_space=ARM, **kwargs):
    return resolve_policy(policy, observation_space=observation_space, action_space=action_space, **kwargs)


def first_two(observations):
    return observations[:, :2]


class TestFunctions:
    def test_actions_of_every_batch_size(self):
        policy = resolve(first_two)
        assert isinstance(policy, Policy) and policy.reproducible and len(policy.fingerprint) == 64
        assert not policy.draws
        assert policy.name == f"{__name__}.first_two"
        for rows in (1, BLOCK - 1, BLOCK, BLOCK + 1, 3 * BLOCK):
            observations = np.random.default_rng(rows).normal(size=(rows, 3))
            assert np.array_equal(policy(observations, generators(rows)), observations[:, :2])

    def test_called_in_blocks_of_one_size_with_rows_that_exist(self):
        seen = []

        def act(observations):
            seen.append(observations.copy())
            return observations[:, :2]

        observations = np.arange(3 * (BLOCK + 2)).reshape(-1, 3)
        resolve(rido.batched(act))(observations, generators(BLOCK + 2))
        assert [len(block) for block in seen] == [BLOCK, BLOCK]
        assert np.array_equal(np.unique(np.concatenate(seen), axis=0), observations)

    def test_rowwise_functions_get_the_whole_batch(self):
        class Act:
            rowwise = True

            def __call__(self, observations):
                self.rows = len(observations)
                return observations[:, :2]

        act = Act()
        resolve(act)(np.zeros((BLOCK + 3, 3)), generators(BLOCK + 3))
        assert act.rows == BLOCK + 3

    @pytest.mark.parametrize("dtype", [np.float32, np.float64])
    @pytest.mark.parametrize("sizes", [(3, 64, 64, 2), (376, 400, 300, 2), (2_000, 300, 2)])
    def test_a_numpy_network_gives_a_row_the_same_bits_in_every_batch(self, sizes, dtype):
        rng = np.random.default_rng(0)
        layers = [(rng.normal(size=shape) / np.sqrt(shape[0])).astype(dtype) for shape in pairwise(sizes)]

        def act(observations):
            for weights in layers:
                observations = np.tanh(observations @ weights)
            return observations

        policy = resolve(act)
        pool = rng.normal(size=(30, sizes[0])).astype(dtype)
        alone = np.concatenate([policy(row[np.newaxis], generators(1)) for row in pool])
        for _ in range(30):
            index = rng.choice(30, size=rng.integers(1, 31), replace=False)
            assert np.array_equal(policy(pool[index], generators(len(index))), alone[index])

    def test_generators_belong_to_rows(self):
        def act(observations, generators):
            return np.array([generator.normal(size=2) for generator in generators])

        policy = resolve(act)
        assert policy.draws
        rows = BLOCK + 3
        used = generators(rows)
        twice = [policy(np.zeros((rows, 3)), used) for _ in range(2)]
        for row, generator in enumerate(generators(rows)):
            assert np.array_equal(twice[0][row], generator.normal(size=2))
            assert np.array_equal(twice[1][row], generator.normal(size=2))

    def test_dictionaries_and_tuples_of_observations(self):
        policy = resolve(lambda observations: observations["both"][0] + observations["more"])
        rows = BLOCK + 1
        first, second = np.arange(2.0 * rows).reshape(rows, 2), np.ones((rows, 2))
        actions = policy({"both": (first, second), "more": second}, generators(rows))
        assert np.array_equal(actions, first + 1)

    def test_objects_are_named_by_themselves_or_their_class(self):
        class Act:
            def __call__(self, observations):
                return observations[:, :2]

        assert resolve(Act()).name.endswith("Act")
        named = Act()
        named.name = "mine"
        assert resolve(named).name == "mine"
        already = resolve(named)
        assert resolve(already) is already

    def test_found_by_module_and_attribute(self):
        # json.loads is a stand-in for any callable that a module holds.
        policy = resolve("json:loads")
        assert isinstance(policy, FunctionPolicy) and policy.name == "json.loads"
        with pytest.raises(ValueError, match=r"importable 'module:attribute', got 'json:nothing'"):
            resolve("json:nothing")
        with pytest.raises(ValueError, match=r"importable 'module:attribute', got 'no_such_module:act'"):
            resolve("no_such_module:act")

    @pytest.mark.parametrize("wrong", ["ppo", 3, None, dict])
    def test_what_is_no_policy_is_refused(self, wrong):
        with pytest.raises(ValueError, match="policy must be a callable, 'random'"):
            resolve(wrong)

    def test_wrong_actions_are_refused(self):
        with pytest.raises(ValueError, match=r"actions of shape \(8, 2\) for 8 observations, got \(8, 3\)"):
            resolve(lambda observations: observations)(np.zeros((1, 3)), generators(1))
        with pytest.raises(ValueError, match="got a tuple of 2: return actions alone"):
            resolve(lambda observations: (observations, None))(np.zeros((1, 3)), generators(1))


class TestRandom:
    @pytest.mark.parametrize(
        "space",
        [
            spaces.Discrete(5),
            spaces.Discrete(3, start=-1),
            spaces.MultiDiscrete([2, 7, 3]),
            spaces.MultiDiscrete([[2, 3], [4, 5]]),
            spaces.MultiBinary(4),
            ARM,
            spaces.Box(-2, 3, (2, 2), np.int32),
            spaces.Box(np.array([-np.inf, 1, -np.inf, 0]), np.array([np.inf, np.inf, 2, 4]), dtype=np.float64),
        ],
        ids=str,
    )
    def test_samples_like_gymnasium(self, space):
        # Kolmogorov-Smirnov against Gymnasium's own sampler, at most 4 components: false alarms 4e-6 (seeds fixed).
        from scipy.stats import ks_2samp

        policy = RandomPolicy(space)
        actions = policy(None, generators(4_000))
        assert actions.dtype == space.dtype
        assert all(action in space for action in actions[:50])
        space.seed(0)
        expected = np.array([space.sample() for _ in range(4_000)])
        for ours, theirs in zip(actions.reshape(4_000, -1).T, expected.reshape(4_000, -1).T, strict=True):
            assert ks_2samp(ours, theirs).pvalue > 1e-6

    def test_a_row_depends_on_its_generator_only(self):
        policy = resolve("random")
        together = policy(np.zeros((7, 3)), generators(7))
        alone = [policy(np.zeros((1, 3)), [generator])[0] for generator in generators(7)]
        assert policy.name == "random" and policy.reproducible
        assert np.array_equal(together, alone)

    def test_other_spaces_are_refused(self):
        with pytest.raises(ValueError, match=r"action_space must be Discrete, Box, .* for policy 'random'"):
            RandomPolicy(spaces.Text(3))


def test_importing_policies_loads_no_heavy_package():
    heavy = "{'torch', 'stable_baselines3', 'gymnasium'}"
    code = f"import sys, rido.policies.resolve; sys.exit(bool({heavy} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_a_missing_extra_is_named(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "stable_baselines3", None)
    (tmp_path / "agent.zip").write_bytes(b"")
    with pytest.raises(ImportError, match=r'pip install "rido\[sb3\]"'):
        resolve(tmp_path / "agent.zip")


class Still(gym.Env):
    """An environment that is only its spaces."""

    def __init__(self, observation_space, action_space):
        self.observation_space, self.action_space = observation_space, action_space

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.observation_space.sample(), {}

    def step(self, action):
        return self.observation_space.sample(), 0.0, False, False, {}


def make(algorithm, action_space=ARM, observation_space=LINE, seed=0, **kwargs):
    """An untrained model whose networks are far from the zeros they start with."""
    sb3 = needs("stable_baselines3", "sb3")
    contrib = needs("sb3_contrib", "sb3")
    import torch

    kind = getattr(sb3, algorithm, None) or getattr(contrib, algorithm)
    policy = "MlpPolicy"
    if "buffer_size" in inspect.signature(kind).parameters:
        kwargs["buffer_size"] = 10
    model = kind(policy, Still(observation_space, action_space), seed=seed, device="cpu", **kwargs)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.policy.parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            parameter.copy_(noise / (parameter.shape[-1] ** 0.5 if parameter.ndim > 1 else 3.0))
    return model


CONTINUOUS = ["PPO", "A2C", "TRPO", "SAC", "TQC", "TD3", "DDPG"]
AGENTS = [
    *((algorithm, ARM, {}) for algorithm in CONTINUOUS),
    ("PPO", ARM, {"use_sde": True}),
    ("PPO", ARM, {"use_sde": True, "policy_kwargs": {"squash_output": True}}),
    ("SAC", ARM, {"use_sde": True}),
    ("PPO", spaces.Box(-1, 1, (2, 3)), {}),
    ("A2C", spaces.Discrete(5), {}),
    ("PPO", spaces.MultiDiscrete([3, 4]), {}),
    ("PPO", spaces.MultiBinary(3), {}),
    ("DQN", spaces.Discrete(4), {}),
    ("QRDQN", spaces.Discrete(4), {}),
]


@pytest.mark.parametrize("algorithm, action_space, kwargs", AGENTS)
class TestKnownNetworks:
    def test_deterministic_actions_are_those_of_predict(self, algorithm, action_space, kwargs, tmp_path):
        model = make(algorithm, action_space, **kwargs)
        model.save(tmp_path / "agent.zip")
        observations = np.random.default_rng(1).normal(size=(40, 3))
        expected, _ = model.predict(observations, deterministic=True)
        for source in (model, tmp_path / "agent.zip", str(tmp_path / "agent")):
            policy = resolve(source, action_space=action_space)
            assert policy.reproducible and not policy.draws and policy._actor is not None
            np.testing.assert_allclose(policy(observations, generators(40)), expected, rtol=0, atol=1e-5)

    def test_sampled_actions_have_predicts_distribution(self, algorithm, action_space, kwargs):
        # 3,000 actions for one observation from each; a mean of standard scores beyond 5 has probability 6e-7 per
        # component, about 2e-5 over all (seeds fixed).
        model = make(algorithm, action_space, **kwargs)
        if algorithm in ("DQN", "QRDQN"):
            model.exploration_rate = 0.3
        policy = resolve(model, action_space=action_space, deterministic=False)
        assert policy.reproducible == policy.draws == (not kwargs.get("use_sde", False))
        if not policy.reproducible:
            return
        rows = 3_000
        observations = np.tile(np.random.default_rng(2).normal(size=3), (rows, 1))
        ours = policy(observations, generators(rows)).reshape(rows, -1).astype(float)
        again = policy(observations[:5], generators(rows)[:5]).reshape(5, -1)
        assert np.array_equal(ours[:5], again)
        if algorithm in ("DQN", "QRDQN"):  # SB3 decides to explore once for the whole batch
            best = model.predict(observations[0], deterministic=True)[0]
            share = np.mean(ours == best)
            assert share == pytest.approx(0.7 + 0.3 / 4, abs=5 * 0.5 / np.sqrt(rows))
            return
        theirs = model.predict(observations, deterministic=False)[0].reshape(rows, -1).astype(float)
        for power in (1, 2):
            a, b = ours**power, theirs**power
            error = np.sqrt((a.var(axis=0) + b.var(axis=0)) / rows)
            assert np.all(np.abs(a.mean(axis=0) - b.mean(axis=0)) <= 5 * error + 1e-6)


@pytest.mark.parametrize("deterministic", [True, False])
@pytest.mark.parametrize("width, hidden", [(3, [64, 64]), (27, [256, 256]), (376, [400, 300]), (5, [33, 7])])
@pytest.mark.parametrize("algorithm", ["PPO", "SAC"])
def test_a_row_has_the_same_bits_in_every_batch(algorithm, width, hidden, deterministic):
    space = spaces.Box(-np.inf, np.inf, (width,))
    model = make(algorithm, observation_space=space, policy_kwargs={"net_arch": hidden})
    policy = resolve(model, space, deterministic=deterministic)
    assert policy._actor is not None
    rng = np.random.default_rng(0)
    pool = rng.normal(size=(60, width)).astype(np.float32)
    alone = np.concatenate([policy(row[np.newaxis], generators(60)[i : i + 1]) for i, row in enumerate(pool)])
    for _ in range(60):
        index = rng.choice(60, size=rng.integers(1, 41), replace=False)
        fresh = generators(60)
        used = [fresh[i] for i in index]
        assert np.array_equal(policy(pool[index], used), alone[index])


def test_a_network_that_rounds_by_position_falls_back_to_single_rows():
    from rido.policies.networks import Network

    def by_position(values):
        return values + np.arange(values.shape[1], dtype=np.float32)[:, np.newaxis]

    assert Network((np.tanh,)).steady(3).tile > 1
    network = Network((by_position,)).steady(3)
    rows = np.ones((6, 3), np.float32)
    assert network.tile == 1 and np.array_equal(network(rows), rows)


class TestOtherNetworks:
    """Those that only SB3 itself can run."""

    @pytest.fixture
    def model(self):
        from torch import nn

        return make("PPO", policy_kwargs={"activation_fn": nn.GELU})

    def test_deterministic(self, model):
        policy = resolve(model)
        assert policy._actor is None and policy.reproducible
        pool = np.random.default_rng(0).normal(size=(40, 3))
        expected, _ = model.predict(pool, deterministic=True)
        actions = policy(pool, generators(40))
        np.testing.assert_allclose(actions, expected, rtol=0, atol=1e-5)
        for rows in (1, 5, 17):
            assert np.array_equal(policy(pool[20 : 20 + rows], generators(rows)), actions[20 : 20 + rows])

    def test_sampled_actions_are_not_reproducible(self, model):
        policy = resolve(model, deterministic=False)
        assert not policy.reproducible
        assert policy(np.zeros((40, 3)), generators(40)).shape == (40, 2)

    @pytest.mark.parametrize("algorithm", ["ARS", "CrossQ"])
    def test_other_algorithms_load(self, algorithm, tmp_path):
        model = make(algorithm)
        model.save(tmp_path / "agent.zip")
        policy = resolve(tmp_path / "agent.zip")
        assert type(policy.model) is type(model)
        observations = np.random.default_rng(0).normal(size=(20, 3))
        expected, _ = model.predict(observations, deterministic=True)
        np.testing.assert_allclose(policy(observations, generators(20)), expected, rtol=0, atol=1e-5)

    def test_dictionaries(self):
        space = spaces.Dict({"a": spaces.Box(-1, 1, (2,)), "b": spaces.Discrete(3)})
        sb3 = needs("stable_baselines3", "sb3")
        model = sb3.PPO("MultiInputPolicy", Still(space, ARM), device="cpu")
        policy = resolve(model, space)
        space.seed(0)
        samples = [space.sample() for _ in range(20)]
        batch = {key: np.array([sample[key] for sample in samples]) for key in ("a", "b")}
        expected, _ = model.predict(batch, deterministic=True)
        np.testing.assert_allclose(policy(batch, generators(20)), expected, rtol=0, atol=1e-5)


def test_agents_that_need_action_masks_are_refused(tmp_path):
    space = spaces.Discrete(3)
    model = make("MaskablePPO", space)
    model.save(tmp_path / "agent.zip")
    for source in (model, tmp_path / "agent.zip"):
        with pytest.raises(ValueError, match="action masks"):
            resolve(source, action_space=space)


def test_spaces_that_do_not_fit_are_refused():
    model = make("PPO")
    with pytest.raises(ValueError, match=r"environment must have observations like PPO's, .*got Box.*\(4,\)"):
        resolve(model, spaces.Box(-1, 1, (4,)))
    with pytest.raises(ValueError, match=r"environment must have actions like PPO's, .*got Discrete\(2\)"):
        resolve(model, action_space=spaces.Discrete(2))
    ant = make("PPO", observation_space=spaces.Box(-np.inf, np.inf, (111,)))
    with pytest.raises(ValueError, match="include_cfrc_ext_in_observation=False"):
        resolve(ant, spaces.Box(-np.inf, np.inf, (105,)))


def test_ant_observations_are_filled_up_with_zeros():
    model = make("PPO", observation_space=spaces.Box(-np.inf, np.inf, (111,)))
    policy = resolve(model, spaces.Box(-np.inf, np.inf, (27,)))
    state = np.random.default_rng(0).normal(size=(5, 27))
    filled = np.concatenate([state, np.zeros((5, 84))], axis=1)
    expected, _ = model.predict(filled, deterministic=True)
    np.testing.assert_allclose(policy(state, generators(5)), expected, rtol=0, atol=1e-5)


def test_files_that_are_no_agents_are_refused(tmp_path):
    (tmp_path / "agent.zip").write_text("nothing")
    with pytest.raises(ValueError, match=r"policy must be a zip written by SB3's save\(\)"):
        resolve(tmp_path / "agent.zip")
    with pytest.raises(ValueError, match="policy must be the path of an existing zip"):
        resolve(tmp_path / "absent.zip")


class Foreign(gym.spaces.Box):
    """A class that is neither SB3's nor Gymnasium's."""


@pytest.mark.parametrize("algorithm", ["PPO", "A2C", "SAC", "TD3", "DQN", "TQC", "QRDQN", "TRPO", "ARS"])
def test_agents_without_classes_of_their_own_need_no_trust(algorithm, tmp_path):
    from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

    actions = spaces.Discrete(3) if "DQN" in algorithm else ARM
    model = make(algorithm, actions)
    model.save(tmp_path / "agent.zip")
    VecNormalize(DummyVecEnv([lambda: Still(LINE, ARM)])).save(tmp_path / "vecnormalize.pkl")
    observations = np.random.default_rng(0).normal(size=(5, 3))
    given = [resolve(tmp_path / "agent.zip", action_space=actions, trust=trust) for trust in (False, True)]
    assert np.array_equal(*(policy(observations, generators(5)) for policy in given))
    assert code_needed(tmp_path / "agent") is None


def test_other_agents_load_where_they_are_trusted(tmp_path):
    make("PPO", observation_space=Foreign(-1, 1, (3,))).save(tmp_path / "agent.zip")
    with pytest.raises(UntrustedFileError, match=r"test_policies\.Foreign, and loading it may run any code"):
        resolve(tmp_path / "agent.zip", trust=False)
    assert "test_policies.Foreign" in code_needed(tmp_path / "agent.zip")
    assert type(resolve(tmp_path / "agent.zip", Foreign(-1, 1, (3,)), trust=True).model.observation_space) is Foreign


@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("builtins", "eval"),
        ("builtins", "getattr"),
        ("os", "system"),
        ("numpy", "memmap"),  # it is an array, and it opens files
        ("numpy", "load"),
        ("torch", "load"),
        ("torch.storage", "_load_from_bytes"),
        ("stable_baselines3.common.policies", "BasePolicy.load"),
        ("stable_baselines3.common.save_util", "load_from_pkl"),
        ("gymnasium.spaces.box", "np.load"),
        ("gymnasium.spacesuit", "Box"),
        ("cloudpickle.cloudpickle", "_make_function"),
    ],
)
def test_pickles_reach_nothing_else(module, name, tmp_path):
    content = b"\x80\x04" + b"".join(b"\x8c" + bytes([len(word)]) + word.encode() for word in (module, name)) + b"\x93."
    with pytest.raises(UntrustedFileError, match="may run any code"):
        unpickle(content, tmp_path, trust=False)


@pytest.mark.parametrize("file", ["vecnormalize.pkl", "vec_normalize.pkl", "agent/vecnormalize.pkl"])
def test_statistics_beside_the_zip_are_used(file, tmp_path):
    from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

    model = make("TRPO")
    normalize = VecNormalize(DummyVecEnv([lambda: Still(LINE, ARM)]), clip_obs=1.5)
    normalize.obs_rms.update(np.random.default_rng(0).normal([1, 20, -3], [2, 0.1, 5], size=(500, 3)))
    model.save(tmp_path / "agent.zip")
    plain = resolve(tmp_path / "agent.zip")
    (tmp_path / file).parent.mkdir(exist_ok=True)
    normalize.save(tmp_path / file)
    policy = resolve(tmp_path / "agent.zip")
    assert policy.fingerprint != plain.fingerprint
    assert plain.normalisation == "observations not normalised (no vecnormalize.pkl beside the zip)"
    assert policy.normalisation == f"observations normalised by {(tmp_path / file).name}"
    assert np.array_equal(policy.vecnormalize.obs_rms.mean, normalize.obs_rms.mean)
    observations = np.random.default_rng(1).normal([1, 20, -3], [2, 0.1, 5], size=(20, 3))
    expected, _ = model.predict(normalize.normalize_obs(observations), deterministic=True)
    np.testing.assert_allclose(policy(observations, generators(20)), expected, rtol=0, atol=1e-5)


def test_files_saved_with_gym_load(monkeypatch, tmp_path):
    from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

    model = make("PPO")
    normalize = VecNormalize(DummyVecEnv([lambda: Still(LINE, ARM)]))
    with monkeypatch.context() as patch:
        patch.setattr(spaces.Box, "__module__", "gym.spaces.box")
        for name in ("gym", "gym.spaces", "gym.spaces.box"):
            patch.setitem(sys.modules, name, sys.modules[name.replace("gym", "gymnasium")])
        model.save(tmp_path / "agent.zip")
        normalize.save(tmp_path / "vecnormalize.pkl")
    assert b"gym.spaces.box" in (tmp_path / "vecnormalize.pkl").read_bytes()
    policy = resolve(tmp_path / "agent.zip")
    assert type(policy.model.observation_space) is type(policy.vecnormalize.observation_space) is spaces.Box


def test_fingerprint_follows_the_content(tmp_path):
    folders = [tmp_path / "a" / "x", tmp_path / "b" / "x", tmp_path / "c" / "x"]
    for folder in folders:
        folder.mkdir(parents=True)
    make("PPO", seed=1).save(folders[0] / "agent.zip")
    shutil.copy(folders[0] / "agent.zip", folders[1] / "agent.zip")
    make("PPO", seed=2).save(folders[2] / "agent.zip")
    policies = [resolve(folder / "agent.zip") for folder in folders]
    assert policies[0].name == "a/x/agent.zip"
    assert policies[0].fingerprint == policies[1].fingerprint != policies[2].fingerprint


ZOO = [
    ("ppo/Pendulum-v1/Pendulum-v1.zip", "Pendulum-v1", {}, 400, 200, -166),
    ("ppo/HalfCheetah-v3/HalfCheetah-v3.zip", "HalfCheetah-v5", {}, 4, 1_000, 5_886),
    ("trpo/Swimmer-v3/Swimmer-v3.zip", "Swimmer-v5", {}, 3, 1_000, 358),
    (
        "trpo/Ant-v3/Ant-v3.zip",
        "Ant-v5",
        {"include_cfrc_ext_in_observation": False, "contact_cost_weight": 0},
        12,
        1_000,
        5_113,
    ),
]


@pytest.mark.parametrize("path, env_id, kwargs, episodes, steps, expected", ZOO)
def test_returns_of_the_zoos_agents(agents_dir, path, env_id, kwargs, episodes, steps, expected):
    # Within 5%. Standard errors of these means: Pendulum 3.1%, HalfCheetah 0.3%, Swimmer 0.2%, Ant 0.6%; seeds fixed.
    needs("sb3_contrib", "sb3")
    if env_id != "Pendulum-v1":
        needs("mujoco", "mujoco")
    envs = gym.make_vec(
        env_id,
        num_envs=episodes,
        vectorization_mode="sync",
        vector_kwargs={"autoreset_mode": gym.vector.AutoresetMode.SAME_STEP},
        **kwargs,
    )
    policy = resolve(agents_dir / path, envs.single_observation_space, envs.single_action_space)
    assert policy.name == path and policy._actor is not None
    observations, _ = envs.reset(seed=0)
    returns, alive = np.zeros(episodes), np.ones(episodes, dtype=bool)
    for step in range(steps):
        if step == 0:
            compared, _ = policy.model.predict(policy.prepare(observations), deterministic=True)
            np.testing.assert_allclose(policy(observations, generators(episodes)), compared, rtol=0, atol=1e-5)
        observations, rewards, terminated, _, _ = envs.step(policy(observations, generators(episodes)))
        returns += rewards * alive
        alive &= ~terminated
    envs.close()
    assert returns.mean() == pytest.approx(expected, rel=0.05)


def test_a_models_own_predict_may_take_batches_only():
    """The number that a plain loop gets in which each observation is a batch of one row."""
    sb3 = needs("stable_baselines3", "sb3")

    class Mine(sb3.PPO):
        def predict(self, observations, deterministic=True):
            return np.clip(-observations[:, 1:2] - 0.2 * observations[:, 2:], -2, 2)

    settings = dict(budget=400, gamma=0.9, horizon=20, seed=0)
    found = rido.evaluate("Pendulum-v1", Mine("MlpPolicy", "Pendulum-v1", seed=0, device="cpu"), **settings)
    rule = rido.evaluate("Pendulum-v1", lambda one: np.clip(-one[1:2] - 0.2 * one[2:], -2, 2), **settings)
    assert found.value == rule.value
