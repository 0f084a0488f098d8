"""Faults of a hub, EnvPool and workers. ``benchmarks/faults/remote.py`` is the full form, with Ray."""

import pytest

from helpers import needs

needs("envpool", "envpool")
needs("huggingface_hub", "hub")
pytestmark = pytest.mark.filterwarnings("ignore:.*Box (low|high)'s precision")

import remotefaults  # noqa: E402

EACH = {
    "EnvPool": (
        "goal, short horizon",
        "goal, its limit",
        "CartPole, lifted",
        "MountainCar, lifted",
        "FrozenLake",
        "cube",
        "MiniGrid-Empty-8x8-v0 beyond 256",
        "Pendulum-v1 beyond 59",
        "CartPole-v1, action -1",
        "CartPole-v1, action 0.5",
        "Pendulum-v1, action nan",
        "batch_size",
        "{'g': 9}",
        "unknown id",
        "no limit",
        "two players",
        "run file, Gymnasium then EnvPool",
        "run file, EnvPool then Gymnasium",
        "comparison's run file",
    ),
    "hub": (
        "hang, list, new",
        "hang in the body, list, new",
        "close, list, cached",
        "html as json, list, new",
        "redirect loop, list, new",
        "cut body, list, cached",
        "other json, list, new",
        "odd headers, list, cached",
        "status 401, list, new",
        "status 404, list, cached",
        "status 503, list, cached",
        "hf:me/x/../../../age",
        "hf:me/x@../agent.npz",
        "hf:me/absent",
        "a file outside",
        "two agents",
        "a page instead of .npz",
        "gone",
        "moves, killed worker",
        "moves, suite",
    ),
    "workers": ("a module is edited",),
}  # one of each kind
ALL = {
    **remotefaults.envpool_cases(),
    **remotefaults.hub_cases(slow=False),
    "workers: a module is edited": remotefaults.edited_module,
}
CASES = {f"{what}: {name}": ALL[f"{what}: {name}"] for what, names in EACH.items() for name in names}


@pytest.mark.parametrize("name", CASES)
def test_it_ends_right_or_in_one_line(name):
    assert CASES[name]() in ("right", "refused")
