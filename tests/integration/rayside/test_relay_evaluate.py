"""Tests evaluations without end in real debuggees: they can be ended, and do not block anything else."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest

from rayside.errors import RequestFailed
from tests.integration.relay_debuggees import Session, relay_over
from tests.patience import PATIENCE

pytestmark = pytest.mark.gate

IN_MAIN = "def work():\n    x = 1\n    return x\nwork()\nprint('done', flush=True)\n"
IN_THREAD = (
    "import threading\n"
    "def work():\n"
    "    x = 1\n"
    "    return x\n"
    "thread = threading.Thread(target=work)\n"
    "thread.start()\n"
    "thread.join()\n"
    "print('done', flush=True)\n"
)
ENDLESS = "[y for y in iter(int, 1)]"


async def cancels(session: Session, number: int) -> bool:
    """Returns whether the request of that number could be cancelled."""
    try:
        await session.request("cancel", requestId=number)
    except RequestFailed as refused:
        assert "nothing to cancel" in refused.message
        return False
    return True


@pytest.mark.parametrize("script", [IN_MAIN, IN_THREAD], ids=["main", "thread"])
async def test_continue_interrupts_an_evaluation_without_end_and_the_task_ends_well(
    tmp_path: Path, script: str
) -> None:
    async with relay_over(tmp_path) as setting:
        (process,) = await setting.cluster.start(script)
        line = script.splitlines().index("    return x") + 1
        session = await setting.attach({"job.py": [line]})
        stop = await session.event("stopped", reason="breakpoint")
        runaway = await session.begin(stop, ENDLESS)
        began = time.monotonic()
        await session.resume(stop)
        assert await process.end() == ["done"]
        assert time.monotonic() - began < 10
        assert "KeyboardInterrupt" in str(await runaway)


async def test_cancel_ends_an_evaluation_and_the_stop_stays(tmp_path: Path) -> None:
    async with relay_over(tmp_path) as setting:
        (process,) = await setting.cluster.start(IN_MAIN)
        session = await setting.attach({"job.py": [3]})
        stop = await session.event("stopped", reason="breakpoint")
        with pytest.raises(RequestFailed, match="nothing to cancel"):
            await session.request("cancel", requestId=1)
        nonsenses: list[Any] = [{}, [], "1"]
        for nonsense in nonsenses:
            with pytest.raises(RequestFailed, match="`requestId` has to be a number"):
                await session.request("cancel", requestId=nonsense)
        sleeping = await session.begin(stop, "__import__('time').sleep(1000)")
        cancelled = [await cancels(session, number) for number in range(1, 50)]
        assert cancelled.count(True) == 1
        assert "KeyboardInterrupt" in str(await asyncio.wait_for(sleeping, PATIENCE))
        assert await session.evaluate(stop, "x + 1") == "2"
        await session.resume(stop)
        assert await process.end() == ["done"]


async def test_a_huge_container_is_shown_in_parts_and_pages_as_it_is_asked_for(tmp_path: Path) -> None:
    script = "rows = list(range(10**6))\nnames = dict.fromkeys(rows)\nprint(len(rows))\n"

    async with relay_over(tmp_path) as setting:
        await setting.cluster.start(script, in_process=True)
        session = await setting.attach({"job.py": [3]})
        stop = await session.event("stopped")
        frame = (await session.frames(stop))[0]["id"]

        async def shown(expression: str, **page: int) -> list[str]:
            body = await session.request("evaluate", expression=expression, frameId=frame)
            of_it = {"variablesReference": body["variablesReference"], **page}
            return [row["name"] for row in (await session.request("variables", **of_it))["variables"]]

        for expression, most in (("rows", 110), ("names", 510)):
            everything = await shown(expression)
            assert 100 < len(everything) < most
            assert await shown(expression, start=50, count=3) == everything[50:53]
            assert await shown(expression, start=100) == everything[100:]
            assert await shown(expression, start=10_000, count=5) == []
        await session.client.disconnect()
