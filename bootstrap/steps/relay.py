"""The debug relay of a local Ray: a process that outlives the command, beside Ray's own."""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from bootstrap import cache
from bootstrap import shell as processes
from bootstrap.debug.exchange import ask
from bootstrap.errors import DebuggerGone
from bootstrap.relay import Config
from bootstrap.settings import ROOT, Settings
from bootstrap.shell import Shell
from bootstrap.sources.workspace_image import RELAY
from bootstrap.step import Report, Status, missing, pending, ready
from bootstrap.steps.local_ray import RayHead
from bootstrap.steps.machine import require_port
from bootstrap.steps.pid_file import PidFile
from bootstrap.steps.state_folder import write_private

# The process has it in its environment, so that it is found without a record, and no other is ended.
MARK = "RAYSIDE_RELAY"


@dataclass(frozen=True)
class LocalRelay:
    """`python -m bootstrap.relay` on Ray's own Python: found again by its pid and its answer."""

    shell: Shell
    settings: Settings
    head: RayHead
    name: str = "relay"
    title: str = "debug relay"
    needs: tuple[str, ...] = ("ray",)
    patience: float = 30.0

    @property
    def url(self) -> str:
        return f"tcp://127.0.0.1:{self.settings.relay_port}"

    @property
    def log(self) -> Path:
        return self.settings.state_folder / "relay.log"

    @property
    def _config_file(self) -> Path:
        return self.settings.state_folder / "relay.json"

    @property
    def _pid_file(self) -> PidFile:
        return PidFile(self.settings.state_folder / "relay-process.json")

    @property
    def _config(self) -> Config:
        return Config(
            "127.0.0.1", self.settings.relay_port, self.head.url, self.head.token, shared_files=True
        )

    @property
    def _spec(self) -> dict[str, Any]:
        """What it was started for; one that was started for something else is replaced."""
        ray = PidFile(self.settings.state_folder / "ray.json").read() or {}
        return {
            "config": self._config.document(),
            "code": cache.key(*((ROOT / file).read_text() for file in RELAY)),
            "ray": {name: ray.get(name) for name in ("pid", "created")},
        }

    def present(self) -> bool:
        """Whether it runs: then it holds its port."""
        return bool(self.leftovers())

    def check(self) -> Status:
        record = self._pid_file.read()
        if record is None:
            return missing("not running")
        pid = record["pid"]
        if not processes.alive(pid, record["created"]):
            return missing(f"its process {pid} has ended{self._last_words()}")
        if record["spec"] != self._spec:
            return missing(f"process {pid} was started for another Ray, or by another version")
        try:
            ask(self.settings.relay_port, "initialize", {"adapterID": "rayside"})
        except DebuggerGone as error:
            return pending(f"port {self.settings.relay_port} {error.message}")
        return ready(f"{self.url}, process {pid}")

    def apply(self, report: Report) -> None:
        self._end(report)
        require_port("relay_port", self.settings.relay_port)
        with contextlib.suppress(FileNotFoundError):
            self.log.replace(self.log.with_suffix(".log.1"))
        spec = self._spec
        write_private(self._config_file, self._config.document())
        report("starting")
        pid = self.shell.spawn(self.command(), env=self.environment(), log=self.log, cwd=ROOT)
        self._pid_file.write(pid, spec=spec)

    def undo(self, report: Report) -> None:
        self._end(report)

    def command(self) -> list[str]:
        return [str(self.head.programs / "python"), "-m", "bootstrap.relay", str(self._config_file)]

    def environment(self) -> dict[str, str]:
        unwanted = ("RAY_AUTH_TOKEN", "VIRTUAL_ENV", "PYTHONHOME")
        return {
            **{name: value for name, value in os.environ.items() if name not in unwanted},
            "PYTHONPATH": str(ROOT),
            MARK: str(self.settings.state_folder),
        }

    def leftovers(self) -> list[psutil.Process]:
        """Every relay of this Ray that runs, whether it is recorded or not."""
        return processes.marked(MARK, str(self.settings.state_folder))

    def _end(self, report: Report) -> None:
        if found := self.leftovers():
            report(f"ending process {', '.join(str(process.pid) for process in found)}")
            # Long enough to leave in good order what is in the middle of an evaluation.
            processes.end(self.leftovers, patience=12)
        self._pid_file.forget()

    def _last_words(self) -> str:
        with contextlib.suppress(OSError):
            lines = self.log.read_text(errors="replace").strip().splitlines()
            if lines:
                return f"; its log ends: {lines[-1]}"
        return ""
