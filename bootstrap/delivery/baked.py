"""Image of kind's node with the cluster's images baked in, so that bringing up a cluster loads none."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from bootstrap import cache, docker_engine
from bootstrap.errors import BuildFailed
from bootstrap.settings import COREDNS_VERSION, ETCD_TAG, KUBERNETES_VERSION, PAUSE_TAG
from bootstrap.sources.image_build import LABEL
from bootstrap.sources.source import Source
from rayside.errors import CommandFailed
from rayside.steps.step import Report, Status, missing, ready
from rayside.system.lock import alone, trying
from rayside.system.shell import Shell

# kubeadm wants these names (`kubeadm config images list`); the image `kubernetes` has all of them.
_KUBERNETES_NAMES = (
    *(
        f"registry.k8s.io/{name}:v{KUBERNETES_VERSION}"
        for name in ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kube-proxy")
    ),
    f"registry.k8s.io/etcd:{ETCD_TAG}",
    f"registry.k8s.io/coredns/coredns:v{COREDNS_VERSION}",
    f"registry.k8s.io/pause:{PAUSE_TAG}",
)
_BAKE = "/usr/local/lib/rayside/bake"
_ENTRYPOINT = '["/usr/local/bin/entrypoint", "/lib/systemd/systemd"]'


@dataclass(frozen=True)
class NodeImage:
    """The node `plain` with `images` in its containerd, some of them under other names too."""

    shell: Shell
    cache_folder: Path
    plain: str
    images: tuple[str, ...]
    # Pairs of a reference and another name of it.
    aliases: tuple[tuple[str, str], ...]
    needs: tuple[str, ...]
    # Whether the cluster exists: its node stays, and gets new images.
    unneeded: Callable[[], bool] = lambda: False
    # Architecture of another machine, which the engine emulates; empty: the engine's.
    architecture: str = ""
    name: str = "node-image"
    title: str = "image of the node"

    @property
    def reference(self) -> str:
        return f"rayside/node:{self._key}"

    @property
    def _key(self) -> str:
        return cache.key(self.plain, *self.images, repr(self.aliases))

    def check(self) -> Status:
        with docker_engine.connected() as client:
            if docker_engine.image(client, self.reference) is not None:
                return ready(self.reference)
        if self.unneeded():
            return ready("not needed: the cluster has its node")
        return missing(f"{self.reference} is not made yet")

    def apply(self, report: Report) -> None:
        with alone(self._guard, lambda: report("another command is making it: waiting")):
            with docker_engine.connected() as client:
                if docker_engine.image(client, self.reference) is not None:
                    return
            container = f"rayside-bake-{self._key}"
            self._remove(container)
            report(f"putting {len(self.images)} images into it")
            run = ["docker", "run", "--interactive", "--name", container, "--privileged"]
            run += ["--network", "none", "--entrypoint", _BAKE]
            run += ["--platform", f"linux/{self.architecture}"] if self.architecture else []
            run += [self.plain]
            try:
                self.shell.run(
                    [*run, *(f"docker.io/{name}={alias}" for name, alias in self.aliases)],
                    feed=["docker", "save", *self.images],
                    on_line=report,
                )
                report("keeping it")
                changes = [f"LABEL {LABEL}={self._key}", f"ENTRYPOINT {_ENTRYPOINT}", "CMD []"]
                with docker_engine.connected(600) as client:
                    client.api.commit(container, *self.reference.split(":"), changes=changes)
            except CommandFailed as error:
                raise BuildFailed(
                    f"the node's image could not be made\n{error.message}",
                    hint="./invokew doctor --target kind says whether disk or memory ran out",
                ) from None
            finally:
                self._remove(container)

    def undo(self, report: Report) -> None:
        """Removes a container that a killed command left; images are a cache, they stay."""
        with trying(self._guard) as nobody, contextlib.suppress(Exception):
            if nobody:
                self._remove(f"rayside-bake-{self._key}")

    @property
    def _guard(self) -> Path:
        return self.cache_folder / f"node-{self._key}.lock"

    @staticmethod
    def _remove(container: str) -> None:
        import docker.errors

        with docker_engine.connected(60) as client, contextlib.suppress(docker.errors.NotFound):
            client.api.remove_container(container, v=True, force=True)


def baked(
    shell: Shell,
    cache_folder: Path,
    source: Source,
    names: tuple[str, ...] = (),
    aliases: tuple[tuple[str, str], ...] = (),
    unneeded: Callable[[], bool] = lambda: False,
    architecture: str = "",
) -> NodeImage | None:
    """Returns the source's node image with Kubernetes' images and the source's images `names` baked in.

    Returns None if the source's node image has Kubernetes' images already: it is used unchanged, and can't
    bake.
    """
    if not source.gives("kubernetes"):
        return None
    kubernetes = source.resolve("kubernetes").reference
    return NodeImage(
        shell,
        cache_folder,
        plain=source.resolve("node").reference,
        images=(kubernetes, *(source.resolve(name).reference for name in names)),
        aliases=(*((kubernetes, name) for name in _KUBERNETES_NAMES), *aliases),
        needs=tuple(source.step_of(name) for name in ("node", "kubernetes", *names)),
        unneeded=unneeded,
        architecture=architecture,
    )
