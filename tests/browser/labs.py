"""Follows a lab in the workspace: its walkthrough in the first column, its code in the second."""

from __future__ import annotations

from dataclasses import dataclass

from playwright.sync_api import Locator, expect

from bootstrap.labs.lesson import Lesson
from tests.browser.workbench import Workbench


@dataclass(frozen=True)
class Walkthrough:
    """A lab's open walkthrough; steps have the ids of the manifest, such as `run-1` and `check`."""

    workbench: Workbench
    lesson: Lesson

    @property
    def page(self) -> Locator:
        return self.workbench.page.locator(".gettingStartedSlideDetails")

    @property
    def ids(self) -> list[str]:
        """Returns the ids of the lab's steps, in their order, without that of the check."""
        return [f"{'run' if step.command else 'do'}-{at}" for at, step in enumerate(self.lesson.steps, 1)]

    def id_of_link(self, file: str) -> str:
        """Returns the id of the first step whose text names that file."""
        steps = zip(self.ids, self.lesson.steps, strict=True)
        return next(id for id, step in steps if file in step.text)

    def step(self, id: str) -> Locator:
        """Returns a step, which is a button that unfolds it."""
        name = f"rayside.ray-breakpoints#{self.lesson.name}#{id}"
        return self.page.locator(f'.getting-started-step[data-step-id="{name}"]')

    def unfold(self, id: str) -> Locator:
        """Clicks the step's title, and returns the step."""
        step = self.step(id)
        if step.get_attribute("aria-expanded") != "true":
            step.locator(".step-title").click()
        expect(step).to_have_attribute("aria-expanded", "true")
        return step

    def open_file(self, id: str, link: str) -> None:
        """Clicks a link to a file in a step's text, and leaves the file in front."""
        self.unfold(id).locator("a", has_text=link).click()
        tab = self.workbench.tab(link.rpartition("/")[2])
        expect(tab).to_be_visible()
        tab.click()
        expect(tab).to_have_attribute("aria-selected", "true")

    def press(self, id: str, button: str) -> None:
        """Presses a button of a step: `Run`, `Check` or `Reset`."""
        self.unfold(id).locator(".monaco-button", has_text=button).click()

    def solve(self) -> None:
        """Solves lab 1 in the editor, and presses Check; it is ticked then."""
        mended = (self.lesson.folder / "solution" / "prices" / "__init__.py").read_text().splitlines()
        self.open_file(self.id_of_link("answers.yaml"), f"labs/{self.lesson.name}/answers.yaml")
        self.workbench.replace_line(2, "shop: west")
        self.workbench.replace_line(3, "cents: 421")
        self.open_file(self.id_of_link("`prices/__init__.py`"), "prices/__init__.py")
        # The mistake is in the last line.
        self.workbench.replace_line(len(mended), mended[-1])
        # What the editor has not saved, the check saves.
        self.press("check", "Check")
        expect(self.workbench.notifications.filter(has_text="Passed: Lab 1")).to_be_visible()
        self.expect_ticked(*self.ids, "check")

    def expect_ticked(self, *ids: str) -> None:
        """Waits until just these steps are ticked."""
        for id in (*self.ids, "check"):
            tick = self.step(id).locator('[role="checkbox"]')
            expect(tick).to_have_attribute("aria-checked", "true" if id in ids else "false")
