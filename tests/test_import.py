"""``import rido`` imports no more than most scripts need, and offers all public names."""

import subprocess
import sys

import pytest

import rido


def test_the_names_of_suites_are_imported_when_they_are_used():
    code = (
        "import sys, rido; assert 'rido.suite.suite' not in sys.modules; from rido import *; "
        "print(*(globals()[name].__name__ for name in rido.__all__))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=600)
    assert done.stdout.split() == rido.__all__
    assert set(rido.__all__) <= set(dir(rido))
    with pytest.raises(AttributeError, match="module 'rido' has no attribute 'Suit'"):
        rido.Suit  # noqa: B018
