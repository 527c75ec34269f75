"""Tests breakpoints in a user's own code that is installed where tasks run: a wheel, or part of an image.

Runs on each Python from 3.10 to 3.14 that is on PATH or in pyenv's folder, with this one's debugpy.
"""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from rayside.dap.framing import Message
from tests.integration.pythons import each_python_once, hows_environment, python_of
from tests.integration.relay_debuggees import Process, Session, relay_over

pytestmark = pytest.mark.usefixtures("answers_in_full")

MODULE = """\
def work(x):
    y = x * 2
    return y
"""
SCRIPT = """\
import os, sys, time
sys.path.append("SITE")
print("there", flush=True)
while not os.path.exists("go"):
    time.sleep(0.01)
from shop.orders import work
print(work(4), flush=True)
"""


@dataclass
class Scene:
    editor: Session
    process: Process
    here: Path
    site: Path

    async def set(self, file: Path, *, line: int = 2, sha256: str = "") -> Message:
        sums = {"checksums": [{"algorithm": "SHA256", "checksum": sha256}]} if sha256 else {}
        answer = await self.editor.request(
            "setBreakpoints", source={"path": str(file), **sums}, breakpoints=[{"line": line}]
        )
        breakpoint_: Message = answer["breakpoints"][0]
        return breakpoint_

    async def goes_on(self) -> Message:
        (self.process.script.parent / "go").touch()
        return await self.editor.event("stopped", reason="breakpoint")


@asynccontextmanager
async def played(
    folder: Path, monkeypatch: pytest.MonkeyPatch, version: str = "", how: str = "", **options: Any
) -> AsyncIterator[Scene]:
    """Has an editor with `shop` in a folder `laptop`, and a task that has it in `site-packages`."""
    here, site = folder / "laptop" / "src", folder / "lib" / "site-packages"
    for root in (here, site):
        (root / "shop").mkdir(parents=True)
        (root / "shop" / "__init__.py").touch()
        (root / "shop" / "orders.py").write_text(MODULE)
    monkeypatch.setenv("LIBRARY_ROOTS", str(site))  # pydevd's, for a Python that is elsewhere

    async with relay_over(folder) as setting:
        python: dict[str, Any] = {}
        if version:
            environment = {**hows_environment(how), "LIBRARY_ROOTS": str(site)}
            python = {"python": python_of(version), "environment": environment}
        (process,) = await setting.cluster.start(SCRIPT.replace("SITE", str(site)), **python)
        editor = await setting.attach(justMyCode=True, **options)
        await editor.event("thread", reason="started")
        await editor.event("thread", reason="started")
        await process.until_printed()
        yield Scene(editor, process, here, site)


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


@each_python_once
async def test_a_breakpoint_in_an_installed_file_stops_though_it_is_not_just_my_code(
    version: str, how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with played(tmp_path, monkeypatch, version, how) as scene:
        assert (await scene.set(scene.site / "shop" / "orders.py"))["verified"]
        stop = await scene.goes_on()
        (frame, *_) = await scene.editor.frames(stop)
        assert (frame["name"], frame["line"]) == ("work", 2)
        await scene.editor.request("next", threadId=stop["threadId"])
        stop = await scene.editor.event("stopped", reason="step")
        assert (await scene.editor.frames(stop))[0]["line"] == 3


@pytest.mark.parametrize("shared", [False, True])
async def test_the_editors_file_is_the_installed_one_with_the_same_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shared: bool
) -> None:
    async with played(tmp_path, monkeypatch, sharedFiles=shared) as scene:
        file = scene.here / "shop" / "orders.py"
        told = await scene.set(file, sha256=digest(MODULE))
        assert told["verified"]
        assert told["message"].startswith(f"Set in {scene.site}/shop/orders.py, ")
        stop = await scene.goes_on()
        (frame, *_) = await scene.editor.frames(stop)
        assert (frame["name"], frame["line"], frame["source"]["path"]) == ("work", 2, str(file))


async def test_without_its_text_the_place_in_the_package_decides_and_that_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with played(tmp_path, monkeypatch, sharedFiles=False) as scene:
        file = scene.here / "shop" / "orders.py"
        file.unlink()  # The debuggee is on another machine.
        told = await scene.set(file)
        assert told["verified"]
        assert told["message"].endswith("its text is unknown.")
        await scene.goes_on()


async def test_another_text_is_another_file_and_the_breakpoint_says_where_that_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with played(tmp_path, monkeypatch, sharedFiles=False) as scene:
        file = scene.here / "shop" / "orders.py"
        file.unlink()
        told = await scene.set(file, sha256=digest("newer"))
        assert not told["verified"]
        assert f"{scene.site}/shop/orders.py" in told["message"]
        assert "pathMappings" in told["message"]
