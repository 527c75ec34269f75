"""Loads the images that the cluster's pods need into its node."""

from __future__ import annotations

from dataclasses import dataclass

from bootstrap import docker_engine
from bootstrap.errors import CommandFailed, ImageMissing, LowDisk
from bootstrap.shell import Shell
from bootstrap.sources.references import full_name
from bootstrap.sources.source import Images
from bootstrap.step import Report, Status, missing, ready
from bootstrap.steps.kind_cluster import containers


@dataclass(frozen=True)
class NodeImages:
    """The node's containerd has each of `references`, in the very version that the engine has.

    `aliases` are names that stay the same when the images change, for users' own manifests.
    """

    shell: Shell
    # The kind cluster's name, and that of its one container.
    cluster: str
    node: str
    references: tuple[str, ...]
    # Each is a reference and an alias.
    aliases: tuple[tuple[str, str], ...]
    name: str = "images"
    title: str = "images in the node"
    needs: tuple[str, ...] = ("cluster", "ray-image", "workspace-image", "operator-image")

    def check(self) -> Status:
        if reason := self._unreadable():
            return missing(reason)
        absent, unnamed = self._absent()
        if absent or unnamed:
            return missing(f"the node lacks {', '.join([*absent, *(alias for _, alias in unnamed)])}")
        return ready(f"{len(self.references)} images")

    def apply(self, report: Report) -> None:
        absent, _ = self._absent()
        if absent:
            report(f"loading {len(absent)} images into the node")
            try:
                # It is one save, so that layers which images share travel once.
                self.shell.run(
                    [*self._ctr, "images", "import", "-"], feed=["docker", "save", *absent], on_line=report
                )
            except CommandFailed as error:
                if "no space left" in error.message.lower():
                    raise LowDisk(
                        "the disk filled up while images were loaded into the node",
                        hint="free some, then ./invokew up",
                    ) from None
                raise ImageMissing(
                    f"the images could not be loaded into the node\n{error.message}",
                    hint="./invokew up tries again",
                ) from None
        for reference, alias in self._absent()[1]:
            self.shell.run([*self._ctr, "images", "tag", "--force", full_name(reference), full_name(alias)])
        absent, unnamed = self._absent()
        if absent or unnamed:
            raise ImageMissing(
                f"the node does not have {', '.join(absent) or unnamed[0][1]} although it was loaded",
                hint="./invokew down, then ./invokew up, makes the node anew",
            )

    @property
    def _ctr(self) -> list[str]:
        return ["docker", "exec", "--interactive", self.node, "ctr", "--namespace", "k8s.io"]

    def _unreadable(self) -> str:
        """Returns why nothing can be read in the node; empty where it can."""
        with docker_engine.connected() as client:
            nodes = containers(client, self.cluster)
        if not nodes:
            return "there is no cluster yet"
        return "" if nodes[0].status == "running" else f"the node {self.node} is {nodes[0].status}"

    def _absent(self) -> tuple[list[str], list[tuple[str, str]]]:
        """Returns references that the node lacks or has in another version, and aliases that lead astray."""
        listed = self.shell.run([*self._ctr, "images", "list"]).out.splitlines()[1:]
        # A name comes with the digest of the manifest, which differs from the engine's: that of the image's
        # configuration is the same everywhere, and the node's CRI lists every image under it too.
        digests = {line.split()[0]: line.split()[2] for line in listed if len(line.split()) > 2}
        absent = []
        with docker_engine.connected() as client:
            for reference in self.references:
                image = docker_engine.image(client, reference)
                if image is None:
                    raise ImageMissing(
                        f"the Docker engine does not have {reference}",
                        hint="./invokew up builds or fetches it",
                    )
                if image["Id"] not in digests or digests.get(full_name(reference)) != digests[image["Id"]]:
                    absent.append(reference)
        unnamed = [
            (reference, alias)
            for reference, alias in self.aliases
            if digests.get(full_name(reference), "?") != digests.get(full_name(alias))
        ]
        return absent, unnamed


def stable_names(images: Images) -> tuple[tuple[str, str], ...]:
    """Returns references, each with the node's name for it, which stays the same whatever is in it."""
    return (
        (images.ray, "docker.io/rayside/ray:current"),
        (images.workspace, "docker.io/rayside/workspace:current"),
    )
