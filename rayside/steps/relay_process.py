"""Debug relay as a process of this machine, which outlives the command."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from rayside import debugger_files
from rayside.connection.instance import Instance
from rayside.dap.one_request import no_answer
from rayside.private_file import write_private
from rayside.relay.config import UNSET, Config, Masking
from rayside.steps.ray_beside import RayBeside
from rayside.steps.step import Report, Status, missing, pending, ready
from rayside.system import marks
from rayside.system.background import Background
from rayside.system.free_port import require_port
from rayside.system.shell import Shell


@dataclass(frozen=True)
class LocalRelay:
    """Process `python -m rayside.relay`, identified by its pid and its answer.

    `shared_files`: whether editors here see the workers' own files; `python`: the interpreter that runs it
    (default: Ray's own).
    """

    shell: Shell
    instance: Instance
    head: RayBeside
    masking: Masking = UNSET
    shared_files: bool = True
    python: Path | None = None
    name: str = "relay"
    title: str = "debug relay"
    needs: tuple[str, ...] = ("ray",)
    patience: float = 30.0

    @property
    def url(self) -> str:
        return f"tcp://127.0.0.1:{self.instance.ports.relay}"

    @property
    def log(self) -> Path:
        return self.process.log

    @property
    def process(self) -> Background:
        """Returns the relay's process in the background."""
        # This timeout lets it detach cleanly from a task that is evaluating an expression.
        folder, unwanted = self.instance.folder, ("RAY_AUTH_TOKEN", "VIRTUAL_ENV", "PYTHONHOME")
        return Background(self.shell, folder, "relay", marks.RELAY, patience=12, without=unwanted)

    @property
    def _config_file(self) -> Path:
        return self.instance.folder / "relay.json"

    @property
    def _config(self) -> Config:
        return Config(
            host="127.0.0.1",
            port=self.instance.ports.relay,
            dashboard=self.head.url,
            token_file=self.instance.token_file,
            shared_files=self.shared_files,
            masking=self.masking,
            rays_token=self.head.asks_for_token,
            user=self.instance.user,
        )

    @property
    def spec(self) -> dict[str, Any]:
        """Returns the relay's specification; a running relay with another one is replaced."""
        return {
            "config": self._config.document(),
            "code": debugger_files.code(),
            "ray": self.head.identity,
        }

    def present(self) -> bool:
        """Returns whether it runs, and so holds its port."""
        return bool(self.leftovers())

    def check(self) -> Status:
        if absent := self.process.absent(self.spec):
            return missing(absent)
        if reason := no_answer(self.instance.ports.relay):
            return pending(f"port {self.instance.ports.relay} {reason}")
        return ready(f"{self.url}, process {self.process.pid}")

    def apply(self, report: Report) -> None:
        self.process.end(report)
        require_port("relay_port", self.instance.ports.relay)
        spec = self.spec
        write_private(self._config_file, self._config.document())
        report("starting")
        self.process.start(self.command(), spec=spec)

    def undo(self, report: Report) -> None:
        self.process.end(report)

    def command(self) -> list[str]:
        return [
            str(self.python or self.head.programs / "python"),
            "-m",
            "rayside.relay",
            "--config",
            str(self._config_file),
        ]

    def leftovers(self) -> list[psutil.Process]:
        """Returns every running relay of this cluster, recorded or not."""
        return self.process.leftovers()
