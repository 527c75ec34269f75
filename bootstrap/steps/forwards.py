"""Port forwards from this machine to a RayCluster that Rayside made."""

from __future__ import annotations

import contextlib
import os
import signal
from dataclasses import dataclass
from pathlib import Path

from bootstrap.kube.api import Kube
from rayside.connection.heads import require_forwarding, to_pod
from rayside.errors import ClusterUnreachable, NotRunning
from rayside.private_file import write_private
from rayside.reach.programs import Kubectl
from rayside.reach.supervisor import Forward
from rayside.steps.head_forward import Supervised
from rayside.system import marks
from rayside.system.background import Background
from rayside.system.shell import Shell


@dataclass(frozen=True)
class Forwards(Supervised):
    """`ports` of 127.0.0.1 are forwarded to the current pod with the labels `selector`."""

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
    def forwards(self) -> tuple[Forward, ...]:
        return self.ports

    @property
    def process(self) -> Background:
        return Background(self.shell, self.folder, "forwards", marks.FORWARDS, patience=2)

    @property
    def program(self) -> Kubectl:
        return to_pod(self.kube, self.kubectl, self.selector)

    def refuse(self) -> None:
        """Raises Forbidden: without these permissions waiting is in vain."""
        with contextlib.suppress(ClusterUnreachable):
            require_forwarding(self.kube)

    def retarget(self) -> None:
        """Makes the running process forward to this `kube` and `selector`, with the same ports.

        Raises NotRunning.
        """
        pid = self.process.pid
        if pid is None or self.process.absent():
            raise NotRunning("no ports are forwarded", hint="./invokew up starts the forwards")
        write_private(self.config_file, self.config_text)
        os.kill(pid, signal.SIGHUP)
