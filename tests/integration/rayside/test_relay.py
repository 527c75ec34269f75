"""Tests the relay over real debuggees: everyday debugging, and the faults of its first trial."""

from __future__ import annotations

import asyncio
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from rayside.dap.client import Client
from rayside.dap.framing import Message
from rayside.errors import DebuggerGone, RequestFailed
from rayside.relay.connection import Connection, call
from rayside.worker.evaluated import PROTOCOL, scope
from tests.at_once import AT_ONCE
from tests.integration.relay_debuggees import PACKAGE, TOKEN, Cluster, Session, relay_over

pytestmark = [pytest.mark.gate, pytest.mark.usefixtures("answers_in_full")]

WORK = """\
def work(x):
    y = x * 2
    z = y + 1

    return z

for i in range(3):
    print(work(i), flush=True)
"""
PAUSES = """\
import debugpy
def work(x):
    y = x * 2
    debugpy.breakpoint()
    return y

for i in range(3):
    print(work(i), flush=True)
"""
BUSY = """\
import time
end = time.monotonic() + 20
while time.monotonic() < end:
    time.sleep(0.01)
"""


async def test_tasks_that_stop_at_once_are_seen_stepped_and_continued_each_by_itself(tmp_path: Path) -> None:
    async with relay_over(tmp_path) as setting:
        processes = await setting.cluster.start(WORK, count=8)
        editor = await setting.attach({"job.py": [3]})
        stops = await editor.stops(8)
        rows = await editor.threads()
        names = {f"task-{n} · {p.process.pid}@127.0.0.1" for n, p in enumerate(processes, 1)}
        assert {rows[stop["threadId"]] for stop in stops} == names
        assert [stop["allThreadsStopped"] for stop in stops] == [False] * 8
        assert {stop["ray"]["task"] for stop in stops} == {f"task-{n}" for n in range(1, 9)}
        for stop in stops:
            frame = (await editor.frames(stop))[0]
            assert (frame["source"]["path"], frame["line"]) == (str(setting.cluster.here / "job.py"), 3)
            assert await editor.evaluate(stop, "__import__('os').environ['TASK']") == repr(
                stop["ray"]["task"]
            )
        first, *others = stops
        body = await editor.request("next", threadId=first["threadId"])
        assert (await editor.event("stopped"))["threadId"] == first["threadId"]
        assert (await editor.frames(first))[0]["line"] == 5
        body = await editor.request("continue", threadId=first["threadId"])
        assert body["allThreadsContinued"] is False
        assert await editor.evaluate(await editor.event("stopped"), "x") == "1"
        for stop in others:
            assert await editor.evaluate(stop, "x, y") == "(0, 0)"
        await editor.request("setBreakpoints", source={"path": str(setting.cluster.here / "job.py")})
        for stop in stops:
            await editor.resume(stop)
        assert [await process.end() for process in processes] == [["1", "3", "5"]] * 8
        while len(await editor.threads()) > 1:
            await editor.event("thread", reason="exited")
        await editor.client.disconnect()


async def test_where_the_package_is_not_there_debugpys_own_breakpoints_stop_and_the_editor_is_told_once(
    tmp_path: Path,
) -> None:
    async with relay_over(tmp_path) as setting:
        processes = await setting.cluster.start(WORK, count=2, has_package=False)
        editor = await setting.attach({"job.py": [{"line": 3, "condition": "x == 1"}]})
        stops = await editor.stops(2)
        assert {stop["ray"]["task"] for stop in stops} == {"task-1", "task-2"}
        for stop in stops:
            frame = (await editor.frames(stop))[0]
            assert (frame["source"]["path"], frame["line"]) == (str(setting.cluster.here / "job.py"), 3)
            assert await editor.evaluate(stop, "x, y") == "(1, 2)"
        told = (await editor.event("output", category="console"))["output"]
        assert f"has no package `rayside`, and this relay version {PROTOCOL}" in told
        await editor.nothing("output", 0.2, category="console")
        for stop in stops:
            await editor.resume(stop)
        assert [await process.end() for process in processes] == [["1", "3", "5"]] * 2


async def test_a_debuggee_that_appears_later_has_the_breakpoints_and_one_that_is_used_again_keeps_them(
    tmp_path: Path,
) -> None:
    async with relay_over(tmp_path) as setting:
        editor = await setting.attach({"job.py": [{"line": 3, "condition": "x > 0"}]})
        # Answered with no debuggee at all, and one row that stays.
        assert list((await editor.threads()).values()) == ["Ray cluster"]
        await setting.cluster.start(WORK)
        changed = await editor.event("breakpoint", reason="changed")
        assert changed["breakpoint"]["verified"] is True
        for expected in ("1", "2"):
            stop = await editor.event("stopped", reason="breakpoint")
            assert stop["hitBreakpointIds"] == [changed["breakpoint"]["id"]]
            assert await editor.evaluate(stop, "x") == expected
            await editor.resume(stop)
        await editor.client.disconnect()


async def test_a_breakpoint_call_stops_and_nothing_else_does_without_breakpoints(tmp_path: Path) -> None:
    async with relay_over(tmp_path) as setting:
        await setting.cluster.start(PAUSES)
        editor = await setting.attach()
        for expected in ("0", "1"):
            stop = await editor.event("stopped")
            assert await editor.evaluate(stop, "x") == expected
            frame = (await editor.frames(stop))[0]
            assert frame["name"] == "work"
            await editor.request("next", threadId=stop["threadId"])
            stop = await editor.event("stopped", reason="step")
            await editor.resume(stop)
        await editor.client.disconnect()


async def test_variables_are_read_set_and_completed(tmp_path: Path) -> None:
    async with relay_over(tmp_path) as setting:
        first, second = await setting.cluster.start(WORK, count=2)
        editor = await setting.attach({"job.py": [3]})
        for stop in await editor.stops(2):
            frame = (await editor.frames(stop))[0]["id"]
            scope = (await editor.request("scopes", frameId=frame))["scopes"][0]["variablesReference"]
            variables = (await editor.request("variables", variablesReference=scope))["variables"]
            assert {v["name"]: v["value"] for v in variables}["y"] == "0"
            await editor.request("setVariable", variablesReference=scope, name="y", value="40")
            await editor.request("setExpression", frameId=frame, expression="y", value="y + 1")
            assert await editor.evaluate(stop, "y") == "41"
            body = await editor.request(
                "evaluate", expression="[x, {'a': [1, 2]}]", frameId=frame, context="repl"
            )
            inner = await editor.request("variables", variablesReference=body["variablesReference"])
            assert "{'a': [1, 2]}" in [v["value"] for v in inner["variables"]]
            targets = (await editor.request("completions", frameId=frame, text="z", column=2))["targets"]
            assert isinstance(targets, list)
            targets = (await editor.request("stepInTargets", frameId=frame))["targets"]
            assert isinstance(targets, list)
            await editor.request("setBreakpoints", source={"path": str(setting.cluster.here / "job.py")})
            await editor.resume(stop)
        assert [(await p.end())[0] for p in (first, second)] == ["42", "42"]
        await editor.client.disconnect()


async def test_goto_where_python_can_and_frames_stay_known_where_it_cannot(tmp_path: Path) -> None:
    async with relay_over(tmp_path) as setting:
        (process,) = await setting.cluster.start(WORK)
        editor = await setting.attach({"job.py": [5]})
        path = str(setting.cluster.here / "job.py")
        stop = await editor.event("stopped")
        frame = (await editor.frames(stop))[0]["id"]
        target = (await editor.request("gotoTargets", source={"path": path}, line=2))["targets"][0]["id"]
        await editor.request("setVariable", **await _scope(editor, frame), name="x", value="10")
        await editor.request("goto", threadId=stop["threadId"], targetId=target)
        stop = await editor.event("stopped", reason="goto")
        assert (await editor.frames(stop))[0]["line"] == 2
        await editor.request("setBreakpoints", source={"path": path})
        await editor.resume(stop)
        assert (await process.end())[0] == "21"
        await editor.client.disconnect()


async def _scope(editor: Session, frame: int) -> dict[str, Any]:
    scopes = (await editor.request("scopes", frameId=frame))["scopes"]
    return {"variablesReference": scopes[0]["variablesReference"]}


async def test_exceptions_that_leave_a_task_stop_it_and_are_told(tmp_path: Path) -> None:
    script = "try:\n    1 // 0\nexcept ZeroDivisionError:\n    print('caught')\n"

    async with relay_over(tmp_path) as setting:
        (process,) = await setting.cluster.start(script)
        editor = await setting.attach(filters=["raised"])
        stop = await editor.event("stopped", reason="exception")
        info = await editor.request("exceptionInfo", threadId=stop["threadId"])
        assert info["exceptionId"] == "ZeroDivisionError"
        await editor.request("setExceptionBreakpoints", filters=[])
        await editor.resume(stop)
        assert await process.end() == ["caught"]
        await editor.client.disconnect()


async def test_pause_stops_a_running_task_also_all_of_them(tmp_path: Path) -> None:
    async with relay_over(tmp_path) as setting:
        await setting.cluster.start(BUSY, count=3)
        editor = await setting.attach()
        while len(rows := await editor.threads()) < 4:
            await editor.event("thread", reason="started")
        thread, cluster = next(iter(rows)), next(i for i, name in rows.items() if name == "Ray cluster")
        await editor.request("pause", threadId=thread)
        stop = await editor.event("stopped", reason="pause")
        assert stop["threadId"] == thread
        await editor.nothing("stopped", 0.2)
        await editor.request("pause", threadId=cluster)
        stops = await editor.stops(2)
        assert {stop["threadId"], *(s["threadId"] for s in stops)} == set(rows) - {cluster}
        await editor.request("continue", threadId=cluster)
        gone_on = [await editor.event("continued") for _ in range(3)]
        assert {body["threadId"] for body in gone_on} == set(rows) - {cluster}
        await editor.client.disconnect()


# --- what bit the first trial, in the order of its list ----------------------------------------


async def test_the_handshake_needs_no_debuggee_and_the_second_stop_does_not_steal_the_focus(
    tmp_path: Path,
) -> None:
    async with relay_over(tmp_path) as setting:
        editor = await setting.attach()
        assert setting.cluster.looks > 0 or await editor.threads()
        await setting.cluster.start(PAUSES, count=3)
        stops = await editor.stops(3)
        assert [stop["preserveFocusHint"] for stop in stops] == [False, True, True]
        assert all(stop["allThreadsStopped"] is False for stop in stops)
        # What the user moves has the focus again where it stops.
        await editor.request("next", threadId=stops[1]["threadId"])
        assert (await editor.event("stopped", reason="step"))["preserveFocusHint"] is False
        body = await editor.request("continue", threadId=stops[1]["threadId"])
        assert body == {"allThreadsContinued": False}
        # Threads come from a cache: a frozen debuggee does not hold them up.
        setting.cluster.processes[0].process.send_signal(signal.SIGSTOP)
        began = time.monotonic()
        assert len(await editor.threads()) == 4
        assert time.monotonic() - began < AT_ONCE
        # No editor may end or restart what it debugs.
        for name in ("supportTerminateDebuggee", "supportsTerminateRequest", "supportsRestartRequest"):
            assert editor.client.capabilities[name] is False
        setting.cluster.processes[0].process.send_signal(signal.SIGCONT)
        await editor.client.disconnect()


async def test_an_editor_that_attaches_for_one_task_is_not_taken_to_another_first(tmp_path: Path) -> None:
    async with relay_over(tmp_path) as setting:
        # Each stops once: one that stops again before the last goes on would not be shown either.
        once = PAUSES.replace("range(3)", "range(1)")
        await setting.cluster.start(once, count=3)
        last = setting.cluster.processes[-1].debuggee.worker_id
        editor = await setting.attach(focusWorkerId=last)
        stops = await editor.stops(3)
        shown = [stop["ray"]["workerId"] for stop in stops if not stop["preserveFocusHint"]]
        assert shown == [last]
        # Once only: what comes later is shown where nothing else is stopped.
        for stop in stops:
            await editor.resume(stop)
        await setting.cluster.start(once)
        assert (await editor.event("stopped"))["preserveFocusHint"] is False
        await editor.client.disconnect()


async def test_an_editor_can_ask_for_the_focus_on_a_stopped_task(tmp_path: Path) -> None:
    async with relay_over(tmp_path) as setting:
        await setting.cluster.start(PAUSES, count=2)
        editor = await setting.attach()
        first, second = await editor.stops(2)
        for stop in (second, first):
            await editor.request("focusTask", workerId=stop["ray"]["workerId"])
            repeated = await editor.event("stopped")
            assert repeated == {**stop, "preserveFocusHint": False}
            # From then on it is the one that is meant where none is named, but in the debug console.
            body = await editor.request("evaluate", expression="__import__('os').environ['TASK']")
            assert body["result"] == stop["ray"]["task"]
            assert await editor.evaluate(stop, "x") == "0"
        await editor.client.disconnect()


async def test_the_focus_is_refused_where_no_task_is_stopped(tmp_path: Path) -> None:
    async with relay_over(tmp_path) as setting:
        (stopping,) = await setting.cluster.start(PAUSES)
        (busy,) = await setting.cluster.start(BUSY, name="busy.py")
        editor = await setting.attach()
        stop = await editor.event("stopped")
        while len(await editor.threads()) < 3:
            await editor.event("thread", reason="started")
        for named in (busy.debuggee.worker_id, "", "another", None, 7, [1]):
            with pytest.raises(RequestFailed, match="no task of worker"):
                await editor.request("focusTask", workerId=named)
        stranger = await Client.connect("127.0.0.1", setting.port)
        for arguments in ({}, {"token": TOKEN}):
            with pytest.raises(RequestFailed, match="before `attach`"):
                await stranger.request("focusTask", {"workerId": stopping.debuggee.worker_id, **arguments})
        stranger.close()
        stopping.process.kill()
        await editor.event("thread", reason="exited", threadId=stop["threadId"])
        with pytest.raises(RequestFailed, match="no task of worker"):
            await editor.request("focusTask", workerId=stopping.debuggee.worker_id)
        await editor.nothing("stopped", 0)
        await editor.client.disconnect()


async def test_the_newest_editor_wins_and_has_what_is_stopped(tmp_path: Path) -> None:
    async with relay_over(tmp_path) as setting:
        await setting.cluster.start(WORK, count=2)
        old = await setting.attach({"job.py": [3]})
        stops = await old.stops(2)
        new = await setting.attach()
        assert "Another editor" in (await old.event("output"))["output"]
        await old.event("terminated")
        repeated = await new.stops(2)
        assert {stop["threadId"] for stop in repeated} == {stop["threadId"] for stop in stops}
        assert sorted(stop["preserveFocusHint"] for stop in repeated) == [False, True]
        assert await new.evaluate(repeated[0], "x") == "0"
        # The old one's breakpoints are gone with it.
        for stop in repeated:
            await new.resume(stop)
        assert [await process.end() for process in setting.cluster.processes] == [["1", "3", "5"]] * 2
        await new.client.disconnect()


async def test_two_paths_of_one_file_keep_each_others_breakpoints(tmp_path: Path) -> None:
    async with relay_over(tmp_path, shared_files=True) as setting:
        (process,) = await setting.cluster.start(WORK)
        (tmp_path / "link").symlink_to(setting.cluster.here)
        editor = await setting.attach({"job.py": [2], "../link/job.py": [5]})
        lines = []
        for _ in range(4):
            stop = await editor.event("stopped")
            frame = (await editor.frames(stop))[0]
            lines.append(frame["line"])
            await editor.resume(stop)
        assert lines == [2, 5, 2, 5]
        await editor.client.disconnect()
        assert await process.end() == ["1", "3", "5"]


THREADS = """\
import threading, time, debugpy
beats = 0
def beat():
    global beats
    while not over.is_set():
        beats += 1
        time.sleep(0.01)
def work(n):
    barrier.wait()
    debugpy.breakpoint()
    n = n + 0
    print(f"done {n}\\n", end="", flush=True)  # in one piece, as two threads print
barrier, over = threading.Barrier(2), threading.Event()
heart = threading.Thread(target=beat)
heart.start()
threads = [threading.Thread(target=work, args=(n,)) for n in range(2)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
over.set()
"""


async def beats_on(editor: Session, stop: dict[str, Any]) -> bool:
    """Returns whether another thread of its process runs while that thread is stopped."""
    before = int(await editor.evaluate(stop, "beats"))
    for _ in range(100):
        if int(await editor.evaluate(stop, "beats")) > before + 2:
            return True
        await asyncio.sleep(0.01)
    return False


@pytest.mark.parametrize("in_process", [True, False])
async def test_a_stop_leaves_the_other_threads_of_its_process_running(
    tmp_path: Path, in_process: bool
) -> None:
    async with relay_over(tmp_path) as setting:
        (process,) = await setting.cluster.start(THREADS, in_process=in_process)
        editor = await setting.attach()
        stop, _ = await editor.stops(2)
        assert stop["allThreadsStopped"] is False
        assert await beats_on(editor, stop)
        await editor.request("next", threadId=stop["threadId"])
        stepped = await editor.event("stopped", reason="step")
        assert stepped["threadId"] == stop["threadId"]
        await editor.nothing("continued", 0.2)  # the other one stands
        assert await beats_on(editor, stepped)
        await editor.client.disconnect()
        assert sorted(await process.end()) == ["done 0", "done 1"]


async def test_two_threads_of_one_process_stop_and_go_on_each_by_itself(tmp_path: Path) -> None:
    async with relay_over(tmp_path) as setting:
        (process,) = await setting.cluster.start(THREADS, in_process=True)
        editor = await setting.attach()
        first, second = await editor.stops(2)
        numbers = [await editor.evaluate(stop, "n") for stop in (first, second)]
        frame = (await editor.frames(second))[0]["id"]
        await editor.resume(first)
        await process.until_printed(1)
        assert process.lines == [f"done {numbers[0]}"]
        await editor.nothing("continued", 0.1)
        assert (await editor.request("scopes", frameId=frame))["scopes"]
        await editor.resume(second)
        assert await process.end() == [f"done {number}" for number in numbers]
        await editor.client.disconnect()


async def test_a_module_of_ours_is_there_for_each_thread_that_wants_it_at_the_same_moment(
    tmp_path: Path,
) -> None:
    (process,) = await Cluster(tmp_path).start(THREADS)
    stopped = asyncio.Queue[int]()

    def heard(event: Message) -> None:
        if event["event"] == "stopped":
            stopped.put_nowait(event["body"]["threadId"])

    async def task(thread: int) -> object:
        body = await connection.client.request("stackTrace", {"threadId": thread, "levels": 1})
        return await connection.literal(call(scope.task), body["stackFrames"][0]["id"])

    async def nothing() -> None:
        """Sets nothing before the debuggee runs."""

    connection = Connection(process.debuggee, heard)
    try:
        await connection.attach({}, connection.begin)
        threads = [await stopped.get() for _ in range(2)]
        assert list(await asyncio.gather(*map(task, threads))) == ["task-1", "task-1"]
        await connection.detach(nothing)
        # It says so each time, where there is nobody to send it to.
        other = Connection(process.debuggee, heard)
        for _ in range(2):
            with pytest.raises(DebuggerGone):
                await other.begin()
    finally:
        await process.close()


async def test_where_debugpys_adapter_lets_all_threads_go_the_editor_is_told(tmp_path: Path) -> None:
    async with relay_over(tmp_path) as setting:
        (process,) = await setting.cluster.start(THREADS)
        editor = await setting.attach()
        first, second = await editor.stops(2)
        await editor.resume(first)
        await editor.event("continued", threadId=second["threadId"])
        assert sorted(await process.end()) == ["done 0", "done 1"]
        await editor.client.disconnect()


# --- files ---------------------------------------------------------------------------------------


async def test_a_breakpoint_where_no_code_is_moves_or_says_why(tmp_path: Path) -> None:
    async with relay_over(tmp_path) as setting:
        await setting.cluster.start(WORK)
        editor = await setting.attach({"job.py": [4]})
        stop = await editor.event("stopped")
        assert (await editor.frames(stop))[0]["line"] == 5
        path = str(setting.cluster.here / "job.py")
        body = await editor.request(
            "setBreakpoints", source={"path": path}, breakpoints=[{"line": 4}, {"line": 99}]
        )
        moved, none = body["breakpoints"]
        assert (moved["verified"], moved["line"]) == (True, 5)
        assert "line 5" in moved["message"]
        assert none["verified"] is False and "no code" in none["message"]
        body = await editor.request(
            "setBreakpoints", source={"path": "/no/such.py"}, breakpoints=[{"line": 1}]
        )
        assert body["breakpoints"][0]["verified"] is False
        while "working_dir" not in (breakpoint_ := body["breakpoints"][0])["message"]:
            body = {"breakpoints": [(await editor.event("breakpoint"))["breakpoint"]]}
        assert breakpoint_["verified"] is False
        await editor.client.disconnect()


async def test_a_file_that_was_edited_since_is_told_once(tmp_path: Path) -> None:
    async with relay_over(tmp_path, shared_files=True) as setting:
        await setting.cluster.start(WORK, count=2)
        (setting.cluster.here / "job.py").write_text("# new\n" + WORK)
        editor = await setting.attach({"job.py": [3]})
        await editor.stops(2)
        output = await editor.event("output", category="console")
        assert "job.py" in output["output"] and "submit" in output["output"].lower()
        await editor.nothing("output", category="console")
        await editor.client.disconnect()


async def test_a_file_that_the_editor_cannot_have_is_served(tmp_path: Path) -> None:
    async with relay_over(tmp_path) as setting:
        (tmp_path / "elsewhere").mkdir()
        (tmp_path / "elsewhere" / "lib.py").write_text("def call(f):\n    return f()\n")
        script = f"import sys; sys.path.append({str(tmp_path / 'elsewhere')!r})\nimport lib\n"
        await setting.cluster.start(script + "def work():\n    return 1\nlib.call(work)\n")
        editor = await setting.attach({"job.py": [4]})
        frames = await editor.frames(await editor.event("stopped"))
        source = next(f["source"] for f in frames if f["name"] == "call")
        assert source["sourceReference"] > 0
        body = await editor.request("source", sourceReference=source["sourceReference"], source=source)
        assert body["content"].startswith("def call")
        await editor.client.disconnect()


async def test_the_editors_own_mapping_wins_and_a_path_of_the_cluster_is_one_too(tmp_path: Path) -> None:
    async with relay_over(tmp_path) as setting:
        await setting.cluster.start(WORK)
        mappings = [{"localRoot": "/home/me/project", "remoteRoot": "."}]
        editor = await setting.attach(pathMappings=mappings)
        body = await editor.request(
            "setBreakpoints", source={"path": "/home/me/project/job.py"}, breakpoints=[{"line": 3}]
        )
        if not body["breakpoints"][0]["verified"]:
            await editor.event("breakpoint", reason="changed")
        await editor.client.disconnect()
    async with relay_over(tmp_path) as setting:
        await setting.cluster.start(WORK)
        through = f"/other/session_latest/runtime_resources/working_dir_files/{PACKAGE}/job.py"
        editor = await setting.attach({through: [3]})
        frame = (await editor.frames(await editor.event("stopped")))[0]
        assert frame["source"]["path"] == through
        await editor.client.disconnect()


# --- whose debuggees, and whose relay --------------------------------------------------------


async def test_only_the_jobs_debuggees_are_attached_and_the_others_wait_on(tmp_path: Path) -> None:
    async with relay_over(tmp_path) as setting:
        (jobs_debuggee,) = await setting.cluster.start(WORK)
        (other,) = await setting.cluster.start(WORK, job="02000000")
        # A worker before its first task: nobody but itself knows its job.
        for process in (jobs_debuggee, other):
            object.__setattr__(process.debuggee, "job_id", "")
        editor = await setting.attach({"job.py": [3]}, job="01000000")
        stop = await editor.event("stopped")
        assert stop["ray"]["jobId"] == "01000000"
        await editor.nothing("stopped", 0.5)
        assert len(await editor.threads()) == 2
        assert other.lines == []
        second = await setting.attach({"job.py": [3]}, job="submission-of-02000000")
        assert (await second.event("stopped"))["ray"]["jobId"] == "02000000"
        assert len(await second.threads()) == 2
        await second.client.disconnect()
        await editor.nothing("terminated", 0.1)
        await editor.client.disconnect()
