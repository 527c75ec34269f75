"""Does what a user does in the workspace, the same wherever Ray runs."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from playwright.sync_api import expect

from bootstrap.dap.paused import PausedTask
from bootstrap.settings import ROOT
from bootstrap.step import until
from bootstrap.verbs.paused import paused
from tests.browser.workbench import PATIENCE, Workbench
from tests.browser.workspace import Workspace

EXAMPLE = ROOT / "example" / "working_dir" / "sample_code.py"
_LINES = EXAMPLE.read_text().splitlines()
BREAKPOINT = next(number for number, text in enumerate(_LINES, 1) if "breakpoint()" in text)
TASK = "estimate"
RETURN = next(number for number, text in enumerate(_LINES, 1) if "return 4 * share" in text)

# Three tasks of different names that come to the same line, small enough to run at once on any cluster of
# ours, and no word in it about a debugger.
AREAS = """\
import ray


def area(width, height):
    product = width * height
    return product


@ray.remote(num_cpus=0.1)
def kitchen():
    return area(3, 4)


@ray.remote(num_cpus=0.1)
def cellar():
    return area(5, 6)


@ray.remote(num_cpus=0.1)
def attic():
    return area(7, 8)


ray.init()
print("areas", ray.get([kitchen.remote(), cellar.remote(), attic.remote()]))
"""
PRODUCT = AREAS.splitlines().index("    return product") + 1
ROOMS = {"kitchen": 12, "cellar": 30, "attic": 56}
# Long enough for a browser to be opened by somebody else's busy machine.
WAIT = ("--debug", "--attach-timeout", "300")


def paused_example(workspace: Workspace, folder: Path = EXAMPLE.parent) -> tuple[str, PausedTask]:
    """Runs only the example, or a copy of it, and returns its submission id and its paused task."""
    workspace.stop_all()
    name = workspace.submit(folder, EXAMPLE.name, "--py-modules", str(EXAMPLE.parent.parent / "dependency"))

    def paused_tasks() -> list[PausedTask]:
        job = workspace.dashboard.job(name)
        # In its first second a task may still bear the name of the one that its worker ran before.
        return [
            task for task in paused(workspace.target).tasks if task.task == TASK and task.job_id == job.job_id
        ]

    (task,) = until(paused_tasks, bool, PATIENCE)
    return name, task


def stop_in(workbench: Workbench, task: PausedTask, *, take_over: bool = False) -> int:
    """Clicks the paused task in the view, and returns the line of the example that the editor then shows.

    `take_over`: from another window, which the user is asked about.
    """
    workbench.open_view("Ray")
    row = workbench.row(f"process {task.pid}")
    expect(row).to_have_attribute("aria-label", re.compile(f"Paused task {task.task}.* node {task.node_ip}"))
    row.click()
    if take_over:
        workbench.page.get_by_role("dialog").get_by_role("button", name="Take Over").click()
    # Some Pythons stop in the call of breakpoint(), some after it.
    return workbench.expect_stopped(EXAMPLE.name, BREAKPOINT, BREAKPOINT + 1)


def debug_the_example(
    workspace: Workspace, workbench: Workbench, picture: Callable[[str], None] = lambda name: None
) -> None:
    """Debugs a paused task of the view to the end of its job; calls `picture` at the moments worth one."""
    name, task = paused_example(workspace)
    workbench.open_view("Ray")
    expect(workbench.row(f"process {task.pid}")).to_be_visible()
    picture("paused")
    line = stop_in(workbench, task)
    expect(workbench.thread(TASK, "Paused").filter(has_text=f"{task.pid}@{task.node_ip}")).to_have_count(1)
    expect(workbench.variable("points")).to_have_attribute("aria-label", "points, value 400000")
    assert 0.75 < float(workbench.evaluate("total / points")) < 0.82
    picture("stopped")
    while line < RETURN:
        workbench.press("Step Over")
        line = workbench.expect_stopped(EXAMPLE.name, line + 1)
    expect(workbench.variable("share")).to_have_attribute("aria-label", re.compile(r"^share, value 0\.78"))
    workbench.press("Continue")
    assert workspace.ended(name).status == "SUCCEEDED"
    assert "pi is about 3.1" in workspace.dashboard.output(name)
    expect(workbench.row(f"process {task.pid}")).to_have_count(0)


def areas(folder: Path) -> Path:
    """Makes a folder with an unmodified script in it."""
    folder.mkdir(parents=True)
    (folder / "areas.py").write_text(AREAS)
    return folder


def stop_three_by_the_gutter(
    workspace: Workspace, workbench: Workbench, name: str, picture: Callable[[str], None] = lambda name: None
) -> None:
    """Clicks in the gutter of a file that was submitted with `WAIT`; three tasks stop there, and resume."""
    workbench.open_file("areas.py")
    workbench.click_gutter(PRODUCT)
    workbench.open_view("Ray")
    workbench.menu(workbench.row("Ray job, python areas.py").filter(has_text=name), "Debug This Job")
    workbench.make_room_for_the_call_stack()
    for room in ROOMS:
        expect(workbench.thread(room, "Paused")).to_have_count(1)
    # VS Code goes by itself to the one that stopped first, when it has read its frames: not after our click.
    workbench.expect_stopped("areas.py", PRODUCT)
    for room in ROOMS:
        _go_to(workbench, room)
        workbench.expect_stopped("areas.py", PRODUCT)
    picture("three-tasks")
    for room in ROOMS:
        _go_to(workbench, room)
        workbench.press("Continue")
        expect(workbench.thread(room, "Paused")).to_have_count(0)
    assert workspace.ended(name).status == "SUCCEEDED"
    assert "areas [12, 30, 56]" in workspace.dashboard.output(name)


def _go_to(workbench: Workbench, room: str) -> None:
    """Chooses the task's thread, and waits until its variables are shown."""
    workbench.choose(workbench.thread(room))
    expect(workbench.variable("product")).to_have_attribute("aria-label", f"product, value {ROOMS[room]}")
