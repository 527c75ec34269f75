"""A real Ray with its browser workspace, of the tests' own, and a real browser."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path

import pytest
from playwright.sync_api import Browser, StorageState

from tests.browser.workbench import Workbench, chromium, logged_in
from tests.browser.workspace import Workspace, workspace
from tests.integration.conftest import Rayside, apart

# Three tasks that are stopped at once, and one more for the example.
CPUS = 4

Open = Callable[[str], AbstractContextManager[Workbench]]


@contextlib.contextmanager
def brought_up(environment: Mapping[str, str] | None = None) -> Iterator[Workspace]:
    """Ray on this machine, the example paused in it, and the workspace; gone afterwards.

    `environment` is what every verb has besides its settings.
    """
    folder = Path(tempfile.mkdtemp(prefix="rb-", dir="/tmp"))
    folder.rmdir()
    one = Rayside(apart(folder, target="local", ray_cpus=CPUS), dict(environment or {}))
    try:
        done = one.run("up", timeout=900)
        assert done.returncode == 0, done.stdout + done.stderr
        yield workspace(one, one.target, done.stdout)
    finally:
        done = one.run("down")
        shutil.rmtree(folder, ignore_errors=True)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="package")
def local() -> Iterator[Workspace]:
    """The one of all tests that need nothing special."""
    with brought_up() as one:
        yield one


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Not for longer than a module: while it is there, no test can run asyncio's loop."""
    with chromium() as one:
        yield one


@pytest.fixture(scope="module")
def known(local: Workspace, browser: Browser) -> StorageState:
    """Of one log-in, for all tests of a module."""
    return logged_in(browser, local.url, local.password)


@pytest.fixture
def opened(local: Workspace, browser: Browser, known: StorageState, tmp_path: Path) -> Open:
    """Opens the workbench at an address; what fails in it leaves its evidence in the test's folder."""
    return partial(local.open, browser, evidence=tmp_path / "evidence", known=known)
