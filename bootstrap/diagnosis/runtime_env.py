"""Finds, in what Ray says of a runtime_env that could not be made, the line that says why."""

from __future__ import annotations

import re

# The programs that make it say so, and an exception's line otherwise.
_TELLING = re.compile(
    r"^\s*(ERROR: .+|error: .+|[\w.]*(?:Error|Exception): .+|.*No such file or directory.*)$"
)
# These only say that something failed.
_EMPTY = re.compile(r"SubprocessCalledProcessError|RuntimeEnvSetupError|Failed to set up")


def reason(text: str) -> str:
    """Returns the line that says most, as pip's `ERROR: No matching distribution found for x`."""
    lines = [line.strip() for line in text.splitlines() if _TELLING.match(line) and not _EMPTY.search(line)]
    if lines:
        return lines[-1].removeprefix("ERROR: ")
    told = [line.strip() for line in text.splitlines() if line.strip()]
    return told[-1] if told else "Ray gave no reason"
