"""Gets the workspace's extensions: ours, and others' pinned ones from a gallery or a folder of VSIX files."""

from __future__ import annotations

import json
import platform
import re
import time
import zipfile
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bootstrap import cache, download
from bootstrap.download import Download
from bootstrap.errors import BadChecksum, DownloadFailed, InvalidSetting
from bootstrap.private_file import write_private
from bootstrap.settings import EXTENSIONS, ROOT, Settings
from bootstrap.sources.digests import RECORDED, Digests
from bootstrap.step import Report, Status, missing, ready

# Ray Breakpoints is packed by its `pack`.
OWN = ROOT / "image" / "extension"
# A gallery that did not answer, or lacked an extension, is asked again after so many seconds.
_A_DAY = 86_400
# It finds a VSIX's platform, where it is not for all of them.
_PLATFORM = re.compile(r'<Identity\b[^>]*\bTargetPlatform="([^"]+)"')
_UNIVERSAL = "universal"
_PREPARE = "./invokew prepare asks again, and vsix_folder names a folder to have them from"


@dataclass(frozen=True)
class Extension:
    """An extension that was got: `source` is the gallery's address, or the name of the file it is from."""

    id: str
    version: str
    sha256: str
    source: str
    file: Path

    def document(self) -> dict[str, str]:
        """Returns it as `extensions.json` beside the installed ones lists it."""
        return {"id": self.id, "version": self.version, "sha256": self.sha256, "from": self.source}


@dataclass(frozen=True)
class Extensions:
    """The settings' extensions, each in exactly its version; without those that the gallery does not give.

    A folder's files are used where they lie, a gallery's are kept in the cache.

    Attributes:
        platform: VS Code's name for it: linux-x64, darwin-arm64 ...
        since: a gallery that was asked before this moment (seconds since 1970) and did not have them all
            is asked again.
        in_use: whether a cluster runs with what was got. Only where none does, a day is enough to ask
            again: other extensions would be another workspace.
    """

    settings: Settings
    platform: str
    since: float = 0.0
    in_use: Callable[[], bool] = lambda: False
    pins: Sequence[tuple[str, str]] = field(default=EXTENSIONS)
    name: str = "extensions"
    title: str = "extensions for the workspace"
    needs: tuple[str, ...] = ("disk",)
    patience: float = 0.0
    # It has the digests that the repository records.
    recorded: Path = RECORDED

    def got(self) -> list[Extension]:
        """Returns the extensions that it has now, in the order of the settings. Raises InvalidSetting."""
        if self.settings.vsix_folder:
            return self._of_folder()
        kept = [extension for entry in self._record["got"] if (extension := self._kept(entry)).file.exists()]
        return [
            extension
            for extension in kept
            if self._digests.of(self._name(extension.id, extension.version)) in (None, extension.sha256)
        ]

    def check(self) -> Status:
        """Checks what it has. Raises InvalidSetting, which names the file that is wrong."""
        got = self.got()
        absent = self._absent(got)
        if self.settings.vsix_folder:
            lacks = f"; there is no {_listed(absent)}" if absent else ""
            return ready(f"{_described(got)} from {self.settings.vsix_folder}{lacks}")
        if not absent:
            return ready(f"{_described(got)} from {self._gallery}")
        record = self._record
        why, asked = record["missing"], record["asked"]
        old = asked < self.since or (asked < time.time() - _A_DAY and not self.in_use())
        if {id for id, _ in absent} - why.keys() or old:
            return missing(f"{self._gallery} is to be asked{' again' if why else ''}")
        reasons = "; ".join(sorted(set(why.values())))
        return ready(f"{_described(got)}; without {_listed(absent)}: {reasons}; {_PREPARE}")

    def apply(self, report: Report) -> None:
        """Raises BadChecksum."""
        got = {extension.id: extension for extension in self.got()}
        why: dict[str, str] = {}
        for number, (id, version) in enumerate(self.pins):
            if id in got:
                continue
            try:
                got[id] = self._fetch(id, version, report)
            except _NoAnswer as error:
                # The others would only take as long to fail.
                why |= {other: error.message for other, _ in self.pins[number:] if other not in got}
                break
            except DownloadFailed as error:
                why[id] = error.message
        record = {
            "asked": time.time(),
            "got": [got[id].document() for id, _ in self.pins if id in got],
            "missing": why,
        }
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        write_private(self._record_file, json.dumps(record, indent=2))
        if why:
            report(
                f"going on without {_listed(self._absent(list(got.values())))}: {next(iter(why.values()))}"
            )

    def undo(self, report: Report) -> None:
        """Does nothing: the cache stays."""

    # --- a gallery -----------------------------------------------------------------------

    @property
    def _gallery(self) -> str:
        return self.settings.extension_gallery.rstrip("/")

    @property
    def _folder(self) -> Path:
        return self.settings.cache_folder / "extensions"

    @property
    def _record_file(self) -> Path:
        return self._folder / f"{cache.key(self._gallery, self.platform, json.dumps(self.pins))}.json"

    @property
    def _record(self) -> dict[str, Any]:
        """Returns when the gallery was asked, what was got, and why what is missing is missing."""
        try:
            return dict(json.loads(self._record_file.read_text()))
        except (FileNotFoundError, ValueError):
            return {"asked": 0.0, "got": [], "missing": {}}

    def _kept(self, entry: dict[str, str]) -> Extension:
        file = self._folder / f"{entry['id']}-{entry['version']}-{entry['sha256'][:12]}.vsix"
        return Extension(entry["id"], entry["version"], entry["sha256"], entry["from"], file)

    def _fetch(self, id: str, version: str, report: Report) -> Extension:
        """Fetches one extension. Raises DownloadFailed (_NoAnswer where nobody answers), BadChecksum."""
        vsix, checksum = self._files(id, version)
        name = f"{id}-{version}"
        expected = self._digests.of(self._name(id, version)) or checksum()
        got = self._kept({"id": id, "version": version, "sha256": expected, "from": self._gallery})
        report(name)
        got.file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        Download(vsix, "extension_gallery").fetch(
            got.file, expected, lambda progress: report(f"{name}: {progress}")
        )
        try:
            content = _read(got.file)
            actual = (
                "" if (content.id, content.version) == (id, version) else f"{content.id} {content.version}"
            )
        except _Broken as error:
            actual = f"no VSIX file ({error})"
        if actual:
            got.file.unlink()
            raise BadChecksum(
                f"{vsix} is not {id} {version}: it is {actual}",
                hint="correct extension_gallery, or set vsix_folder",
            )
        self._digests.keep(self._name(id, version), expected, report)
        return got

    def published(self) -> dict[str, Callable[[], str]]:
        """Returns a function for each, by its recorded name, that asks the gallery for its SHA-256."""

        def asking(id: str, version: str) -> Callable[[], str]:
            return lambda: self._files(id, version)[1]()

        return {self._name(id, version): asking(id, version) for id, version in self.pins}

    def _files(self, id: str, version: str) -> tuple[str, Callable[[], str]]:
        """Returns the VSIX's address, and a function that fetches its SHA-256. Raises DownloadFailed."""
        files = self._ask(id, version)
        try:
            vsix, checksum = str(files["download"]), str(files["sha256"])
        except (KeyError, TypeError):
            raise self._at(f"/{id}").failed(f"it names no file, or no SHA-256, of {id} {version}") from None
        sums = (Download(checksum, "extension_gallery"),)
        return vsix, lambda: download.published(sums, vsix.rsplit("/", 1)[-1])

    def _name(self, id: str, version: str) -> str:
        """Returns the name under which its digest is recorded."""
        return f"{id}-{version}-{self.platform}"

    @property
    def _digests(self) -> Digests:
        return Digests(self.settings.cache_folder, self.recorded)

    def _ask(self, id: str, version: str) -> dict[str, Any]:
        """Returns the gallery's `files` of the version for this platform, or of the version for all.

        https://open-vsx.org/swagger-ui/index.html
        """
        extension = "/".join(id.split(".", 1))
        of_platform = self._document(f"/{extension}/{self.platform}/{version}")
        if of_platform is not None:
            return dict(of_platform.get("files", {}))
        universal = self._document(f"/{extension}/{version}")
        if universal is None or universal.get("targetPlatform", _UNIVERSAL) not in (
            _UNIVERSAL,
            self.platform,
        ):
            raise self._at(f"/{extension}").failed(f"it has no {id} {version} for {self.platform}")
        return dict(universal.get("files", {}))

    def _document(self, path: str) -> dict[str, Any] | None:
        asked = self._at(path)
        try:
            text = asked.text()
        except DownloadFailed as error:
            raise _NoAnswer(f"the gallery does not answer: {error.message}", hint=error.hint) from None
        if text is None:
            return None
        try:
            document = json.loads(text)
            return document if isinstance(document, dict) else None
        except ValueError:
            raise asked.failed("what it says is no JSON") from None

    def _at(self, path: str) -> Download:
        return Download(f"{self._gallery}/api{path}", "extension_gallery")

    # --- a folder ------------------------------------------------------------------------

    def _of_folder(self) -> list[Extension]:
        folder = Path(self.settings.vsix_folder).expanduser().absolute()
        if not folder.is_dir():
            raise InvalidSetting(
                f"vsix_folder is {folder}, and there is no such folder", hint="correct vsix_folder"
            )
        extensions: dict[str, Extension] = {}
        wrong: dict[str, str] = {}
        versions = dict(self.pins)
        for file in sorted(folder.glob("*.vsix")):
            try:
                vsix = _read(file)
            except _Broken as error:
                raise InvalidSetting(
                    f"{file} is no VSIX file: {error}", hint="put a whole one there"
                ) from None
            if vsix.id not in versions:
                continue
            if vsix.version != versions[vsix.id]:
                wrong[vsix.id] = f"{file} is {vsix.id} {vsix.version}, not {versions[vsix.id]}"
            elif vsix.platform not in (_UNIVERSAL, self.platform):
                wrong[vsix.id] = f"{file} is {vsix.id} for {vsix.platform}, not for {self.platform}"
            else:
                extensions[vsix.id] = Extension(
                    vsix.id, vsix.version, download.sha256(file), f"file {file.name}", file
                )
        for id, problem in wrong.items():
            # Another version or platform does no harm beside the right one.
            if id not in extensions:
                raise InvalidSetting(problem, hint="put exactly that one there, or take the file away")
        return [extensions[id] for id in versions if id in extensions]

    def _absent(self, got: Sequence[Extension]) -> list[tuple[str, str]]:
        present = {extension.id for extension in got}
        return [(id, version) for id, version in self.pins if id not in present]


class _NoAnswer(DownloadFailed):
    """Nobody answers who could say whether the extension exists."""


class _Broken(Exception):
    """A file is no VSIX; the message says why."""


@dataclass(frozen=True)
class _Vsix:
    id: str
    version: str
    platform: str


def _read(file: Path) -> _Vsix:
    """Reads what is in the file, whatever its name is. Raises _Broken."""
    try:
        with zipfile.ZipFile(file) as archive:
            package = json.loads(archive.read("extension/package.json"))
            manifest = archive.read("extension.vsixmanifest").decode(errors="replace")
        target = _PLATFORM.search(manifest)
        id = f"{package['publisher']}.{package['name']}".lower()
        return _Vsix(id, str(package["version"]), target.group(1) if target else _UNIVERSAL)
    except KeyError as error:
        raise _Broken(f"{error.args[0]}") from None
    except (OSError, zipfile.BadZipFile, zlib.error, EOFError, ValueError, TypeError) as error:
        raise _Broken(f"{error}") from None


def image_extensions(settings: Settings) -> Extensions:
    """Returns the extensions of the workspace's image."""
    return Extensions(settings, this_platform("linux"))


def this_platform(system: str = "") -> str:
    """Returns VS Code's name for this machine, or for an editor of another `system` on it."""
    machine = {"x86_64": "x64", "amd64": "x64", "aarch64": "arm64"}.get(platform.machine().lower())
    return f"{system or platform.system().lower()}-{machine or platform.machine().lower()}"


def own_files() -> list[Path]:
    """Returns the files that Ray Breakpoints is packed from, without its tests and what npm puts there."""
    unwanted = {"node_modules", "test"}
    return sorted(
        file
        for file in OWN.rglob("*")
        if file.is_file() and not unwanted & set(file.relative_to(OWN).parts[:-1])
    )


def _described(got: Sequence[Extension]) -> str:
    return _listed([(extension.id, extension.version) for extension in got]) if got else "none but ours"


def _listed(extensions: Sequence[tuple[str, str]]) -> str:
    return ", ".join(f"{id} {version}" for id, version in extensions)
