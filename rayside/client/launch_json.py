"""Entry of the debug relay in `.vscode/launch.json`; the rest of the file is not changed.

VS Code accepts comments and trailing commas. A file that contains these is not changed: the error contains
the text to paste. Neither is a file whose layout would change.
"""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

from rayside.errors import InvalidArgument
from rayside.private_file import replace_whole

PLACE = Path(".vscode") / "launch.json"
NAME = "Ray cluster (Rayside)"
_TOKEN = "raysideToken"
# Fields that are overwritten in an existing configuration and in its prompt; the others belong to the user.
_OWNED = ("type", "request", "connect", "token")
_PROMPT_OWNED = ("type", "description", "password")


def write(file: Path, *, port: int, token_file: Path) -> bool:
    """Creates `file`, or adds the entry; returns whether it changed.

    Args:
        port: the relay's port on this machine.
        token_file: path of the token, for the prompt's text; it is not read.

    Raises:
        InvalidArgument: the file can't be read, parsed or written without loss; it is unchanged, and the
            hint contains the text to paste.
    """
    try:
        real = file.resolve(strict=False)  # a link stays one
        before = real.read_bytes().decode() if real.exists() else ""
        after = with_entries(before, str(file), configuration(port), token_prompt(token_file))
        if after == before:
            return False
        _replace(real, after)
    except UnicodeDecodeError as error:
        raise InvalidArgument(f"{file} is not UTF-8: {error}", hint="save it as UTF-8") from None
    except (OSError, RuntimeError) as error:  # RuntimeError: links that lead to each other
        why = getattr(error, "strerror", None) or error
        raise InvalidArgument(f"{file} can't be written: {why}", hint="see to it that it can") from None
    return True


def configuration(port: int) -> dict[str, Any]:
    """Returns a launch configuration for VS Code's Python debugger; a prompt asks for `token`."""
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
    """Returns the prompt for the token; VS Code shows the input as dots, and does not store it."""
    return {
        "id": _TOKEN,
        "type": "promptString",
        "description": f"Ray's token: the text in {token_file}",
        "password": True,
    }


def with_entries(text: str, where: str, configuration: dict[str, Any], prompt: dict[str, Any]) -> str:
    """Returns the text of a launch.json with both entries; the user's fields in them stay.

    Args:
        where: name of the text in errors.

    Raises:
        InvalidArgument: the text is not plain JSON, no launch.json, or its layout would change.
    """
    if not text.strip():
        return _drawn({"version": "0.2.0", "configurations": [configuration], "inputs": [prompt]}) + "\n"

    def unchanged(reason: str) -> InvalidArgument:
        paste = f'"configurations":\n{_drawn(configuration)}\nand this in its "inputs":\n{_drawn(prompt)}'
        return InvalidArgument(f"{where} was not changed: {reason}", hint=f"have this in its {paste}")

    try:
        before, after = json.loads(text), json.loads(text)
    except (ValueError, RecursionError) as error:
        raise unchanged(f"it has a comment, a trailing comma or a mistake ({error})") from None
    arrays = ("configurations", "inputs")
    if not isinstance(before, dict) or not all(isinstance(before.get(name, []), list) for name in arrays):
        raise unchanged('it is not an object whose "configurations" and "inputs" are lists')
    _put(after.setdefault("configurations", []), "name", configuration, _OWNED)
    _put(after.setdefault("inputs", []), "id", prompt, _PROMPT_OWNED)
    if after == before:
        return text
    indentation = re.search(r"\n([ \t]+)", text)
    unit = indentation[1] if indentation else "    "
    content = text.rstrip()
    if _drawn(before, unit) != content:
        raise unchanged("it has a layout that would be lost")
    return _drawn(after, unit) + text[len(content) :]


def _drawn(value: dict[str, Any], unit: str = "    ") -> str:
    return json.dumps(value, indent=unit, ensure_ascii=False)


def _put(entries: list[Any], key: str, entry: dict[str, Any], owned: tuple[str, ...]) -> None:
    """Adds `entry` to the list; in an existing entry with the same `key`, only `owned` fields change."""
    for existing in entries:
        if isinstance(existing, dict) and existing.get(key) == entry[key]:
            existing.update({name: entry[name] for name in owned})
            return
    entries.append(entry)


def _replace(file: Path, content: str) -> None:
    """Replaces the file atomically; its mode stays."""
    file.parent.mkdir(parents=True, exist_ok=True)
    mode = file.stat().st_mode & 0o777 if file.exists() else None
    if mode is not None and not os.access(file, os.W_OK):
        raise PermissionError(13, "it is write-protected")
    if mode is None:
        mask = os.umask(0)
        os.umask(mask)
        mode = 0o666 & ~mask
    replace_whole(file, content, mode)
