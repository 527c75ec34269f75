"""Ray head that runs as processes of this machine."""

from __future__ import annotations

import contextlib
import os
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from bootstrap.errors import RayDied
from bootstrap.instance import Instance
from bootstrap.settings import RAY_VERSION, ROOT, Settings
from bootstrap.steps.differences import difference
from rayside.errors import NotRunning, StrangerListens
from rayside.loopback import without_proxy
from rayside.ray.state import Dashboard
from rayside.settings import UNTOLD
from rayside.steps.ray_beside import FOREIGN, authentication
from rayside.steps.step import Condition, Report, Status, drifted, missing, pending, ready
from rayside.system import marks, processes
from rayside.system.free_port import require_port
from rayside.system.processes import PidFile
from rayside.system.shell import Shell

# `ray start` replaces 127.0.0.1 by the network card's address, but no other loopback address; a paused
# worker's debugger, which has no password, listens on the node's address. macOS has no other one, but there
# Ray's nodes are on 127.0.0.1 by default.
NODE_ADDRESS = "127.0.0.2" if sys.platform == "linux" else "127.0.0.1"
START = ROOT / "rayside" / "worker" / "start.py"
# Without these processes the head is incomplete, even if the dashboard responds.
_VITAL = ("gcs_server", "raylet")
# Ray's message if its node has not started within 30 s, which can't be configured (`Node.__init__` in
# python/ray/_private/node.py); a busy machine may need longer, the first time.
_GIVES_UP = "The current node timed out during startup"


@dataclass(frozen=True)
class RayHead:
    """The head of `ray start --head`, found again by its pid, its start time and its response."""

    shell: Shell
    settings: Settings
    instance: Instance
    programs: Path
    name: str = "ray"
    title: str = f"Ray {RAY_VERSION}"
    needs: tuple[str, ...] = ("ray-environment", "ray-token")

    @property
    def patience(self) -> float:
        return self.settings.ray_patience

    @property
    def url(self) -> str:
        return self.instance.dashboard

    @property
    def token(self) -> Path:
        return self.instance.token_file

    @property
    def asks_for_token(self) -> bool:
        return True

    @property
    def identity(self) -> dict[str, Any]:
        """Returns the identity of this head, which differs for one that was started later."""
        ray = self.pid_file.read() or {}
        return {name: ray.get(name) for name in ("pid", "created")}

    @property
    def log(self) -> Path:
        return self.instance.folder / "ray.log"

    @property
    def _temporary(self) -> Path:
        return self.instance.ray_folder / "tmp"

    @property
    def pid_file(self) -> PidFile:
        return PidFile(self.instance.folder / "ray.json")

    @property
    def spec(self) -> dict[str, Any]:
        """Returns its spec; a head that was started with another spec has drifted."""
        return {
            "programs": str(self.programs),
            "ray_cpus": self.settings.ray_cpus,
            "dashboard_port": self.instance.ports.dashboard,
            "ray_client_port": self.instance.ports.ray_client,
            # Its Python processes run this file: without it each writes an error.
            "start_file": str(START),
        }

    def dashboard(self) -> Dashboard:
        """Returns a client of its dashboard. Raises NotRunning without a token, so without our Ray."""
        try:
            token = self.token.read_text()
        except FileNotFoundError:
            raise NotRunning("no local Ray is up", hint="./invokew up starts one") from None
        return Dashboard(self.url, token)

    def running(self) -> bool:
        """Returns whether the recorded head still runs, in any state."""
        return self.pid_file.running()

    def present(self) -> bool:
        """Returns whether any process of this Ray runs: then it holds ports and memory."""
        return self.running() or bool(self.leftovers())

    def require(self) -> Dashboard:
        """Returns the dashboard of a complete Ray head. Raises NotRunning, RayDied."""
        record, status = self.pid_file.read(), self.check()
        if status.condition in (Condition.READY, Condition.DRIFTED):
            return self.dashboard()
        if record is None:
            raise NotRunning("no local Ray is up", hint="./invokew up starts one")
        if status.condition is Condition.PENDING:
            raise NotRunning(f"Ray is not ready: {status.detail}", hint="./invokew up waits for it")
        raise RayDied(f"Ray died: {status.detail}", hint="./invokew up starts it again")

    def check(self) -> Status:
        record = self.pid_file.read()
        if record is None:
            return missing("not running")
        pid = record["pid"]
        if not processes.alive(pid, record["created"]):
            last_words = self._last_words()
            return missing(f"its process {pid} has ended{last_words}", gave_up=_GIVES_UP in last_words)
        if record["spec"] != self.spec:
            return drifted(difference(record["spec"], self.spec))
        # When one of its processes ends, the head stops the rest within a second or two: pending until it
        # is gone or complete.
        try:
            dashboard = self.dashboard()
            version = dashboard.version()["ray_version"]
            nodes = dashboard.live_nodes()
        except StrangerListens:
            raise
        except NotRunning:
            return pending(f"process {pid} runs, its dashboard does not answer")
        absent = set(_VITAL) - set(processes.children(pid).values())
        if absent:
            return pending(f"process {pid} runs without its {' and '.join(sorted(absent))}")
        if nodes == 0:
            return pending("the dashboard answers, the node is not registered")
        return ready(f"{version} at {self.url}, {self.settings.ray_cpus} CPUs, process {pid}")

    def apply(self, report: Report) -> None:
        report("looking for leftovers")
        self._end(report)
        for setting in ("dashboard_port", "ray_client_port"):
            require_port(setting, self.spec[setting])
        with contextlib.suppress(FileNotFoundError):
            self.log.replace(self.log.with_suffix(".log.1"))
        self._temporary.mkdir(exist_ok=True)
        report("starting")
        pid = self.shell.spawn(self.command(), env=self.environment(), log=self.log)
        self.pid_file.write(pid, spec=self.spec)

    def undo(self, report: Report) -> None:
        self._end(report)

    def command(self) -> list[str]:
        """Returns a blocking command: one process watches the others, and none outlives it."""
        return [
            *[str(self.programs / "ray"), "start", "--head", "--block", "--disable-usage-stats"],
            *["--node-ip-address", NODE_ADDRESS, "--temp-dir", str(self.instance.ray_folder / "ray")],
            *["--dashboard-host", "127.0.0.1", "--dashboard-port", str(self.instance.ports.dashboard)],
            *["--ray-client-server-port", str(self.instance.ports.ray_client)],
            # 0 means any free port. Ray's default ports may belong to another Ray cluster on this machine.
            *["--port", "0", "--dashboard-agent-listen-port", "0"],
            *["--min-worker-port", "0", "--max-worker-port", "0"],
            *["--num-cpus", str(self.settings.ray_cpus)],
        ]

    def environment(self) -> dict[str, str]:
        """Returns the environment of Ray and of each `ray` command, with the path of the token file only."""
        return {
            **_inherited(self.programs),
            **authentication(self),
            "RAY_DEBUG": "1",
            "RAY_USAGE_STATS_ENABLED": "0",
            # Ray ends itself after its own timeouts for the start of its dashboard and agents, which are too
            # short for a busy machine. Here `ray_patience` is the timeout.
            "RAY_DASHBOARD_STARTUP_TIMEOUT_S": f"{self.patience:.0f}",
            "RAY_agent_register_timeout_ms": f"{1000 * self.patience:.0f}",
            # The debugger of a plain `breakpoint()` requires authentication, too.
            "RAYSIDE_START": str(START),
            # Ray's processes rename themselves, which would overwrite the mark in their environment
            # (https://github.com/dvarrazzo/py-setproctitle#environment-variables).
            "SPT_NOENV": "1",
            # Ray's dashboard leaves folders (pymp-...) in the temporary folder.
            "TMPDIR": str(self._temporary),
            marks.RAY: self.instance.mark,
        }

    def leftovers(self) -> list[psutil.Process]:
        """Returns all running processes of this Ray, recorded or not."""
        return processes.marked(marks.RAY, self.instance.mark)

    def _end(self, report: Report) -> None:
        if running := self.leftovers():
            report(f"ending {len(running)} processes")
            processes.end(self.leftovers, patience=3)
        self.pid_file.forget()

    def _last_words(self) -> str:
        with contextlib.suppress(OSError):
            lines = [line.strip() for line in self.log.read_text(errors="replace").splitlines()]
            # Ray's message for an ended process: its name, and `[exit code=N]`.
            errors = [line for line in lines if re.search(r"ERR|Error|Exception|\[exit code=", line)]
            if errors:
                return f"; its log says: {errors[-1]}"
        return ""


@dataclass(frozen=True)
class Leftovers:
    """No process of a dead head still runs."""

    head: RayHead
    name: str = "leftovers"
    title: str = "leftovers of Ray"
    needs: tuple[str, ...] = ()

    def check(self) -> Status:
        count = 0 if self.head.running() else len(self.head.leftovers())
        return missing(f"{count} processes of a Ray that died still run") if count else ready("none")

    def apply(self, report: Report) -> None:
        self.head.undo(report)


def _inherited(programs: Path) -> dict[str, str]:
    """Returns the environment that Ray's processes inherit, with these programs first on PATH."""
    # The workspace's mark is left out, too, if this runs in its terminal.
    unwanted = (*FOREIGN, *UNTOLD)
    return {
        **{
            name: value
            for name, value in os.environ.items()
            if name not in unwanted and not name.startswith("RAYSIDE_")
        },
        "PATH": f"{programs}{os.pathsep}{os.environ.get('PATH', os.defpath)}",
        **without_proxy(os.environ),
    }
