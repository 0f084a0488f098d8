import os
from pathlib import Path

import pytest
from hypothesis import settings

# The same examples in every run, and no limit on their time: a busy machine is no failure.
settings.register_profile("rido", deadline=None, derandomize=True)
settings.load_profile("rido")


@pytest.fixture(scope="session")
def agents_dir() -> Path:
    """Folder of trained agents: RIDO_AGENTS, or shared/agents beside the repository."""
    beside = Path(__file__).resolve().parents[2] / "shared" / "agents"
    folder = Path(os.environ.get("RIDO_AGENTS", beside))
    if not folder.is_dir():
        pytest.skip(f"no trained agents at {folder}; set RIDO_AGENTS to their folder")
    return folder
