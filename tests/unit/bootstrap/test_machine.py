"""Tests too little memory or disk, or a port that is taken: by which program, and what to do about it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from bootstrap.errors import LowDisk, LowMemory, UnsupportedSystem
from bootstrap.settings import Settings
from bootstrap.steps.machine_checks import Disk, Memory, Ports, Python, System
from rayside.errors import PortTaken, UnsupportedPython
from rayside.ports import Holder
from rayside.steps.step import Step
from rayside.system import free_port, processes
from rayside.system.free_port import require_port

FOLDER = "/home/me/.local/state/rayside-host/demo"
FORWARDS = {"RAYSIDE_FORWARDS": FOLDER}


def refusal(
    monkeypatch: pytest.MonkeyPatch, holder: Holder, environment: dict[str, str] | None = None
) -> PortTaken:
    """Returns the refusal for the dashboard's port, which `holder` has."""
    monkeypatch.setattr(free_port, "port_holder", lambda port: holder)
    monkeypatch.setattr(processes, "environment", lambda pid: environment or {})
    with pytest.raises(PortTaken) as caught:
        require_port("dashboard_port", 8265)
    return caught.value


def test_of_a_stranger_the_program_is_named_which_has_to_end(monkeypatch: pytest.MonkeyPatch) -> None:
    error = refusal(monkeypatch, Holder(7, "python"), {"RAYSIDE_TARGET": "kind", "HOME": "/home/me"})
    assert error.message == "port 8265 is taken by python (pid 7)"
    assert error.hint == "end that program, or choose another port: INVOKE_RAYSIDE_DASHBOARD_PORT=8266"
    # Of another user, nothing is looked at.
    error = refusal(monkeypatch, Holder(None, "another user's program"), FORWARDS)
    assert error.message == "port 8265 is taken by another user's program"


@pytest.mark.parametrize(
    ("environment", "part"),
    [
        (FORWARDS, "port forwards"),
        ({"RAYSIDE_STATE": FOLDER}, "Ray"),
        ({"RAYSIDE_RELAY": FOLDER}, "debug relay"),
        ({"RAYSIDE_WORKSPACE_PROCESS": FOLDER}, "workspace"),
    ],
)
def test_of_rayside_itself_the_cluster_is_named_and_the_command_that_removes_it(
    monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], part: str
) -> None:
    error = refusal(monkeypatch, Holder(7, "python"), environment)
    assert f"the {part} of Rayside's own cluster demo, whose files are in {FOLDER}" in error.message
    assert "python (pid 7)" in error.message
    assert "end that program" not in error.hint
    assert "./invokew down --name demo removes" in error.hint
    assert "INVOKE_RAYSIDE_DASHBOARD_PORT=8266" in error.hint


def room(setting: str, present: Callable[[], bool], folder: Path) -> list[Step]:
    """Returns the steps that a small machine can't satisfy, whose ports are all taken."""
    settings = Settings(cache_folder=folder, **{setting: 100_000.0})  # type: ignore[arg-type]
    return [
        Memory(settings, setting, present),
        Ports({"dashboard_port": 8265, "relay_port": 5678}, present),
        Disk(settings, setting, present),
    ]


def test_a_machine_too_small_names_the_setting(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(free_port, "port_holder", lambda port: Holder(None, "another user's program"))
    memory, ports, disk = room("kind_min_memory_gib", lambda: False, tmp_path)
    with pytest.raises(LowMemory, match="100000 GiB is needed") as refused:
        memory.check()
    assert "INVOKE_RAYSIDE_KIND_MIN_MEMORY_GIB" in refused.value.hint
    with pytest.raises(LowDisk, match=f"free at {tmp_path}, 100000 GiB is needed"):
        disk.check()
    with pytest.raises(PortTaken, match="8265"):
        ports.check()


def test_a_cluster_that_is_up_has_what_it_needs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(free_port, "port_holder", lambda port: pytest.fail("nobody is to be asked"))
    for step in room("min_memory_gib", lambda: True, tmp_path):
        assert step.check().detail.endswith("in use by the cluster")


def test_each_port_can_be_a_step_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    holders = {8265: Holder(7, "python")}
    monkeypatch.setattr(free_port, "port_holder", holders.get)
    monkeypatch.setattr(processes, "environment", lambda pid: {})
    dashboard, relay = Ports({"dashboard_port": 8265, "relay_port": 5678}, lambda: False).each()
    assert (dashboard.name, relay.name) == ("dashboard-port", "relay-port")
    with pytest.raises(PortTaken):
        dashboard.check()
    assert relay.check().detail == "5678 free"


def test_a_python_or_a_system_that_ray_does_not_know_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Python().check().detail in sys.version
    monkeypatch.setattr(sys, "version_info", (3, 99, 0))
    with pytest.raises(UnsupportedPython, match=r"this is Python 3\.99\.0"):
        Python().check()
    monkeypatch.setattr("platform.system", lambda: "Plan 9")
    with pytest.raises(UnsupportedSystem, match="Plan 9 on"):
        System().check()
