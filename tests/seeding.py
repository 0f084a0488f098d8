"""No test depends on chance: one that draws entropy fails, and ``--shuffle SEED`` runs tests in another order.

Entropy is what ``secrets.randbits`` gives, which rido and numpy (``default_rng()``, ``SeedSequence()``) ask for where
no seed is given. An assertion that holds for every seed says so with a marker: ``@pytest.mark.entropy("why")``. Only
this process is watched. Global generators are seeded before each test.
"""

import random
import secrets
import sys
import traceback
from pathlib import Path

import numpy as np
import pytest
from numpy.random import bit_generator

OURS = tuple(f"{Path(__file__).resolve().parents[1] / folder}/" for folder in ("src/rido", "tests"))
SHOWN = 4  # frames of a draw
draws = []  # the lines of ours that asked for entropy since the last test began


def _watch(module):
    drawn = module.randbits

    def randbits(bits):
        calls = traceback.extract_stack()[:-1]
        ours = [call for call in calls if call.filename.startswith(OURS)]
        if ours and calls[-1] is ours[-1]:  # what a library draws by itself, rido gives a seed before it is used
            draws.append(" <- ".join(f"{call.filename}:{call.lineno}" for call in ours[: -SHOWN - 1 : -1]))
        return drawn(bits)

    module.randbits = randbits


def pytest_addoption(parser):
    parser.addoption("--shuffle", type=int, metavar="SEED", help="run the files, and the tests in each, in this order")


def pytest_configure(config):
    config.addinivalue_line("markers", "entropy(why): the test draws entropy, and holds for every seed")
    _watch(secrets)
    _watch(bit_generator)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config, items):
    if (seed := config.getoption("shuffle")) is not None:
        files = sorted({item.path for item in items})
        random.Random(seed).shuffle(files)
        random.Random(seed).shuffle(items)
        items.sort(key=lambda item: files.index(item.path))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item):
    draws.clear()  # fixtures that live longer are made after this
    random.seed(0)
    np.random.seed(0)  # noqa: NPY002
    if "torch" in sys.modules:
        sys.modules["torch"].manual_seed(0)
    return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item):
    result = yield
    marker = item.get_closest_marker("entropy")
    if draws and marker is None:
        pytest.fail(f"this test has no seed: entropy was drawn at {draws[0]}", pytrace=False)
    if marker is not None and not (marker.args and draws):
        pytest.fail("the marker entropy must say why a test draws entropy that does so", pytrace=False)
    return result
