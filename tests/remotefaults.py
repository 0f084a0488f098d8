"""Faults of what is not in this process: a hub, EnvPool, workers and Ray. Each ends right or in one line.

A case is a function that returns "right", "refused", or what is wrong. ``benchmarks/faults/remote.py`` runs them all.
"""

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from unittest.mock import patch

import numpy as np

import rido
from hubserver import FAULTS as HUB_FAULTS
from hubserver import PLACES, serving, used
from rido.policies.npz import MlpPolicy
from rido.policies.resolve import shipped_agent
from rido.simulators import SimulationError, trajectory_seeds
from rido.simulators.base import narrow_seed
from rido.simulators.parallel.processes import WorkerSimulator
from traps import tanh_policy

ONE_LINE = (ValueError, ImportError, OSError, SimulationError)  # that the command line shows as one line
SETTINGS = dict(gamma=0.9, horizon=10, budget=100, seed=1)
LENGTHS, SEEDS = np.full(24, 20), trajectory_seeds(7, 0, 24)


def refused(call, pattern):
    """ "refused" if a call raises an error of one line that this pattern finds."""
    try:
        found = call()
    except ONE_LINE as error:
        text = str(error)
        return "refused" if "\n" not in text and re.search(pattern, text) else f"another error: {text!r}"
    except (Exception, SystemExit) as error:  # what no user should see
        return f"raised {error!r}"
    return f"{found!r:.200} instead of an error"


def same(found, expected):
    return "right" if found == expected else f"{found!r:.200} instead of {expected!r:.200}"


def value(policy, **settings):
    return rido.evaluate("Pendulum-v1", policy, **{**SETTINGS, **settings}).value


# The hub.


def agents(folder):
    """The content of two agents, and their values."""
    here, other = shipped_agent("rido:pendulum"), Path(folder) / "other.npz"
    arrays = dict(MlpPolicy.load(here).arrays)
    name = next(name for name in arrays if name.startswith("actor"))
    arrays[name] = -arrays[name]
    MlpPolicy(arrays).save(other)
    return [(path.read_bytes(), value(path)) for path in (here, other)]


@contextmanager
def hub_of(seconds=1):
    """A hub with an agent, another version of it that can be pushed, and what both are worth."""
    with tempfile.TemporaryDirectory() as folder, serving() as hub, used(hub, Path(folder) / "cache", seconds):
        old, new = agents(folder)
        hub.push("me/x", {"agent.npz": old[0]})
        yield hub, old, new


def hub_fault(fault, place, cached, seconds=1):
    """A fault while a new version is fetched: its value, or the cached one's and a remark, or a line with the name."""
    with hub_of(seconds) as (hub, old, new):
        if cached:
            value("hf:me/x")
        hub.push("me/x", {"agent.npz": new[0]})
        hub.fault, hub.places = fault, (place,)
        try:
            found = rido.evaluate("Pendulum-v1", "hf:me/x", **SETTINGS)
        except ONE_LINE as error:
            line = "hf:me/x" in str(error) and "\n" not in str(error)
            fetched = "hf:me/x must be an agent" in str(error)  # but it is none
            return "refused" if line and (fetched or not cached) else f"{error!r}"
        except (Exception, SystemExit) as error:
            return f"raised {error!r}"
        said = any("in the cache" in remark for remark in found.remarks)
        return same(found.value, old[1] if said and cached else new[1])


def hub_moves(workers, *, kill=False, suite=False, **settings):
    """A new version is pushed when the first one was read: everyone has the first."""
    with hub_of() as (hub, old, new):
        listing = hub.RequestHandlerClass._listing

        def moving(handler, path):
            found = listing(handler, path)
            hub.push("me/x", {"agent.npz": new[0]})
            return found

        hub.RequestHandlerClass._listing = moving
        try:
            if suite:
                tasks = {name: rido.Task("Pendulum-v1", gamma=0.9, horizon=10) for name in "ab"}
                board = rido.Suite(tasks, {"x": "hf:me/x", "r": "random"}, budget=400).run()
                with tempfile.NamedTemporaryFile(suffix=".npz") as file:
                    Path(file.name).write_bytes(old[0])
                    local = rido.Suite(tasks, {"x": file.name, "r": "random"}, budget=400).run()
                return same(board.to_dict()["policies"], local.to_dict()["policies"])
            if not kill:
                return same(value("hf:me/x", workers=workers, **settings), old[1])
            with WorkerSimulator("Pendulum-v1", "hf:me/x", workers=workers, horizon=20) as simulator:
                before = simulator.rollout(LENGTHS, SEEDS).flat
                for pid in simulator.pids:
                    os.kill(pid, signal.SIGKILL)
                return same(simulator.rollout(LENGTHS, SEEDS).flat.tolist(), before.tolist())
        finally:
            hub.RequestHandlerClass._listing = listing


def hub_name(name, pattern):
    with hub_of():
        return refused(lambda: value(name), pattern)


def hub_files(files, pattern, name="hf:me/y"):
    """A repository with these files."""
    with hub_of() as (hub, *_):
        hub.push("me/y", files)
        return refused(lambda: value(name), pattern)


def hub_stops():
    """The hub is gone when the agent is in the cache: that one is used, and said."""
    with hub_of() as (hub, old, _):
        value("hf:me/x")
        hub.shutdown()
        hub.server_close()
        found = rido.evaluate("Pendulum-v1", "hf:me/x", **SETTINGS)
        said = any(re.search(r"hf:me/x is commit \w{8} in the cache", remark) for remark in found.remarks)
        return same((found.value, said), (old[1], True))


def hub_cases(*, slow):
    found = {}
    for place in PLACES if slow else ("list", "head"):
        for fault in HUB_FAULTS:
            for cached in (False, True):
                if slow or (fault, cached) != ("hang in the body", True):
                    found[f"hub: {fault}, {place}, {'cached' if cached else 'new'}"] = partial(
                        hub_fault, fault, place, cached, 1 if slow else 0.3
                    )
    name_pattern = "policy must be hf:org/name"
    absolute = "hf:me/x//" + str(shipped_agent("rido:pendulum")).lstrip("/")
    for name in (absolute, "hf:me/x/../../../agent.npz", "hf:me/..", "hf:me/x@../agent.npz", "hf:me/x/./agent.npz"):
        found[f"hub: {name[:20]}"] = partial(hub_name, name, name_pattern)
    for name in ("hf:me/absent", "hf:me/x@nothing", "hf:me/x/nothing.npz", "hf:me/x--y..z"):
        found[f"hub: {name}"] = partial(hub_name, name, f"{re.escape(name)}.* could not be downloaded")
    outside = {"../../agent.npz": shipped_agent("rido:pendulum").read_bytes()}
    found["hub: a file outside"] = partial(hub_files, outside, "policy must name its file")
    found["hub: two agents"] = partial(hub_files, {"a.npz": b"", "b.npz": b""}, "name its file.* agents: a.npz, b.npz")
    found["hub: no agent"] = partial(hub_files, {"README.md": b""}, "agents: none")
    for suffix in (".npz", ".zip"):
        found[f"hub: a page instead of {suffix}"] = partial(hub_files, {f"a{suffix}": b"<html>"}, "hf:me/y must be an")
    found["hub: gone"] = hub_stops
    found["hub: moves, workers"] = partial(hub_moves, 2)
    found["hub: moves, killed worker"] = partial(hub_moves, 1, kill=True)
    found["hub: moves, suite"] = partial(hub_moves, 1, suite=True)
    return found


# EnvPool.


def as_plain_loop(env_id, act, horizon, **arguments):
    """The rewards of trajectories against EnvPool's own environment, stepped by hand."""
    import envpool

    from rido.simulators.envpool import EnvPoolSimulator

    def acts(observations):
        return np.stack([act(row) for row in rows_of(observations)])

    seeds = trajectory_seeds(3, 0, 4)
    simulator = EnvPoolSimulator(env_id, acts, horizon=horizon, env_kwargs=arguments)
    batch = simulator.rollout(np.full(4, horizon), seeds)
    limit = envpool.make_spec(env_id, **arguments).config.max_episode_steps
    if 0 < limit < horizon:  # this loop is not cut either
        arguments = {**arguments, "max_episode_steps": horizon + 1}
    for row, seed in enumerate(seeds):
        env = envpool.make(env_id, env_type="gymnasium", num_envs=1, seed=[narrow_seed(seed)], **arguments)
        (observations, _), rewards = env.reset(), []
        while len(rewards) < horizon:
            observations, reward, terminated, _, _ = env.step(acts(observations))
            rewards.append(float(reward[0]))
            if terminated[0]:
                break
        if batch.rewards[row, : len(rewards)].tolist() != rewards or batch.steps[row] != len(rewards):
            return f"trajectory {row} differs"
    return "right"


def rows_of(observations):
    if isinstance(observations, dict):
        return [
            {key: part[row] for key, part in observations.items()}
            for row in range(len(next(iter(observations.values()))))
        ]
    return list(observations)


def through_the_room(observation):
    """Forward, and to the right at the wall: to the goal of MiniGrid's empty room."""
    wall = observation["image"][3, 5, 0] == 2
    return np.where(wall & (observation["direction"] == 0), 1, 2)


def by_sign(observation):
    return np.int64(np.ravel(observation)[-1] > 0)


def still(observation):
    return np.zeros(1)


def envpool(env="Pendulum-v1", policy="random", pattern="", **settings):
    given = {**SETTINGS, "simulator": "envpool", **settings}
    return refused(lambda: rido.evaluate(env, policy, **given).value, pattern)


def mixed(first, second, *, kind="evaluate"):
    """A run file that another simulator began."""
    with tempfile.TemporaryDirectory() as folder:
        settings = {**SETTINGS, "run": Path(folder) / "run.rido"}

        def run(simulator, budget):
            if kind == "evaluate":
                return rido.evaluate("Pendulum-v1", tanh_policy, **{**settings, **simulator, "budget": budget})
            return rido.compare("Pendulum-v1", ["random", tanh_policy], **{**settings, **simulator, "budget": 400})

        run(first, 100)
        return refused(lambda: run(second, 300), "its simulator is '(gymnasium|envpool)', not '(gymnasium|envpool)'")


def envpool_cases():
    loops = {
        "goal, short horizon": ("MiniGrid-Empty-8x8-v0", through_the_room, 12),
        "goal, its limit": ("MiniGrid-Empty-8x8-v0", through_the_room, 256),
        "goal, another room": ("MiniGrid-Empty-5x5-v0", through_the_room, 50),
        "CartPole": ("CartPole-v1", by_sign, 500),
        "CartPole, lifted": ("CartPole-v1", by_sign, 600),
        "Pendulum, lifted": ("Pendulum-v1", still, 260),
        "Acrobot": ("Acrobot-v1", by_sign, 60),
        "MountainCar, lifted": ("MountainCar-v0", by_sign, 250),
        "FrozenLake": ("FrozenLake-v1", by_sign, 120),
        "Catch": ("Catch-v0", by_sign, 30),
        "cube": ("RubiksCube-partly-scrambled-v0", lambda observation: np.zeros(3, int), 20),
    }
    found = {f"EnvPool: {name}": partial(as_plain_loop, *loop) for name, loop in loops.items()}
    given = partial(as_plain_loop, "MiniGrid-Empty-8x8-v0", through_the_room, 300, max_episode_steps=1000)
    found["EnvPool: goal, a limit of the user"] = given
    limit = "horizon must be at most the environment's time limit of"
    for name, horizon, arguments in (
        ("MiniGrid-Empty-8x8-v0", 257, {}),
        ("MiniGrid-Empty-8x8-v0", 101, {"max_episode_steps": 100}),
        ("Maze-v0", 101, {}),
        ("RubiksCube-v0", 201, {}),
        ("Pendulum-v1", 60, {"max_episode_steps": 50}),
        ("AlohaHandOver-v1", 251, {}),
    ):
        found[f"EnvPool: {name} beyond {horizon - 1}"] = partial(
            envpool, name, pattern=limit, horizon=horizon, env_kwargs=arguments, budget=4000
        )
    for name, action in (
        ("CartPole-v1", 2),
        ("CartPole-v1", -1),
        ("CartPole-v1", 0.5),
        ("CartPole-v1", np.nan),
        ("FrozenLake-v1", 4),
        ("Acrobot-v1", 3.0),
        ("Pendulum-v1", np.nan),
        ("Pendulum-v1", np.inf),
    ):
        act = partial(constant, np.full(1, action) if name == "Pendulum-v1" else np.asarray(action))
        pattern = r"failed at step 0 .* must return actions of (Discrete|Box)\(.*, got "
        found[f"EnvPool: {name}, action {action}"] = partial(envpool, name, act, pattern)
    for arguments in ({"batch_size": 2}, {"num_envs": 3}, {"seed": 3}, {"num_threads": 1}, {"env_type": "dm"}):
        (key,) = arguments
        found[f"EnvPool: {key}"] = partial(envpool, pattern=f"env_kwargs must leave {key} to", env_kwargs=arguments)
    for arguments in ({"g": 9}, {"max_episode_steps": "x"}):
        pattern = "env_kwargs must be EnvPool's arguments of Pendulum-v1, got"
        found[f"EnvPool: {arguments}"] = partial(envpool, pattern=pattern, env_kwargs=arguments, horizon=5)
    found["EnvPool: unknown id"] = partial(envpool, "Pendulun-v1", pattern="ids that EnvPool has.* Pendulum")
    unlimited = "horizon must be given where gamma is 1 and the environment has no time limit"
    found["EnvPool: no limit"] = partial(envpool, "Catch-v0", pattern=unlimited, gamma=1, horizon=None)
    found["EnvPool: two players"] = partial(envpool, "IntersectionMultiAgent-v0", pattern="env must have one player")
    gymnasium, workers = {}, {"workers": 2}
    pool = {"simulator": "envpool"}
    for first, second in ((gymnasium, pool), (pool, gymnasium), (workers, pool), (pool, workers)):
        names = " then ".join(
            "EnvPool" if each is pool else "workers" if each else "Gymnasium" for each in (first, second)
        )
        found[f"EnvPool: run file, {names}"] = partial(mixed, first, second)
    found["EnvPool: comparison's run file"] = partial(mixed, gymnasium, pool, kind="compare")
    return found


def constant(action, observation):
    return action


# Workers and Ray.

SWAMP = """
import gymnasium as gym, numpy as np, time

class Swamp(gym.Env):
    observation_space = gym.spaces.Box(-np.inf, np.inf, (1,))
    action_space = gym.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(1, np.float32), {}

    def step(self, action):
        time.sleep(SECONDS)
        return np.zeros(1, np.float32), FACTOR * float(self.np_random.random()), False, False, {}
"""
CHANGED = "workers must run the same code as this process, got another version of "


@contextmanager
def swamp(seconds=0.0):
    """A user's module with an environment, and a folder with another version of it."""
    with tempfile.TemporaryDirectory() as folder:
        name = f"swamp_{Path(folder).name.lower()}"
        for place, factor in (("here", 1), ("there", 1000)):
            (Path(folder) / place).mkdir()
            text = SWAMP.replace("FACTOR", str(factor)).replace("SECONDS", str(seconds))
            (Path(folder) / place / f"{name}.py").write_text(text)
        sys.path.insert(0, str(Path(folder) / "here"))
        try:
            yield __import__(name), Path(folder)
        finally:
            sys.path.remove(str(Path(folder) / "here"))
            sys.modules.pop(name, None)


def nothing(observation):
    return np.int64(0)


def edited_module():
    """A module is edited while it is used; then the only worker is lost."""
    with swamp() as (module, folder), WorkerSimulator(module.Swamp, nothing, workers=1, horizon=20) as simulator:
        simulator.rollout(LENGTHS, SEEDS)
        file = folder / "here" / f"{module.__name__}.py"
        file.write_text((folder / "there" / file.name).read_text())
        os.kill(simulator.pids[0], signal.SIGKILL)
        return refused(lambda: simulator.rollout(LENGTHS, SEEDS).flat.sum(), f"{CHANGED}{module.__name__}")


def killed_workers(count):
    with swamp(seconds=1e-3) as (module, _), WorkerSimulator(module.Swamp, nothing, workers=2, horizon=20) as simulator:
        expected = simulator.rollout(LENGTHS, SEEDS).flat.tolist()

        def strike():
            for number in range(count):
                time.sleep(0.05)
                os.kill(simulator.pids[number % 2], signal.SIGKILL)

        striker = threading.Thread(target=strike)
        striker.start()
        found = simulator.rollout(LENGTHS, SEEDS).flat.tolist()
        striker.join()
        return same(found, expected)


def worker_cases():
    found = {"workers: a module is edited": edited_module}
    return found | {f"workers: {count} kills": partial(killed_workers, count) for count in (1, 2, 3)}


TOKEN_CLUSTER = """
import sys
from ray.cluster_utils import Cluster
cluster = Cluster(initialize_head=True, head_node_args=dict(num_cpus=1, include_dashboard=False,
                                                            object_store_memory=80 * 2**20))
print(cluster.address, flush=True)
sys.stdin.read()
cluster.shutdown()
"""


@contextmanager
def guarded_cluster(attempts=3):
    """The address of a cluster that wants a token, in a process that ends with it."""
    settings = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "a-token-of-this-cluster-0123456789"}
    pipes = dict(stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    address = ""
    while not address and attempts:  # on a busy machine Ray may not start within its own patience
        attempts -= 1
        process = subprocess.Popen([sys.executable, "-c", TOKEN_CLUSTER], env={**os.environ, **settings}, **pipes)
        address = process.stdout.readline().strip()
        if not address:
            process.communicate()
    try:
        yield address
    finally:
        if address:
            process.communicate()


def without_token(**settings):
    with guarded_cluster() as address, patch.dict(os.environ, settings):
        return ray_refused("it wants a token, so set RAY_AUTH_MODE", address=address)


def ray_refused(pattern, env="Pendulum-v1", policy=tanh_policy, **settings):
    from rido.simulators.parallel.ray import RaySimulator

    given = {"num_actors": 1, **settings}
    return refused(lambda: value(policy, simulator=partial(RaySimulator, **given)), pattern)


def silent_port():
    """Something accepts connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        with patch("rido.simulators.parallel.ray._CONNECT_SECONDS", 8.0):
            return ray_refused(f"got '{address}': it is no Ray cluster", address=address)


class Cluster:
    """Two nodes of one processor each, to which this process is connected; others join for a case."""

    def __init__(self):
        import ray
        from ray.cluster_utils import Cluster as Nodes

        small = dict(num_cpus=1, object_store_memory=80 * 2**20)
        self.nodes = Nodes(initialize_head=True, head_node_args=dict(include_dashboard=False, **small))
        self._add = partial(self.nodes.add_node, **small)
        self._add()
        ray.init(address=self.nodes.address, log_to_driver=False)

    def close(self):
        import ray

        ray.shutdown()
        self.nodes.shutdown()

    @contextmanager
    def another(self, **variables):
        """A third node, whose processes have these environment variables."""
        node = self._add(env_vars=variables)
        self.nodes.wait_for_nodes()
        try:
            yield node
        finally:
            self.remove(node)

    def remove(self, node):
        import ray

        self.nodes.remove_node(node, allow_graceful=False)
        while sum(each["Alive"] for each in ray.nodes()) > 2:
            time.sleep(0.1)


def on_all(env, policy=nothing, count=3, **settings):
    """The rewards of trajectories on Ray, when all actors are ready."""
    from rido.simulators.parallel.ray import RaySimulator

    with RaySimulator(env, policy, num_actors=count, horizon=20, **settings) as simulator:
        while not all(worker.ready for worker in simulator._workers.values()):
            simulator.starts(SEEDS[:3])
        return simulator.rollout(LENGTHS, SEEDS).flat.tolist()


def other_module(cluster):
    with swamp() as (module, folder), cluster.another(PYTHONPATH=path_with(folder / "there")):
        return refused(lambda: on_all(module.Swamp), f"{CHANGED}{module.__name__}")


def path_with(folder):
    return os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")])


def other_rido(cluster, file, before, after, pattern):
    """A node whose rido differs in one file."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(shutil.copytree(Path(rido.__file__).parent, Path(folder) / "rido"))
        text = (copy / file).read_text()
        (copy / file).write_text(text.replace(before, after))
        assert before in text
        with cluster.another(PYTHONPATH=path_with(folder)):
            return refused(lambda: on_all("Pendulum-v1", tanh_policy), pattern)


def killed_actor(kills=1, *, edited=False):
    from rido.simulators.parallel.ray import RaySimulator

    with (
        swamp(seconds=1e-3) as (module, folder),
        RaySimulator(module.Swamp, nothing, num_actors=2, horizon=20) as simulator,
    ):
        expected = simulator.rollout(LENGTHS, SEEDS).flat.tolist()
        file = folder / "here" / f"{module.__name__}.py"
        if edited:
            file.write_text((folder / "there" / file.name).read_text())
        for pid in simulator.pids[:kills]:
            os.kill(pid, signal.SIGKILL)

        def again():
            while simulator.failures < kills or not all(each.ready for each in simulator._workers.values()):
                found = simulator.rollout(LENGTHS, SEEDS).flat.tolist()
            return found

        if edited:
            return refused(again, f"{CHANGED}{module.__name__}")
        return same(again(), expected)


class Ends:
    """A policy that ends its process."""

    def __init__(self, code):
        self.code = code

    def __call__(self, observations):
        os._exit(self.code)


def cause_of_death(cluster):
    call = partial(on_all, "Pendulum-v1", Ends(3), count=1, max_failures=0)
    return refused(call, r"were lost with their worker 1 times.*was lost \(.*worker process has died.*[Ee]xit")


def dead_processors(cluster):
    """Processors of a node that is gone are not there."""
    from rido.simulators.parallel.ray import RaySimulator

    cluster.remove(cluster._add())
    call = partial(RaySimulator, "Pendulum-v1", tanh_policy, horizon=5, num_cpus=2.5, start_timeout=2)
    told = refused(partial(call, num_actors=1), "one needs num_cpus=2.5, and the cluster has 2 CPUs")
    with RaySimulator("Pendulum-v1", tanh_policy, horizon=5) as simulator:
        return told if len(simulator.actors) == 2 else f"{len(simulator.actors)} actors on two processors"


def hub_moves_on_ray(cluster):
    from rido.simulators.parallel.ray import RaySimulator

    return hub_moves(1, simulator=partial(RaySimulator, num_actors=2))


def right_on_ray(**settings):
    from rido.simulators.parallel.ray import RaySimulator

    return same(value(tanh_policy, simulator=partial(RaySimulator, num_actors=2, **settings)), value(tanh_policy))


def alone_cases():
    """Those that need a process that is connected to no cluster."""
    closed = "address must be of a running Ray cluster, got '127.0.0.1:9': .*refused"
    return {
        "Ray: nothing answers": partial(ray_refused, closed, address="127.0.0.1:9"),
        "Ray: no Ray answers": silent_port,
        "Ray: an odd address": partial(ray_refused, "address must be of a running Ray cluster", address="nowhere"),
        "Ray: no token": without_token,
        "Ray: another token": partial(without_token, RAY_AUTH_MODE="token", RAY_AUTH_TOKEN="of-another-cluster-0123"),
        "Ray: token, but none there": partial(
            without_token, RAY_AUTH_MODE="token", RAY_AUTH_TOKEN_PATH="/no/such/token"
        ),
    }


def ray_cases(cluster):
    address = "address must be that of the cluster to which this process is connected"
    version = rido.__version__
    return {
        "Ray: another address": partial(ray_refused, address, address="127.0.0.1:9"),
        "Ray: another cluster wanted": partial(ray_refused, address, address="local"),
        "Ray: the same address": partial(right_on_ray, address=cluster.nodes.address),
        "Ray: auto": partial(right_on_ray, address="auto"),
        "Ray: another module on a node": partial(other_module, cluster),
        "Ray: another release of rido": partial(
            other_rido, cluster, "__init__.py", version, "0.0.9", f"workers must have rido {version} .*, got 0.0.9"
        ),
        "Ray: another state of rido": partial(
            other_rido,
            cluster,
            "simulators/rollout.py",
            "steps += 1",
            "steps += 1 ",
            f"{CHANGED}rido.simulators.rollout",
        ),
        "Ray: a killed actor": killed_actor,
        "Ray: two killed actors": partial(killed_actor, 2),
        "Ray: a killed actor, module edited": partial(killed_actor, edited=True),
        "Ray: the cause of a death": partial(cause_of_death, cluster),
        "Ray: dead processors": partial(dead_processors, cluster),
        "Ray: hub moves": partial(hub_moves_on_ray, cluster),
        "Ray: no room": partial(
            ray_refused, "one needs num_cpus=9, and the cluster has 2 CPUs", num_cpus=9, start_timeout=2
        ),
    }
