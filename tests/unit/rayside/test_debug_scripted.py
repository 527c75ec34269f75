"""Tests the debugger for scripts: what it records, how it resumes tasks, when it ends."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from rayside.client import scripted, session
from rayside.client.commands import Place
from rayside.client.events import JobState
from rayside.client.session import AttachOptions
from rayside.dap.framing import Message
from rayside.errors import AttachFailed, ConnectionLost, DebuggerBusy, DebuggerGone, NotRunning
from rayside.signals import signals_noticed
from tests.patience import PATIENCE
from tests.unit.scripted_debuggee import (
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

CODE = ("my_task", "/near/w/sample.py", 7)
SHA256 = "9e26bf369911c45c243c684147b23fc9e1dcfcf257d299a1c632016a6fcd33f4"  # by sha256sum, of "x = 1\n"
INSIDE = ("set_trace", "/v/lib/python3.11/site-packages/ray/util/debugpy.py", 90)


def reads(*variables: tuple[str, str], thread: int = 1) -> list[Turn]:
    frame, reference = 1 + 100 * (thread - 1), 5 + 100 * (thread - 1)
    return [
        Turn("scopes", {"frameId": frame}, {"scopes": [{"name": "Locals", "variablesReference": reference}]}),
        Turn(
            "variables",
            {"variablesReference": reference},
            {"variables": [{"name": name, "value": text} for name, text in variables]},
        ),
    ]


def resume(thread: int = 1, then: Callable[[], None] | None = None, **how: Any) -> Turn:
    return Turn("continue", {"threadId": thread}, then=then, **how)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes it quick: nothing here takes time, so nothing is worth waiting for."""
    monkeypatch.setattr(session, "SOON", 0.01)


def record(
    watch: ScriptedJob,
    relay: ScriptedRelay,
    *,
    evaluate: tuple[str, ...] = (),
    timeout: float = 5,
    most: int = 1000,
    **options: Any,
) -> tuple[dict[str, Any], list[str]]:
    events: list[str] = []
    attachment = AttachOptions(partial(relay.connect, "127.0.0.1", 5678), "secret", **options)
    how: dict[str, Any] = {"evaluate": evaluate, "timeout": timeout, "most": most, "on_event": events.append}
    try:
        document = scripted.run_sync(attachment, watch, **how)
    except scripted.Interruption as interruption:
        document = interruption.document
        events.append("interrupted")
    relay.check()
    return document, events


def test_a_stop_is_recorded_and_let_go_on_until_the_job_has_ended() -> None:
    job = ScriptedJob()
    turns = [
        stack(CODE),
        *reads(("special variables", ""), ("numbers", "[0, 1]"), ("(return) f", "3"), ("x", "2")),
        value(1, "sum(numbers)"),
        Turn("evaluate", {"expression": "y", "context": "watch"}, "NameError: name 'y' is not defined"),
        resume(then=job.end),
    ]
    relay = ScriptedRelay({1: turns})
    document, events = record(job, relay, evaluate=("sum(numbers)", "y"))
    assert document == {
        "stopped": [
            {
                "task": "my_task",
                "worker_id": "w1",
                "reason": "breakpoint",
                "file": "/near/w/sample.py",
                "line": 7,
                "function": "my_task",
                "locals": {"numbers": "[0, 1]", "x": "2"},
                "evaluated": {"sum(numbers)": "1", "y": "<NameError: name 'y' is not defined>"},
            }
        ],
        "job": {"submission_id": "raysubmit_1", "status": "SUCCEEDED"},
    }
    assert events == ["my_task stopped at /near/w/sample.py:7", "job raysubmit_1 ended: SUCCEEDED"]
    assert relay.requests[-1]["command"] == "disconnect"
    assert relay.last("disconnect") == {"terminateDebuggee": False, "suspendDebuggee": False}


def test_the_relay_is_told_the_token_and_the_job() -> None:
    job = ScriptedJob()
    job.end()
    relay = ScriptedRelay({}, after_attach=())
    record(job, relay, job="raysubmit_1", exceptions=True)
    arguments = relay.last("attach")
    assert (arguments["token"], arguments["job"]) == ("secret", "raysubmit_1")
    assert relay.last("setExceptionBreakpoints") == {"filters": ["uncaught", "userUnhandled"]}


def test_breakpoints_are_set_before_any_task_moves_and_what_is_off_is_told_once(tmp_path: Path) -> None:
    file = tmp_path / "a b.py"
    file.write_text("x = 1\n")
    job = ScriptedJob()
    answers = [
        {"id": 1, "verified": False, "line": 3, "message": "no task has it yet"},
        {"id": 2, "verified": True, "line": 8, "message": "line 7 has no code"},
        {"id": 3, "verified": True, "line": 9},
    ]
    lines = [{"line": 3, "condition": "x == 'a:b'"}, {"line": 7}, {"line": 9}]
    turn = Turn("setBreakpoints", {"breakpoints": lines}, {"breakpoints": answers})
    changed = [
        {"event": "breakpoint", "body": {"reason": "changed", "breakpoint": body}}
        for body in (
            answers[0],
            {"id": 1, "verified": True, "line": 3},
            {"id": 1, "verified": True, "line": 3},
            {"id": 3, "verified": True, "line": 9},
            {"id": 99, "verified": True, "line": 1},
        )
    ]
    after = [*changed, task_stopped()]
    relay = ScriptedRelay({0: [turn], 1: [stack(CODE), *reads(), resume(then=job.end)]}, after_attach=after)
    places = [Place(str(file), 7, None), Place(str(file), 3, "x == 'a:b'"), Place(str(file), 9, None)]
    _, events = record(job, relay, breakpoints=places)
    assert events[:3] == [
        f"breakpoint at {file}:3 waits: no task has it yet",
        f"breakpoint at {file}:8 (line 7 has no code)",
        f"breakpoint at {file}:3",
    ]
    assert len(events) == 5
    commands = [request["command"] for request in relay.requests]
    assert commands.index("setBreakpoints") < commands.index("configurationDone")
    assert relay.last("setBreakpoints")["source"] == {
        "path": str(file),
        "name": "a b.py",
        "checksums": [{"algorithm": "SHA256", "checksum": SHA256}],
    }


def test_what_the_relay_has_to_say_is_told() -> None:
    job = ScriptedJob()
    job.end()
    outputs = [
        {"event": "output", "body": {"category": "console", "output": "sample.py differs\n"}},
        {"event": "output", "body": {"category": "telemetry", "output": "never shown"}},
        # What a task printed, for an editor that has asked for it.
        {"event": "output", "body": {"category": "stderr", "output": "work: bad\n", "data": {"ray": {}}}},
    ]
    _, events = record(job, ScriptedRelay({}, after_attach=outputs))
    assert "sample.py differs" in events
    assert "never shown" not in events
    assert "work: bad" not in events


def test_rays_own_frames_are_not_the_users() -> None:
    job = ScriptedJob()
    turns = [
        stack(INSIDE, ("f", "/elsewhere/ray/util/mine.py", 3), CODE),
        Turn("scopes", {"frameId": 2}, {"scopes": []}),
        resume(then=job.end),
    ]
    relay = ScriptedRelay({1: turns})
    document, _ = record(job, relay)
    [stop] = document["stopped"]
    assert (stop["function"], stop["file"], stop["line"]) == ("f", "/elsewhere/ray/util/mine.py", 3)
    assert stop["locals"] == {}


def test_the_next_stop_of_the_same_worker_has_its_own_task() -> None:
    job = ScriptedJob()
    turns = [
        stack(CODE), *reads(), resume(events=[task_stopped(task="two")]),
        stack(CODE), *reads(), resume(then=job.end),
    ]  # fmt: skip
    relay = ScriptedRelay({1: turns}, after_attach=[task_stopped(task="one")])
    document, _ = record(job, relay)
    assert [stop["task"] for stop in document["stopped"]] == ["one", "two"]


def test_tasks_are_read_side_by_side() -> None:
    # Each lets go on only when both have stopped: one after the other would never end.
    job = ScriptedJob()
    waiting: list[int] = []

    def both() -> None:
        waiting.append(relay.requests[-1]["seq"])
        if len(waiting) == 2:
            for seq in waiting:
                relay.respond({"seq": seq, "command": "stackTrace"}, {"stackFrames": []})
            job.end()

    turns = {n: [Turn("stackTrace", answer=None, then=both), resume(n)] for n in (1, 2)}
    relay = ScriptedRelay(turns, after_attach=[task_stopped(1, "one"), task_stopped(2, "two")])
    document, events = record(job, relay)
    assert document["stopped"] == []
    assert sorted(events)[1:] == [
        "one · 101@127.0.0.9: it stopped without a frame",
        "two · 102@127.0.0.9: it stopped without a frame",
    ]


def test_it_leaves_when_nothing_stops_and_says_how_the_job_is() -> None:
    document, events = record(ScriptedJob(), ScriptedRelay({}, after_attach=()), timeout=0.05)
    assert document == {"stopped": [], "job": {"submission_id": "raysubmit_1", "status": "RUNNING"}}
    assert events == ["nothing stopped for 0.05 s; the tasks go on"]


def test_it_ends_after_as_many_stops_as_were_asked_for() -> None:
    turns = [*[stack(CODE), *reads(), resume(events=[task_stopped()])] * 2]
    document, events = record(ScriptedJob(), ScriptedRelay({1: turns}), most=2)
    assert len(document["stopped"]) == 2
    assert document["job"] == {"submission_id": "raysubmit_1", "status": "RUNNING"}
    assert "it ends after 2 stops (--stops); the tasks go on" in events


@pytest.mark.usefixtures("python_signals")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interruption_loses_nothing_of_what_was_recorded(number: signal.Signals) -> None:
    def interrupt() -> None:
        asyncio.get_running_loop().call_later(0.05, signal.raise_signal, number)

    job, turns = ScriptedJob(), [stack(CODE), *reads(("x", "2")), resume(then=interrupt)]
    relay = ScriptedRelay({1: turns})
    with signals_noticed(signal.SIGTERM):
        document, events = record(job, relay, timeout=PATIENCE)
    assert [stop["locals"] for stop in document["stopped"]] == [{"x": "2"}]
    assert document["job"] == {"submission_id": "raysubmit_1", "status": "RUNNING"}
    assert events[-1] == "interrupted"
    assert relay.last("disconnect") == {"terminateDebuggee": False, "suspendDebuggee": False}


def test_a_worker_that_dies_while_stopped_is_told_and_the_rest_goes_on() -> None:
    job = ScriptedJob()

    def die() -> None:
        relay.say(thread_exited(1))
        relay.respond({"seq": relay.requests[-1]["seq"], "command": "stackTrace"}, "there is no thread 1")

    turns = {
        1: [Turn("stackTrace", answer=None, then=die)],
        2: [stack(CODE, thread=2), *reads(thread=2), resume(2, then=job.end)],
    }
    relay = ScriptedRelay(turns, after_attach=[task_stopped(1, "one"), task_stopped(2, "two")])
    document, events = record(job, relay)
    assert [stop["task"] for stop in document["stopped"]] == ["two"]
    assert "one · 101@127.0.0.9 ended while it was stopped" in events


def test_no_relay_and_a_refused_token_say_what_to_do() -> None:
    async def nobody(**options: Any) -> Any:
        raise DebuggerGone("no debugger answers at 127.0.0.1:5678", hint="not this one")

    def run(attachment: AttachOptions) -> None:
        scripted.run_sync(attachment, ScriptedJob(), on_event=print)

    with pytest.raises(NotRunning) as no_relay:
        run(AttachOptions(nobody, "secret"))
    assert "./invokew up" in no_relay.value.hint

    class Refusing(ScriptedRelay):
        def say(self, message: dict[str, Any]) -> None:
            if message.get("event") == "initialized":
                self.respond({"seq": 2, "command": "attach"}, "the token is wrong")
            else:
                super().say(message)

    with pytest.raises(AttachFailed, match="the token is wrong"):
        run(AttachOptions(partial(Refusing({}).connect, "h", 1), "wrong"))


def losing(relay: ScriptedRelay, *messages: Message) -> Callable[[], None]:
    """Returns what has a forward say these about its way to the relay."""

    def lose() -> None:
        for message in messages:
            relay.say(message)

    return lose


BACK = session_ended("way-back", restart={"ray": "again"})


def test_a_way_that_is_back_is_taken_again_and_a_stop_is_recorded_once() -> None:
    job = ScriptedJob()
    read = [stack(CODE), *reads(("x", "2"))]
    refused = Turn("continue", answer="the connection to the cluster was lost")
    changed = [stack(CODE), *reads(("x", "3"))]
    relay = ScriptedRelay({1: [*read, refused, *read, resume(), *changed, resume(then=job.end)]})
    refused.then = losing(relay, way_lost(), BACK)
    relay.scripts[1][-5].then = losing(relay, task_stopped())
    document, events = record(job, relay, take_over="ask")
    assert [stop["locals"] for stop in document["stopped"]] == [{"x": "2"}, {"x": "3"}]
    assert "The connection is lost." in events
    assert relay.connections == 2
    assert relay.last("attach")["__restart"] == {"ray": "again"}
    assert relay.last("attach")["takeOver"] == "ask"


def stopped_then(relay: ScriptedRelay, then: Callable[[], None]) -> None:
    """Has the relay's only task stop, and the way be lost with this when it is looked at."""
    lost = "the connection to the cluster is lost"
    relay.scripts[1] = [Turn("stackTrace", answer=lost, then=then), Turn("continue", answer=lost)]


def test_while_the_way_is_lost_neither_time_nor_ray_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[int] = []

    class Away(ScriptedJob):
        def job(self) -> JobState | None:
            looks.append(1)
            raise NotRunning("no Ray dashboard answers", hint="")

    async def end() -> None:
        relay.say(way_lost())
        already = len(looks)
        while len(looks) < already + 10:
            await asyncio.sleep(0.01)
        relay.say(session_ended("way-lost"))

    relay = ScriptedRelay({})
    ending: list[asyncio.Future[None]] = []
    stopped_then(relay, lambda: ending.append(asyncio.ensure_future(end())))
    monkeypatch.setattr(session, "SELDOM", 0.01)
    monkeypatch.setattr(session, "FAILURES_BEFORE_GONE", 9)
    with pytest.raises(ConnectionLost, match="connection to the cluster is lost: it was looked for in vain"):
        record(Away(), relay, timeout=0.01)


def test_who_has_taken_the_tasks_meanwhile_keeps_them() -> None:
    class Busy(ScriptedRelay):
        def say(self, message: Message) -> None:
            if self.connections == 2 and message.get("event") == "initialized":
                ray = {"reason": "busy", "client": "Neovim", "since": "2026-01-01T00:00:00Z"}
                super().say({"type": "response", "request_seq": 2, "success": False, "body": {"ray": ray}})
            else:
                super().say(message)

    relay = Busy({})
    stopped_then(relay, losing(relay, way_lost(), BACK))
    with pytest.raises(DebuggerBusy, match="Neovim has debugged these tasks since 2026"):
        record(ScriptedJob(), relay)


WORDS = {"event": "output", "body": {"category": "console", "output": "Another editor has attached\n"}}


@pytest.mark.parametrize(
    ("messages", "error", "says"),
    [
        ([session_ended("taken-over")], DebuggerGone, "another debugger has taken over"),
        # What the relay says before it ends is no reason.
        ([WORDS, session_ended("relay-ending")], NotRunning, "the debug relay has gone: it was ended"),
        ([{"event": "terminated"}], NotRunning, "the debug relay has gone: it was ended"),
        (
            [way_lost(), session_ended("relay-gone")],
            NotRunning,
            "the debug relay has gone: the cluster is there without it",
        ),
        (
            [way_lost(), session_ended("forward-ended")],
            ConnectionLost,
            "the connection to the cluster is lost: the forward to it has ended",
        ),
    ],
)
def test_an_ended_session_is_an_error(messages: list[Message], error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says):
        record(ScriptedJob(), ScriptedRelay({}, after_attach=messages))


def test_a_connection_that_the_relay_closes_is_an_error() -> None:
    relay = ScriptedRelay({1: [Turn("stackTrace", answer=None)]})
    relay.scripts[1][0].then = relay.end
    with pytest.raises(NotRunning, match="the debug relay has gone: it closed the connection"):
        record(ScriptedJob(), relay)


def test_a_defect_in_the_watch_is_not_swallowed_nor_tried_again() -> None:
    calls: list[bool] = []

    class Broken(ScriptedJob):
        def job(self) -> JobState | None:
            calls.append(True)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        record(Broken(), ScriptedRelay({}, after_attach=()))
    assert len(calls) == 1
