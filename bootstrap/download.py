"""Downloads with checksums: a file exists only if its checksum is right."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import tarfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from bootstrap.errors import BadChecksum, DownloadFailed
from rayside.settings import environment_name
from rayside.system.lock import alone

Report = Callable[[str], None]

# Timeouts in seconds to connect, and to read.
_PATIENCE = (10, 30)
# An interrupted transfer restarts from the beginning: the largest file has some 60 MB.
_TRIES = 3
_PIECE = 2**16
_MB = 10**6
_SHA256 = re.compile(r"[0-9a-fA-F]{64}")


def sha256(file: Path) -> str:
    """Returns the file's SHA-256, in hexadecimal."""
    digest = hashlib.sha256()
    with file.open("rb") as stream:
        while piece := stream.read(2**20):
            digest.update(piece)
    return digest.hexdigest()


@dataclass(frozen=True)
class Download:
    """A file at `url`; `setting` is the setting that can name a mirror."""

    url: str
    setting: str

    def fetch(self, file: Path, expected: str, report: Report) -> None:
        """Downloads `file` unless it exists; it is always complete, and its SHA-256 is `expected`.

        Requests takes proxies and CA certificates from the environment. Raises
        DownloadFailed, BadChecksum (then nothing is kept).
        """
        with alone(_beside(file, "lock"), lambda: report("another command is downloading it: waiting")):
            if file.exists():
                return
            draft = _beside(file, "part")
            try:
                self._receive(draft, report)
                digest = sha256(draft)
                if digest != expected:
                    raise BadChecksum(
                        f"{self.url} is not what was published: its checksum is {digest}, "
                        f"it should be {expected}",
                        hint="run the command again; if it stays so, correct "
                        f"{environment_name(self.setting)}",
                    )
                draft.replace(file)
            finally:
                draft.unlink(missing_ok=True)

    def text(self) -> str | None:
        """Returns the small text at `url`; None for HTTP 404. Raises DownloadFailed."""
        import requests

        try:
            answer = requests.get(self.url, timeout=_PATIENCE)
        except OSError as error:
            raise self.failed(reason(error)) from None
        if answer.status_code == requests.codes.not_found:
            return None
        if not answer.ok:
            raise self.failed(f"HTTP {answer.status_code} {answer.reason}")
        return answer.text

    def failed(self, why: str) -> DownloadFailed:
        """Returns the error for this reason, with a hint."""
        return DownloadFailed(
            f"{self.url} can't be downloaded: {why}",
            hint="set HTTPS_PROXY if this machine needs one, or name a mirror in "
            f"{environment_name(self.setting)}, then run the command again",
        )

    def _receive(self, draft: Path, report: Report) -> None:
        """Downloads to `draft`; retries an interrupted transfer."""
        for left in range(_TRIES - 1, -1, -1):
            try:
                self._request(draft, report)
                return
            except OSError as error:
                if not left:
                    raise self.failed(reason(error)) from None
                report(f"broke off ({reason(error)}): once more")

    def _request(self, draft: Path, report: Report) -> None:
        import requests

        with requests.get(self.url, timeout=_PATIENCE, stream=True) as answer, draft.open("wb") as stream:
            if not answer.ok:
                raise self.failed(f"HTTP {answer.status_code} {answer.reason}")
            length = answer.headers.get("Content-Length")
            total = f" of {int(length) / _MB:.0f}" if length else ""
            have, reported = 0, -1
            for piece in answer.iter_content(_PIECE):
                stream.write(piece)
                have += len(piece)
                if have // _MB != reported:
                    reported = have // _MB
                    report(f"{reported}{total} MB")
            # Else the renamed file could be empty after a power failure, and it is never checked again.
            stream.flush()
            os.fsync(stream.fileno())


def published(files: Sequence[Download], name: str) -> str:
    """Returns the SHA-256 of `name`, from the first of these checksum files that the server has.

    Raises DownloadFailed.
    """
    for file in files:
        if (text := file.text()) is not None:
            if digest := checksum(text, name):
                return digest
            raise file.failed(f"it has no SHA-256 of {name}")
    raise files[0].failed("HTTP 404, it is not there")


def checksum(text: str, name: str) -> str | None:
    """Returns the SHA-256 of `name` in a checksum file, in lower case; None if it has none.

    The file is a bare checksum, or what `sha256sum` writes: `<checksum>  <name>` or
    `<checksum> *<name>`, a line for each file.
    """
    for line in text.splitlines():
        words = line.split(maxsplit=1)
        if not words or not _SHA256.fullmatch(words[0]):
            continue
        bare = len(words) == 1 and text.split() == words
        if bare or (len(words) == 2 and PurePosixPath(words[1].strip().lstrip("*")).name == name):
            return words[0].lower()
    return None


def extract(archive: Path, member: str, file: Path) -> None:
    """Extracts the regular file `member` of a .tar.gz to `file`. Raises DownloadFailed if it is missing."""
    with tarfile.open(archive) as tar:
        found_entry = next((entry for entry in tar if entry.name.removeprefix("./") == member), None)
        content = tar.extractfile(found_entry) if found_entry and found_entry.isreg() else None
        if content is None:
            raise DownloadFailed(
                f"{archive.name} has no program {member} in it",
                hint="./invokew up --source packages builds it instead",
            )
        with content, file.open("wb") as stream:
            shutil.copyfileobj(content, stream)


def innermost(error: Exception) -> Exception:
    """Returns the innermost cause of a failed request."""
    while True:
        inner = getattr(error, "reason", None) or next(
            (a for a in error.args if isinstance(a, Exception)), None
        )
        if not isinstance(inner, Exception):
            return error
        error = inner


def reason(error: Exception) -> str:
    """Returns the innermost cause of a failed request, without the wrapping that Requests puts round it."""
    # The text before it, HTTPSConnection(host=..., port=...), says less than the address does.
    return str(innermost(error)).rpartition("): ")[2]


def _beside(file: Path, suffix: str) -> Path:
    return file.with_name(f".{file.name}.{suffix}")
