"""Origin of a cluster's bundle: from the settings, or from the cluster's record."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path

from bootstrap.bundle.manifest import Manifest, parse
from bootstrap.bundle.opened import Bundle, path_of, require_fit, this_platform
from bootstrap.bundle.signature import require_signature
from bootstrap.bundle.version import this_version
from bootstrap.registry.address import parse as parse_address
from bootstrap.registry.mirrored import listed
from bootstrap.settings import Settings
from bootstrap.sources.registry_client import RegistryClient
from rayside.errors import InvalidSetting

# File in a cluster's folder that records its bundle.
RECORD = "bundle.json"


@dataclass(frozen=True)
class Origin:
    """A bundle and its location: in `file`; for source `mirror`, first in the registry `mirror`.

    Without `images`, the file lacks the images.
    """

    file: Path
    manifest: Manifest
    mirror: str = ""
    images: bool = True
    signature: bytes | None = None

    @classmethod
    def mirrored(cls, client: RegistryClient, *, images: bool) -> Origin:
        """Asks the mirror for the bundle of this code and machine. Raises errors of registries."""
        settings = client.settings
        bundle = listed(client.mirror, this_version(), this_platform())
        # The signature is no part of the contents: the same bundle may have another one, or none.
        signed = hashlib.sha256(bundle.signature or b"").hexdigest()[:8]
        lacks = "" if images else "-without-images"
        name = f"mirrored-{bundle.manifest.digest[:24]}-{signed}{lacks}"
        file = settings.cache_folder / name
        return cls(file, bundle.manifest, settings.mirror, images, bundle.signature)

    @property
    def text(self) -> str:
        """Returns its record for a cluster's folder."""
        document: dict[str, str | bool] = {"file": str(self.file), "manifest": self.manifest.text().decode()}
        if self.mirror:
            document["mirror"] = self.mirror
        if not self.images:
            document["images"] = False
        if self.signature is not None:
            document["signature"] = self.signature.decode("latin-1")
        return json.dumps(document)

    def require_signed(self, key: str) -> None:
        """Checks its signature by that public key; an empty key accepts any bundle.

        Raises BadBundle, MissingProgram.
        """
        if key:
            require_signature(self.mirror or str(self.file), self.signature, self.manifest.text(), key)


def for_nodes(mirror: str) -> str:
    """Returns the registry for nodes; empty for one on this machine's loopback address."""
    return "" if not mirror or parse_address(mirror).is_loopback else mirror


def named(settings: Settings, record: Path, key: str, client: RegistryClient, *, nodes_pull: bool) -> Origin:
    """Returns the bundle that the settings name, after checks of signature and version; else the record's."""
    if settings.bundle:
        file = path_of(settings.bundle)
        bundle = Bundle.of(file)
        origin = Origin(file, bundle.manifest, signature=bundle.signature)
    elif settings.mirror and settings.source == "mirror":
        if not asks_mirror(settings, record):
            return _recorded(record)
        origin = Origin.mirrored(client, images=not (nodes_pull and for_nodes(settings.mirror)))
    elif record.exists():
        return _recorded(record)
    else:
        name = "mirror REGISTRY" if settings.source == "mirror" else "bundle FILE"
        raise InvalidSetting(
            f"source is {settings.source}, and none is named",
            hint=f"./invokew up --{name}; ./invokew {name} fills it",
        )
    # Before anything else, also the cluster's folder, and before a hint refers to code in the bundle.
    origin.require_signed(key)
    require_fit(origin.manifest, origin.file)
    return origin


def asks_mirror(settings: Settings, record: Path) -> bool:
    """Returns whether to ask the mirror in the settings for its bundle: once for each code version.

    Commands that only read don't wait for it. Raises InvalidSetting.
    """
    if not record.exists():
        return True
    recorded = _recorded(record)
    return recorded.mirror != settings.mirror or recorded.manifest.version != this_version()


def _recorded(record: Path) -> Origin:
    try:
        document = json.loads(record.read_text())
        manifest = parse(record, document["manifest"].encode())
        mirror, images = str(document.get("mirror", "")), bool(document.get("images", True))
        signature = document["signature"].encode("latin-1") if "signature" in document else None
        return Origin(Path(document["file"]), manifest, mirror, images, signature)
    except (ValueError, KeyError, TypeError, AttributeError):
        raise InvalidSetting(f"{record} can't be read", hint="./invokew up --bundle FILE") from None
