"""Tests the whole way from a paused task in the view, or a click in the gutter, to the end of a job."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import Open
from tests.browser.stories import (
    AREAS,
    BUSY,
    CALLS,
    EXAMPLE,
    FAILING,
    NO_WAIT,
    POST_MORTEM,
    PRODUCT,
    SQUARES,
    WAIT,
    debug_the_example,
    follow_a_call_and_a_fork,
    move_a_group,
    run_failed_tasks_again,
    see_what_all_do,
    stop_three_by_the_gutter,
    written,
)
from tests.browser.workspace import Workspace


@pytest.mark.gate
def test_a_paused_task_is_debugged_to_the_end_of_its_job(local: Workspace, opened: Open) -> None:
    with opened(local.address(EXAMPLE.parent)) as workbench:
        debug_the_example(local, workbench)


@pytest.mark.gate
def test_three_tasks_of_an_unmodified_file_stop_in_one_call_stack(
    local: Workspace, opened: Open, tmp_path: Path
) -> None:
    folder = written(tmp_path / "my code", "areas.py", AREAS)
    name = local.submit(folder, "areas.py", *WAIT)
    with opened(local.address(folder)) as workbench:
        stop_three_by_the_gutter(local, workbench, name)
    assert (folder / "areas.py").read_text() == AREAS


def test_a_step_goes_into_a_task_and_a_fork_stops(local: Workspace, opened: Open, tmp_path: Path) -> None:
    folder = written(tmp_path / "my code", "calls.py", CALLS)
    name = local.submit(folder, "calls.py", *WAIT)
    with opened(local.address(folder)) as workbench:
        follow_a_call_and_a_fork(local, workbench, name)


def test_tasks_are_stepped_as_one_and_one_of_them_is_heard(
    local: Workspace, opened: Open, tmp_path: Path
) -> None:
    folder = written(tmp_path / "my code", "squares.py", SQUARES)
    name = local.submit(folder, "squares.py", *WAIT)
    with opened(local.address(folder)) as workbench:
        move_a_group(local, workbench, name)


def test_failed_tasks_run_again_with_the_file_as_it_was_saved(
    local: Workspace, opened: Open, tmp_path: Path
) -> None:
    folder = written(tmp_path / "my code", "costs.py", FAILING)
    local.stop_all()
    name = local.submit(folder, "costs.py", *POST_MORTEM)
    with opened(local.address(folder)) as workbench:
        run_failed_tasks_again(local, workbench, name)
    assert "return area / area\n" in (folder / "costs.py").read_text()


def test_what_all_processes_of_a_job_do_is_shown_as_a_tree(
    local: Workspace, opened: Open, tmp_path: Path
) -> None:
    folder = written(tmp_path / "my code", "busy.py", BUSY)
    local.stop_all()
    name = local.submit(folder, "busy.py", *NO_WAIT)
    try:
        with opened(local.address(folder)) as workbench:
            see_what_all_do(local, workbench, name)
    finally:
        local.stop(name)


def test_a_script_is_run_from_its_editor_and_stops(local: Workspace, opened: Open, tmp_path: Path) -> None:
    folder = written(tmp_path / "my code", "areas.py", AREAS)
    before = {job.submission_id for job in local.dashboard.jobs()}
    with opened(local.address(folder)) as workbench:
        workbench.open_file("areas.py")
        workbench.click_gutter(PRODUCT)
        workbench.command("Ray: Run This Ray Script and Debug It")
        workbench.expect_stopped("areas.py", PRODUCT)
        (job,) = [job for job in local.dashboard.jobs() if job.submission_id not in before]
        workbench.click_gutter(PRODUCT)
        workbench.press("Disconnect")
        expect(workbench.debugging).to_be_hidden()
    # A session that ends lets all go on.
    assert local.ended(job.submission_id).status == "SUCCEEDED"
