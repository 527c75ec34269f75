"""Has VS Code know the debug relay: its entry in `.vscode/launch.json`, all else in there left as it was.

The file is VS Code's JSON with comments and trailing commas. It is never written anew: what has to
change is inserted, so that comments, formatting and other configurations stay byte for byte.
"""

from __future__ import annotations

import json
import os
import re
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

from bootstrap.errors import InvalidArgument

PLACE = Path(".vscode") / "launch.json"
NAME = "Ray cluster (Rayside)"
_TOKEN = "raysideToken"


def write(file: Path, *, port: int, token_file: Path) -> bool:
    """Makes or merges `file`; whether anything changed.

    Args:
        port: the relay's, on this machine.
        token_file: where the token is, for the prompt to say; it is not read.

    Raises:
        InvalidArgument: the file can't be read, understood or written; it is as it was.
    """
    try:
        real = file.resolve(strict=False)  # a link stays one
        before = real.read_bytes().decode() if real.exists() else ""
        after = merge(before, str(file), configuration(port), token_prompt(token_file))
        if after == before:
            return False
        _replace(real, after.encode())
    except UnicodeDecodeError as error:
        raise InvalidArgument(f"{file} is not UTF-8: {error}", hint="save it as UTF-8") from None
    except (OSError, RuntimeError) as error:  # RuntimeError: links that lead to each other
        why = getattr(error, "strerror", None) or error
        raise InvalidArgument(f"{file} can't be written: {why}", hint="see to it that it can") from None
    return True


def configuration(port: int) -> dict[str, Any]:
    """Of VS Code's Python debugger; `token` is asked for when it starts."""
    return {
        "name": NAME,
        "type": "debugpy",
        "request": "attach",
        "connect": {"host": "127.0.0.1", "port": port},
        "token": f"${{input:{_TOKEN}}}",
        "pathMappings": [{"localRoot": "${workspaceFolder}", "remoteRoot": "."}],
        "justMyCode": True,
        "redirectOutput": True,
    }


def token_prompt(token_file: Path) -> dict[str, Any]:
    """What VS Code asks; the answer is shown as dots, and not kept."""
    return {
        "id": _TOKEN,
        "type": "promptString",
        "description": f"Ray's token: the text in {token_file}",
        "password": True,
    }


def merge(text: str, where: str, configuration: dict[str, Any], prompt: dict[str, Any]) -> str:
    """The text of a launch.json with these two in it; what the user added to them stays.

    Args:
        where: what an error calls the text.

    Raises:
        InvalidArgument: it isn't a launch.json, with the line.
    """
    if _Parser(text, where).is_empty():
        fresh = {"version": "0.2.0", "configurations": [configuration], "inputs": [prompt]}
        return text + json.dumps(fresh, indent=4, ensure_ascii=False) + "\n"
    owned = ("type", "request", "connect", "token")
    text = _with_entry(text, where, "configurations", "name", configuration, owned)
    return _with_entry(text, where, "inputs", "id", prompt, tuple(prompt))


def _with_entry(
    text: str, where: str, array: str, key: str, entry: dict[str, Any], owned: tuple[str, ...]
) -> str:
    """With `entry` in the list `array`; of one that is there already only what is `owned` changes."""
    parser = _Parser(text, where)
    root = parser.document()
    if not isinstance(root.value, dict):
        parser.fail('an object, as in {"version": "0.2.0", ...}', root.start)
    entries = root.members.get(array)
    if entries is None:
        return _appended(text, root, f"{json.dumps(array)}: ", [entry])
    if not isinstance(entries.value, list):
        parser.fail(f"a list, as {json.dumps(array)} has to be", entries.start)
    for found in entries.items:
        if not isinstance(found.value, dict) or found.value.get(key) != entry[key]:
            continue
        for name in owned:
            member = found.members.get(name)
            if member is None:
                changed = _appended(text, found, f"{json.dumps(name)}: ", entry[name])
            elif member.value != entry[name]:
                drawn = _drawn(entry[name], text, _indent(text, member.start))
                changed = text[: member.start] + drawn + text[member.end :]
            else:
                continue
            return _with_entry(changed, where, array, key, entry, owned)
        return text
    return _appended(text, entries, "", entry)


# --- inserting ---------------------------------------------------------------------------

_COMMENTS_BEHIND = re.compile(r"(?:[ \t]*(?://[^\r\n]*|/\*[^\r\n]*?\*/))*")


@dataclass
class _Node:
    """A value, and where it stands: `text[start:end]`."""

    start: int
    end: int
    value: Any
    members: dict[str, _Node] = field(default_factory=dict)  # of an object
    items: list[_Node] = field(default_factory=list)  # of a list
    first: int | None = None  # where its first child starts
    last: int | None = None  # where its last child ends
    comma: int | None = None  # behind the comma that follows its last child


def _appended(text: str, node: _Node, prefix: str, value: Any) -> str:
    """With one more child at the end of an object or a list."""
    newline = _newline(text)
    outer = _indent(text, node.start)
    closing = node.end - 1
    inner = outer + _unit(text)
    if node.first is not None and not text[_line_start(text, node.first) : node.first].strip(" \t"):
        inner = _indent(text, node.first)
    child = newline + inner + prefix + _drawn(value, text, inner)
    if node.last is None:
        at = len(text[:closing].rstrip())
        child = text[node.start + 1 : at] + child
        head = text[: node.start + 1]
    else:
        behind = node.comma or node.last
        comments = _COMMENTS_BEHIND.match(text, behind)
        at = comments.end() if comments else behind
        # What trailed with a comma goes on trailing with one.
        head = text[: node.last] + ("" if node.comma else ",") + text[node.last : at]
        child += "," if node.comma else ""
    between = text[at:closing]
    if "\n" not in between:
        between = newline + outer
    return head + child + between + text[closing:]


def _drawn(value: Any, text: str, indent: str) -> str:
    lines = json.dumps(value, indent=_unit(text), ensure_ascii=False).split("\n")
    return (_newline(text) + indent).join(lines)


def _newline(text: str) -> str:
    return "\r\n" if "\r\n" in text else "\n"


def _unit(text: str) -> str:
    found = re.search(r"\n([ \t]+)[\"{}\[\]]", text)
    return found[1] if found else "    "


def _line_start(text: str, at: int) -> int:
    return text.rfind("\n", 0, at) + 1


def _indent(text: str, at: int) -> str:
    """The white space that the line of `at` begins with."""
    line = text[_line_start(text, at) : at]
    return line[: len(line) - len(line.lstrip(" \t"))]


def _replace(file: Path, content: bytes) -> None:
    """Whole or not at all, with the mode that the file has."""
    file.parent.mkdir(parents=True, exist_ok=True)
    mode = file.stat().st_mode & 0o777 if file.exists() else None
    if mode is not None and not os.access(file, os.W_OK):
        raise PermissionError(13, "it is write-protected")
    number, name = tempfile.mkstemp(prefix=f".{file.name}.", dir=file.parent)
    draft = Path(name)
    try:
        with os.fdopen(number, "wb") as stream:
            stream.write(content)
        if mode is None:
            mask = os.umask(0)
            os.umask(mask)
            mode = 0o666 & ~mask
        draft.chmod(mode)
        draft.replace(file)
    finally:
        draft.unlink(missing_ok=True)


# --- reading -----------------------------------------------------------------------------

# The byte order mark counts as white space.
_TRIVIA = re.compile(r"(?:[ \t\r\n\ufeff]|//[^\r\n]*|/\*.*?\*/)*", re.DOTALL)
_STRING = re.compile(r'"(?:[^"\\\x00-\x1f]|\\.)*"')
_LITERAL = re.compile(r"-?(?:0|[1-9][0-9]{0,999})(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?|true|false|null")


class _Parser:
    """Of JSON with comments and trailing commas."""

    def __init__(self, text: str, where: str) -> None:
        self._text = text
        self._where = where
        self._at = 0

    def is_empty(self) -> bool:
        """Whether there is nothing but white space and comments, if that."""
        self._skip()
        return self._at == len(self._text)

    def document(self) -> _Node:
        self._at = 0
        try:
            self._skip()
            node = self._value()
        except RecursionError:
            self.fail("less nesting")
        self._skip()
        if self._at < len(self._text):
            self.fail("the end of the file")
        return node

    def fail(self, expected: str, at: int | None = None) -> NoReturn:
        """Raises InvalidArgument."""
        at = self._at if at is None else at
        line = self._text.count("\n", 0, at) + 1
        found = self._text[at : at + 20].split("\n")[0].rstrip() or "nothing more"
        raise InvalidArgument(
            f"{self._where}, line {line}: expected {expected}, found {found}",
            hint="correct that line; nothing was changed",
        )

    def _skip(self) -> None:
        found = _TRIVIA.match(self._text, self._at)
        self._at = found.end() if found else self._at

    def _next(self) -> str:
        return self._text[self._at : self._at + 1]

    def _value(self) -> _Node:
        start = self._at
        if self._next() == "{":
            return self._container("}")
        if self._next() == "[":
            return self._container("]")
        if self._next() == '"':
            value: Any = self._string()
        else:
            found = _LITERAL.match(self._text, start)
            if found is None:
                self.fail("a value")
            self._at = found.end()
            value = json.loads(found[0])
        return _Node(start, self._at, value)

    def _string(self) -> str:
        found = _STRING.match(self._text, self._at)
        if found is None:
            self.fail("a string in double quotes")
        try:
            value = str(json.loads(found[0]))
        except ValueError:
            self.fail("a string in double quotes with JSON's escapes")
        self._at = found.end()
        return value

    def _container(self, closing: str) -> _Node:
        node = _Node(self._at, 0, {} if closing == "}" else [])
        self._at += 1
        while True:
            self._skip()
            if self._next() == closing and (node.last is None or node.comma is not None):
                break
            start = self._at
            name = None
            if closing == "}":
                name = self._string()
                self._skip()
                if self._next() != ":":
                    self.fail(":")
                self._at += 1
                self._skip()
            child = self._value()
            if name is None:
                node.items.append(child)
                node.value.append(child.value)
            else:
                node.members[name] = child
                node.value[name] = child.value
            node.first = start if node.first is None else node.first
            node.last, node.comma = child.end, None
            self._skip()
            if self._next() == ",":
                self._at += 1
                node.comma = self._at
            elif self._next() == closing:
                break
            else:
                self.fail(f", or {closing}")
        self._at += 1
        node.end = self._at
        return node
