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

from bootstrap.debugger.terminal import PROMPT
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


def test_a_breakpoint_gathers_and_one_that_can_not_be_read_is_refused(screen: Open) -> None:
    terminal = screen(TASK)
    terminal.until(PROMPT)
    terminal.type("b 5 if total =\r")
    shown = terminal.until(PROMPT)
    assert "the condition 'total =' is no Python expression: invalid syntax" in shown
    sets(terminal, "b 5 gather 2 within 1 if total == 6")
    terminal.type("b\r")
    assert "task0.py:5 gather 2 within 1 if total == 6\r" in terminal.until(PROMPT)
    terminal.type("c\r")
    terminal.until("1 of 2 tasks have come to ")
    assert "-> 5" in terminal.until(PROMPT)
    terminal.type("p ray.tas\t\r")
    assert "'task-1'" in terminal.until(PROMPT)
    terminal.type("c\r")
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


def test_a_group_of_tasks_is_stepped_and_who_is_late_is_named(screen: Open) -> None:
    terminal = screen(GROUP.replace("WAIT", "0"), GROUP.replace("WAIT", "4"))
    take(terminal, 1)
    terminal.type("group @ray.pid > 0\r")
    assert "@ray.pid > 0: 2 members" in terminal.until(PROMPT)
    terminal.type("next @ray.pid > 0\r")
    assert terminal.until(PROMPT).count("1 stopped at work") == 2  # each has a file of its own
    terminal.type("next @ray.pid > 0 within 1\r")
    shown = terminal.until(PROMPT)
    assert "1 late after 1 s, in work" in shown
    assert "task-2 · " in shown.partition("1 late")[2].partition("1 stopped at work")[0]
    assert "-> 6" in shown
    # The first returns, and runs on to its end; the second comes to the line that it is late for.
    terminal.type("pause @nobody\r")
    assert "'nobody' is no group" in terminal.until(PROMPT)
    terminal.type("continue @task:task-1\r")
    shown = terminal.until(PROMPT)
    assert "task-2 · " in shown and "-> 6" in shown
    terminal.type("c @all\r")
    terminal.until("PRINTED [['result 1'], ['result 1']]")


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


def take(terminal: Screen, number: int) -> str:
    """Waits until both tasks are stopped, chooses one, and returns what was shown of it."""
    if terminal.which("which one?", PROMPT) == PROMPT:  # one came much later than the other
        end = time.monotonic() + PATIENCE
        terminal.type("tasks\r")
        while (shown := terminal.until(PROMPT)).count("stopped (") < 2:
            assert time.monotonic() < end, shown
            time.sleep(0.1)
            terminal.type("tasks\r")
        terminal.type("task ")
    terminal.type(f"{number}\r")
    return terminal.until(PROMPT)


def test_quit_lets_every_task_go_on(screen: Open) -> None:
    terminal = screen(TASK, TASK)
    assert "task-2 · " in take(terminal, 2)
    terminal.type("\x04")
    shown = terminal.until("LEFT 0")
    assert shown.count("goes on") == 2
    terminal.until("PRINTED [['result 6'], ['result 6']]")


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGTERM])
def test_a_window_that_is_closed_lets_every_task_go_on(screen: Open, number: int) -> None:
    terminal = screen(TASK)
    terminal.until(PROMPT)
    terminal.process.send_signal(number)
    terminal.until(f"LEFT {128 + number}")
    terminal.until("PRINTED [['result 6']]")


def test_a_step_of_one_leaves_the_other_where_it_is(screen: Open) -> None:
    terminal = screen(TASK, TASK)
    if "-> 3" not in take(terminal, 1):  # it stands at the call, or behind it: debugpy's choice
        terminal.type("p 0\r")
    else:
        terminal.type("n\r")
    terminal.until(PROMPT)
    terminal.type("n\r")
    assert "-> 5" in terminal.until(PROMPT)
    terminal.type("tasks\r")
    shown = terminal.until(PROMPT)
    assert shown.count("stopped (step)") == 1
    assert shown.count("stopped (breakpoint)") == 1
    terminal.type("c\r")
    assert "stopped (breakpoint)" in terminal.until(PROMPT)
    terminal.type("c\r")
    terminal.until("PRINTED [['result 6'], ['result 6']]")


def test_ctrl_c_drops_a_line_that_was_begun(screen: Open) -> None:
    terminal = screen(TASK)
    terminal.until(PROMPT)
    terminal.type("p numb")
    terminal.until("p numb")
    terminal.type("\x03")
    terminal.until(PROMPT)
    terminal.type("p numbers\r")
    assert "[0, 1, 2, 3]" in terminal.until(PROMPT)
    terminal.type("c\r")
    terminal.until("LEFT 0")


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


# A signal as soon as the prompt stands, before the wait for a key or in it. In a hook that is Python it would
# be noticed: this one is not.
AT_ONCE = """\
import os, readline, signal, threading
from bootstrap.signals import signals_noticed

lock = threading.Lock()
lock.acquire()

def send():
    while True:
        lock.acquire()
        os.kill(os.getpid(), signal.SIGINT)

threading.Thread(target=send, daemon=True).start()
readline.set_pre_input_hook(lock.release)
with signals_noticed():
    for number in range(100):
        try:
            input(f"prompt {number}")
        except KeyboardInterrupt:
            pass
print("ALL NOTICED")
"""


def test_a_ctrl_c_in_the_moment_before_the_wait_for_a_key_is_noticed() -> None:
    terminal = Screen(sys.executable, "-c", AT_ONCE)
    try:
        terminal.until("ALL NOTICED")
    finally:
        terminal.close()
