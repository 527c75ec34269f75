"""The terminal debugger in a real terminal, over real debugpy."""

from __future__ import annotations

import os
import pty
import select
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from bootstrap.debug.terminal import PROMPT
from tests.integration.real_debuggee import PATIENCE

ROOT = Path(__file__).resolve().parents[2]

TASK = """\
def my_task(x):
    numbers = list(range(x))
    breakpoint()
    total = sum(numbers)
    return total

print("result", my_task(4))
"""

BUSY = """\
import os, threading
go = threading.Event()
breakpoint()
go.wait()
print("end")
"""


class Screen:
    """A program in a terminal of its own; `until` reads on from where the last one ended."""

    def __init__(self, *command: str) -> None:
        self._fd, inner = pty.openpty()
        environment = {**os.environ, "TERM": "xterm", "NO_COLOR": "1", "INPUTRC": os.devnull}
        # A session of its own, whose terminal this one becomes, so that Ctrl-C is a signal there.
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

    def until(self, text: str, *, press: str = "") -> str:
        """What was shown before `text`; `press` is typed, and again each second in which nothing is shown.

        Ctrl-C has to be pressed so: one that comes in the moment between the prompt and the wait for a
        key is noticed by Python's `input` only at the next key.
        """
        end = time.monotonic() + PATIENCE
        self.type(press)
        while text not in self._unread:
            ready, _, _ = select.select([self._fd], [], [], 1.0 if press else PATIENCE)
            assert time.monotonic() < end, f"no {text!r} in {self._unread!r}"
            if not ready:
                self.type(press)
                continue
            try:
                data = os.read(self._fd, 65536)
            except OSError:  # Linux's way to say that the other end is closed
                data = b""
            assert data, f"ended without {text!r}: {self._unread!r}"
            self._unread += data.decode(errors="replace")
        seen, _, self._unread = self._unread.partition(text)
        return seen

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


Open = Callable[..., Screen]


@pytest.fixture
def screen(tmp_path: Path) -> Iterator[Open]:
    screens: list[Screen] = []

    def start(*scripts: str) -> Screen:
        folder = tmp_path / "a folder"
        folder.mkdir()
        paths = []
        for number, text in enumerate(scripts):
            paths.append(folder / f"task{number}.py")
            paths[-1].write_text(text)
        screens.append(Screen(sys.executable, "-m", "tests.integration.real_debuggee", *map(str, paths)))
        return screens[-1]

    yield start
    for one in screens:
        one.close()


def test_a_task_is_debugged_to_its_end(screen: Open) -> None:
    terminal = screen(TASK)
    shown = terminal.until(PROMPT)
    assert "task-1 · " in shown
    assert "a folder/task0.py" in shown
    terminal.type("p sum(numbers)\r")
    assert "\n6\r" in terminal.until(PROMPT)
    terminal.type("p nope\r")
    assert "NameError: name 'nope' is not defined" in terminal.until(PROMPT)
    terminal.type("b 5 if total == 6\r")
    assert "breakpoint at" in terminal.until(PROMPT)
    terminal.type("c\r")
    assert "-> 5" in terminal.until(PROMPT)
    terminal.type("locals\r")
    assert "total   = 6" in terminal.until(PROMPT)
    terminal.type("c\r")
    terminal.until("job raysubmit_1 ended: SUCCEEDED")
    terminal.until("LEFT 0, 0 paused")
    terminal.until("PRINTED [['result 6']]")


def test_ctrl_c_at_an_empty_prompt_leaves_the_task_paused(screen: Open) -> None:
    terminal = screen(TASK)
    for _ in range(3):
        terminal.until(PROMPT)
        terminal.until("is paused again, and waits for the next debugger", press="\x03")
        terminal.until("LEFT 130, 1 paused")
    terminal.until(PROMPT)
    terminal.type("p numbers\r")
    assert "[0, 1, 2, 3]" in terminal.until(PROMPT)
    terminal.type("c\r")
    terminal.until("PRINTED [['result 6']]")


def test_ctrl_c_drops_a_line_that_was_begun(screen: Open) -> None:
    terminal = screen(TASK)
    terminal.until(PROMPT)
    terminal.type("p numb")
    terminal.until("p numb")
    terminal.until(PROMPT, press="\x03")
    terminal.type("p numbers\r")
    assert "[0, 1, 2, 3]" in terminal.until(PROMPT)
    terminal.type("c\r")
    terminal.until("LEFT 0, 0 paused")


def test_ctrl_c_stays_at_the_prompt_where_the_task_could_not_be_kept(screen: Open) -> None:
    terminal = screen(TASK)
    terminal.until(PROMPT)
    terminal.type("b 5\r")
    terminal.until(PROMPT)
    terminal.type("c\r")
    terminal.until(PROMPT)
    terminal.until("can't be paused again where it stands now", press="\x03")
    terminal.until(PROMPT)
    terminal.type("p total\r")
    assert "\n6\r" in terminal.until(PROMPT)
    terminal.type("\x04")
    terminal.until("goes on")
    terminal.until("LEFT 0, 0 paused")


def test_ctrl_c_while_a_task_runs_returns_to_the_prompt(screen: Open) -> None:
    terminal = screen(BUSY)
    terminal.until(PROMPT)
    terminal.type("!threading.Timer(1.5, os.kill, (os.getpid(), 9)).start()\r")
    terminal.until(PROMPT)
    terminal.type("c\r")
    terminal.until("goes on; waiting for the next stop")
    terminal.until("back at the prompt", press="\x03")
    terminal.until(PROMPT)
    terminal.type("p 1\r")
    terminal.until("no task is stopped here")
    terminal.until(PROMPT)
    terminal.type("c\r")
    terminal.until("has ended")
    terminal.until("job raysubmit_1 ended: FAILED")


def test_words_are_completed(screen: Open) -> None:
    terminal = screen(TASK)
    terminal.until(PROMPT)
    terminal.type("wher\t\r")
    terminal.until("where")
    assert "-> 0  my_task" in terminal.until(PROMPT)
    terminal.type("c\r")
    terminal.until("LEFT 0, 0 paused")
