"""Leads a port of this machine to one of the head of a Ray that others made, by a process that goes on."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from bootstrap.instance import Instance
from bootstrap.shell import Shell
from bootstrap.step import Report, Status, missing, pending, ready
from bootstrap.steps.background import Background
from bootstrap.steps.forwards import UNANSWERED
from bootstrap.steps.machine_checks import require_port
from rayside.private_file import write_private
from rayside.reach import supervisor
from rayside.reach.editor_connection import Speaks
from rayside.reach.programs import Program
from rayside.reach.supervisor import Forward, document


@dataclass(frozen=True)
class HeadForward:
    """The port `x_port` of this machine leads to a port of the head, `x` being `port_name`.

    Attributes:
        remote: returns the head's port; it is asked when that is known. Raises NotRunning before.
        program: leads there.
        way: how it leads there, for people.
        mark: each forward of a cluster has another, so that none is taken for the other.
        require_rights: raises where waiting would be in vain.
    """

    shell: Shell
    instance: Instance
    port_name: str
    local: int
    speaks: Speaks
    remote: Callable[[], int]
    program: Program
    way: str
    mark: str
    needs: tuple[str, ...]
    name: str
    require_rights: Callable[[], None] = lambda: None
    patience: float = 60.0

    @property
    def title(self) -> str:
        return f"{self.port_name} by {self.way}"

    @property
    def process(self) -> Background:
        """Returns the process in the background."""
        return Background(
            self.shell,
            self.instance.folder,
            f"forward-{self.port_name}",
            self.mark,
            patience=3,
            without=("RAY_AUTH_TOKEN",),
        )

    @property
    def config_file(self) -> Path:
        return self.instance.folder / f"forward-{self.port_name}.json"

    @property
    def url(self) -> str:
        """Returns the address of the local port, for people."""
        return f"{'http' if self.speaks == 'http' else 'tcp'}://127.0.0.1:{self.local}"

    def present(self) -> bool:
        """Returns whether it runs: then it holds its port."""
        return bool(self.process.leftovers())

    def answers(self) -> bool:
        """Returns whether it runs as these settings have it, and something answers behind it."""
        return not self.process.absent({"config": self._config()}) and not UNANSWERED[self.speaks](self.local)

    def check(self) -> Status:
        if absent := self.process.absent({"config": self._config()}):
            return missing(absent)
        if reason := UNANSWERED[self.speaks](self.local):
            self.require_rights()
            return pending(f"port {self.local} ({self.port_name}) {reason}{self.process.last_words()}")
        return ready(f"port {self.local}, process {self.process.pid}")

    def apply(self, report: Report) -> None:
        self.program.require()
        self.process.end(report)
        require_port(f"{self.port_name}_port", self.local)
        config = self._config()
        write_private(self.config_file, config)
        report("connecting")
        command = [sys.executable, "-m", supervisor.__name__, str(self.config_file)]
        self.process.start(command, spec={"config": config})

    def undo(self, report: Report) -> None:
        self.process.end(report)
        for file in (self.config_file, self.process.log, self.process.earlier_log):
            file.unlink(missing_ok=True)

    def _config(self) -> str:
        """Returns the text of the file that the supervisor reads."""
        forward = Forward(self.port_name, self.local, self.remote(), self.speaks, own_clients=True)
        return document(self.program, [forward])
