"""Extensions of the workspace: ours, and pinned third-party ones from a gallery or a folder of VSIX files."""

from __future__ import annotations

import json
import platform as this_machine
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from bootstrap.errors import BadChecksum, DownloadFailed
from bootstrap.settings import EXTENSIONS, ROOT, Settings
from bootstrap.sources.digests import RECORDED, Digests
from bootstrap.sources.gallery import Gallery
from bootstrap.sources.source import Supply, supply
from bootstrap.sources.vsix import BrokenVsix, Extension, of_folder, read
from rayside.errors import InvalidSetting
from rayside.private_file import write_private
from rayside.settings import environment_name
from rayside.steps.step import Report, Status, missing, ready

# Ray Breakpoints is packed by its `pack`, which makes its walkthroughs from the labs.
OWN = ROOT / "vscode"
_LABS = ROOT / "example" / "labs"
Pins = Sequence[tuple[str, str]]
_MORE = "./invokew prepare asks again, for the next cluster, and vsix_folder names a folder to have them from"


@dataclass(frozen=True)
class Variant:
    """The pinned extensions of a workspace, and the absent ones.

    `variant` chooses them once, at the start of a command, as the workspace image's tag depends on them.

    Attributes:
        origin: the gallery's address, or the folder.
        platform: VS Code's name for it: linux-x64, darwin-arm64 ...
        extensions: the available ones, in the order of the pins.
        absent: the others, as in `acme.snake 1.2.3`, each with the reason, which is empty for a folder.
        problem: why the folder can't be used; the step raises it, so that other verbs continue without.
    """

    origin: str
    platform: str
    extensions: tuple[Extension, ...] = ()
    absent: tuple[tuple[str, str], ...] = ()
    problem: InvalidSetting | None = None

    def __str__(self) -> str:
        """Returns a description in one line."""
        has = _listed(self.extensions) or "none but ours"
        if not self.absent:
            return f"{has} from {self.origin}"
        names = ", ".join(name for name, _ in self.absent)
        reasons = "; ".join(sorted({reason for _, reason in self.absent if reason}))
        if not reasons:
            return f"{has} from {self.origin}; there is no {names}"
        return f"{has}; without {names}: {reasons}; {_MORE}"

    def text(self) -> str:
        """Returns its record for a cluster's folder."""
        extensions = [extension.document() for extension in self.extensions]
        document = {"origin": self.origin, "platform": self.platform, "extensions": extensions}
        return json.dumps({**document, "absent": self.absent}, indent=2)


def variant(
    settings: Settings,
    *,
    ask: bool = False,
    record: Path | None = None,
    platform: str = "",
    pins: Pins = EXTENSIONS,
    recorded: Path = RECORDED,
) -> Variant:
    """Chooses the pinned extensions of a workspace; only reads files, unless `ask`.

    A folder of VSIX files in the settings has priority. Else an existing cluster keeps its extensions,
    recorded in the file `record` of its folder. A new cluster gets the cached extensions and, if `ask`, the
    ones that the gallery offers, which takes 3 s at most without a response. Raises InvalidSetting, which
    names the wrong file.

    Args:
        platform: VS Code's name for it; default: the workspace image's.
        recorded: the file with the digests that the repository records.
    """
    platform = platform or this_platform("linux")
    if settings.vsix_folder:
        folder = Path(settings.vsix_folder).expanduser().absolute()
        try:
            in_folder = of_folder(folder, pins, platform)
        except InvalidSetting as error:
            return Variant(settings.vsix_folder, platform, problem=error)
        return _with(in_folder, pins, settings.vsix_folder, platform, lambda id: "")
    digests, gallery = Digests(settings.cache_folder, recorded), _gallery(settings, platform)
    if record and (kept := _kept(record, settings, platform, pins, digests)):
        return kept

    def digest(id: str, version: str) -> str | None:
        return digests.of(_record(id, version, platform))

    def extension(id: str, version: str, sha256: str) -> Extension:
        return _cached(settings, id, version, sha256, gallery.address)

    known = [extension(id, version, sha256) for id, version in pins if (sha256 := digest(id, version))]
    has = {each.id: each for each in known if each.file.exists()}
    lacking = [(id, version) for id, version in pins if id not in has]
    reasons: dict[str, str] = {}
    if lacking and ask:
        given, reasons = gallery.digests(lacking, digest)
        has |= {id: extension(id, version, given[id]) for id, version in lacking if id in given}
    return _with(
        has, pins, gallery.address, platform, lambda id: reasons.get(id, "the gallery was not asked")
    )


@dataclass(frozen=True)
class Extensions:
    """The extensions of `variant`, in the cache or in the folder of VSIX files.

    A failed download is an error: with fewer extensions the image would differ from the one that the rest of
    the command expects. If only the gallery's files can't be reached, a folder helps.

    Attributes:
        record: file with the variant in the cluster's folder; None without a cluster, as in `prepare`.
        recorded: the file with the digests that the repository records.
    """

    settings: Settings
    variant: Variant
    record: Path | None = None
    recorded: Path = RECORDED
    name: str = "extensions"
    title: str = "extensions for the workspace"

    @property
    def needs(self) -> tuple[str, ...]:
        return ("disk", "state-folder") if self.record else ("disk",)

    @property
    def supplies(self) -> tuple[Supply, ...]:
        """Returns each extension as a source's artifact."""
        platform = self.variant.platform
        return tuple(
            supply(self, "extension", each.file, name=each.id, digest=each.sha256, platform=platform)
            for each in self.variant.extensions
        )

    def check(self) -> Status:
        if self.variant.problem:
            raise self.variant.problem
        if absent := self._absent():
            return missing(f"{_listed(absent)} not fetched from {self.variant.origin} yet")
        if self.record and not (self.record.exists() and self.record.read_text() == self.variant.text()):
            return missing("not chosen yet")
        return ready(str(self.variant))

    def apply(self, report: Report) -> None:
        """Fetches missing extensions, and records the choice. Raises DownloadFailed, BadChecksum."""
        for extension in self._absent():
            try:
                self._fetch(extension, report)
            except DownloadFailed as error:
                raise DownloadFailed(
                    f"{extension} was not fetched: {error.message}",
                    hint="run the command again, or name a folder with the files, which may be empty, in "
                    f"{environment_name('vsix_folder')}",
                ) from None
        if self.record:
            write_private(self.record, self.variant.text())

    def _absent(self) -> list[Extension]:
        return [extension for extension in self.variant.extensions if not extension.file.exists()]

    def _fetch(self, extension: Extension, report: Report) -> None:
        """Fetches one extension. Raises DownloadFailed, BadChecksum."""
        vsix, _ = _gallery(self.settings, self.variant.platform).files(extension.id, extension.version)
        report(str(extension))
        extension.file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        vsix.fetch(extension.file, extension.sha256, lambda progress: report(f"{extension}: {progress}"))
        try:
            content = read(extension.file)
            same = (content.id, content.version) == (extension.id, extension.version)
            actual = "" if same else f"{content.id} {content.version}"
        except BrokenVsix as error:
            actual = f"no VSIX file ({error})"
        if actual:
            extension.file.unlink()
            raise BadChecksum(
                f"{vsix.url} is not {extension}: it is {actual}",
                hint="correct extension_gallery, or set vsix_folder",
            )
        record = _record(extension.id, extension.version, self.variant.platform)
        Digests(self.settings.cache_folder, self.recorded).keep(record, extension.sha256, report)


def published(settings: Settings, platform: str, pins: Pins = EXTENSIONS) -> dict[str, Callable[[], str]]:
    """Returns a function for each pin, by recorded name, that gets its SHA-256 from the gallery."""

    def asking(id: str, version: str) -> Callable[[], str]:
        return lambda: _gallery(settings, platform).files(id, version)[1]()

    return {_record(id, version, platform): asking(id, version) for id, version in pins}


def this_platform(system: str = "", architecture: str = "") -> str:
    """Returns VS Code's platform name for this machine, or another `system` or `architecture`."""
    machine = architecture or this_machine.machine().lower()
    name = {"x86_64": "x64", "amd64": "x64", "aarch64": "arm64"}.get(machine, machine)
    return f"{system or this_machine.system().lower()}-{name}"


def own_files() -> dict[str, Path]:
    """Returns the files of Ray Breakpoints' package, by name in the folder of its `pack`.

    Its tests and npm's files are not among them.
    """
    unwanted = {"node_modules", "test"}
    files = {file.relative_to(OWN): file for file in sorted(OWN.rglob("*")) if file.is_file()}
    return {name.as_posix(): file for name, file in files.items() if not unwanted & set(name.parts[:-1])}


def lab_files() -> dict[str, Path]:
    """Returns the files of its walkthroughs, by name in the folder of the labs.

    For most of them only the name counts.
    """
    files = (file for file in sorted(_LABS.rglob("*")) if file.is_file() and "__pycache__" not in file.parts)
    return {file.relative_to(_LABS).as_posix(): file for file in files}


def _with(
    has: dict[str, Extension], pins: Pins, origin: str, platform: str, reason: Callable[[str], str]
) -> Variant:
    extensions = tuple(has[id] for id, _ in pins if id in has)
    absent = tuple((f"{id} {version}", reason(id)) for id, version in pins if id not in has)
    return Variant(origin, platform, extensions, absent)


def _kept(record: Path, settings: Settings, platform: str, pins: Pins, digests: Digests) -> Variant | None:
    """Returns the cluster's recorded variant; None if it is for other settings, pins or digests."""
    try:
        document = json.loads(record.read_text())
        extensions = tuple(
            _cached(settings, each["id"], each["version"], each["sha256"], each["from"])
            for each in document["extensions"]
        )
        absent = tuple((name, reason) for name, reason in document["absent"])
        kept = Variant(document["origin"], document["platform"], extensions, absent)
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return None
    names = {*map(str, extensions), *(name for name, _ in absent)}
    same = (kept.origin, kept.platform) == (_gallery(settings, platform).address, platform)
    if not same or names != {f"{id} {version}" for id, version in pins}:
        return None
    held = all(
        digests.of(_record(each.id, each.version, platform)) in (None, each.sha256) for each in extensions
    )
    return kept if held else None


def _gallery(settings: Settings, platform: str) -> Gallery:
    return Gallery(settings.extension_gallery.rstrip("/"), platform)


def _cached(settings: Settings, id: str, version: str, sha256: str, source: str) -> Extension:
    """Returns the extension with its path in the cache, which may not exist yet."""
    file = settings.cache_folder / "extensions" / f"{id}-{version}-{sha256[:12]}.vsix"
    return Extension(id, version, sha256, source, file)


def _record(id: str, version: str, platform: str) -> str:
    """Returns the name under which an extension's digest is recorded."""
    return f"{id}-{version}-{platform}"


def _listed(extensions: Sequence[Extension]) -> str:
    return ", ".join(map(str, extensions))
