"""Tests a workshop on kind: places beside a cluster, attendees who come in, and nothing left of it."""

from __future__ import annotations

import base64
import csv
import json
import re
import signal
import stat
import subprocess
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect

from bootstrap.kube import trouble
from bootstrap.kube.api import CORE, RAY
from bootstrap.kube.sizes import NOTHING, millicores, octets, of_pod
from rayside.connection.heads import head_selector
from rayside.settings import environment_name
from rayside.waiting import until
from tests.browser.stories import expect_example_stopped
from tests.browser.workbench import Workbench, chromium, ready, tab
from tests.conftest import FIGURE
from tests.e2e.conftest import NAME, kube, node_of, target, terminal
from tests.e2e.test_kind_stack import kubectl
from tests.integration.bootstrap.test_front_door import Browser, Teacher
from tests.integration.conftest import Rayside, free_ports
from tests.patience import PATIENCE

PLACES = 3
LAB = "01-breakpoint"
# Each place has one worker.
SMALL = {"INVOKE_RAYSIDE_RAY_WORKERS": "1"}
LABELS = [f"place-00{number}" for number in range(1, PLACES + 1)]
NAMES = [f"{NAME}-{label}" for label in LABELS]
POLICIES = "/apis/networking.k8s.io/v1"


@dataclass(frozen=True)
class Event:
    """A workshop that is up; `output` is what the command printed."""

    rayside: Rayside
    port: int
    output: str

    @property
    def join(self) -> str:
        """Returns the path of the room's link."""
        (line,) = [line for line in self.output.splitlines() if line.startswith("Room ")]
        return line.partition(f":{self.port}")[2]

    @property
    def teachers_link(self) -> str:
        (line,) = [line for line in self.output.splitlines() if line.startswith("Teacher ")]
        return line.split()[1]

    @property
    def teacher(self) -> Teacher:
        """Returns a reader of the teacher's page."""
        url, _, key = self.teachers_link.partition("/#")
        return Teacher(int(url.rpartition(":")[2]), key)

    def code(self, folder: Path, place: str) -> str:
        """Returns what the sheet has for a place."""
        file = folder / "the sheet.csv"
        done = self.rayside.run("workshop", "--sheet", str(file), env=SMALL)
        assert done.returncode == 0, done.stdout + done.stderr
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        with file.open(newline="") as opened:
            links = {row["place"]: row["link"] for row in csv.DictReader(opened)}
        assert not [link for link in links.values() if link in done.stdout]
        return links[place].rpartition("/")[2]

    def in_workspace(self, namespace: str, *words: str) -> subprocess.CompletedProcess[str]:
        """Runs a verb as an attendee does in a terminal of their workspace."""
        verb = [*terminal(RAY_AUTH_MODE="token"), "/home/ray/rayside/invokew", *words]
        return self.run_in(namespace, "workspace", *verb)

    def run_in(self, namespace: str, container: str, *command: str) -> subprocess.CompletedProcess[str]:
        """Runs a command in a container of a place's head."""
        words = target(self.rayside).kubernetes.kubectl(*self._exec(namespace, container), *command)
        return subprocess.run(words, capture_output=True, text=True, timeout=300, check=False)

    def in_head(self, namespace: str, *command: str) -> str:
        """Returns what a command prints in the head of a place."""
        return kubectl(self.rayside, *self._exec(namespace, "ray-head"), *command)

    def _exec(self, namespace: str, container: str) -> list[str]:
        pod = kube(self.rayside).within(namespace).pods(head_selector(namespace))[0]["metadata"]["name"]
        return ["exec", pod, "-n", namespace, "-c", container, "--"]


def namespaces(rayside: Rayside) -> set[str]:
    return {each["metadata"]["name"] for each in kube(rayside).items(f"{CORE}/namespaces")}


def uids(rayside: Rayside) -> set[str]:
    """Returns what tells the places' RayClusters from later ones of their names."""
    clusters = kube(rayside).items(f"{RAY}/rayclusters", f"rayside.dev/workshop={NAME}")
    return {each["metadata"]["uid"] for each in clusters}


@pytest.fixture(scope="module")
def rayside(up: Rayside) -> Iterator[Rayside]:
    """Provides the cluster, whose front door is at a port of the tests' own."""
    own = ports_of_the_door()
    up.environment_too.update(own)
    with room_for_places(up):
        yield up
    for name in own:
        del up.environment_too[name]
    assert up.is_ready()


def ports_of_the_door() -> dict[str, str]:
    """Returns what has a front door and its teacher's page at free ports."""
    ports = zip(("workshop_port", "teacher_port"), free_ports(2), strict=True)
    return {environment_name(name): str(port) for name, port in ports}


@contextmanager
def room_for_places(rayside: Rayside) -> Iterator[None]:
    """Has room for three places, which two processors lack beside the workers and all that Kubernetes has."""
    make_room(rayside)
    scale(rayside, 0)
    try:
        yield
    finally:
        scale(rayside, 2)


def make_room(rayside: Rayside) -> None:
    """Has Kubernetes itself request 0.35 of a processor less in the node, for good."""
    system = ("-n", "kube-system")
    kubectl(rayside, "scale", "deployment", "coredns", "--replicas", "1", *system)
    programs = {"kube-controller-manager", "kube-scheduler"}
    # The kubelet reads every file of its folder, and half of one if it is written there.
    lower = "sed 's/cpu: [12]00m/cpu: 25m/' manifests/{0}.yaml > {0}.yaml && mv {0}.yaml manifests/"
    with node_of(rayside) as node:
        for name in programs:
            code, output = node.exec_run(["sh", "-c", lower.format(name)], workdir="/etc/kubernetes")
            assert code == 0, output
    cluster = kube(rayside).within("kube-system")

    def lowered() -> set[str]:
        return {
            pod["metadata"]["labels"]["component"]
            for pod in cluster.pods("tier=control-plane")
            if of_pod(pod["spec"]).cpu == 25 and not trouble.waiting(pod)
        }

    assert until(lowered, lambda names: names == programs, 120) == programs


def scale(rayside: Rayside, workers: int) -> None:
    """Gives the cluster so many workers, in our own name: it is ours afterwards, too."""
    patch = [{"op": "replace", "path": "/spec/workerGroupSpecs/0/replicas", "value": workers}]
    how = ("--type", "json", "--field-manager", "rayside", "--patch", json.dumps(patch))
    kubectl(rayside, "patch", "raycluster", NAME, "-n", kube(rayside).namespace, *how)
    selector = f"ray.io/cluster={NAME},ray.io/node-type=worker"
    assert until(lambda: len(kube(rayside).pods(selector)), lambda pods: pods == workers, 120) == workers


@pytest.fixture(scope="module")
def event(rayside: Rayside) -> Iterator[Event]:
    # One that was killed half-way goes on.
    rayside.environment_too.update(SMALL)
    killed = rayside.start("workshop", "--places", str(PLACES))
    for name in SMALL:
        del rayside.environment_too[name]
    assert until(lambda: namespaces(rayside) & {*NAMES}, bool, 120)
    killed.kill()
    killed.communicate()
    done = rayside.run("workshop", "--places", str(PLACES), timeout=600, env=SMALL)
    assert done.returncode == 0, done.stdout + done.stderr
    yield Event(rayside, int(rayside.environment_too["INVOKE_RAYSIDE_WORKSHOP_PORT"]), done.stdout)
    rayside.run("workshop", "--remove", timeout=300, env=SMALL)


def test_nothing_is_made_where_it_is_only_asked_what_would_be(rayside: Rayside) -> None:
    before = namespaces(rayside)
    document = rayside.json("workshop", "--places", str(PLACES), "--dry-run", env=SMALL)
    assert [(place["namespace"], place["state"]) for place in document["places"]] == [
        (name, "missing") for name in NAMES
    ]
    assert namespaces(rayside) == before
    assert rayside.json("workshop", "--status", code=4, env=SMALL)["error"]["id"] == "not-running"


def test_too_many_places_are_refused_before_any_is_made(rayside: Rayside) -> None:
    before = namespaces(rayside)
    error = rayside.json("workshop", "--places", "900", code=4, env=SMALL)["error"]
    assert error["id"] == "no-room"
    assert "900 places of " in error["message"]
    assert " nodes of " in error["hint"]
    assert namespaces(rayside) == before


def test_places_are_ready_and_the_same_command_changes_nothing(event: Event) -> None:
    rayside = event.rayside
    before = uids(rayside)
    document = rayside.json("workshop", "--places", str(PLACES), timeout=600, env=SMALL)
    assert document == rayside.json("workshop", "--status", env=SMALL)
    for place, name in zip(document["places"], NAMES, strict=True):
        assert (place["namespace"], place["state"]) == (name, "ready")
        assert place["url"] == f"https://127.0.0.1:{event.port}"
    assert uids(rayside) == before
    listed = {row["name"] for row in rayside.json("list")}
    assert {NAME, *NAMES} <= listed


def test_a_place_has_the_size_that_was_counted_and_its_bounds(event: Event) -> None:
    for name in NAMES:
        place = kube(event.rayside).within(name)
        (quota,) = place.items(f"{CORE}/namespaces/{name}/resourcequotas")
        used = quota["status"]["used"]
        size = sum((of_pod(pod["spec"]) for pod in place.pods("")), NOTHING)
        assert (millicores(used["requests.cpu"]), octets(used["requests.memory"])) == (size.cpu, size.memory)
        (namespace,) = [
            each for each in place.items(f"{CORE}/namespaces") if each["metadata"]["name"] == name
        ]
        assert namespace["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "restricted"
        (policy,) = place.items(f"{POLICIES}/namespaces/{name}/networkpolicies")
        assert policy["spec"]["podSelector"] == {}
        assert set(policy["spec"]["policyTypes"]) == {"Ingress", "Egress"}
        assert all(pod["spec"]["automountServiceAccountToken"] is False for pod in place.pods(""))


def test_attendees_are_in_editors_of_their_own_and_one_too_many_is_told_so(
    event: Event, record_property: Callable[[str, object], None]
) -> None:
    with chromium() as chrome:
        contexts = [chrome.new_context(ignore_https_errors=True) for _ in range(PLACES)]
        took: list[float] = []
        for number, context in enumerate(contexts):
            page = context.new_page()
            began = time.monotonic()
            page.goto(f"https://127.0.0.1:{event.port}{event.join}")
            page.get_by_label("Your name").fill(f"Attendee {number}")
            page.get_by_role("button", name="Enter", exact=True).click()
            expect(page.locator(".monaco-workbench")).to_be_visible(timeout=180_000)
            took.append(time.monotonic() - began)
            # No password of the place is anywhere where its pages could read it.
            assert [cookie["name"] for cookie in context.cookies() if "session" in cookie["name"]] == []
        each = ", ".join(f"{seconds:.1f}" for seconds in took)
        record_property(FIGURE, f"attendees from the room's link to an editor: {each} s")
        late = chrome.new_context(ignore_https_errors=True).new_page()
        late.goto(f"https://127.0.0.1:{event.port}{event.join}")
        late.get_by_label("Your name").fill("Late")
        late.get_by_role("button", name="Enter", exact=True).click()
        expect(late.get_by_text("All places are taken")).to_be_visible()
    shown = event.rayside.run("workshop", "--status", env=SMALL).stdout
    assert all(f"Attendee {number}" in shown for number in range(PLACES))


def test_a_place_that_is_freed_is_the_next_attendees(event: Event) -> None:
    rayside = event.rayside
    document = rayside.json("workshop", "--free", "place-001", env=SMALL)
    assert [place["name"] for place in document["places"]] == ["place-001"]
    assert "Attendee 0" not in rayside.run("workshop", "--status", env=SMALL).stdout
    late = Browser(event.port)
    form = {**late.form(event.join), "name": "Late"}
    # The door looks every few seconds.
    assert until(lambda: late.go("/_door/claim", form).status, lambda status: status == 200, PATIENCE) == 200
    assert "Late" in rayside.run("workshop", "--status", env=SMALL).stdout
    assert (
        rayside.json("workshop", "--free", "place-009", code=2, env=SMALL)["error"]["id"]
        == "invalid-argument"
    )


def test_the_sheet_leads_into_each_place(event: Event, tmp_path: Path) -> None:
    for place in LABELS:
        seen = Browser(event.port).enter_by(event.code(tmp_path, place))
        assert (seen.status, "vscode" in seen.text) == (200, True)


def test_a_teacher_sees_a_lab_being_done_and_makes_it_anew(event: Event) -> None:
    teacher, place = event.teacher, NAMES[0]
    # What runs in a workspace without an editor is told by the next one that opens it.
    for _ in range(3):
        failed = event.in_workspace(place, "lab", LAB, "--check", "--json")
        assert json.loads(failed.stdout)["error"]["id"] == "not-solved", failed.stderr
    with at_work(event, "place-001"):
        teacher.sees("place-001", state="stuck", detail="the check failed 3 times")
        assert event.in_workspace(place, "lab", LAB, "--solve").returncode == 0
        done = event.in_workspace(place, "lab", LAB, "--check")
        assert done.returncode == 0, done.stdout + done.stderr
        seen = teacher.sees("place-001", state="working", labs_passed=1)
        assert re.fullmatch("Lab 1: .*, passed", seen["lab"])
        anew = event.rayside.json("workshop", "--reset", "place-001", env=SMALL, timeout=120)
        assert (anew["place"], [row["lab"] for row in anew["labs"]]) == ("place-001", [LAB])
        assert "/.kept/" in anew["labs"][0]["kept"]
        teacher.sees("place-001", labs_passed=0)
    # What an attendee has edited stays; what a teacher has changed comes to the others.
    assert event.in_workspace(place, "lab", LAB, "--solve").returncode == 0
    pushed = event.rayside.json("workshop", "--push", LAB, env=SMALL, timeout=120)
    assert [row["place"] for row in pushed["places"]] == LABELS
    edited, *others = (row["kept"] for row in pushed["places"])
    assert ("answers.yaml" in edited, others) == (True, [[]] * (PLACES - 1))
    error = event.rayside.json("workshop", "--reset", "place-001", "--lab", "99", code=2, env=SMALL)["error"]
    assert "99" in error["message"]


def test_who_asks_for_help_is_seen_and_their_stopped_task_is_watched(event: Event, tmp_path: Path) -> None:
    with (
        chromium() as chrome,
        tab(chrome, f"https://127.0.0.1:{event.port}", tmp_path / "attendee") as page,
        tab(chrome, event.teachers_link, tmp_path / "teacher") as teachers,
    ):
        page.goto(f"https://127.0.0.1:{event.port}/_door/place/{event.code(tmp_path, 'place-001')}")
        page.get_by_role("button", name="Enter this place").click()
        attendee = ready(page)
        tile = teachers.locator("li", has_text="Late")
        expect(tile).to_have_class("working")
        submitted = event.in_workspace(NAMES[0], "submit", "--json")
        job = json.loads(submitted.stdout)["submission_id"]
        _stop(attendee)
        expect(tile).to_have_class("stopped")
        attendee.help_item.click()
        attendee.pick("Ask for help: the teacher may look")
        attendee.type_in_box("<b>why</b> is it 4?")
        expect(tile).to_have_class("help")
        expect(tile.get_by_text("<b>why</b> is it 4?")).to_be_visible()
        # The key is in no address any more, and the page has all places on one screen.
        assert "#" not in teachers.url
        with teachers.expect_popup() as opened:
            tile.get_by_role("link", name="Look into the place").click()
        opened.value.get_by_role("button", name="Enter this place").click()
        watching = ready(opened.value)
        _stop(watching, "Watch")
        expect(watching.variable("points")).to_have_attribute("aria-label", "points, value 400000")
        # Both see it, and the attendee alone moves it.
        attendee.press("Continue")
        expect(watching.thread("estimate", "Paused")).to_have_count(0)
        assert job in event.in_workspace(NAMES[0], "logs", "--job", job).stdout
        attendee.help_item.click()
        attendee.pick("No help is needed")
        expect(tile).to_have_class(re.compile("working|idle"))


def room(rayside: Rayside) -> str:
    """Returns what is said of the room for places, where more are asked for than there is."""
    message = rayside.json("workshop", "--places", "900", code=4, env=SMALL)["error"]["message"]
    return str(message.rpartition("the cluster has ")[2])


def test_a_lunch_break_takes_the_workers_and_gives_them_back(event: Event) -> None:
    rayside, cluster = event.rayside, kube(event.rayside)

    def pods() -> list[int]:
        return [len(cluster.within(name).pods(f"ray.io/cluster={name}")) for name in NAMES]

    before, free = uids(rayside), room(rayside)
    # How many workers there were is known without the settings of then.
    paused = rayside.json("workshop", "--pause", timeout=200)
    assert [place["state"] for place in paused["places"]] == ["paused"] * PLACES
    assert pods() == [1] * PLACES
    assert rayside.json("workshop", "--pause") == paused
    # What they have given back is not free for others.
    assert room(rayside) == free
    # It is as it should be, and stays so.
    own = {**SMALL, environment_name("target"): "auto"}
    steps = {step["name"]: step for step in rayside.json("status", "--name", NAMES[1], env=own)["steps"]}
    assert "paused, without workers" in steps["ray-cluster"]["detail"]
    assert steps["ray-cluster"]["condition"] == "ready"
    resumed = rayside.json("workshop", "--resume", timeout=300)
    assert [place["state"] for place in resumed["places"]] == ["ready"] * PLACES
    assert (pods(), uids(rayside)) == ([2] * PLACES, before)


def test_places_where_nothing_is_done_are_paused_until_something_is(event: Event, tmp_path: Path) -> None:
    rayside = event.rayside
    # Its task stands at a breakpoint.
    submitted = event.in_workspace(NAMES[0], "submit", "--json")
    assert submitted.returncode == 0, submitted.stderr
    once = rayside.json("workshop", "--pause", "--idle", "1440", timeout=200)
    assert [place["state"] for place in once["places"]] == ["ready"] * PLACES

    def states() -> list[str]:
        return [place["state"] for place in rayside.json("workshop", "--status")["places"]]

    def expect_states(*expected: str) -> None:
        assert until(states, lambda seen: seen == [*expected], 180) == [*expected]

    ends = (datetime.now() + timedelta(hours=1)).isoformat(timespec="seconds")
    words = ("workshop", "--until", ends, "--collect", str(tmp_path / "the files"), "--idle", "1")
    culling = rayside.start(*words)
    try:
        expect_states("ready", "paused", "paused")
        with at_work(event, "place-002"):
            expect_states("ready", "ready", "paused")
    finally:
        culling.send_signal(signal.SIGINT)
        printed, _ = culling.communicate(timeout=60)
    assert "place-003 is paused: nothing was done in it for 1 min" in printed, printed
    assert "place-002 gets its workers again" in printed
    assert "place-001" not in printed
    resumed = rayside.json("workshop", "--resume", timeout=300)
    assert [place["state"] for place in resumed["places"]] == ["ready"] * PLACES
    assert not [*(tmp_path / "the files").iterdir()]


def test_an_attendee_takes_their_files_home(event: Event, tmp_path: Path) -> None:
    assert event.in_workspace(NAMES[0], "lab", LAB, "--solve").returncode == 0
    link = f"https://127.0.0.1:{event.port}/_door/place/{event.code(tmp_path, 'place-001')}"
    with chromium() as chrome, tab(chrome, link, tmp_path / "evidence") as page:
        page.get_by_role("button", name="Enter this place").click()
        ready(page).command("Ray: Take My Files Home")
        with page.context.expect_page() as opened:
            page.get_by_role("button", name="Open the Page").click(timeout=60_000)
        last = opened.value
        expect(last.get_by_text("cd rayside && ./invokew up")).to_be_visible()
        assert last.url == f"https://127.0.0.1:{event.port}/_door/home"
        with last.expect_download() as download:
            last.get_by_role("link", name="Download place-001.tar.gz").click()
        with tarfile.open(download.value.path()) as archive:
            names = archive.getnames()
        assert f"labs/{LAB}/answers.yaml" in names
        assert [name for name in names if name.startswith("labs/.jobs/")]
    # Another browser, of another place, gets none of it.
    neighbour = Browser(event.port)
    neighbour.enter_by(event.code(tmp_path, "place-002"))
    assert neighbour.go("/_door/home/files").status == 404


# What is tried in one place for what another one has: the dashboard and Ray's own way in with a token, the
# editor without a password, and the port of the relay.
ATTACK = """
import http.client, json, os, socket, subprocess, sys
host, token = sys.argv[1:]
def status(port, path, **headers):
    connection = http.client.HTTPConnection(host, port, timeout=60)
    connection.request("GET", path, headers=headers)
    answer = connection.getresponse()
    return answer.status, answer.getheader("Location")
ray = subprocess.run(
    ["ray", "status", "--address", f"{host}:6379"],
    env={**os.environ, "RAY_AUTH_TOKEN": token}, capture_output=True, timeout=120,
)
try:
    relay = socket.create_connection((socket.gethostbyname(host), 5678), 10) and "connected"
except ConnectionRefusedError:
    relay = "refused"
print(json.dumps({
    "jobs": status(8265, "/api/jobs/", Authorization=f"Bearer {token}")[0],
    "editor": status(8443, "/"),
    "ray": ray.returncode == 0,
    "relay": relay,
}))
"""


def test_one_place_gets_nothing_of_another(event: Event) -> None:
    """No policy is enforced here, so that only tokens and passwords are between them: each is asked for."""
    cluster = kube(event.rayside)
    first, second = NAMES[:2]
    host = cluster.within(second).pods(head_selector(second))[0]["status"]["podIP"]
    tokens = [_secret(cluster.within(name), name, "auth_token") for name in (first, second)]
    own, theirs = (json.loads(event.in_head(first, "python", "-c", ATTACK, host, token)) for token in tokens)
    closed = {"editor": [302, "./login"], "relay": "refused"}
    assert own == {"jobs": 403, "ray": False, **closed}
    # The control: all of it is in reach, and with the token of the other place it is open.
    assert theirs == {"jobs": 200, "ray": True, **closed}
    listed = "ls /var/run/secrets/kubernetes.io 2>&1 || true"
    assert "No such file" in event.in_head(first, "sh", "-c", listed)


def test_a_workspace_that_starts_anew_has_what_its_attendee_edited(event: Event) -> None:
    """As one whose memory ran out."""
    first = NAMES[0]
    place, folder = kube(event.rayside).within(first), f"/home/ray/rayside/labs/{LAB}"

    def starts() -> list[int]:
        (pod,) = place.pods(head_selector(first))
        statuses = pod["status"]["containerStatuses"]
        return [each["restartCount"] for each in statuses if each["name"] == "workspace" and each["ready"]]

    def in_workspace(*command: str) -> int:
        return event.run_in(first, "workspace", *command).returncode

    (before,) = starts()
    # The lab may not be begun yet.
    write = f"mkdir -p {folder} && echo mine > {folder}/mine.txt"
    assert in_workspace("sh", "-c", write) == 0
    in_workspace("sh", "-c", "touch ~/of-this-container && kill 1")
    assert until(starts, lambda counts: counts == [before + 1], 120) == [before + 1]
    assert until(lambda: event.in_workspace(first, "labs").returncode, lambda code: code == 0, 60) == 0
    assert in_workspace("test", "-e", "/home/ray/of-this-container") == 1
    assert in_workspace("grep", "-qx", "mine", f"{folder}/mine.txt") == 0


def test_the_cluster_is_not_removed_from_under_its_places(event: Event) -> None:
    error = event.rayside.run("down")
    assert (error.returncode, "has-places" in error.stderr) == (4, True)
    assert kube(event.rayside).ray("rayclusters", NAME)


def test_a_place_that_is_looked_at_gets_forwards(event: Event) -> None:
    name = NAMES[0]
    # The tests' cluster says its target and its ports; a user says none.
    ports = zip(("dashboard", "ray_client", "relay", "workspace"), free_ports(4), strict=True)
    own = {environment_name(f"{port}_port"): str(number) for port, number in ports}
    own |= {**SMALL, environment_name("target"): "auto"}
    status = event.rayside.json("status", "--name", name, env=own)
    lacking = [step["name"] for step in status["steps"] if step["condition"] != "ready"]
    assert lacking == ["forwards"]
    done = event.rayside.run("up", "--name", name, env=own, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    # What its attendee has submitted.
    paused = event.rayside.json("breakpoints", "--name", name, env=own)
    assert [row["task"] for row in paused] == ["estimate"]
    # The workshop's own command leaves them.
    assert event.rayside.json("workshop", "--places", str(PLACES), env=SMALL)["places"][0]["state"] == "ready"
    assert event.rayside.json("status", "--name", name, env=own)["ready"] is True


def test_a_place_that_mines_leaves_the_way_to_the_others(event: Event) -> None:
    first, second = NAMES[:2]
    # Eight processes.
    mines = (
        "import os, time\nend = time.time() + 30\nfor _ in range(3): os.fork()\nwhile time.time() < end: pass"
    )
    worker = kube(event.rayside).within(second).pods("ray.io/node-type=worker")[0]["metadata"]["name"]
    command = ("exec", worker, "-n", second, "-c", "ray-worker", "--", "python", "-c", mines)

    def there() -> bool:
        try:
            return Browser(event.port).go(event.join).status == 200
        # A forward gives one who waits up after five seconds.
        except OSError:
            return False

    with ThreadPoolExecutor(1) as pool:
        mining = pool.submit(kubectl, event.rayside, *command)
        while not mining.done():
            # By a forward, which leads nowhere while the kubelet does nothing.
            assert until(there, bool, PATIENCE)
            assert event.in_head(first, "echo", "there") == "there\n"
    mining.result()
    # The rest would pass, most often, without this. The exit code tells: what is printed may be lost.
    weighs = "systemctl show --property CPUWeight kubelet | grep --line-regexp CPUWeight=800"
    with node_of(event.rayside) as node:
        assert node.exec_run(["sh", "-c", weighs]).exit_code == 0


def test_a_place_whose_node_died_says_so_until_it_is_back(event: Event) -> None:
    rayside, words = event.rayside, ("workshop", "--status")
    lost = f"its node {target(rayside).cluster.node} does not answer"

    def shown() -> str:
        return rayside.run(*words, env=SMALL).stdout

    def states() -> list[str]:
        return [place["state"] for place in rayside.json(*words, env=SMALL)["places"]]

    with node_of(rayside) as node:
        try:
            assert node.exec_run(["systemctl", "stop", "kubelet"]).exit_code == 0
            # Kubernetes waits for less than a minute before it gives a node up: node-monitor-grace-period.
            # Each place has a head and a worker.
            assert until(shown, lambda text: text.count(lost) == 2 * PLACES, 120).count(lost) == 2 * PLACES
            assert states() == ["starting"] * PLACES
            # What is asked of the node fails soon, and says where to look.
            error = rayside.json("workshop", "--reset", "place-001", code=4, env=SMALL, timeout=60)["error"]
            assert lost in error["message"]
        finally:
            assert node.exec_run(["systemctl", "start", "kubelet"]).exit_code == 0
    assert until(states, lambda seen: seen == ["ready"] * PLACES, 120) == ["ready"] * PLACES


def test_a_place_that_forks_without_end_leaves_the_others_room(event: Event) -> None:
    # A thread counts as a process does, and takes less.
    forks = (
        "import threading\n"
        "threading.stack_size(65536)\n"
        "held = threading.Event()\n"
        "began = 0\n"
        "try:\n"
        "    while began < 20000:\n"
        "        threading.Thread(target=held.wait, daemon=True).start()\n"
        "        began += 1\n"
        "except RuntimeError as error: print(error)\n"
        "print(began, flush=True)\n"
        "held.wait(10)\n"
    )
    first, second = NAMES[:2]
    worker = kube(event.rayside).within(second).pods("ray.io/node-type=worker")[0]["metadata"]["name"]
    command = ("exec", worker, "-n", second, "-c", "ray-worker", "--", "python", "-c", forks)
    with ThreadPoolExecutor(1) as pool:
        # The worker, which its attendee may spoil, and nobody needs any more.
        forking = pool.submit(kubectl, event.rayside, *command)
        while not forking.done():
            assert event.in_head(first, "sh", "-c", "(echo there)") == "there\n"
    refusal, began = forking.result().splitlines()
    assert "can't start new thread" in refusal
    assert 4000 < int(began) < 8192


def test_a_workshop_ends_with_everybodys_files_and_nothing_is_left(event: Event, tmp_path: Path) -> None:
    rayside, cluster = event.rayside, kube(event.rayside)
    ends = (datetime.now() + timedelta(seconds=45)).isoformat(timespec="seconds")
    words = ("workshop", "--until", ends, "--collect", str(tmp_path / "the files"))
    document = rayside.json(*words, timeout=300, env={**SMALL, environment_name("cpu_hour_price"): "2"})
    assert document["places"] == []
    used = document["used"]
    assert (used["places"], used["cost"]) == (PLACES, pytest.approx(2 * used["cpu_hours"], abs=0.01))
    assert 0 < used["cpu_hours"] < PLACES * used["hours"]
    assert [row["place"] for row in document["files"]] == LABELS
    for row in document["files"]:
        file = Path(row["file"])
        assert (stat.S_IMODE(file.stat().st_mode), file.stat().st_size) == (0o600, row["bytes"])
    with tarfile.open(document["files"][0]["file"]) as archive:
        assert f"labs/{LAB}/answers.yaml" in archive.getnames()
        assert all(member.isfile() and member.name.startswith("labs/") for member in archive.getmembers())
    assert until(lambda: namespaces(rayside) & {*NAMES}, lambda left: not left, 60) == set()
    core = f"{CORE}/namespaces/{cluster.namespace}"

    def of_the_door() -> list[str]:
        kinds = ("pods", "services", "secrets", "configmaps", "serviceaccounts")
        return [kind for kind in kinds if cluster.items(f"{core}/{kind}", f"rayside.dev/door={NAME}")]

    assert until(of_the_door, lambda left: not left, 60) == []
    assert cluster.items(f"{RAY}/rayclusters", f"rayside.dev/workshop={NAME}") == []
    assert [row["name"] for row in rayside.json("list")] == [NAME]
    assert cluster.ray("rayclusters", NAME)
    assert rayside.run("workshop", "--remove", env=SMALL).returncode == 0


@contextmanager
def at_work(event: Event, place: str) -> Iterator[Workbench]:
    """Has an attendee's editor open in a place."""
    folder = Path(tempfile.mkdtemp())
    link = f"https://127.0.0.1:{event.port}/_door/place/{event.code(folder, place)}"
    with chromium() as chrome, tab(chrome, link, folder / "evidence") as page:
        page.get_by_role("button", name="Enter this place").click()
        yield ready(page)


def _stop(workbench: Workbench, takes: str = "") -> None:
    """Clicks the paused task of the example, and says what is to happen with who debugs it already."""
    # Jobs write where the editor has their files: docs/adr/0012.
    workbench.trust_when_asked()
    workbench.open_view("Ray")
    workbench.row("Paused task estimate").click()
    if takes:
        workbench.page.get_by_role("dialog").get_by_role("button", name=takes).click()
    expect_example_stopped(workbench)


def _secret(cluster: Any, name: str, key: str) -> str:
    document = cluster.get(f"{CORE}/namespaces/{cluster.namespace}/secrets/{name}")
    return base64.b64decode(document["data"][key]).decode()
