"""Tests the browser workspace on kind: as on `local`, with the tasks and the editor in different pods."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from bootstrap.labs.lesson import lessons
from tests.browser.labs import Walkthrough
from tests.browser.stories import AREAS, WAIT, debug_the_example, stop_three_by_the_gutter, written
from tests.browser.workbench import chromium
from tests.browser.workspace import Workspace, workspace
from tests.e2e.conftest import target
from tests.integration.conftest import Rayside


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Provides a browser for no longer than a module: while it is there, no test can run asyncio's loop."""
    with chromium() as chrome:
        yield chrome


@pytest.fixture(scope="module")
def kinds(up: Rayside) -> Workspace:
    """Provides the workspace in the head's pod, as `up` prints it."""
    done = up.run("up", timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    return workspace(up, target(up), done.stdout)


def test_a_paused_task_is_debugged_to_the_end_of_its_job(
    kinds: Workspace, browser: Browser, tmp_path: Path
) -> None:
    with kinds.open(browser, kinds.link, tmp_path / "evidence") as workbench:
        workbench.trust_when_asked()
        debug_the_example(kinds, workbench)


def test_three_tasks_of_an_unmodified_file_stop_in_one_call_stack(
    kinds: Workspace, browser: Browser, tmp_path: Path
) -> None:
    name = kinds.submit(written(tmp_path / "my code", "areas.py", AREAS), "areas.py", *WAIT)
    link = str(kinds.rayside.json("open")["url"])
    assert "/working_dir_files/_ray_pkg_" in link
    with kinds.open(browser, link, tmp_path / "evidence") as workbench:
        workbench.trust_when_asked()
        stop_three_by_the_gutter(kinds, workbench, name)


def test_lab_1_is_done_in_the_pod(kinds: Workspace, browser: Browser, tmp_path: Path) -> None:
    """There is no clone in it, but the image's own: the commands, the files and the check are the pod's."""
    kinds.stop_all()
    with kinds.open(browser, kinds.link, tmp_path / "evidence") as workbench:
        workbench.trust_when_asked()
        workbench.first_steps.get_by_text("Begin with Lab 1").click()
        lab = Walkthrough(workbench, lessons()[0])
        lab.expect_ticked()
        lab.press("run-1", "Run")
        lab.expect_ticked("run-1")
        # There are two workers of one processor each; the third task waits for one of them.
        expect(workbench.row("Paused task total")).to_have_count(2)
        kinds.stop_all()
        lab.solve()
    kinds.stop_all()
