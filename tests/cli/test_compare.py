"""``rido compare`` as a user runs it: names, tables, gates, pages, and runs that are killed."""

import json
import re
import shutil
import sys
from types import ModuleType

import numpy as np
import pytest
from typer.testing import CliRunner

import rido
from interrupted import kill_until_done, slow_comparison
from rido.cli import app
from rido.comparison.compare import read_comparison
from rido.core.digits import to_digits, with_interval
from rido.policies.files import parse_policies
from rido.policies.resolve import shipped_agent

POLICIES = ["good=rido:pendulum", "random"]
SETTINGS = ["--gamma", "0.9", "--budget", "8000", "--seed", "1"]
PENDULUM = ["compare", "Pendulum-v1", *POLICIES, *SETTINGS]


def rido_command(*arguments, code=0):
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exit_code == code, result.output
    return result.stdout


def fails(*arguments):
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exit_code == 1 and result.stderr.count("\n") == 1 and "Traceback" not in result.stderr
    return result.stderr


@pytest.fixture(scope="module")
def expected():
    policies = {"good": "rido:pendulum", "random": "random"}
    return rido.compare("Pendulum-v1", policies, gamma=0.9, budget=8000, seed=1)


@pytest.fixture
def checkpoints(tmp_path):
    """A folder with an agent and a text, and a copy of the agent elsewhere."""
    for name in ("runs/step_9.npz", "runs/step_10.npz", "old/best.npz"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(shipped_agent("rido:pendulum"), tmp_path / name)
    (tmp_path / "runs" / "notes.txt").write_text("not an agent")
    return tmp_path


def without_seconds(printed):
    return {name: entry for name, entry in printed.items() if name != "seconds"}


def test_it_prints_what_the_library_finds(expected):
    *summary, header, first, second = rido_command(*PENDULUM).splitlines()
    assert "\n".join(summary) == expected.summary()
    assert re.split(r"\s{2,}", header) == ["policy", "value", "behind the best", "transitions", "eliminated at"]
    value, low, high = to_digits(expected.values["good"].value, *expected.interval("good"))
    assert first.split()[:4] == ["good", value, f"[{low},", f"{high}]"]
    behind, (low, high) = expected.difference("good", "random").value, expected.bounds("good", "random")
    assert with_interval(behind, low, high) in second and second.endswith(f"{expected.eliminated['random']:,}")
    printed = json.loads(rido_command(*PENDULUM, "--json"))
    assert without_seconds(printed) == without_seconds(expected.to_dict())


def test_workers_change_nothing():
    one, two = (json.loads(rido_command(*PENDULUM, "--workers", n, "--json")) for n in (1, 2))
    assert without_seconds(one) == without_seconds(two)


def test_policies_come_from_folders_patterns_and_names(checkpoints, monkeypatch):
    monkeypatch.chdir(checkpoints)
    short = ["--gamma", "0.9", "--budget", "800", "--horizon", "20", "--seed", "1", "--json"]
    for given, names in (
        (["runs"], {"step_9", "step_10"}),
        (["runs/*.npz"], {"step_9", "step_10"}),
        (["best=old/best.npz", "runs/", "random"], {"best", "step_9", "step_10", "random"}),
        (["old/best.npz", "same=old/best.npz"], {"best", "same"}),
    ):
        printed = json.loads(rido_command("compare", "Pendulum-v1", *given, *short))
        assert set(printed["ranking"]) == names
    assert "best more than once: give NAME=POLICY" in fails(
        "compare", "Pendulum-v1", "best=random", "old/best.npz", *short[:-1]
    )
    assert "policies must be 2 to 100, got 1: ['best']" in fails("compare", "Pendulum-v1", "old/best.npz", *short[:-1])
    assert "got 'no/*.zip'" in fails("compare", "Pendulum-v1", "no/*.zip", *short[:-1])


def test_an_equals_sign_in_a_path_is_no_name(checkpoints, monkeypatch):
    monkeypatch.chdir(checkpoints)
    (checkpoints / "runs").rename("lr=3")
    assert list(parse_policies(["lr=3", "a=random"])) == ["step_9", "step_10", "a"]
    assert list(parse_policies(["lr=3/step_9.npz", "lr=*/step_10.npz"])) == ["step_9", "step_10"]


@pytest.mark.parametrize(
    ("arguments", "outcome", "code"),
    [
        (["--gate", "better", "--baseline", "random"], "pass", 0),
        (["--gate", "better", "--baseline", "good"], "fail", 3),
        (["--gate", "better", "--baseline", "random", "--budget", "400"], "undecided", 4),
        (["--gate", "not-worse", "--baseline", "random", "--tolerance", "1"], "pass", 0),
        (["--gate", "not-worse", "--baseline", "rido:pendulum", "--tolerance", "1"], "fail", 3),
    ],
)
def test_gates_have_an_exit_status_and_a_line(arguments, outcome, code):
    *_, line = rido_command(*PENDULUM, *arguments, code=code).splitlines()
    assert line.startswith(f"gate {arguments[1]}: {outcome} at 95% confidence: ")
    gate = json.loads(rido_command(*PENDULUM, *arguments, "--json", code=code))["gate"]
    assert gate["outcome"] == outcome and line.endswith(gate["why"]) and gate["kind"] == arguments[1]


def test_a_change_of_nothing_passes_at_the_first_look_that_the_tolerance_allows():
    """The share of starts that n equal pairs miss, log(1 / 0.025) / n, times the size of a return."""
    arguments = ["compare", "Pendulum-v1", "old=rido:pendulum", "new=rido:pendulum", "--gamma", "1", "--seed", "1"]
    arguments += ["--budget", "60000", "--gate", "not-worse", "--baseline", "old", "--tolerance", "30"]
    told = json.loads(rido_command(*arguments, "--json"))
    pairs, value = told["trajectories"] / 2, told["policies"][0]
    size = np.hypot(value["value"], value["standard_error"] * np.sqrt(pairs))
    assert told["gate"]["outcome"] == "pass" and told["transitions"] == 400 * pairs
    assert size * -np.log(0.025) / pairs <= 30 < size * -np.log(0.025) / (0.75 * pairs)
    assert f"its rewards are those of old in all {pairs:.0f} pairs" in told["gate"]["why"]
    text = rido_command(*arguments)
    assert "gate not-worse: pass at 95% confidence" in text and "inf" not in text


def test_a_gate_ends_the_comparison_when_it_is_decided(tmp_path, monkeypatch):
    """With a wide tolerance far fewer transitions decide than the best would take."""
    twins = ["compare", "rido/LQG-v0", "a=twins:one", "b=twins:two", "--gamma", "0.9"]
    twins += ["--horizon", "20", "--budget", "20000", "--seed", "1"]
    policies = ModuleType("twins")
    policies.one, policies.two = (lambda observations, gain=gain: -gain * observations for gain in (0.588, 0.589))
    monkeypatch.setitem(sys.modules, "twins", policies)
    gate = ["--gate", "not-worse", "--baseline", "a", "--tolerance", "50", "--run", tmp_path / "a.rido"]
    gated = json.loads(rido_command(*twins, *gate, "--json"))
    assert gated["gate"]["outcome"] == "pass" and gated["transitions"] < 5000
    again = json.loads(rido_command(*twins, *gate, "--json"))
    assert without_seconds(again) == without_seconds(gated)
    assert read_comparison(tmp_path / "a.rido").transitions == gated["transitions"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--gate", "better"], "gate and baseline must be given together"),
        (["--baseline", "good"], "gate and baseline must be given together"),
        (["--gate", "better", "--baseline", "old"], "baseline must be one of the policies, good, random, got 'old'"),
        (["--gate", "not-worse", "--baseline", "good"], "tolerance must be positive for gate not-worse"),
        (["--markdown", "-", "--json"], "markdown must be a file where --json writes"),
        (["--markdown", "/no/such/folder/a.md"], "markdown must be a file that can be written"),
        (["--report", "/no/such/folder/a.html"], "report must be a file that can be written"),
        (["--confidence", "1"], "confidence must be"),
        (["--budget", "100"], "budget must pay for 2 full-length trajectories of each policy"),
        (["--ray", "local", "--envpool"], "simulator must be given once"),
    ],
)
def test_what_cannot_be_done_gets_one_line(arguments, message):
    assert message in fails(*PENDULUM, *arguments)


def test_markdown_has_the_table_and_the_verdict(tmp_path, expected):
    gate = ["--gate", "better", "--baseline", "random"]
    printed = rido_command(*PENDULUM, *gate, "--markdown", "-")
    rido_command(*PENDULUM, *gate, "--markdown", tmp_path / "a.md")
    assert (tmp_path / "a.md").read_text() == printed
    verdict, _, head, _, *rest = printed.splitlines()
    assert verdict.startswith("**gate better: pass at 95% confidence: good is better")
    assert head == expected.summary().splitlines()[0]
    table = [line.strip("| ").split(" | ") for line in rest if line.startswith("|")]
    assert table[0][0] == "policy" and {len(line.strip("|").split("|")) for line in rest if "|" in line} == {5}
    assert [row[0] for row in table[2:]] == ["good", "random"]


def test_names_cannot_break_the_markdown(tmp_path):
    name = "a|b *c* <d> `e`\nf_g_"
    printed = rido_command("compare", "Pendulum-v1", f"{name}=rido:pendulum", "random", *SETTINGS, "--markdown", "-")
    (row,) = [line for line in printed.splitlines() if line.startswith("| a")]
    assert row.startswith(r"| a\|b \*c\* \<d\> \`e\` f\_g\_ | ") and len(re.findall(r"(?<!\\)\|", row)) == 6


def test_reports_of_a_comparison_and_of_its_run_file_are_the_same(tmp_path):
    page, again = tmp_path / "a.html", tmp_path / "b.html"
    rido_command(*PENDULUM, "--run", tmp_path / "a.rido", "--report", page)
    assert str(again) in rido_command("report", tmp_path / "a.rido", "-o", again)
    assert page.read_text() == again.read_text() and page.read_text().count("<svg") == 3
    assert "Traceback" not in fails("plan", "--budget", 400, "--weights", tmp_path / "a.rido")


def test_a_killed_comparison_ends_as_if_it_had_not_been(tmp_path):
    path = tmp_path / "a.rido"
    kills = kill_until_done(path, run=slow_comparison, growth=6)
    assert len({len(pieces) for pieces in kills}) >= 3
    resumed = slow_comparison(path)
    assert resumed == slow_comparison(tmp_path / "undisturbed.rido")
    told = read_comparison(path).to_dict()
    assert {name: told[name] for name in resumed} == resumed


def test_recorded_results_are_compared_without_a_simulator(tmp_path):
    for name, outcomes in (("old", [0, 1] * 40), ("new", [1, 1, 1, 1, 0] * 16)):
        (tmp_path / f"{name}.csv").write_text("success\n" + "\n".join(map(str, outcomes)) + "\n")
    files = [str(tmp_path / "old.csv"), str(tmp_path / "new.csv")]
    told = rido_command("compare", "--results", *files, "--gate", "better", "--baseline", "old")
    assert "new is the best of 2" in told and "episodes" in told and "gate better: pass" in told
    assert json.loads(rido_command("compare", "--results", *files, "--json"))["best"] == "new"
    assert "gamma and budget must be given" in fails("compare", "Pendulum-v1", "random", "rido:pendulum")
