"""Tests which jobs a coding agent sees."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from rayside.connection.access import RecordedAccess
from rayside.connection.instance import Instance, Ports
from rayside.ray.records import Job
from rayside.verbs import relay_requests
from rayside.verbs.agent_tools import Tools
from tests.patience import PATIENCE

JOBS = [
    Job(
        f"job-{n}", f"0{n}000000", "RUNNING", "python a.py --url http://me:hidden@host", "", None, 0.0, {}, {}
    )
    for n in (1, 2)
]


class Access(RecordedAccess):
    def require(self) -> Any:
        return self

    def jobs(self) -> list[Job]:
        return JOBS


@pytest.mark.parametrize("named", ["job-1", "01000000"])
async def test_an_agent_of_one_job_sees_no_other(
    named: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str | None] = []
    monkeypatch.setattr(relay_requests, "stacks", lambda access, console, *, job: seen.append(job))
    access = Access(Instance("rayside", "cluster", "", "", tmp_path, Ports(0, 0, 0, 0)))
    tools = Tools(lambda: access, job=named, acts=False)
    (job,) = json.loads(await tools.jobs())
    assert job["job"] == "job-1" and "hidden" not in job["entrypoint"]
    await tools.stacks("job-2")
    await tools.stacks()
    assert seen == [named, named]


async def test_a_wait_that_is_no_number_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Tools, "_is_any_paused", lambda tools: False)
    monkeypatch.setattr(Tools, "_failed", lambda tools: [])
    access = Access(Instance("rayside", "cluster", "", "", tmp_path, Ports(0, 0, 0, 0)))
    tools = Tools(lambda: access, job=None, acts=False)
    answer = await asyncio.wait_for(tools.stopped(float("nan")), PATIENCE)
    assert json.loads(answer)["stopped"] == []
