"""Provides a real Ray with its browser workspace, which only the tests use, and a real browser."""

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
    """Brings up Ray on this machine, the example paused in it, and the workspace; removes them afterwards.

    `environment` is what every verb has besides its settings.
    """
    folder = Path(tempfile.mkdtemp(prefix="rb-", dir="/tmp"))
    folder.rmdir()
    rayside = Rayside(apart(folder, target="local", ray_cpus=CPUS), dict(environment or {}))
    try:
        done = rayside.run("up", timeout=900)
        assert done.returncode == 0, done.stdout + done.stderr
        yield workspace(rayside, rayside.target, done.stdout)
    finally:
        done = rayside.run("down")
        shutil.rmtree(folder, ignore_errors=True)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="package")
def local() -> Iterator[Workspace]:
    """Provides the workspace of all tests that need nothing special."""
    with brought_up() as workspace:
        yield workspace


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Provides a browser for no longer than a module: while it is there, no test can run asyncio's loop."""
    with chromium() as chrome:
        yield chrome


@pytest.fixture(scope="module")
def known(local: Workspace, browser: Browser) -> StorageState:
    """Returns the state of one log-in, for all tests of a module."""
    return logged_in(browser, local.url, local.password)


@pytest.fixture
def opened(local: Workspace, browser: Browser, known: StorageState, tmp_path: Path) -> Open:
    """Opens the workbench at an address; if something in it fails, the test's folder gets the evidence."""
    return partial(local.open, browser, evidence=tmp_path / "evidence", known=known)
