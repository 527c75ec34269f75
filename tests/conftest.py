"""Options and hooks of all suites: the gate, lanes, shards, the second look, the summary at the end."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import json
import os
import signal
from collections import defaultdict
from collections.abc import Generator
from pathlib import Path, PurePosixPath

import psutil
import pytest

from tests import lanes

# Timeout in seconds of an interrupted lane to remove everything that its tests made, such as a kind cluster.
PATIENCE = 180.0
# Reasons to skip that are allowed with CI set: properties of the machine, not missing programs.
SKIPS = {
    "makes what only root, as Docker is, can make",
    "systemd's engine is not ours to kill",
    "this machine has no such Python",
}
# Property (pytest's `record_property`) with a line that is shown at the end of the run.
FIGURE = "figure"


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("rayside")
    group.addoption("--shard", metavar="I/N", help="only the files of shard I of N (tests/lanes.py)")
    group.addoption("--failures", type=Path, metavar="FILE", help="write what failed to FILE")
    group.addoption(
        "--second-look", action="store_true", help="name the tests that pass: --failures FILE has why"
    )
    group.addoption("--record-seconds", action="store_true", help="note what each file took (tests/lanes.py)")


def _ctrl_c(number: int, frame: object) -> None:
    """Interrupts once: further signals from pytest-xdist must not interrupt the cleanup."""
    signal.signal(signal.SIGINT, lambda number, frame: None)
    raise KeyboardInterrupt


def pytest_configure(config: pytest.Config) -> None:
    """Makes Ctrl-C end the tests.

    A background job of a script starts with SIGINT ignored, and its child processes would inherit that.
    """
    lane = hasattr(config, "workerinput")
    signal.signal(signal.SIGINT, _ctrl_c if lane else signal.default_int_handler)
    if not lane:
        config.pluginmanager.register(_Failures(config))


class _Failures:
    """With CI set, shows each failure when it happens: a run that is killed has no summary.

    With `--failures` it writes them to a file, each below a line `FAILED nodeid`, without the lane;
    below `ERROR nodeid` if tests could not be collected.
    """

    LINES = 60

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._file: Path | None = config.option.failures if not config.option.second_look else None
        if self._file:
            self._file.write_text("")

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if not report.failed:
            return
        text = f"in {report.when} after {report.duration:.0f} s\n{report.longreprtext}"
        terminal = self._config.pluginmanager.getplugin("terminalreporter")
        if terminal is not None and os.environ.get("CI"):
            terminal.write_line(f"\nFAILED {report.nodeid}")
            for line in text.splitlines()[-self.LINES :]:
                terminal.write_line(f"    {line}")
        self._keep(f"FAILED {_without_lane(report.nodeid)}", text)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self._keep(f"ERROR {report.nodeid}", report.longreprtext)

    def _keep(self, title: str, text: str) -> None:
        if self._file:
            with self._file.open("a") as kept:
                kept.write("\n    ".join([title, *text.splitlines()]) + "\n")


def _without_lane(nodeid: str) -> str:
    """Returns a test's id without the lane, which pytest-xdist appends to it."""
    test, _, lane = nodeid.rpartition("@")
    return test if "]" not in lane and test else nodeid


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Waits for each lane after an interrupt: pytest-xdist by itself would kill a lane after 15 s."""
    distributed = session.config.pluginmanager.getplugin("dsession")
    if distributed is None or exitstatus != pytest.ExitCode.INTERRUPTED:
        return
    # A terminal signals the lanes too; a signal to this process alone does not reach them.
    for lane in psutil.Process().children():
        lane.send_signal(signal.SIGINT)
    for gateway in distributed.nodemanager.group:
        channel = gateway.node.channel
        with contextlib.suppress(channel.RemoteError, channel.TimeoutError, EOFError):
            channel.waitclose(PATIENCE)


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Runs a test that is a coroutine in a new event loop; pytest-timeout applies as to any other test."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    arguments = {name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}
    asyncio.run(pyfuncitem.obj(**arguments))
    return True


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """With CI set, fails a test that was skipped because something is missing: CI has what tests need.

    The same in a second look, as the test has run and failed before.
    """
    report = yield
    is_strict = os.environ.get("CI") or item.config.option.second_look
    if is_strict and report.skipped and not hasattr(report, "wasxfail"):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        if reason.removeprefix("Skipped: ") not in SKIPS:
            report.outcome, report.longrepr = "failed", f"with CI set nothing may be skipped: {reason}"
    return report


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Marks the gate's tests, deselects other shards, and sorts the rest into lanes."""
    files = {item: PurePosixPath(item.nodeid.partition("::")[0]) for item in items}
    if shard := config.option.shard:
        which, count = map(int, shard.split("/"))
        shards = lanes.shards(files.values(), count)
        others = [item for item in items if shards[files[item]] != which]
        items[:] = [item for item in items if shards[files[item]] == which]
        config.hook.pytest_deselected(items=others)
    places = {}
    for item in items:
        if files[item].parts[1] == "unit":
            item.add_marker("gate")
        fixtures = item.fixturenames if isinstance(item, pytest.Function) else ()
        lane = lanes.lane(files[item], fixtures)
        item.add_marker(pytest.mark.xdist_group(lane))
        places[item] = lanes.place(files[item], item.name, lane)
    items.sort(key=lambda item: places[item])


@pytest.hookimpl(trylast=True)
def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Prints the tests' measured figures, the slowest files, and the tests that passed at a second look."""
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
    seconds: dict[str, float] = defaultdict(float)
    for test_report in reports:
        seconds[test_report.nodeid.partition("::")[0].removeprefix("tests/")] += test_report.duration
    if config.option.record_seconds:
        known = json.loads(lanes.SECONDS.read_text()) if lanes.SECONDS.exists() else {}
        known |= {file: max(round(its), 1) for file, its in seconds.items()}
        lanes.SECONDS.write_text(json.dumps(known, indent=0, sort_keys=True) + "\n")
    terminalreporter.section("files")
    longest = sorted(seconds.items(), key=lambda file: -file[1])[:20]
    terminalreporter.write_line(
        f"{sum(seconds.values()):.0f} s in all; " + ", ".join(f"{name} {its:.0f}" for name, its in longest)
    )
    if config.option.second_look:
        terminalreporter.section("second look")
        for passed in terminalreporter.stats.get("passed", []):
            terminalreporter.write_line(f"passed alone: {passed.nodeid}")
        terminalreporter.write_line(f"what failed the first time: {config.option.failures}")


def _recorded(report: pytest.TestReport, name: str) -> list[str]:
    return [str(value) for key, value in report.user_properties if key == name]
