"""Tests the other Python threads of a real debuggee that has stopped."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from rayside.relay import thread_rows
from tests.integration.rayside.test_relay_scripted import scripted
from tests.integration.relay_debuggees import Session, relay_over

pytestmark = pytest.mark.gate

RAYS = ("PythonGCThread", "ray_import_thread", "ray_listen_error_messages", "ray_print_logs")
SCRIPT = f"""\
NAMES = {("feeds", "beats", "Dummy-7", *RAYS)}
import threading
go = threading.Event()
def feed():
    go.wait()
def work():
    x = 1
    y = 2
    return y
threads = [threading.Thread(target=feed, name=name) for name in NAMES]
for thread in threads:
    thread.start()
work()
go.set()
for thread in threads:
    thread.join()
import time
time.sleep(60)
"""


# Of so many processes all rows are shown that may be.
SHOWN = thread_rows.MOST_OTHERS_IN_ALL // thread_rows.MOST_OTHERS


async def names(editor: Session) -> list[str]:
    return [name.partition(" · ")[0] for name in (await editor.threads()).values()]


async def test_the_other_threads_of_a_stopped_process_have_rows_until_it_goes_on(tmp_path: Path) -> None:
    async with relay_over(tmp_path) as setting:
        (process,) = await setting.cluster.start(SCRIPT)
        editor = await setting.attach({"job.py": [7]}, allThreads=False)
        stop = await editor.event("stopped")
        rows = await editor.threads()
        process_name = f"{process.process.pid}@127.0.0.1"
        # What stopped comes first; pydevd's ghosts and the debugger's own threads are not there.
        task, *others_, cluster = rows.values()
        assert (task, cluster) == (f"task-1 · {process_name}", "Ray cluster")
        assert sorted(others_) == [f"beats · {process_name}", f"feeds · {process_name}"]
        feeds = next(number for number, name in rows.items() if name.startswith("feeds"))
        frames = (await editor.request("stackTrace", threadId=feeds))["stackFrames"]
        assert "feed" in [frame["name"].split()[0] for frame in frames]
        # A step keeps them.
        await editor.request("next", threadId=stop["threadId"])
        assert await names(editor) == await names(editor) == ["task-1", "feeds", "beats", "Ray cluster"]
        stop = await editor.event("stopped")
        assert set(await editor.threads()) == set(rows)
        await editor.nothing("thread", 0, reason="exited")
        await editor.resume(stop)
        exited = {(await editor.event("thread", reason="exited"))["threadId"] for _ in others_}
        assert exited == {number for number, name in rows.items() if name in others_}
        assert len(await editor.threads()) == 2


async def test_threads_of_rays_own_have_rows_where_an_editor_asks_for_all(tmp_path: Path) -> None:
    async with relay_over(tmp_path) as setting:
        await setting.cluster.start(SCRIPT)
        editor = await setting.attach({"job.py": [7]}, allThreads=True)
        await editor.event("stopped")
        assert set(RAYS) <= set(await names(editor))


async def test_a_worker_has_a_row_while_it_runs_a_task() -> None:
    async with scripted(count=3) as setting:

        async def rows(session: Session, count: int) -> list[str]:
            while len(await session.threads()) != count:
                await asyncio.sleep(0.01)
            return await names(session)

        listed, second = setting.discovery.listed, setting.debuggees[1]
        session = await setting.attach(allThreads=False)
        for debuggee in setting.debuggees:
            await debuggee.attached.wait()
        assert await rows(session, 1) == ["Ray cluster"]
        listed[0] = replace(listed[0], task="works")
        await session.event("thread", reason="started")
        assert await rows(session, 2) == ["works", "Ray cluster"]
        second.stop()
        stop = await session.event("stopped")
        assert sorted(await rows(session, 3)) == ["Ray cluster", second.task, "works"]
        listed[0] = replace(listed[0], task="")
        await session.event("thread", reason="exited")
        assert await rows(session, 2) == [second.task, "Ray cluster"]
        # A step resumes it, and Ray's tables lag behind.
        await session.request("next", threadId=stop["threadId"])
        await session.nothing("thread", 1, reason="exited")
        assert len(await rows(await setting.attach(allThreads=True), 4)) == 4


async def test_what_is_shown_of_many_threads_is_bounded() -> None:
    async with scripted(count=SHOWN + 2) as setting:
        for debuggee in setting.debuggees:
            rows = [{"id": 1, "name": "MainThread"}, *({"id": n, "name": f"t{n}"} for n in range(2, 5_000))]
            debuggee.says["threads"] = {"threads": rows}
        session = await setting.attach()
        for debuggee in setting.debuggees:
            await debuggee.attached.wait()
        while len(await session.threads()) <= len(setting.debuggees):
            await asyncio.sleep(0.01)
        for debuggee in setting.debuggees:
            debuggee.stop()
            await session.event("stopped")
        assert len(await session.threads()) == len(setting.debuggees) + thread_rows.MOST_OTHERS_IN_ALL + 1
        requests = [len(debuggee.received("threads")) for debuggee in setting.debuggees]
        # Once when it was attached to, and once for the stop; not where there is no room left.
        assert requests == [2] * SHOWN + [1, 1]
