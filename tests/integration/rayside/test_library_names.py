"""Tests files of a user's that are named as Python's own or pydevd's: each is the user's, where it lies.

Runs on each Python from 3.10 to 3.14 that is on PATH or in pyenv's folder, with this one's debugpy.
"""

from __future__ import annotations

from pathlib import Path

from rayside.dap.framing import Message
from tests.integration.pythons import POST_MORTEM, each_python_once
from tests.integration.rayside.test_compiled import played

# pydevd's table has these; the last two it takes for its own.
NAMES = ["io", "queue", "socket", "codecs", "threading", "weakref", "linecache", "dis", "cp1252", "pydevd_io"]
NAMES += ["django_debug"]
MODULE = """\
def load(n):
    rows = list(range(n))
    total = sum(rows)  # total
    return total
"""
MAIN = """\
def load(name):
    module = importlib.import_module(f"pipeline.{name}")
    total = module.load(5)  # call
    return total

def begin(folder):
    sys.path.insert(0, folder)
    try:
        getattr(importlib.import_module("queue"), "Queue")().get_nowait()
    except Exception as error:
        return type(error).__name__

def fail(name):
    try:
        importlib.import_module(f"pipeline.{name}").load(None)
    except TypeError:
        post_mortem()

"""


def pipeline(folder: Path) -> Path:
    package = folder / "user" / "pipeline"
    package.mkdir(parents=True)
    for name in [*NAMES, "__init__"]:
        (package / f"{name}.py").write_text(MODULE)
    return package


@each_python_once
async def test_breakpoints_stop_and_steps_go_into_them(version: str, how: str, tmp_path: Path) -> None:
    package = pipeline(tmp_path)

    async with played(version, how, tmp_path, MAIN) as process:

        async def own_frames(stop: Message) -> list[str]:
            trace = await process.running.client.request("stackTrace", {"threadId": stop["threadId"]})
            return [frame["name"] for frame in trace["stackFrames"] if str(tmp_path) in str(frame["source"])]

        assert await process.call("begin", str(package.parent)) == "Empty"
        for name in NAMES:
            file = package / f"{name}.py"
            await process.set("total", file=file)
            process.begin_call("load", name)
            stop = await process.stop("total", file=file)
            assert await process.value(stop, "rows") == "[0, 1, 2, 3, 4]"
            assert (await own_frames(stop))[:2] == ["load", "load"]
            await process.running.go_on(stop)
            assert await process.result() == 10
            await process.set(file=file)
            await process.set("call")
            process.begin_call("load", name)
            stop = await process.stop("call")
            await process.running.go_on(stop, "stepIn")
            stop = await process.running.stopped()
            frame = await process.running.frame(stop)
            assert (frame["source"]["path"], frame["line"]) == (str(file), 2)
            await process.set()
            await process.running.go_on(stop)
            assert await process.result() == 10


@each_python_once
async def test_the_post_mortem_shows_their_frames(version: str, how: str, tmp_path: Path) -> None:
    package = pipeline(tmp_path)

    async with played(version, how, tmp_path, MAIN + POST_MORTEM) as process:
        client = process.running.client
        await client.request("setExceptionBreakpoints", {"filters": ["uncaught"]})
        await process.call("begin", str(package.parent))
        for name in NAMES:
            process.begin_call("fail", name)
            stop = await process.running.stopped()
            trace = await client.request("stackTrace", {"threadId": stop["threadId"]})
            shown = [(frame["source"]["path"], frame["line"]) for frame in trace["stackFrames"]]
            assert (str(package / f"{name}.py"), 2) in shown
            await process.running.go_on(stop)
            await process.result()
