"""Tests target kind as a user sees it: up, a breakpoint in a worker's pod, own jobs, and failures."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
import requests
import yaml

from bootstrap.kube.rayjob.document import object_name
from bootstrap.settings import ROOT
from bootstrap.steps.kind_cluster import containers
from rayside.waiting import until
from tests.e2e.conftest import NAME, kube, target
from tests.integration.conftest import Rayside
from tests.patience import PATIENCE

pytestmark = pytest.mark.gate


def http(url: str, token: str | None = None) -> requests.Response:
    session = requests.Session()
    session.trust_env = False
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    return session.get(url, headers=headers, timeout=PATIENCE)


# --- Show 1: from up to a job that was debugged in a worker's pod ------------------------


def test_status_says_that_all_is_ready(up: Rayside) -> None:
    document = up.settled_status()
    assert document["ready"] is True
    assert (document["target"], document["source"]) == ("kind", "packages")
    conditions = {step["name"]: step["condition"] for step in document["steps"]}
    assert set(conditions.values()) == {"ready"}
    assert {"engine", "cluster", "images", "kuberay", "ray-cluster", "forwards"} <= set(conditions)
    assert document["urls"]["workspace"].endswith(str(up.settings.workspace_port))
    assert {"name", "started", "seconds"} == set(document["timing"][0])


def test_the_workspace_asks_for_the_password(up: Rayside) -> None:
    url = up.json("status")["urls"]["workspace"]
    assert http(f"{url}/healthz").status_code == 200
    login = http(url)
    assert login.url.startswith(f"{url}/login")
    password = target(up).access.workspace_password()
    assert password and len(password) >= 20
    refused = requests.post(
        f"{url}/login", data={"password": "wrong"}, allow_redirects=False, timeout=PATIENCE
    )
    right = requests.post(
        f"{url}/login", data={"password": password}, allow_redirects=False, timeout=PATIENCE
    )
    assert (refused.status_code, right.status_code) == (200, 302)


def test_the_dashboard_wants_the_token(up: Rayside) -> None:
    url, token = up.json("status")["urls"]["dashboard"], target(up).instance.token_file.read_text()
    assert http(f"{url}/api/version").status_code == 401
    assert http(f"{url}/api/version", token).status_code == 200


def test_what_is_secret_is_the_owners_alone(up: Rayside) -> None:
    folder = target(up).instance.folder
    assert folder.stat().st_mode & 0o777 == 0o700
    for file in folder.iterdir():
        if file.is_file():
            assert file.stat().st_mode & 0o077 == 0, file


def names(tasks: list[dict[str, Any]]) -> list[str]:
    return [task["task"] for task in tasks]


def test_the_example_is_debugged_in_a_workers_pod(up: Rayside) -> None:
    """It is the run that `up` left paused, or a new one if other tests have brought that one to its end."""
    if not up.json("breakpoints"):
        up.json("submit")
    # In its first second a task may still bear the name of the one that its worker ran before.
    paused = until(lambda: up.json("breakpoints"), lambda tasks: names(tasks) == ["estimate"], 120)
    assert names(paused) == ["estimate"]
    workers = kube(up).pods(f"ray.io/cluster={NAME},ray.io/node-type=worker")
    assert paused[0]["node_ip"] in {pod["status"]["podIP"] for pod in workers}
    document = up.json("debug", "--evaluate", "total / points", timeout=300)
    stop = document["stopped"][0]
    assert stop["task"] == "estimate"
    assert stop["file"] == str(ROOT / "example" / "working_dir" / "sample_code.py")
    assert "total" in stop["locals"]
    assert float(stop["evaluated"]["total / points"])
    assert document["job"]["status"] == "SUCCEEDED"
    assert until(lambda: seen_by_kubectl(up, object_name(document["job"]["submission_id"])), bool, 60)


def seen_by_kubectl(up: Rayside, rayjob: str) -> bool:
    """Returns whether the RayJob says SUCCEEDED, by the named context of the user's kubeconfig."""
    document = kubectl(up, "--context", context(up), "get", "rayjob", rayjob, "-o", "json")
    return bool(json.loads(document)["status"].get("jobStatus") == "SUCCEEDED")


def context(up: Rayside) -> str:
    return f"kind-{up.settings.name}"


def kubectl(up: Rayside, *arguments: str) -> str:
    """Returns kubectl's output, with the user's kubeconfig."""
    command = [str(target(up).kubectl), "--kubeconfig", up.environment_too["KUBECONFIG"], *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def test_the_cluster_is_kubectls_current_one_where_there_was_none(up: Rayside) -> None:
    assert kubectl(up, "config", "current-context").strip() == context(up)
    assert NAME in kubectl(up, "get", "rayclusters")


def test_a_current_context_of_the_users_own_stays_unless_the_cluster_is_asked_for(up: Rayside) -> None:
    kubectl(up, "config", "set-context", "theirs", "--cluster", "elsewhere")
    kubectl(up, "config", "use-context", "theirs")
    # Written again, as after an upgrade.
    kubectl(up, "config", "delete-context", context(up))
    assert up.run("up", "--no-example", timeout=300).returncode == 0
    assert kubectl(up, "config", "current-context").strip() == "theirs"
    assert context(up) in kubectl(up, "config", "get-contexts", "--output", "name").split()
    done = up.run("up", "--no-example", "--use-context", timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    assert kubectl(up, "config", "current-context").strip() == context(up)
    kubectl(up, "config", "delete-context", "theirs")


def test_up_again_changes_nothing(up: Rayside) -> None:
    done = up.run("up", timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Nothing to change" in done.stdout


# --- what a container may do -------------------------------------------------------------

STATUS = ["cat", "/proc/1/status"]


def containers_of(up: Rayside, selector: str = "") -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """Returns every container, init containers included, of every pod with these labels, with its pod."""
    pods = kube(up).pods(selector)
    return [
        (pod, container)
        for pod in pods
        for container in (*pod["spec"].get("initContainers", []), *pod["spec"]["containers"])
    ]


def test_every_container_is_restricted_those_that_kuberay_adds_too(up: Rayside) -> None:
    names = set()
    for pod, container in containers_of(up):
        names.add(container["name"])
        security = {**pod["spec"]["securityContext"], **container["securityContext"]}
        assert security["runAsNonRoot"] is True, container["name"]
        assert security["seccompProfile"] == {"type": "RuntimeDefault"}, container["name"]
        assert security["allowPrivilegeEscalation"] is False, container["name"]
        assert security["capabilities"] == {"drop": ["ALL"]}, container["name"]
        # Whoever has its name in a registry would run programs here.
        assert container["imagePullPolicy"] == "Never", container["name"]
    assert names == {"ray-head", "workspace", "relay", "ray-worker", "wait-gcs-ready", "kuberay-operator"}


def test_no_process_has_a_capability_or_can_get_one_or_a_token_of_kubernetes(up: Rayside) -> None:
    """The kernel says it, of the first process of each container that keeps running."""
    looked_at = []
    for pod, container in containers_of(up, f"ray.io/cluster={NAME}"):
        if container["name"] == "wait-gcs-ready":
            continue
        where = [
            "--context",
            context(up),
            "exec",
            pod["metadata"]["name"],
            "--container",
            container["name"],
            "--",
        ]
        status = dict(
            line.split(":\t", 1) for line in kubectl(up, *where, *STATUS).splitlines() if ":\t" in line
        )
        for kind in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"):
            assert int(status[kind], 16) == 0, (container["name"], kind)
        assert status["NoNewPrivs"] == "1", container["name"]
        assert status["Seccomp"].strip() == "2", container["name"]
        assert status["Uid"].split() == ["1000"] * 4, container["name"]
        absent = "test ! -e /var/run/secrets/kubernetes.io && echo none"
        assert kubectl(up, *where, "sh", "-c", absent) == "none\n", container["name"]
        environment = kubectl(up, *where, "cat", "/proc/1/environ").split("\0")
        assert "RAY_USAGE_STATS_ENABLED=0" in environment, container["name"]
        # Ray's dashboard asks clouds for it where there is none; Tune sees none here.
        unread = "cat ~/ray_bootstrap_config.yaml 2>&1; test ! -e ~/ray_bootstrap_config.yaml && echo none"
        told = kubectl(up, *where, "sh", "-c", unread)
        assert told.endswith("Too many levels of symbolic links\nnone\n"), container["name"]
        # find fails at folders that it may not read.
        writable = "find /opt /etc /usr -xdev -perm -0002 ! -type l 2>/dev/null || :"
        assert kubectl(up, *where, "sh", "-c", writable) == "", container["name"]
        looked_at.append(container["name"])
    assert sorted(looked_at) == ["ray-head", "ray-worker", "ray-worker", "relay", "workspace"]


# --- the user's own jobs -----------------------------------------------------------------


def test_a_job_of_ones_own_runs_in_a_workers_pod(up: Rayside, tmp_path: Path) -> None:
    (tmp_path / "where am i.py").write_text(
        "import ray\n"
        "@ray.remote\n"
        "def node():\n"
        "    return ray.util.get_node_ip_address()\n"
        "ray.init()\n"
        "print(f'ran on {ray.get(node.remote())}')\n"
    )
    done = up.run(
        *["submit", "--working-dir", str(tmp_path), "--entrypoint", "python 'where am i.py'", "--wait"],
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    workers = kube(up).pods(f"ray.io/cluster={NAME},ray.io/node-type=worker")
    assert any(f"ran on {pod['status']['podIP']}" in done.stdout for pod in workers)


def test_a_rayjob_may_make_its_own_cluster(up: Rayside) -> None:
    """The port-forwards lead to its head while it is there, and `up` leads them back."""
    manifest = ROOT / "example" / "ray-job.interactive-mode.yaml"
    submitted = up.json("submit", "--job", str(manifest), timeout=400)
    assert submitted["cluster"].startswith(yaml.safe_load(manifest.read_text())["metadata"]["name"])
    assert submitted["status"] in ("PENDING", "RUNNING")
    document = up.json("debug", timeout=300)
    assert names(document["stopped"]) == ["estimate"]
    assert document["job"] == {"submission_id": submitted["submission_id"], "status": "SUCCEEDED"}
    assert up.run("up", timeout=300).returncode == 0
    heads = kube(up).pods(f"ray.io/cluster={NAME},ray.io/node-type=head")
    assert len(heads) == 1
    assert up.json("breakpoints") == []
    kube(up).delete(f"/apis/ray.io/v1/namespaces/default/rayjobs/{submitted['cluster'].rsplit('-', 1)[0]}")


# --- what is wrong is said, and nothing is lost ------------------------------------------


def test_a_cluster_that_differs_is_drifted(up: Rayside) -> None:
    error = up.run("up", env={"INVOKE_RAYSIDE_RAY_WORKERS": "1"}, timeout=300)
    assert error.returncode == 4
    assert "error[drifted]" in error.stderr
    assert "workers is 2, the settings say 1" in error.stderr
    assert up.is_ready()


def test_another_mans_cluster_is_left_alone(up: Rayside) -> None:
    """The same cluster is looked at by somebody whose files are elsewhere."""
    stranger = {"INVOKE_RAYSIDE_STATE_FOLDER": f"{up.settings.state_folder}-stranger"}
    for verb in ("up", "down"):
        done = up.run(verb, env=stranger, timeout=120)
        assert done.returncode == 4, done.stdout + done.stderr
        assert "error[not-ours]" in done.stderr
    assert up.is_ready()


def test_a_kubeconfig_that_leads_nowhere_is_mended(up: Rayside) -> None:
    file = target(up).kube.kubeconfig
    text = file.read_text()
    document = yaml.safe_load(text)
    document["clusters"][0]["cluster"]["server"] = "https://127.0.0.1:9"
    file.write_text(yaml.safe_dump(document))
    assert up.json("status")["ready"] is False
    done = up.run("up", timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    assert file.read_text() == text


def test_an_image_that_the_node_lost_is_loaded_again(up: Rayside) -> None:
    import docker

    client = docker.from_env()
    try:
        node = containers(client, up.settings.name)[0]
        reference = f"docker.io/{target(up).origin.images.operator}"
        node.exec_run(["ctr", "--namespace", "k8s.io", "images", "remove", reference])
    finally:
        client.close()
    details = {step["name"]: step["detail"] for step in up.json("status")["steps"]}
    assert details["images"].startswith(f"the node {node.name} lacks ")
    assert up.run("up", timeout=300).returncode == 0
    assert up.is_ready()


def test_an_operator_that_was_stopped_is_said(up: Rayside) -> None:
    scale = [
        str(target(up).kubectl),
        "--kubeconfig",
        str(kube(up).kubeconfig),
        "-n",
        "default",
        "scale",
    ]
    scale += ["deployment/kuberay-operator", "--replicas"]
    subprocess.run([*scale, "0"], check=True, capture_output=True)
    try:
        done = up.run("up", timeout=300)
        assert done.returncode == 4
        assert "error[operator-not-running]" in done.stderr
    finally:
        subprocess.run([*scale, "1"], check=True, capture_output=True)
    assert up.run("up", timeout=300).returncode == 0
