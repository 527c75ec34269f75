"""VSIX files: their descriptions, and the pinned extensions in a folder."""

from __future__ import annotations

import json
import re
import zipfile
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bootstrap import download
from rayside.errors import InvalidSetting

UNIVERSAL = "universal"
# A VSIX's platform, if it is not for all.
_PLATFORM = re.compile(r'<Identity\b[^>]*\bTargetPlatform="([^"]+)"')


@dataclass(frozen=True)
class Extension:
    """An extension and its digest; `source`: a gallery's URL, or the name of a file."""

    id: str
    version: str
    sha256: str
    source: str
    file: Path

    def document(self) -> dict[str, str]:
        """Returns its entry in `extensions.json` beside the installed extensions."""
        return {"id": self.id, "version": self.version, "sha256": self.sha256, "from": self.source}

    def __str__(self) -> str:
        return f"{self.id} {self.version}"


class BrokenVsix(Exception):
    """A file is no VSIX; the message says why."""


@dataclass(frozen=True)
class Vsix:
    """A VSIX file's own description of itself."""

    id: str
    version: str
    platform: str


def read(file: Path) -> Vsix:
    """Reads a VSIX file's description, whatever its name is. Raises BrokenVsix."""
    try:
        with zipfile.ZipFile(file) as archive:
            package = json.loads(archive.read("extension/package.json"))
            manifest = archive.read("extension.vsixmanifest").decode(errors="replace")
        target = _PLATFORM.search(manifest)
        id = f"{package['publisher']}.{package['name']}".lower()
        return Vsix(id, str(package["version"]), target.group(1) if target else UNIVERSAL)
    except KeyError as error:
        raise BrokenVsix(f"{error.args[0]}") from None
    except (OSError, zipfile.BadZipFile, zlib.error, EOFError, ValueError, TypeError) as error:
        raise BrokenVsix(f"{error}") from None


def of_folder(folder: Path, pins: Sequence[tuple[str, str]], platform: str) -> dict[str, Extension]:
    """Returns the pinned extensions of the folder, by id. Raises InvalidSetting, which names the file."""
    if not folder.is_dir():
        raise InvalidSetting(
            f"vsix_folder is {folder}, and there is no such folder", hint="correct vsix_folder"
        )
    extensions: dict[str, Extension] = {}
    wrong: dict[str, str] = {}
    versions = dict(pins)
    for file in sorted(folder.glob("*.vsix")):
        try:
            vsix = read(file)
        except BrokenVsix as error:
            raise InvalidSetting(f"{file} is no VSIX file: {error}", hint="put a whole one there") from None
        if vsix.id not in versions:
            continue
        if vsix.version != versions[vsix.id]:
            wrong[vsix.id] = f"{file} is {vsix.id} {vsix.version}, not {versions[vsix.id]}"
        elif vsix.platform not in (UNIVERSAL, platform):
            wrong[vsix.id] = f"{file} is {vsix.id} for {vsix.platform}, not for {platform}"
        else:
            extensions[vsix.id] = Extension(
                vsix.id, vsix.version, download.sha256(file), f"file {file.name}", file
            )
    for id, problem in wrong.items():
        # Another version or platform does no harm beside the right one.
        if id not in extensions:
            raise InvalidSetting(problem, hint="put exactly that one there, or take the file away")
    return extensions
