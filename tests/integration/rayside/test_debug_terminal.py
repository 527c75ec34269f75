"""Tests the terminal debugger in a real terminal, over real debugpy."""

from __future__ import annotations

import os
import re
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rayside.client.terminal import PROMPT
from tests.integration.real_debuggee import TASK
from tests.integration.screen import Screen
from tests.patience import PATIENCE

pytestmark = [pytest.mark.gate, pytest.mark.usefixtures("answers_in_full")]

BUSY = """\
import os, threading
go = threading.Event()
breakpoint()
go.wait()
print("end")
"""


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
    for opened in screens:
        opened.close()


def sets(terminal: Screen, command: str) -> None:
    """Has it set a breakpoint; what its task does not answer at once is told with a later prompt."""
    terminal.type(f"{command}\r")
    end = time.monotonic() + PATIENCE
    while "breakpoint at" not in terminal.until(PROMPT):
        assert time.monotonic() < end, "no task has it"
        terminal.type("b\r")


def test_a_task_is_debugged_to_its_end(screen: Open) -> None:
    terminal = screen(TASK)
    shown = terminal.until(PROMPT)
    assert "task-1 · " in shown
    assert "a folder/task0.py" in shown
    assert "\x1b[1" not in shown  # NO_COLOR is set
    terminal.type("p sum(numbers)\r")
    assert "\n6\r" in terminal.until(PROMPT)
    terminal.type("p nope\r")
    assert "NameError: name 'nope' is not defined" in terminal.until(PROMPT)
    sets(terminal, "b 5 if total == 6")
    terminal.type("c\r")
    assert "-> 5" in terminal.until(PROMPT)
    terminal.type("locals\r")
    assert "total   = 6" in terminal.until(PROMPT)
    terminal.type("up\r")
    terminal.until(PROMPT)
    terminal.type("locals\r")
    assert "= <function my_task at" in terminal.until(PROMPT)
    terminal.type("c\r")
    terminal.until("job raysubmit_1 ended: SUCCEEDED")
    terminal.until("LEFT 0")
    terminal.until("PRINTED [['result 6']]")


# Each goes on from its `breakpoint()`; the second waits between two lines of its own.
GROUP = """\
import time
def work(wait):
    breakpoint()
    ready = True
    time.sleep(wait)
    return 1
print("result", work(WAIT))
"""


def test_ctrl_c_ends_the_wait_for_a_group_and_who_comes_later_is_shown(screen: Open) -> None:
    terminal = screen(GROUP.replace("WAIT", "3"))
    terminal.until(PROMPT)
    terminal.type("next\r")
    assert "-> 5" in terminal.until(PROMPT)
    terminal.type("next @all within 60\r")
    time.sleep(0.5)
    terminal.type("\x03")
    assert "interrupted; back at the prompt" in terminal.until(PROMPT)
    terminal.type("group @all\r")
    assert "1 late, in work" in terminal.until(PROMPT)
    time.sleep(3)
    terminal.type("tasks\r")
    assert "-> 6" in terminal.until(PROMPT)
    terminal.type("c\r")
    terminal.until("PRINTED [['result 1']]")


def test_ctrl_c_at_an_empty_prompt_leaves_the_task_stopped_wherever_it_stands(screen: Open) -> None:
    terminal = screen(TASK)
    terminal.until(PROMPT)
    terminal.type("b 5\r")
    terminal.until(PROMPT)
    terminal.type("c\r")
    assert "-> 5" in terminal.until(PROMPT)
    for _ in range(3):
        terminal.type("\x03")
        terminal.until("stays stopped; ./invokew debug comes back to it")
        terminal.until("LEFT 130")
        assert "-> 5" in terminal.until(PROMPT)
    terminal.type("p total\r")
    assert "\n6\r" in terminal.until(PROMPT)
    terminal.type("c\r")
    terminal.until("PRINTED [['result 6']]")


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGTERM])
def test_a_window_that_is_closed_lets_every_task_go_on(screen: Open, number: int) -> None:
    terminal = screen(TASK)
    terminal.until(PROMPT)
    terminal.process.send_signal(number)
    terminal.until(f"LEFT {128 + number}")
    terminal.until("PRINTED [['result 6']]")


def test_ctrl_c_while_a_task_runs_returns_to_the_prompt(screen: Open) -> None:
    terminal = screen(BUSY)
    terminal.until(PROMPT)
    terminal.type("p 'pid', os.getpid()\r")
    (pid,) = map(int, re.findall(r"'pid', (\d+)\)", terminal.until(PROMPT)))
    terminal.type("c\r")
    terminal.until("goes on; waiting for the next stop")
    terminal.type("\x03")
    terminal.until("back at the prompt")
    terminal.until(PROMPT)
    terminal.type("p 1\r")
    terminal.until("no task is stopped here")
    terminal.until(PROMPT)
    terminal.type("c\r")
    os.kill(pid, signal.SIGKILL)
    terminal.until("job raysubmit_1 ended: FAILED")


def test_words_are_completed(screen: Open) -> None:
    terminal = screen(TASK)
    terminal.until(PROMPT)
    terminal.type("wher\t\r")
    terminal.until("where")
    assert "-> 0  my_task" in terminal.until(PROMPT)
    terminal.type("c\r")
    terminal.until("LEFT 0")
