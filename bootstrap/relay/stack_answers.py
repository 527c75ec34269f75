"""Reads what all threads of one debuggee do now: asks it, and takes its answer, which is not trusted."""

from __future__ import annotations

import time
from collections.abc import Callable

from bootstrap.hook.evaluated.stacks import LONGEST, MOST, MOST_FRAMES
from bootstrap.relay.answers import SILENT, Answer, taken
from bootstrap.relay.rules import Flag, Many, NotDap, Number, Rule, Text, record
from bootstrap.relay.sent import STACKS
from bootstrap.relay.stack_tree import Frame
from bootstrap.relay.worker import Worker

# The most characters of a debuggee's answer (stacks.py there sends up to 8,000 frames), and the most files in
# all answers, of each of which is looked up whether the editor has it.
_LONGEST, _FILES = 2_000_000, 1_000

_EXPRESSION = STACKS.value("stacks")
_FLAG, _NUMBER, _NAME = Flag(), Number(), Text(LONGEST)


async def read(worker: Worker, rule: Rule, timeout: float) -> Answer:
    """Returns what a debuggee says within so many seconds, as `rule_of` takes it. Raises DebuggerGone."""
    began = time.monotonic()
    text = await worker.connection.literal(_EXPRESSION, timeout=timeout)
    if text is None and time.monotonic() - began >= timeout:
        return SILENT
    return taken(text, rule, _LONGEST)


class _FrameRule:
    """Takes a frame as stacks.py sends it; each new one once, for a thousand processes have the same."""

    def __init__(self, local: Callable[[str], str | None]) -> None:
        self._local = local
        self._known: dict[tuple[object, ...], Frame] = {}
        self._files: dict[str, str | None] = {}

    def take(self, value: object, place: str) -> Frame:
        """Returns the frame with the editor's path. Raises NotDap."""
        if not isinstance(value, list):
            raise NotDap(f"`{place}` has to be a list")
        key = tuple(value)
        try:
            if key not in self._known:
                file, line, function, own = key
                shown = _NAME.take(file, place)
                local = self._local_of(file, shown)
                self._known[key] = Frame(
                    local or shown,
                    local is not None,
                    _NUMBER.take(line, place),
                    _NAME.take(function, place),
                    _FLAG.take(own, place),
                )
            return self._known[key]
        except (TypeError, ValueError) as error:
            raise NotDap(f"`{place}` is no frame") from error

    def _local_of(self, file: str, shown: str) -> str | None:
        # What would be shown as another path than it is, is no file of the editor's.
        if file != shown or (file not in self._files and len(self._files) >= _FILES):
            return None
        if file not in self._files:
            self._files[file] = self._local(file)
        return self._files[file]


def rule_of(local: Callable[[str], str | None]) -> Rule:
    """Returns what takes a debuggee's answer; `local` returns the editor's path for its own."""
    thread = record(
        *("name", "stopped", "frames"),
        name=_NAME,
        stopped=_FLAG,
        frames=Many(_FrameRule(local), MOST_FRAMES + 1),  # one says how many were left out
    )
    return record("threads", threads=Many(thread, MOST), more=_NUMBER)
