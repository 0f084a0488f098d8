"""No case of the corpus is silent: right, refused in one line, or warned of. benchmarks/silent.py runs all of them.

Cases marked as unseen are those of docs/warnings.md, "What no rehearsal can see": they may be wrong without a word.
"""

import pytest

from corpus import environments, policies
from corpus.plain import judge

CASES = {**environments.CASES, **policies.CASES}
ENTROPY = pytest.mark.entropy("no two numbers of these cases are the same, which is seen for every seed")
MARKED = [pytest.param(name, marks=[ENTROPY] if "system's entropy" in name else []) for name in CASES]
ALONE = set(list(CASES)[::4])  # in one environment too
IN_PROCESSES = (
    "A generator made in the constructor, for the noise of steps",
    "A position that belongs to the class, batches",
    "a generator made in the constructor",
    "a counter of steps: brakes at first, and pushes later, with reset",
)


def test_there_are_enough_cases():
    assert len([name for name in environments.CASES if not name.endswith(", batches")]) >= 60
    assert len(policies.CASES) >= 60


@pytest.mark.parametrize("name", MARKED)
def test_no_case_is_silent(name):
    """Seeds are fixed; with others a right case would be called wrong in about 1 of 3,000."""
    case = CASES[name]
    for num_envs in (1, 16) if name in ALONE else (16,):
        found = judge(case, num_envs=num_envs, episodes=30)
        assert found.kind != "silent" or case.unseen, (num_envs, found)


@pytest.mark.parametrize("name", IN_PROCESSES)
def test_no_case_is_silent_in_processes(name):
    found = judge(CASES[name], num_envs=4, workers=2)
    assert found.kind != "silent", found


@pytest.mark.parametrize("name", ["a lambda", "-o / norm(o)", "a switch after 6 calls of an episode", "sorted"])
def test_ordinary_policies_are_right_without_a_word(name):
    found = judge(CASES[name], num_envs=16)
    assert (found.kind, found.text) == ("right", "")
