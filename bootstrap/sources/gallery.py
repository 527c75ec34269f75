"""Client of an extension gallery with Open VSX's API (https://open-vsx.org/swagger-ui/index.html)."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from bootstrap import download
from bootstrap.download import Download
from bootstrap.errors import DownloadFailed
from bootstrap.sources.vsix import UNIVERSAL

# Timeouts in seconds for a gallery's first response, and for all: a name that can't be resolved fails at
# once, but a firewall that drops packets never responds.
_SIGN_OF_LIFE, _EVERYTHING = 3.0, 10.0
_NO_ANSWER = "the gallery does not answer"


class NoAnswer(DownloadFailed):
    """No response: it is unknown whether the extension exists."""


@dataclass(frozen=True)
class Gallery:
    """The gallery at `address`, for one `platform`, by VS Code's name."""

    address: str
    platform: str

    def files(self, id: str, version: str) -> tuple[Download, Callable[[], str]]:
        """Returns the VSIX, and a function that asks for its SHA-256. Raises DownloadFailed, NoAnswer."""
        named = self._named_files(id, version)
        try:
            vsix, checksum = str(named["download"]), str(named["sha256"])
        except (KeyError, TypeError):
            raise self._at(f"/{id}").failed(f"it names no file, or no SHA-256, of {id} {version}") from None
        sums = (_download(checksum),)
        return _download(vsix), lambda: download.published(sums, vsix.rsplit("/", 1)[-1])

    def digests(
        self, pins: Sequence[tuple[str, str]], known: Callable[[str, str], str | None]
    ) -> tuple[dict[str, str], dict[str, str]]:
        """Asks for all `pins`, which takes 13 s at most, and 3 s without a response.

        `known` returns the recorded digest of an id and a version; the gallery is asked for the others.

        Returns:
            The digest, by id, of each that the gallery has; and the reasons for missing ones.
        """
        digests: dict[str, str] = {}
        reasons: dict[str, str] = {}
        answered = threading.Event()

        def ask() -> None:
            for number, (id, version) in enumerate(pins):
                try:
                    _, published = self.files(id, version)
                    answered.set()
                    digests[id] = known(id, version) or published()
                except NoAnswer as error:
                    # The others would only take as long to fail.
                    reasons.update((other, error.message) for other, _ in pins[number:])
                    break
                except DownloadFailed as error:
                    reasons[id] = error.message
                finally:
                    answered.set()

        # A daemon thread, so that nobody waits for a name resolution that hangs.
        thread = threading.Thread(target=ask, daemon=True)
        thread.start()
        patience = _EVERYTHING if answered.wait(_SIGN_OF_LIFE) else 0.0
        thread.join(patience)
        late = f"{_NO_ANSWER}: {self.address}: not within {patience or _SIGN_OF_LIFE:g} s"
        given = dict(digests)
        return given, {id: reasons.get(id, late) for id, _ in pins if id not in given}

    def _named_files(self, id: str, version: str) -> dict[str, Any]:
        """Returns the gallery's `files` of the version for this platform, or of the version for all."""
        extension = "/".join(id.split(".", 1))
        of_platform = self._document(f"/{extension}/{self.platform}/{version}")
        if of_platform is not None:
            return dict(of_platform.get("files", {}))
        universal = self._document(f"/{extension}/{version}")
        if universal is None or universal.get("targetPlatform", UNIVERSAL) not in (UNIVERSAL, self.platform):
            raise self._at(f"/{extension}").failed(f"it has no {id} {version} for {self.platform}")
        return dict(universal.get("files", {}))

    def _document(self, path: str) -> dict[str, Any] | None:
        asked = self._at(path)
        try:
            text = asked.text()
        except DownloadFailed as error:
            raise NoAnswer(f"{_NO_ANSWER}: {error.message}", hint=error.hint) from None
        if text is None:
            return None
        try:
            document = json.loads(text)
            return document if isinstance(document, dict) else None
        except ValueError:
            raise asked.failed("what it says is no JSON") from None

    def _at(self, path: str) -> Download:
        return _download(f"{self.address}/api{path}")


def _download(url: str) -> Download:
    return Download(url, "extension_gallery")
