"""The whole reproduction in its quick form, stopped and resumed, and where its agents come from."""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace

import numpy as np
import pytest
from typer.testing import CliRunner

from helpers import needs
from hubserver import serving, used
from rido.cli import app
from rido.paper import SECTIONS, policies, reproduce, theory
from rido.paper.domains import ADDITIONAL, MAIN, BankSource, precision, record
from rido.paper.policies import find_policy
from rido.simulators.envs import lqg

DOMAINS = {domain.name: domain for domain in MAIN}
RUNS = 10  # repetitions of each point
FEW_BUDGETS = {
    "pendulum": (1000, 5000),
    "ant": (6000, 9000),
    "swimmer": (2000, 4000),
    "reacher": (900, 4500),
    "halfcheetah": (6000, 9000),
}


def command(*arguments):
    return [sys.executable, "-m", "rido", "reproduce", *map(str, arguments)]


def with_few_budgets(domains):
    """Two budgets where no test looks at the numbers of a domain; the schedules are those of the second."""
    few = {name: dict(budgets=budgets, schedule_budget=budgets[1]) for name, budgets in FEW_BUDGETS.items()}
    return tuple(replace(domain, **few.get(domain.name, {})) for domain in domains)


@pytest.fixture(scope="module")
def quick(tmp_path_factory):
    """Everything in its shortest form, by one command with the shipped agents."""
    out, module = tmp_path_factory.mktemp("paper"), sys.modules[reproduce.__module__]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "MAIN", with_few_budgets(MAIN))
        patch.setattr(module, "ADDITIONAL", with_few_budgets(ADDITIONAL))
        patch.setattr(module, "_FEWEST_SPOT_RUNS", 2)
        patch.setattr(theory, "BUDGETS", theory.BUDGETS[:5])
        done = CliRunner().invoke(app, command("all", "--runs", RUNS, "--out", out, "--json")[3:])
        assert done.exit_code == 0, done.stderr
        yield out, json.loads(done.stdout)["claims"]


def test_everything_is_written(quick):
    out, claims = quick
    for section in SECTIONS:
        assert json.loads((out / f"{section}.json").read_text())["cells"]
        assert (out / f"{section}.npz").exists()
        assert {claim["section"] for claim in claims} >= {section}
    for figure in ("main", "schedules", "beta", "batch", "additional", "theory", "grouping"):
        assert (out / f"{figure}.png").stat().st_size > 10_000
        assert (out / f"{figure}.svg").read_text().lstrip().startswith("<?xml")
    page = (out / "README.md").read_text()
    assert all(claim["text"] in page and claim["numbers"] in page for claim in claims)
    assert "nan" not in page


def test_claims_that_even_a_few_runs_decide(quick):
    """Seeds are fixed. Ratios here are 0.02 to 0.3, over several budgets and discounts, with errors of 45% each."""
    _, claims = quick
    verdicts = {claim["text"]: claim["verdict"] for claim in claims}
    assert verdicts["LQG: RIDO beats both the uniform and the robust strategy"] == "holds"
    assert verdicts["Navigation: RIDO and uniform beat the robust strategy"] == "holds"
    assert verdicts["Navigation: RIDO reaches the level of the uniform strategy"] == "holds"
    assert verdicts["Navigation: RIDO's schedule is like uniform"] == "holds"
    assert verdicts["LQG: RIDO's schedule is like neither"] == "holds"
    assert verdicts["Example 1: a larger beta spends more on early steps"] == "holds"


def test_numbers_agree_with_what_is_known(quick):
    out, _ = quick
    section, arrays = json.loads((out / "main.json").read_text()), np.load(out / "main.npz")
    ratios = {"lqg": [], "navigation": []}
    for place, cell in enumerate(section["cells"]):
        if "strategies" not in cell:
            continue
        uniform = cell["strategies"]["uniform"]
        weights = arrays[f"/cells/{place}/weights"].sum()
        if cell["domain"] in ratios:
            ratios[cell["domain"]].append(uniform["mse"] * cell["budget"] / (weights * cell["horizon"]))
        assert uniform["transitions"] <= cell["budget"]
        counts = arrays[f"/cells/{place}/strategies/rido/counts"]
        assert np.all(np.diff(counts) <= 1e-3 * counts[0])
    # A uniform schedule has the variance sum f_t / n. The mean over all cells is within 5 standard errors of it.
    for found in ratios.values():
        assert len(found) >= 4 and np.mean(found) == pytest.approx(1, abs=5 * np.sqrt(2 / RUNS / len(found)))


def test_a_second_time_nothing_is_done_again(quick, monkeypatch):
    """The pictures, which would be drawn again, are left out."""
    out, claims = quick
    monkeypatch.setattr(sys.modules[reproduce.__module__], "draw", lambda results, out: None)

    def cells():
        return {path: path.stat().st_mtime_ns for path in out.glob("cells/**/*.json")}

    page, before = (out / "README.md").read_text(), cells()
    again = reproduce("all", runs=RUNS, out=out)
    assert [claim.text for claim in again] == [claim["text"] for claim in claims]
    assert (out / "README.md").read_text() == page
    assert before and cells() == before


def test_killed_and_resumed_gives_the_same(quick, tmp_path):
    """As the run that was not killed, which had another number of processes."""
    settings = ("beta", "--runs", RUNS, "--processes", 1)
    killed = tmp_path / "killed"
    process = subprocess.Popen(
        command(*settings, "--out", killed),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    while len(list(killed.glob("cells/**/*.json"))) < 3 and process.poll() is None:
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    assert 3 <= len(list(killed.glob("cells/**/*.json"))) < 70
    assert not (killed / "README.md").exists()
    subprocess.run(command(*settings, "--out", killed), check=True, capture_output=True)
    results = [json.loads((out / "beta.json").read_text())["cells"] for out in (killed, quick[0])]
    assert results[0] == results[1]


def test_a_bank_knows_its_domain(tmp_path):
    """LQG's mean return is the closed form within 4.5 standard errors (one false alarm in 100,000)."""
    source = BankSource(DOMAINS["lqg"], 0.99, None, 2000, tmp_path)
    for path in source.parts():
        record(source, path)
    found = precision(source, 0.99)
    assert found["closed_form"] == pytest.approx(lqg.expected_return(100, 0.99))
    assert abs(found["truth"] - found["closed_form"]) < 4.5 * found["truth_error"]
    assert 0 < found["variance_error"] < 0.1


def test_agents_from_a_folder(agents_dir, tmp_path):
    assert find_policy(DOMAINS["ant"], agents_dir) == agents_dir / "trpo/Ant-v3/Ant-v3.zip"
    assert find_policy(DOMAINS["lqg"], agents_dir) is None
    assert find_policy(DOMAINS["pendulum"], tmp_path).suffix == ".npz"  # nothing there: the shipped one
    with pytest.raises(ValueError, match="agents must be a folder"):
        find_policy(DOMAINS["ant"], tmp_path / "nowhere")


@pytest.fixture
def hub(tmp_path):
    """The hub, with an empty cache."""
    needs("huggingface_hub", "hub")
    policies._of_hub.cache_clear()
    with serving() as server, used(server, tmp_path / "cache"):
        yield server
    policies._of_hub.cache_clear()


def test_agents_from_the_hub(hub, agents_dir, tmp_path):
    """Without a warning: they are those of the published results."""
    for name in ("pendulum", "ant"):
        domain = DOMAINS[name]
        algorithm, env = domain.zoo
        local = find_policy(domain, agents_dir)
        files = {f"{algorithm}-{env}.zip": local.read_bytes()}
        if (statistics := local.with_name("vecnormalize.pkl")).exists():
            files["vec_normalize.pkl"] = statistics.read_bytes()
        hub.push(f"sb3/{algorithm}-{env}", files)
        path = find_policy(domain, "hub")
        assert path.read_bytes() == local.read_bytes()
        sources = [BankSource(domain, None, each, 1, tmp_path) for each in (path, local)]
        assert sources[0].name == sources[1].name
        returns = []
        for source in sources:
            simulator = source.simulator(num_envs=2)
            returns.append(simulator.rollout([20, 20], [1, 2]).flat)
            simulator.close()
        np.testing.assert_array_equal(*returns)  # with the statistics of its observations, where there are any


def test_other_agents_on_the_hub_give_a_warning(hub):
    hub.push("sb3/ppo-Pendulum-v1", {"ppo-Pendulum-v1.zip": b"another agent"})
    with pytest.warns(UserWarning, match="not the agent that the published results were made with"):
        find_policy(DOMAINS["pendulum"], "hub")


def test_a_hub_that_does_not_have_it_says_so(hub):
    with pytest.raises(ConnectionError, match="could not be downloaded"):
        find_policy(DOMAINS["pendulum"], "hub")


def test_wrong_requests_are_one_line(tmp_path):
    done = subprocess.run(command("figure7", "--out", tmp_path), capture_output=True, text=True)
    assert done.returncode == 1 and done.stderr.startswith("rido: section must be")
    done = subprocess.run(
        command("main", "--out", tmp_path, "--agents", tmp_path / "nowhere"), capture_output=True, text=True
    )
    assert done.returncode == 1 and done.stderr.count("\n") == 1
