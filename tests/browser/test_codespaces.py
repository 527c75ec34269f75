"""Tests the workspace as a codespace's user has it: over TLS, at a host that the workspace never sees."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from bootstrap.step import until
from tests.browser.conftest import brought_up
from tests.browser.front import Front, front
from tests.browser.stories import debug_the_example
from tests.browser.workbench import chromium
from tests.browser.workspace import Workspace
from tests.patience import PATIENCE

NAME, DOMAIN = "fuzzy-space-guide-97x", "ports.test"


@pytest.fixture(scope="module")
def codespace() -> Iterator[Workspace]:
    """Provides all that `up` starts, in an environment that says it is a codespace."""
    variables = {
        "CODESPACES": "true",
        "CODESPACE_NAME": NAME,
        "GITHUB_CODESPACES_PORT_FORWARDING_DOMAIN": DOMAIN,
    }
    with brought_up(variables) as workspace:
        yield workspace


@pytest.fixture(scope="module")
def outside(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Front, Browser]]:
    """Provides the front of the codespace's ports, and a browser that reaches them only through it."""
    with (
        front(NAME, DOMAIN, tmp_path_factory.mktemp("front")) as (proxy, options),
        chromium(*options) as browser,
    ):
        yield proxy, browser


def test_behind_another_host_one_logs_in_has_a_terminal_and_a_task_stops(
    codespace: Workspace, outside: tuple[Front, Browser], tmp_path: Path
) -> None:
    before, browser = outside
    port = codespace.rayside.settings.workspace_port
    assert codespace.link.startswith(f"https://{NAME}-{port}.{DOMAIN}/?folder=")
    assert codespace.rayside.json("open")["url"].startswith(f"https://{NAME}-{port}.{DOMAIN}/?folder=")
    marker = tmp_path / "said"
    with codespace.open(browser, codespace.link, tmp_path / "evidence") as workbench:
        assert before.upgraded, "no WebSocket"
        workbench.type_in_terminal(f"echo here > {marker}")
        assert until(marker.exists, bool, PATIENCE)
        debug_the_example(codespace, workbench)
