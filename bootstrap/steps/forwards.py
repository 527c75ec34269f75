"""Leads ports of this machine into the cluster, by one process that outlives the command."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import psutil
import requests

from bootstrap.kube.api import Kube
from bootstrap.kube.heads import require_forwarding, to_pod
from bootstrap.own_folder import make_own
from bootstrap.shell import Shell
from bootstrap.step import Report, Status, missing, pending, ready
from bootstrap.steps import marks
from bootstrap.steps.background import Background
from bootstrap.steps.machine_checks import require_port
from rayside.dap.one_request import no_answer
from rayside.errors import ClusterUnreachable, NotRunning
from rayside.private_file import write_private
from rayside.reach import supervisor
from rayside.reach.editor_connection import Speaks
from rayside.reach.programs import Kubectl
from rayside.reach.supervisor import Forward, document

# The pod may take so many seconds to answer: some milliseconds, or a second where kubectl is started for it.
_ANSWER = 5.0


@dataclass(frozen=True)
class Forwards:
    """`ports` of 127.0.0.1 lead to the pod with the labels `selector`, whichever pod that is, by `kubectl`.

    The setting `x_port` has the local port of the forward `x`.
    """

    shell: Shell
    kube: Kube
    folder: Path
    ports: tuple[Forward, ...]
    selector: str
    kubectl: Path
    name: str = "forwards"
    title: str = "port forwards"
    needs: tuple[str, ...] = ("ray-cluster",)
    patience: float = 60.0

    @property
    def log(self) -> Path:
        return self.process.log

    @property
    def process(self) -> Background:
        """Returns the supervisor's process in the background."""
        return Background(self.shell, self.folder, "forwards", marks.FORWARDS, patience=2)

    @property
    def config_file(self) -> Path:
        """Returns the file that the supervisor reads: rayside/reach/supervisor.py."""
        return self.folder / "forwards.json"

    @property
    def config_text(self) -> str:
        """Returns what that file has to say."""
        return document(self.program, self.ports)

    @property
    def program(self) -> Kubectl:
        return to_pod(self.kube, self.kubectl, self.selector)

    def check(self) -> Status:
        if absent := self.process.absent():
            return missing(absent)
        if self._written() != self.config_text:
            return missing(f"process {self.process.pid} forwards something else than wanted")
        for port in self.ports:
            if reason := UNANSWERED[port.speaks](port.local, port.address):
                self._require_rights()
                return pending(f"port {port.local} ({port.name}) {reason}")
        listed = ", ".join(f"{port.name} at {port.url}" for port in self.ports)
        return ready(f"{listed}, process {self.process.pid}")

    def _require_rights(self) -> None:
        """Raises Forbidden: without these rights waiting is in vain."""
        with contextlib.suppress(ClusterUnreachable):
            require_forwarding(self.kube)

    def apply(self, report: Report) -> None:
        self.program.require()
        self.process.end(report)
        for port in self.ports:
            require_port(f"{port.name}_port", port.local)
        make_own(self.folder)
        write_private(self.config_file, self.config_text)
        report("starting")
        self.process.start(self.command())

    def undo(self, report: Report) -> None:
        self.process.end(report)
        for file in (self.config_file, self.log, self.process.earlier_log):
            file.unlink(missing_ok=True)

    def retarget(self) -> None:
        """Makes the running process lead to this `kube` and `selector`, its ports kept.

        Raises NotRunning.
        """
        pid = self.process.pid
        if pid is None or self.process.absent():
            raise NotRunning("no ports are forwarded", hint="./invokew up starts the forwards")
        write_private(self.config_file, self.config_text)
        os.kill(pid, signal.SIGHUP)

    def command(self) -> list[str]:
        return [sys.executable, "-m", supervisor.__name__, str(self.config_file)]

    def leftovers(self) -> list[psutil.Process]:
        """Returns every process of these forwards that runs, whether it is recorded or not."""
        return self.process.leftovers()

    def _written(self) -> str:
        try:
            return self.config_file.read_text()
        except FileNotFoundError:
            return ""


def _no_dap(port: int, _: str = "") -> str:
    """Returns why a DAP server gives no answer through this port; empty where it gives one."""
    return no_answer(port, timeout=_ANSWER)


def _no_http(port: int, address: str = "127.0.0.1", scheme: str = "http") -> str:
    """Returns why HTTP through this port gets no answer; empty where it gets any, an error's code too."""
    # Who listens on all addresses is asked at this machine's own.
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(address, address)
    with requests.Session() as session:
        session.trust_env = False  # A proxy must not be asked for our own machine.
        try:
            url = f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}/"
            session.get(url, timeout=_ANSWER, allow_redirects=False, stream=True)
        except requests.exceptions.SSLError as error:
            # Whose certificate it is matters to browsers.
            return "" if "CERTIFICATE_VERIFY_FAILED" in str(error) else "speaks no TLS"
        except requests.Timeout:
            return f"leads to nothing that answers within {_ANSWER:g} s"
        except requests.ConnectionError:
            return "is not open yet, or nothing listens behind it"
        except requests.RequestException as error:
            return f"gets no HTTP answer: {error}"
    return ""


# By protocol: returns why a port gets no answer; empty where it gets one.
UNANSWERED: dict[Speaks, Callable[..., str]] = {
    "http": _no_http,
    "https": partial(_no_http, scheme="https"),
    "dap": _no_dap,
}
