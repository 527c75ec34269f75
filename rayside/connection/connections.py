"""Connections to an existing Ray cluster: at an address, over SSH, through a Kubernetes context.

Each lists its steps. If this machine reaches Ray's nodes, the relay is a local process; if it reaches the
head alone, the relay is an actor there, with two port forwards to the head.
"""

from __future__ import annotations

import shutil
import sys
from abc import abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from urllib.parse import urlsplit

from rayside.connection import heads
from rayside.connection.heads import Namespace, head_selector, require_forwarding, to_pod
from rayside.connection.instance import Instance
from rayside.ray import authentication
from rayside.reach.editor_connection import Speaks
from rayside.reach.programs import Kubectl, Program, Ssh
from rayside.reach.supervisor import forwarded
from rayside.relay.config import Masking
from rayside.settings import Settings
from rayside.steps.existing_ray import ExistingRay
from rayside.steps.head_forward import HeadForward
from rayside.steps.head_relay import HeadRelay
from rayside.steps.preflight import Preflight
from rayside.steps.relay_process import LocalRelay
from rayside.steps.state_folder import StateFolder
from rayside.steps.step import PortStep, Step
from rayside.system import marks
from rayside.system.shell import Shell


@dataclass(frozen=True)
class Connection:
    """Connection to a Ray cluster whose nodes this machine reaches.

    Attributes:
        ground: names of steps before the state folder, besides the preflight.
        programs: the folder with the workspace's `python` and `ray`.
    """

    shell: Shell
    settings: Settings
    instance: Instance
    ground: tuple[str, ...] = ()
    programs: Path | None = None

    # Names of the local ports that it listens on.
    opens: tuple[str, ...] = ("relay",)

    def steps(self) -> list[Step]:
        """Returns the steps, in the order for display."""
        # The preflight is first: a connection that can't work leaves no files.
        return [self.preflight, self.state_folder, *self.forward_steps, self.head, *self.relay_steps]

    @property
    def notice(self) -> str:
        """Returns one paragraph for people on what the connection adds to the cluster."""
        return (
            f"The debug relay runs on this machine, and connects to the debuggers in the workers of "
            f"{self.instance.place}; nothing is put there. {_A_JOB}"
        )

    @property
    def state_folder(self) -> StateFolder:
        return StateFolder(self.instance, needs=(*self.ground, "preflight"))

    @property
    def forward_steps(self) -> list[Step]:
        """Returns the steps of port forwards to the dashboard; none if this machine reaches it directly."""
        return []

    @cached_property
    def preflight(self) -> Preflight:
        return Preflight(lambda: nullcontext(self.instance.address), *self.tokens, self.instance.place)

    @property
    def tokens(self) -> tuple[str, Path]:
        """Returns the user's token file, and the token file that an earlier command wrote."""
        return self.settings.token_file, self.instance.token_file

    @cached_property
    def head(self) -> ExistingRay:
        return self._head("preflight", "state-folder")

    def _head(self, *needs: str) -> ExistingRay:
        there = ExistingRay(self.instance, self.preflight, needs=needs)
        return there if self.programs is None else replace(there, programs=self.programs)

    @property
    def relay_steps(self) -> list[Step]:
        return [self.relay]

    @property
    def relay(self) -> PortStep:
        """Returns the step that provides the relay's local port."""
        python, masked = Path(sys.executable), self.masking
        return LocalRelay(self.shell, self.instance, self.head, masked, shared_files=False, python=python)

    @property
    def masking(self) -> Masking:
        return Masking.of(self.settings)

    def present(self) -> bool:
        """Returns whether a process of the connection runs on this machine."""
        return self.relay.present()


@dataclass(frozen=True)
class ByHead(Connection):
    """Base class of connections to a Ray cluster whose head alone is reachable from this machine."""

    opens: tuple[str, ...] = ("dashboard", "relay")

    @property
    def notice(self) -> str:
        return (
            f"A short job begins the debug relay on the head of {self.instance.place}, as a detached actor "
            "that takes no processor; the job's code is uploaded to that Ray, and both go with the "
            f"connection. Two ports of this machine lead there by {self.transport}. {_A_JOB}"
        )

    @abstractmethod
    def program(self, port_name: str) -> Program:
        """Returns the program that carries the port forward of that name."""

    @property
    @abstractmethod
    def transport(self) -> str:
        """Returns the transport of the forwards, for people."""

    def require_forwarding(self) -> None:
        """Raises if a permission for port forwards is missing."""

    def forward(
        self, name: str, port: int, remote: Callable[[], int], speaks: Speaks, mark: str, needs: str
    ) -> HeadForward:
        """Returns the step of the forward `name`, from the local `port` to the head's port `remote`."""
        return HeadForward(
            *(self.shell, self.instance, name, port, speaks, remote, self.program(name)),
            transport=self.transport,
            mark=mark,
            needs=(needs,),
            require_rights=self.require_forwarding,
        )

    @property
    def forward_steps(self) -> list[Step]:
        return [self.dashboard]

    @property
    def relay_steps(self) -> list[Step]:
        return [self.relay_actor, self.relay]

    def present(self) -> bool:
        return self.dashboard.present() or super().present()

    @cached_property
    def preflight(self) -> Preflight:
        return Preflight(
            self.passage,
            *self.tokens,
            self.instance.place,
            relay_is_here=False,
            offered=self.offered_token,
            require_rights=self.require_debuggable,
        )

    def offered_token(self) -> str | None:
        """Returns Ray's token if the head's environment provides it, as Kubernetes does; else None."""
        return None

    def require_debuggable(self) -> None:
        """Raises if the cluster is known, without a request to Ray, not to be debuggable."""

    @contextmanager
    def passage(self) -> Iterator[str]:
        """Yields an address of the dashboard: the existing forward, else a temporary one.

        Raises as `forwarded`.
        """
        if self.dashboard.answers():
            yield self.instance.dashboard
            return
        with forwarded(self.program("dashboard"), self.dashboard_port, at_once=True) as port:
            yield f"http://127.0.0.1:{port}"

    @property
    def dashboard_port(self) -> int:
        port = urlsplit(self.instance.address).port
        assert port, "the settings have one"
        return port

    @cached_property
    def head(self) -> ExistingRay:
        return self._head("preflight", "state-folder", "dashboard")

    @cached_property
    def relay_actor(self) -> HeadRelay:
        return HeadRelay(self.instance, self.head, self.passage, self.masking)

    @cached_property
    def dashboard(self) -> HeadForward:
        port = self.instance.ports.dashboard
        return self.forward(
            "dashboard", port, lambda: self.dashboard_port, "http", marks.FORWARDS, "state-folder"
        )

    @property
    def relay(self) -> HeadForward:
        port = self.instance.ports.relay
        return self.forward("relay", port, self.relay_actor.port, "dap", marks.RELAY, "relay-actor")


@dataclass(frozen=True)
class BySsh(ByHead):
    """Connection to a Ray cluster whose head is a host of the user's OpenSSH."""

    def program(self, port_name: str) -> Ssh:
        return Ssh(self.instance.ssh)

    @property
    def transport(self) -> str:
        return f"ssh {self.instance.ssh}"


@dataclass(frozen=True)
class ByContext(ByHead):
    """Connection to a RayCluster in a Kubernetes cluster of the user's kubeconfig, which `kube` reads."""

    kube: Namespace = field(kw_only=True)

    def offered_token(self) -> str | None:
        return self.kube.secret(self.instance.their_cluster, "auth_token")

    def require_debuggable(self) -> None:
        self.require_rights()
        if heads.takes_kubernetes_tokens(self.kube, self.instance.their_cluster):
            raise authentication.kubernetes_tokens(self.instance.place)

    def require_rights(self) -> None:
        """Raises if a permission or another precondition is missing."""
        self.require_forwarding()

    def require_forwarding(self) -> None:
        require_forwarding(self.kube)

    def selector(self, port_name: str) -> str:
        """Returns the label selector of the pod at the end of the port forward `port_name`."""
        return head_selector(self.instance.their_cluster)

    def program(self, port_name: str) -> Kubectl:
        # A user with a Kubernetes context has kubectl, too.
        kubectl = Path(shutil.which("kubectl") or "kubectl")
        return to_pod(self.kube, kubectl, self.selector(port_name))

    @property
    def transport(self) -> str:
        return f"the context {self.instance.context}"


def connection_to(
    instance: Instance,
    shell: Shell,
    settings: Settings,
    kube: Callable[[], Namespace],
    *,
    ground: tuple[str, ...] = (),
    programs: Path | None = None,
) -> Connection:
    """Returns the connection to an instance; `kube` is called for instances with a Kubernetes context."""
    known = shell, settings, instance, ground, programs
    if instance.ssh:
        return BySsh(*known)
    if instance.context:
        return ByContext(*known, kube=kube())
    return Connection(*known)


_A_JOB = (
    "A job uploads its working_dir and py_modules to that Ray; with --debug its runtime_env brings the "
    "debugger's packages, too."
)
