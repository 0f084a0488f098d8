"""Ray: the same numbers on a cluster of several nodes, some of which are lost on the way."""

import os
import socket
import subprocess
import sys
import threading
import time
from functools import partial

import numpy as np
import pytest

import rido
from environments import Faulty, Mortal
from helpers import needs
from remotefaults import Ends, on_all, swamp
from rido.simulators import SimulationError, trajectory_seeds
from rido.simulators.gymnasium import GymnasiumSimulator
from rido.simulators.parallel.pool import WorkerError
from traps import Trap, assert_same, tanh_policy, zeros

ray = needs("ray", "ray")
cluster_utils = needs("ray.cluster_utils", "ray")

from rido.simulators.parallel.ray import RaySimulator, _require_answer  # noqa: E402

NICENESS = {"RAY_worker_niceness": "0"}  # Ray's 15 would let actors wait for the other test processes
os.environ.update(NICENESS)

LENGTHS = np.random.default_rng(3).integers(1, 41, 200)
SEEDS = trajectory_seeds(11, 0, LENGTHS.size)
SLOW = partial(Mortal, death=0.02, seconds=1e-3)


def small():
    return dict(object_store_memory=80 * 2**20, include_dashboard=False)


@pytest.fixture(scope="module")
def cluster():
    """Two nodes with two processors each."""
    cluster = cluster_utils.Cluster(initialize_head=True, head_node_args=dict(num_cpus=2, **small()))
    cluster.add_node(num_cpus=2, **small())
    ray.init(address=cluster.address, log_to_driver=False)
    yield cluster
    ray.shutdown()
    cluster.shutdown()


@pytest.fixture
def expected():
    return GymnasiumSimulator(partial(Mortal, death=0.02), zeros, horizon=40).rollout(LENGTHS, SEEDS).flat


@pytest.mark.parametrize("num_actors", [1, 3])
def test_bit_identical_for_any_number_of_actors(cluster, num_actors):
    arguments = ("Pendulum-v1", tanh_policy) if num_actors == 1 else ("rido/LQG-v0", None)
    with RaySimulator(*arguments, num_actors=num_actors, horizon=40, gamma=0.9) as simulator:
        reference = GymnasiumSimulator(*arguments, horizon=40, gamma=0.9)
        assert_same(simulator, reference, LENGTHS, SEEDS)
        assert simulator.num_envs == num_actors * reference.num_envs
        assert simulator.policy.name == reference.policy.name
    assert ray.is_initialized()  # the cluster was there before


def test_several_policies_act_by_turns(cluster):
    """A comparison on the cluster is the same as in this process."""
    settings = dict(gamma=0.9, horizon=20, budget=3000, seed=1)
    policies = ["rido:pendulum", "random"]
    spread = rido.compare("Pendulum-v1", policies, simulator=partial(RaySimulator, num_actors=2), **settings)
    told, expected = spread.to_dict(), rido.compare("Pendulum-v1", policies, **settings).to_dict()
    assert told | {"seconds": 0} == expected | {"seconds": 0}


def test_the_tasks_of_a_suite_share_a_cluster(cluster):
    """Six actors in three tasks on four processors."""
    tasks = {name: rido.Task("Pendulum-v1", gamma=0.9, horizon=steps) for steps, name in enumerate("abc", 5)}
    suite = rido.Suite(tasks, {"agent": "rido:pendulum", "random": "random"}, budget=400)
    assert suite.run(simulator="ray", workers=2).to_dict() == suite.run().to_dict()


def test_killed_actors_change_nothing(cluster, expected):
    with RaySimulator(SLOW, zeros, num_actors=3, horizon=40) as simulator:

        def strike():
            for slot in (0, 2):
                time.sleep(0.3)
                ray.kill(simulator.actors[slot])

        striker = threading.Thread(target=strike)
        striker.start()
        batches = [simulator.rollout(LENGTHS, SEEDS)]
        striker.join()
        while simulator.failures < 2:  # the request was done before an actor was gone
            batches.append(simulator.rollout(LENGTHS, SEEDS))
        assert simulator.failures == 2
    for batch in batches:
        np.testing.assert_array_equal(batch.flat, expected)


def test_a_lost_node_changes_nothing(cluster, expected):
    """Five actors have a processor each; when a node goes, there is no room for the fifth any more."""
    doomed = cluster.add_node(num_cpus=1, **small())
    slower = partial(Mortal, death=0.02, seconds=4e-3)  # removing a node takes its time
    with RaySimulator(slower, zeros, num_actors=5, horizon=40) as simulator:
        while not all(worker.ready for worker in simulator._workers.values()):
            simulator.starts(SEEDS[:5])
        striker = threading.Timer(0.3, cluster.remove_node, [doomed], dict(allow_graceful=False))
        striker.start()
        batches = [simulator.rollout(LENGTHS, SEEDS)]
        striker.join()
        while sum(node["Alive"] for node in ray.nodes()) > 2:  # until the cluster knows, or later tests land there
            time.sleep(0.1)
        while simulator.failures == 0:  # the request was done before the node was gone
            batches.append(simulator.rollout(LENGTHS, SEEDS))
    for batch in batches:
        np.testing.assert_array_equal(batch.flat, expected)


def test_a_node_with_other_code_is_refused(cluster):
    """Five actors have a processor each, and the module of the user pays another reward on the third node."""
    with swamp() as (module, folder):
        path = os.pathsep.join([str(folder / "there"), os.environ.get("PYTHONPATH", "")])
        node = cluster.add_node(num_cpus=1, env_vars={"PYTHONPATH": path}, **small())
        try:
            with pytest.raises(
                WorkerError, match=f"must run the same code as this process, got .* {module.__name__} on"
            ):
                on_all(module.Swamp, count=5)
        finally:
            cluster.remove_node(node, allow_graceful=False)
            while sum(node["Alive"] for node in ray.nodes()) > 2:
                time.sleep(0.1)


def test_an_address_is_not_ignored(cluster):
    with pytest.raises(
        ValueError, match=f"must be that of the cluster to which this process is connected, {cluster.address}"
    ):
        RaySimulator(Mortal, zeros, num_actors=1, horizon=5, address="127.0.0.1:9")
    for address in ("auto", cluster.address):
        with RaySimulator(Mortal, zeros, horizon=5, address=address) as simulator:
            assert len(simulator.actors) == 4  # the processors of nodes that are alive


def test_the_cause_of_a_death_is_told(cluster):
    with pytest.raises(WorkerError, match=r"was lost \(The actor died .* its worker process has died.*exit") as caught:
        on_all("Pendulum-v1", Ends(3), count=1, max_failures=0)
    assert "\n" not in str(caught.value) and "actor_id" not in str(caught.value)


@pytest.mark.parametrize("fate", ["crashed", "stuck"])
def test_a_lost_actor_is_replaced_and_its_trajectories_are_run_again(cluster, tmp_path, fate):
    # A busy machine may look stuck too, which must not change the result either.
    patience = dict(timeout=5, max_failures=50) if fate == "stuck" else {}
    with RaySimulator(partial(Trap, tmp_path, fate), zeros, num_actors=2, horizon=40, **patience) as simulator:
        batch = simulator.rollout(LENGTHS, SEEDS)
        assert len(list(tmp_path.iterdir())) == 1
        assert simulator.failures == 1 or (fate == "stuck" and simulator.failures > 1)
    expected = GymnasiumSimulator(partial(Mortal, death=0.05), zeros, horizon=40).rollout(LENGTHS, SEEDS)
    np.testing.assert_array_equal(batch.flat, expected.flat)


def test_slow_is_not_stuck(cluster):
    slow = partial(Mortal, death=0.0, seconds=0.4)
    with RaySimulator(slow, zeros, num_actors=1, horizon=20, num_envs=1, timeout=6) as simulator:
        assert simulator.rollout(np.full(1, 20), [1]).transitions == 20  # takes more than eight seconds, in each trial
        assert simulator.found.workers == (1, 1)


def test_errors_in_trajectories_are_passed_on(cluster):
    with (
        RaySimulator(partial(Faulty, "raise"), zeros, num_actors=2, horizon=40) as simulator,
        pytest.raises(SimulationError, match=r"failed at step 3 \(seed \d+\): .* fell over") as caught,
    ):
        simulator.rollout(LENGTHS, SEEDS)
    assert caught.value.seed == SEEDS[caught.value.trajectory]


@pytest.mark.parametrize(
    ("num_cpus", "missing"),
    [
        (1, "one needs num_cpus=1, and 0 of the cluster's 4 CPUs are free"),
        (64, "num_cpus=64, and the cluster has 4 CPUs"),
    ],
)
def test_a_full_cluster_is_named(cluster, num_cpus, missing):
    class Holder:
        def hold(self):
            return True

    holders = [ray.remote(num_cpus=1)(Holder).remote() for _ in range(4)]
    ray.get([holder.hold.remote() for holder in holders])
    try:
        with pytest.raises(WorkerError, match=rf"no actor got ready within 3 seconds \(start_timeout\): .*{missing}"):
            RaySimulator(Mortal, zeros, num_actors=1, num_cpus=num_cpus, horizon=40, start_timeout=3)
    finally:
        for holder in holders:
            ray.kill(holder)


@pytest.mark.parametrize("answers", [False, True])
def test_an_address_without_a_cluster_is_named(answers, monkeypatch):
    monkeypatch.setattr("rido.simulators.parallel.ray._CONNECT_SECONDS", 6.0)
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        if not answers:
            server.close()
        reason = "it is no Ray cluster" if answers else r"\[Errno 111\] Connection refused"
        with pytest.raises(ConnectionError, match=f"must be of a running Ray cluster, got '{address}': {reason}"):
            _require_answer(address)


SCRIPT = """
import ray, rido
from rido.simulators.parallel.ray import RaySimulator
with RaySimulator("rido/LQG-v0", horizon=50, num_actors=2, gamma=0.9) as simulator:
    print(rido.evaluate(simulator, budget=5000, gamma=0.9, horizon=50, seed=1).value)
print(rido.evaluate("rido/LQG-v0", budget=5000, gamma=0.9, horizon=50, seed=1).value, ray.is_initialized())
"""


def test_a_cluster_of_its_own_where_there_is_none():
    environment = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")} | NICENESS
    output = subprocess.run(
        [sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True, timeout=600, env=environment
    )
    first, second = output.stdout.splitlines()
    assert second == f"{first} False"
