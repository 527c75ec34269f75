"""The debugger for scripts: what it records, how it lets tasks go on, when it ends."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from bootstrap.debug import scripted
from bootstrap.debug.session import Debuggee
from bootstrap.errors import RayDied
from tests.unit.scripted_debuggee import (
    ScriptedDebuggee,
    ScriptedDiscovery,
    Turn,
    debuggee,
    stack,
    stopped,
    value,
)

CODE = ("my_task", "/far/w/sample.py", 7)
INSIDE = ("set_trace", "/v/lib/python3.11/site-packages/ray/util/debugpy.py", 90)


def reads(*variables: tuple[str, str]) -> list[Turn]:
    return [
        Turn("scopes", {"frameId": 1}, {"scopes": [{"name": "Locals", "variablesReference": 5}]}),
        Turn(
            "variables",
            {"variablesReference": 5},
            {"variables": [{"name": name, "value": text} for name, text in variables]},
        ),
    ]


def record(
    discovery: ScriptedDiscovery,
    debuggees: dict[int, ScriptedDebuggee],
    *,
    evaluate: tuple[str, ...] = (),
    timeout: float = 5,
) -> tuple[dict[str, Any], list[str]]:
    events: list[str] = []

    async def connect(host: str, port: int, **options: Any) -> Any:
        return await debuggees[port].connect(host, port, **options)

    async def run() -> dict[str, Any]:
        return await asyncio.wait_for(
            scripted.run(
                discovery, evaluate=list(evaluate), timeout=timeout, on_event=events.append, connect=connect
            ),
            20,
        )

    return asyncio.run(run()), events


def test_a_stop_is_recorded_and_let_go_on_until_the_job_has_ended() -> None:
    discovery = ScriptedDiscovery(debuggee())
    fake = ScriptedDebuggee(
        stack(CODE),
        value("my_task"),
        *reads(("special variables", ""), ("numbers", "[0, 1]"), ("(return) f", "3"), ("x", "2")),
        value(1, "sum(numbers)"),
        Turn("evaluate", {"expression": "y", "context": "watch"}, "NameError: name 'y' is not defined"),
        Turn("continue", {"threadId": 1}, then=discovery.end_job),
    )
    document, events = record(discovery, {1: fake}, evaluate=("sum(numbers)", "y"))
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
    fake.check()
    assert fake.requests[-1]["command"] == "disconnect"


def test_rays_own_frames_are_not_the_users() -> None:
    discovery = ScriptedDiscovery(debuggee(task="known"))
    fake = ScriptedDebuggee(
        stack(INSIDE, ("f", "/elsewhere/ray/util/mine.py", 3), CODE),
        Turn("evaluate", {"frameId": 2}, {"result": "KeyError('ray')"}),
        Turn("scopes", {"frameId": 2}, {"scopes": []}),
        Turn("continue", then=discovery.end_job),
    )
    document, _ = record(discovery, {1: fake})
    [stop] = document["stopped"]
    assert (stop["function"], stop["file"], stop["line"]) == ("f", "/elsewhere/ray/util/mine.py", 3)
    assert (stop["task"], stop["locals"]) == ("known", {})
    fake.check()


def test_the_next_stop_of_the_same_worker_comes_on_the_same_connection() -> None:
    discovery = ScriptedDiscovery(debuggee())
    fake = ScriptedDebuggee(
        stack(CODE), value("one"), *reads(), Turn("continue", events=[stopped()]),
        stack(CODE), value("two"), *reads(), Turn("continue", then=discovery.end_job),
    )  # fmt: skip
    document, _ = record(discovery, {1: fake})
    assert [stop["task"] for stop in document["stopped"]] == ["one", "two"]
    assert fake.connections == 1
    fake.check()


def test_a_debuggee_that_is_slow_to_attach_holds_up_no_other() -> None:
    class Slow(ScriptedDebuggee):
        def say(self, message: dict[str, Any]) -> None:
            if message.get("event") != "initialized" or not quick.script:
                super().say(message)

    discovery = ScriptedDiscovery(debuggee(1), debuggee(2))
    slow = Slow(stack(CODE), value("one"), *reads(), Turn("continue", then=discovery.end_job))
    quick = ScriptedDebuggee(
        stack(CODE),
        value("two"),
        *reads(),
        Turn("continue", then=lambda: slow.say({"event": "initialized"})),
    )
    document, _ = record(discovery, {1: slow, 2: quick})
    assert [stop["task"] for stop in document["stopped"]] == ["two", "one"]


def test_debuggees_are_stopped_side_by_side() -> None:
    # Each lets go on only when both have stopped: one after the other would never end.
    discovery = ScriptedDiscovery(debuggee(1), debuggee(2))
    waiting: list[ScriptedDebuggee] = []

    def both() -> None:
        waiting.append(fakes[1])
        if len(waiting) == 2:
            for fake in fakes.values():
                fake.respond({"seq": fake.requests[-1]["seq"], "command": "stackTrace"}, {"stackFrames": []})
            discovery.end_job()

    fakes = {
        n: ScriptedDebuggee(Turn("stackTrace", answer=None, then=both), Turn("continue")) for n in (1, 2)
    }
    document, events = record(discovery, fakes)
    assert document["stopped"] == []
    assert sorted(events)[:2] == [
        "a task · 101@127.0.0.9: it stopped without a frame",
        "a task · 102@127.0.0.9: it stopped without a frame",
    ]
    for fake in fakes.values():
        fake.check()


def test_it_leaves_when_nothing_stops_and_says_how_the_job_is() -> None:
    document, events = record(ScriptedDiscovery(), {}, timeout=0.05)
    assert document == {"stopped": [], "job": {"submission_id": "raysubmit_1", "status": "RUNNING"}}
    assert events == ["nothing stopped for 0.05 s; the tasks go on"]


def test_a_worker_that_dies_while_stopped_is_told_and_the_rest_goes_on() -> None:
    discovery = ScriptedDiscovery(debuggee(1), debuggee(2))
    dying = ScriptedDebuggee(Turn("stackTrace", answer=None))
    dying.script[0].then = dying.end
    living = ScriptedDebuggee(stack(CODE), value("two"), *reads(), Turn("continue", then=discovery.end_job))
    document, events = record(discovery, {1: dying, 2: living})
    assert [stop["task"] for stop in document["stopped"]] == ["two"]
    assert any("101@127.0.0.9" in event and "went away" in event for event in events)


def test_a_debuggee_that_refuses_is_told_once_and_not_dialled_again() -> None:
    class Taken(ScriptedDebuggee):
        def say(self, message: dict[str, Any]) -> None:
            if message.get("event") == "initialized":
                self.respond({"seq": 2, "command": "attach"}, "already debugged")
            else:
                super().say(message)

    fake = Taken()
    _, events = record(ScriptedDiscovery(debuggee()), {1: fake}, timeout=0.8)
    assert fake.connections == 1
    assert sum("already debugged" in event for event in events) == 1


def test_rays_end_is_an_error_after_a_few_tries() -> None:
    discovery = ScriptedDiscovery()
    discovery.failure = RayDied("Ray does not answer", hint="Run `invoke up`.")
    with pytest.raises(RayDied):
        record(discovery, {})


def test_a_defect_in_discovery_is_not_swallowed() -> None:
    class Broken(ScriptedDiscovery):
        def paused(self) -> list[Debuggee]:
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        record(Broken(), {})
