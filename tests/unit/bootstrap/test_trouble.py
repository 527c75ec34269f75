"""Tests why a pod can't run: each case, in the shapes in which Kubernetes reports it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from bootstrap.errors import ImageMissing, PodFailed, WrongArchitecture
from bootstrap.kube import trouble
from rayside.errors import RaysideError
from tests.unit.scripted_rayjob import NAMESPACE, Scripted, scripted

NAME = "rayside-head-7kq2x"
SCHEDULED = {"type": "PodScheduled", "status": "True"}
NOT_READY = {"type": "Ready", "status": "False", "reason": "ContainersNotReady"}


def pod(*containers: dict[str, Any], conditions: tuple[dict[str, Any], ...] = (), **status: Any) -> Any:
    specs = [
        {
            "name": container["name"],
            "image": container["image"],
            "resources": {"limits": {"memory": "2Gi"}} if container["name"] == "ray-head" else {},
        }
        for container in containers
    ]
    return {
        "metadata": {"name": NAME, "uid": "u1", "labels": {"ray.io/cluster": "rayside"}},
        "spec": {"containers": specs},
        "status": {
            "phase": "Pending",
            "conditions": list(conditions or (SCHEDULED, NOT_READY)),
            "containerStatuses": list(containers),
            **status,
        },
    }


def leaving(until: str, state: dict[str, Any] | None = None) -> Any:
    document = on_node(pod(container(state or {"running": {}}, ready=not state)))
    document["metadata"]["deletionTimestamp"] = until
    return document


def on_node(document: Any) -> Any:
    document["spec"]["nodeName"] = "node-1"
    return document


def container(state: dict[str, Any], name: str = "ray-head", **more: Any) -> dict[str, Any]:
    image = "rayside/ray:current"
    return {"name": name, "image": image, "ready": False, "restartCount": 0, "state": state, **more}


def waits(reason: str, message: str = "") -> dict[str, Any]:
    return {"waiting": {"reason": reason, **({"message": message} if message else {})}}


def ended(code: int, reason: str = "Error", message: str = "") -> dict[str, Any]:
    return {
        "terminated": {
            "exitCode": code,
            "reason": reason,
            "startedAt": "2026-01-01T00:00:00Z",
            "finishedAt": "2026-01-01T00:00:01Z",
            **({"message": message} if message else {}),
        }
    }


def event(reason: str, message: str, count: int = 1) -> dict[str, Any]:
    return {
        "reason": reason,
        "message": message,
        "count": count,
        "type": "Warning",
        "involvedObject": {"kind": "Pod", "name": NAME, "uid": "u1"},
    }


def explained(pod_: Any, events: tuple[dict[str, Any], ...] = ()) -> RaysideError:
    error = trouble.explain(pod_, events)
    assert error is not None
    return error


@pytest.mark.parametrize(
    ("reason", "message"),
    [
        ("ErrImagePull", 'failed to pull and unpack image "docker.io/rayside/ray:current": not found'),
        ("ImagePullBackOff", 'Back-off pulling image "rayside/ray:current"'),
        (
            "ErrImageNeverPull",
            'Container image "rayside/ray:current" is not present with pull policy of Never',
        ),
    ],
)
def test_an_image_that_is_not_there(reason: str, message: str) -> None:
    error = explained(pod(container(waits(reason, message))))
    assert isinstance(error, ImageMissing)
    assert "container ray-head of pod rayside-head-7kq2x has no image rayside/ray:current" in error.message
    assert message in error.message
    assert error.hint.startswith("./invokew up")


def test_an_image_name_that_is_none() -> None:
    message = 'Failed to apply default image tag "Ray:": couldn\'t parse image name: invalid reference format'
    error = explained(pod(container(waits("InvalidImageName", message), image="Ray:")))
    assert isinstance(error, ImageMissing)
    assert "'Ray:'" in error.message
    assert "invalid reference format" in error.message


@pytest.mark.parametrize(
    "status",
    [
        container(
            waits("CrashLoopBackOff"), lastState=ended(255, message="exec /bin/bash: exec format error\n")
        ),
        container(
            ended(1, message="standard_init_linux.go:228: exec user process caused: exec format error")
        ),
        container(ended(126, message="/opt/ray: cannot execute binary file: Exec format error")),
        container(waits("RunContainerError", "failed to create containerd task: exec format error: unknown")),
    ],
)
def test_an_image_for_another_architecture(status: dict[str, Any]) -> None:
    error = explained(pod(status))
    assert isinstance(error, WrongArchitecture)
    assert "container ray-head" in error.message
    assert "architecture" in error.hint


EVICTED = {
    ("it wrote more to disk than its limit", "raise resources.limits.ephemeral-storage"): [
        "Pod ephemeral local storage usage exceeds the total limit of containers 20Mi. ",
        'Container ray-head exceeded its local ephemeral storage limit "5Mi". ',
    ],
    ("it wrote more into a volume than the volume's limit", "raise emptyDir.sizeLimit"): [
        'Usage of EmptyDir volume "tmp" exceeds the limit "10Mi". ',
    ],
    ("the disk of its node ran low", "free some there"): [
        "The node was low on resource: inodes. ",
        "The node was low on resource: ephemeral-storage. Container ray-head was using 700Mi. ",
        "Pod was rejected: The node had condition: [DiskPressure]. ",
    ],
    ("the memory of its node ran low", "free memory, or lower ray_workers"): [
        "The node was low on resource: memory. Threshold quantity: 100Mi, available: 80Mi. ",
    ],
}


@pytest.mark.parametrize(
    ("message", "why", "remedy"), [(text, *cause) for cause, texts in EVICTED.items() for text in texts]
)
def test_evicted_for_a_limit_is_told_apart_from_a_low_node(message: str, why: str, remedy: str) -> None:
    error = explained(pod(phase="Failed", reason="Evicted", message=message))
    assert isinstance(error, PodFailed)
    assert error.message == f"pod {NAME} was evicted from its node: {why}: {message.strip()}"
    assert error.hint.startswith(remedy)


@pytest.mark.parametrize(
    ("words", "remedy"),
    [
        ("OSError: [Errno 98] Address already in use", "choose another port"),
        ("OSError: [Errno 28] No space left on device: '/tmp/ray'", "free some there"),
        # What a program got over is not what it ended by, and shared memory is no disk.
        (
            "Address already in use, using 8081\nValueError: no such shard",
            "correct what its last words",
        ),
        ("unable to write to file </torch_12>: No space left on device (28)", "correct what its last words"),
        ("inotify_add_watch: No space left on device", "correct what its last words"),
    ],
)
def test_a_program_that_lacked_a_port_or_disk(words: str, remedy: str) -> None:
    error = explained(pod(container(waits("CrashLoopBackOff"), lastState=ended(1, message=words))))
    assert error.message.endswith(words.replace("\n", " | "))
    assert error.hint.startswith(remedy)


PROGRAM = 'failed to create containerd task: exec: "rey": executable file not found in $PATH: unknown'


@pytest.mark.parametrize(
    ("status", "told", "remedy"),
    [
        (
            container(waits("CrashLoopBackOff"), lastState=ended(137, "OOMKilled")),
            ": it needed more than its limit of 2Gi (OOMKilled, exit code 137)",
            "raise resources.limits.memory",
        ),
        (container(ended(137, "OOMKilled"), "workspace"), "the memory of its node", "ray_workers"),
        # A kernel that does not say that it was for memory.
        (
            container(waits("CrashLoopBackOff"), lastState=ended(137, "Error")),
            "most often as it needed more than its limit of 2Gi (Error, exit code 137)",
            "",
        ),
        # A program without its loader.
        (
            container(
                waits("CrashLoopBackOff"),
                lastState=ended(1, message="exec /manager: no such file or directory"),
            ),
            "can't be started: exec /manager: no such file or directory",
            "",
        ),
        (
            container(
                waits("CrashLoopBackOff", "back-off 40s restarting failed container=ray-head"),
                lastState=ended(1, message="Traceback\nModuleNotFoundError: No module named 'ray'\n"),
                restartCount=3,
            ),
            "ended 4 times: exit code 1 (the program raised an exception or said so itself): "
            "Traceback | ModuleNotFoundError: No module named 'ray'",
            "",
        ),
        # One that ends well again and again is a problem, too.
        (container(waits("CrashLoopBackOff"), lastState=ended(0, "Completed")), "exit code 0", ""),
        (
            container(waits("RunContainerError", PROGRAM), lastState=ended(128, "StartError")),
            'exec: "rey": executable file not found',
            "command",
        ),
        # Between two tries it waits.
        (
            container(waits("CrashLoopBackOff"), lastState=ended(128, "StartError", PROGRAM)),
            'exec: "rey"',
            "",
        ),
        (
            container(waits("CreateContainerConfigError", 'secret "rayside-x" not found'), "workspace"),
            f"container workspace of pod {NAME} can't be made: secret \"rayside-x",
            "Secret",
        ),
    ],
)
def test_a_container_that_does_not_run_is_named_with_the_reason(
    status: dict[str, Any], told: str, remedy: str
) -> None:
    error = explained(pod(container({"running": {}}, "another", ready=True), status))
    assert isinstance(error, PodFailed)
    assert f"container {status['name']} of pod {NAME}" in error.message
    assert told in error.message
    assert remedy in error.hint


@pytest.mark.parametrize(
    ("reason", "remedy"),
    [
        ("1 Insufficient cpu. preemption: 0/1 nodes are available", "ray_workers"),
        ("1 Insufficient memory.", "resources.requests"),
        ("1 node(s) had untolerated taint {gpu: true}.", "tolerations"),
        ("1 node(s) had untolerated taint {node.kubernetes.io/not-ready: }.", "./invokew up"),
        ("1 node(s) had untolerated taint {node.kubernetes.io/disk-pressure: }.", "data-root"),
        ("2 Insufficient ephemeral-storage.", "requests.ephemeral-storage"),
        ("1 node(s) didn't have free ports for the requested pod ports.", "drop hostPort"),
    ],
)
def test_a_pod_that_no_node_takes(reason: str, remedy: str) -> None:
    message = f"0/1 nodes are available: {reason}"
    error = explained(unscheduled(message))
    assert isinstance(error, PodFailed)
    assert message in error.message
    assert remedy in error.hint


def test_an_init_container_counts() -> None:
    starting = pod(container(waits("PodInitializing")))
    starting["status"]["initContainerStatuses"] = [container(ended(127), "wait-gcs-ready")]
    assert "container wait-gcs-ready of pod" in explained(starting).message


def test_a_volume_that_can_not_be_mounted_counts_from_the_third_try_on() -> None:
    creating = pod(container(waits("ContainerCreating")))
    message = 'MountVolume.SetUp failed for volume "code" : configmap "code" not found'
    assert trouble.explain(creating, [event("FailedMount", message, count=2)]) is None
    error = explained(creating, (event("FailedMount", message, count=3),))
    assert isinstance(error, PodFailed)
    assert "can't mount a volume" in error.message
    assert 'configmap "code" not found' in error.message
    error = explained(creating, (event("FailedCreatePodSandBox", "plugin type=ptp failed", 4),))
    assert "gets no network: plugin type=ptp failed" in error.message


def test_what_went_wrong_before_a_container_started_is_over() -> None:
    starting = pod(container({"running": {"startedAt": "2026-01-01T00:00:00Z"}}))
    events = [event("FailedMount", "MountVolume.SetUp failed", 5), event("Started", "Started container")]
    assert trouble.explain(starting, events) is None
    assert trouble.explain(starting, events[:1]) is not None


def test_a_node_that_is_not_ready_or_refuses_the_pod() -> None:
    running = pod(container({"running": {}}, ready=True))
    error = explained(running, (event("Started", ""), event("NodeNotReady", "Node is not ready")))
    assert "the node of pod rayside-head-7kq2x is not ready" in error.message
    assert "./invokew up" in error.hint
    # One that the node refused.
    error = explained(pod(phase="Failed", reason="OutOfcpu", message="Pod was rejected: Node didn't have"))
    assert "OutOfcpu Pod was rejected" in error.message


@pytest.mark.parametrize(
    ("starting", "phrase"),
    [
        (pod(conditions=({"type": "Initialized", "status": "True"},), containerStatuses=[]), "for a node"),
        (pod(containerStatuses=[]), "its containers are being created"),
        (pod(container(waits("ContainerCreating"))), "ray-head is being created"),
        # Its containers are as they were when the node was last heard of.
        (on_node(pod(container({"running": {}}, ready=True))), "its node node-1 does not answer"),
        (leaving("2026-01-01T00:00:00Z"), "node-1 does not answer, and it goes once that is removed"),
        (leaving("2999-01-01T00:00:00Z"), "it is being removed"),
        (leaving("2999-01-01T00:00:00Z", ended(137)), "it is being removed"),
        (pod(container({"running": {}})), "ray-head is starting"),
        (
            pod(container({"running": {}}, ready=True), container({"running": {}}, "workspace")),
            "workspace is starting",
        ),
        (
            pod(
                container(waits("PodInitializing"), "ray-worker"),
                initContainerStatuses=[container({"running": {}}, "wait-gcs-ready")],
            ),
            "waiting for wait-gcs-ready",
        ),
    ],
)
def test_a_pod_on_its_way_is_no_problem_and_says_what_it_waits_for(starting: Any, phrase: str) -> None:
    assert trouble.explain(starting, []) is None
    assert phrase in trouble.waiting(starting)


def test_a_ready_pod_waits_for_nothing_whatever_happened_before() -> None:
    alive = container({"running": {}}, ready=True, lastState=ended(137, "OOMKilled"), restartCount=1)
    running = pod(alive, conditions=(SCHEDULED, {"type": "Ready", "status": "True"}), phase="Running")
    assert trouble.explain(running, [event("FailedMount", "no", 9)]) is None
    assert trouble.waiting(running) == ""


# --- over all pods -----------------------------------------------------------------------


SELECTOR = "ray.io/cluster=rayside"


def recorded(
    pods: list[Any], events: list[Any], everything: list[Any], nodes: Sequence[Any] = ()
) -> Scripted:
    of_pod = f"involvedObject.kind=Pod,involvedObject.name={NAME}"
    script = {f"pods?{SELECTOR}": pods, f"events?{of_pod}": events, "pods": everything}
    of_all = {"/api/v1/nodes?100": {"items": [*nodes]}}
    return scripted({**{f"{NAMESPACE}/{path}": answer for path, answer in script.items()}, **of_all})


def test_the_first_pod_that_can_not_run_is_found() -> None:
    well = pod(conditions=({"type": "Ready", "status": "True"},))
    sick = pod(container(waits("ImagePullBackOff")))
    assert isinstance(trouble.first_problem(recorded([well, sick], [], []), SELECTOR), ImageMissing)
    assert trouble.first_problem(recorded([well], [], []), SELECTOR) is None


def test_events_of_an_earlier_pod_of_that_name_do_not_count() -> None:
    creating = pod(container(waits("ContainerCreating")))
    failed = event("FailedMount", "no such volume", 5)
    assert trouble.first_problem(recorded([creating], [failed], []), SELECTOR) is not None
    earlier = {**failed, "involvedObject": {"uid": "u0"}}
    assert trouble.first_problem(recorded([creating], [earlier], []), SELECTOR) is None


def unscheduled(words: str) -> Any:
    """Returns a pod that no node takes."""
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": words}
    return pod(conditions=(condition,), containerStatuses=[])


def test_no_room_is_no_problem_while_other_pods_leave() -> None:
    stuck, other = unscheduled("full"), leaving("2026-01-01T00:00:00Z")
    assert trouble.first_problem(recorded([stuck], [], [stuck, other]), SELECTOR) is None
    assert trouble.first_problem(recorded([stuck], [], [stuck]), SELECTOR) is not None


def test_which_taint_it_is_is_looked_up_where_the_scheduler_does_not_say() -> None:
    words = "0/1 nodes are available: 1 node(s) had untolerated taint(s)."
    stuck = unscheduled(words)
    stuck["spec"]["tolerations"] = [
        {"key": "team", "operator": "Exists"},
        {"key": "gpu", "operator": "Equal", "value": "false", "effect": "NoSchedule"},
        {"key": "zone", "operator": "Equal", "value": "a"},
        {"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute"},
    ]
    taints = [
        {"key": "gpu", "value": "true", "effect": "NoSchedule"},
        {"key": "team", "effect": "NoSchedule"},
        {"key": "soft", "effect": "PreferNoSchedule"},
        {"key": "zone", "value": "a", "effect": "NoSchedule"},
        {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"},
        {"key": "node.kubernetes.io/disk-pressure", "effect": "NoSchedule"},
        {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"},
        {"key": "node.kubernetes.io/not-ready", "effect": "NoExecute"},
    ]
    nodes = [
        {"metadata": {"name": "one"}, "spec": {"taints": taints}},
        {"metadata": {"name": "two"}, "spec": {}},
    ]
    error = trouble.first_problem(recorded([stuck], [], [stuck], nodes), SELECTOR)
    assert error is not None
    assert error.message == (
        f"no node takes pod {NAME}: the disk of a node is low, and it takes no more pods (DiskPressure): "
        "node one has the taint {node.kubernetes.io/disk-pressure: }; "
        "node one has the taint {node.kubernetes.io/not-ready: }; node one has the taint {gpu: true} "
        f"| {words}"
    )
