"""Tests the terminal debugger: what words mean, what is shown, and how it leaves."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from bootstrap.errors import RayDied
from rayside import waiting
from rayside.client import commands, keyboard, listing, session, terminal
from rayside.client.breakpoints import path_of
from rayside.client.session import AttachOptions
from rayside.client.stops import Frame
from rayside.dap.framing import Message
from rayside.errors import DebuggerBusy, DebuggerGone, InvalidArgument, NothingPaused, NotRunning
from tests.unit.scripted_debuggee import (
    ScriptedConsole,
    ScriptedJob,
    ScriptedRelay,
    Turn,
    session_ended,
    stack,
    task_stopped,
    thread_exited,
    value,
    way_lost,
)

# Nowhere on this machine, so that its text is the relay's.
PATH = "/near/a b/w.py"
TEXT = "import ray\n\ndef f(x):\n    breakpoint()\n    y = x\n    return y\n"


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes it quick: nothing here takes time, so nothing is worth waiting for."""
    monkeypatch.setattr(terminal, "_QUIET", 0.02)
    monkeypatch.setattr(session, "SOON", 0.01)


def at(line: int, thread: int = 1) -> list[Turn]:
    frame = {
        "id": 1 + 100 * (thread - 1),
        "name": "f",
        "source": {"path": PATH, "sourceReference": 7},
        "line": line,
    }
    return [Turn("stackTrace", {"threadId": thread}, {"stackFrames": [frame]})]


SOURCE = Turn("source", {"sourceReference": 7}, {"content": TEXT})


def talk(
    tmp_path: Path,
    job: ScriptedJob,
    relay: ScriptedRelay,
    *typed: str | type[BaseException],
    timeout: float = 5,
    take_over: str = "always",
    typed_at: bool = True,
    console: ScriptedConsole | None = None,
) -> tuple[int, ScriptedConsole]:
    console = console or ScriptedConsole(*typed)
    console.typed_at = typed_at
    attachment = AttachOptions(partial(relay.connect, "127.0.0.1", 5678), "secret", take_over=take_over)
    history = tmp_path / "state" / "history"
    code = terminal.run(attachment, job, console, timeout=timeout, history=history)
    relay.check()
    assert console.typed == []
    return code, console


# --- words -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "name", "rest"),
    [
        ("n", "next", ""),
        ("  next  ", "next", ""),
        ("bt", "where", ""),
        ("p  x + 1 ", "p", "x + 1"),
        ("!x = 1", "!", "x = 1"),
        ("! x = 1", "!", "x = 1"),
        ("?", "help", ""),
        ("b a b.py:3 if x", "break", "a b.py:3 if x"),
        ("out", "finish", ""),
        ("numbers", "numbers", ""),
        ("", "", ""),
    ],
)
def test_words_and_their_abbreviations(line: str, name: str, rest: str) -> None:
    assert commands.parse(line) == (name, rest)


def test_no_two_words_share_an_abbreviation() -> None:
    spelled = [name for word in commands.WORDS for name in (word.name, *word.short)]
    assert len(spelled) == len(set(spelled))


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("12", (None, 12, None)),
        ("a b.py:12", ("a b.py", 12, None)),
        ("/x/y:z.py:3 if i == 4", ("/x/y:z.py", 3, "i == 4")),
        ("3, if a", (None, 3, "a")),
        ("3 first", (None, 3, None, "first")),
        ("a b.py:3 gather 8 if x > 1", ("a b.py", 3, "x > 1", "gather 8")),
        ("3 gather 8 within 30 s", (None, 3, None, "gather 8 within 30 s")),
        ("3 hit %2", (None, 3, None, "%2")),
        *((text, None) for text in ("3 gather 1", "3 gather 8 within 0", "3 gather", "3 hit", "3 if  ")),
        *((text, None) for text in ("x.py", "0", "-1", "3 x", "")),
    ],
)
def test_places(text: str, place: tuple[Any, ...] | None) -> None:
    assert commands.place(text) == (commands.Place(*place) if place else None)


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("a b.py:12", ("a b.py", 12, None)),
        ("/x/y:z.py:3:i == 4", ("/x/y:z.py", 3, "i == 4")),
        ("w.py:3:d['a:1'] or x[1:2]", ("w.py", 3, "d['a:1'] or x[1:2]")),
        ("w.py:3 first", ("w.py", 3, None, "first")),
        ("w.py:3 gather 8: x == 'a:b'", ("w.py", 3, "x == 'a:b'", "gather 8")),
        *((text, None) for text in ("w.py:3 often", "w.py:3:", "w.py:3: ", "w.py", "12", "w.py:0", ":3", "")),
    ],
)
def test_places_on_the_command_line(text: str, place: tuple[Any, ...] | None) -> None:
    assert commands.option(text) == (commands.Place(*place) if place else None)


@pytest.mark.parametrize("text", ["3 if x >", "3 gather 8 if x = 1"])
def test_a_condition_that_can_not_be_read_is_refused_where_it_is_typed(text: str) -> None:
    with pytest.raises(InvalidArgument, match="is no Python expression: invalid syntax"):
        commands.named_place("break", text)


@pytest.mark.parametrize(
    "text", ["/a.py:3", "/a.py:3 if x", "/a.py:3 first", "/a.py:3 hit %2", "/a.py:3 gather 8 if x > 1"]
)
def test_a_breakpoint_is_listed_as_it_can_be_typed(text: str) -> None:
    assert str(commands.place(text)) == text


# --- what is shown -----------------------------------------------------------------------


def test_the_source_marks_the_current_line_and_breakpoints() -> None:
    text = "\n".join(f"line {number}" for number in range(1, 12))
    assert listing.source(text, 10, first=9, last=30, breakpoints=[9]) == [
        ("B   9  line 9", False),
        ("-> 10  line 10", True),
        ("   11  line 11", False),
    ]


def test_a_value_or_a_name_makes_no_line_of_its_own_and_a_long_one_is_cut() -> None:
    assert len(listing.variables({"x": "'a'\nerror: run this"}).splitlines()) == 1
    assert len(listing.stack([Frame(1, "f\r\n", "/a\n", 1)], 0).splitlines()) == 1
    shown = listing.variables({"x": "9" * 1000})
    assert len(shown) < 500
    assert "`p NAME` shows it all" in shown


# --- files -------------------------------------------------------------------------------


def test_a_file_is_named_from_here_or_the_one_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "b.py").touch()
    current = "/near/w.py"
    assert path_of(None, current) == current
    assert path_of("b.py", current) == str(tmp_path / "b.py")
    assert path_of("other.py", current) == "/near/other.py"
    assert path_of("/far/other.py", current) == "/far/other.py"


# --- the conversation --------------------------------------------------------------------


def test_a_task_is_looked_at_and_let_go_on_until_the_job_has_ended(tmp_path: Path) -> None:
    job = ScriptedJob()
    turns = [
        *at(4),
        Turn("scopes", answer={"scopes": [{"variablesReference": 5}]}),
        Turn("variables", answer={"variables": [{"name": "x", "value": "3"}]}),
        Turn("evaluate", {"expression": "x + 1", "context": "watch", "frameId": 1}, {"result": "4"}),
        Turn("evaluate", {"expression": "y"}, "NameError: name 'y' is not defined"),
        Turn("evaluate", {"expression": "x = 5", "context": "repl"}, {"result": ""}),
        Turn("continue", {"threadId": 1}, then=job.end),
    ]
    relay = ScriptedRelay({1: turns, 0: [SOURCE]})
    typed = ["locals", "p x + 1", "p y", "!x = 5", "where", "numbers", "c"]
    code, console = talk(tmp_path, job, relay, *typed)
    assert code == 0
    assert "my_task · 101@127.0.0.9 stopped (breakpoint)" in console.lines
    assert "/near/a b/w.py:4 in f" in console.lines
    assert "-> 4      breakpoint()" in console.shown
    assert "  x = 3" in console.lines
    assert "4" in console.lines
    assert "NameError: name 'y' is not defined" in console.lines
    assert "-> 0  f  /near/a b/w.py:4" in console.lines
    assert "`numbers` is no command; `p numbers` evaluates it, `help` lists the commands" in console.lines
    assert "`! x = 1` evaluates it" in commands.unknown("x", "x = 1")
    assert console.lines[-2:] == [
        "job raysubmit_1 ended: SUCCEEDED",
        "Next: ./invokew submit --help says how to run your own program",
    ]


def test_an_empty_line_repeats_a_step_and_nothing_else(tmp_path: Path) -> None:
    job = ScriptedJob()
    step = [task_stopped(reason="step")]
    turns = [
        *at(4),
        Turn("next", {"threadId": 1}, events=step),
        *at(5),
        Turn("next", events=step),
        *at(6),
        Turn("evaluate", {"expression": "x"}, {"result": "1"}),
        Turn("stepIn", events=step),
        *at(6),
        Turn("stepOut", events=step),
        *at(6),
        Turn("continue", then=job.end),
    ]
    relay = ScriptedRelay({1: turns, 0: [SOURCE] * 5})
    _, console = talk(tmp_path, job, relay, "n", "", "p x", "", "s", "out", "c")
    assert "nothing to evaluate" not in console.shown
    assert "has stopped, too" not in console.shown


@pytest.mark.parametrize(
    ("message", "why"),
    [
        ("'k'", "exception: KeyError: 'k'"),
        ("exception: no description", "exception: KeyError"),
        ("a\nb\x1b]0;t\x07", r"exception: KeyError: a\nb\x1b]0;t\x07"),
        ("x" * 5000, f"exception: KeyError: {'x' * 397}..."),
    ],
    ids=["message", "no message", "commands", "long"],
)
def test_an_exceptions_name_and_message_are_shown_in_one_line(tmp_path: Path, message: str, why: str) -> None:
    raised = task_stopped(reason="exception", text="KeyError", description=message)
    relay = ScriptedRelay({1: at(5), 0: [SOURCE]}, after_attach=[raised])
    _, console = talk(tmp_path, ScriptedJob(), relay, "q")
    assert f"my_task · 101@127.0.0.9 stopped ({why})" in console.lines


def test_what_a_task_raised_is_told_without_its_traceback(tmp_path: Path) -> None:
    message = "\x1b[36mray::fee()\x1b[39m (pid=7)\n  File main.py\nValueError: too small"
    raised = task_stopped(reason="exception", text="RayTaskError(ValueError)", description=message)
    _, console = talk(
        tmp_path, ScriptedJob(), ScriptedRelay({1: at(5), 0: [SOURCE]}, after_attach=[raised]), "q"
    )
    assert (
        "my_task · 101@127.0.0.9 stopped (exception: RayTaskError(ValueError): ValueError: too small)"
        in console.lines
    )


def test_functions_and_classes_are_variables_and_special_names_are_not(tmp_path: Path) -> None:
    groups = {"special variables": 6, "function variables": 7, "class variables": 8}
    listed = [{"name": name, "value": "", "variablesReference": number} for name, number in groups.items()]
    listed += [{"name": "(return) len", "value": "1"}, {"name": "x", "value": "3"}]
    turns = [
        *at(5),
        Turn("scopes", answer={"scopes": [{"variablesReference": 5}]}),
        Turn("variables", {"variablesReference": 5}, {"variables": listed}),
        Turn("variables", {"variablesReference": 7}, {"variables": [{"name": "f", "value": "<function f>"}]}),
        Turn("variables", {"variablesReference": 8}, {"variables": [{"name": "A", "value": "<class A>"}]}),
    ]
    _, console = talk(tmp_path, ScriptedJob(), ScriptedRelay({1: turns, 0: [SOURCE]}), "locals", "q")
    assert "  A = <class A>\n  f = <function f>\n  x = 3" in console.lines


def test_tasks_of_several_jobs_are_shown_with_their_jobs(tmp_path: Path) -> None:
    later = task_stopped(2, "two", job="raysubmit_2")
    turns = {
        1: [*at(5), Turn("evaluate", answer={"result": "1"}, events=[later])],
        2: at(5, 2),
        0: [SOURCE] * 2,
    }
    _, console = talk(tmp_path, ScriptedJob(), ScriptedRelay(turns), "p x", "tasks", "task 2", "q")
    assert "my_task · 101@127.0.0.9 stopped (breakpoint)" in console.lines
    assert "two · 102@127.0.0.9 of job raysubmit_2 has stopped, too: `tasks` lists what is stopped" in (
        console.lines
    )
    assert (
        "-> 1  my_task · 101@127.0.0.9 of job raysubmit_1  stopped (breakpoint)\n"
        "   2  two · 102@127.0.0.9 of job raysubmit_2  stopped (breakpoint)"
    ) in console.lines
    assert "two · 102@127.0.0.9 of job raysubmit_2 stopped (breakpoint)" in console.lines


def test_a_stop_of_an_unwatched_job_is_shown_with_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(terminal, "_QUIET", 0.3)  # within which the job is looked at
    relay = ScriptedRelay({1: at(5), 0: [SOURCE]}, after_attach=[task_stopped(job="raysubmit_2")])
    _, console = talk(tmp_path, ScriptedJob(), relay, "q")
    assert "my_task · 101@127.0.0.9 of job raysubmit_2 stopped (breakpoint)" in console.lines


TWO = (task_stopped(1, "one"), task_stopped(2, "two"))


def test_several_tasks_are_chosen_from(tmp_path: Path) -> None:
    relay = ScriptedRelay({2: at(5, 2), 0: [SOURCE]}, after_attach=TWO)
    code, console = talk(tmp_path, ScriptedJob(), relay, "9", "2", "tasks", KeyboardInterrupt)
    assert code == 130
    rows = "{} 1  one · 101@127.0.0.9  stopped (breakpoint)\n{} 2  two · 102@127.0.0.9  stopped (breakpoint)"
    assert rows.format("  ", "  ") in console.lines
    assert "a number from 1 to 2, or `q`" in console.lines
    assert rows.format("  ", "->") in console.lines


def test_task_n_switches_and_the_other_stays_stopped(tmp_path: Path) -> None:
    turns = {
        1: [*at(5), *at(5), Turn("evaluate", {"frameId": 1}, {"result": "1"})],
        2: at(5, 2),
        0: [SOURCE] * 3,
    }
    relay = ScriptedRelay(turns, after_attach=TWO)
    typed = ["1", "task 2", "task 1", "p x", "task 7"]
    code, _ = talk(tmp_path, ScriptedJob(), relay, *typed, KeyboardInterrupt)
    assert code == 130


def test_a_step_of_one_leaves_the_other_and_continue_goes_to_it(tmp_path: Path) -> None:
    job = ScriptedJob()
    turns = {
        1: [*at(5), Turn("next", {"threadId": 1}, events=[task_stopped(1, "one", "step")]), *at(6),
            Turn("continue", {"threadId": 1})],
        2: [*at(5, 2), Turn("continue", {"threadId": 2}, then=job.end)],
        0: [SOURCE] * 3,
    }  # fmt: skip
    _, console = talk(tmp_path, job, ScriptedRelay(turns, after_attach=TWO), "1", "n", "c", "c")
    assert "one · 101@127.0.0.9 stopped (step)" in console.lines
    assert "two · 102@127.0.0.9 stopped (breakpoint)" in console.lines


def begun(thread: int, caller: int) -> Message:
    """Returns the event of a task's first stop, which the caller has stepped into."""
    event = task_stopped(thread, "work", "step")
    event["body"]["ray"]["calledBy"] = caller
    return event


# Of a task that was stepped into.
INTO = [
    {"id": 101, "name": "work", "source": {"path": PATH, "sourceReference": 7}, "line": 5},
    {"id": 102, "name": "called by: one · 101@127.0.0.9", "line": 0, "presentationHint": "label"},
    {"id": 103, "name": "main", "source": {"path": PATH, "sourceReference": 7}, "line": 3},
]


def test_a_step_ends_in_the_task_that_it_went_into_and_shows_who_called(tmp_path: Path) -> None:
    job = ScriptedJob()
    both = [begun(2, 1), task_stopped(1, "one", "step")]
    turns = {
        1: [*at(5), Turn("stepIn", {"threadId": 1}, events=both)],
        2: [Turn("stackTrace", {"threadId": 2}, {"stackFrames": INTO}),
            Turn("next", {"threadId": 2}, events=[task_stopped(2, "work", "step")]), *at(6, 2)],
        0: [SOURCE] * 5,
    }  # fmt: skip
    relay = ScriptedRelay(turns, after_attach=[task_stopped(1, "one")])
    _, console = talk(tmp_path, job, relay, "s", "w", "up", "down", "n", "q")
    assert "work · 102@127.0.0.9 stopped (step)" in console.lines
    rows = [f"-> 0  work  {PATH}:5", "   called by: one · 101@127.0.0.9", f"   2  main  {PATH}:3"]
    assert "\n".join(rows) in console.shown
    assert f"{PATH}:3 in main" in console.lines
    # The caller's stop is told; the next step of the task is its own, and its caller's old stop no end of it.
    assert "one · 101@127.0.0.9 has stopped, too: `tasks` lists what is stopped" in console.lines
    assert f"{PATH}:6 in f" in console.lines


def test_a_task_that_begins_later_is_shown_where_its_caller_was(tmp_path: Path) -> None:
    job = ScriptedJob()
    later = Turn("evaluate", answer={"result": "1"}, events=[begun(2, 1)])
    turns = {
        1: [*at(5), Turn("stepIn", {"threadId": 1}, events=[task_stopped(1, "one", "step")]), *at(6), later,
            *at(6), Turn("next", {"threadId": 1}, events=[task_stopped(1, "one", "step")]), *at(6)],
        2: [Turn("stackTrace", {"threadId": 2}, {"stackFrames": INTO})],
        0: [SOURCE] * 5,
    }  # fmt: skip
    relay = ScriptedRelay(turns, after_attach=[task_stopped(1, "one")])
    # Back at the caller, its next step does not end in what it called before.
    _, console = talk(tmp_path, job, relay, "s", "p x", "task 1", "n", "q")
    assert "work · 102@127.0.0.9 stopped (step)" in console.lines
    assert "has stopped, too" not in console.shown


def test_a_stop_of_another_task_is_told_at_the_prompt(tmp_path: Path) -> None:
    evaluated = Turn("evaluate", answer={"result": "1"}, events=[task_stopped(2, "two")])
    relay = ScriptedRelay({1: [*at(5), evaluated, Turn("evaluate", answer={"result": "2"})], 0: [SOURCE]})
    _, console = talk(tmp_path, ScriptedJob(), relay, "p x", "p y", "q")
    notice = "two · 102@127.0.0.9 has stopped, too: `tasks` lists what is stopped"
    assert console.lines.count(notice) == 1
    assert console.lines[-2:] == ["my_task · 101@127.0.0.9 goes on", "two · 102@127.0.0.9 goes on"]


def test_ctrl_c_leaves_what_is_stopped_stopped_and_says_so(tmp_path: Path) -> None:
    relay = ScriptedRelay({1: at(5), 0: [SOURCE]}, after_attach=TWO)
    code, console = talk(tmp_path, ScriptedJob(), relay, "1", KeyboardInterrupt)
    assert code == 130
    assert console.lines[-2:] == [
        "one · 101@127.0.0.9 stays stopped; ./invokew debug comes back to it",
        "two · 102@127.0.0.9 stays stopped; ./invokew debug comes back to it",
    ]
    assert relay.last("disconnect") == {"terminateDebuggee": False, "suspendDebuggee": True}


def test_ctrl_c_ends_the_program_and_promises_nothing_of_its_tasks(tmp_path: Path) -> None:
    relay = ScriptedRelay({1: at(5), 0: [SOURCE]}, after_attach=TWO)
    asked: list[bool] = []
    console = ScriptedConsole("1", KeyboardInterrupt)
    attachment = AttachOptions(partial(relay.connect, "127.0.0.1", 5678), "secret")
    how: dict[str, Any] = {"history": tmp_path / "history", "end": lambda: asked.append(True)}
    assert terminal.run(attachment, ScriptedJob(), console, **how) == 130
    assert asked == [True]
    assert console.lines[-1] == ""


@pytest.mark.parametrize(
    ("word", "typed_at", "code", "last"),
    [
        ("q", True, 0, ["my_task · 101@127.0.0.9 goes on"]),
        (EOFError, True, 0, ["my_task · 101@127.0.0.9 goes on"]),
        ("quit", False, 0, ["my_task · 101@127.0.0.9 goes on"]),
        (
            *(EOFError, False, 130),
            [
                "the input has ended; `quit` in it would let every task go on",
                "my_task · 101@127.0.0.9 stays stopped; ./invokew debug comes back to it",
            ],
        ),
    ],
)
def test_quit_lets_all_go_on_and_the_end_of_a_file_or_a_pipe_does_not(
    tmp_path: Path, word: str | type[BaseException], typed_at: bool, code: int, last: list[str]
) -> None:
    relay = ScriptedRelay({1: [*at(5), value(3, "x")], 0: [SOURCE]})
    ended, console = talk(tmp_path, ScriptedJob(), relay, "p x", word, typed_at=typed_at)
    assert (ended, console.lines[-len(last) :]) == (code, last)
    assert relay.last("disconnect")["suspendDebuggee"] is (code == 130)


@pytest.mark.parametrize(("typed_at", "code"), [(False, 130), (True, 0)])
def test_so_does_its_end_where_a_task_is_to_be_chosen(tmp_path: Path, typed_at: bool, code: int) -> None:
    relay = ScriptedRelay({}, after_attach=TWO)
    assert talk(tmp_path, ScriptedJob(), relay, EOFError, typed_at=typed_at)[0] == code
    assert relay.last("disconnect")["suspendDebuggee"] is not typed_at


def test_ctrl_c_with_text_typed_drops_the_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = iter(["p x", ""])
    monkeypatch.setattr(terminal, "typed", lambda: next(texts))
    relay = ScriptedRelay({1: at(5), 0: [SOURCE]})
    code, _ = talk(tmp_path, ScriptedJob(), relay, KeyboardInterrupt, KeyboardInterrupt)
    assert code == 130


@pytest.mark.parametrize(
    ("event", "told"),
    [
        (thread_exited(), True),
        # Another debugger has taken it.
        (thread_exited(ray={"reason": "taken-over"}), False),
        # Its process has taken it along.
        ({"event": "continued", "body": {"threadId": 1, "allThreadsContinued": False}}, False),
    ],
    ids=["ended", "taken", "continued"],
)
def test_a_task_that_is_stopped_no_more_is_told_as_ended_where_it_has_and_the_prompt_stays(
    tmp_path: Path, event: Message, told: bool
) -> None:
    evaluated = Turn("evaluate", {"expression": "x"}, "the task runs", events=[event])
    relay = ScriptedRelay({1: [*at(5), evaluated], 0: [SOURCE]})
    code, console = talk(tmp_path, ScriptedJob(), relay, "p x", "p x", "tasks", "q")
    assert code == 0
    assert ("my_task · 101@127.0.0.9 has ended while it was stopped" in console.lines) is told
    assert ("has ended" in console.shown) is told
    assert "no task is stopped here" in console.shown
    assert "no task is stopped" in console.lines


def test_a_task_that_dies_while_it_is_stepped_is_told_and_the_next_stop_awaited(tmp_path: Path) -> None:
    job = ScriptedJob()
    relay = ScriptedRelay(
        {1: [*at(5), Turn("next", events=[thread_exited(), task_stopped(2, "two")])],
         2: [*at(5, 2), Turn("continue", then=job.end)], 0: [SOURCE] * 2}
    )  # fmt: skip
    _, console = talk(tmp_path, job, relay, "n", "c")
    assert "my_task · 101@127.0.0.9 has ended" in console.lines
    assert "two · 102@127.0.0.9 stopped (breakpoint)" in console.lines


def test_breakpoints_are_set_listed_and_cleared(tmp_path: Path) -> None:
    job = ScriptedJob()
    turns = [
        Turn(
            "setBreakpoints",
            {"source": {"path": PATH, "name": "w.py"}, "breakpoints": [{"line": 6, "condition": "x > 1"}]},
            {"breakpoints": [{"verified": True, "line": 6}]},
        ),
        Turn(
            "setBreakpoints",
            {"breakpoints": [{"line": 3}, {"line": 6, "condition": "x > 1"}]},
            {"breakpoints": [{"verified": False, "line": 3, "message": "no code"}, {"verified": True}]},
        ),
        Turn("setBreakpoints", {"breakpoints": [{"line": 3}]}, {"breakpoints": [{}]}),
        Turn("setBreakpoints", {"breakpoints": []}, {"breakpoints": []}),
    ]
    relay = ScriptedRelay({0: [SOURCE, *turns], 1: [*at(5), Turn("continue", then=job.end)]})
    typed = ["b 6 if x > 1", "b 3", "b", "l", "clear 6", "clear", "b", "b ?", "c"]
    _, console = talk(tmp_path, job, relay, *typed)
    assert "breakpoint at /near/a b/w.py:6" in console.lines
    assert "breakpoint at /near/a b/w.py:3 waits: no code" in console.lines
    assert "  /near/a b/w.py:3\n  /near/a b/w.py:6 if x > 1" in console.lines
    assert "B  6      return y" in console.shown
    assert console.lines.count("1 breakpoint removed") == 2
    assert "no breakpoints" in console.lines
    assert "not a place: ?" in console.shown


def test_a_breakpoint_is_listed_with_the_line_where_it_stops(tmp_path: Path) -> None:
    answer = {"id": 1, "verified": True, "line": 5, "message": None}
    turns = [
        Turn("setBreakpoints", {"breakpoints": [{"line": 3}]}, {"breakpoints": [answer]}),
        Turn("setBreakpoints", {"breakpoints": [{"line": 3}, {"line": 6}]}, {"breakpoints": [answer, {}]}),
    ]
    relay = ScriptedRelay({0: [SOURCE, *turns], 1: at(5)})
    _, console = talk(tmp_path, ScriptedJob(), relay, "b 3", "b", "b 6", "b", "q")
    assert "  /near/a b/w.py:3  (stops at 5)" in console.lines
    assert "  /near/a b/w.py:3  (stops at 5)\n  /near/a b/w.py:6" in console.lines


def test_a_refused_breakpoint_is_not_kept(tmp_path: Path) -> None:
    relay = ScriptedRelay({0: [SOURCE, Turn("setBreakpoints", answer="no such thing")], 1: at(5)})
    _, console = talk(tmp_path, ScriptedJob(), relay, "b 3", "b", "q")
    assert "no such thing" in console.shown
    assert "no breakpoints" in console.lines


def test_what_the_relay_says_last_is_shown_before_the_jobs_end_and_no_print_is(tmp_path: Path) -> None:
    job = ScriptedJob()
    said: list[dict[str, Any]] = [
        {"event": "output", "body": {"category": "console", "output": f"t: {number}\n"}}
        for number in range(800)
    ]
    # Where this debugger watches another's session, it is told what that has asked for.
    printed = {"category": "stderr", "output": "t: printed\n", "data": {"ray": {"task": "my_task"}}}
    outputs = [*said, {"event": "output", "body": printed}]
    relay = ScriptedRelay({1: [*at(5), Turn("continue", events=outputs, then=job.end)], 0: [SOURCE]})
    _, console = talk(tmp_path, job, relay, "c")
    shown = [line for line in console.lines if line.startswith("t: ")]
    assert len(shown) == len(said)
    assert console.lines.index(shown[-1]) < console.lines.index("job raysubmit_1 ended: SUCCEEDED")


def test_up_and_down_select_the_frame_that_is_evaluated_in(tmp_path: Path) -> None:
    job = ScriptedJob()
    (tmp_path / "other.py").write_text("one\ntwo\n")
    other = str(tmp_path / "other.py")
    turns = [stack(("g", other, 1), ("f", other, 2)), value(1, "x", frame=2), Turn("continue", then=job.end)]
    _, console = talk(tmp_path, job, ScriptedRelay({1: turns}), "up", "up", "p x", "down", "down", "c")
    assert f"{other}:2 in f" in console.lines
    assert "-> 2  two" in console.shown
    assert "the outermost frame" in console.lines
    assert "the innermost frame" in console.lines


def test_a_step_past_the_end_goes_to_the_next_stop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(terminal, "_STEP", 0.05)
    monkeypatch.setattr(terminal, "_POLL", 0.01)
    job = ScriptedJob()
    turns = {1: [*at(6), Turn("next")], 2: [*at(6, 2), Turn("continue", then=job.end)], 0: [SOURCE] * 2}
    relay = ScriptedRelay(turns, after_attach=TWO)
    code, console = talk(tmp_path, job, relay, "1", "n", "c")
    assert code == 0
    assert "one · 101@127.0.0.9 runs on; waiting for the next stop of any task" in console.lines
    assert "two · 102@127.0.0.9 stopped (breakpoint)" in console.lines


def test_nothing_stopped_in_time_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(NothingPaused, match=r"within 0\.1 s"):
        talk(tmp_path, ScriptedJob(), ScriptedRelay({}, after_attach=()), timeout=0.1)


def test_a_job_that_ended_already_is_told(tmp_path: Path) -> None:
    job = ScriptedJob()
    job.end("FAILED")
    code, console = talk(tmp_path, job, ScriptedRelay({}, after_attach=()))
    assert code == 0
    assert console.lines[-2:] == [
        "job raysubmit_1 ended: FAILED",
        "Next: ./invokew logs --job raysubmit_1 shows its output",
    ]


def test_another_debugger_that_takes_over_ends_it_with_the_relays_words(tmp_path: Path) -> None:
    events: list[Message] = [{"event": "terminated", "body": {"ray": {"reason": "taken-over"}}}]
    relay = ScriptedRelay({1: [*at(5), Turn("evaluate", answer={"result": "1"}, events=events)], 0: [SOURCE]})
    with pytest.raises(DebuggerGone, match="another debugger has taken over"):
        talk(tmp_path, ScriptedJob(), relay, "p x", "p y")


class BusyRelay(ScriptedRelay):
    """Plays a relay with another debugger, whom `takeOver: ask` does not disturb."""

    def _answer(self, request: Message) -> None:
        if request["command"] == "attach" and request["arguments"]["takeOver"] == "ask":
            ray = {"reason": "busy", "client": "VS Code", "since": "2026-01-01T00:00:00Z", "job": None}
            head = {"type": "response", "request_seq": request["seq"], "command": "attach"}
            self.say({**head, "success": False, "message": "no", "body": {"ray": ray}})
        else:
            super()._answer(request)


@pytest.mark.parametrize(("typed", "then"), [("y", "always"), ("W", "watch"), (" yes ", "always")])
def test_who_debugs_already_is_taken_over_or_watched_as_asked(tmp_path: Path, typed: str, then: str) -> None:
    job = ScriptedJob()
    job.end()
    relay = BusyRelay({}, after_attach=())
    code, console = talk(tmp_path, job, relay, typed, take_over="ask")
    assert code == 0
    assert console.lines[0].startswith("VS Code has debugged these tasks since 2026-01-01T00:00:00Z. Take")
    assert relay.last("attach")["takeOver"] == then


@pytest.mark.parametrize("typed", ["n", "", "later"])
def test_whoever_debugs_already_keeps_the_tasks_otherwise(tmp_path: Path, typed: str) -> None:
    with pytest.raises(DebuggerBusy, match="VS Code has debugged these tasks"):
        talk(tmp_path, ScriptedJob(), BusyRelay({}, after_attach=()), typed, take_over="ask")


@pytest.mark.parametrize(("dies", "error"), [("relay", NotRunning), ("Ray", RayDied)])
def test_the_end_of_relay_or_ray_is_an_error(tmp_path: Path, dies: str, error: type[Exception]) -> None:
    job = ScriptedJob()

    def die() -> None:
        job.failure = RayDied("Ray does not answer", hint="Run `invoke up`.")

    relay = ScriptedRelay({1: [*at(5), Turn("continue", then=die)], 0: [SOURCE]})
    if dies == "relay":
        relay.scripts[1][-1].then = relay.end
    with pytest.raises(error, match="the debug relay has gone" if dies == "relay" else "does not answer"):
        talk(tmp_path, job, relay, "c")


class Waiting(ScriptedConsole):
    """A console whose user looks at what is shown before typing a line that begins with a blank."""

    def __init__(self, until: Callable[[], bool], *typed: str | type[BaseException]) -> None:
        super().__init__(*typed)
        self._until = until

    def ask(self, prompt: str) -> str:
        if isinstance(self.typed[0], str) and self.typed[0].startswith(" "):
            assert waiting.until(self._until, bool, 60)
        return super().ask(prompt)


def test_a_task_is_shown_again_when_the_connection_is_there_again(tmp_path: Path) -> None:
    job = ScriptedJob()
    lost = "the connection to the cluster is lost; Rayside looks for it"
    relay = ScriptedRelay({1: [*at(5), Turn("next", answer=lost), *at(5), Turn("continue", then=job.end)]})
    relay.scripts[0] = [SOURCE, SOURCE]

    def lose() -> None:
        relay.say(way_lost())
        relay.say(session_ended("way-back", restart={"ray": "again"}))

    relay.scripts[1][1].then = lose

    def attached_again() -> bool:
        return [request["command"] for request in relay.requests].count("configurationDone") == 2

    console = Waiting(attached_again, "n", " tasks", "c")
    assert talk(tmp_path, job, relay, console=console)[0] == 0
    first, second = (
        index
        for index, text in enumerate(console.lines)
        if text == "my_task · 101@127.0.0.9 stopped (breakpoint)"
    )
    assert first < console.lines.index("The connection is lost.") < second


def test_ctrl_c_while_the_connection_is_lost_promises_nothing(tmp_path: Path) -> None:
    relay = ScriptedRelay({1: at(5), 0: [SOURCE]}, after_attach=[task_stopped(), way_lost()])
    code, console = talk(tmp_path, ScriptedJob(), relay, KeyboardInterrupt)
    assert code == 130
    assert "goes on soon: the connection is lost" in console.shown
    assert "stays stopped" not in console.shown


def test_the_history_is_kept_private_and_its_loss_is_tolerated(tmp_path: Path) -> None:
    history = tmp_path / "new" / "history"
    with keyboard.line_editing(history):
        assert keyboard.readline is not None
        keyboard.readline.add_history("p secret")
    assert "p secret" in history.read_text()
    assert history.stat().st_mode & 0o777 == 0o600
    (tmp_path / "file").touch()
    with keyboard.line_editing(tmp_path / "file" / "history"):
        pass


# --- groups ------------------------------------------------------------------------------


def member(thread: int, state: str = "stopped", line: int = 5) -> dict[str, Any]:
    """Returns a row of the relay's answer to `group`, of the task of `task_stopped`."""
    place = {"file": PATH, "line": line, "function": "f"} if state == "stopped" else None
    who = {"task": "my_task", "pid": 100 + thread, "node": "127.0.0.9", "workerId": f"w{thread}"}
    return {**who, "thread": "", "rank": thread, "state": state, "why": "", "place": place, "own": None}


def group(action: str, *members: dict[str, Any], within: int = 10, **turn: Any) -> Turn:
    answer = {"group": "ranks", "selector": "ray.rank is not None", "action": action, "seconds": within}
    holds = {"group": "ranks", "action": action, "within": within}
    return Turn("group", holds, {**answer, "members": list(members)}, **turn)


class Stepping(ScriptedRelay):
    """Tells what the members of a group do before it answers, as the relay does."""

    def __init__(self, *args: Any, told: list[Message], **more: Any) -> None:
        super().__init__(*args, **more)
        self._told = told

    def respond(self, request: Message, answer: dict[str, Any] | str) -> None:
        if request["command"] == "group":
            for event in self._told:
                self.say(event)
        super().respond(request, answer)


def resumed(thread: int) -> Message:
    return {"event": "continued", "body": {"threadId": thread, "allThreadsContinued": False}}


def test_a_group_is_stepped_and_the_task_that_was_shown_is_shown_again(tmp_path: Path) -> None:
    told = [
        *(resumed(1), resumed(2), task_stopped(2, reason="step"), task_stopped(1, reason="step")),
        task_stopped(3, "another"),
    ]
    turns = [
        group("next", member(1), member(2), member(4, "late"), within=60),
        group("next", member(1), member(2), within=60),
    ]
    relay = Stepping(
        {0: [SOURCE, turns[0], SOURCE, turns[1], SOURCE], 1: [*at(4), *at(5), *at(6)]},
        told=told,
        after_attach=[task_stopped(1), task_stopped(2)],
    )
    code, console = talk(tmp_path, ScriptedJob(), relay, "1", "next @ranks within 60", "", "q")
    assert code == 0
    assert "1 late after 60 s\n     my_task · 104@127.0.0.9 (rank 4)" in console.shown
    assert "my_task · 101@127.0.0.9 stopped (step)" in console.shown
    # The answer has told of the others of the group, and of nobody else.
    assert "102@127.0.0.9 has stopped, too" not in console.shown
    assert "another · 103@127.0.0.9 has stopped, too" in console.shown
    # An empty line has stepped the whole group once more.
    assert f"{PATH}:6 in f" in console.shown


def test_where_nothing_runs_pause_says_so_and_all_are_named_without_a_selector(tmp_path: Path) -> None:
    def of_all(action: str, *members: dict[str, Any]) -> Turn:
        answer = {"group": "all", "selector": "True", "action": action, "seconds": 10}
        return Turn("group", {"action": action}, {**answer, "members": list(members)})

    relay = ScriptedRelay({0: [SOURCE, of_all("pause"), of_all("members", member(1))], 1: at(5)})
    _, console = talk(tmp_path, ScriptedJob(), relay, "pause @all", "group @all", "q")
    assert "Nothing runs that could be paused." in console.lines
    assert "@all: 1 member" in console.lines
    assert "True" not in console.shown


def test_where_all_of_a_group_go_on_the_next_stop_is_awaited(tmp_path: Path) -> None:
    def stop_later() -> None:
        asyncio.get_running_loop().call_later(0.2, relay.say, task_stopped(2))

    turns = [group("continue", member(1, "running"), then=stop_later)]
    relay = Stepping({0: [SOURCE, *turns, SOURCE], 1: at(4), 2: at(5, 2)}, told=[resumed(1)])
    _, console = talk(tmp_path, ScriptedJob(), relay, "c @ranks", "q")
    assert "1 running" in console.shown
    assert "my_task · 102@127.0.0.9 stopped (breakpoint)" in console.shown


def test_who_belongs_to_a_group_is_shown(tmp_path: Path) -> None:
    empty = {"group": "ray.rank > 3", "selector": "ray.rank > 3", "action": "members", "members": []}
    shows = Turn("group", {"group": "ray.rank > 3", "action": "members"}, {**empty, "seconds": 0})
    relay = ScriptedRelay({0: [SOURCE, shows, Turn("group", answer="'x' is no group")], 1: at(4)})
    _, console = talk(tmp_path, ScriptedJob(), relay, "group @ray.rank > 3", "group @x", "q")
    assert console.lines.count("@ray.rank > 3: 0 members") == 1
    assert "'x' is no group" in console.shown


@pytest.mark.parametrize("typed", ["group", "pause", "pause 3", "next @"])
def test_what_names_no_group_says_what_can_be_typed(tmp_path: Path, typed: str) -> None:
    relay = ScriptedRelay({0: [SOURCE], 1: at(4)})
    _, console = talk(tmp_path, ScriptedJob(), relay, typed, "q")
    assert "@ranks" in console.shown
