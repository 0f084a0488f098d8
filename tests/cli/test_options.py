"""Options: each command gives the library what it was given, and what a function does not take has a reason."""

import inspect
import re
import subprocess
import sys
from functools import partial

import pytest
from typer.main import get_command
from typer.testing import CliRunner

import rido
from rido.cli import app
from rido.core.options import declared
from rido.simulators.options import Options, SimulatorOptions
from rido.study import study
from rido.suite.suite import Suite

FUNCTIONS = {
    "evaluate": rido.evaluate,
    "compare": rido.compare,
    "suite": Suite.run,
    "study": study,
    "check": rido.check,
    "gradient": rido.gradient,
}
BEGINNINGS = {
    "evaluate": ["CartPole-v1", "--policy", "random", "--gamma", "1"],
    "compare": ["CartPole-v1", "a=random", "b=random", "--gamma", "1", "--budget", "9"],
    "suite": ["FILE"],
    "study": ["CartPole-v1", "--policy", "random", "--gamma", "1", "--budget", "9"],
    "check": ["CartPole-v1"],
}
WORDS = {
    "horizon": (["--horizon", "7"], 7),
    "end_on_truncation": (["--end-on-truncation"], True),
    "env_kwargs": (["--env-kwarg", "x=2", "--env-kwarg", "y=up"], {"x": 2, "y": "up"}),
    "deterministic": (["--stochastic"], False),
    "trust": (["--trust"], True),
    "components": (["--component", "cost", "--component", "fuel"], ["cost", "fuel"]),
    "plan_for": (["--plan-for", "cost"], "cost"),
    "reward_range": (["--reward-range", "-1", "2"], (-1.0, 2.0)),
    "budget": (["--budget", "800"], 800),
    "time_budget": (["--time-budget", "2.5"], 2.5),
    "until": (["--until", "0.5"], 0.5),
    "max_resets": (["--max-resets", "5"], 5),
    "reset_cost": (["--reset-cost", "1.5"], 1.5),
    "strategy": (["--strategy", "rido"], "rido"),
    "critic": (["--critic", "fit"], "fit"),
    "starts": (["--starts", "sobol"], "sobol"),
    "seed": (["--seed", "3"], 3),
    "reseed": (["--no-reseed"], False),
    "num_envs": (["--num-envs", "4"], 4),
    "workers": (["--workers", "2"], 2),
    "simulator": (["--simulator", "jax"], "jax"),
    "step_timeout": (["--step-timeout", "9.5"], 9.5),
    "run": (["--run", "a.rido"], "a.rido"),
    "confidence": (["--confidence", "0.9"], 0.9),
    "tolerance": (["--tolerance", "0.1"], 0.1),
    "strategies": (["--strategy", "rido", "--strategy", "uniform"], ["rido", "uniform"]),
    "bank": (["--bank", "60"], 60),
    "repetitions": (["--repetitions", "5"], 5),
}
LIBRARY_ONLY = {"progress", "stop"}
CASES = [(name, option) for name in BEGINNINGS for option in FUNCTIONS[name].__options__ if option not in LIBRARY_ONLY]


class Called(ValueError):
    """The library was called."""


@pytest.fixture
def called(monkeypatch, tmp_path):
    """Returns what a command gives to the function of the library that it calls."""
    file = tmp_path / "suite.toml"
    file.write_text(
        'budget = 9000\n[tasks.a]\nenv = "CartPole-v1"\ngamma = 1.0\n[policies]\nb = "random"\nc = "random"\n'
    )

    def call(name, *words):
        seen = {}

        def library(*args, **options):
            seen.update(options)
            raise Called

        places = {"suite": "rido.suite.suite.Suite.run", "check": "rido.simulators.check.check"}
        monkeypatch.setattr(places.get(name, f"rido.cli.{name}.{name}"), library)
        beginning = [str(file) if word == "FILE" else word for word in BEGINNINGS[name]]
        more = ["--no-page", "--output", str(tmp_path / "out")] if name == "suite" else []
        result = CliRunner().invoke(app, [name, *beginning, *more, *words])
        assert isinstance(result.exception, SystemExit) and seen, result.output
        return seen

    return call


@pytest.mark.parametrize(("name", "option"), CASES)
def test_a_command_gives_the_library_what_it_was_given(called, name, option):
    words, value = WORDS[option]
    if (name, option) == ("study", "budget"):
        words, value = ["--budget", "800"], [9, 800]
    given, usual = called(name, *words), called(name)
    assert (str(given[option]) if option == "run" else given[option]) == value
    assert {key: each for key, each in given.items() if key != option} == {
        key: each for key, each in usual.items() if key != option
    }
    defaults = {key: each.default for key, each in inspect.signature(FUNCTIONS[name]).parameters.items()}
    if option != "budget":
        assert (usual[option] or None) == (defaults[option] or None) or usual[option] == list(defaults[option])


def test_every_option_is_tried():
    assert {option for _, option in CASES} == set(WORDS)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_an_option_is_taken_or_the_reason_is_said(name):
    function, policies = FUNCTIONS[name], "random"
    known = set(function.__options__) | set(function.__without__)
    missing = set(declared(Options)) - known
    assert missing == (set(declared(Options)) - set(declared(SimulatorOptions)) if name == "check" else set())
    for option, reason in function.__without__.items():
        with pytest.raises(TypeError, match=rf"does not take {option}: {reason}"):
            function("CartPole-v1", policies, **{option: 1})


@pytest.mark.parametrize("name", FUNCTIONS)
def test_each_option_has_its_text_in_the_docstring_and_the_help(name):
    function = FUNCTIONS[name]
    for option, (_, declaration) in function.__options__.items():
        assert declaration.text and f"    {option}: " in function.__doc__
    assert list(function.__options__) == [
        option for option in inspect.signature(function).parameters if option in function.__options__
    ]
    if name not in BEGINNINGS:
        return
    helps = {option.name: option.help for option in get_command(app).commands[name].params if hasattr(option, "help")}
    for option in set(function.__options__) - LIBRARY_ONLY:
        assert re.match(r"[A-Z].*", helps[option]) and "``" not in helps[option]


def test_what_is_wrong_is_said_before_anything_is_imported(monkeypatch):
    """A wrong option costs no import of Gymnasium or of the environment's module."""
    monkeypatch.setattr("rido.simulators.factory.import_module", partial(pytest.fail, "imported"))
    monkeypatch.setattr("rido.simulators.factory.resolve_horizon", partial(pytest.fail, "looked for"))
    for wrong in (
        dict(budget=0),
        dict(starts="even"),
        dict(strategy="best"),
        dict(until=3, strategy="uniform"),
        dict(simulator="mine"),
        dict(simulator="jax", workers=2),
        dict(critic="fit", reward_range=(0, 1)),
        dict(budget=None),
    ):
        with pytest.raises(ValueError, match=r"must|works only"):
            rido.evaluate("module_of_a_test:Environment", "random", **{"gamma": 1, "budget": 100, **wrong})


def test_a_wrong_option_of_a_command_costs_no_slow_import():
    words = ["evaluate", "Pendulum-v1", "--policy", "random", "--gamma", "0.9", "--budget", "100", "--until", "-1"]
    code = (
        f"import sys\nfrom rido.cli import app\ntry:\n    app({words})\nexcept SystemExit as error:\n"
        "    print(error.code, {'gymnasium', 'scipy', 'torch', 'matplotlib'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=600)
    assert "until must be positive" in done.stderr and done.stdout == "1 set()\n"
