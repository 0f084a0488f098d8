import json
import os
import shutil
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import settings

pytest_plugins = ["seeding", "warned"]  # its hooks hold for doctests in src too

# One thread in each process: several test processes whose matrix products wait for each other take many times as long.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# The same examples in every run, and no limit on their time: a busy machine is no failure.
settings.register_profile("rido", deadline=None, derandomize=True)
settings.load_profile("rido")


_SECONDS = Path(__file__).with_name("seconds.json")  # that slow files take; `make seconds` writes it

# What --listed-skips, which `make test` gives, allows to be skipped; any other test that is skipped is run nowhere.
_SKIPS = {
    "no trained agents at": "the agents lie beside the repository, and are no part of it",
    "no recorded episodes in": "the banks lie beside the repository too",
    "a browser is missing": "installing one needs apt and root",
}


def pytest_addoption(parser):
    parser.addoption("--listed-skips", action="store_true", help="fail where a skip is not on the list in conftest.py")
    parser.addoption("--keep-seconds", action="store_true", help="write what slow files took, which then begin first")


def pytest_sessionfinish(session):
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if not session.config.getoption("listed_skips") or reporter is None:
        return
    reasons = {str(report.longrepr[-1]).removeprefix("Skipped: ") for report in reporter.stats.get("skipped", [])}
    if unlisted := [reason for reason in sorted(reasons) if not reason.startswith(tuple(_SKIPS))]:
        reporter.write_line(f"\nskips that are not listed in tests/conftest.py: {'; '.join(unlisted)}", red=True)
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter, config):
    if not config.getoption("keep_seconds"):
        return
    seconds = Counter()
    for report in (report for reports in terminalreporter.stats.values() for report in reports):
        if hasattr(report, "duration"):
            seconds[report.nodeid.partition("::")[0]] += report.duration
    slow = {name: round(taken) for name, taken in seconds.most_common() if taken >= 5}
    _SECONDS.write_text(json.dumps(slow, indent=1) + "\n")


def pytest_collection_modifyitems(items):
    """Begins with the files that took longest, so that all processes of ``--dist loadfile`` end together."""
    seconds = json.loads(_SECONDS.read_text())
    items.sort(key=lambda item: -seconds.get(item.nodeid.partition("::")[0], 0))


@pytest.fixture(scope="session")
def agents_dir() -> Path:
    """Folder of trained agents: RIDO_AGENTS, or shared/agents beside the repository."""
    beside = Path(__file__).resolve().parents[2] / "shared" / "agents"
    folder = Path(os.environ.get("RIDO_AGENTS", beside))
    if not folder.is_dir():
        pytest.skip(f"no trained agents at {folder}; set RIDO_AGENTS to their folder")
    return folder


@pytest.fixture(scope="session")
def banks_dir() -> Path:
    """Folder of recorded episodes: RIDO_BANKS, or shared/banks beside the repository."""
    beside = Path(__file__).resolve().parents[2] / "shared" / "banks"
    folder = Path(os.environ.get("RIDO_BANKS", beside))
    if not folder.is_dir():
        pytest.skip(f"no recorded episodes in {folder}; set RIDO_BANKS to their folder")
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
