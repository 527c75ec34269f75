"""Tests Ray's view for those who use a keyboard, a screen reader, or another theme."""

from __future__ import annotations

import importlib.resources
import json
from typing import Any

import pytest
from playwright.sync_api import expect

from rayside.waiting import until
from tests.browser.conftest import Open
from tests.browser.stories import BREAKPOINT, EXAMPLE, paused_example
from tests.browser.workbench import Workbench
from tests.browser.workspace import Workspace
from tests.patience import PATIENCE

# What is ours of the page: the view, its icon in the activity bar, and our item of the status bar.
OURS = [
    ".sidebar .pane:has(.view-rayside-tasks)",
    '.sidebar .pane:has(.pane-header[aria-label^="First Steps"])',
    '.activitybar .action-item:has(a[aria-label^="Ray"])',
    '[id^="rayside.ray-breakpoints"]',
]


def violations(workbench: Workbench) -> list[dict[str, Any]]:
    """Returns what axe finds in our parts that keeps somebody from using them."""
    # As text, as the page's policy lets no script of others in.
    axe = (importlib.resources.files("axe_playwright_python") / "axe.min.js").read_text()
    workbench.page.evaluate(axe)
    report = workbench.page.evaluate("ours => axe.run({include: ours})", OURS)
    assert report["passes"]
    return [
        {
            "rule": violation["id"],
            "impact": violation["impact"],
            "nodes": nodes,
        }
        for violation in report["violations"]
        if violation["impact"] in ("serious", "critical") and (nodes := _ours(violation))
    ]


def _ours(violation: dict[str, Any]) -> list[str]:
    """Returns what breaks a rule, but for VS Code's own header of a view.

    That is a button with the view's buttons in it, which are shown while the pointer or the focus is there.
    """
    nodes = [node["html"] for node in violation["nodes"]]
    is_nested = violation["id"] == "nested-interactive"
    return [node for node in nodes if not (is_nested and node.startswith('<div class="pane-header'))]


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_axe_finds_nothing_serious_in_the_view(local: Workspace, opened: Open, theme: str) -> None:
    paused_example(local)
    with opened(local.address(EXAMPLE.parent)) as workbench:
        if theme == "dark":
            workbench.command("Preferences: Toggle between Light/Dark Themes")
            expect(workbench.page.locator(".monaco-workbench.vs-dark")).to_be_visible()
        workbench.open_view("Ray")
        expect(workbench.row("Paused task estimate").first).to_be_visible()
        serious = violations(workbench)
        assert serious == [], json.dumps(serious, indent=2)


def test_a_task_is_reached_and_debugged_by_the_keyboard_alone(local: Workspace, opened: Open) -> None:
    name, task = paused_example(local)
    with opened(local.address(EXAMPLE.parent)) as workbench:
        press = workbench.page.keyboard.press
        workbench.command("Ray: Focus on Paused Tasks View")
        row = workbench.row(f"process {task.pid}")
        expect(row).to_be_visible()
        rows = workbench.view.locator(".monaco-list")
        # VS Code may take the focus back, to where it was before its command palette.
        if not until(lambda: rows.evaluate("rows => rows === document.activeElement"), bool, PATIENCE):
            workbench.command("Ray: Focus on Paused Tasks View")
        expect(rows).to_be_focused()
        while (active_row := rows.get_attribute("aria-activedescendant") or "") != row.get_attribute("id"):
            press("ArrowDown")
            # It moves a moment later; below the last row it does not.
            expect(rows).not_to_have_attribute("aria-activedescendant", active_row)
        press("Enter")
        line = workbench.expect_stopped(EXAMPLE.name, BREAKPOINT, BREAKPOINT + 1)
        press("F10")
        workbench.expect_stopped(EXAMPLE.name, line + 1)
        press("F5")
        assert local.ended(name).status == "SUCCEEDED"
