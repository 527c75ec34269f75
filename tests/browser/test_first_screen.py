"""Tests what the page shows to whom: the password, the first screen, the terminal."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from rayside.waiting import until
from tests.browser.conftest import Open
from tests.browser.stories import EXAMPLE, paused_example
from tests.browser.workbench import Workbench, log_in, started, tab
from tests.browser.workspace import Workspace
from tests.conftest import FIGURE
from tests.patience import PATIENCE


@pytest.mark.gate
def test_a_wrong_password_shows_nothing_and_the_right_one_all(
    local: Workspace, browser: Browser, tmp_path: Path
) -> None:
    with tab(browser, local.link, tmp_path / "evidence") as page:
        log_in(page, "wrong")
        expect(page.get_by_text("Incorrect password")).to_be_visible()
        page.goto(local.url)
        expect(page.locator("input[name=password]")).to_be_visible()
        expect(page.locator(".monaco-workbench")).to_have_count(0)
        log_in(page, local.password)
        workbench = Workbench(page)
        started(workbench)
        expect(workbench.icon("Ray")).to_have_attribute("aria-expanded", "true")


def test_from_the_link_to_a_usable_editor(
    local: Workspace, browser: Browser, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    paused_example(local)
    began = time.monotonic()
    with local.open(browser, local.link, tmp_path / "evidence") as workbench:
        expect(workbench.row("Paused task estimate").first).to_be_visible()
        listed = time.monotonic() - began
        workbench.open_file(EXAMPLE.name)
        expect(workbench.text).to_contain_text("Estimates pi")
        seconds = time.monotonic() - began
    record_property(FIGURE, f"link to the paused task {listed:.1f} s, to a usable editor {seconds:.1f} s")


def test_the_first_screen_shows_the_paused_task_and_says_what_to_click(
    local: Workspace, opened: Open
) -> None:
    _, task = paused_example(local)
    with opened(local.link) as workbench:
        expect(workbench.row(f"process {task.pid}")).to_be_visible()
        expect(workbench.first_steps).to_contain_text("Click a paused task")
        expect(workbench.first_steps).to_contain_text("F10")
        expect(workbench.first_steps.get_by_role("button", name="Begin with Lab 1")).to_be_visible()
        expect(workbench.frames).to_have_count(0)
        expect(workbench.notifications).to_have_count(0)


def test_whoever_went_elsewhere_is_not_brought_back_and_hidden_steps_stay_hidden(
    local: Workspace, opened: Open
) -> None:
    with opened(local.link) as workbench:
        workbench.first_steps.get_by_text("Hide these steps").click()
        expect(workbench.first_steps).to_have_count(0)
        workbench.open_view("Search")
        workbench.wait_until_remembered("rayside.ray-breakpoints", '"firstStepsHidden":true')
        workbench.wait_until_remembered("workbench.sidebar.activeviewletid", "workbench.view.search")
        workbench.page.reload()
        started(workbench)
        expect(workbench.icon("Search")).to_have_attribute("aria-expanded", "true")
        workbench.open_view("Ray")
        expect(workbench.view).to_be_visible()
        expect(workbench.first_steps).to_have_count(0)
        workbench.command("Ray: Show First Steps")
        expect(workbench.first_steps).to_contain_text("Click a paused task")


def test_the_terminal_has_the_clusters_python_and_ray(local: Workspace, opened: Open, tmp_path: Path) -> None:
    unfinished, whole = tmp_path / "said", tmp_path / "whole"
    with opened(local.link) as workbench:
        commands = "command -v python; command -v ray; ray job list"
        workbench.type_in_terminal(f"({commands}) > {unfinished} 2>&1; mv {unfinished} {whole}")
        assert until(whole.exists, bool, PATIENCE)
    programs = local.rayside.target.environment.programs
    assert whole.read_text().splitlines()[:2] == [f"{programs}/python", f"{programs}/ray"]
    assert "rayside-example-1" in whole.read_text()
