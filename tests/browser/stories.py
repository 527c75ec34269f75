"""Does what a user does in the workspace, the same wherever Ray runs."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from playwright.sync_api import expect

from bootstrap.settings import ROOT
from rayside.dap.paused_task import PausedTask
from rayside.verbs.relay_requests import paused
from rayside.waiting import until
from tests.browser.workbench import Workbench
from tests.browser.workspace import Workspace
from tests.patience import PATIENCE

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
print(f"areas {ray.get([kitchen.remote(), cellar.remote(), attic.remote()])}")
"""
PRODUCT = AREAS.splitlines().index("    return product") + 1
ROOMS = {"kitchen": 12, "cellar": 30, "attic": 56}
# Four tasks that never stop anywhere, and one of which does something else.
BUSY = """\
import time

import ray


def waits():
    while True:
        time.sleep(0.05)


def loads():
    while True:
        time.sleep(0.05)


@ray.remote(num_cpus=0.1)
def works(number):
    if number == 3:
        loads()
    waits()


ray.init()
ray.get([works.remote(number) for number in range(4)])
"""
# A driver that calls a task, and then forks itself.
CALLS = """\
import multiprocessing

import ray


@ray.remote(num_cpus=0.1)
def room(number):
    width = number + 1
    return width * number


def whole():
    first = room.remote(3)
    return ray.get(first)


def paint(area):
    litres = area / 6
    print(f"litres {litres}", flush=True)


ray.init()
painter = multiprocessing.get_context("fork").Process(target=paint, args=[whole()])
painter.start()
painter.join()
"""
# Three tasks that do the same side by side, and print what they do.
SQUARES = """\
import ray


def squares(room):
    for number in range(3):
        square = number * number
        print(f"{room} square {square}")


@ray.remote(num_cpus=0.1)
def kitchen():
    squares("kitchen")


@ray.remote(num_cpus=0.1)
def cellar():
    squares("cellar")


@ray.remote(num_cpus=0.1)
def attic():
    squares("attic")


ray.init()
ray.get([kitchen.remote(), cellar.remote(), attic.remote()])
"""
# Two tasks that fail at one line.
FAILING = """\
import ray


def cost(area):
    return area / (area - area)


@ray.remote(num_cpus=0.1)
def kitchen():
    return cost(12)


@ray.remote(num_cpus=0.1)
def cellar():
    return cost(30)


ray.init()
print(f"costs {ray.get(kitchen.remote())} {ray.get(cellar.remote())}")
"""
DIVISION = FAILING.splitlines().index("    return area / (area - area)") + 1
NO_WAIT = ("--debug", "--attach-timeout", "0")
POST_MORTEM = (*NO_WAIT, "--post-mortem")
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
            task
            for task in paused(workspace.target.access).tasks
            if task.task == TASK and task.job_id == job.job_id
        ]

    (task,) = until(paused_tasks, bool, PATIENCE)
    return name, task


def select(workbench: Workbench, task: PausedTask, *, take_over: bool = False) -> None:
    """Clicks the paused task in the view.

    `take_over`: from another window, which the user is asked about.
    """
    workbench.open_view("Ray")
    row = workbench.row(f"process {task.pid}")
    expect(row).to_have_attribute("aria-label", re.compile(f"Paused task {task.task}.* node {task.node_ip}"))
    row.click()
    if take_over:
        workbench.page.get_by_role("dialog").get_by_role("button", name="Take Over").click()


def stop_in(workbench: Workbench, task: PausedTask) -> int:
    """Selects the paused task, and returns the line of the example that the editor then shows."""
    select(workbench, task)
    return expect_example_stopped(workbench)


def expect_example_stopped(workbench: Workbench) -> int:
    """Expects the editor to show where the example stops, and returns that line."""
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


def written(folder: Path, name: str, script: str) -> Path:
    """Makes a folder with one script in it."""
    folder.mkdir(parents=True)
    (folder / name).write_text(script)
    return folder


def see_what_all_do(
    workspace: Workspace, workbench: Workbench, name: str, picture: Callable[[str], None] = lambda name: None
) -> None:
    """Asks for the stacks of a job of BUSY that was submitted with `NO_WAIT`, and opens a line."""
    workbench.open_view("Ray")
    row = workbench.row("Ray job, python busy.py, running").filter(has_text=name)
    expect(row).to_have_count(1)
    workbench.menu(row, "Show What All Its Processes Do")
    expect(workbench.stack_row("thread").first).to_be_visible()

    def all_are_seen() -> bool:
        if workbench.stack_row("4 threads in works").count() == 1:
            return True
        workbench.command("Ray: Ask Again")  # its tasks still begin
        return False

    until(all_are_seen, bool, PATIENCE)
    expect(workbench.stack_row("3 threads in waits, busy.py")).to_have_count(1)
    odd = workbench.stack_row("1 thread in loads, the odd one out, busy.py")
    expect(odd).to_have_count(1)
    expect(workbench.stack_row("works · ")).to_have_count(4)
    expect(workbench.stack_row("listener.py")).to_have_count(0)  # the hook's own threads
    picture("stacks")
    odd.click()
    line = BUSY.splitlines().index("def loads():") + 3
    expect(workbench.tab("busy.py")).to_have_attribute("aria-selected", "true")
    expect(workbench.page.locator(".statusbar")).to_contain_text(f"Ln {line}, Col 1")
    # It went on meanwhile.
    assert not paused(workspace.target.access).tasks


def stop_three_by_the_gutter(workspace: Workspace, workbench: Workbench, name: str) -> None:
    """Clicks in the gutter of a file that was submitted with `WAIT`; three tasks stop there, and resume.

    In between an expression is compared over all three.
    """
    _debug(workbench, name, "areas.py", PRODUCT)
    for room in ROOMS:
        expect(workbench.thread(room, "Paused")).to_have_count(1)
    # VS Code goes by itself to the one that stopped first, when it has read its frames: not after our click.
    workbench.expect_stopped("areas.py", PRODUCT)
    for room in ROOMS:
        _go_to(workbench, room)
        workbench.expect_stopped("areas.py", PRODUCT)
    workbench.choose(workbench.thread("Ray cluster"))
    answer = workbench.evaluate("product")
    assert answer.startswith("product  in 3 stopped tasks: 12 to 56, median 30"), answer
    assert all(room in answer for room in ROOMS)
    for room in ROOMS:
        _go_to(workbench, room)
        workbench.press("Continue")
        expect(workbench.thread(room, "Paused")).to_have_count(0)
    assert workspace.ended(name).status == "SUCCEEDED"
    assert "areas [12, 30, 56]" in workspace.dashboard.output(name)


def compare_ranks(workbench: Workbench, name: str, picture: Callable[[str], None]) -> None:
    """Compares a value over the eight tasks of a job that was submitted with `WAIT`, which stay stopped."""
    _debug(workbench, name, "ranks.py", 7)
    expect(workbench.thread("train_rank", "Paused")).to_have_count(8)
    workbench.choose(workbench.thread("Ray cluster"))
    workbench.evaluate("loss")
    picture("compared")


def follow_a_call_and_a_fork(workspace: Workspace, workbench: Workbench, name: str) -> None:
    """Steps from `.remote()` into the task of a job of CALLS, submitted with `WAIT`, and on into a fork."""
    lines = [text.strip() for text in CALLS.splitlines()]
    called, begins, forked = (
        lines.index(text) + 1
        for text in ("first = room.remote(3)", "width = number + 1", "litres = area / 6")
    )
    _debug(workbench, name, "calls.py", called, forked)
    workbench.expect_stopped("calls.py", called)
    workbench.press("Step Into")
    workbench.expect_stopped("calls.py", begins)
    expect(workbench.thread("room", "Paused")).to_have_count(1)
    expect(workbench.variable("number")).to_have_attribute("aria-label", "number, value 3")
    expect(workbench.frame("room")).to_have_count(1)
    # Below the task's own frame are those of who called it, who may be shown by itself as well.
    expect(workbench.frame("whole")).not_to_have_count(0)
    workbench.press("Continue")
    # The caller's step has ended at its next line.
    workbench.expect_stopped("calls.py", called + 1)
    workbench.press("Continue")
    workbench.expect_stopped("calls.py", forked)
    expect(workbench.thread("child of", "Paused")).to_have_count(1)
    expect(workbench.variable("area")).to_have_attribute("aria-label", "area, value 12")
    workbench.press("Continue")
    assert workspace.ended(name).status == "SUCCEEDED"
    assert "litres 2.0" in workspace.dashboard.output(name)


def move_a_group(workspace: Workspace, workbench: Workbench, name: str) -> None:
    """Steps all tasks of a job of SQUARES, submitted with `WAIT`, as one; their prints are heard."""
    lines = [text.strip() for text in SQUARES.splitlines()]
    squared = lines.index("square = number * number") + 1
    _debug(workbench, name, "squares.py", squared)
    for room in ROOMS:
        expect(workbench.thread(room, "Paused")).to_have_count(1)
    workbench.expect_stopped("squares.py", squared)
    # Over the print, and to the head of the loop.
    for line in (squared + 1, squared - 1):
        workbench.clear_console()
        answer = workbench.evaluate("@all next")
        assert re.search(rf"3 stopped at squares  \S.*squares\.py:{line}\b", answer), answer
        workbench.expect_stopped("squares.py", line)
    expect(workbench.console.filter(has_text=re.compile("attic · .*: attic square 0"))).to_have_count(1)
    expect(workbench.console.filter(has_text="kitchen square 0")).to_have_count(1)
    workbench.clear_console()
    answer = workbench.evaluate("@task:kitchen next")
    assert re.search(rf"1 stopped at squares  \S.*squares\.py:{squared}\b", answer), answer
    workbench.click_gutter(squared)
    workbench.clear_console()
    answer = workbench.evaluate("@all continue")
    assert re.search(r"\d members", answer), answer
    assert workspace.ended(name).status == "SUCCEEDED"
    expect(workbench.console.filter(has_text="attic square 4")).to_have_count(1)
    expect(workbench.notifications).to_have_count(0)


def run_failed_tasks_again(workspace: Workspace, workbench: Workbench, name: str) -> None:
    """Edits the line at which the tasks of a job of FAILING fail, submitted with `POST_MORTEM`.

    The first runs again by VS Code's own *Restart Frame*, and the second by the button in its row.
    """
    workbench.open_view("Ray")
    workbench.row("Paused task kitchen").click()
    workbench.expect_stopped("costs.py", DIVISION)
    workbench.make_room_for_the_call_stack()
    _save_for_a_retry(workbench, "    return area / (area - 30)")
    workbench.menu(workbench.frame("kitchen"), "Restart Frame")
    expect(workbench.frame("cellar")).to_have_count(1)
    workbench.expect_stopped("costs.py", DIVISION)
    _save_for_a_retry(workbench, "    return area / area")
    workbench.open_view("Ray")
    workbench.press_in_row(workbench.row("Paused task cellar, failed"), "Retry")
    expect(workbench.notifications.filter(has_text="Cellar returned.")).to_have_count(1)
    assert workspace.ended(name).status == "SUCCEEDED"
    assert f"costs {12 / (12 - 30)} 1.0" in workspace.dashboard.output(name)


def _save_for_a_retry(workbench: Workbench, text: str) -> None:
    """Types over the line that fails, and saves it; the relay has it afterwards."""
    told = workbench.page.locator(".statusbar", has_text="Failed tasks run again with costs.py")
    expect(told).to_have_count(0)
    workbench.replace_line(DIVISION, text)
    workbench.page.keyboard.press("Control+s")
    expect(told).to_have_count(1)


def _debug(workbench: Workbench, name: str, file: str, *lines: int) -> None:
    """Sets breakpoints in a job's file by clicks in the gutter, and attaches to the job from Ray's view."""
    workbench.open_file(file)
    for line in lines:
        workbench.click_gutter(line)
    workbench.open_view("Ray")
    workbench.menu(workbench.row(f"Ray job, python {file}").filter(has_text=name), "Debug This Job")
    workbench.make_room_for_the_call_stack()


def _go_to(workbench: Workbench, room: str) -> None:
    """Chooses the task's thread, and waits until its variables are shown."""

    def shows() -> bool:
        # VS Code draws its rows anew as tasks stop; a row that is chosen in that moment is not chosen.
        workbench.choose(workbench.thread(room))
        product = expect(workbench.variable("product"))
        try:
            product.to_have_attribute("aria-label", f"product, value {ROOMS[room]}", timeout=20_000)
        except AssertionError:
            return False
        return True

    assert until(shows, bool, 120), f"{room} is not shown"
