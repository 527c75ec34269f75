"""Pseudo-terminal with a program, whose screen a test reads and which it types into."""

from __future__ import annotations

import os
import pty
import select
import subprocess
import sys
import time
from collections.abc import Mapping

from bootstrap.settings import ROOT
from tests.patience import PATIENCE


class Screen:
    """Runs a program in a new pseudo-terminal; each `until` reads on from the end of the last one."""

    def __init__(self, *command: str, env: Mapping[str, str] = os.environ) -> None:
        self._fd, inner = pty.openpty()
        environment = {**env, "TERM": "xterm", "NO_COLOR": "1", "INPUTRC": os.devnull}
        # A new session with this controlling terminal, so that Ctrl-C sends a signal there.
        take = (
            "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0);"
            "os.execv(sys.argv[1], sys.argv[1:])"
        )
        self.process = subprocess.Popen(
            [sys.executable, "-c", take, *command],
            stdin=inner,
            stdout=inner,
            stderr=inner,
            cwd=ROOT,
            env=environment,
            start_new_session=True,
        )
        os.close(inner)
        self._unread = ""

    def shows(self, text: str, *, seconds: float) -> bool:
        """Returns whether the text appears within that time; `until` can still find it."""
        end = time.monotonic() + seconds
        while text not in self._unread and (left := end - time.monotonic()) > 0:
            if select.select([self._fd], [], [], left)[0]:
                try:
                    self._unread += os.read(self._fd, 65536).decode(errors="replace")
                except OSError:  # it has ended
                    break
        return text in self._unread

    def until(self, text: str) -> str:
        """Returns the output before `text`."""
        end = time.monotonic() + PATIENCE
        while text not in self._unread:
            ready, _, _ = select.select([self._fd], [], [], PATIENCE)
            assert ready and time.monotonic() < end, f"no {text!r} in {self._unread!r}"
            try:
                data = os.read(self._fd, 65536)
            except OSError:  # Linux raises it once the other end is closed.
                data = b""
            assert data, f"ended without {text!r}: {self._unread!r}"
            self._unread += data.decode(errors="replace")
        shown, _, self._unread = self._unread.partition(text)
        return shown

    def type(self, text: str) -> None:
        os.write(self._fd, text.encode())

    def close(self) -> None:
        if self.process.poll() is None:
            self.type("\x04\x04")
            try:
                self.process.wait(5)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        os.close(self._fd)
