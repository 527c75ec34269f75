"""The terminal debugger: what words mean, what is shown, and how it leaves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bootstrap.debug import commands, keyboard, listing, terminal
from bootstrap.debug.breakpoints import remote_path
from bootstrap.debug.stops import Frame
from bootstrap.errors import NothingPaused, RayDied
from tests.unit.scripted_debuggee import (
    ScriptedConsole,
    ScriptedDebuggee,
    ScriptedDiscovery,
    Turn,
    debuggee,
    stack,
    stopped,
    value,
)

PATH = "/far/a b/w.py"
TEXT = "import ray\n\ndef f(x):\n    breakpoint()\n    y = x\n    return y\n"


def at(line: int, task: str | None = "my_task", function: str = "f") -> list[Turn]:
    return [stack((function, PATH, line)), value(task), value(TEXT)]


def back_to(line: int) -> list[Turn]:
    """What leaving a task paused asks of it, when it stands at line 5 after the call at line 4."""
    return [
        stack(("f", PATH, 5)),
        value(TEXT),
        Turn("gotoTargets", {"line": line}, {"targets": [{"id": 1}]}),
        Turn("goto", {"targetId": 1}, events=[stopped("goto")]),
    ]


def talk(
    tmp_path: Path,
    discovery: ScriptedDiscovery,
    fakes: dict[int, ScriptedDebuggee],
    *typed: str | type[BaseException],
    timeout: float = 5,
) -> tuple[int, ScriptedConsole]:
    console = ScriptedConsole(*typed)

    async def connect(host: str, port: int, **options: Any) -> Any:
        return await fakes[port].connect(host, port, **options)

    code = terminal.run(
        discovery, console, timeout=timeout, history=tmp_path / "state" / "history", connect=connect
    )
    for fake in fakes.values():
        fake.check()
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
        ("3 if  ", None),
        ("x.py", None),
        ("0", None),
        ("-1", None),
        ("3 x", None),
        ("", None),
    ],
)
def test_places(text: str, place: tuple[str | None, int, str | None] | None) -> None:
    assert commands.place(text) == (commands.Place(*place) if place else None)


# --- what is shown -----------------------------------------------------------------------


def test_the_source_marks_the_current_line_and_breakpoints() -> None:
    text = "\n".join(f"line {number}" for number in range(1, 12))
    assert listing.source(text, 10, first=9, last=30, colour=False, breakpoints=[9]) == (
        "B   9  line 9\n-> 10  line 10\n   11  line 11"
    )


def test_colour_only_where_it_is_wanted() -> None:
    assert "\x1b" not in listing.source("a", 1, first=1, last=1, colour=False)
    assert "\x1b" in listing.source("a", 1, first=1, last=1, colour=True)
    assert listing.header("x", colour=False) == "x"


def test_a_tasks_values_do_not_command_the_terminal() -> None:
    assert listing.plain("a\x1b[2Jb\tc\nd\x07") == "a\\x1b[2Jb\tc\nd\\x07"
    assert "\x1b" not in listing.variables({"x": "'\x1b[2J'"})
    assert "\x1b" not in listing.stack([Frame(1, "f", "/a\x1b", 1)], 0, {})


def test_a_long_value_is_cut_and_says_how_to_see_it() -> None:
    shown = listing.variables({"x": "9" * 1000})
    assert len(shown) < 500
    assert "`p NAME` shows it all" in shown


# --- local files and the debuggee's ------------------------------------------------------


def test_a_file_named_by_the_user_is_found_where_the_debuggee_has_it(tmp_path: Path) -> None:
    near = tmp_path / "near"
    (near / "lib").mkdir(parents=True)
    (near / "lib" / "b.py").touch()

    def shown(path: str) -> str:
        return path.replace("/far/", f"{near}/")

    current = "/far/w.py"
    assert remote_path(None, current, [], shown) == current
    assert remote_path(str(near / "w.py"), current, [current], shown) == current
    assert remote_path(str(near / "lib" / "b.py"), current, [current], shown) == "/far/lib/b.py"
    assert remote_path("/far/other.py", current, [current], shown) == "/far/other.py"
    assert remote_path("other.py", current, [current], shown) == "/far/other.py"


# --- the conversation --------------------------------------------------------------------


def test_a_task_is_looked_at_and_let_go_on_until_the_job_has_ended(tmp_path: Path) -> None:
    discovery = ScriptedDiscovery(debuggee())
    fake = ScriptedDebuggee(
        *at(4),
        Turn("scopes", answer={"scopes": [{"variablesReference": 5}]}),
        Turn("variables", answer={"variables": [{"name": "x", "value": "3"}]}),
        Turn("evaluate", {"expression": "x + 1", "context": "watch", "frameId": 1}, {"result": "4"}),
        Turn("evaluate", {"expression": "y"}, "NameError: name 'y' is not defined"),
        Turn("evaluate", {"expression": "x = 5", "context": "repl"}, {"result": ""}),
        Turn("continue", {"threadId": 1}, then=discovery.end_job),
    )
    code, console = talk(
        tmp_path, discovery, {1: fake}, "locals", "p x + 1", "p y", "!x = 5", "where", "numbers", "c"
    )
    assert code == 0
    assert "my_task · 101@127.0.0.9 stopped (breakpoint)" in console.lines
    assert "/near/a b/w.py:4 in f" in console.lines
    assert "-> 4      breakpoint()" in console.shown
    assert "  x = 3" in console.lines
    assert "4" in console.lines
    assert "NameError: name 'y' is not defined" in console.lines
    assert "-> 0  f  /near/a b/w.py:4" in console.lines
    assert "`numbers` is no command; `p numbers` evaluates it, `help` lists the commands" in console.lines
    assert console.lines[-1] == "job raysubmit_1 ended: SUCCEEDED"


def test_an_empty_line_repeats_a_step_and_nothing_else(tmp_path: Path) -> None:
    discovery = ScriptedDiscovery(debuggee())
    fake = ScriptedDebuggee(
        *at(4),
        Turn("next", {"threadId": 1}, events=[stopped("step")]),
        *at(5),
        Turn("next", events=[stopped("step")]),
        *at(6),
        Turn("evaluate", {"expression": "x"}, {"result": "1"}),
        Turn("stepIn", events=[stopped("step")]),
        *at(6),
        Turn("stepOut", events=[stopped("step")]),
        *at(6),
        Turn("continue", then=discovery.end_job),
    )
    _, console = talk(tmp_path, discovery, {1: fake}, "n", "", "p x", "", "s", "out", "c")
    assert "nothing to evaluate" not in console.shown


def test_several_tasks_are_chosen_from_and_only_the_chosen_one_is_attached(tmp_path: Path) -> None:
    discovery = ScriptedDiscovery(debuggee(1, "one"), debuggee(2, "two"))
    first = ScriptedDebuggee()
    second = ScriptedDebuggee(*at(5), *back_to(4))
    code, console = talk(tmp_path, discovery, {1: first, 2: second}, "9", "2", "tasks", KeyboardInterrupt)
    assert code == 130
    assert first.connections == 0
    assert "   1  one · 101@127.0.0.9  paused\n   2  two · 102@127.0.0.9  paused" in console.lines
    assert "a number from 1 to 2, or `q`" in console.lines
    assert "   1  one · 101@127.0.0.9  paused\n-> 2  my_task · 102@127.0.0.9  stopped" in console.lines


def test_task_n_switches_and_the_other_stays_stopped(tmp_path: Path) -> None:
    discovery = ScriptedDiscovery(debuggee(1), debuggee(2))
    first = ScriptedDebuggee(*at(5), *at(5), Turn("evaluate", answer={"result": "1"}), *back_to(4))
    second = ScriptedDebuggee(*at(5), *back_to(4))
    code, _ = talk(
        tmp_path,
        discovery,
        {1: first, 2: second},
        "1",
        "task 2",
        "task 1",
        "p x",
        "task 7",
        KeyboardInterrupt,
    )
    assert code == 130
    assert (first.connections, second.connections) == (1, 1)


def test_ctrl_c_leaves_the_task_paused_and_says_so(tmp_path: Path) -> None:
    fake = ScriptedDebuggee(*at(5), *back_to(4))
    code, console = talk(tmp_path, ScriptedDiscovery(debuggee()), {1: fake}, KeyboardInterrupt)
    assert code == 130
    assert console.lines[-1] == "my_task · 101@127.0.0.9 is paused again, and waits for the next debugger"


def test_ctrl_c_stays_where_leaving_would_let_the_task_run_on(tmp_path: Path) -> None:
    fake = ScriptedDebuggee(
        *at(4),
        Turn("next", events=[stopped("step")]),
        *at(6),
        *[stack(("f", PATH, 6)), value(TEXT)],
        *at(6),
        *[stack(("f", PATH, 6)), value(TEXT)],
    )
    code, console = talk(tmp_path, ScriptedDiscovery(debuggee()), {1: fake}, "n", KeyboardInterrupt, "q")
    assert code == 0
    assert "can't be paused again where it stands now" in console.shown
    assert console.lines[-1] == "my_task · 101@127.0.0.9 goes on"


def test_ctrl_c_with_text_typed_drops_the_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = iter(["p x", ""])
    monkeypatch.setattr(terminal, "typed", lambda: next(texts))
    fake = ScriptedDebuggee(*at(5), *back_to(4))
    code, _ = talk(tmp_path, ScriptedDiscovery(debuggee()), {1: fake}, KeyboardInterrupt, KeyboardInterrupt)
    assert code == 130


def test_the_end_of_input_is_quit(tmp_path: Path) -> None:
    fake = ScriptedDebuggee(*at(5), *back_to(4))
    code, console = talk(tmp_path, ScriptedDiscovery(debuggee()), {1: fake}, EOFError)
    assert code == 0
    assert console.lines[-1].endswith("is paused again, and waits for the next debugger")


def test_a_worker_that_dies_is_told_and_the_prompt_stays(tmp_path: Path) -> None:
    discovery = ScriptedDiscovery(debuggee())
    fake = ScriptedDebuggee(*at(5), Turn("evaluate", {"expression": "x"}, answer=None))

    def die() -> None:
        discovery.waiting = []
        fake.end()

    fake.script[-1].then = die
    code, console = talk(tmp_path, discovery, {1: fake}, "p x", "p x", "q")
    assert code == 0
    assert "went away: the debuggee has ended" in console.shown
    assert "the worker of my_task · 101@127.0.0.9 has ended while it was stopped" in console.lines
    assert "no task is stopped here" in console.shown


def test_breakpoints_are_set_listed_and_cleared(tmp_path: Path) -> None:
    discovery = ScriptedDiscovery(debuggee())
    fake = ScriptedDebuggee(
        *at(5),
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
        Turn("continue", then=discovery.end_job),
    )
    _, console = talk(
        tmp_path, discovery, {1: fake}, "b 6 if x > 1", "b 3", "b", "l", "clear 6", "clear", "b", "b ?", "c"
    )
    assert "breakpoint at /near/a b/w.py:6" in console.lines
    assert "/near/a b/w.py:3 stops nothing: no code" in console.lines
    assert "  /near/a b/w.py:3\n  /near/a b/w.py:6 if x > 1" in console.lines
    assert "B  6      return y" in console.shown
    assert console.lines.count("1 breakpoint removed") == 2
    assert "no breakpoints in this task" in console.lines
    assert "not a place: ?" in console.shown


def test_up_and_down_select_the_frame_that_is_evaluated_in(tmp_path: Path) -> None:
    discovery = ScriptedDiscovery(debuggee())
    fake = ScriptedDebuggee(
        stack(("g", PATH, 5), ("f", "/far/other.py", 2)),
        value("my_task"),
        value(TEXT),
        value("one\ntwo\n", frame=2),
        value(1, "x", frame=2),
        value(TEXT),
        Turn("continue", then=discovery.end_job),
    )
    _, console = talk(tmp_path, discovery, {1: fake}, "up", "up", "p x", "down", "down", "c")
    assert "/near/other.py:2 in f" in console.lines
    assert "the outermost frame" in console.lines
    assert "the innermost frame" in console.lines


def test_a_step_that_ends_the_task_goes_on_to_the_next_stop_of_any(tmp_path: Path) -> None:
    discovery = ScriptedDiscovery(debuggee())
    fake = ScriptedDebuggee(
        *at(6),
        Turn("next"),
        Turn("evaluate", answer={"result": "False"}, then=discovery.end_job),
    )
    code, console = talk(tmp_path, discovery, {1: fake}, "n")
    assert code == 0
    assert "f has returned; waiting for the next stop of any task" in console.lines


def test_nothing_paused_in_time_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(NothingPaused, match=r"within 0\.1 s"):
        talk(tmp_path, ScriptedDiscovery(), {}, timeout=0.1)


def test_a_job_that_ended_already_is_told(tmp_path: Path) -> None:
    discovery = ScriptedDiscovery()
    discovery.end_job("FAILED")
    code, console = talk(tmp_path, discovery, {})
    assert code == 0
    assert console.lines[-1] == "job raysubmit_1 ended: FAILED"


def test_rays_end_is_an_error_and_never_hangs(tmp_path: Path) -> None:
    discovery = ScriptedDiscovery(debuggee())
    fake = ScriptedDebuggee(*at(5), Turn("continue"))

    def die() -> None:
        discovery.failure = RayDied("Ray does not answer", hint="Run `invoke up`.")

    fake.script[-1].then = die
    with pytest.raises(RayDied):
        talk(tmp_path, discovery, {1: fake}, "c")


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
