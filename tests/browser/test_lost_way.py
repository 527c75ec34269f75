"""Tests that VS Code itself attaches again when the way to the relay is lost and comes back."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect

from rayside.dap.one_request import ask
from rayside.event_loop import background_loop
from rayside.reach.supervisor import Forward, Port
from rayside.waiting import until
from tests.browser.conftest import Open
from tests.browser.stories import EXAMPLE, TASK, paused_example, stop_in
from tests.browser.test_faults import machine_settings
from tests.browser.workspace import Workspace
from tests.integration.scripted_kubectl import ScriptedKubectl, scripted_kubectl
from tests.patience import PATIENCE


@pytest.fixture
def kubectl(local: Workspace, tmp_path: Path) -> Iterator[ScriptedKubectl]:
    """Provides a kubectl whose forward is the workspace's only way to the relay."""
    with scripted_kubectl(tmp_path / "kubectl") as scripted, background_loop() as call:
        scripted.pods["head-1"].ports[5678] = local.rayside.settings.relay_port
        scripted.tell()

        async def made() -> Port:
            return Port(Forward("relay", 0, 5678, speaks="dap"), scripted.to())

        port = call(made())
        with machine_settings(local, relay=f"127.0.0.1:{call(port.start())}"):
            yield scripted
        call(port.stop())


def debugger(workspace: Workspace) -> Any:
    """Returns whom the relay has as the editor that debugs; None where there is none, or it lost its way."""
    port = workspace.rayside.settings.relay_port
    return ask(port, "debugger", {"token": workspace.token}, timeout=PATIENCE)["debugger"]


def test_a_connection_that_is_lost_costs_a_moment_and_no_stop(
    local: Workspace, opened: Open, kubectl: ScriptedKubectl
) -> None:
    name, task = paused_example(local)
    with opened(local.address(EXAMPLE.parent)) as workbench:
        line = stop_in(workbench, task)
        kubectl.down()
        expect(
            workbench.notifications.filter(has_text="The connection to the cluster is lost")
        ).to_be_visible()
        # The relay knows by now; what is shown as stopped is still of the earlier session.
        assert until(lambda: debugger(local), lambda who: who is None, PATIENCE) is None
        kubectl.up()
        expect(workbench.console.filter(has_text="the debugger attaches again")).to_be_visible()
        assert until(lambda: debugger(local), bool, PATIENCE)
        workbench.expect_stopped(EXAMPLE.name, line)
        assert 0.75 < float(workbench.evaluate("total / points")) < 0.82
        expect(workbench.thread(TASK, "Paused")).to_have_count(1)
        workbench.press("Continue")
        assert local.ended(name).status == "SUCCEEDED"
        expect(workbench.debugging).to_be_visible()
        workbench.press("Disconnect")
        expect(workbench.debugging).to_be_hidden()
