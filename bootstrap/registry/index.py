"""Reads an index: a manifest that names one image for each platform, under one digest.

https://github.com/opencontainers/image-spec/blob/v1.1.0/image-index.md and Docker's list of manifests, which
is alike in what is read here.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass

from bootstrap.errors import RegistryRefused
from bootstrap.plain import line

# A registry gives an index only to whom accepts one, and a plain manifest where there is no index.
KINDS = ", ".join(
    (
        "application/vnd.oci.image.index.v1+json",
        "application/vnd.docker.distribution.manifest.list.v2+json",
        "application/vnd.oci.image.manifest.v1+json",
        "application/vnd.docker.distribution.manifest.v2+json",
    )
)
DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
# What runs on all machines of an architecture: by their variants, as containerd's platforms have them
# (https://github.com/containerd/platforms, normalizeArch). One for linux/amd64/v3 may not run.
_PLAIN = {"linux/amd64": ("", "v1"), "linux/arm64": ("", "v8")}
# An error shows so many platforms.
_MOST = 10


@dataclass(frozen=True)
class Entry:
    """An image of an index: its platform, as in linux/arm64, and the digest of its own manifest.

    Attributes:
        variant: of the processors that it needs, as in v8; mostly empty.
    """

    platform: str
    digest: str
    variant: str = ""


def entries(manifest: bytes) -> list[Entry] | None:
    """Returns the images of an index; None for the manifest of one image.

    Raises RegistryRefused for anything else.
    """
    try:
        document = json.loads(manifest)
        listed = document.get("manifests")
        if listed is None and "config" in document:
            return None
        return [
            _entry(each["platform"], each["digest"])
            for each in listed
            if "platform" in each and DIGEST.fullmatch(each["digest"])
        ]
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        raise RegistryRefused(
            "the registry gives a manifest that is none", hint="ask who looks after it"
        ) from None


def _entry(platform: dict[str, str], digest: str) -> Entry:
    name = f"{platform['os']}/{platform['architecture']}"
    return Entry(name, digest, str(platform.get("variant") or ""))


def fitting(images: list[Entry], platform: str) -> Entry | None:
    """Returns the image that runs on all machines of a platform, as in linux/arm64; None without one."""
    for variant in _PLAIN.get(platform, ("",)):
        for each in images:
            if (each.platform, each.variant) == (platform, variant):
                return each
    return None


def shown(images: list[Entry]) -> str:
    """Returns the platforms of an index, for people."""
    platforms = sorted({"/".join(filter(None, [each.platform, each.variant])) for each in images})
    return line(", ".join(platforms[:_MOST]), 300) or "no platform"
