"""Finds, in what Ray says of a runtime_env that could not be made, the line that says why."""

from __future__ import annotations

import re

# The programs that make it say so, and an exception's line otherwise.
_TELLING = re.compile(r"^(ERROR: .+|error: .+|[\w.]*(?:Error|Exception): .+|.*No such file or directory.*)$")
# These only say that something failed.
_EMPTY = re.compile(r"SubprocessCalledProcessError|RuntimeEnvSetupError|Failed to set up")


def reason(text: str) -> str:
    """Returns the line that says most, as pip's `ERROR: No matching distribution found for x`."""
    lines = [stripped for line in text.splitlines() if (stripped := line.strip())]
    telling = [line for line in lines if _TELLING.match(line) and not _EMPTY.search(line)]
    if telling:
        return telling[-1].removeprefix("ERROR: ")
    return lines[-1] if lines else "Ray gave no reason"
