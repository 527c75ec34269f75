"""Retries, as a debugger asks for them: the local files that differ from what tasks run, the request."""

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

# Sends a request to the relay, and returns the answer's body: its command, its arguments, seconds.
Ask = Callable[[str, Message, float], Message]
# Seconds for answers of the relay, besides the time for a retry itself.
_PATIENCE = 30.0
# The most bytes of an edited file, and of all: a request has 8 MiB at most.
LONGEST, LONGEST_OF_ALL = 1024 * 1024, 4 * 1024 * 1024


@dataclass(frozen=True)
class Retry:
    """A retry that a user asks for.

    Attributes:
        task: a task's name or title, a process id, a worker's id or its beginning, `@GROUP`; empty for all.
        thread: the row of one task, in place of `task`.
        here_only: whether the job's other workers keep the code that they have.
        from_start: whether a generator yields again what it has yielded.
        as_they_are: whether inputs that can't be taken anew are used as the failed call has left them.
        within: seconds until the outcome is left open.
    """

    task: str = ""
    thread: int = 0
    here_only: bool = False
    from_start: bool = False
    as_they_are: bool = False
    within: float = RETRYING

    def ask(self, ask: Ask) -> Message:
        """Sends the local files that differ, and has the failed calls made again; returns the answer.

        Raises InvalidArgument, and what `ask` raises.
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
    """Asks the relay in a session, from a thread, as local files are read; returns what `Retry.ask` does."""
    loop = asyncio.get_running_loop()

    def ask(command: str, arguments: Message, timeout: float) -> Message:
        asked = session.client.request(command, arguments, timeout=timeout)
        return asyncio.run_coroutine_threadsafe(asked, loop).result()

    return await asyncio.to_thread(wanted.ask, ask)


def differing(files: Mapping[str, str]) -> dict[str, str]:
    """Returns the texts of the local files whose SHA-256 is another, by path; `files` has what tasks run.

    Raises InvalidArgument where one is too long, or no Python text.
    """
    texts = {}
    for path, sha256 in files.items():
        if not path.endswith(".py"):
            continue  # Processes of the cluster name these paths.
        try:
            content = Path(path).read_bytes() if Path(path).is_file() else None  # A pipe would be waited for.
        except (OSError, ValueError):
            content = None
        if content is None:
            continue  # It was submitted from elsewhere.
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
