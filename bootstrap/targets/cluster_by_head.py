"""Target `cluster` where only the head is reached: the relay is an actor there, and two ports lead to it."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from urllib.parse import urlsplit

from bootstrap import machine
from bootstrap.kube import heads
from bootstrap.kube.api import Kube, head_selector
from bootstrap.kube.heads import require_forwarding, to_pod
from bootstrap.step import Step
from bootstrap.steps import marks
from bootstrap.steps.forwards import HeadForward
from bootstrap.steps.head_relay import HeadRelay
from bootstrap.steps.preflight import Preflight
from bootstrap.steps.ray_cluster import secret
from bootstrap.steps.their_ray import TheirRay
from bootstrap.targets.existing_cluster import Cluster
from rayside.ray import authentication
from rayside.reach.editor_connection import Speaks
from rayside.reach.programs import Kubectl, Program, Ssh
from rayside.reach.supervisor import forwarded


@dataclass(frozen=True)
class ClusterByHead(Cluster):
    """A Ray of whose nodes this machine reaches the head alone."""

    opens: tuple[str, ...] = ("dashboard", "relay", "workspace")

    @abstractmethod
    def program(self, port_name: str) -> Program:
        """Returns the program that leads to where the forward of that name leads."""

    @property
    @abstractmethod
    def by(self) -> str:
        """Returns by what the forwards lead there, for people."""

    def require_forwarding(self) -> None:
        """Raises where forwards take a right that is lacking."""

    def forward(
        self, name: str, port: int, remote: Callable[[], int], speaks: Speaks, mark: str, needs: str
    ) -> HeadForward:
        """Returns the step that leads `port` of this machine, the forward `name`, to the head's `remote`."""
        return HeadForward(
            *(self.shell, self.instance, name, port, speaks, remote, self.program(name)),
            way=self.by,
            mark=mark,
            needs=(needs,),
            name=name,
            require_rights=self.require_forwarding,
        )

    @property
    def way(self) -> list[Step]:
        return [self.dashboard]

    @property
    def relay_steps(self) -> list[Step]:
        return [self.relay_actor, self.relay]

    def present(self) -> bool:
        return self.dashboard.present() or super().present()

    @cached_property
    def preflight(self) -> Preflight:
        return Preflight(self.passage, *self.tokens, self.instance.place, relay_is_here=False)

    @contextmanager
    def passage(self) -> Iterator[str]:
        """Yields an address of the dashboard: the forward that is there, else one for the meantime.

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
    def head(self) -> TheirRay:
        needs = ("preflight", "state-folder", "dashboard", "ray-environment")
        return TheirRay(self.instance, self.environment.programs, self.preflight, needs=needs)

    @cached_property
    def relay_actor(self) -> HeadRelay:
        masked = self.masking
        return HeadRelay(self.shell, self.instance, self.head, self.passage, masked)

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
class ClusterBySsh(ClusterByHead):
    """A Ray whose head is a host that the user's OpenSSH leads to."""

    def program(self, port_name: str) -> Ssh:
        return Ssh(self.instance.ssh)

    @property
    def by(self) -> str:
        return f"ssh {self.instance.ssh}"


@dataclass(frozen=True)
class ClusterByContext(ClusterByHead):
    """A RayCluster of a Kubernetes that the user's kubeconfig leads to."""

    @cached_property
    def kube(self) -> Kube:
        return Kube(Path(self.instance.their_kubeconfig), self.instance.context, self.instance.namespace)

    @cached_property
    def preflight(self) -> Preflight:
        cluster = self.instance.their_cluster
        return Preflight(
            self.passage,
            *self.tokens,
            self.instance.place,
            relay_is_here=False,
            offered=lambda: secret(self.kube, cluster, "auth_token"),
            require_rights=self.require_debuggable,
        )

    def require_debuggable(self) -> None:
        self.require_rights()
        if heads.takes_kubernetes_tokens(self.kube, self.instance.their_cluster):
            raise authentication.kubernetes_tokens(self.instance.place)

    def require_rights(self) -> None:
        """Raises where this takes rights that lack, or anything else that can be known at once."""
        require_forwarding(self.kube)

    def require_forwarding(self) -> None:
        require_forwarding(self.kube)

    def selector(self, port_name: str) -> str:
        """Returns the labels of the pod that the forward of that name leads to."""
        return head_selector(self.instance.their_cluster)

    @property
    def kubectl(self) -> Path:
        """Returns the user's own kubectl: whoever has a context has one."""
        return Path(machine.installed("kubectl") or "kubectl")

    def program(self, port_name: str) -> Kubectl:
        return to_pod(self.kube, self.kubectl, self.selector(port_name))

    @property
    def by(self) -> str:
        return f"the context {self.instance.context}"
