"""Odd arguments of public functions: the quick form of ``benchmarks/fuzz.py``."""

from pathlib import Path

import pytest
from benchmarks import fuzz

ALL = fuzz.targets()
LIGHT = {name: target for name, target in ALL.items() if not target.heavy}


@pytest.mark.parametrize("name", sorted(set(LIGHT) - {"Suite.read", "Race.tell", "Race.dealt"}))
def test_ordinary_calls_work(name):
    assert fuzz.outcome(fuzz.Call(name), LIGHT) == ("works", "")


def test_odd_arguments_work_or_are_refused_in_one_line():
    found = fuzz.fuzz(range(400), fuzz.SEED, LIGHT)
    assert list(found["raw"]) == []
    assert sum(counts["refused"] for counts in found.values()) > 300


@pytest.mark.parametrize(
    "call",
    [
        fuzz.Call("Adaptive", {"unbiased": "array 2x3"}),
        fuzz.Call("Adaptive", {"unbiased": "torch [1, 2]"}),
        fuzz.Call("evaluate", {"env": r"'a\nb'"}),
        fuzz.Call("check", {"policy": r"'a\nb'"}),
        fuzz.Call("compare", {"run": r"'a\nb'"}),
        fuzz.Call("Suite.run", {"folder": "'5'"}),
        fuzz.Call("GymnasiumSimulator.rollout", {"seeds": "[[1, 2], [3]]"}),
        fuzz.Call("GymnasiumSimulator.rollout", {"seeds": "array(5)"}),
        fuzz.Call("GymnasiumSimulator.rollout", {"seeds": "7"}),
        fuzz.Call("Suite.run", {"folder": r"'\ud800'"}),
        fuzz.Call("evaluate", {"max_resets": "10**400"}),
        fuzz.Call("compare_results", {"files": "{1: 2}"}),
        fuzz.Call("Trajectories.select", {"rows": "[[1, 2], [3]]"}),
        fuzz.Call("check", {"env": "Ellipsis", "policy": "10**5000"}),
        fuzz.Call("evaluate", {"gamma": "[[1, 2], [3]]"}),
        fuzz.Call("gradient", {"policy": "[odd]"}),
        fuzz.Call("gradient", {"policy": "10**5000"}),
        fuzz.Call("evaluate in JAX", {"policy": "odd"}),
        fuzz.Call("sb3.EvalCallback", {"eval_env": "lambda x: x"}),
    ],
    ids=str,
)
def test_what_was_a_raw_error_is_none(call, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("a\nb", "5"):
        Path(name).write_text("neither an agent nor a folder")
    assert fuzz.outcome(call, ALL)[0] != "raw"


@pytest.mark.parametrize(
    ("call", "ended"),
    [
        (lambda size: size + 1, "raw"),  # Python's error
        (lambda size: int(size), "raw"),
        (lambda size: None, "works"),
    ],
)
def test_raw_errors_are_found(call, ended):
    known = {"call": fuzz.Target(call, lambda: {"size": 1})}
    assert fuzz.outcome(fuzz.Call("call", {"size": "'none'"}), known)[0] == ended


def test_every_public_name_is_called():
    import rido

    results = {
        "Check",
        "Comparison",
        "Estimate",
        "Evaluation",
        "Gradient",
        "Leaderboard",
        "Strategy",
    }  # made by functions
    assert set(rido.__all__) - results <= set(fuzz.targets())
