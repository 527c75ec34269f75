"""Tests the relay on kind: a container of the head's pod, reached at one port of this machine."""

from __future__ import annotations

import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest

from bootstrap.settings import ROOT
from rayside.connection.heads import head_selector
from rayside.dap.one_request import ask
from rayside.errors import RequestFailed
from rayside.waiting import until
from tests.e2e.conftest import NAME, kube, target
from tests.integration import stranger
from tests.integration.conftest import Rayside
from tests.integration.crowd import debug_a_crowd
from tests.integration.rayside.test_relay_process import attached
from tests.integration.relay_port import answers, initialize
from tests.patience import PATIENCE

HEAD = head_selector(NAME)
EXAMPLE = ROOT / "example" / "working_dir" / "sample_code.py"


def token_of(rayside: Rayside) -> str:
    return target(rayside).instance.token_file.read_text()


def head(rayside: Rayside) -> dict[str, Any]:
    (pod,) = kube(rayside).pods(HEAD)
    return pod


def container(rayside: Rayside) -> dict[str, Any]:
    """Returns what Kubernetes says of the relay's container."""
    return next(
        status for status in head(rayside)["status"]["containerStatuses"] if status["name"] == "relay"
    )


def inside(rayside: Rayside, script: str) -> str:
    """Returns what a shell in the relay's container prints."""
    kubectl = [
        str(target(rayside).kubectl),
        "--kubeconfig",
        str(target(rayside).instance.kubeconfig),
    ]
    name = head(rayside)["metadata"]["name"]
    command = [*kubectl, "exec", name, "--container", "relay", "--", "/bin/sh", "-c", script]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout


def end(rayside: Rayside, name: str) -> None:
    """Debugs a job to its end."""
    document = rayside.json("debug", "--job", name, timeout=300)
    assert document["job"] == {"submission_id": name, "status": "SUCCEEDED"}


def test_it_answers_through_the_forward_and_wants_rays_token(up: Rayside) -> None:
    port = up.settings.relay_port
    assert up.json("status")["urls"]["relay"] == f"tcp://127.0.0.1:{port}"
    assert initialize(port)["supportsConfigurationDoneRequest"] is True
    ask(port, "pausedTasks", {"token": token_of(up)}, timeout=PATIENCE)
    with pytest.raises(RequestFailed):
        ask(port, "pausedTasks", {"token": "wrong"}, timeout=PATIENCE)


def test_it_has_no_rights_and_no_secret_in_the_open(up: Rayside) -> None:
    token = token_of(up)
    assert inside(up, "id -u; id -g").split() == ["1000", "100"]
    assert inside(up, "grep CapEff /proc/1/status").split()[1] == "0" * 16
    assert inside(up, "touch /opt/rayside/x /run/ray/x 2>/dev/null || echo refused").strip() == "refused"
    everything = inside(up, "cat /proc/[0-9]*/cmdline /proc/[0-9]*/environ 2>/dev/null | tr '\\0' '\\n'")
    assert "rayside.relay" in everything
    assert token not in everything
    # 5678 (0x162E) on 127.0.0.1, and nowhere else.
    listening = inside(up, "cat /proc/net/tcp /proc/net/tcp6")
    addresses = {line.split()[1] for line in listening.splitlines() if ":162E" in line and " 0A " in line}
    assert addresses == {"0100007F:162E"}


@pytest.mark.gate
async def test_a_task_in_a_workers_pod_stops_in_an_editor(up: Rayside) -> None:
    before = len(up.json("breakpoints"))
    name = up.json("submit", timeout=120)["submission_id"]
    # In its first second a task may still bear the name of the one that its worker ran before.
    expected = ["estimate"] * (before + 1)
    assert expected == until(
        lambda: [task["task"] for task in up.json("breakpoints")], lambda names: names == expected, 120
    )
    async with attached(up.settings.relay_port, token=token_of(up), job=name) as editor:
        stop = await editor.event("stopped")
        assert (stop["ray"]["task"], stop["ray"]["submissionId"]) == ("estimate", name)
        workers = kube(up).pods(f"ray.io/cluster={NAME},ray.io/node-type=worker")
        assert stop["ray"]["nodeIp"] in {pod["status"]["podIP"] for pod in workers}
        assert (await editor.threads())[stop["threadId"]].startswith("estimate · ")
        frame = (await editor.frames(stop))[0]
        assert (frame["name"], frame["source"]["path"]) == ("estimate", str(EXAMPLE))
        assert await editor.evaluate(stop, "points") == "400000"
        listed = [task for task in up.json("breakpoints") if task["job_id"] == stop["ray"]["jobId"]]
        assert [task["worker_id"] for task in listed] == [stop["ray"]["workerId"]]
    # The editor has gone: the task goes on, and the job to its end.
    end(up, name)


@pytest.mark.gate
def test_no_listener_of_a_workers_pod_lets_another_pod_evaluate(up: Rayside) -> None:
    """It is tried with the example's plain `breakpoint()`, and with a job of `submit --debug`."""
    # The two jobs' tasks need both processors of the workers; whichever had none would never stop.
    dashboard = target(up).access.require()
    for job in dashboard.jobs():
        if not job.ended:
            end(up, job.submission_id)
    paused = up.json("submit", timeout=120)["submission_id"]
    debugged = up.json("submit", "--debug", "--attach-timeout", "0", timeout=120)["submission_id"]
    both = ["estimate", "estimate"]
    assert both == until(
        lambda: [task["task"] for task in up.json("breakpoints")], lambda names: names == both, 120
    )
    # The two tasks, and the driver of the job that was submitted with --debug.
    ports = until(
        lambda: {(worker.node_ip, worker.port) for worker in dashboard.debuggable()},
        lambda observed: len(observed) >= 3,
        60,
    )
    tries = f"print([evaluates(one) for one in {sorted(ports)!r}])"
    script = f"{Path(stranger.__file__).read_text()}\n{tries}\n"
    answers = inside(up, f"cd /opt/rayside && python -c {shlex.quote(script)}")
    assert len(ports) >= 3
    assert answers.strip() == str([False] * len(ports))
    for name in (paused, debugged):
        end(up, name)


def test_eight_tasks_in_workers_pods_are_stopped_at_once_in_one_session(up: Rayside, tmp_path: Path) -> None:
    debug_a_crowd(up, token_of(up), tmp_path)


def test_killed_it_comes_back_and_the_head_stays_ready(up: Rayside) -> None:
    before = container(up)
    # The brackets keep the pattern from matching the shell that has it in its arguments.
    kill = "for p in /proc/[0-9]*; do grep -q 'bootstrap[.]relay' $p/cmdline && kill -9 ${p#/proc/}; done; :"
    inside(up, kill)
    assert until(lambda: answers(up.settings.relay_port), bool, 60)
    after = container(up)
    assert (after["restartCount"], after["containerID"]) == (before["restartCount"], before["containerID"])
    log = kube(up).log(HEAD, "relay")
    assert "relay: ended with exit code 137; again in 1 s" in log
    assert token_of(up) not in log


def test_with_a_new_head_it_is_back_after_up(up: Rayside) -> None:
    was = head(up)["metadata"]
    kube(up).delete(f"/api/v1/namespaces/{up.settings.namespace}/pods/{was['name']}")
    assert until(
        lambda: kube(up).pods(HEAD),
        lambda current: bool(current) and was["uid"] not in {pod["metadata"]["uid"] for pod in current},
        120,
    )
    done = up.run("up", timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    assert initialize(up.settings.relay_port)
    # The workers of the earlier head end some time after it, and are made anew.
    assert until(lambda: up.json("status"), lambda status: status["ready"] is True, 120)
