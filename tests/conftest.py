"""Sets up what every suite shares: the lanes that run side by side, and the summary at a run's end."""

from __future__ import annotations

import contextlib
import os
import signal
from collections import defaultdict
from collections.abc import Generator
from pathlib import PurePosixPath

import psutil
import pytest

from tests import lanes

# Seconds that a lane has, once interrupted, to remove what its tests brought up, a kind cluster too.
PATIENCE = 180.0
# The reasons of skips that stand with CI set, too: what a machine is, not what it lacks.
SKIPS = {
    "makes what only root, as Docker is, can make",
    "systemd's engine is not ours to kill",
    "this machine has no such Python",
}
# The name under which a test records a line for the end of the run, with pytest's `record_property`.
FIGURE = "figure"
LANE = "lane"


def _ctrl_c(number: int, frame: object) -> None:
    """Interrupts once: the tests' end must remove everything, however often pytest-xdist asks."""
    signal.signal(signal.SIGINT, lambda number, frame: None)
    raise KeyboardInterrupt


def pytest_configure(config: pytest.Config) -> None:
    """Makes Ctrl-C end the tests.

    Where they are a job in the background of a script, they were started with it ignored, and every process
    that they start would be too.
    """
    lane = hasattr(config, "workerinput")
    signal.signal(signal.SIGINT, _ctrl_c if lane else signal.default_int_handler)
    if os.environ.get("CI") and not lane:
        config.pluginmanager.register(_FailuresAtOnce(config))


class _FailuresAtOnce:
    """Prints each failure when it happens: a run that is ended from outside never comes to its summary."""

    LINES = 60

    def __init__(self, config: pytest.Config) -> None:
        self._config = config

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        terminal = self._config.pluginmanager.getplugin("terminalreporter")
        if report.failed and terminal is not None:
            terminal.write_line(f"\nFAILED in {report.when} after {report.duration:.0f} s: {report.nodeid}")
            for line in report.longreprtext.splitlines()[-self.LINES :]:
                terminal.write_line(f"    {line}")


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Waits for each lane after an interrupt: pytest-xdist by itself would kill a lane after 15 s."""
    distributed = session.config.pluginmanager.getplugin("dsession")
    if distributed is None or exitstatus != pytest.ExitCode.INTERRUPTED:
        return
    # A terminal has told them already; whoever told this process alone has not.
    for lane in psutil.Process().children():
        lane.send_signal(signal.SIGINT)
    for gateway in distributed.nodemanager.group:
        channel = gateway.node.channel
        with contextlib.suppress(channel.RemoteError, channel.TimeoutError, EOFError):
            channel.waitclose(PATIENCE)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Fails, with CI set, a test that was skipped because something is missing: CI has what tests need."""
    report = yield
    if os.environ.get("CI") and report.skipped and not hasattr(report, "wasxfail"):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        if reason.removeprefix("Skipped: ") not in SKIPS:
            report.outcome, report.longrepr = "failed", f"with CI set nothing may be skipped: {reason}"
    return report


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Puts each test into its lane, before pytest-xdist looks, and each lane into its order."""

    def file(item: pytest.Item) -> PurePosixPath:
        return PurePosixPath(item.nodeid.partition("::")[0])

    for item in items:
        fixtures = item.fixturenames if isinstance(item, pytest.Function) else ()
        lane = lanes.lane(file(item), fixtures)
        item.add_marker(pytest.mark.xdist_group(lane))
        item.user_properties.append((LANE, lane))
    items.sort(key=lambda item: lanes.place(file(item), item.name))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Prints the figures that tests have measured, and how long each lane and its longest files took."""
    reports = [
        report
        for category in ("passed", "failed", "error", "skipped", "")
        for report in terminalreporter.stats.get(category, [])
        if isinstance(report, pytest.TestReport)
    ]
    if figures := [
        text
        for test_report in reports
        if test_report.when == "call"
        for text in _recorded(test_report, FIGURE)
    ]:
        terminalreporter.section("figures")
        for text in figures:
            terminalreporter.write_line(text)
    durations: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    for test_report in reports:
        for lane in _recorded(test_report, LANE):
            durations[lane][test_report.nodeid.partition("::")[0].removeprefix("tests/")] += (
                test_report.duration
            )
    terminalreporter.section("lanes")
    for lane, files in sorted(durations.items()):
        longest = sorted(files.items(), key=lambda file: -file[1])[:8]
        each = ", ".join(f"{name} {seconds:.0f}" for name, seconds in longest)
        terminalreporter.write_line(f"{lane}: {sum(files.values()):.0f} s; {each}")


def _recorded(report: pytest.TestReport, name: str) -> list[str]:
    return [str(value) for key, value in report.user_properties if key == name]
