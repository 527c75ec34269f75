"""Tests the list of packages in a bundle."""

from __future__ import annotations

import io
import json
import tarfile
from dataclasses import replace
from pathlib import Path

import pytest

from bootstrap.bundle.blobs import Blobs
from bootstrap.bundle.images import Gathering
from bootstrap.bundle.manifest import IMAGES
from bootstrap.bundle.opened import Bundle, write
from bootstrap.bundle.sbom import sbom
from bootstrap.bundle.tar import BLOCK, END
from bootstrap.console import Console
from bootstrap.errors import BadBundle
from bootstrap.verbs.bundle import inspect
from tests.bundles import layer, saved, small

DPKG = b"""Package: tar
Status: install ok installed
Version: 1.34+dfsg-1.2

Package: gone
Status: deinstall ok config-files
Version: 1

no paragraph
"""


def packages(tmp_path: Path, *layers: bytes) -> set[str]:
    """Returns the package URLs of a bundle whose images are all of these layers."""
    blobs = Blobs(tmp_path / "blobs")
    names = {f"test/{name}:1": name for name in IMAGES}
    images = Gathering(blobs).take(io.BytesIO(saved({each: list(layers) for each in names})), names)
    bundle = Bundle.of(small(tmp_path))
    whole = replace(bundle.manifest, images=tuple(images))
    write(tmp_path / "bundle", whole, blobs.read)
    document = sbom(Bundle.of(tmp_path / "bundle"))
    assert document == sbom(Bundle.of(tmp_path / "bundle"))
    by_id = {entry["SPDXID"]: entry for entry in document["packages"]}
    assert len(by_id) == len(document["packages"])
    for relation in document["relationships"]:
        assert relation["relatedSpdxElement"] in by_id
    contained = [each for each in document["relationships"] if each["relationshipType"] == "CONTAINS"]
    of_ray = [each for each in contained if each["spdxElementId"] == "SPDXRef-image-ray"]
    entries = [by_id[each["relatedSpdxElement"]] for each in of_ray]
    return {entry["externalRefs"][0]["referenceLocator"] for entry in entries}


def test_packages_of_all_three_kinds_are_listed(tmp_path: Path) -> None:
    npm = {"name": "@acme/snake", "version": "1.2.3"}
    found = packages(
        tmp_path,
        layer("./var/lib/dpkg/status", DPKG),
        layer("opt/lib/acme_core-2.0.dist-info/METADATA", b"Name: Acme_Core\nVersion: 2.0\n\nName: other\n"),
        layer("usr/lib/node_modules/@acme/snake/package.json", json.dumps(npm).encode()),
        layer("usr/lib/node_modules/odd/package.json", b"[1"),
        layer("srv/METADATA", b"Name: nothing\nVersion: 1\n"),
    )
    assert found == {
        "pkg:deb/debian/tar@1.34%2Bdfsg-1.2",
        "pkg:pypi/acme-core@2.0",
        "pkg:npm/%40acme/snake@1.2.3",
    }


def test_a_strangers_files_that_are_none_are_passed_over(tmp_path: Path) -> None:
    texts = (b"[" * 1_000_000, b'{"name": "\\ud800", "version": "1"}', b'{"name": 1, "version": []}', b"[]")
    layers = [layer(f"usr/node_modules/a{at}/package.json", text) for at, text in enumerate(texts)]
    npm = layer("usr/node_modules/right/package.json", b'{"name": "right", "version": "1"}')
    assert packages(tmp_path, *layers, npm) == {"pkg:npm/right@1"}


def test_a_length_of_thousands_of_digits_is_refused(tmp_path: Path) -> None:
    record = b"1" * 5000 + b" path=name\n"
    extended = tarfile.TarInfo("header")
    extended.size, extended.type = len(record), tarfile.XHDTYPE
    layer = extended.tobuf(tarfile.USTAR_FORMAT) + record.ljust(-(-len(record) // BLOCK) * BLOCK, b"\0") + END
    with pytest.raises(BadBundle, match="POSIX header is not as it should be"):
        packages(tmp_path, layer)


def test_what_is_held_of_a_strangers_images_is_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bootstrap.bundle.sbom._MOST", 2 * 1024 * 1024)
    layers = [layer(f"usr/node_modules/a{at}/package.json", bytes(700_000)) for at in range(3)]
    assert packages(tmp_path, *layers[:2]) == set()
    with pytest.raises(BadBundle, match="more than 2 MiB"):
        packages(tmp_path, *layers)
    removed = [layer(f"{'a' * 90}/{at}/.wh.{'b' * 90}", b"") for at in range(3)]
    monkeypatch.setattr("bootstrap.bundle.sbom._MOST", 1000)
    with pytest.raises(BadBundle, match="more than"):
        packages(tmp_path, *removed)


def test_of_a_difference_there_is_no_list(tmp_path: Path) -> None:
    whole = Bundle.of(small(tmp_path))
    manifest = replace(whole.manifest, wheels={"a-1-py3-none-any.whl": whole.manifest.checkout})
    write(tmp_path / "a difference", manifest, whole.read, whole.manifest)
    with pytest.raises(BadBundle, match="only the difference to an earlier bundle"):
        inspect(Console(), tmp_path / "a difference", packages=True)


def test_what_an_upper_layer_replaces_or_removes_does_not_count(tmp_path: Path) -> None:
    metadata = "lib/acme-2.0.dist-info/METADATA"
    found = packages(
        tmp_path,
        layer("var/lib/dpkg/status", DPKG),
        layer(metadata, b"Name: acme\nVersion: 2.0\n"),
        layer("lib/.wh.acme-2.0.dist-info", b""),
        layer("var/lib/dpkg/status", DPKG.replace(b"1.34", b"1.35")),
    )
    assert found == {"pkg:deb/debian/tar@1.35%2Bdfsg-1.2"}
