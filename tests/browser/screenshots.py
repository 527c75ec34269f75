"""Takes the pictures of docs/images/ again: `./invokew up`, then `python -m tests.browser.screenshots`.

Each is named after the target that is up, as in kind-stopped.png. A picture that is not there is not taken.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

from playwright.sync_api import Browser, expect

from bootstrap.given_settings import parse
from bootstrap.settings import ROOT, Settings
from bootstrap.targets import choice
from rayside.settings import environment_name
from rayside.system.shell import Shell
from tests.browser.stories import (
    BUSY,
    NO_WAIT,
    WAIT,
    compare_ranks,
    debug_the_example,
    see_what_all_do,
    written,
)
from tests.browser.workbench import Workbench, chromium
from tests.browser.workspace import Workspace, workspace
from tests.integration.conftest import Rayside

IMAGES = ROOT / "docs" / "images"
# In pixels: room for a task's whole name beside its state, and for the example's longest line.
WIDTH, HEIGHT, SIDE_BAR = 1480, 800, 430
# Eight ranks of one training, one of which has lost its loss.
RANKS = """\
import ray


@ray.remote(num_cpus=0.1)
def train_rank(rank):
    loss = float("nan") if rank == 1 else 0.25
    return loss


ray.init()
print(ray.get([train_rank.remote(rank) for rank in range(8)]))
"""


def main() -> None:
    names = {field.name: environment_name(field.name) for field in fields(Settings)}
    settings = parse({key: os.environ.get(name) for key, name in names.items()})
    target = choice.choose(settings, Shell())
    where = target.instance.target
    rayside = Rayside(settings)
    browsed = workspace(rayside, target, rayside.run("up", timeout=3600).stdout)
    IMAGES.mkdir(exist_ok=True)
    with chromium() as browser, tempfile.TemporaryDirectory() as folder:

        def picture(name: str) -> None:
            _take(browsed, workbench, f"{where}-{name}")

        with _opened(browsed, browser, browsed.link, Path(folder)) as workbench:
            expect(workbench.row("Paused task").first).to_be_visible()
            picture("first-screen")
            debug_the_example(browsed, workbench, picture)
        if _picture(f"{where}-compared").exists():
            job = browsed.submit(written(Path(folder) / "ranks", "ranks.py", RANKS), "ranks.py", *WAIT)
            with _opened(browsed, browser, rayside.json("open")["url"], Path(folder)) as workbench:
                compare_ranks(workbench, job, picture)
            browsed.stop(job)
        if _picture(f"{where}-stacks").exists():
            job = browsed.submit(written(Path(folder) / "busy", "busy.py", BUSY), "busy.py", *NO_WAIT)
            with _opened(browsed, browser, rayside.json("open")["url"], Path(folder)) as workbench:
                # Its room is for the stacks: a row out of sight is not there.
                workbench.first_steps.locator(".pane-header").click()
                see_what_all_do(browsed, workbench, job, picture)
            browsed.stop(job)


def _picture(name: str) -> Path:
    return IMAGES / f"{name}.png"


@contextlib.contextmanager
def _opened(browsed: Workspace, browser: Browser, address: str, folder: Path) -> Iterator[Workbench]:
    """Opens a folder in a window for pictures, trusted: else each would show that it is not."""
    with browsed.open(browser, address, folder) as workbench:
        page = workbench.page
        page.set_viewport_size({"width": WIDTH, "height": HEIGHT})
        restricted = page.locator('.statusbar [id="status.workspaceTrust"]')
        if restricted.count():
            workbench.command("Workspaces: Manage Workspace Trust")
            page.get_by_role("button", name="Trust", exact=True).click()
            expect(restricted).to_have_count(0)
            page.locator('[aria-label^="Close Modal Editor"]').click()
        edge = page.locator(".sidebar").bounding_box()
        assert edge
        page.mouse.move(edge["x"] + edge["width"], HEIGHT / 2)
        page.mouse.down()
        page.mouse.move(edge["x"] + SIDE_BAR, HEIGHT / 2, steps=5)
        page.mouse.up()
        yield workbench


def _take(browsed: Workspace, workbench: Workbench, name: str) -> None:
    # Without the jobs of earlier runs.
    for job in browsed.dashboard.jobs():
        if job.ended:
            browsed.dashboard.forget(job.submission_id)
    for state in ("stopped", "failed", "succeeded"):
        expect(workbench.row(f", {state}")).to_have_count(0)
    # Without what the pointer is over.
    workbench.page.mouse.move(0, 0)
    expect(workbench.page.locator(".workbench-hover-container").filter(visible=True)).to_have_count(0)
    if (picture := _picture(name)).exists():
        workbench.page.screenshot(path=picture, animations="disabled", caret="hide")


if __name__ == "__main__":
    main()
