import os
from pathlib import Path

import pytest
from hypothesis import settings

# The same examples in every run, and no limit on their time: a busy machine is no failure.
settings.register_profile("rido", deadline=None, derandomize=True)
settings.load_profile("rido")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """Keeps tests with a common module fixture in one process; ``--dist loadgroup`` deals out all others one by one."""
    for item in items:
        fixtures = getattr(item, "_fixtureinfo", None)
        known = {} if fixtures is None else fixtures.name2fixturedefs
        shared = [name for name, found in known.items() if found and found[-1].scope == "module"]
        if shared:
            item.add_marker(pytest.mark.xdist_group(f"{item.path.parent.name}/{item.path.stem}"))


@pytest.fixture(scope="session")
def agents_dir() -> Path:
    """Folder of trained agents: RIDO_AGENTS, or shared/agents beside the repository."""
    beside = Path(__file__).resolve().parents[2] / "shared" / "agents"
    folder = Path(os.environ.get("RIDO_AGENTS", beside))
    if not folder.is_dir():
        pytest.skip(f"no trained agents at {folder}; set RIDO_AGENTS to their folder")
    return folder
