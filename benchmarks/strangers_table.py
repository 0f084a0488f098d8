"""Which environments of which packages, and what installs them. "Id?name=value" has an argument of the environment."""

from dataclasses import dataclass
from functools import partial

BASE = "gymnasium==1.4.0 numpy==2.4.6 scipy==1.17.1 cloudpickle typer rich"


@dataclass(frozen=True)
class Package:
    """Environments of one package.

    ``module`` is what an id begins with, as in "panda_gym:PandaReach-v3", where importing it registers the id;
    ``imports`` are imported before; ``make`` returns what is given to rido in place of an id; ``horizon`` is the most
    steps, fewer where they are slow.
    """

    name: str
    ids: str
    module: str = ""
    imports: tuple = ()
    kind: str = "id"
    make: object = None
    horizon: int = 50


@dataclass(frozen=True)
class Group:
    """Packages that fit into one virtual environment, and the arguments of pip, in this order."""

    pip: tuple
    packages: tuple


def bluesky(name):
    import bluesky_gym
    import gymnasium as gym

    bluesky_gym.register_envs()
    return partial(gym.make, name)


def classics(name):
    import gym_classics
    import gymnasium as gym

    gym_classics.register("gymnasium")
    return partial(gym.make, name)


def dm_control(name):
    from dm_control import suite
    from shimmy import DmControlCompatibilityV0

    return lambda: DmControlCompatibilityV0(suite.load(*name.split(":")[1:]))


def jumanji(name):
    import jumanji
    from jumanji.wrappers import JumanjiToGymWrapper

    return lambda: JumanjiToGymWrapper(jumanji.make(name))


def jumanji_itself(name):
    import jumanji

    return jumanji.make(name.partition("/")[2])


def gymnax(name):
    import gymnax

    return gymnax.make(name)[0]


def craftax(name):
    from craftax.craftax_env import make_craftax_env_from_name

    return make_craftax_env_from_name(name, auto_reset=False)


def popgym_arcade(name):
    import popgym_arcade

    return popgym_arcade.make(name)[0]


GYMNASIUM = Package(
    "gymnasium",
    "CartPole-v1 MountainCar-v0 MountainCarContinuous-v0 Pendulum-v1 Acrobot-v1 FrozenLake-v1 FrozenLake8x8-v1 "
    "CliffWalking-v1 CliffWalkingSlippery-v1 Taxi-v4 Blackjack-v1",
)
MUJOCO = Package(
    "gymnasium, MuJoCo",
    "Ant-v5 HalfCheetah-v5 Hopper-v5 Humanoid-v5 HumanoidStandup-v5 InvertedDoublePendulum-v5 InvertedPendulum-v5 "
    "Pusher-v5 Reacher-v5 Swimmer-v5 Walker2d-v5 HalfCheetah-v4 Swimmer-v4",
)
DM_CONTROL = (
    "acrobot-swingup",
    "ball_in_cup-catch",
    "cartpole-balance",
    "cartpole-swingup",
    "cheetah-run",
    "finger-spin",
    "fish-swim",
    "hopper-hop",
    "humanoid-walk",
    "lqr-lqr_2_1",
    "pendulum-swingup",
    "point_mass-easy",
    "quadruped-walk",
    "reacher-easy",
    "swimmer-swimmer6",
    "walker-walk",
)
META_WORLD = (
    "reach",
    "push",
    "pick-place",
    "door-open",
    "drawer-close",
    "button-press-topdown",
    "peg-insert-side",
    "window-open",
    "basketball",
    "hammer",
)
GROUPS = {
    "installed": Group((), (Package("installed", "CartPole-v1 FrozenLake-v1 Pendulum-v1"),)),
    "farama": Group(
        (
            f"{BASE} gymnasium[box2d,classic-control,toy-text]==1.4.0 mujoco==4.0.0 ale-py==0.12.1 minigrid==3.2.0 "
            "highway-env==1.12.1 mo-gymnasium==1.3.2 flappy-bird-gymnasium==0.4.0 gym-simplegrid==1.1.0 "
            "buffalo-gym==0.4.0 gym-classics==1.0.0 gym-anytrading==2.0.0 popgym==1.0.7 mobile-env==2.1.0 "
            "gym-anm==2.0.1 nasim==0.12.0 bluesky-gym==0.2.0 imageio",
        ),
        (
            GYMNASIUM,
            Package(
                "gymnasium, Box2D",
                "LunarLander-v3 LunarLanderContinuous-v3 BipedalWalker-v3 "
                "BipedalWalkerHardcore-v3 CarRacing-v3 CarRacing-v3?continuous=",
                horizon=25,
            ),
            MUJOCO,
            Package(
                "ale-py",
                "ALE/Pong-v5 ALE/Breakout-v5 ALE/SpaceInvaders-v5 ALE/Qbert-v5 ALE/Seaquest-v5 "
                "ALE/MsPacman-v5 ALE/Freeway-v5 ALE/Asterix-v5 ALE/Pong-v5?obs_type=ram "
                "ALE/Breakout-v5?obs_type=ram ALE/Boxing-v5?obs_type=ram ALE/Boxing-v5?obs_type=grayscale",
                imports=("ale_py",),
            ),
            Package(
                "minigrid",
                "MiniGrid-Empty-5x5-v0 MiniGrid-Empty-Random-6x6-v0 MiniGrid-DoorKey-5x5-v0 "
                "MiniGrid-FourRooms-v0 MiniGrid-Dynamic-Obstacles-5x5-v0 MiniGrid-LavaCrossingS9N1-v0 "
                "MiniGrid-MultiRoom-N2-S4-v0 MiniGrid-Fetch-5x5-N2-v0 MiniGrid-MemoryS7-v0 "
                "BabyAI-GoToRedBall-v0 BabyAI-GoToLocal-v0 BabyAI-PickupLoc-v0",
                imports=("minigrid",),
            ),
            Package(
                "highway-env",
                "highway-fast-v0 merge-v0 roundabout-v0 parking-v0 intersection-v0 "
                "intersection-v1 racetrack-v0 two-way-v0 u-turn-v0 exit-v0 lane-keeping-v0",
                "highway_env",
                horizon=6,
            ),
            Package(
                "mo-gymnasium",
                "deep-sea-treasure-v0 minecart-v0 minecart-deterministic-v0 four-room-v0 "
                "fruit-tree-v0 resource-gathering-v0 breakable-bottles-v0 fishwood-v0 water-reservoir-v0 "
                "mo-mountaincar-v0 mo-mountaincarcontinuous-v0 mo-lunar-lander-v3 mo-reacher-v5 mo-halfcheetah-v5 "
                "mo-hopper-v5",
                "mo_gymnasium",
            ),
            Package("flappy-bird-gymnasium", "FlappyBird-v0", "flappy_bird_gymnasium"),
            Package("gym-simplegrid", "SimpleGrid-4x4-v0 SimpleGrid-8x8-v0", "gym_simplegrid"),
            Package(
                "buffalo-gym",
                "Buffalo-v0 Bandit-v0 ContextualBandit-v0 DuelingBandit-v0 BoundlessBuffalo-v0 "
                "StatefulBandit-v0 SymbolicStateBandit-v0 FatigueBandit-v0 InfiniteArmedBandit-v0 MultiBuffalo-v0",
                "buffalo_gym",
            ),
            Package(
                "gym-classics",
                "5Walk-v0 19Walk-v0 ClassicGridworld-v0 CliffWalk-v0 DynaMaze-v0 FourRooms-v0 "
                "JacksCarRental-v0 SparseGridworld-v0 WindyGridworld-v0",
                kind="function",
                make=classics,
            ),
            Package("gym-anytrading", "forex-v0 stocks-v0", "gym_anytrading"),
            Package(
                "popgym",
                "popgym-AutoencodeEasy-v0 popgym-BattleshipEasy-v0 popgym-ConcentrationEasy-v0 "
                "popgym-CountRecallEasy-v0 popgym-HigherLowerEasy-v0 popgym-MineSweeperEasy-v0 "
                "popgym-MultiarmedBanditEasy-v0 popgym-NoisyPositionOnlyCartPoleEasy-v0 "
                "popgym-PositionOnlyPendulumEasy-v0 popgym-RepeatFirstEasy-v0 popgym-RepeatPreviousEasy-v0",
                "popgym",
            ),
            Package("mobile-env", "mobile-small-central-v0 mobile-medium-central-v0 mobile-small-ma-v0", "mobile_env"),
            Package("gym-anm", "ANM6Easy-v0", "gym_anm"),
            Package("nasim", "Tiny-v0 TinyPO-v0 Tiny2D-v0 TinyPOVA-v0 Small-v0 TinyGen-v0", "nasim"),
            Package(
                "bluesky-gym",
                "DescentEnv-v0 HorizontalCREnv-v0 PlanWaypointEnv-v0 SectorCREnv-v0 VerticalCREnv-v0",
                kind="function",
                make=bluesky,
            ),
        ),
    ),
    "robots": Group(
        (
            f"{BASE} mujoco==3.8.1 shimmy[dm-control]==2.0.1 gymnasium-robotics==1.4.2 tetris-gymnasium==0.3.1 "
            "gym-pusht==0.1.8",
        ),
        (
            Package(
                "gymnasium-robotics",
                "FetchReach-v4 FetchReachDense-v4 FetchPush-v4 FetchSlide-v4 "
                "FetchPickAndPlace-v4 FetchReach-v1 HandReach-v3 HandManipulateBlock-v1 AdroitHandDoor-v1 "
                "AdroitHandPen-v1 PointMaze_UMaze-v3 PointMaze_Open-v3 PointMaze_Medium-v3 AntMaze_UMaze-v5 "
                "FrankaKitchen-v1",
                "gymnasium_robotics",
            ),
            Package(
                "dm_control through shimmy",
                " ".join(f"dm_control/{task}-v0" for task in DM_CONTROL),
                "shimmy",
            ),
            Package(
                "dm_control, a function",
                "suite:cartpole:balance suite:reacher:easy suite:pendulum:swingup",
                kind="function",
                make=dm_control,
            ),
            Package("tetris-gymnasium", "tetris_gymnasium/Tetris", "tetris_gymnasium.envs"),
            Package("gym-pusht", "gym_pusht/PushT-v0", "gym_pusht"),
        ),
    ),
    "bullet": Group(
        ("torch==2.13.0", f"{BASE} panda-gym==3.0.7 PyFlyt==0.21.0"),
        (
            Package(
                "panda-gym",
                "PandaReach-v3 PandaReachDense-v3 PandaReachJoints-v3 PandaPush-v3 PandaSlide-v3 "
                "PandaPickAndPlace-v3 PandaStack-v3 PandaFlip-v3",
                "panda_gym",
            ),
            Package(
                "PyFlyt",
                "PyFlyt/QuadX-Hover-v1 PyFlyt/QuadX-Waypoints-v1 PyFlyt/Fixedwing-Waypoints-v1 "
                "PyFlyt/Rocket-Landing-v1",
                "PyFlyt.gym_envs",
            ),
        ),
    ),
    "meta": Group(
        (f"{BASE} metaworld==3.0.0 mujoco==3.4.0 packaging imageio",),
        (
            Package(
                "Meta-World",
                " ".join(f"Meta-World/MT1?env_name={task}-v3" for task in META_WORLD),
                "metaworld",
            ),
        ),
    ),
    "jax": Group(
        (
            f"{BASE} jax==0.10.2 flax==0.12.8 six seaborn craftax==1.6.1 jumanji==1.1.2 popgym-arcade==0.0.7",
            "--no-deps gymnax==1.0.1",
        ),
        (
            Package(
                "gymnax",
                "CartPole-v1 Pendulum-v1 Acrobot-v1 MountainCar-v0 MountainCarContinuous-v0 Catch-bsuite "
                "DeepSea-bsuite MemoryChain-bsuite UmbrellaChain-bsuite DiscountingChain-bsuite "
                "BernoulliBandit-misc FourRooms-misc MetaMaze-misc PointRobot-misc Reacher-misc Swimmer-misc "
                "Pong-misc Asterix-MinAtar Breakout-MinAtar Freeway-MinAtar SpaceInvaders-MinAtar "
                "GaussianBandit-misc SimpleBandit-bsuite",
                kind="gymnax",
                make=gymnax,
            ),
            Package("craftax", "Craftax-Symbolic-v1 Craftax-Classic-Symbolic-v1", kind="gymnax", make=craftax),
            Package("popgym-arcade", "CartPoleEasy CountRecallEasy", kind="gymnax", make=popgym_arcade),
            Package(
                "jumanji",
                "Snake-v1 Game2048-v1 Maze-v0 Minesweeper-v0 Cleaner-v0 Knapsack-v1",
                kind="function",
                make=jumanji,
            ),
            Package("jumanji itself", "jumanji/Snake-v1", kind="other", make=jumanji_itself),
        ),
    ),
}

NOTES = {  # what to know of an environment, by the beginning of its id
    "FatigueBandit": "its constructor draws the arms without a seed, so that each instance is another problem",
    "Meta-World/MT1": "each instance draws 50 goals from numpy's global generator",
    "DuelingBandit": "its action space is not what its step takes",
    "Craftax-Symbolic": "compiling takes the loop 31 s and rido 58 s",
    "PandaFlip": "a texture is missing from the package",
}
