"""Stacks of debuggees' threads: read from one debuggee, merged from many to a tree."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from rayside.relay.fan_out import LACKS, SILENT, Answer, taken
from rayside.relay.schemas import Flag, Many, NotDap, Number, Rule, Text, record
from rayside.relay.worker import Worker
from rayside.worker.evaluated.thread_stacks import LONGEST, MOST_FRAMES, stacks
from rayside.worker.evaluated.thread_stacks import MOST as MOST_THREADS

# The most characters of a tree in JSON: an editor that leaves more than 16 MiB unread is dropped (editor.py).
MOST = 8_000_000
# The characters of a node, and of a thread at its end, but for the names in them.
_NODE, _HERE = 160, 80
# Where one branch has this share of a fork's threads or more, the others are the odd ones.
_CROWD = 0.75


@dataclass(frozen=True)
class Frame:
    """Frame of a stack.

    Attributes:
        file: the path that the editor has for it, where it is `local`; else the one that the process says.
        own: whether it is of the user's code.
    """

    file: str
    local: bool
    line: int
    function: str
    own: bool


@dataclass(frozen=True)
class Thread:
    """Thread, or asyncio task, of one process, and what it does.

    Attributes:
        worker_id, title: those of its process.
        name: its own.
        stopped: whether it is stopped in a debugger.
        frames: the outermost first.
    """

    worker_id: str
    title: str
    name: str
    stopped: bool
    frames: Sequence[Frame]


@dataclass
class Node:
    """Function that threads have called in the same way: by the functions above it.

    Attributes:
        lines: how many threads are at each line.
        here: the threads of which it is the innermost frame, each with its line.
        calls: what is called from here, by file and function.
    """

    file: str = ""
    local: bool = False
    function: str = ""
    own: bool = False
    threads: int = 0
    workers: set[str] = field(default_factory=set)
    lines: Counter[int] = field(default_factory=Counter)
    here: list[tuple[Thread, int]] = field(default_factory=list)
    calls: dict[tuple[str, str], Node] = field(default_factory=dict)

    def add(self, thread: Thread) -> int:
        """Adds a thread's stack; returns about how many characters of JSON the tree has more of it."""
        node, cost = self, 0
        for frame in thread.frames:
            key = frame.file, frame.function
            if key not in node.calls:
                node.calls[key] = Node(frame.file, frame.local, frame.function, frame.own)
                cost += _NODE + len(json.dumps(key))
            node = node.calls[key]
            node.threads += 1
            node.workers.add(thread.worker_id)
            node.lines[frame.line] += 1
        if node is not self:
            node.here.append((thread, thread.frames[-1].line))
            cost += _HERE + len(json.dumps([thread.worker_id, thread.title, thread.name]))
        return cost

    def rows(self) -> list[dict[str, Any]]:
        """Returns what is called from here, as data; the most threads first."""
        nodes = sorted(self.calls.values(), key=lambda node: (-node.threads, node.file, node.function))
        everything = sum(node.threads for node in nodes) + len(self.here)
        most = nodes[0].threads if nodes else 0
        crowded = everything > 2 and most / everything >= _CROWD
        return [node._row(odd=crowded and node is not nodes[0]) for node in nodes]

    def _row(self, odd: bool) -> dict[str, Any]:
        return {
            "function": self.function,
            "file": self.file,
            "local": self.local,
            "own": self.own,
            "lines": [[line, count] for line, count in self.lines.most_common()],
            "threads": self.threads,
            "processes": len(self.workers),
            "odd": odd,
            "here": [
                {
                    "worker_id": thread.worker_id,
                    "task": thread.title,
                    "thread": thread.name,
                    "stopped": thread.stopped,
                    "line": line,
                }
                for thread, line in self.here
            ],
            "calls": self.rows(),
        }


def merged(threads: Iterable[Thread], most: int = MOST) -> tuple[list[dict[str, Any]], int]:
    """Merges stacks to a tree of about `most` characters of JSON.

    Returns:
        The tree, as data, and the number of threads that are in it: the first ones. The tree is a list of
        `{"function", "file", "local": bool, "own": bool, "lines": [[line, threads]], "threads", "processes",
        "odd": bool, "here": [{"worker_id", "task", "thread", "stopped": bool, "line"}],
        "calls": [the same]}`, the outermost function first. `odd`: a few threads do this where most do
        something else.
    """
    root, number = Node(), 0
    for thread in threads:
        if most <= 0:
            break
        most -= root.add(thread)
        number += 1
    return root.rows(), number


# The most characters of a debuggee's answer (stacks.py there sends up to 8,000 frames), and the most files in
# all answers, of each of which is looked up whether the editor has it.
_LONGEST_ANSWER, _FILES = 2_000_000, 1_000

_FLAG, _NUMBER, _NAME = Flag(), Number(), Text(LONGEST)


async def read_stacks(worker: Worker, rule: Rule, timeout: float) -> Answer:
    """Returns what a debuggee says within so many seconds, as `rule_of` takes it. Raises DebuggerGone."""
    if not worker.connection.has_package:
        return LACKS
    began = time.monotonic()
    text = await worker.connection.ask(timeout, stacks)
    if text is None and time.monotonic() - began >= timeout:
        return SILENT
    return taken(text, rule, _LONGEST_ANSWER)


class _FrameRule:
    """Takes a frame as thread_stacks.py sends it; each one once, for a thousand processes have the same."""

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
    return record("threads", threads=Many(thread, MOST_THREADS), more=_NUMBER)
