"""Stacks of tasks' processes at the moment when a verb reports that one does not answer."""

from __future__ import annotations

import contextlib
import os
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil

_SAYS = "did not answer"
_READING = 60.0  # timeout in seconds for py-spy, and for heirs of a verb's standard error to end


def stacks(processes: list[psutil.Process], programs: Path) -> str:
    """Returns the Python and C stacks of Ray's workers, read with py-spy in the folder `programs`."""
    texts = []
    for process in processes:
        with contextlib.suppress(psutil.Error, subprocess.SubprocessError, OSError):
            title = " ".join(process.cmdline()).strip()
            if title.startswith("ray::"):
                spy = [str(programs / "py-spy"), "dump", "--native", "--pid", str(process.pid)]
                done = subprocess.run(spy, capture_output=True, text=True, timeout=_READING, check=False)
                texts.append(f"{title}\n{done.stdout or done.stderr}")
    return "\n".join(texts)


@contextlib.contextmanager
def noticed(read: Callable[[], str]) -> Iterator[tuple[int, list[str]]]:
    """Yields a descriptor for a verb's standard error, and the lines written to it.

    The first line about a missing answer is followed by the result of `read`.
    """
    reading, writing = os.pipe()
    lines: list[str] = []

    def take() -> None:
        is_read = False
        with os.fdopen(reading, errors="replace") as text:
            for line in text:
                lines.append(line)
                if _SAYS in line and not is_read:
                    is_read = True
                    lines.append(read())

    thread = threading.Thread(target=take, daemon=True)
    thread.start()
    try:
        yield writing, lines
    finally:
        os.close(writing)
        thread.join(_READING)
