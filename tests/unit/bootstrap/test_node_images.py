"""Tests which images a node has, by what its containerd lists."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from bootstrap.delivery.loaded import NodeImages
from bootstrap.sources.source import Archives
from rayside.errors import CommandFailed
from rayside.system.shell import Outcome, Shell

NAME = "docker.io/rayside/ray:1"
OURS, OTHER = "sha256:" + "a" * 64, "sha256:" + "b" * 64
LOADED, PULLED = "sha256:" + "1" * 64, "sha256:" + "2" * 64
KIND, LABEL = "application/vnd.oci.image.manifest.v1+json", "io.cri-containerd.pinned=pinned"


class Containerd(Shell):
    """Answers as the node's `ctr` does: with names and manifests, and with the contents that it has."""

    def __init__(self, names: dict[str, str], contents: dict[str, str]) -> None:
        self.names, self.contents = names, contents

    def run(self, args: Sequence[str | Path], **how: Any) -> Outcome:
        words = [str(word) for word in args][args.index("k8s.io") + 1 :]
        if words == ["images", "list"]:
            rows = (
                f"{name} {KIND} {manifest} 1 MiB linux/amd64 {LABEL}" for name, manifest in self.names.items()
            )
            return Outcome(0, "\n".join(["REF TYPE DIGEST SIZE PLATFORMS LABELS", *rows]), "")
        assert words[:2] == ["content", "get"]
        if words[2] not in self.contents:
            raise CommandFailed("content not found", hint="")
        return Outcome(0, self.contents[words[2]], "")


def absent(names: dict[str, str], identity: str = OURS, **contents: str) -> list[str]:
    manifests = {LOADED: contents.get("loaded", ""), PULLED: contents.get("pulled", "")}
    shell = Containerd(names, {digest: text for digest, text in manifests.items() if text})
    archives = Archives({"rayside/ray:1": identity}, lambda _: [])
    return NodeImages(shell, "c", ("n",), ("rayside/ray:1",), (), archives)._lacking("n")[0]


def manifest(configuration: str) -> str:
    return json.dumps({"config": {"digest": configuration}})


def test_a_name_that_leads_to_the_configuration_is_enough() -> None:
    assert absent({NAME: LOADED, OURS: LOADED}) == []
    assert absent({OURS: LOADED}) == ["rayside/ray:1"]
    assert absent({}) == ["rayside/ray:1"]
    # So it is where the image was loaded and pulled, too.
    pulled = {NAME: LOADED, "r.test/ray@" + PULLED: PULLED, OURS: PULLED}
    assert absent(pulled, loaded=manifest(OURS), pulled=manifest(OURS)) == []


def test_an_engine_that_keeps_images_in_containerd_names_one_by_its_manifest() -> None:
    assert absent({NAME: LOADED, OURS: LOADED}, LOADED) == []
    assert absent({NAME: PULLED, OURS: PULLED}, LOADED) == ["rayside/ray:1"]


@pytest.mark.parametrize("content", [manifest(OTHER), "no JSON", "[]", "{}", ""])
def test_another_image_of_that_name_is_none(content: str) -> None:
    assert absent({NAME: LOADED, OTHER: LOADED}, loaded=content) == ["rayside/ray:1"]
    assert absent({NAME: LOADED, OURS: PULLED}, loaded=content) == ["rayside/ray:1"]
