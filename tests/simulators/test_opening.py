"""What environments of other packages need to be opened, and the one line where they cannot be."""

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import SyncVectorEnv
from gymnasium.wrappers import TimeLimit

import rido
from environments import Mortal
from rido.simulators.gymnasium import GymnasiumSimulator
from rido.simulators.opening import find_spec

SETTINGS = dict(budget=100, gamma=0.9, horizon=10, seed=1)


@pytest.fixture
def register():
    """Registers environments that are forgotten after the test."""
    before = dict(gym.registry)
    yield gym.register
    gym.registry.clear()
    gym.registry.update(before)


class Rows(SyncVectorEnv):
    def __init__(self, num_envs):
        super().__init__([Mortal] * num_envs)


def test_an_argument_that_the_vectorised_form_does_not_take_goes_to_the_single_one(register):
    register("Both-v0", entry_point=lambda death=0.1: Mortal(death), vector_entry_point=Rows)
    simulator = GymnasiumSimulator("Both-v0", "random", horizon=10, env_kwargs={"death": 0.0})
    assert simulator.rollout(np.array([10] * 8), list(range(8))).steps.tolist() == [10] * 8
    with pytest.raises(ValueError, match=r"env_kwargs must be arguments of Both-v0, got {'wings': 2}"):
        GymnasiumSimulator("Both-v0", "random", horizon=10, env_kwargs={"wings": 2})


def test_an_assertion_without_a_word_shows_its_line(register):
    def make(task="reach"):
        if task != "push":
            raise AssertionError

    register("Silent-v0", entry_point=make)
    message = r"env must be an environment that can be made, got 'Silent-v0': AssertionError\(\) at 'raise Assertion"
    with pytest.raises(ValueError, match=message):
        rido.evaluate("Silent-v0", "random", **SETTINGS)


def test_an_id_that_needs_mujoco_py_is_answered_with_the_newest_version(register):
    def make():
        raise gym.error.DependencyNotInstalled("No module named 'mujoco_py'. (HINT: you need to install mujoco_py)")

    register("own/Fetch-v1", entry_point=make)
    register("own/Fetch-v4", entry_point=Mortal)
    with pytest.raises(ImportError, match="needs mujoco-py, which is no longer maintained: use own/Fetch-v4"):
        rido.evaluate("own/Fetch-v1", "random", **SETTINGS)


def test_an_id_that_an_installed_package_registers_gets_the_prefix(tmp_path, monkeypatch):
    sources = {
        "own_robots/__init__.py": 'for task in ("Reach", "Push"):\n    register(id=f"Robots{task}-v3")',
        "own_robots/tasks.py": '"RobotsReach-v3"',
        "own_games/envs/__init__.py": 'register(id="own_games/Chess-v0")',
        "bystander/__init__.py": 'raise ImportError("nobody imports this")\nregister_all(); "RobotsReach-v3"',
    }
    needs = {"own_robots": "gymnasium>=1.0", "own_games": "gymnasium", "bystander": "gymnasium-notices"}
    for path, source in sources.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(source)
    for name, need in needs.items():
        described = tmp_path / f"{name}-1.0.dist-info"
        described.mkdir()
        (described / "METADATA").write_text(f"Name: {name}\nVersion: 1.0\nRequires-Dist: {need}\n")
        (described / "RECORD").write_text("".join(f"{path},,\n" for path in sources if path.startswith(name)))
    monkeypatch.syspath_prepend(tmp_path)
    for env_id, hint in {
        "RobotsReach-v3": "; did you mean own_robots:RobotsReach-v3?",
        "own_games/Go-v1": "; did you mean own_games.envs:own_games/Go-v1?",
        "Pendulem-v1": "; did you mean Pendulum-v1 or phys2d/Pendulum-v0 or InvertedPendulum-v5?",
        "Xyzzyxyzzy-v0": "; where another package registers it, name that first, as in 'package:Xyzzyxyzzy-v0'",
    }.items():
        with pytest.raises(ValueError) as refused:
            find_spec(env_id)
        assert str(refused.value) == f"env must be a registered environment, got {env_id!r}{hint}"


def test_an_id_of_another_version_gets_the_newest_one():
    with pytest.raises(ValueError, match="got 'HalfCheetah-v1'; did you mean HalfCheetah-v5"):
        find_spec("HalfCheetah-v1")


@pytest.mark.parametrize(
    ("module", "wrapper"),
    [
        ("jumanji.environments.routing.snake.env", "jumanji.wrappers.JumanjiToGymWrapper"),
        ("dm_env._environment", "shimmy.DmControlCompatibilityV0"),
        ("gym.core", "shimmy.GymV26CompatibilityV0"),
    ],
)
def test_environments_with_another_interface_get_the_name_of_their_wrapper(module, wrapper):
    Foreign = type("Foreign", (), {"__module__": module, "reset": lambda self: None, "step": lambda self, action: None})
    for env in (Foreign(), lambda: Foreign()):
        with pytest.raises(ValueError, match=f"got Foreign of {module.partition('.')[0]}: .* makes {wrapper}"):
            rido.evaluate(env, "random", **SETTINGS)


class Parts(Mortal):
    """Takes a dictionary of actions."""

    def __init__(self):
        super().__init__()
        self.action_space = gym.spaces.Dict(arm=gym.spaces.Box(-1, 1, (2,)), hand=gym.spaces.Discrete(2))


@pytest.mark.parametrize("policy", ["random", lambda o: {"arm": np.zeros(2), "hand": 1}])
def test_actions_of_several_parts_are_refused_with_the_remedy(policy):
    with pytest.raises(ValueError, match=r"actions that are one array or number, got Dict\(.*spaces.unflatten"):
        rido.evaluate(Parts, policy, **SETTINGS)


@pytest.mark.parametrize(("horizon", "remarks"), [(700, 1), (500, 0), (100, 0)])
def test_an_id_is_made_without_layers_that_do_nothing(horizon, remarks):
    simulator = GymnasiumSimulator("CartPole-v1", "random", horizon=horizon)
    assert simulator._envs.first is simulator._envs.first.unwrapped
    assert len(simulator.found.remarks) == remarks


def test_a_time_limit_that_ends_trajectories_stays():
    simulator = GymnasiumSimulator("CartPole-v1", "random", horizon=700, end_on_truncation=True)
    assert isinstance(simulator._envs.first, TimeLimit)
    assert simulator.found.remarks == ()
