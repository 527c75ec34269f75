"""Client side of retries: finds local files that differ from the tasks' sources, and sends the request."""

from __future__ import annotations

import asyncio
import hashlib
import importlib.util
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rayside.client.session import Session
from rayside.dap.framing import Message
from rayside.dap.group_commands import RETRYING
from rayside.errors import InvalidArgument

# Sends a request (command, arguments, timeout in seconds) to the relay; returns the body of the answer.
Ask = Callable[[str, Message, float], Message]
# Timeout in seconds for answers of the relay, in addition to the retry's own.
_PATIENCE = 30.0
# Limits in bytes: one edited file, and all of them; a request may have 8 MiB.
LONGEST, LONGEST_OF_ALL = 1_000_000, 4 * 1024 * 1024


@dataclass(frozen=True)
class Retry:
    """Retry that a user requests; `here_only`, `from_start` and `as_they_are` are as in relay/retries.py.

    Attributes:
        task: a task's name or title, a process id, a worker's id or its beginning, `@GROUP`; empty for all.
        thread: id of one task in the debug session, in place of `task`.
        within: timeout in seconds for the outcome.
    """

    task: str = ""
    thread: int = 0
    here_only: bool = False
    from_start: bool = False
    as_they_are: bool = False
    within: float = RETRYING

    def ask(self, ask: Ask) -> Message:
        """Sends the local files that differ, and requests the retry; returns the answer.

        Raises InvalidArgument, and the errors of `ask`.
        """
        files = differing(ask("sources", {}, _PATIENCE).get("files") or {})
        arguments: dict[str, Any] = {
            "files": [{"path": path, "text": text} for path, text in files.items()],
            "within": max(1, round(self.within)),
        }
        flags = {"hereOnly": self.here_only, "fromStart": self.from_start, "asTheyAre": self.as_they_are}
        arguments |= {name: True for name, value in flags.items() if value}
        task = self.task.strip()
        if self.thread:
            arguments["threadId"] = self.thread
        elif task.startswith("@"):
            arguments["group"] = task[1:].strip()
        elif task:
            arguments["task"] = task
        return ask("retry", arguments, self.within + _PATIENCE)


async def ask_in(session: Session, wanted: Retry) -> Message:
    """Requests a retry in a session; a separate thread reads the local files. Returns the answer."""
    loop = asyncio.get_running_loop()

    def ask(command: str, arguments: Message, timeout: float) -> Message:
        asked = session.client.request(command, arguments, timeout=timeout)
        return asyncio.run_coroutine_threadsafe(asked, loop).result()

    return await asyncio.to_thread(wanted.ask, ask)


def differing(files: Mapping[str, str]) -> dict[str, str]:
    """Returns the sources of local files whose SHA-256 differs from that in `files`, by path.

    Raises InvalidArgument if one is too long, or is no Python source.
    """
    texts = {}
    for path, sha256 in files.items():
        if not path.endswith(".py"):
            continue  # The paths come from processes of the cluster.
        try:
            content = Path(path).read_bytes() if Path(path).is_file() else None  # A pipe would block.
        except (OSError, ValueError):
            content = None
        if content is None:
            continue  # The job was submitted from another machine or folder.
        try:
            text = importlib.util.decode_source(content)
        except (SyntaxError, UnicodeError) as error:
            raise InvalidArgument(f"{path} is no Python source: {error}", hint="save it in UTF-8") from None
        if hashlib.sha256(text.encode()).hexdigest() != sha256:
            if len(content) > LONGEST:
                raise InvalidArgument(
                    f"{path} has more than {LONGEST:,} bytes", hint="submit the job again for a file so long"
                )
            texts[path] = text
    if sum(map(len, texts.values())) > LONGEST_OF_ALL:
        raise InvalidArgument(
            f"{len(texts)} edited files are too long together",
            hint="submit the job again for so large a change",
        )
    return texts
