"""Finds where a debuggee has an editor's file that no rule leads to: installed, or part of its image."""

from __future__ import annotations

from collections.abc import Mapping

from bootstrap.plain import line
from bootstrap.relay.connection import Connection
from bootstrap.relay.sent import OWN_FILES

# The most characters of a path.
_LONGEST = 4096
# What a breakpoint says, by the answer's kind; `{}` is the debuggee's path.
_NOTES = {
    "same": "Set in {}, which the task runs: its text is the same.",
    "likely": "Set in {}, which the task runs: the package and its name are the same, its text is unknown.",
    "differs": "The task runs {}, whose text is another: install this one there, or open that file,"
    " or map its folder with pathMappings.",
    "several": "The task has it more than once: {}. Map the folder of the right one with pathMappings.",
}


async def find(
    connection: Connection, wanted: Mapping[str, str], *, timeout: float
) -> dict[str, tuple[str, str]]:
    """Returns, by the editor's path, the debuggee's, empty where none is certain, and what to say of it.

    `wanted` is as in `find` of evaluated/own_files.py. Raises RequestFailed, DebuggerGone.
    """
    answers = await connection.literal(OWN_FILES.value("find", {**wanted}), timeout=timeout)
    found: dict[str, tuple[str, str]] = {}
    for path, answer in answers.items() if isinstance(answers, dict) else ():
        kind, files = answer if isinstance(answer, tuple) and len(answer) == 2 else ("", [])
        files = [each for each in files if isinstance(each, str) and len(each) <= _LONGEST]
        if path in wanted and kind in _NOTES and files:
            note = _NOTES[kind].format(line(", ".join(files), _LONGEST))
            found[path] = files[0] if kind in ("same", "likely") else "", note
    return found
