"""Tests which debuggees the relay of `rayside run` finds."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rayside.dap.paused_task import PausedTask
from rayside.errors import NotRunning
from rayside.relay.cluster import ClusterDebuggees
from rayside.relay.debuggee import Debuggee
from rayside.relay.program_debuggees import ProgramDebuggees

PID, PORT, DASHBOARD, RUN = 41, 40001, "http://127.0.0.1:8265", "rayside run 1"
WORKER = Debuggee("w1", "10.0.0.7", 40002, 42, "10.0.0.7", job_id="01000000")
# Ray does not say yet whose this is, and that one is a colleague's.
UNKNOWN = Debuggee("w2", "10.0.0.7", 40003, 43, "10.0.0.7")
ANOTHERS = Debuggee("w3", "10.0.0.7", 40004, 44, "10.0.0.7", job_id="02000000")
# Ray lists the driver at the address of its node.
OF_RAY = Debuggee("d1", "10.0.0.7", PORT, PID, "10.0.0.7", job_id="01000000", driver=True)


class Cluster:
    """Plays a Ray's debuggees."""

    async def debuggees(self) -> list[Debuggee]:
        return [OF_RAY, WORKER, UNKNOWN, ANOTHERS]

    async def waiting(self) -> list[PausedTask]:
        return [PausedTask("w", "10.0.0.7", 1, job, "work", "") for job in ("01000000", "02000000", "")]


@pytest.fixture
def joined(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """Returns the Rays that are looked into, as they are."""
    calls: list[tuple[Any, ...]] = []

    def asked(*arguments: Any) -> Cluster:
        calls.append(arguments)
        return Cluster()

    monkeypatch.setattr(ClusterDebuggees, "asked", asked)
    return calls


async def found(file: Path, debuggees: ProgramDebuggees, **told: Any) -> list[Debuggee]:
    file.with_name("ray-token").write_text("rays")
    file.write_text(json.dumps({"pid": PID, "port": PORT, "dashboard": "", **told}))
    return await debuggees.debuggees()


async def test_the_driver_is_found_before_its_ray_and_keeps_its_name(
    tmp_path: Path, joined: list[tuple[Any, ...]]
) -> None:
    file = tmp_path / "told.json"
    debuggees = ProgramDebuggees(file, "secret", RUN)
    assert await debuggees.debuggees() == []
    assert await found(file, debuggees, port=0) == []
    (early,) = await found(file, debuggees)
    assert (early.host, early.port, early.pid, early.user, early.driver) == (
        *("127.0.0.1", PORT, PID, RUN),
        True,
    )
    driver, worker, unknown = await found(file, debuggees, dashboard=DASHBOARD)
    assert (driver.worker_id, driver.host, driver.port) == (early.worker_id, early.host, PORT)
    assert (driver.rays_id, driver.job_id, driver.node_ip) == ("d1", "01000000", "10.0.0.7")
    assert worker == replace(WORKER, user=RUN)
    assert unknown == UNKNOWN
    await debuggees.debuggees()
    assert joined == [(DASHBOARD, "rays", RUN)]
    assert [task.job_id for task in await debuggees.waiting()] == ["01000000"]


async def test_a_ray_that_it_left_is_left(tmp_path: Path, joined: list[tuple[Any, ...]]) -> None:
    file = tmp_path / "told.json"
    debuggees = ProgramDebuggees(file, "secret", RUN)
    for dashboard in (DASHBOARD, "", DASHBOARD):
        assert len(await found(file, debuggees, dashboard=dashboard)) == (3 if dashboard else 1)
    assert len(joined) == 2
    assert await debuggees.submission("01000000") == ""


async def test_the_driver_is_there_where_its_ray_does_not_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def asked(*arguments: object) -> Cluster:
        raise NotRunning("nothing answers", hint="wait")

    monkeypatch.setattr(ClusterDebuggees, "asked", asked)
    file = tmp_path / "told.json"
    (driver,) = await found(file, ProgramDebuggees(file, "secret", RUN), dashboard=DASHBOARD)
    assert driver.driver
