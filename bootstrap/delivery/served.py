"""Has nodes pull a bundle's images from a pod of ours, in a Kubernetes of others without a registry."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from bootstrap.delivery.image_server import ImageServer
from bootstrap.errors import NotReady, RegistryRefused, RegistryUnreachable
from bootstrap.kube.forwarder import forwarded
from bootstrap.registry.address import Address
from bootstrap.registry.exchange import Exchange
from bootstrap.registry.login import Login
from bootstrap.registry.registry import Registry
from bootstrap.sources.source import Archives
from bootstrap.step import Report, Status, missing, ready

# On the pod's own loopback it listens for who brings images.
_UPLOADS = 5001
_USER = "rayside"


@dataclass(frozen=True)
class ServedImages:
    """The server has these images, so that nodes can pull them."""

    server: ImageServer
    archives: Archives
    references: tuple[str, ...]
    needs: tuple[str, ...] = (ImageServer.name,)
    name: str = "images"
    title: str = "images that the nodes pull"

    def check(self) -> Status:
        if self.server.noted() != self._note(self.server.place.pod()):
            return missing("the server does not have them yet")
        return ready(f"{len(self.references)} images, from {self.server.registry} of each node")

    def apply(self, report: Report) -> None:
        """Brings what it lacks. Raises BadBundle; NotReady where the pod does not take it."""
        server, pod = self.server, self.server.place.pod()
        login = Login(_USER, server.password())
        try:
            with forwarded(server.kube, server.place.selector, _UPLOADS) as local:
                registry = Registry(Exchange(Address(f"127.0.0.1:{local}")), login, report)
                self.archives.send(registry, self.references, report)
        except (RegistryUnreachable, RegistryRefused) as error:
            problem = server.problem()
            raise NotReady(
                f"the pod {server.place.label} did not take the images: {(problem or error).message}",
                hint=problem.hint if problem else "./invokew up goes on from there",
            ) from None
        server.note(self._note(pod))

    def _note(self, pod: Mapping[str, Any] | None) -> dict[str, str]:
        """Returns what says that a pod has them: they go with it."""
        return {"images": " ".join(self.references), "pod": pod["metadata"].get("uid", "") if pod else ""}
