import os
import shutil
from pathlib import Path

import pytest
from hypothesis import settings

pytest_plugins = ["seeding"]  # its hooks hold for doctests in src too

# One thread in each process: several test processes whose matrix products wait for each other take many times as long.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# The same examples in every run, and no limit on their time: a busy machine is no failure.
settings.register_profile("rido", deadline=None, derandomize=True)
settings.load_profile("rido")


_LONGEST = (
    "test_ray",  # waits most of its time
    "test_reproduce",
    "test_docs",
    "test_critics",
    "test_simulator",
    "test_faults",
    "test_evaluation",
    "test_together",
    "test_evaluate",
    "test_processes",
    "test_benchmark",
    "test_sobol",
    "test_runfile",
)


def pytest_collection_modifyitems(items):
    """Begins with the files that take longest, so that all processes of ``--dist loadfile`` end together."""
    rank = {name: place for place, name in enumerate(_LONGEST)}
    items.sort(key=lambda item: rank.get(item.path.stem, len(_LONGEST)))


@pytest.fixture(scope="session")
def agents_dir() -> Path:
    """Folder of trained agents: RIDO_AGENTS, or shared/agents beside the repository."""
    beside = Path(__file__).resolve().parents[2] / "shared" / "agents"
    folder = Path(os.environ.get("RIDO_AGENTS", beside))
    if not folder.is_dir():
        pytest.skip(f"no trained agents at {folder}; set RIDO_AGENTS to their folder")
    return folder


_FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
)


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    """A real Chromium without a window."""
    webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is missing: pip install --group test")
    chromium, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if chromium is None or driver is None:
        pytest.skip("a browser is missing: apt-get install chromium chromium-driver")
    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    for flag in _FLAGS:
        options.add_argument(flag)
    options.add_argument(f"--user-data-dir={tmp_path_factory.mktemp('profile')}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    window = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))
    yield window
    window.quit()
