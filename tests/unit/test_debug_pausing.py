"""Leaving a task paused: which `breakpoint()` call may be run again, and which may not."""

from __future__ import annotations

import asyncio
import textwrap
from collections.abc import Sequence

import pytest

from bootstrap.debug.pausing import call_to_repeat, return_to_breakpoint, runs_on_in_function
from bootstrap.debug.session import Attached
from tests.unit.scripted_debuggee import ScriptedDebuggee, Turn, debuggee, stack, stopped, value

TASK = "def f(x):\n    a = 1\n    breakpoint()  # here\n    b = (\n        x + 1)\n    return b\n"


@pytest.mark.parametrize(
    ("line", "just_called", "call"),
    [
        (3, True, 3),
        (3, False, 3),
        (4, True, 3),
        (5, True, 3),
        (4, False, None),
        (2, True, None),
        (6, True, None),
    ],
)
def test_the_call_to_repeat_is_the_one_that_stopped_the_task(
    line: int, just_called: bool, call: int | None
) -> None:
    assert call_to_repeat(TASK, line, just_called=just_called) == call


@pytest.mark.parametrize(
    "statement",
    [
        "breakpoint(); a()",
        "a(); breakpoint()",
        "x = breakpoint()",
        "if a(): breakpoint()",
        "breakpoint() or a()",
        "breakpoint(a())",
        "mybreakpoint()",
        "lambda: breakpoint()",
    ],
)
def test_a_line_that_does_more_than_the_call_is_never_repeated(statement: str) -> None:
    assert call_to_repeat(f"{statement}\nb = 1\n", 1, just_called=True) is None
    assert call_to_repeat(f"{statement}\nb = 1\n", 2, just_called=True) is None


@pytest.mark.parametrize("statement", ["breakpoint()", "breakpoint();", "ray.util.debugpy.set_trace()  # !"])
def test_a_bare_call_is_repeated(statement: str) -> None:
    assert call_to_repeat(f"{statement}\nb = 1\n", 1, just_called=True) == 1


def test_what_follows_a_call_is_found_in_every_block() -> None:
    text = textwrap.dedent("""\
        def f():
            for i in x:
                if i:
                    breakpoint()
            with y:
                breakpoint()
            try:
                breakpoint()
            finally:
                z()
            while True:
                a()
                breakpoint()
    """)
    calls = {line: call_to_repeat(text, line, just_called=True) for line in (2, 5, 10, 11, 12)}
    assert calls == {2: 4, 5: 6, 10: 8, 11: 13, 12: 13}


def test_two_calls_that_lead_to_the_same_line_are_left_alone() -> None:
    text = "if x:\n    breakpoint()\nelse:\n    breakpoint()\na = 1\n"
    assert call_to_repeat(text, 5, just_called=True) is None
    assert call_to_repeat(text, 4, just_called=True) == 4


@pytest.mark.parametrize(
    ("body", "runs_on"),
    [
        ("breakpoint()\nreturn 1", True),
        ("breakpoint()", False),
        ("if a:\n    breakpoint()", False),
        ("for a in b:\n    breakpoint()", True),
        ("with a:\n    breakpoint()", True),
        ("try:\n    breakpoint()\nexcept E:\n    pass", False),
    ],
)
def test_stepping_off_the_end_of_a_function_is_foreseen(body: str, runs_on: bool) -> None:
    text = f"def f():\n{textwrap.indent(body, '    ')}\nafter = 1\n"
    line = text[: text.index("breakpoint()")].count("\n") + 1
    assert runs_on_in_function(text, line) is runs_on


def test_source_that_this_python_cannot_read_is_left_alone() -> None:
    assert call_to_repeat("def f(:\n  breakpoint()\n", 2, just_called=True) is None
    assert call_to_repeat("", 1, just_called=True) is None


def leave(fake: ScriptedDebuggee) -> bool:
    async def story() -> bool:
        attached = Attached(debuggee(), lambda happening: None)
        await attached.attach(fake.connect)
        stop = await attached.stopped(5)
        back = await asyncio.wait_for(return_to_breakpoint(stop), 5)
        await attached.leave()
        return back

    return asyncio.run(story())


def at(line: int, function: str = "f") -> Turn:
    return stack((function, "/far/w.py", line))


GOTO: Sequence[Turn] = (
    Turn("gotoTargets", {"source": {"path": "/far/w.py"}, "line": 3}, {"targets": [{"id": 8}]}),
    Turn("goto", {"threadId": 1, "targetId": 8}, events=[stopped("goto")]),
)
CANT_GOTO: Sequence[Turn] = (
    Turn("gotoTargets", {"line": 3}, {"targets": [{"id": 8}]}),
    Turn("goto", answer=""),
)


def test_it_jumps_back_from_the_line_after_the_call() -> None:
    fake = ScriptedDebuggee(at(4), value(TASK), *GOTO)
    assert leave(fake)
    fake.check()


def test_it_leaves_the_call_first_where_python_cannot_jump() -> None:
    fake = ScriptedDebuggee(
        at(3), value(TASK), *CANT_GOTO, Turn("next", events=[stopped("step")]), at(4), *GOTO
    )
    assert leave(fake)
    fake.check()


def test_it_does_not_step_off_the_end_of_the_function() -> None:
    fake = ScriptedDebuggee(at(3), value("def f(x):\n    a = 1\n    breakpoint()\n"), *CANT_GOTO)
    assert not leave(fake)
    fake.check()


def test_it_does_not_jump_in_another_function_than_the_one_it_left() -> None:
    fake = ScriptedDebuggee(
        at(3), value(TASK), *CANT_GOTO, Turn("next", events=[stopped("step")]), at(9, function="g")
    )
    assert not leave(fake)
    fake.check()


def test_a_task_that_was_stepped_away_is_left_alone() -> None:
    fake = ScriptedDebuggee(at(4), value(TASK), after_attach=[stopped("step")])
    assert not leave(fake)
    fake.check()


def test_a_line_breakpoint_is_no_call() -> None:
    fake = ScriptedDebuggee(at(4), value(TASK), after_attach=[stopped(hitBreakpointIds=[1])])
    assert not leave(fake)
    fake.check()
