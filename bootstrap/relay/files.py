"""Reads debuggees' source files through their own debuggers: the relay may run elsewhere."""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
import time
from collections.abc import Hashable
from dataclasses import dataclass

from bootstrap.dap.client import QUIETLY, Client
from bootstrap.errors import RequestFailed
from bootstrap.hook.evaluated import line_table
from bootstrap.relay.lines import Lines
from bootstrap.relay.sent import LINE_TABLE

# Packages are named by the hash of what is in them, so their files never change.
_PACKAGE = re.compile(r"/(?:working_dir|py_modules)_files/(_ray_pkg_[^/]+/.+)$")
# Seconds for which any other file is taken as unchanged: many debuggees are asked for it at once.
_FRESH = 5.0
# Seconds to wait for what another debuggee was asked for already; each answers within milliseconds.
_PATIENCE = 0.2


@dataclass(frozen=True)
class File:
    """Describes a file; `lines` is None where it is not a Python source."""

    sha256: str
    lines: Lines | None


class Files:
    """Keeps what was read; every debuggee that unpacked the same package has the same files."""

    def __init__(self) -> None:
        self._read: dict[Hashable, tuple[float, asyncio.Future[File | None]]] = {}

    async def read(self, client: Client, node: str, path: str, *, timeout: float) -> File | None:
        """Returns the file, None where there is none; `timeout` is in seconds.

        Raises:
            RequestFailed, DebuggerGone: as `Client.request`.
        """
        package = _PACKAGE.search(path)
        key: Hashable = package[1] if package else (node, path)
        since, reading = self._read.get(key, (0.0, None))
        if reading is not None and (package or time.monotonic() - since < _FRESH):
            # The debuggee that was asked may be frozen, or have ended.
            await asyncio.wait({reading}, timeout=_PATIENCE)
            if reading.done() and not reading.cancelled() and reading.exception() is None:
                return reading.result()
        reading = asyncio.ensure_future(_read(client, path, timeout))
        self._read[key] = (time.monotonic(), reading)
        reading.add_done_callback(lambda done: self._done(key, done))
        return await asyncio.shield(reading)

    def _done(self, key: Hashable, reading: asyncio.Future[File | None]) -> None:
        failed = reading.cancelled() or reading.exception() is not None
        if failed and self._read.get(key, (0.0, None))[1] is reading:
            del self._read[key]

    def clear(self) -> None:
        self._read.clear()


def own(path: str) -> str | None:
    """Returns the SHA-256, in hex, of a file of this machine; None where it can't be read."""
    try:
        with open(path, "rb") as file:  # noqa: PTH123 (the path is the editor's string)
            return hashlib.sha256(file.read()).hexdigest()
    except (OSError, ValueError):
        return None


async def _read(client: Client, path: str, timeout: float) -> File | None:
    expression = LINE_TABLE.value("answer", path)
    answer = await client.request("evaluate", {"expression": expression, "context": QUIETLY}, timeout=timeout)
    text = str(answer.get("result", ""))
    try:
        document = json.loads(text) if len(text) <= line_table.LONGEST_ANSWER else None
    except (ValueError, RecursionError) as error:
        raise RequestFailed(f"{path} can't be read: {error}", hint="Try again.") from error
    if not isinstance(document, dict) or not isinstance(document.get("sha256"), str):
        return None
    return File(document["sha256"], Lines.read(document.get("lines")))
