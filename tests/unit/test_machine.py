"""A port that is taken: by whom, and what to do about it."""

from __future__ import annotations

import pytest

from bootstrap import machine
from bootstrap.errors import PortTaken
from bootstrap.machine import Holder
from bootstrap.steps.machine import require_port

FORWARDS = {"RAYSIDE_FORWARDS": "/home/me/.local/state/rayside-host-kind"}
LOCAL = "/home/me/.local/state/rayside-host"


def refusal(
    monkeypatch: pytest.MonkeyPatch, holder: Holder, environment: dict[str, str] | None = None
) -> PortTaken:
    """Of the dashboard's port, which `holder` has."""
    monkeypatch.setattr(machine, "port_holder", lambda port: holder)
    monkeypatch.setattr(machine, "environment", lambda pid: environment or {})
    with pytest.raises(PortTaken) as caught:
        require_port("dashboard_port", 8265)
    return caught.value


def test_of_a_stranger_the_program_is_named_which_has_to_end(monkeypatch: pytest.MonkeyPatch) -> None:
    error = refusal(monkeypatch, Holder(7, "python"), {"RAYSIDE_TARGET": "kind", "HOME": "/home/me"})
    assert error.message == "port 8265 is taken by python (pid 7)"
    assert error.hint == "end that program, or choose another port: INVOKE_RAYSIDE_DASHBOARD_PORT=8266"


def test_of_another_user_nothing_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    error = refusal(monkeypatch, Holder(None, "another user's program"), FORWARDS)
    assert error.message == "port 8265 is taken by another user's program"


@pytest.mark.parametrize(
    ("environment", "target", "part"),
    [
        (FORWARDS, "kind", "port forwards"),
        ({"RAYSIDE_STATE": LOCAL}, "local", "Ray"),
        ({"RAYSIDE_RELAY": LOCAL}, "local", "debug relay"),
        ({"RAYSIDE_WORKSPACE_PROCESS": LOCAL}, "local", "workspace"),
    ],
)
def test_of_rayside_itself_the_target_is_named_and_the_command_that_removes_it(
    monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], target: str, part: str
) -> None:
    error = refusal(monkeypatch, Holder(7, "python"), environment)
    assert f"the {part} of Rayside's own {target} cluster" in error.message
    assert "python (pid 7)" in error.message
    assert "end that program" not in error.hint
    assert f"INVOKE_RAYSIDE_TARGET={target} ./invokew down" in error.hint
    assert "INVOKE_RAYSIDE_DASHBOARD_PORT=8266" in error.hint
