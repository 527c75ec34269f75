"""Reads what Ray and Python print where a program fails: the exception that ended it, and its cause."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from bootstrap.diagnosis.tracebacks import PART, TRACEBACK, plain_form

# An exception's line: its class, of a RayTaskError the cause's class, and its words. A class that a function
# has made is called as in `module.train.<locals>.RowError`.
_EXCEPTION = re.compile(
    r"^(?P<name>(?:[^\W\d]\w*|<\w+>)(?:\.(?:[^\W\d]\w*|<\w+>))*)(?:\([\w.]+\))?(?:: (?P<message>.*))?$"
)
_FRAME = re.compile(r'^ +File "(?P<file>[^"]+)", line (?P<line>\d+)(?:, in (?P<function>.+))?$')
# Ray writes a task's name before the frames that ran in it.
_TASK = re.compile(r"ray::(?P<task>[^()\s]{1,300})\(\)")
# Between a program's lines Ray prints those of other processes, and its own log.
_OTHERS = re.compile(
    r"^\([\w. -]{1,200}?(?: pid=\d{1,10}(?!\d)[^)]*| \+\d{1,9}[a-z_]{0,9}(?:, ip=[^)]*)?|, ip=[^)]*)?\) "
    r"|^\[?\d{4}-\d\d-\d\d \d\d:\d\d:\d\d[,.\t ]"
)
# Python goes on after what it says below such a line.
_ASIDE = re.compile(
    r"Exception ignored (?:in|on|while)\b|Exception in thread |\w+ exception was never retrieved"
)
_NOT_THE_USERS = re.compile(r"/site-packages/|/lib/python3|\.p(?:yx|xi)$|^<frozen")
# A worker has the files that were sent with a job in such folders.
_SENT = re.compile(r"^.*/runtime_resources/(?:working_dir|py_modules)_files/[^/]+/")
# An exception's own words are quoted up to so many lines, and of a group so many parts, and places of them.
_MOST_LINES, _MOST_PARTS, _MOST_PLACES = 6, 10, 3


@dataclass(frozen=True)
class Raised:
    """An exception that ended a program or a task.

    Attributes:
        name: its class, without the module; of a RayTaskError that of its cause.
        message: its own words, which may be several lines.
        cause: the exception within it, as where an actor died of it; empty where there is none.
        tasks: the tasks that it came through, the outermost first; empty where the driver raised it.
        place: the user's line that raised it, as in `train.py:12, in load`; empty where none is told. Of a
            group it is that of its parts.
        text: all that was printed of it.
        parts: of an exception group, the exceptions that it is of, as lines; groups within it are resolved.
        is_tasks: whether a task raised it, and the driver got it by Ray.
    """

    name: str
    message: str
    cause: str
    tasks: tuple[str, ...]
    place: str
    text: str
    parts: tuple[str, ...] = ()
    is_tasks: bool = False


def last_raised(log: str) -> Raised | None:
    """Returns the exception that ended the program which printed `log`; None where there is none."""
    lines = plain_form(log.splitlines())
    traced = [at for at, line in enumerate(lines) if line == TRACEBACK]
    begun = [at for at in traced if not any(map(_ASIDE.match, lines[max(0, at - 2) : at]))]
    if traced and not begun:
        return None
    if begun:
        after = (at for at in range(begun[-1], len(lines)) if _ASIDE.match(lines[at]))
        lines = _up_to_others(lines[begun[-1] : next(after, len(lines))])
        # The first is the driver's own, and what follows are its words.
        return _raised(lines, _ends(_own(lines))[:1])
    # A SyntaxError of the program itself has no traceback, and is the last; it has the place before it.
    ends = [at for at in _ends(_own(lines)) if any(map(_FRAME.match, lines[max(0, at - 4) : at]))]
    return _raised(lines, ends[-1:])


def raised_in_task(error: str) -> Raised | None:
    """Returns the exception that Ray's table of tasks has in `error_message`; None where there is none."""
    lines = plain_form(error.partition("\nSystem error:")[0].splitlines())
    return _raised(lines, _ends(_own(lines))[-1:])


def _raised(lines: Sequence[str], end: Sequence[int]) -> Raised | None:
    """Returns the exception whose line is at `end`; without one, the group of which only parts are left."""
    own, parts = _own(lines), _parts(lines)
    if parts and (not end or lines[len(own)] != f"{PART}1"):
        own, end, parts = [], [], [own, *parts]  # What the group itself said is cut off.
    of_parts = list(dict.fromkeys(told for part in parts if (told := _told(part))))
    if not end and not of_parts:
        return None
    name, message = _named(own, end[0]) if end else ("ExceptionGroup", "")
    inner = [at for at in _ends(own) if at > end[0]] if end else []
    is_tasks, cause = bool(inner) and name == "RayTaskError", ""
    if is_tasks:
        name, message = _named(own, inner[-1])
    elif inner:
        cause = own[inner[-1]]
    if of_parts:
        more = f" and {len(of_parts) - _MOST_PARTS} more" if len(of_parts) > _MOST_PARTS else ""
        told = "; ".join(of_parts[:_MOST_PARTS]) + more
        message, cause = f"{message}: {told}".removeprefix(": "), f"{cause}: {told}" if cause else ""
    places = dict.fromkeys(place for part in parts if (place := _place(part)))
    return Raised(
        name=name,
        message=message,
        cause=cause,
        tasks=tuple(dict.fromkeys(match["task"] for match in _TASK.finditer("\n".join(own)))),
        place="; ".join(list(places)[:_MOST_PLACES]) or _place(own),
        text="\n".join(lines),
        parts=tuple(of_parts),
        is_tasks=is_tasks,
    )


def _own(lines: Sequence[str]) -> Sequence[str]:
    """Returns what comes before the parts of a group."""
    return lines[: next((at for at, line in enumerate(lines) if line.startswith(PART)), len(lines))]


def _parts(lines: Sequence[str]) -> list[list[str]]:
    """Returns the lines of each part of a group; in place of one that is a group, those of its own parts."""
    parts: list[list[str]] = []
    is_open = False
    for line in lines:
        if line.startswith(PART):
            if line == f"{PART}1" and is_open:
                parts.pop()
            is_open = line != PART
            if is_open:
                parts.append([line])
        elif is_open:
            parts[-1].append(line)
    return parts


def _told(part: Sequence[str]) -> str:
    """Returns a part of a group as `ValueError: its words`; of exceptions within each other the last one."""
    begun = max((at for at, line in enumerate(part) if line.strip() == TRACEBACK), default=0)
    ends = [at for at in _ends(part) if at > begun]
    if not ends:  # Python leaves out some of many.
        return next((line for line in part if re.fullmatch(r"and \d+ more exceptions?", line)), "")
    name, message = _named(part, ends[0])
    if name == "RayTaskError":
        name, message = _named(part, ends[-1])
    return f"{name}: {message}" if message else name


def _named(lines: Sequence[str], at: int) -> tuple[str, str]:
    """Returns the class of the exception whose line that is, without its module, and its words."""
    match = _EXCEPTION.fullmatch(lines[at])
    assert match, "it is one of `_ends`"
    words = [match["message"] or "", *lines[at + 1 :]]
    return match["name"].rpartition(".")[2], "\n".join(words[:_MOST_LINES]).strip()


def _ends(lines: Sequence[str]) -> list[int]:
    """Returns where an exception's line is: at the margin, below the lines of a frame, or first in a part."""
    return [
        at
        for at, line in enumerate(lines)
        if at and lines[at - 1].startswith((" ", PART, TRACEBACK)) and _EXCEPTION.fullmatch(line)
    ]


def _up_to_others(lines: Sequence[str]) -> list[str]:
    """Returns a traceback without what others print between its lines, and up to what they print after it."""
    kept: list[str] = []
    ended = False
    of_group = max((at for at, line in enumerate(lines) if line.startswith(PART)), default=0)
    for at, line in enumerate(lines):
        if not _OTHERS.match(line):
            kept.append(line)
            ended = ended or bool(_ends(kept[-2:]))
        elif ended and at > of_group:
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
