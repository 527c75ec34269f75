"""Takes the pictures of docs/images/ again: `./invokew up`, then `python -m tests.browser.screenshots`.

Each is named after the target that is up, as in kind-stopped.png. A picture that is not there is not taken.
"""

from __future__ import annotations

import os
import tempfile
from dataclasses import fields
from pathlib import Path

from playwright.sync_api import expect

from bootstrap.given_settings import parse
from bootstrap.settings import ROOT, Settings
from bootstrap.targets import choice
from rayside.settings import environment_name
from rayside.system.shell import Shell
from tests.browser.stories import (
    AREAS,
    BUSY,
    NO_WAIT,
    WAIT,
    compare_ranks,
    debug_the_example,
    see_what_all_do,
    stop_three_by_the_gutter,
    written,
)
from tests.browser.workbench import Workbench, chromium
from tests.browser.workspace import workspace
from tests.integration.conftest import Rayside

IMAGES = ROOT / "docs" / "images"
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
        code = written(Path(folder) / "ranks", "ranks.py", RANKS)
        job = browsed.submit(code, "ranks.py", *WAIT)
        with browsed.open(browser, rayside.json("open")["url"], Path(folder)) as workbench:
            compare_ranks(workbench, job, lambda name: _take(workbench, f"{where}-{name}"))
        browsed.stop(job)
        code = written(Path(folder) / "busy", "busy.py", BUSY)
        job = browsed.submit(code, "busy.py", *NO_WAIT)
        with browsed.open(browser, rayside.json("open")["url"], Path(folder)) as workbench:
            see_what_all_do(browsed, workbench, job, lambda name: _take(workbench, f"{where}-{name}"))
        browsed.stop(job)


def _take(workbench: Workbench, name: str) -> None:
    # Without what the pointer is over.
    workbench.page.mouse.move(0, 0)
    expect(workbench.page.locator(".workbench-hover-container").filter(visible=True)).to_have_count(0)
    if (picture := IMAGES / f"{name}.png").exists():
        workbench.page.screenshot(path=picture, animations="disabled", caret="hide")


if __name__ == "__main__":
    main()
