"""Port forwards as processes that outlive the command."""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import psutil
import requests

from rayside.connection.instance import Instance
from rayside.dap.one_request import no_answer
from rayside.own_folder import make_own
from rayside.private_file import write_private
from rayside.reach import supervisor
from rayside.reach.editor_connection import Speaks
from rayside.reach.programs import Program
from rayside.reach.supervisor import Forward, document
from rayside.steps.step import Report, Status, missing, pending, ready
from rayside.system.background import Background
from rayside.system.free_port import require_port
from rayside.system.shell import Shell

# Timeout in seconds: a pod answers within milliseconds, or a second where kubectl is started for it.
_ANSWER = 5.0


class Supervised(ABC):
    """Base class of steps whose process, rayside/reach/supervisor.py, keeps port forwards open.

    The setting `x_port` is the local port of the forward `x`.
    """

    @property
    @abstractmethod
    def program(self) -> Program:
        """Returns the program that forwards."""

    @property
    @abstractmethod
    def forwards(self) -> tuple[Forward, ...]:
        """Returns the forwards. Raises NotRunning while their target is unknown."""

    @property
    @abstractmethod
    def process(self) -> Background:
        """Returns the supervisor's process in the background."""

    @abstractmethod
    def refuse(self) -> None:
        """Raises if waiting for an answer is useless, as for a missing permission."""

    @property
    def log(self) -> Path:
        return self.process.log

    @property
    def config_file(self) -> Path:
        """Returns the file that the supervisor reads."""
        return self.process.folder / f"{self.process.name}.json"

    @property
    def config_text(self) -> str:
        """Returns the content that the file should have."""
        return document(self.program, self.forwards)

    def check(self) -> Status:
        if absent := self._absent():
            return missing(absent)
        for port in self.forwards:
            if reason := UNANSWERED[port.speaks](port.local, port.address):
                self.refuse()
                return pending(f"port {port.local} ({port.name}) {reason}")
        listed = ", ".join(f"{port.name} at {port.url}" for port in self.forwards)
        return ready(f"{listed}, process {self.process.pid}")

    def apply(self, report: Report) -> None:
        self.program.require()
        self.process.end(report)
        for port in self.forwards:
            require_port(f"{port.name}_port", port.local)
        make_own(self.process.folder)
        write_private(self.config_file, self.config_text)
        report("starting")
        self.process.start(self.command())

    def undo(self, report: Report) -> None:
        self.process.end(report)
        for file in (self.config_file, self.log, self.process.earlier_log):
            file.unlink(missing_ok=True)

    def command(self) -> list[str]:
        return [sys.executable, "-m", supervisor.__name__, str(self.config_file)]

    def leftovers(self) -> list[psutil.Process]:
        """Returns every running process of these forwards, recorded or not."""
        return self.process.leftovers()

    def _absent(self) -> str:
        """Returns why no process forwards the ports as configured; empty if one does."""
        if absent := self.process.absent():
            return absent
        try:
            is_as_wanted = self.config_file.read_text() == self.config_text
        except FileNotFoundError:
            is_as_wanted = False
        return "" if is_as_wanted else f"process {self.process.pid} forwards something else than wanted"


@dataclass(frozen=True)
class HeadForward(Supervised):
    """Port forward from the port `NAME_port` of this machine to a port of an existing cluster's head.

    Attributes:
        remote: returns the head's port; raises NotRunning while that is unknown.
        forwarder: the forwarding program; `transport` names it for people.
        mark: a mark that no other forward of the cluster has, so that they aren't confused.
        require_rights: raises if waiting is useless.
    """

    shell: Shell
    instance: Instance
    name: str
    local: int
    speaks: Speaks
    remote: Callable[[], int]
    forwarder: Program
    transport: str
    mark: str
    needs: tuple[str, ...]
    require_rights: Callable[[], None] = lambda: None
    patience: float = 60.0

    @property
    def title(self) -> str:
        return f"{self.name} by {self.transport}"

    @property
    def url(self) -> str:
        """Returns the address of the local port, for people."""
        return f"{'http' if self.speaks == 'http' else 'tcp'}://127.0.0.1:{self.local}"

    @property
    def forwards(self) -> tuple[Forward, ...]:
        return (Forward(self.name, self.local, self.remote(), self.speaks, own_clients=True),)

    @property
    def process(self) -> Background:
        return Background(
            *(self.shell, self.instance.folder, f"forward-{self.name}", self.mark),
            patience=3,
            without=("RAY_AUTH_TOKEN",),
        )

    @property
    def program(self) -> Program:
        return self.forwarder

    def refuse(self) -> None:
        self.require_rights()

    def present(self) -> bool:
        """Returns whether it runs, and so holds its port."""
        return bool(self.leftovers())

    def answers(self) -> bool:
        """Returns whether it runs with these settings, and its target answers."""
        return not self._absent() and not UNANSWERED[self.speaks](self.local)


def _no_dap(port: int, _: str = "") -> str:
    """Returns why no DAP server answers through this port; empty if one does."""
    return no_answer(port, timeout=_ANSWER)


def _no_http(port: int, address: str = "127.0.0.1", scheme: str = "http") -> str:
    """Returns why HTTP through this port gets no answer; empty for any answer, including an error status."""
    # A listener on all addresses is checked on loopback.
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(address, address)
    with requests.Session() as session:
        session.trust_env = False  # No proxy for this machine's own port.
        try:
            url = f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}/"
            session.get(url, timeout=_ANSWER, allow_redirects=False, stream=True)
        except requests.exceptions.SSLError as error:
            # An untrusted certificate is an answer: only browsers check it.
            return "" if "CERTIFICATE_VERIFY_FAILED" in str(error) else "speaks no TLS"
        except requests.Timeout:
            return f"leads to nothing that answers within {_ANSWER:g} s"
        except requests.ConnectionError:
            return "is not open yet, or nothing listens behind it"
        except requests.RequestException as error:
            return f"gets no HTTP answer: {error}"
    return ""


# By protocol: returns why a port gets no answer; empty if it gets one.
UNANSWERED: dict[Speaks, Callable[..., str]] = {
    "http": _no_http,
    "https": partial(_no_http, scheme="https"),
    "dap": _no_dap,
}
