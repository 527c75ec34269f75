"""Loads the images that the cluster's pods need into its nodes."""

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
    """Each node's containerd has each of `references`, in the very version that the engine has.

    `aliases` are names that stay the same when the images change, for users' own manifests.
    """

    shell: Shell
    # The kind cluster's name, and those of its containers.
    cluster: str
    nodes: tuple[str, ...]
    references: tuple[str, ...]
    # Each is a reference and an alias.
    aliases: tuple[tuple[str, str], ...]
    name: str = "images"
    title: str = "images in the nodes"
    needs: tuple[str, ...] = ("cluster", "ray-image", "workspace-image", "operator-image")

    def check(self) -> Status:
        if reason := self._unreadable():
            return missing(reason)
        for node in self.nodes:
            absent, unnamed = self._absent(node)
            if absent or unnamed:
                lacking = ", ".join([*absent, *(alias for _, alias in unnamed)])
                return missing(f"the node {node} lacks {lacking}")
        return ready(f"{len(self.references)} images")

    def apply(self, report: Report) -> None:
        for node in self.nodes:
            self._load(node, report)

    def _load(self, node: str, report: Report) -> None:
        absent, _ = self._absent(node)
        ctr = _ctr(node)
        if absent:
            report(f"loading {len(absent)} images into the node {node}")
            try:
                # It is one save, so that layers which images share travel once.
                self.shell.run(
                    [*ctr, "images", "import", "-"], feed=["docker", "save", *absent], on_line=report
                )
            except CommandFailed as error:
                if "no space left" in error.message.lower():
                    raise LowDisk(
                        f"the disk filled up while images were loaded into the node {node}",
                        hint="free some, then ./invokew up",
                    ) from None
                raise ImageMissing(
                    f"the images could not be loaded into the node {node}\n{error.message}",
                    hint="./invokew up tries again",
                ) from None
        for reference, alias in self._absent(node)[1]:
            self.shell.run([*ctr, "images", "tag", "--force", full_name(reference), full_name(alias)])
        absent, unnamed = self._absent(node)
        if absent or unnamed:
            raise ImageMissing(
                f"the node {node} does not have {', '.join(absent) or unnamed[0][1]} although it was loaded",
                hint="./invokew down, then ./invokew up, makes the node anew",
            )

    def _unreadable(self) -> str:
        """Returns why nothing can be read in the node; empty where it can."""
        with docker_engine.connected() as client:
            states = {node.name: node.status for node in containers(client, self.cluster)}
        if not states:
            return "there is no cluster yet"
        stopped = [node for node in self.nodes if states.get(node) != "running"]
        return f"the node {stopped[0]} is {states.get(stopped[0], 'gone')}" if stopped else ""

    def _absent(self, node: str) -> tuple[list[str], list[tuple[str, str]]]:
        """Returns references that the node lacks or has in another version, and aliases that lead astray."""
        listed = self.shell.run([*_ctr(node), "images", "list"]).out.splitlines()[1:]
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


def _ctr(node: str) -> list[str]:
    return ["docker", "exec", "--interactive", node, "ctr", "--namespace", "k8s.io"]


def stable_names(images: Images) -> tuple[tuple[str, str], ...]:
    """Returns references, each with the node's name for it, which stays the same whatever is in it."""
    return (
        (images.ray, "docker.io/rayside/ray:current"),
        (images.workspace, "docker.io/rayside/workspace:current"),
    )
