"""Fuzzed command lines: bad values, ids, run files, weights, zips and npz files in every option.

Each command must end with status 0, 1 or 2, at most one line on standard error, standard output that is empty or
valid (with --json an object in every case), and without running code that a file contains. Run as ``python
benchmarks/faults/commands.py [COUNT] [SEED]``.
"""

import base64
import json
import os
import pickle
import sys
import tempfile
import warnings
import zipfile
from collections import Counter
from pathlib import Path
from random import Random

import numpy as np
from typer.testing import CliRunner

import rido
from rido.cli import app
from rido.policies.resolve import shipped_agent

MARKER = "RIDO_FAULTS_MARKER"  # name of the variable that hostile files set in this process
# The first of each is right.
BUDGETS = ["500", "60", "1", "0", "-5", "10" * 9, "9" * 30, str(2**63), "1_000", "1e18", "many"]
GAMMAS = ["0.9", "1", "0.99", "0", "1.2", "-1", "nan", "inf", "1e-320", "x"]
HORIZONS = ["10", "1", "50", "0", "-3", "9" * 12, "9" * 40, "1.5"]
SECONDS = ["0.05", "0", "-1", "inf", "nan", "-inf", "1e300", "x"]
NUMBERS = ["50", "0", "1", "-1", "1e9", "inf", "nan", "1e-300", "x"]
COUNTS = ["2", "1", "0", "-1", "9" * 15, "9" * 25, "2.0"]
SEEDS = ["0", "1", "-1", "9" * 40, "1.0"]
SETTINGS = ["unbiased=True", "beta=2", "beta=nan", "batch=0", "x=1", "=", "", "a b=1", "beta=[", "beta=" + "(" * 300]
ENV_KWARGS = ["g=9.81", "x=1", "noise=deviation", "noise=3", "g='x'", "g=nan", "=1", "render_mode=human", "id=3", ""]
ENVS = ["rido/LQG-v0", "rido/LQG-v0", "Pendulum-v1", "Pendulum-v1", "rido/LastStep-v0", "CartPole-v1", "Pendulem-v1"]
ENVS += ["", ":", "a:b", "rido:", "os:system", "sys:exit", "Pendulum-v999", "no.such.module:Env-v0", "\udcff", "a\0b"]
ENVS += ["x" * 5000]
POLICIES = ["random", "rido:pendulum", "rido:nothing", "numpy:zeros", "os:nothing", "sys:exit", "no/such.zip", ".", "/"]
POLICIES += ["os:getcwd", "math:x:y", "\udcff", "a\0b.zip", "x" * 5000, "builtins:len", "math:pi", ""]


class Hostile:
    """Unpickling it sets a variable."""

    def __reduce__(self):
        return exec, (f"import os; os.environ[{MARKER!r}] = '1'",)


def make_files(folder: Path) -> dict[str, list[str]]:
    """Write good, damaged and hostile files; return their paths by kind."""
    import gymnasium
    from stable_baselines3 import PPO

    good, run = folder / "good.zip", folder / "good.rido"
    PPO("MlpPolicy", gymnasium.make("Pendulum-v1"), n_steps=8, batch_size=8, device="cpu", seed=0).save(good)
    rido.evaluate("rido/LQG-v0", budget=500, gamma=0.9, horizon=10, seed=1, run=run)
    with zipfile.ZipFile(good) as archive:
        entries = {name: archive.read(name) for name in archive.namelist()}
    data = json.loads(entries["data"])
    hostile = {":type:": "x", ":serialized:": base64.b64encode(pickle.dumps(Hostile())).decode()}
    contents = {f"without-{name}": {key: entries[key] for key in entries if key != name} for name in entries}
    contents |= {f"empty-{name}": {**entries, name: b""} for name in entries}
    changed = [{}, [], 3, {**data, "policy_class": 3}, {**data, "policy_class": {}}, {"policy_class": {}}]
    changed += [{key: data[key] for key in data if key != lost} for lost in data]
    changed += [{**data, key: value} for key in data for value in (hostile, None, "x", {":serialized:": "!"}, 10**12)]
    contents |= {f"data-{number}": {**entries, "data": json.dumps(each)} for number, each in enumerate(changed)}
    contents["deep"] = {**entries, "data": "[" * 100_000}
    contents["pickled-weights"] = {**entries, "policy.pth": pickle.dumps(Hostile())}
    contents["bomb"] = {"data": bytes(2**28)}
    for name, content in contents.items():
        with zipfile.ZipFile(folder / f"{name}.zip", "w", zipfile.ZIP_DEFLATED) as archive:
            for entry, text in content.items():
                archive.writestr(entry, text)
    statistics = folder / "statistics"
    statistics.mkdir()
    (statistics / "agent.zip").write_bytes(good.read_bytes())
    (statistics / "vecnormalize.pkl").write_bytes(pickle.dumps(Hostile()))
    npz = folder / "good.npz"
    npz.write_bytes(shipped_agent("rido:pendulum").read_bytes())
    np.savez_compressed(folder / "bomb.npz", mean=np.zeros(2**25))
    np.savez(folder / "objects.npz", about=np.array([Hostile()], dtype=object))
    (folder / "weights.json").write_text("[4, 2, 1, 1, 0.5]")
    (folder / "nan.json").write_text('[NaN, 1, {"a": 2}]')
    (folder / "weights.csv").write_text("4,2,1\n")
    np.save(folder / "weights.npy", np.ones(10))
    np.save(folder / "objects.npy", np.array([Hostile()], dtype=object))
    random = Random(0)
    for path in (good, npz, run, folder / "weights.npy"):
        content = path.read_bytes()
        for number in range(30):
            size = random.randrange(len(content))
            path.with_stem(f"{path.stem}-cut-{number}").write_bytes(content[:size])
            flipped = bytearray(content)
            for _ in range(random.choice([1, 8, 64])):
                flipped[random.randrange(len(content))] ^= 1 << random.randrange(8)
            path.with_stem(f"{path.stem}-flipped-{number}").write_bytes(flipped)
    for suffix in ("zip", "npz", "rido", "json", "npy", "csv"):
        (folder / f"folder.{suffix}").mkdir()
        (folder / f"empty.{suffix}").write_bytes(b"")
        (folder / f"text.{suffix}").write_text("neither a zip\nnor numbers")
    texts = {"good": "1\n2\n3\n", "big": "1e308\n-1e308\n1e308\n", "same": "1e308\n1e308\n", "tiny": "5e-324\n0\n"}
    texts |= {"seeds": "seed,return\n1,2\n2,3\n", "nan": "nan\n1\n", "odd": "=1+1,@x\n", "huge": f"{'9' * 400}\n1\n"}
    for name, text in texts.items():
        (folder / f"{name}-results.csv").write_text(text)
    (folder / "big-results.json").write_text("[1e308, -1e308, 1.7e308]")
    task = '[tasks.a]\nenv = "Pendulum-v1"\ngamma = 0.9\nhorizon = 5\n'
    policies = '[policies]\na = "random"\nb = "rido:pendulum"\n'
    suites = {
        "good": "budget = 100\nseed = 0\n" + task + policies,
        "no-budget": task + policies,
        "no-task": "budget = 9\n" + policies,
    }
    suites |= {
        "kwargs": "budget = 100\n" + task + "env_kwargs = 3\n" + policies,
        "text": 'budget = "x"\n' + task + policies,
    }
    suites |= {
        "reference": "budget = 100\n" + task + "reference = 3\n" + policies,
        "list": "budget = 1\ntasks = []\npolicies = 2",
    }
    suites |= {"number": "budget = 100\n" + task + "[policies]\na = 1\nb = 2.5\n", "deep": "a = " + "[" * 5000}
    for name, text in suites.items():
        (folder / f"{name}-suite.toml").write_text(text)
    found = [str(path) for path in sorted(folder.rglob("*")) if path.name != "vecnormalize.pkl"]
    agents = [path for path in found if path.endswith((".zip", ".npz"))]
    runs = [path for path in found if path.endswith(".rido")]
    kinds = {kind: [path for path in found if f"-{kind}." in path] for kind in ("results", "suite")}
    agents_and_runs = {"results": kinds["results"], "suites": kinds["suite"]}
    return {**agents_and_runs, "agents": agents, "good": [str(good), str(npz)], "runs": runs, "all": found}


def command(random: Random, files: dict[str, list[str]], folder: Path) -> list[str]:
    """Return the words of one command line, most of them wrong in one to three places."""

    def pick(pool: list[str], right: float = 0.75) -> str:
        return pool[0] if random.random() < right else random.choice(pool)

    def options(chance: float, **pools: list[str]) -> list[str]:
        chosen = [name for name in pools if random.random() < chance]
        return [word for name in chosen for word in (f"--{name.replace('_', '-')}", pick(pools[name], 0.5))]

    def flags(*names: str) -> list[str]:
        return [name for name in names if random.random() < 0.15]

    def file(kind: str) -> str:
        return random.choice(files[kind])

    policy = random.choice([pick(POLICIES, 0.3), file("agents"), file("good")])
    kind = random.choice(
        ["evaluate"] * 10
        + ["compare", "compare", "results", "results", "suite", "study", "plan", "plan", "report", "reproduce"]
        + ["card", "envs", "junk"]
    )
    if kind == "evaluate":
        words = [random.choice(ENVS[:5] if random.random() < 0.8 else ENVS), "--policy", policy]
        words += ["--budget", pick(BUDGETS), "--gamma", pick(GAMMAS), "--horizon", pick(HORIZONS)]
        words += options(
            0.1,
            run=[str(folder / f"{random.randrange(20)}.rido"), file("runs"), "/", "/proc/x", "a\0b"],
            until=NUMBERS,
            time_budget=SECONDS,
            num_envs=COUNTS,
            workers=["1", "0", "-1", "x"],
            strategy=["uniform", "robust", "rido", "adaptive", "x"],
            strategy_kwarg=SETTINGS,
            env_kwarg=ENV_KWARGS,
            critic=["policy", "auto", "x"],
            simulator=["gymnasium", "envpool", "x"],
        )
        words += flags("--envpool", "--stochastic")
        if random.random() < 0.1:
            words += ["--reward-range", random.choice(NUMBERS), random.choice(NUMBERS)]
    elif kind == "compare":
        others = random.choices([*POLICIES, file("good"), f"a={policy}", "*.x"], k=2)
        right = ["Pendulum-v1", "a=random", file("good")]
        words = random.choice([right, right, [random.choice(ENVS), policy, *others]])
        words += ["--budget", pick(["200", *BUDGETS]), "--gamma", pick(GAMMAS), "--horizon", pick(HORIZONS)]
        words += options(
            0.2,
            run=[str(folder / f"{random.randrange(20)}.rido"), file("runs")],
            gate=["better", "not-worse", "x"],
            baseline=["random", "a", policy],
            tolerance=NUMBERS,
            confidence=["0.9", "1", "x"],
            report=[str(folder / "a.html"), "/", "a\0b"],
            markdown=["-", str(folder / "a.md"), "/"],
        )
    elif kind == "results":
        words = [
            "--results",
            *random.choices([*files["results"], file("all"), "/", "a=x.csv", ""], k=random.randint(1, 3)),
        ]
        words += options(
            0.3, tolerance=NUMBERS, confidence=["0.9", "1", "x"], gate=["better", "x"], baseline=["big", "a"]
        )
        kind = "compare"
    elif kind == "suite":
        words = [random.choice([*files["suites"], file("all"), "/"]), "--output", str(folder / "suite"), "--no-page"]
        words += options(
            0.1, workers=["1", "0", "x"], num_envs=COUNTS, simulator=["gymnasium", "x"], step_timeout=["0"]
        )
    elif kind == "card":
        words = [
            file("runs"),
            *options(0.3, name=["a", "\udcff", "a\nb"], output=["/", str(folder / "card.md"), "a\0b"]),
        ]
    elif kind == "study":
        words = [random.choice(ENVS), "--budget", pick(BUDGETS), "--gamma", pick(GAMMAS), "--horizon", pick(HORIZONS)]
        words += ["--bank", pick(["5", "1", "x"]), "--repetitions", pick(["2", "0", "x"])]
        words += options(0.3, strategy=["uniform", "x"], plot=[str(folder / "a.png"), "/", "a.x"], policy=[policy])
    elif kind == "plan":
        words = [*options(0.9, budget=BUDGETS, horizon=HORIZONS)]
        words += options(0.5, weights=[file("all")], strategy=["robust", "uniform", "x"], gamma=GAMMAS)
    elif kind == "report":
        words = [random.choice([file("all"), file("runs")])]
        words += ["--output", pick([str(folder / "page.html"), "/", "/proc/x", "", "a\0b"])]
    elif kind == "reproduce":
        words = ["--runs", pick(["10", "1", "x"]), "--agents", "x", "--out", str(folder / "out")]
    else:
        words = random.choices([*ENVS, *POLICIES, "--json", "-", "--", "--help=", "evaluate", "--budget"], k=4)
        return words if kind == "junk" else ["envs", *flags("--all", "--json"), *words[: random.randrange(2)]]
    if kind in ("evaluate", "study") or (kind == "compare" and "--budget" in words):
        words += ["--seed", pick(SEEDS)]
    words = [kind, *words, *flags("--json", "--json")]
    if random.random() < 0.05:
        del words[random.randrange(len(words))]
    if random.random() < 0.05:
        words.insert(random.randrange(len(words) + 1), random.choice(["--no-such", "-x", "--budget", "\n", "é"]))
    return words


def problems(words: list[str]) -> tuple[int | None, list[str]]:
    """Run a command in this process; return its status and what is wrong with how it ended."""
    os.environ.pop(MARKER, None)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of libraries, which are no concern here
        result = CliRunner().invoke(app, words)
    found = []
    gated = result.exit_code in (3, 4) and "--gate" in words
    done = result.exit_code == 0 or gated
    if result.exit_code not in (0, 1, 2) and not gated:
        found.append(f"status {result.exit_code}")
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        found.append(f"traceback of {type(result.exception).__name__}")
    if "Traceback" in result.stderr or len(result.stderr.strip().splitlines()) > 1:
        found.append("more than one line on standard error")
    if done == (result.stderr.strip() != ""):
        found.append("an error without a line, or a line without an error")
    if "--json" in words and words[words.index("--json") - 1] != "--output":  # whose value it is then
        try:
            content = json.loads(result.stdout)
            said = content.get("error", "").encode("utf-8", "backslashreplace").decode()
            if not done and result.stderr != f"rido: {said}\n":
                found.append("a JSON error that is not the line")
        except (ValueError, KeyError):
            found.append("output that is not one JSON object")
    elif not done and result.stdout and "--json" not in words:  # a wrong line may mean it as an option
        found.append("output beside an error")
    if MARKER in os.environ:
        found.append("code of a file was run")
    return result.exit_code, found


def run(count: int, seed: int) -> dict[str, int]:
    """Run fuzzed command lines; return how often each status and each problem came up."""
    counts: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "files").mkdir()
        files = make_files(folder / "files")
        random = Random(seed)
        for _ in range(count):
            words = command(random, files, folder)
            status, found = problems(words)
            counts[f"status {status}"] += 1
            counts.update(found)
            if found:
                print(found, words, file=sys.stderr)
    return dict(counts)


if __name__ == "__main__":
    print(run(*(int(word) for word in [*sys.argv[1:], "5000", "0"][:2])))
