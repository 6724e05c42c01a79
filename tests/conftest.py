"""A test that is skipped says what it needs, and stands in tests/skipped.txt: nothing is left out in silence."""

from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

ALLOWED = Path(__file__).with_name("skipped.txt")


# how long an example takes says how busy the machine is
settings.register_profile("gauntlet", settings(), deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("gauntlet")


class Skips:
    def __init__(self):
        self.collected, self.skipped = set(), {}

    def pytest_collection_finish(self, session):
        self.collected = {item.nodeid for item in session.items}

    def pytest_runtest_logreport(self, report):
        if report.skipped and not hasattr(report, "wasxfail"):
            self.skipped[report.nodeid] = report.longrepr[2]

    def pytest_sessionfinish(self, session):
        allowed = {line.split("#")[0].strip() for line in ALLOWED.read_text().splitlines()} - {""}
        self.unlisted = {test: why for test, why in self.skipped.items() if test not in allowed}
        self.stale = (allowed & self.collected) - set(self.skipped)
        if (self.unlisted or self.stale) and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter):
        for test, why in self.unlisted.items():
            terminalreporter.write_line(f"SKIPPED BUT NOT IN tests/skipped.txt: {test} ({why})", red=True)
        for test in self.stale:
            terminalreporter.write_line(f"IN tests/skipped.txt BUT RUN: {test}", red=True)


def pytest_configure(config):
    config.pluginmanager.register(Skips(), "gauntlet-skips")
