"""Loading of the images of pods into the cluster's nodes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from bootstrap import docker_engine
from bootstrap.errors import ImageMissing, LowDisk
from bootstrap.settings import ROOT
from bootstrap.sources.references import full_name
from bootstrap.sources.source import Archives, Images
from bootstrap.steps.kind_cluster import containers
from rayside.errors import CommandFailed
from rayside.steps.step import Report, Status, missing, ready
from rayside.system.shell import Shell

# Label with which containerd, from 1.7 on, makes the kubelet keep an image: docs/adr/0043.
_PINNED = "io.cri-containerd.pinned=pinned"
# Prefix of a name that is a configuration's digest.
_CONFIGURATION = "sha256:"


@dataclass(frozen=True)
class Listed:
    """Images in a node's containerd: the manifest's digest by name; `pinned` are names of images that stay.

    A name is a reference, or the digest of the configuration: the CRI lists every image under that, too.
    """

    digests: Mapping[str, str]
    pinned: frozenset[str]


@dataclass(frozen=True)
class NodeImages:
    """Each node's containerd has all `references`, pinned, in the same version as the engine.

    `aliases` are names that stay the same when the images change, for users' own manifests.
    """

    shell: Shell
    # Name of the kind cluster, and names of its containers.
    cluster: str
    nodes: tuple[str, ...]
    references: tuple[str, ...]
    # Pairs of a reference and an alias.
    aliases: tuple[tuple[str, str], ...]
    # The source's own archives of images; None: the images come from the engine.
    archives: Archives | None = None
    name: str = "images"
    title: str = "images in the nodes"
    needs: tuple[str, ...] = ("cluster", "ray-image", "workspace-image", "operator-image")

    def check(self) -> Status:
        if reason := self._unreadable():
            return missing(reason)
        for node in self.nodes:
            absent, unnamed, unpinned = self._lacking(node)
            if absent or unnamed:
                lacking = ", ".join([*absent, *(alias for _, alias in unnamed)])
                return missing(f"the node {node} lacks {lacking}")
            if unpinned:
                return missing(f"the node {node} may remove {', '.join(unpinned)}, which it can't pull again")
        return ready(f"{len(self.references)} images")

    def apply(self, report: Report) -> None:
        for node in self.nodes:
            self._load(node, report)

    def _load(self, node: str, report: Report) -> None:
        absent, _, _ = self._lacking(node)
        ctr = _ctr(node)
        if absent:
            report(f"loading {len(absent)} images into the node {node}")
            try:
                # One `docker save`, so that layers which images share are copied once.
                feed = self.archives.command(absent) if self.archives else ["docker", "save", *absent]
                self.shell.run([*ctr, "images", "import", "-"], feed=feed, cwd=ROOT, on_line=report)
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
        _, unnamed, unpinned = self._lacking(node)
        for reference in unpinned:
            self.shell.run([*ctr, "images", "label", full_name(reference), _PINNED])
        # The alias gets the label too.
        for reference, alias in unnamed:
            self.shell.run([*ctr, "images", "tag", "--force", full_name(reference), full_name(alias)])
        absent, unnamed, _ = self._lacking(node)
        if absent or unnamed:
            raise ImageMissing(
                f"the node {node} does not have {', '.join(absent) or unnamed[0][1]} although it was loaded",
                hint="./invokew down, then ./invokew up, makes the node anew",
            )

    def _unreadable(self) -> str:
        """Returns why a node can't be read; empty if all can."""
        with docker_engine.connected() as client:
            states = {node.name: node.status for node in containers(client, self.cluster)}
        if not states:
            return "there is no cluster yet"
        stopped = [node for node in self.nodes if states.get(node) != "running"]
        return f"the node {stopped[0]} is {states.get(stopped[0], 'gone')}" if stopped else ""

    def _lacking(self, node: str) -> tuple[list[str], list[tuple[str, str]], list[str]]:
        """Returns references that the node lacks or has in another version, aliases of another image, and
        unpinned references, which it may remove.
        """
        listed = listed_in(self.shell, node)
        digests = listed.digests
        ids = self.archives.ids if self.archives else self._ids_in_engine()
        absent = [each for each in self.references if not self._has(node, listed, each, ids[each])]
        unnamed = [
            (reference, alias)
            for reference, alias in self.aliases
            if digests.get(full_name(reference), "?") != digests.get(full_name(alias))
        ]
        unpinned = [
            reference
            for reference in self.references
            if full_name(reference) in digests and full_name(reference) not in listed.pinned
        ]
        return absent, unnamed, unpinned

    def _has(self, node: str, listed: Listed, reference: str, identity: str) -> bool:
        """Returns whether the node's image of that name is the engine's, by the engine's image id.

        The id is the digest of the configuration, as the engine's manifest differs from the node's; or of the
        manifest, with containerd's image store (https://docs.docker.com/engine/storage/containerd/).
        """
        manifest = listed.digests.get(full_name(reference), "")
        return manifest == identity or _configuration_of(self.shell, node, listed, manifest) == identity

    def _ids_in_engine(self) -> dict[str, str]:
        ids = {}
        with docker_engine.connected() as client:
            for reference in self.references:
                image = docker_engine.image(client, reference)
                if image is None:
                    raise ImageMissing(
                        f"the Docker engine does not have {reference}",
                        hint="./invokew up builds or fetches it",
                    )
                ids[reference] = str(image["Id"])
        return ids


def _ctr(node: str) -> list[str]:
    return ["docker", "exec", "--interactive", node, "ctr", "--namespace", "k8s.io"]


def _configuration_of(shell: Shell, node: str, listed: Listed, manifest: str) -> str:
    """Returns the digest of the configuration in a manifest of the node; empty if there is none.

    The node is asked only if `listed` lacks it: an image with two manifests, loaded and pulled, is listed by
    its configuration once, with the newest manifest.
    """
    names = [name for name, digest in listed.digests.items() if digest == manifest]
    if not names:
        return ""
    if known := [name for name in names if name.startswith(_CONFIGURATION)]:
        return known[0]
    try:
        document = json.loads(shell.run([*_ctr(node), "content", "get", manifest]).out)
        return str(document["config"]["digest"])
    except (CommandFailed, ValueError, KeyError, TypeError):
        return ""


def listed_in(shell: Shell, node: str) -> Listed:
    """Returns the node's images. Raises CommandFailed."""
    lines = [line.split() for line in shell.run([*_ctr(node), "images", "list"]).out.splitlines()[1:]]
    whole = [words for words in lines if len(words) > 2]
    return Listed(
        {words[0]: words[2] for words in whole},
        frozenset(words[0] for words in whole if _PINNED in words[-1].split(",")),
    )


def stable_names(images: Images) -> tuple[tuple[str, str], ...]:
    """Returns references, each with its alias in the nodes, which stays the same when the image changes."""
    return (
        (images.ray, "docker.io/rayside/ray:current"),
        (images.workspace, "docker.io/rayside/workspace:current"),
    )
