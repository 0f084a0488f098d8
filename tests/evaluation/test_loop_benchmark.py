"""The benchmark beside a user's own loop runs; its times are for quiet machines."""

import json
import os
import subprocess
import sys
from pathlib import Path

import rido

ROOT = Path(__file__).parents[2]


def test_the_quick_form_runs():
    source = os.pathsep.join([str(Path(rido.__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "benchmarks/loop.py", "--quick", "--only", "FrozenLake"],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": source},
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    rows = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert [row["policy"] for row in rows] == ["random", "rule"]
    assert all(row[name] > 0 for row in rows for name in ("loop", "seeded", "uniform", "adaptive"))
