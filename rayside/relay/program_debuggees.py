"""Discovery of the debuggees of a `rayside run` program: its driver, then the workers of its Ray cluster."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from rayside.dap.paused_task import PausedTask
from rayside.errors import RaysideError
from rayside.relay.cluster import ClusterDebuggees
from rayside.relay.debuggee import Debuggee
from rayside.worker.handshake import proof
from rayside.worker.run_driver import HOST, RAYS_TOKEN


class ProgramDebuggees:
    """Discovery of the driver in the file from worker/run_driver.py, and of the workers of its jobs.

    Args:
        file: that file, in a private folder of this user.
        token: authenticates the relay to the driver; Ray's own token is in the same folder.
        user: the user name that the driver and its workers report. It is unique to this run, so that the
            jobs of other users on the same cluster are left alone (`users.sees`).
    """

    def __init__(self, file: Path, token: str, user: str) -> None:
        self._file, self._token, self._user = file, token, user
        self._cluster: ClusterDebuggees | None = None
        self._dashboard = ""
        self._jobs: set[str] = set()  # Ray's ids of the program's jobs

    async def debuggees(self) -> list[Debuggee]:
        told = self._told()
        if not told.get("port"):
            return []
        pid, port = int(told["pid"]), int(told["port"])
        driver = Debuggee(
            worker_id=f"driver {pid}",
            host=HOST,
            port=port,
            pid=pid,
            node_ip=HOST,
            user=self._user,
            task="driver",
            driver=True,
            prove=partial(proof, self._token.encode()),
        )
        try:
            await self._join(str(told["dashboard"]))
        except RaysideError:  # Ray is not up yet, or is no Ray: the driver is still there.
            return [driver]
        found = await self._cluster.debuggees() if self._cluster else []
        # Ray lists the driver as well, at the node's address, on which it does not listen.
        of_ray = next((each for each in found if each.driver and (each.pid, each.port) == (pid, port)), None)
        if of_ray is not None:
            driver = replace(driver, rays_id=of_ray.worker_id, node_ip=of_ray.node_ip, job_id=of_ray.job_id)
            self._jobs.add(of_ray.job_id)
        # A worker whose job Ray does not know yet is asked for its job and user.
        others = [each for each in found if each is not of_ray and each.job_id in ("", *self._jobs)]
        return [driver, *(replace(each, user=self._user if each.job_id else "") for each in others)]

    def _told(self) -> dict[str, Any]:
        try:
            return dict(json.loads(self._file.read_text()))
        except FileNotFoundError:
            return {}

    async def _join(self, dashboard: str) -> None:
        """Connects to the Ray cluster that the program has joined last."""
        if dashboard != self._dashboard:
            self._cluster = None
            if dashboard:
                token = self._file.with_name(RAYS_TOKEN).read_text()
                join = partial(ClusterDebuggees.asked, dashboard, token, self._user)
                self._cluster = await asyncio.to_thread(join)
            self._dashboard = dashboard

    async def waiting(self) -> list[PausedTask]:
        waiting = await self._cluster.waiting() if self._cluster else []
        return [task for task in waiting if task.job_id in self._jobs]

    async def submission(self, job_id: str) -> str:
        return ""  # it was not submitted

    def user(self, job_id: str) -> str:
        return self._cluster.user(job_id) if self._cluster else ""

    async def why_ended(self, debuggee: Debuggee) -> str:
        return await self._cluster.why_ended(debuggee) if self._cluster else ""

    def local_roots(self) -> Mapping[str, Sequence[str]]:
        return self._cluster.local_roots() if self._cluster else {}
