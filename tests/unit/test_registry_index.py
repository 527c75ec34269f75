"""Tests what is read of an index of images, which a stranger's registry gives."""

from __future__ import annotations

import json
from typing import Any

import pytest

from bootstrap.errors import RegistryRefused
from bootstrap.registry.index import Entry, entries, fitting, shown

DIGEST = f"sha256:{'a' * 64}"


def index(*manifests: Any) -> bytes:
    return json.dumps({"schemaVersion": 2, "manifests": manifests}).encode()


def entry(architecture: str, digest: Any = DIGEST) -> dict[str, Any]:
    return {"digest": digest, "platform": {"os": "linux", "architecture": architecture}}


def test_each_image_has_its_platform_and_digest() -> None:
    attestation = entry("unknown") | {"annotations": {}}
    assert entries(index(entry("amd64"), {"digest": DIGEST}, attestation)) == [
        Entry("linux/amd64", DIGEST),
        Entry("linux/unknown", DIGEST),
    ]
    assert entries(index()) == []


def test_only_an_image_for_all_machines_of_an_architecture_fits() -> None:
    newest, plain = Entry("linux/amd64", "1", "v3"), Entry("linux/amd64", "2")
    assert fitting([newest, plain], "linux/amd64") == plain
    assert fitting([newest], "linux/amd64") is None
    explicit = Entry("linux/arm64", "3", "v8")
    assert fitting([Entry("linux/arm64", "4", "v9"), explicit], "linux/arm64") == explicit
    assert fitting([plain], "linux/arm64") is None
    named = json.loads(index(entry("amd64")))
    named["manifests"][0]["platform"]["variant"] = "v3"
    assert entries(json.dumps(named).encode()) == [Entry("linux/amd64", DIGEST, "v3")]
    assert shown([newest]) == "linux/amd64/v3"


def test_a_digest_that_is_none_is_no_image() -> None:
    for digest in ("", "sha256:xyz", f"{DIGEST}/../..", f"{DIGEST}\n", f"sha512:{'a' * 128}"):
        assert entries(index(entry("amd64", digest))) == []


def test_the_manifest_of_one_image_is_no_index() -> None:
    assert entries(json.dumps({"schemaVersion": 2, "config": {"digest": DIGEST}}).encode()) is None


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"<html>",
        b"\xff",
        b"[]",
        b"{}",
        b"[" * 100_000,
        b'{"manifests": 5}',
        index(5),
        index({"platform": 5, "digest": DIGEST}),
        index({"platform": {}, "digest": DIGEST}),
        index(entry("amd64", 5)),
        index({"platform": {"os": "linux", "architecture": "amd64"}}),
    ],
)
def test_anything_else_is_refused(text: bytes) -> None:
    with pytest.raises(RegistryRefused, match="a manifest that is none"):
        entries(text)


def test_what_is_shown_of_platforms_is_bounded_and_clean() -> None:
    images = [Entry(f"linux/{n:03}\x1b[2J", DIGEST) for n in range(1000)]
    assert "\x1b" not in shown(images)
    assert len(shown(images)) <= 300
    assert shown([]) == "no platform"
