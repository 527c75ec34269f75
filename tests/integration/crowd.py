"""Test for each target: eight tasks of a real Ray cluster that stop at once in one debug session."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from rayside.dap.client import Client
from tests.integration.conftest import Rayside
from tests.integration.relay_debuggees import Session

COUNT = 8
PROGRAM = """\
import ray
from maths import square

@ray.remote(num_cpus=0.1)
def work(n):
    half = n / 2
    total = square(n)
    return total + half

print(f"sum {sum(ray.get([work.remote(n) for n in range(8)]))}")
"""
MODULE = """\
def square(x):
    y = x * x
    return y
"""


def debug_a_crowd(rayside: Rayside, token: str, folder: Path) -> None:
    """Debugs unmodified code, with a breakpoint in working_dir and a conditional one in a py_module."""
    program, module = folder / "program.py", folder / "lib" / "maths" / "__init__.py"
    module.parent.mkdir(parents=True)
    program.write_text(PROGRAM)
    module.write_text(MODULE)
    words = ["--working-dir", str(folder), "--py-modules", str(module.parent)]
    entrypoint = ["--entrypoint", "python program.py"]
    job = rayside.json("submit", "--debug", *words, *entrypoint, timeout=180)["submission_id"]
    asyncio.run(asyncio.wait_for(_debug(rayside.settings.relay_port, token, job, program, module), 240))
    document = rayside.json("debug", "--job", job, timeout=300)
    assert document == {"stopped": [], "job": {"submission_id": job, "status": "SUCCEEDED"}}
    assert "sum 154.0" in rayside.run("logs", "--job", job).stdout


async def _debug(port: int, token: str, job: str, program: Path, module: Path) -> None:
    client = await Client.connect("127.0.0.1", port)
    breakpoints: dict[str, list[dict[str, Any]]] = {
        str(program): [{"line": 7}],
        str(module): [{"line": 3, "condition": "x == 7"}],
    }
    await client.attach(breakpoints=breakpoints, options={"token": token, "job": job}, no_delay=False)
    editor = Session(client, patience=120)
    stops = [await editor.event("stopped") for _ in range(COUNT)]
    assert all(stop["reason"] == "breakpoint" and stop["ray"]["task"] == "work" for stop in stops)
    assert len({stop["ray"]["workerId"] for stop in stops}) == COUNT
    names = await editor.threads()
    for stop in stops:
        assert names[stop["threadId"]] == f"work · {stop['ray']['pid']}@{stop['ray']['nodeIp']}"
        frame = (await editor.frames(stop))[0]
        assert (frame["source"]["path"], frame["line"], frame["name"]) == (str(program), 7, "work")
    numbers = {int(await editor.evaluate(stop, "n")): stop for stop in stops}
    assert sorted(numbers) == list(range(COUNT))

    # One task is stepped, then continues to the breakpoint in the module; the other tasks stay stopped.
    seven = numbers.pop(7)
    await editor.request("stepIn", threadId=seven["threadId"])
    await editor.event("stopped", reason="step", threadId=seven["threadId"])
    await editor.resume(seven)
    stop = await editor.event("stopped", reason="breakpoint", threadId=seven["threadId"])
    frame = (await editor.frames(stop))[0]
    assert (frame["source"]["path"], frame["line"]) == (str(module), 3)
    assert await editor.evaluate(stop, "x, y") == "(7, 49)"
    for number, other in numbers.items():
        assert await editor.evaluate(other, "half") == repr(number / 2)

    await editor.resume(seven)
    for other in numbers.values():
        await editor.resume(other)
    await client.disconnect()
