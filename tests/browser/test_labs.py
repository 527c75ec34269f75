"""Tests that a lab is followed in the workspace, from the first screen to its ticks."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest
from playwright.sync_api import expect

from bootstrap.labs.copies import Copy, Progress
from bootstrap.labs.lesson import lessons
from rayside.waiting import until
from tests.browser.conftest import Open
from tests.browser.labs import Walkthrough
from tests.browser.workbench import Workbench
from tests.browser.workspace import Workspace
from tests.learner import new_learner
from tests.patience import PATIENCE

LAB = lessons()[0]
SOLUTION = LAB.folder / "solution"


@pytest.fixture(autouse=True)
def learner() -> Iterator[None]:
    """Provides a learner who has not begun."""
    with new_learner():
        yield


@pytest.mark.timeout(1200)
def test_lab_1_is_followed_from_the_first_screen_to_its_ticks(local: Workspace, opened: Open) -> None:
    local.stop_all()
    with opened(local.link) as workbench:
        workbench.first_steps.get_by_text("Begin with Lab 1").click()
        lab = Walkthrough(workbench, LAB)
        lab.expect_ticked()
        # The code is beside, and nothing of it is a page in a frame.
        expect(workbench.tab("main.py")).to_be_visible()
        expect(workbench.frames).to_have_count(0)
        # Each command is shown as it is, and nothing in it as a format.
        for number, step in enumerate(LAB.steps, 1):
            expect(lab.step(f"run-{number}")).to_contain_text(step.command)

        lab.press("run-1", "Run")
        lab.expect_ticked("run-1")
        expect(workbench.row("Paused task total")).to_have_count(3)
        lab.press("run-1", "Check")
        expect(workbench.notifications.filter(has_text="answers.yaml has nothing for shop")).to_be_visible()
        lab.press("run-2", "Run")
        lab.expect_ticked("run-1", "run-2")

        # The learner looks into the stopped tasks, and finds the sum that is wrong.
        workbench.open_view("Ray")
        workbench.row("Paused task total").first.click()
        workbench.expect_stopped("main.py", 18, 19)
        workbench.make_room_for_the_call_stack()
        expect(workbench.thread("total", "Paused")).to_have_count(3)
        go_to_shop(workbench, "west")
        expect(workbench.variable("cents")).to_have_attribute("aria-label", "cents, value 421")
        workbench.press("Disconnect")

        lab.solve()
        solved, learned = (folder / "prices" / "__init__.py" for folder in (SOLUTION, Copy(LAB).folder))
        assert learned.read_text().splitlines()[-1] == solved.read_text().splitlines()[-1]
        assert Copy(LAB).progress() == Progress(len(LAB.steps), passed=True)

        lab.press("check", "Reset")
        expect(workbench.notifications.filter(has_text="your files are as at the beginning")).to_be_visible()
        lab.expect_ticked()
        # The same step is ticked a second time.
        lab.press("run-2", "Run")
        lab.expect_ticked("run-1", "run-2")


def go_to_shop(workbench: Workbench, shop: str) -> None:
    """Chooses one stopped task after the other until the variables are those of that shop."""
    numbers = itertools.cycle(range(3))

    def is_there() -> bool:
        workbench.choose(workbench.thread("total", "Paused").nth(next(numbers)))
        try:
            expected = f"shop, value '{shop}'"
            expect(workbench.variable("shop")).to_have_attribute("aria-label", expected, timeout=10_000)
        except AssertionError:
            return False
        return True

    assert until(is_there, bool, PATIENCE)
