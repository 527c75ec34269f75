"""Tests what the workspace says when something goes wrong, and how it recovers."""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import Open
from tests.browser.stories import EXAMPLE, expect_example_stopped, paused_example, select, stop_in
from tests.browser.workspace import Workspace


class Proxy:
    """Listens on its own `port`, and connects to another one; it is up from the start."""

    def __init__(self, to: int) -> None:
        self._to = to
        self._connections: list[socket.socket] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._serve()

    def down(self) -> None:
        """Stops listening, and ends the connections."""
        # Closing alone does not wake the thread that waits in accept.
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        while self._connections:
            connection = self._connections.pop()
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
            connection.close()

    def up(self) -> None:
        """Listens again, on the same port."""
        self._listener = socket.create_server(("127.0.0.1", self.port))
        self._serve()

    def _serve(self) -> None:
        threading.Thread(target=self._accept, args=(self._listener,), daemon=True).start()

    def _accept(self, listener: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = listener.accept()
                server = socket.create_connection(("127.0.0.1", self._to))
                self._connections += [client, server]
                for source, other in ((client, server), (server, client)):
                    threading.Thread(target=self._copy, args=(source, other), daemon=True).start()

    def _copy(self, source: socket.socket, other: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                other.sendall(data)
        with contextlib.suppress(OSError):
            other.shutdown(socket.SHUT_WR)


@contextlib.contextmanager
def proxy(to: int) -> Iterator[Proxy]:
    """Provides a running proxy, and ends it afterwards."""
    running = Proxy(to)
    try:
        yield running
    finally:
        running.down()


@contextlib.contextmanager
def machine_settings(workspace: Workspace, **changed: str) -> Iterator[None]:
    """Writes settings of Ray Breakpoints for all windows, as a user would."""
    file = workspace.rayside.folder / "workspace" / "Machine" / "settings.json"
    before = file.read_text()
    more = {f"rayBreakpoints.{name}": value for name, value in changed.items()}
    file.write_text(json.dumps(json.loads(before) | more))
    try:
        yield
    finally:
        file.write_text(before)


@contextlib.contextmanager
def instead(workspace: Workspace, setting: str, port: int, scheme: str = "") -> Iterator[Proxy]:
    """Puts a proxy before that port, for the workspace only, by the setting of that name."""
    with (
        proxy(port) as stand_in,
        machine_settings(workspace, **{setting: f"{scheme}127.0.0.1:{stand_in.port}"}),
    ):
        yield stand_in


@pytest.fixture
def dashboard(local: Workspace) -> Iterator[Proxy]:
    with instead(local, "dashboard", local.rayside.settings.dashboard_port, "http://") as stand_in:
        yield stand_in


@pytest.fixture
def relay(local: Workspace) -> Iterator[Proxy]:
    with instead(local, "relay", local.rayside.settings.relay_port) as stand_in:
        yield stand_in


def test_a_dashboard_that_is_down_is_said_once_and_the_view_recovers(
    local: Workspace, opened: Open, dashboard: Proxy
) -> None:
    _, task = paused_example(local)
    with opened(local.address(EXAMPLE.parent)) as workbench:
        workbench.open_view("Ray")
        row = workbench.row(f"process {task.pid}")
        expect(row).to_be_visible()
        expect(workbench.badge).to_have_text(re.compile(r"\d"))
        dashboard.down()
        expect(workbench.view).to_contain_text("dashboard does not answer")
        expect(workbench.view).to_contain_text("./invokew up")
        expect(workbench.status_bar_item).to_have_text(re.compile("no answer"))
        expect(row).to_have_count(0)
        expect(workbench.notifications).to_have_count(1)
        workbench.view.get_by_text("Look Now").click()
        expect(workbench.view).to_contain_text("dashboard does not answer")
        expect(workbench.notifications).to_have_count(1)
        dashboard.up()
        expect(row).to_be_visible()
        expect(workbench.status_bar_item).to_have_text(re.compile("paused"))
        expect(workbench.view).not_to_contain_text("does not answer")


def test_a_relay_that_is_down_is_said_with_what_to_do_and_the_next_click_works(
    local: Workspace, opened: Open, relay: Proxy
) -> None:
    name, task = paused_example(local)
    with opened(local.address(EXAMPLE.parent)) as workbench:
        workbench.open_view("Ray")
        row = workbench.row(f"process {task.pid}")
        expect(row).to_be_visible()
        relay.down()
        row.click()
        expect(workbench.notifications.filter(has_text="./invokew up")).to_have_count(1)
        expect(workbench.debugging).to_be_hidden()
        workbench.open_view("Ray")
        expect(row).to_be_visible()
        relay.up()
        stop_in(workbench, task)
        # It goes away under a session too: the tasks go on, and nothing is left that looks like one.
        relay.down()
        expect(workbench.debugging).to_be_hidden()
    assert local.ended(name).status == "SUCCEEDED"


def test_a_job_that_ends_while_its_task_is_selected_disappears_without_a_word(
    local: Workspace, opened: Open
) -> None:
    name, task = paused_example(local)
    with opened(local.address(EXAMPLE.parent)) as workbench:
        stop_in(workbench, task)
        local.stop(name)
        expect(workbench.thread("estimate").filter(has_text=f"{task.pid}@")).to_have_count(0)
        workbench.open_view("Ray")
        expect(workbench.row(f"process {task.pid}")).to_have_count(0)
        expect(workbench.row("python sample_code.py, stopped").first).to_be_visible()
        expect(workbench.notifications).to_have_count(0)
    assert local.ended(name).status == "STOPPED"


def test_a_file_that_is_not_there_any_more_is_shown_as_the_worker_has_it(
    local: Workspace, opened: Open, tmp_path: Path
) -> None:
    folder, elsewhere = tmp_path / "moved", tmp_path / "elsewhere"
    folder.mkdir()
    elsewhere.mkdir()
    shutil.copy(EXAMPLE, folder)
    name, task = paused_example(local, folder)
    shutil.rmtree(folder)
    with opened(local.address(elsewhere)) as workbench:
        stop_in(workbench, task)
        expect(workbench.text).to_contain_text("def estimate(counts")
        expect(workbench.variable("points")).to_have_attribute("aria-label", "points, value 400000")
        workbench.press("Continue")
    assert local.ended(name).status == "SUCCEEDED"


def test_the_newer_of_two_tabs_debugs_and_the_earlier_is_told_once(local: Workspace, opened: Open) -> None:
    name, task = paused_example(local)
    address = local.address(EXAMPLE.parent)
    with opened(address) as earlier:
        stop_in(earlier, task)
        with opened(address) as newer:
            select(newer, task, take_over=True)
            # First: VS Code hides it after some ten seconds, and the newer may take that long to stop.
            told = earlier.notifications.filter(has_text="Another window debugs this cluster")
            expect(told).to_have_count(1)
            expect(earlier.debugging).to_be_hidden()
            expect_example_stopped(newer)
            expect(newer.variable("points")).to_have_attribute("aria-label", "points, value 400000")
            newer.press("Continue")
            assert local.ended(name).status == "SUCCEEDED"
            # It has had the time to take the session back.
            expect(newer.debugging).to_be_visible()
            expect(newer.notifications).to_have_count(0)
        expect(earlier.debugging).to_be_hidden()
