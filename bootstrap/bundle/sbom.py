"""Lists the packages in a bundle in the terms of SPDX 2.3 (https://spdx.github.io/spdx-spec/v2.3/).

Packages are those that say of themselves in an image what they are: Debian's, Python's and npm's. A file that
no package has brought is not listed; all our own files are in the package `rayside`.
"""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from bootstrap.bundle.blobs import pieces
from bootstrap.bundle.images import unpacked
from bootstrap.bundle.manifest import Image
from bootstrap.bundle.opened import Bundle
from bootstrap.bundle.tar import BrokenTar, members, stream
from bootstrap.errors import BadBundle

# What a file says is read up to so many bytes, and what all of a bundle say, names of files with it.
_LONGEST, _MOST = 8 * 1024 * 1024, 256 * 1024 * 1024
# To keep a file takes about so many bytes beside what it says.
_ENTRY = 256
_DPKG = "var/lib/dpkg/status"
_PYTHON = re.compile(r".*\.dist-info/METADATA")
_NPM = re.compile(r".*/node_modules/(@[^/]+/)?[^/]+/package\.json")
# A file of this name in a layer removes one of a lower layer
# (https://github.com/opencontainers/image-spec/blob/v1.1.0/layer.md#whiteouts).
_REMOVES = ".wh."
_FIELD = re.compile(rb"^(Name|Version|Package|Status|Source): (.*)$", re.MULTILINE)
# JSON has escapes for halves of a character, which UTF-8 can't write.
_HALF = re.compile("[\ud800-\udfff]")
_WHEEL = re.compile(r"(?P<name>[^-]+)-(?P<version>[^-]+)-.*\.whl")


@dataclass(frozen=True, order=True)
class Package:
    """A package by its package URL's parts (https://github.com/package-url/purl-spec)."""

    kind: str
    name: str
    version: str

    @property
    def purl(self) -> str:
        name = quote(self.name, safe="/")
        return f"pkg:{self.kind}/{name}@{quote(self.version, safe='')}"


class _Bound:
    """Counts the bytes of what is held of a stranger's images, which compress to next to nothing."""

    def __init__(self) -> None:
        self._left = _MOST

    def count(self, size: int) -> None:
        """Counts a file of that many bytes. Raises BadBundle where it is too much."""
        self._left -= size + _ENTRY
        if self._left < 0:
            raise BadBundle(
                f"its images say of their packages more than {_MOST // 2**20} MiB",
                hint="get the bundle from someone whom you trust",
            )


def sbom(bundle: Bundle, report: Callable[[str], None] = lambda _: None) -> dict[str, Any]:
    """Returns the document, which is the same for the same bundle, a whole one.

    Raises BadBundle, OSError.
    """
    manifest, bound = bundle.manifest, _Bound()
    told: dict[str, Mapping[str, Sequence[Package] | None]] = {}
    entries = [_entry("rayside", "rayside", manifest.version.code[:12], manifest.checkout.digest)]
    contained: dict[str, list[Package]] = {}
    for number, image in enumerate(manifest.images, 1):
        report(f"image {number} of {len(manifest.images)}, {image.name}")
        identity = f"image-{image.name}"
        entries.append(_entry(identity, image.reference, image.config.digest[:12], image.config.digest))
        contained[identity] = _packages(bundle, image, told, bound)
    versions = {"kubectl": manifest.version.kubernetes, "kubectl-ray": manifest.version.kuberay}
    for folder in manifest.folders:
        version = versions.get(folder.name, "")
        entries.append(_entry(f"program-{folder.name}", folder.name, version, folder.blob.digest))
    for file, blob in sorted(manifest.wheels.items()):
        if parts := _WHEEL.fullmatch(file):
            wheel = Package("pypi", parts["name"].lower().replace("_", "-"), parts["version"])
            entries.append(_entry(f"wheel-{blob.digest[:12]}", wheel.name, wheel.version, blob.digest, wheel))
    listed = sorted({package for packages in contained.values() for package in packages})
    identities = {package: f"package-{number}" for number, package in enumerate(listed, 1)}
    described = [entry["SPDXID"].removeprefix("SPDXRef-") for entry in entries]
    relations = [_relation("DOCUMENT", "DESCRIBES", identity) for identity in described]
    relations += [
        _relation(identity, "CONTAINS", identities[package])
        for identity, packages in contained.items()
        for package in packages
    ]
    entries += [_entry(identities[each], each.name, each.version, "", each) for each in listed]
    return {
        "spdxVersion": "SPDX-2.3",
        "dataLicense": "CC0-1.0",
        "SPDXID": "SPDXRef-DOCUMENT",
        "name": f"rayside-bundle-{manifest.digest[:12]}",
        "documentNamespace": f"https://spdx.org/spdxdocs/rayside-bundle-{manifest.digest}",
        # The same bundle has the same document, whenever it is asked for.
        "creationInfo": {"created": "1970-01-01T00:00:00Z", "creators": ["Tool: rayside"]},
        "packages": entries,
        "relationships": relations,
    }


def _entry(
    identity: str, name: str, version: str, digest: str, package: Package | None = None
) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "SPDXID": f"SPDXRef-{identity}",
        "name": name,
        **({"versionInfo": version} if version else {}),
        "downloadLocation": "NOASSERTION",
        "filesAnalyzed": False,
    }
    if digest:
        entry["checksums"] = [{"algorithm": "SHA256", "checksumValue": digest}]
    if package:
        locator = {"referenceType": "purl", "referenceLocator": package.purl}
        entry["externalRefs"] = [{"referenceCategory": "PACKAGE-MANAGER", **locator}]
    return entry


def _relation(element: str, kind: str, other: str) -> dict[str, str]:
    return {
        "spdxElementId": f"SPDXRef-{element}",
        "relationshipType": kind,
        "relatedSpdxElement": f"SPDXRef-{other}",
    }


def _packages(
    bundle: Bundle, image: Image, told: dict[str, Mapping[str, Sequence[Package] | None]], bound: _Bound
) -> list[Package]:
    """Returns an image's packages; `told` has what layers say, by their digests unpacked."""
    files: dict[str, Sequence[Package]] = {}
    for layer in image.layers:
        if layer.diff_id not in told:
            told[layer.diff_id] = _told(unpacked(bundle.read(layer.blob), layer.size), bound)
        for name, packages in told[layer.diff_id].items():
            if packages is not None:
                files[name] = packages
                continue
            for other in [other for other in files if other == name or other.startswith(f"{name}/")]:
                del files[other]
    return sorted({package for packages in files.values() for package in packages})


def _told(content: Iterator[bytes], bound: _Bound) -> dict[str, Sequence[Package] | None]:
    """Returns the packages that each file of a layer tells of; None for a file that the layer removes."""
    files: dict[str, Sequence[Package] | None] = {}
    try:
        for entry, data in members(stream(content), names_may_be_long=True):
            name = posixpath.normpath(entry.name)
            folder, base = posixpath.split(name)
            if base.startswith(_REMOVES):
                bound.count(len(name))
                files[posixpath.join(folder, base.removeprefix(_REMOVES))] = None
            elif entry.isreg() and (name == _DPKG or _PYTHON.fullmatch(name) or _NPM.fullmatch(name)):
                text = b"".join(pieces(data, _LONGEST))
                bound.count(len(name) + len(text))
                files[name] = tuple(_told_by(name, text))
    except BrokenTar as error:
        raise BadBundle(f"a layer can't be read: {error}", hint="make the bundle anew") from None
    for _ in content:
        pass
    return files


def _told_by(name: str, text: bytes) -> Iterator[Package]:
    if name == _DPKG:
        for paragraph in text.split(b"\n\n"):
            said = _fields(paragraph)
            if said.get("Status", "").endswith(" installed") and {"Package", "Version"} <= set(said):
                yield Package("deb/debian", said["Package"], said["Version"])
    elif name.endswith("METADATA"):
        said = _fields(text.partition(b"\n\n")[0])
        if {"Name", "Version"} <= set(said):
            yield Package("pypi", said["Name"].lower().replace("_", "-"), said["Version"])
    else:
        try:
            document = json.loads(text)
            package, version = document["name"], document["version"]
        except (ValueError, KeyError, TypeError, RecursionError):
            return
        if _is_text(package) and _is_text(version):
            yield Package("npm", package, version)


def _is_text(value: object) -> bool:
    return isinstance(value, str) and not _HALF.search(value)


def _fields(paragraph: bytes) -> dict[str, str]:
    fields: dict[str, str] = {}
    for key, value in _FIELD.findall(paragraph):
        fields.setdefault(key.decode(), value.decode(errors="replace").strip())
    return fields
