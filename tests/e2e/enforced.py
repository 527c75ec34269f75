"""Runs a workshop where network policies are enforced, which kind's plugin does not; CI does not run it.

`.venv/bin/python -m pytest tests/e2e/enforced.py` compiles kube-router, which takes some minutes, and runs
its firewall in the node's network. It needs root, `iptables` and `ipset` (`apt-get install ipset`).
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator

import pytest

from bootstrap.delivery.front_door import PORT as DOOR_PORT
from bootstrap.kube.api import CORE
from bootstrap.steps.place_bounds import DOOR
from bootstrap.steps.ray_cluster import DASHBOARD_PORT, WORKSPACE_PORT
from rayside.connection.heads import head_selector
from rayside.waiting import until
from tests.e2e import test_workshop
from tests.e2e.conftest import NAME, kube, node_of, target
from tests.e2e.test_kind_stack import kubectl
from tests.e2e.test_workshop import NAMES, Event
from tests.go_programs import built
from tests.integration.conftest import Rayside

# With its fixtures, what a room does all day is done here under the policies.
rayside, event = test_workshop.rayside, test_workshop.event
test_places = test_workshop.test_places_are_ready_and_the_same_command_changes_nothing
test_attendees = test_workshop.test_attendees_are_in_editors_of_their_own_and_one_too_many_is_told_so
test_a_late_one = test_workshop.test_a_place_that_is_freed_is_the_next_attendees
test_the_sheet = test_workshop.test_the_sheet_leads_into_each_place
test_a_lab = test_workshop.test_a_teacher_sees_a_lab_being_done_and_makes_it_anew
test_help = test_workshop.test_who_asks_for_help_is_seen_and_their_stopped_task_is_watched
test_a_break = test_workshop.test_a_lunch_break_takes_the_workers_and_gives_them_back
test_idle_places = test_workshop.test_places_where_nothing_is_done_are_paused_until_something_is
test_files = test_workshop.test_an_attendee_takes_their_files_home
test_forwards = test_workshop.test_a_place_that_is_looked_at_gets_forwards

KUBE_ROUTER = "2.1.0"
RAYS = 6379
# Says of each address, as 10.244.0.9:6379, whether a connection is made.
PROBE = """
import json, socket, sys
def opens(host, port):
    try:
        socket.create_connection((host, int(port)), 5).close()
    except OSError:
        return False
    return True
print(json.dumps([opens(*address.rsplit(":", 1)) for address in sys.argv[1:]]))
"""


@pytest.fixture(scope="module", autouse=True)
def enforced(up: Rayside, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Has policies enforced, from before the first place is made."""
    program = built("kube-router", "github.com/cloudnativelabs/kube-router/v2/cmd/kube-router", KUBE_ROUTER)
    with node_of(up) as node:
        network = f"--net=/proc/{node.attrs['State']['Pid']}/ns/net"
        name = node.attrs["Config"]["Hostname"]
    # The API is at another port in the node than on this machine.
    kubeconfig = tmp_path_factory.mktemp("enforced") / "kubeconfig"
    there = target(up).kubernetes.kubectl("config", "view", "--raw", "--minify", "--flatten", "--output=json")
    document = json.loads(subprocess.check_output(there))
    document["clusters"][0]["cluster"]["server"] = "https://127.0.0.1:6443"
    kubeconfig.write_text(json.dumps(document))
    parts = ("router", "service-proxy", "loadbalancer")
    command = [
        *("nsenter", network, str(program), "--kubeconfig", str(kubeconfig), "--run-firewall=true"),
        *(f"--run-{part}=false" for part in parts),
        *("--hostname-override", name, "--health-port=0", "--metrics-port=0"),
    ]
    with (kubeconfig.parent / "log").open("wb") as log, subprocess.Popen(command, stderr=log) as process:
        try:
            listed = ["nsenter", network, "iptables", "--list", "KUBE-ROUTER-FORWARD"]

            def begun() -> bool:
                return subprocess.run(listed, capture_output=True, check=False).returncode == 0

            assert until(begun, bool, 60), (kubeconfig.parent / "log").read_text()
            yield
        finally:
            process.terminate()


def test_a_place_reaches_its_own_pods_and_names_and_nothing_else_of_the_cluster(event: Event) -> None:
    cluster = kube(event.rayside)

    def address(namespace: str, selector: str, port: int) -> str:
        (pod, *_) = cluster.within(namespace).pods(selector)
        return f"{pod['status']['podIP']}:{port}"

    def head(place: str, port: int) -> str:
        return address(place, head_selector(place), port)

    def reached(namespace: str, ray_cluster: str, addresses: list[str]) -> list[bool]:
        (pod,) = cluster.within(namespace).pods(head_selector(ray_cluster))
        inside = ["exec", pod["metadata"]["name"], "-n", namespace, "-c", "ray-head", "--"]
        answers: list[bool] = json.loads(kubectl(event.rayside, *inside, "python", "-c", PROBE, *addresses))
        return answers

    first, second = NAMES[:2]
    node = cluster.items(f"{CORE}/pods")[0]["status"]["hostIP"]
    (api,) = [each for each in cluster.items(f"{CORE}/services") if each["metadata"]["name"] == "kubernetes"]
    closed = [head(second, RAYS), head(second, WORKSPACE_PORT)]
    asked_by_the_operator = head(second, DASHBOARD_PORT)
    open_to_others = [
        address(cluster.namespace, f"{DOOR}={NAME}", DOOR_PORT),
        *(f"{node}:{port}" for port in (6443, 10250, 2379)),
        f"{api['spec']['clusterIP']}:443",
    ]
    names = address("kube-system", "k8s-app=kube-dns", 53)
    own = [head(first, port) for port in (RAYS, DASHBOARD_PORT, WORKSPACE_PORT)]
    assert reached(first, first, [*own, names]) == [True] * 4
    refused = [*closed, asked_by_the_operator, *open_to_others]
    assert reached(first, first, refused) == [False] * len(refused)
    # The control: each of them answers whom it may.
    assert reached(second, second, [*closed, asked_by_the_operator]) == [True] * 3
    assert reached(cluster.namespace, NAME, [*open_to_others, asked_by_the_operator]) == [True] * 6
    # Nor does who may reach the dashboard, from the operator's namespace, reach the rest.
    assert reached(cluster.namespace, NAME, closed) == [False] * 2
