"""Tests the teacher's page of a workshop in a browser: a hundred places on one screen, and on a phone."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser.workbench import tab
from tests.integration.bootstrap.test_front_door import (
    LESSON,
    TEACHER_KEY,
    Api,
    opened,
    program,
    told,
    upgraded,
)

# A fixture of another module.
__all__ = ["program"]

PLACES = 100
LONG = "Ada " + "of the long name " * 6
SCREEN, PHONE = (1280, 800), (390, 844)


@pytest.fixture
def page(browser: Browser, program: Path, tmp_path: Path) -> Iterator[Page]:
    """Provides the page, where the last place to be claimed asks for help, and another one is stuck."""
    names = {f"place-{number:03}": "" for number in range(1, PLACES + 1)}
    with ExitStack() as stack:
        door = stack.enter_context(opened(program, tmp_path, Api(), names))
        attendees = [door.browser() for _ in range(PLACES)]
        with ThreadPoolExecutor(20) as pool:
            given = [*pool.map(lambda each: each[1].enter(f"{LONG}{each[0]}").json(), enumerate(attendees))]
        stuck, asking = given[0]["place"], given[-1]["place"]
        door.workspaces[stuck].progress = json.dumps(told(lab={**LESSON, "checks_failed": 3}))
        help_text = "why is it four? " * 10
        door.workspaces[asking].progress = json.dumps(told(help={"text": help_text, "may_look": True}))
        for attendee in (attendees[0], attendees[-1]):
            upgraded(stack.enter_context(door.connected()), attendee)
        link = f"https://127.0.0.1:{door.teacher().port}/#{TEACHER_KEY}"
        page = stack.enter_context(tab(browser, link, tmp_path / "evidence"))
        expect(page.locator("li.help")).to_have_count(1)
        expect(page.locator("li.stuck")).to_have_count(1)
        yield page


def test_a_hundred_places_are_on_one_screen_on_a_phone_and_in_a_table(page: Page) -> None:
    # From then on the page has nothing new to show.
    expect(page.get_by_role("status")).to_have_text("1 ask for help · 1 are stuck · 98 are away")
    expect(page.locator("li")).to_have_count(PLACES)
    for width, height in (SCREEN, PHONE):
        page.set_viewport_size({"width": width, "height": height})
        # Nothing is beside the screen, however long a name is.
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        # Who needs help is first, and the way to them is not to be scrolled to.
        boxes = {
            state: page.locator(f"li.{state}").first.bounding_box() for state in ("help", "stuck", "away")
        }
        order = [(box["y"], box["x"]) for box in boxes.values() if box]
        assert (len(order), order) == (3, sorted(order))
        expect(page.get_by_role("link", name="Look into the place")).to_be_in_viewport(ratio=1)
        expect(page.get_by_role("button", name="Save as CSV")).to_be_in_viewport(ratio=1)
    # On a phone one scrolls down.
    page.set_viewport_size({"width": SCREEN[0], "height": SCREEN[1]})
    expect(page.locator("li").last).to_be_in_viewport(ratio=1)
    assert page.evaluate("document.documentElement.scrollHeight") <= SCREEN[1]
    with page.expect_download() as download:
        page.get_by_role("button", name="Save as CSV").click()
    rows = [*csv.DictReader(io.StringIO(Path(download.value.path()).read_text()))]
    assert len(rows) == PLACES
    assert sorted(row["state"] for row in rows if row["state"] != "away") == ["help", "stuck"]


def test_a_tile_stays_under_the_pointer_and_the_keyboard(
    browser: Browser, program: Path, tmp_path: Path
) -> None:
    """While a hundred attendees work, the page is new each second."""
    names = ["place-01", "place-02", "place-03"]
    with ExitStack() as stack:
        door = stack.enter_context(opened(program, tmp_path, Api(), dict.fromkeys(names, "")))
        for name in names:
            door.browser().enter(f"Ada {name}")
        workspaces = door.workspaces
        workspaces["place-02"].progress = json.dumps(told(help={"text": "help me", "may_look": True}))
        link = f"https://127.0.0.1:{door.teacher().port}/#{TEACHER_KEY}"
        page = stack.enter_context(tab(browser, link, tmp_path / "evidence"))
        page.context.grant_permissions(["clipboard-read", "clipboard-write"])
        look, copy = page.get_by_role("link"), page.get_by_role("button", name="Copy the link")
        expect(look).to_have_attribute("href", "https://door/_door/place/password-of-place-02")
        look.focus()
        copy.hover()
        page.mouse.down()
        # It is shown behind the first who asked, whose tile does not move.
        workspaces["place-03"].progress = json.dumps(told(help={"text": "me too", "may_look": False}))
        workspaces["place-02"].progress = json.dumps(told(help={"text": "please", "may_look": True}))
        expect(page.get_by_text("me too")).to_be_visible()
        expect(page.get_by_text("please")).to_be_visible()
        page.mouse.up()
        expect(page.get_by_role("button", name="Copied")).to_be_visible(timeout=10_000)
        assert page.evaluate("navigator.clipboard.readText()") == look.get_attribute("href")
        # A link is for who may be looked at, for as long as they may.
        expect(look).to_have_count(1)
        look.focus()
        workspaces["place-02"].progress = json.dumps(told(help={"text": "quickly", "may_look": True}))
        expect(page.get_by_text("quickly")).to_be_visible()
        expect(look).to_be_focused(timeout=1_000)
        workspaces["place-02"].progress = json.dumps(told())
        expect(look).to_have_count(0)
        # The places are in the order of the list, whichever come and go.
        first, second, third = door.listed.places
        for places in ((third, first), (second, third, first), (first, second, third)):
            door.tell(*places)
            expect(page.locator("li .who")).to_have_text([f"Ada {each.name}" for each in places])
