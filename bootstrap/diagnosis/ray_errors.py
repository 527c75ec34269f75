"""Reads what Ray and Python print where a program fails: the exception that ended it, and its cause."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

_TRACEBACK = "Traceback (most recent call last):"
# An exception's line: its class, of a RayTaskError the cause's class, and its words.
_EXCEPTION = re.compile(r"^(?P<name>[A-Za-z_][\w.]*)(?:\([\w.]+\))?(?:: (?P<message>.*))?$")
_FRAME = re.compile(r'^ +File "(?P<file>[^"]+)", line (?P<line>\d+)(?:, in (?P<function>.+))?$')
# Ray writes a task's name before the frames that ran in it.
_TASK = re.compile(r"ray::(?P<task>[^()\s]{1,300})\(\)")
# Between a program's lines Ray prints those of other processes, and its own log.
_OTHERS = re.compile(
    r"^\([\w. -]{1,200}?(?: pid=\d+[^)]*| \+\d+\w*|, ip=[^)]*)?\) |^\[?\d{4}-\d\d-\d\d \d\d:\d\d:\d\d[,.\t ]"
)
# Python goes on after what it says below such a line.
_ASIDE = re.compile(
    r"Exception ignored (?:in|on|while)\b|Exception in thread |\w+ exception was never retrieved"
)
_NOT_THE_USERS = re.compile(r"/site-packages/|/lib/python3|\.p(?:yx|xi)$|^<frozen")
# A worker has the files that were sent with a job in such folders.
_SENT = re.compile(r"^.*/runtime_resources/(?:working_dir|py_modules)_files/[^/]+/")
# An exception's own words are quoted up to so many lines.
_MOST_LINES = 6


@dataclass(frozen=True)
class Raised:
    """An exception that ended a program or a task.

    Attributes:
        name: its class, without the module; of a RayTaskError that of its cause.
        message: its own words, which may be several lines.
        cause: the exception within it, as where an actor died of it; empty where there is none.
        tasks: the tasks that it came through, the outermost first; empty where the driver raised it.
        place: the user's line that raised it, as in `train.py:12, in load`; empty where none is told.
        text: all that was printed of it.
    """

    name: str
    message: str
    cause: str
    tasks: tuple[str, ...]
    place: str
    text: str


def last_raised(log: str) -> Raised | None:
    """Returns the exception that ended the program which printed `log`; None where there is none."""
    lines = log.splitlines()
    traced = [at for at, line in enumerate(lines) if line == _TRACEBACK]
    begun = [at for at in traced if not any(map(_ASIDE.match, lines[max(0, at - 2) : at]))]
    if traced and not begun:
        return None
    if begun:
        after = (at for at in range(begun[-1], len(lines)) if _ASIDE.match(lines[at]))
        lines = _up_to_others(lines[begun[-1] : next(after, len(lines))])
    ends = _ends(lines)
    if not ends:
        return None
    # In a traceback the first is the driver's own, and what follows are its words; a SyntaxError of the
    # program itself has no traceback, and is the last.
    return _raised(lines, ends[0] if begun else ends[-1])


def raised_in_task(error: str) -> Raised | None:
    """Returns the exception that Ray's table of tasks has in `error_message`; None where there is none."""
    lines = error.partition("\nSystem error:")[0].splitlines()
    ends = _ends(lines)
    return _raised(lines, ends[-1]) if ends else None


def _raised(lines: Sequence[str], at: int) -> Raised:
    inner = [end for end in _ends(lines) if end > at]
    cause = inner[-1] if inner else None
    text = "\n".join(lines)
    head = lines[at]
    if cause is not None and _class(head) == "RayTaskError":
        at, cause = cause, None
    words = [(_EXCEPTION.fullmatch(lines[at]) or {"message": ""})["message"] or "", *lines[at + 1 :]]
    return Raised(
        name=_class(lines[at]),
        message="\n".join(words[:_MOST_LINES]).strip(),
        cause=lines[cause] if cause is not None else "",
        tasks=tuple(dict.fromkeys(match["task"] for match in _TASK.finditer(text))),
        place=_place(lines),
        text=text,
    )


def _ends(lines: Sequence[str]) -> list[int]:
    """Returns where an exception's line is: at the margin, below the lines of a frame."""
    return [
        at
        for at, line in enumerate(lines)
        if at and lines[at - 1].startswith(" ") and _EXCEPTION.fullmatch(line)
    ]


def _class(line: str) -> str:
    match = _EXCEPTION.fullmatch(line)
    return match["name"].rpartition(".")[2] if match else ""


def _up_to_others(lines: Sequence[str]) -> list[str]:
    """Returns a traceback without what others print between its lines, and up to what they print after it."""
    kept: list[str] = []
    ended = False
    for line in lines:
        if not _OTHERS.match(line):
            kept.append(line)
            ended = ended or bool(_ends(kept[-2:]))
        elif ended:
            break
    return kept


def _place(lines: Sequence[str]) -> str:
    """Returns the innermost line of the user's own code."""
    frames = [frame for line in lines if (frame := _FRAME.match(line))]
    own = [frame for frame in frames if not _NOT_THE_USERS.search(frame["file"])]
    if not own:
        return ""
    place = f"{_SENT.sub('', own[-1]['file'])}:{own[-1]['line']}"
    function = own[-1]["function"]
    return f"{place}, in {function}" if function and function != "<module>" else place
