"""Debuggees in any Python of this machine, with this Python's debugpy; commands come on standard input."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from bootstrap.settings import ROOT
from rayside.dap.client import Client
from rayside.dap.framing import Message
from rayside.worker.attach import UNCHECKED, WITHOUT_MONITORING
from tests.patience import PATIENCE

# Each Python version with pydevd's ways to trace it: from 3.12 on there are two.
HOWS = [("3.10", "settrace"), ("3.11", "settrace"), ("3.12", "settrace"), ("3.12", "monitoring")]
HOWS += [("3.13", "settrace"), ("3.13", "monitoring"), ("3.14", "settrace"), ("3.14", "monitoring")]
# Each version and each way at least once, for tests that don't depend on the combination.
_ONCE = [("3.10", "settrace"), ("3.11", "settrace"), ("3.12", "monitoring")]
_ONCE += [("3.13", "settrace"), ("3.14", "monitoring")]
each_python = pytest.mark.parametrize(("version", "how"), HOWS, ids=lambda each: str(each))
each_python_once = pytest.mark.parametrize(("version", "how"), _ONCE, ids=lambda each: str(each))
BY_HAND = {**WITHOUT_MONITORING, **UNCHECKED}
_KEPT = ROOT / ".pytest_cache"
# Ray's post-mortem of a failed task with RAY_DEBUG_POST_MORTEM set (ray/util/debugpy.py). It needs `sys` and
# `threading`, and is called in the exception's handler.
POST_MORTEM = """\
def post_mortem():
    import pydevd
    debugger, thread = pydevd.get_global_debugger(), threading.current_thread()
    info = debugger.set_additional_thread_info(thread)
    info.is_tracing += 1
    try:
        debugger.stop_on_unhandled_exception(debugger, thread, info, sys.exc_info())
    finally:
        info.is_tracing -= 1
"""


class Debuggee:
    """Process that executes commands from standard input, line by line."""

    def __init__(
        self, python: str, script: Path, program: str, words: Sequence[str], environment: Mapping[str, str]
    ) -> None:
        self.script, self._program = script, program
        script.write_text(program)
        self.process = subprocess.Popen(
            [python, script, ROOT, *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={
                **environment,
                "PYTHONPATH": os.pathsep.join([str(ROOT), environment.get("PYTHONPATH", "")]),
            },
        )
        self.port = int(self.hear())
        self.client: Client

    def say(self, word: str) -> None:
        assert self.process.stdin
        self.process.stdin.write(f"{word}\n")
        self.process.stdin.flush()

    def hear(self) -> str:
        assert self.process.stdout
        return self.process.stdout.readline().strip()

    def line(self, marker: str, file: Path | None = None) -> int:
        """Returns the number of the line in its program, or another file, that ends with that comment."""
        text = file.read_text() if file else self._program
        return next(n for n, line in enumerate(text.splitlines(), 1) if line.endswith(f"# {marker}"))

    async def attach(self, **how: Any) -> None:
        self.client = await Client.connect("127.0.0.1", self.port)
        await self.client.attach(**how)

    async def evaluate(self, expression: str) -> str:
        answer = await self.client.request("evaluate", {"expression": expression, "context": "clipboard"})
        return str(answer["result"])

    async def breakpoints(self, *markers: str) -> None:
        lines = [{"line": self.line(marker)} for marker in markers]
        await self.client.set_breakpoints(str(self.script), lines)

    async def ask(self, word: str) -> str:
        self.say(word)
        return await asyncio.wait_for(asyncio.to_thread(self.hear), PATIENCE)

    async def traced(self) -> bool:
        return await self.ask("traced") == "True"

    async def stopped(self) -> Message:
        return await self.heard("stopped")

    async def heard(self, name: str) -> Message:
        """Returns the body of the next event with that name."""

        async def wait() -> Message:
            while event := await self.client.events.get():
                if event["event"] == name:
                    body: Message = event["body"]
                    return body
            raise AssertionError("the debuggee ended")

        return await asyncio.wait_for(wait(), PATIENCE)

    async def frame(self, stop: Message) -> Message:
        trace = await self.client.request("stackTrace", {"threadId": stop["threadId"], "levels": 1})
        frame: Message = trace["stackFrames"][0]
        return frame

    async def go_on(self, stop: Message, command: str = "continue") -> None:
        await self.client.request(command, {"threadId": stop["threadId"]})


@contextlib.contextmanager
def debuggee(
    python: str,
    folder: Path,
    program: str,
    words: Sequence[str] = (),
    environment: Mapping[str, str] = BY_HAND,
) -> Iterator[Debuggee]:
    started = Debuggee(python, folder / "program.py", program, words, environment)
    try:
        yield started
    finally:
        started.process.kill()
        started.process.wait()
        for pipe in (started.process.stdin, started.process.stdout):
            assert pipe
            pipe.close()


def hows_environment(how: str) -> dict[str, str]:
    """Returns an environment with the packages for breakpoints, in which pydevd traces in that way."""
    ways = WITHOUT_MONITORING if how == "settrace" else {}
    return {**environment_of("debugpy", "bytecode"), **UNCHECKED, **ways}


@cache
def python_of(version: str) -> str:
    """Returns the path of a Python of that version; skips the test without one."""
    name = f"python{version}"
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    candidates = [Path(sys.executable), *(Path(folder, name) for folder in os.get_exec_path())]
    candidates += sorted(pyenv.glob(f"versions/*/bin/{name}"))
    probe = "import sys; print(*sys.version_info[:2], sep='.')"
    for candidate in candidates:
        if candidate.exists():  # pyenv's shims may fail.
            answer = subprocess.run([candidate, "-c", probe], capture_output=True, text=True, check=False)
            if answer.stdout.strip() == version:
                return str(candidate)
    pytest.skip("this machine has no such Python")


def environment_of(*packages: str) -> dict[str, str]:
    """Returns an environment in which any Python imports only these packages of this Python.

    Compiled extensions are for one Python version; debugpy has pure Python fallbacks for the others. Bytecode
    is cached: otherwise each process would compile debugpy, for over half a second.
    """
    version = "python{}.{}".format(*sys.version_info)
    folder = _KEPT / "-".join((version, *packages))
    folder.mkdir(parents=True, exist_ok=True)
    for package in packages:
        spec = importlib.util.find_spec(package)
        assert spec is not None
        assert spec.submodule_search_locations is not None
        with contextlib.suppress(FileExistsError):  # from an earlier test, or one of another lane
            (folder / package).symlink_to(spec.submodule_search_locations[0])
    return {"PYTHONPATH": str(folder), "PYTHONPYCACHEPREFIX": str(_KEPT / "bytecode")}
