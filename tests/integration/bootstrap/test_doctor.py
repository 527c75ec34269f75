"""Tests `doctor`: it finds and names what is missing, and with --fix repairs it and checks again."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from tests.integration.conftest import Rayside

pytestmark = pytest.mark.gate


def findings(document: dict[str, list[dict[str, object]]]) -> dict[str, dict[str, object]]:
    return {str(finding["id"]): finding for finding in document["findings"]}


def test_a_machine_that_lacks_nothing(rayside: Rayside) -> None:
    document = rayside.json("doctor")
    assert document["ok"] is True
    assert all(set(finding) == {"id", "ok", "detail", "fix"} for finding in document["findings"])
    assert all(finding["fix"] == "" for finding in document["findings"])
    assert "Nothing is missing. Next: ./invokew up" in rayside.run("doctor").stdout


def test_what_nobody_can_mend_stays_a_finding_with_what_to_do(rayside: Rayside, tmp_path: Path) -> None:
    with socket.socket() as holder:
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        holder.bind(("127.0.0.1", rayside.settings.dashboard_port))
        holder.listen()
        document = rayside.json("doctor", "--fix", code=3, env={"INVOKE_RAYSIDE_MIN_MEMORY_GIB": "100000"})
    by_id = findings(document)
    assert document["ok"] is False
    assert by_id["dashboard-port"]["ok"] is False
    assert "INVOKE_RAYSIDE_DASHBOARD_PORT" in str(by_id["dashboard-port"]["fix"])
    assert by_id["memory"]["ok"] is False
    assert by_id["disk"]["ok"] is True


def test_fix_ends_leftovers(rayside: Rayside) -> None:
    assert rayside.run("up", "--no-example").returncode == 0
    (rayside.folder / "ray.json").unlink()
    by_id = findings(rayside.json("doctor", code=3))
    assert by_id["leftovers"]["ok"] is False
    assert by_id["leftovers"]["fix"] == "./invokew doctor --fix"
    document = rayside.json("doctor", "--fix")
    assert document["ok"] is True
    assert rayside.processes() == []
