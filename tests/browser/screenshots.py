"""Takes the pictures of docs/images/ again: `./invokew up`, then `python -m tests.browser.screenshots`.

Each is named after the target that is up, as in kind-stopped.png.
"""

from __future__ import annotations

import os
import tempfile
from dataclasses import fields
from pathlib import Path

from playwright.sync_api import expect

from bootstrap.given_settings import parse
from bootstrap.settings import ROOT, Settings, environment_name
from bootstrap.shell import Shell
from bootstrap.targets import choice
from tests.browser.stories import (
    AREAS,
    BUSY,
    NO_WAIT,
    WAIT,
    debug_the_example,
    see_what_all_do,
    stop_three_by_the_gutter,
    written,
)
from tests.browser.workbench import Workbench, chromium
from tests.browser.workspace import workspace
from tests.integration.conftest import Rayside

IMAGES = ROOT / "docs" / "images"


def main() -> None:
    names = {field.name: environment_name(field.name) for field in fields(Settings)}
    settings = parse({key: os.environ.get(name) for key, name in names.items()})
    target = choice.choose(settings, Shell())
    where = target.instance.target
    rayside = Rayside(settings)
    browsed = workspace(rayside, target, rayside.run("up", timeout=3600).stdout)
    IMAGES.mkdir(exist_ok=True)
    with chromium() as browser, tempfile.TemporaryDirectory() as folder:
        with browsed.open(browser, browsed.link, Path(folder)) as workbench:
            expect(workbench.row("Paused task").first).to_be_visible()
            _take(workbench, f"{where}-first-screen")
            debug_the_example(browsed, workbench, lambda name: _take(workbench, f"{where}-{name}"))
        code = written(Path(folder) / "areas", "areas.py", AREAS)
        job = browsed.submit(code, "areas.py", *WAIT)
        with browsed.open(browser, rayside.json("open")["url"], Path(folder)) as workbench:
            stop_three_by_the_gutter(
                browsed, workbench, job, lambda name: _take(workbench, f"{where}-{name}")
            )
        code = written(Path(folder) / "busy", "busy.py", BUSY)
        job = browsed.submit(code, "busy.py", *NO_WAIT)
        with browsed.open(browser, rayside.json("open")["url"], Path(folder)) as workbench:
            see_what_all_do(browsed, workbench, job, lambda name: _take(workbench, f"{where}-{name}"))
        browsed.stop(job)


def _take(workbench: Workbench, name: str) -> None:
    # Without what the pointer is over.
    workbench.page.mouse.move(0, 0)
    expect(workbench.page.locator(".workbench-hover-container").filter(visible=True)).to_have_count(0)
    workbench.page.screenshot(path=IMAGES / f"{name}.png", animations="disabled", caret="hide")


if __name__ == "__main__":
    main()
