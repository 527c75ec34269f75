"""Released programs: downloaded, and used only with the right checksum."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from bootstrap import cache, download
from bootstrap.download import Download
from bootstrap.settings import ORAS_VERSION, Settings
from bootstrap.sources.digests import Digests
from rayside.steps.step import Report, Status, missing, ready

ORAS = f"oras {ORAS_VERSION}, the registry client"


@dataclass(frozen=True)
class Program:
    """A released program in a folder of the cache; `member` is its name in a .tar.gz, if it is in one.

    `checksums` are the release's own, used if no digest is recorded yet.
    """

    name: str
    title: str
    released: Download
    checksums: tuple[Download, ...]
    folder: Path
    digests: Digests
    member: str | None = None
    needs: tuple[str, ...] = ("disk",)

    @property
    def file(self) -> Path:
        return self.folder / self.name

    @property
    def record(self) -> str:
        """Returns its digest's name."""
        return self.folder.name

    @property
    def recorded(self) -> str | None:
        """Returns the digest that it must have; None if none is known yet."""
        return self.digests.of(self.record)

    def check(self) -> Status:
        return ready(str(self.file)) if self.file.exists() else missing("not downloaded yet")

    def apply(self, report: Report) -> None:
        """Downloads it. Raises DownloadFailed, BadChecksum."""
        asset = self.released.url.rsplit("/", 1)[1]
        fetched = self.folder.with_name("downloads") / f"{self.folder.name}-{asset}"
        with cache.making(self.folder, report) as draft:
            if draft is None:
                return
            expected = self.recorded or self.published()
            self.released.fetch(fetched, expected, report)
            self.digests.keep(self.record, expected, report)
            program = draft / self.name
            if self.member:
                download.extract(fetched, self.member, program)
            else:
                shutil.copyfile(fetched, program)
            program.chmod(0o755)
            fetched.unlink()

    def published(self) -> str:
        """Returns the SHA-256 in the release's own checksum file. Raises DownloadFailed."""
        return download.published(self.checksums, self.released.url.rsplit("/", 1)[1])


def released_oras(settings: Settings, digests: Digests, system: str, architecture: str) -> Program:
    """Returns the step that downloads oras' release for that system and architecture."""
    release = f"{settings.oras_releases.rstrip('/')}/v{ORAS_VERSION}/oras_{ORAS_VERSION}"
    return Program(
        name="oras",
        title=ORAS,
        released=Download(f"{release}_{system}_{architecture}.tar.gz", "oras_releases"),
        checksums=(Download(f"{release}_checksums.txt", "oras_releases"),),
        folder=settings.cache_folder / f"oras-{ORAS_VERSION}-{system}-{architecture}",
        digests=digests,
        member="oras",
    )
