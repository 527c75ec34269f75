"""Tests that the workspace image serves code-server as in the head's pod: real image, real engine."""

from __future__ import annotations

import dataclasses
import http.client
import json
import re
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol, TypeVar

import docker
import pytest
import requests
from docker.models.containers import Container

from bootstrap.labs.lesson import lessons
from bootstrap.settings import Settings
from bootstrap.sources.base_image import BaseImage
from bootstrap.sources.built_here import packages
from bootstrap.sources.image_build import ImageBuild, certificates
from rayside.steps.step import Condition, Step
from rayside.system.shell import Shell
from rayside.waiting import until
from tests.at_once import AT_ONCE
from tests.conftest import FIGURE
from tests.integration.vsix import vsix, without_asking
from tests.patience import PATIENCE

PASSWORD = "correct horse battery staple"
NODE = "/opt/workspace/bin/node"
MODULES = "/opt/workspace/node_modules/code-server/lib/vscode/node_modules"
SETTINGS = ".local/share/code-server/User/settings.json"
CODE_SERVER = (NODE, "/opt/workspace/node_modules/code-server/out/node/entry.js")
# What k8s/ray-cluster.yaml gives the container.
CAPABILITIES = ["CHOWN", "SETGID", "SETUID"]

Found = TypeVar("Found")


class Start(Protocol):
    def __call__(self, **options: Any) -> Container: ...


def make_image(step: Step) -> str:
    """Makes the image unless the engine has it, and returns its reference."""
    assert isinstance(step, (BaseImage, ImageBuild))
    if step.check().condition is Condition.MISSING:
        step.apply(lambda _: None)
    return step.reference


@pytest.fixture(scope="module")
def steps() -> dict[str, Step]:
    """Returns the steps of source `packages`, by name."""
    settings = Settings()
    settings.cache_folder.mkdir(parents=True, exist_ok=True)
    return {step.name: step for step in packages(settings, without_asking(settings), Shell()).steps}


@pytest.fixture(scope="module")
def ray_image(steps: dict[str, Step]) -> str:
    """Makes the image that the workspace is built on, and first the base of that image."""
    make_image(steps["base-image"])
    return make_image(steps["ray-image"])


@pytest.fixture(scope="module")
def image(steps: dict[str, Step], ray_image: str) -> str:
    return make_image(steps["workspace-image"])


@pytest.fixture(scope="module")
def engine() -> Iterator[docker.DockerClient]:
    client = docker.from_env()
    yield client
    client.close()


@pytest.fixture
def start(engine: docker.DockerClient, image: str) -> Iterator[Start]:
    """Starts the image as the pod does; the arguments replace the pod's."""
    started: list[Container] = []

    def run(**options: Any) -> Container:
        pod: dict[str, Any] = {
            "image": image,
            "environment": {"PASSWORD": PASSWORD},
            "cap_drop": ["ALL"],
            "cap_add": CAPABILITIES,
            "security_opt": ["no-new-privileges"],
            "ports": {"8443/tcp": ("127.0.0.1", None)},
        }
        started.append(engine.containers.run(**{**pod, **options}, detach=True))
        return started[-1]

    yield run
    for container in started:
        container.remove(force=True)


@pytest.fixture(scope="module")
def served(engine: docker.DockerClient, image: str) -> Iterator[Container]:
    """Provides a container that serves, for the tests that only look at it."""
    container = engine.containers.run(
        image,
        environment={"PASSWORD": PASSWORD, "PUID": "1234", "PGID": "2345", "TZ": "Asia/Shanghai"},
        cap_drop=["ALL"],
        cap_add=CAPABILITIES,
        security_opt=["no-new-privileges"],
        ports={"8443/tcp": ("127.0.0.1", None)},
        detach=True,
    )
    healthy(container)
    yield container
    container.remove(force=True)


def eventually(look: Callable[[], Found | None], patience: float = 120) -> Found:
    deadline = time.monotonic() + patience
    while time.monotonic() < deadline:
        if result := look():
            return result
        time.sleep(0.05)
    raise AssertionError(f"not within {patience} s")


def address(container: Container) -> str:
    container.reload()
    return f"http://127.0.0.1:{container.ports['8443/tcp'][0]['HostPort']}"


def healthy(container: Container) -> requests.Response:
    def look() -> requests.Response | None:
        container.reload()
        assert container.status == "running", container.logs().decode()
        try:
            answer = requests.get(f"{address(container)}/healthz", timeout=PATIENCE)
        except (requests.RequestException, KeyError):
            return None
        return answer if answer.ok else None

    return eventually(look)


def until_logged(container: Container, words: str) -> None:
    deadline = time.monotonic() + 120
    while words not in (log := container.logs().decode()):
        assert time.monotonic() < deadline, log
        time.sleep(0.05)


def wait_for_end(container: Container) -> tuple[int, str]:
    """Returns the exit code, and everything that was printed."""
    code = container.wait(timeout=120)["StatusCode"]
    return code, container.logs().decode()


def execute(container: Container, *command: str, **options: Any) -> str:
    code, output = container.exec_run(list(command), **options)
    assert code == 0, output.decode()
    return str(output.decode().strip())


def login(container: Container, password: str) -> tuple[requests.Session, requests.Response]:
    session = requests.Session()
    answer = session.post(
        f"{address(container)}/login", data={"password": password}, allow_redirects=False, timeout=PATIENCE
    )
    return session, answer


def processes(container: Container) -> dict[str, dict[str, str]]:
    """Returns the lines of /proc/PID/status of every process except those of `exec`, by pid."""
    dump = execute(
        container, "sh", "-c", "for f in /proc/[0-9]*/status; do cat $f; echo; done 2>/dev/null", user="0"
    )
    by_pid = {}
    for block in dump.split("\n\n"):
        status = dict(re.findall(r"^(\w+):\s*(.*)$", block, re.M))
        if status:
            by_pid[status["Pid"]] = status
    inside = {pid for pid, status in by_pid.items() if status["PPid"] == "0" and pid != "1"}
    while more := {pid for pid, status in by_pid.items() if status["PPid"] in inside} - inside:
        inside |= more
    return {pid: status for pid, status in by_pid.items() if pid not in inside}


def code_server(container: Container) -> str:
    """Returns the pid, inside, of the process that the entrypoint started."""
    # A look at /proc is not of one moment: it may miss a process.
    children = until(
        lambda: [pid for pid, status in processes(container).items() if status["PPid"] == "1"], bool, PATIENCE
    )
    return children[0]


def kill(container: Container) -> set[str]:
    """Kills that process; returns the pids that then have to end: its own, and its serving child's."""
    old = processes(container).keys() - {"1"}
    execute(container, "sh", "-c", f"kill -9 {code_server(container)}", user="1000")
    return old


# --- who gets in -------------------------------------------------------------------------


def test_the_password_opens_the_workbench(served: Container) -> None:
    session, answer = login(served, PASSWORD)
    assert answer.status_code == 302
    assert session.cookies
    page = session.get(f"{address(served)}/", timeout=PATIENCE)
    assert "workbench.js" in page.text
    assert "folder=/home/workspace" in page.url
    # What the page loads first is there, so nothing of it was pruned.
    script = next(source for source in re.findall(r'src="([^"]+)"', page.text) if "workbench.js" in source)
    assert session.get(requests.compat.urljoin(page.url, script), timeout=PATIENCE).status_code == 200


def test_a_hashed_password_does_too(start: Start, served: Container) -> None:
    make = "require('argon2').hash(process.argv[1]).then(hash => console.log(hash))"
    hashed = execute(served, NODE, "-e", make, "another", workdir="/opt/workspace")
    container = start(environment={"HASHED_PASSWORD": hashed})
    healthy(container)
    assert login(container, "wrong")[1].status_code == 200
    assert login(container, "another")[1].status_code == 302


@pytest.mark.parametrize("environment", [{}, {"PASSWORD": "", "HASHED_PASSWORD": ""}])
def test_without_a_password_nothing_starts(start: Start, environment: dict[str, str]) -> None:
    code, log = wait_for_end(start(environment=environment))
    assert code == 2
    assert log == "workspace: set PASSWORD or HASHED_PASSWORD: without one, nothing starts\n"


def test_the_password_is_on_no_command_line(served: Container) -> None:
    # Wide: the engine may have been started from a terminal of 80 columns.
    commands = json.dumps(served.top(ps_args="-efww"))
    assert "entry.js" in commands
    assert PASSWORD not in commands


def upgrade_status(container: Container, session: requests.Session, origin: str) -> int:
    """Returns the status that a browser's request for a WebSocket gets, from a page at `origin`."""
    headers = {
        **{"Upgrade": "websocket", "Connection": "Upgrade"},
        **{"Sec-WebSocket-Version": "13", "Sec-WebSocket-Key": "cmF5c2lkZS1yYXlzaWRlLQ=="},
        **{
            "Origin": origin,
            "Cookie": "; ".join(f"{name}={value}" for name, value in session.cookies.items()),
        },
    }
    connection = http.client.HTTPConnection(address(container).removeprefix("http://"), timeout=PATIENCE)
    try:
        connection.request("GET", "/", headers=headers)
        return connection.getresponse().status
    finally:
        connection.close()


def test_where_a_proxy_rewrites_the_host_only_pages_of_named_hosts_get_a_websocket(start: Start) -> None:
    trusted = "space-8443.ports.test *.more.test"
    container = start(environment={"PASSWORD": PASSWORD, "TRUSTED_ORIGINS": trusted})
    healthy(container)
    session, _ = login(container, PASSWORD)
    for origin, status in {
        address(container): 101,
        "https://space-8443.ports.test": 101,
        "https://one.more.test": 101,
        "https://other-8443.ports.test": 403,
    }.items():
        assert upgrade_status(container, session, origin) == status, origin


@pytest.mark.parametrize("value", ["https://a.test", "a.test,b.test", "--auth=none", "*", "a.test $(id)"])
def test_a_trusted_origin_that_is_no_host_is_refused(start: Start, value: str) -> None:
    code, log = wait_for_end(start(environment={"PASSWORD": PASSWORD, "TRUSTED_ORIGINS": value}))
    assert code == 2
    assert log.startswith("workspace: TRUSTED_ORIGINS has '")


# --- as whom it runs ---------------------------------------------------------------------


def test_everything_runs_as_puid_and_pgid_without_any_capability(served: Container) -> None:
    statuses = processes(served)
    assert len(statuses) >= 2
    for status in statuses.values():
        assert status["Uid"].split() == ["1234"] * 4
        assert status["Gid"].split() == ["2345"] * 4
        assert status["NoNewPrivs"] == "1"
        for kind in ("CapInh", "CapPrm", "CapEff", "CapAmb"):
            assert int(status[kind], 16) == 0, kind


def test_its_files_are_those_of_puid_and_pgid(served: Container) -> None:
    owners = execute(served, "find", "/home/workspace", "-printf", "%U:%G\n", user="1234")
    assert set(owners.split()) == {"1234:2345"}
    assert json.loads(execute(served, "cat", f"/home/workspace/{SETTINGS}", user="1234"))


def test_unless_told_it_is_the_user_of_ray(start: Start) -> None:
    container = start()
    healthy(container)
    assert {status["Uid"].split()[0] for status in processes(container).values()} == {"1000"}
    assert execute(container, "stat", "-c", "%U:%g", f"/home/ray/{SETTINGS}") == "ray:100"


@pytest.mark.parametrize("user", ["1000:100", "4321:4321"])
def test_it_serves_without_root_as_whoever_it_is(start: Start, user: str) -> None:
    container = start(
        user=user, cap_add=[], environment={"PASSWORD": PASSWORD, "PUID": "77", "EXTENSIONS_GALLERY": "{}"}
    )
    healthy(container)
    assert {status["Uid"].split()[0] for status in processes(container).values()} == {user.split(":")[0]}
    assert "PUID=77 has no effect" in container.logs().decode()
    assert login(container, PASSWORD)[1].status_code == 302


@pytest.mark.parametrize(("name", "value"), [("PUID", "0"), ("PUID", "ray"), ("PGID", "-1")])
def test_a_bad_id_is_named(start: Start, name: str, value: str) -> None:
    code, log = wait_for_end(start(environment={"PASSWORD": PASSWORD, name: value}))
    assert code == 2
    assert f"{name} is '{value}'" in log


def test_settings_of_the_user_are_kept(start: Start) -> None:
    container = start()
    healthy(container)
    execute(container, "sh", "-c", f"echo '{{\"mine\": 1}}' > /home/ray/{SETTINGS}", user="1000")
    container.restart(timeout=5)
    healthy(container)
    assert json.loads(execute(container, "cat", f"/home/ray/{SETTINGS}")) == {"mine": 1}


# --- time zone, folder, programs ---------------------------------------------------------


def test_the_time_zone_is_applied(served: Container) -> None:
    assert execute(served, "date", "+%z") == "+0800"


def test_an_unknown_time_zone_is_told_and_does_no_harm(start: Start) -> None:
    container = start(environment={"PASSWORD": PASSWORD, "TZ": "Mars/Base"})
    healthy(container)
    assert "TZ=Mars/Base is not a known time zone" in container.logs().decode()


def test_the_default_workspace_is_opened(start: Start) -> None:
    container = start(environment={"PASSWORD": PASSWORD, "DEFAULT_WORKSPACE": "/opt"})
    healthy(container)
    session, _ = login(container, PASSWORD)
    assert "folder=/opt" in session.get(f"{address(container)}/", timeout=PATIENCE).url


@pytest.mark.parametrize("shell", ["-c", "-lc", "-ic"])
def test_every_kind_of_terminal_finds_ray(served: Container, shell: str) -> None:
    for program in ("ray", "python"):
        output = execute(served, "bash", shell, f"command -v {program}", user="1234")
        # Beside it an interactive bash without a terminal complains, in no fixed order.
        assert f"/opt/ray/bin/{program}" in output.splitlines()


@pytest.mark.parametrize(
    "use",
    [
        "require('node-pty').spawn('/bin/true', []).onExit(end => process.exit(end.exitCode))",
        "require('@parcel/watcher').getEventsSince",
        "require('/opt/workspace/node_modules/argon2').hash('x').then(() => process.exit(0))",
        "require('child_process').execFileSync(require('fs').globSync("
        "'@vscode/ripgrep-universal/bin/*/rg')[0], ['--version'])",
    ],
)
def test_what_is_native_still_works_after_pruning(served: Container, use: str) -> None:
    execute(served, NODE, "-e", use, workdir=MODULES, user="1234")


def test_it_logs_without_the_compiled_logger(served: Container) -> None:
    logs = "/home/workspace/.local/share/code-server/logs"
    login(served, PASSWORD)[0].get(f"{address(served)}/", timeout=PATIENCE)
    eventually(lambda: "[info]" in execute(served, "sh", "-c", f"cat {logs}/*/*.log", user="1234"))
    assert "[error]" not in execute(served, "sh", "-c", f"cat {logs}/*/*.log", user="1234")


# --- the cluster beside it ---------------------------------------------------------------


def test_its_editor_and_terminals_find_the_cluster(served: Container) -> None:
    pid = code_server(served)
    environment = execute(
        served, "sh", "-c", f"tr '\\0' '\\n' < /proc/{pid}/environ", user="1234"
    ).splitlines()
    assert {
        "RAYSIDE_WORKSPACE=1",
        "RAYSIDE_CLUSTER_FILE=/home/workspace/rayside/.state/cluster.json",
        "RAY_AUTH_MODE=token",
        "RAY_AUTH_TOKEN_PATH=/run/ray/auth_token",
        "RAY_API_SERVER_ADDRESS=http://127.0.0.1:8265",
    } <= set(environment)
    known = execute(served, "cat", "/home/workspace/rayside/.state/cluster.json", user="1234")
    cluster_file = json.loads(known)
    assert (cluster_file["shared_files"], cluster_file["target"]) == (True, "pod")
    assert cluster_file["relay"] == {"host": "127.0.0.1", "port": 5678}
    assert cluster_file == {
        **json.loads(execute(served, "cat", "/opt/workspace/cluster.json")),
        "verbs": ["/home/workspace/rayside/invokew"],
    }


def test_it_has_the_verbs_and_the_labs(served: Container) -> None:
    environment = {"INVOKE_RAYSIDE_STATE_FOLDER": "/home/workspace/rayside/.state"}
    environment |= {"HOME": "/home/workspace", "PATH": "/opt/ray/bin:/usr/bin:/bin"}

    def verb(*words: str) -> tuple[int, Any]:
        words = ("/home/workspace/rayside/invokew", *words, "--json")
        code, output = served.exec_run(words, environment=environment, user="1234", demux=True)
        return code, json.loads(output[0])

    code, labs = verb("labs")
    assert code == 0
    assert [lab["name"] for lab in labs] == [lesson.name for lesson in lessons()]
    # There is no Ray beside this one.
    assert verb("lab", "1")[1]["error"]["id"] == "not-running"
    # It needs a target that this is not.
    assert "where Rayside was cloned" in verb("lab", "12")[1]["error"]["hint"]


def test_it_submits_with_the_command_of_its_cluster_file(served: Container) -> None:
    cluster_file = json.loads(execute(served, "cat", "/opt/workspace/cluster.json"))
    words = [*cluster_file["submit"], "--working-dir", "/nowhere", "--entrypoint", "python x.py", "--json"]
    code, output = served.exec_run(words, environment=cluster_file["environment"], user="1234", demux=True)
    assert code == 2
    assert json.loads(output[0])["error"]["id"] == "missing-working-dir"


def test_the_interpreter_is_that_of_the_cluster(served: Container) -> None:
    file = "/home/workspace/.local/share/code-server/Machine/settings.json"
    settings = json.loads(execute(served, "cat", file, user="1234"))
    assert settings["python.defaultInterpreterPath"] == "/opt/ray/bin/python"


# --- life and death ----------------------------------------------------------------------


def test_it_ends_within_two_seconds(start: Start) -> None:
    container = start()
    healthy(container)
    began = time.monotonic()
    container.stop(timeout=10)
    assert time.monotonic() - began < AT_ONCE
    container.reload()
    assert container.attrs["State"]["ExitCode"] == 0


def test_a_code_server_that_was_killed_comes_back_and_the_container_stays(start: Start) -> None:
    container = start()
    healthy(container)
    before = container.attrs["State"]["StartedAt"]
    for pause in (1, 2):
        old = kill(container)
        until_logged(container, f"code-server ended with exit code 137; again in {pause} s")
        eventually(lambda ended_pids=old: not ended_pids & processes(container).keys() or None)  # type: ignore[misc]
        healthy(container)
    container.reload()
    assert container.attrs["State"]["StartedAt"] == before


def test_orphans_are_reaped(served: Container) -> None:
    name = f"/tmp/orphan-{uuid.uuid4().hex[:6]}"
    execute(served, "sh", "-c", f"cp /bin/sleep {name}; ({name} 0.2 & echo $! > {name}.pid)", user="1234")
    pid = execute(served, "cat", f"{name}.pid")
    eventually(lambda: pid not in processes(served) or None)


# --- what is in the image ----------------------------------------------------------------


def test_nothing_of_the_build_is_left(served: Container, start: Start) -> None:
    bundle = certificates()
    left = "test ! -e /build && test ! -e /ca-certificates.crt && ! command -v npm && ! command -v gcc"
    execute(served, "sh", "-c", left, user="0")
    if bundle:
        places = ("/opt/workspace", "/root", "/home/ray", "/tmp")
        # The entrypoint makes folders that only the workspace's user may read; the image alone is looked at.
        looker = start(
            entrypoint=["find", *places, "-size", f"{len(bundle)}c"],
            user="0",
            cap_add=["DAC_READ_SEARCH"],
            environment={},
            ports={},
        )
        assert wait_for_end(looker) == (0, "")


def layers(container: Container, image: str, below: str) -> tuple[int, int]:
    """Returns the bytes of Ray's layers, and of those that the workspace's image adds.

    The engine counts each layer's files once, as the node does.
    """
    client = container.client
    assert client is not None
    own, shared = (client.images.get(name).attrs for name in (image, below))
    count = len(shared["RootFS"]["Layers"])
    assert own["RootFS"]["Layers"][:count] == shared["RootFS"]["Layers"]
    return shared["Size"], own["Size"] - shared["Size"]


def test_its_memory_and_size_are_bounded(
    record_property: Callable[[str, object], None], image: str, ray_image: str, start: Start
) -> None:
    container = start()
    healthy(container)
    used = container.stats(stream=False)["memory_stats"]
    memory = (
        used["usage"] - used["stats"].get("total_inactive_file", used["stats"].get("inactive_file", 0))
    ) >> 20
    ray, added = layers(container, image, ray_image)
    share = added / ray
    size = f"{added / 1e6:.0f} MB over Ray's {ray / 1e6:.0f}: {share:.0%}"
    record_property(FIGURE, f"workspace: {memory} MiB after start; {size}")
    assert memory < 400
    assert share <= 0.55


def installed(container: Container, user: str) -> dict[str, str]:
    """Returns the version by id, as code-server's own command line lists them to the user."""
    home = "/home/ray" if user == "1000" else "/home/workspace"
    listed = execute(
        container, *CODE_SERVER, "--list-extensions", "--show-versions", user=user, environment={"HOME": home}
    )
    return dict(line.split("@") for line in listed.splitlines() if "@" in line)


def test_our_extension_is_installed_and_nobody_can_change_it(served: Container) -> None:
    assert installed(served, "1234")["rayside.ray-breakpoints"]
    written = "find /opt/workspace /opt/rayside -writable ! -type l -not -path '/proc/*' | head -3"
    assert execute(served, "sh", "-c", written, user="1234") == ""


def test_a_vsix_in_the_folder_is_installed(
    steps: dict[str, Step], ray_image: str, start: Start, tmp_path: Path
) -> None:
    greeter = vsix(tmp_path / "greeter.vsix", "rayside.greeter", "0.0.1")
    step = steps["workspace-image"]
    assert isinstance(step, ImageBuild)
    record = [{"id": "rayside.greeter", "version": "0.0.1", "sha256": "1" * 64, "from": "file greeter.vsix"}]
    container = start(
        image=make_image(
            dataclasses.replace(
                step,
                extra={**step.extra, "extensions/greeter.vsix": greeter},
                arguments={**step.arguments, "EXTENSIONS": json.dumps(record)},
            )
        )
    )
    healthy(container)
    assert installed(container, "1000")["rayside.greeter"] == "0.0.1"
    assert json.loads(execute(container, "cat", "/opt/workspace/extensions.json")) == record
