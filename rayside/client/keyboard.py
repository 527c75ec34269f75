"""Keyboard input of the terminal debugger: history, completion, the line before Ctrl-C."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path
from types import ModuleType

from rayside.client.commands import names
from rayside.worker.evaluated.scope import NAMES

readline: ModuleType | None
try:
    readline = import_module("readline")
except ImportError:  # some builds of Python lack it
    readline = None

_KEPT = 1000  # lines of history


@contextmanager
def line_editing(history: Path) -> Iterator[None]:
    """Sets up history and completion of `input`; the history file is private (0600)."""
    if readline is None:
        yield
        return
    earlier = readline.get_completer()
    readline.clear_history()
    with suppress(OSError):
        readline.read_history_file(history)
    readline.set_completer(_complete)
    editline = "libedit" in (readline.__doc__ or "")
    readline.parse_and_bind("bind ^I rl_complete" if editline else "tab: complete")
    try:
        yield
    finally:
        readline.set_completer(earlier)
        with suppress(OSError):
            history.parent.mkdir(parents=True, exist_ok=True)
            # The file is made private before it is written, since expressions may contain secrets.
            os.close(os.open(history, os.O_WRONLY | os.O_CREAT, 0o600))
            readline.set_history_length(_KEPT)
            readline.write_history_file(history)
            history.chmod(0o600)


def typed() -> str:
    """Returns the text of the line that Ctrl-C interrupted."""
    return str(readline.get_line_buffer()) if readline is not None else ""


def _complete(text: str, state: int) -> str | None:
    if readline is not None and readline.get_begidx() > 0:
        # Attributes of `ray` in conditions and `p`.
        matches = [name for name in (f"ray.{name}" for name in NAMES) if name.startswith(text)]
        return matches[state] if text.startswith("ray.") and state < len(matches) else None
    matches = [f"{name} " for name in names() if name.startswith(text)]
    return matches[state] if state < len(matches) else None
