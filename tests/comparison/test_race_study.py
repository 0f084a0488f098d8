"""benchmarks/races.py in its short form, on three pairs of recorded agents."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_study_of_recorded_agents_runs_and_goes_on_where_it_stopped(banks_dir, tmp_path):
    """Equal pairs are undecided or wrong; one race in ten may be wrong, more than 3 of 10 have 0.1% if it is 5%."""
    page = tmp_path / "races.md"
    study = [sys.executable, ROOT / "benchmarks/races.py", "--quick", "--output", page, "--cells", tmp_path]
    made = [subprocess.run(study, capture_output=True, text=True, check=True).stdout for _ in range(2)]
    assert len(made[0].splitlines()) == 6 and not made[1]
    rows = [line.split(" | ") for line in page.read_text(encoding="utf-8").splitlines() if line.startswith("| a2c")]
    assert len(rows) == 2
    for cells in rows:
        right, wrong, _ = (float(part) for part in cells[8].strip(" |").split(" / "))
        assert right >= 50 and wrong <= 30 and 0.7 < float(cells[7]) < 1.3
