"""Target `cluster` where only the head is reached: the relay is an actor there, and two ports lead to it."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from urllib.parse import urlsplit

from bootstrap.carrier.carrier import Speaks
from bootstrap.kube import forwarder as pod_forwarder
from bootstrap.kube import heads
from bootstrap.kube.api import Kube, head_selector
from bootstrap.kube.forwarder import Forward
from bootstrap.kube.tunnel import require_forwarding
from bootstrap.ray import authentication
from bootstrap.ssh import forwarder as ssh_forwarder
from bootstrap.step import Step
from bootstrap.steps import marks
from bootstrap.steps.head_forward import HeadForward
from bootstrap.steps.head_relay import HeadRelay
from bootstrap.steps.preflight import Preflight
from bootstrap.steps.ray_cluster import secret
from bootstrap.steps.their_ray import TheirRay
from bootstrap.targets.cluster import Cluster
from bootstrap.targets.debugging import masking


@dataclass(frozen=True)
class ClusterByHead(Cluster):
    """A Ray of whose nodes this machine reaches the head alone."""

    opens: tuple[str, ...] = ("dashboard", "relay", "workspace")

    @abstractmethod
    def forward(
        self, name: str, port: int, remote: Callable[[], int], speaks: Speaks, mark: str, needs: str
    ) -> HeadForward:
        """Returns the step that leads `port` of this machine, the forward `name`, to the head's `remote`."""

    @abstractmethod
    def passing(self) -> AbstractContextManager[int]:
        """Yields a port of this machine that leads, meanwhile, to the dashboard. Raises where it can't."""

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

        Raises as `passing`.
        """
        if self.dashboard.answers():
            yield self.instance.dashboard
            return
        with self.passing() as port:
            yield f"http://127.0.0.1:{port}"

    @property
    def dashboard_port(self) -> int:
        """Returns the dashboard's port on the head."""
        port = urlsplit(self.instance.address).port
        assert port, "the settings have one"
        return port

    @cached_property
    def head(self) -> TheirRay:
        needs = ("preflight", "state-folder", "dashboard", "ray-environment")
        return TheirRay(self.instance, self.environment.programs, self.preflight, needs=needs)

    @cached_property
    def relay_actor(self) -> HeadRelay:
        masked = masking(self.settings)
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

    def forward(
        self, name: str, port: int, remote: Callable[[], int], speaks: Speaks, mark: str, needs: str
    ) -> HeadForward:
        host = self.instance.ssh
        return HeadForward(
            *(self.shell, self.instance, name, port, speaks, remote),
            module=ssh_forwarder.__name__,
            document=lambda remote: ssh_forwarder.document(host, port, remote, speaks),
            way=f"ssh {host}",
            mark=mark,
            needs=(needs,),
            name=name,
        )

    def passing(self) -> AbstractContextManager[int]:
        return ssh_forwarder.forwarded(self.instance.ssh, self.dashboard_port)


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
        """Raises as `require_rights`, and KubernetesTokens."""
        self.require_rights()
        if heads.takes_kubernetes_tokens(self.kube, self.instance.their_cluster):
            raise authentication.kubernetes_tokens(self.instance.place)

    def require_rights(self) -> None:
        """Raises where this takes rights that lack, or anything else that can be known at once."""
        require_forwarding(self.kube)

    def selector(self, port_name: str) -> str:
        """Returns the labels of the pod that the forward of that name leads to."""
        return head_selector(self.instance.their_cluster)

    def forward(
        self, name: str, port: int, remote: Callable[[], int], speaks: Speaks, mark: str, needs: str
    ) -> HeadForward:
        return HeadForward(
            *(self.shell, self.instance, name, port, speaks, remote),
            module=pod_forwarder.__name__,
            document=lambda remote: pod_forwarder.document(
                self.kube, self.selector(name), [Forward(name, port, remote, speaks, own_clients=True)]
            ),
            way=f"the context {self.instance.context}",
            mark=mark,
            needs=(needs,),
            name=name,
            require_rights=lambda: require_forwarding(self.kube),
        )

    def passing(self) -> AbstractContextManager[int]:
        return pod_forwarder.forwarded(
            self.kube, head_selector(self.instance.their_cluster), self.dashboard_port
        )
