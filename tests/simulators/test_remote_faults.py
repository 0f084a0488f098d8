"""Faults of a hub, EnvPool and workers. ``benchmarks/faults/remote.py`` is the full form, with Ray."""

import pytest

from helpers import needs

needs("envpool", "envpool")
needs("huggingface_hub", "hub")
pytestmark = pytest.mark.filterwarnings("ignore:.*Box (low|high)'s precision")

import remotefaults  # noqa: E402

CASES = {
    **remotefaults.envpool_cases(),
    **{name: case for name, case in remotefaults.hub_cases(slow=False).items() if "head" not in name},
    "workers: a module is edited": remotefaults.edited_module,
}


@pytest.mark.parametrize("name", CASES)
def test_it_ends_right_or_in_one_line(name):
    assert CASES[name]() in ("right", "refused")
