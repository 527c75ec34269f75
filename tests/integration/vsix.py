"""VSIX files, and a fake gallery with Open VSX's API, for tests of the workspace's extensions."""

from __future__ import annotations

import hashlib
import json
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

from bootstrap.settings import Settings
from bootstrap.sources.extensions import Extensions, variant
from tests.http_servers import answering, says


def without_asking(settings: Settings) -> Extensions:
    """Returns the extensions in the cache or the settings' folder, for a workspace's image."""
    return Extensions(settings, variant(settings))


def vsix(file: Path, id: str, version: str, platform: str = "") -> Path:
    """Makes a complete extension that does nothing; for one platform, if that is given."""
    publisher, name = id.split(".")
    package = {"name": name, "publisher": publisher, "version": version, "engines": {"vscode": "^1.60.0"}}
    target = f' TargetPlatform="{platform}"' if platform else ""
    identity = f'<Identity Language="en-US" Id="{name}" Version="{version}" Publisher="{publisher}"{target}/>'
    about = (
        '<PackageManifest Version="2.0.0" xmlns="http://schemas.microsoft.com/developer/vsx-schema/2011">'
        f"<Metadata>{identity}</Metadata></PackageManifest>"
    )
    with zipfile.ZipFile(file, "w") as archive:
        # Without the time, so that the same extension is the same file.
        archive.writestr(zipfile.ZipInfo("extension/package.json"), json.dumps(package))
        archive.writestr(zipfile.ZipInfo("extension.vsixmanifest"), about)
    return file


@dataclass
class Gallery:
    """Serves extensions as Open VSX does; `requests` are the requested paths."""

    url: str
    served: dict[str, bytes] = field(default_factory=dict)
    requests: list[str] = field(default_factory=list)

    def publish(self, file: Path, id: str, version: str, platform: str, *, checksum: str = "") -> None:
        """Serves `file` for a `platform` such as linux-x64, or universal."""
        data = file.read_bytes()
        extension = id.replace(".", "/")
        place = f"/file/{id}-{version}@{platform}.vsix"
        sums = f"{place}.sha256"
        document: dict[str, Any] = {
            "namespace": id.split(".")[0],
            "version": version,
            "targetPlatform": platform,
            "files": {"download": f"{self.url}{place}", "sha256": f"{self.url}{sums}"},
        }
        path = f"{version}" if platform == "universal" else f"{platform}/{version}"
        self.served |= {
            f"/api/{extension}/{path}": json.dumps(document).encode(),
            place: data,
            sums: (checksum or hashlib.sha256(data).hexdigest()).encode(),
        }


@contextmanager
def gallery(port: int = 0, *, trouble: int = 404) -> Iterator[Gallery]:
    """Runs a gallery on `port` (default: a free one); `trouble` is the status of unknown paths."""

    def answer(request: BaseHTTPRequestHandler) -> None:
        site.requests.append(request.path)
        body = site.served.get(request.path)
        says(request, 200 if body is not None else trouble, body or b"")

    with answering(answer, port) as at:
        site = Gallery(f"http://127.0.0.1:{at}")
        yield site
