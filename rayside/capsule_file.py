"""Reader of capsule files (worker/capsule.py), which are untrusted: nothing is unpickled here."""

from __future__ import annotations

import io
import json
import re
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rayside.errors import CapsuleUnreadable
from rayside.plain import line, plain
from rayside.worker.capsule import DOCUMENT, FORMAT, FUNCTION, MOST_BYTES

_MEMBER = re.compile(r"capsule\.json|function\.pickle|(?:sources/[0-9]{1,4}\.py|inputs/[0-9]{1,4}\.pickle)")
# Limits: files in a capsule, uncompressed bytes of each, and of all of them.
_MOST_MEMBERS, _LONGEST, _LONGEST_IN_ALL = 2_000, 8 * 1024 * 1024, 16 * 1024 * 1024
# Limits: variables of all frames, and their depth; characters of a value, and of a name.
_MOST_VARIABLES, _DEEPEST, _LONGEST_VALUE, _LONGEST_NAME = 50_000, 5, 4_000, 400
# Details shown after a value's text.
_ABOUT = ("size", "shape", "dtype", "device", "columns", "nan", "inf", "min", "max", "mean", "sample")
_HINT = "fetch it again: ./invokew failures --get ID"


@dataclass(frozen=True)
class Variable:
    name: str
    value: str
    type: str
    items: tuple[Variable, ...] = ()


@dataclass(frozen=True)
class Frame:
    """Frame of a traceback; `source` is the text of its file, or empty."""

    function: str
    file: str
    line: int
    source: str
    locals: tuple[Variable, ...]
    globals: tuple[Variable, ...]


@dataclass(frozen=True)
class Error:
    """Exception, innermost frame first; `how` is its relation to the previous one: cause, context, group."""

    type: str
    text: str
    how: str
    frames: tuple[Frame, ...]


@dataclass(frozen=True)
class Input:
    """Input of the call; `keyword` is empty for a positional one, `left_out` the reason if it is missing."""

    name: str
    keyword: str
    file: str
    left_out: str
    as_left: bool


@dataclass(frozen=True)
class Capsule:
    """Recorded failure. All texts are safe to print.

    Attributes:
        about: `job`, `user`, `node`, `when`, `python` and other facts about the task, by name.
        function: the function's `name`, `module`, `file` and `left_out`.
        folder: the job's working directory.
        members: the pickled parts, by name.
    """

    about: Mapping[str, str]
    function: Mapping[str, str]
    folder: str
    errors: tuple[Error, ...]
    inputs: tuple[Input, ...]
    members: Mapping[str, bytes] = field(repr=False)

    @property
    def whose(self) -> str:
        about = self.about
        user = f" by user {about['user']}" if about["user"] else ""
        return f"job {about['submission'] or about['job']}{user} from node {about['node']}"

    @property
    def title(self) -> str:
        return (
            f"{self.about['task'] or self.function['name']} of {self.whose}, recorded on"
            f" {self.about['when']}: {self.errors[0].text}"
        )

    @property
    def left_out(self) -> list[str]:
        """Returns the missing parts, function or inputs, each with the reason."""
        rows = [
            ("the function", self.function["left_out"]),
            *((each.name, each.left_out) for each in self.inputs),
        ]
        return [f"{name}: {why}" for name, why in rows if why]


def open_file(file: Path) -> Capsule:
    """Returns the capsule in a file. Raises CapsuleUnreadable."""
    try:
        if not file.is_file():
            raise CapsuleUnreadable(f"there is no file {file}", hint="./invokew failures --get ID writes one")
        with file.open("rb") as stream:
            content = stream.read(MOST_BYTES + 1)
    except OSError as error:
        raise CapsuleUnreadable(f"{file} can't be read: {error.strerror}", hint=_HINT) from None
    return read(content, str(file))


def read(content: bytes, name: str) -> Capsule:
    """Returns the capsule with this content. Raises CapsuleUnreadable."""
    try:
        if len(content) > MOST_BYTES:
            raise ValueError(f"it is longer than {MOST_BYTES:,} bytes")
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            members = dict(_members(archive))
        return _capsule(json.loads(members.pop(DOCUMENT)), members)
    except KeyError as error:
        why = f"it has no {error.args[0]}"
    except (zipfile.BadZipFile, zlib.error, EOFError) as error:
        why = f"it is cut off, or no capsule ({error})"
    except (ValueError, TypeError, AttributeError, IndexError, RuntimeError) as error:
        # Parts of another type, nested too deep (RecursionError), encrypted, or compressed in an unknown way.
        why = str(error) or type(error).__name__
    except OverflowError:
        why = "a number in it is too large"
    raise CapsuleUnreadable(f"{line(name)} is no capsule that can be opened: {line(why, 200)}", hint=_HINT)


def _members(archive: zipfile.ZipFile) -> Iterator[tuple[str, bytes]]:
    entries, seen, total = archive.infolist(), set[str](), 0
    if len(entries) > _MOST_MEMBERS:
        raise ValueError(f"it has {len(entries):,} files")
    for entry in entries:
        if not _MEMBER.fullmatch(entry.filename) or entry.filename in seen:
            raise ValueError(f"no capsule has a file {entry.filename[:100]!r}, or has it twice")
        seen.add(entry.filename)
        # The length in a zip entry's header is untrusted.
        with archive.open(entry) as stream:
            content = stream.read(_LONGEST + 1)
        total += len(content)
        if len(content) > _LONGEST or total > _LONGEST_IN_ALL:
            raise ValueError("it unpacks to more than a capsule has")
        yield entry.filename, content


def _capsule(document: Any, members: dict[str, bytes]) -> Capsule:
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise ValueError("it was made by another version of Rayside, or is none")
    names = ("id", "when", "python", "ray", "task", "job", "submission", "user", "node", "pid")
    sources = {
        name: plain(content.decode("utf-8", "replace"))
        for name, content in members.items()
        if name.startswith("sources/")
    }
    room = [_MOST_VARIABLES]
    errors = tuple(_error(row, sources, room) for row in document["errors"])
    if not errors:
        raise ValueError("it has no error")
    function = {
        name: _name(document["function"].get(name, "")) for name in ("name", "module", "file", "left_out")
    }
    if FUNCTION not in members and not function["left_out"]:
        function["left_out"] = "it is not there"
    return Capsule(
        {name: _name(document.get(name, "")) for name in names},
        function,
        _name(document["folder"]),
        errors,
        tuple(_input(row, members) for row in document["inputs"]),
        {name: content for name, content in members.items() if name not in sources},
    )


def _error(row: Any, sources: Mapping[str, str], room: list[int]) -> Error:
    frames = tuple(
        Frame(
            _name(frame["function"]),
            _name(frame["file"]),
            min(max(0, int(frame["line"])), 10**9),
            sources.get(frame["source"], ""),
            tuple(_variable(each, room) for each in frame["locals"]),
            tuple(_variable(each, room) for each in frame["globals"]),
        )
        for frame in row["frames"]
    )
    return Error(_name(row["type"]), _text(row["text"]), _name(row["how"]), frames)


def _variable(row: Any, room: list[int], depth: int = 0) -> Variable:
    room[0] -= 1
    if room[0] < 0 or depth > _DEEPEST:
        raise ValueError("it has more variables than a capsule has")
    about = [f"{name} {json.dumps(row[name])[:200]}" for name in _ABOUT if row.get(name) not in (None, 0)]
    value = f"{row['value']}  ({', '.join(about)})" if about else str(row["value"])
    items = tuple(_variable(each, room, depth + 1) for each in row.get("items", ()))
    return Variable(_name(row["name"]), _text(value), _name(row["type"]), items)


def _input(row: Any, members: Mapping[str, bytes]) -> Input:
    file = str(row["file"])
    why = _text(row["left_out"]) or ("" if file in members else "it is not there")
    return Input(_name(row["name"]), _name(row["keyword"]), file, why, row["as_left"] is True)


def _name(text: object) -> str:
    return line(str(text), _LONGEST_NAME)


def _text(text: object) -> str:
    return line(str(text), _LONGEST_VALUE)
