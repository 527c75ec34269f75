"""Tests forwards to the head pod of the real cluster, by the real kubectl; changes nothing in the pod."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import requests

from bootstrap.kube.api import Kube
from bootstrap.steps.forwards import Forwards
from rayside.connection.heads import head_selector, to_pod
from rayside.errors import NotRunning
from rayside.reach.programs import Kubectl
from rayside.reach.supervisor import Forward, forwarded
from rayside.steps.step import Condition
from rayside.system.shell import Shell
from tests.e2e.conftest import NAME, target
from tests.integration.conftest import Rayside, free_ports
from tests.patience import PATIENCE

# The process is meant to outlive the object that started it.
pytestmark = pytest.mark.filterwarnings("ignore:subprocess .* is still running:ResourceWarning")

HEAD = head_selector(NAME)


@pytest.fixture(scope="module")
def kube(up: Rayside) -> Kube:
    return target(up).kube


@pytest.fixture
def head(kube: Kube, up: Rayside) -> Kubectl:
    return to_pod(kube, target(up).kubectl, HEAD)


@pytest.fixture
def forwards(kube: Kube, up: Rayside, tmp_path: Path) -> Iterator[Forwards]:
    dashboard, workspace = free_ports()
    ports = (Forward("dashboard", dashboard, 8265), Forward("workspace", workspace, 8443))
    step = Forwards(Shell(), kube, tmp_path, ports, HEAD, target(up).kubectl)
    yield step
    step.undo(lambda _: None)
    assert step.leftovers() == []


def status(port: int, path: str) -> int:
    url = f"http://127.0.0.1:{port}{path}"
    return requests.get(url, timeout=PATIENCE, allow_redirects=False).status_code


def test_the_step_leads_to_the_dashboard_and_the_workspace(forwards: Forwards) -> None:
    forwards.apply(lambda _: None)
    deadline = time.monotonic() + forwards.patience
    while (current := forwards.check()).condition is Condition.PENDING and time.monotonic() < deadline:
        time.sleep(0.2)
    assert current.condition is Condition.READY, current.detail
    dashboard, workspace = (port.local for port in forwards.ports)
    assert status(dashboard, "/api/version") == 401
    assert status(workspace, "/healthz") == 200
    with ThreadPoolExecutor(50) as pool:
        assert set(pool.map(lambda _: status(workspace, "/healthz"), range(50))) == {200}


def test_a_forward_for_a_while(head: Kubectl) -> None:
    with forwarded(head, 8265, at_once=True) as port:
        assert status(port, "/api/version") == 401


def test_the_end_of_what_a_pod_says_is_a_good_end(head: Kubectl) -> None:
    with (
        forwarded(head, 8265, at_once=True) as port,
        socket.create_connection(("127.0.0.1", port), timeout=PATIENCE) as connection,
    ):
        connection.sendall(b"GET /api/version HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        answer = b""
        while data := connection.recv(65536):  # a failed stream ends with ConnectionResetError
            answer += data
    assert b" 401 " in answer.split(b"\r\n")[0]


def test_a_port_that_nothing_listens_on_is_no_answer_and_others_stay(head: Kubectl) -> None:
    with forwarded(head, 8265, at_once=True) as works, forwarded(head, 1, at_once=True) as port:
        for _ in range(2):
            with pytest.raises(requests.ConnectionError):
                status(port, "/")
            assert status(works, "/api/version") == 401


def test_the_addresses_lead_to_no_cluster_that_is_not_there(up: Rayside) -> None:
    access = target(up).access
    token = access.instance.token_file.read_text()
    with pytest.raises(NotRunning, match="no token of a RayCluster absent"):
        access.lead_to("absent")
    assert access.instance.token_file.read_text() == token
    access.lead_to(NAME)
    assert access.require().version()["ray_version"]
