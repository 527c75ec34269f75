"""Has pods and RayJobs that fail on purpose, each in its own way, on a real Kubernetes."""

from __future__ import annotations

from typing import Any

from tests.failures.failure import Failure

ABSENT = "rayside/absent:none"
# `diagnose` looks at pods of Ray's: they have a label of its own.
LABEL = "ray.io/fails-on-purpose"
# One pod does not fail: it has the port that another one wants.
HOLDER = "has-port"
# It fails once, and runs from then on.
_ONCE = "test -e /kept/was && exec sleep 600; touch /kept/was; echo 'the first try failed'; exit 3"
# The last words are in no log.
_LAST = "echo 'no such shard' >/dev/termination-log; exit 5"
# An ELF header says in its 19th byte which processor the program is for; 0xf3 is RISC-V.
FOREIGN = "cp /bin/true /code/foreign && printf '\\363' | dd of=/code/foreign bs=1 seek=18 conv=notrunc"
_LISTEN = "import socket\nfirst = socket.create_server(('', 9999))\nsocket.create_server(('', 9999))"
# So many bytes are more than either limit below, and so small a limit is no problem for a disk.
_FILL = "head -c 30000000 /dev/zero > {}/full; sleep 600"
_PORT = [{"containerPort": 80, "hostPort": 30998}]
# More than a node has of processors.
_HUGE = {"requests": {"cpu": "1000"}}


def documents(image: str, ray_cluster: str, node: str) -> list[dict[str, Any]]:
    """Returns all of them; `image` is one that the `node` has, with a shell and Ray's Python."""
    secret = {"name": "KEY", "valueFrom": {"secretKeyRef": {"name": "nowhere", "key": "key"}}}
    once = _pod("fails-once", image, "sh", "-c", _ONCE, volumeMounts=[{"name": "kept", "mountPath": "/kept"}])
    once["spec"]["volumes"] = [{"name": "kept", "emptyDir": {}}]
    unmounted = _pod("fails-unmounted", image, volumeMounts=[{"name": "kept", "mountPath": "/kept"}])
    unmounted["spec"]["volumes"] = [{"name": "kept", "configMap": {"name": "nowhere"}}]
    code = [{"name": "code", "mountPath": "/code"}]
    foreign = _pod("fails-foreign", image, "/code/foreign", volumeMounts=code)
    foreign["spec"]["initContainers"] = [
        {"name": "make", "image": image, "command": ["sh", "-c", FOREIGN], "volumeMounts": code}
    ]
    foreign["spec"]["volumes"] = [{"name": "code", "emptyDir": {}}]
    volume = _pod("fails-volume", image, "sh", "-c", _FILL.format("/code"), volumeMounts=code)
    volume["spec"]["volumes"] = [{"name": "code", "emptyDir": {"sizeLimit": "5Mi"}}]
    full_limits = {"limits": {"ephemeral-storage": "5Mi"}}
    has_port = _pod(HOLDER, image, ports=_PORT)
    # The scheduler does not choose between the two then.
    has_port["spec"]["nodeName"] = node
    tainted = _pod("fails-nowhere", image)
    tainted["spec"]["nodeSelector"] = {"nowhere": "true"}
    return [
        _pod("fails-greedy", image, "tail", "/dev/zero", resources={"limits": {"memory": "20Mi"}}),
        _pod("fails-absent", ABSENT),
        _pod("fails-misnamed", "Ray::latest"),
        _pod("fails-huge", image, resources=_HUGE),
        tainted,
        _pod("fails-looping", image, "sh", "-c", "echo 'no such luck'; exit 3"),
        _pod("fails-programless", image, "/no/such/program"),
        _pod("fails-secretless", image, env=[secret]),
        unmounted,
        _pod("fails-last", image, "sh", "-c", _LAST),
        once,
        _pod("fails-full", image, "sh", "-c", _FILL.format("/tmp"), resources=full_limits),
        volume,
        has_port,
        _pod("fails-port", image, ports=_PORT),
        _pod("fails-listening", image, "python", "-c", _LISTEN),
        foreign,
        {
            "apiVersion": "ray.io/v1",
            "kind": "RayJob",
            "metadata": {"name": "fails-late"},
            "spec": {
                "submissionMode": "InteractiveMode",
                "clusterSelector": {"ray.io/cluster": ray_cluster},
                # Nobody submits a job to it in time.
                "preRunningDeadlineSeconds": 1,
            },
        },
        {
            "apiVersion": "ray.io/v1",
            "kind": "RayJob",
            "metadata": {"name": "fails-refused"},
            "spec": {
                "submissionMode": "InteractiveMode",
                "clusterSelector": {"ray.io/cluster": ray_cluster},
                "activeDeadlineSeconds": -1,
            },
        },
    ]


def _pod(name: str, image: str, *command: str, **container: Any) -> dict[str, Any]:
    spec = {
        "name": "main",
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "command": list(command) or ["sleep", "600"],
        "resources": {"requests": {"cpu": "1m", "memory": "4Mi"}},
        **container,
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {LABEL: "yes"}},
        "spec": {
            "containers": [spec],
            "terminationGracePeriodSeconds": 0,
            "automountServiceAccountToken": False,
        },
    }


FAILURES = [
    Failure(
        "fails-greedy",
        "a pod with a limit of 20 MiB runs `tail /dev/zero`",
        "pod-failed",
        "container main of pod fails-greedy was killed",
        "pod fails-greedy, node",
        "more than its limit of 20Mi",
    ),
    Failure(
        "fails-absent",
        "a pod whose image no registry has",
        "image-missing",
        f"container main of pod fails-absent has no image {ABSENT}",
        "pod fails-absent, node",
    ),
    Failure(
        "fails-misnamed",
        "a pod whose image has an impossible name",
        "image-missing",
        "container main of pod fails-misnamed has an impossible image name, 'Ray::latest'",
        "pod fails-misnamed, node",
        "couldn't parse image name",
    ),
    Failure(
        "fails-huge",
        "a pod that requests 1,000 processors",
        "pod-failed",
        "no node takes pod fails-huge",
        "pod fails-huge, on no node yet",
        "1 Insufficient cpu",
    ),
    Failure(
        "fails-nowhere",
        "a pod whose nodeSelector fits no node",
        "pod-failed",
        "no node takes pod fails-nowhere",
        "pod fails-nowhere, on no node yet",
        "didn't match Pod's node affinity/selector",
    ),
    Failure(
        "fails-looping",
        "a pod that prints a line and ends with 3, again and again",
        "pod-failed",
        "container main of pod fails-looping ended 3 times",
        "pod fails-looping, node",
        "exit code 3 (as the program chose): no such luck",
    ),
    Failure(
        "fails-programless",
        "a pod whose command is not in its image",
        "pod-failed",
        "container main of pod fails-programless can't be started",
        "pod fails-programless, node",
        "no such file or directory",
    ),
    Failure(
        "fails-secretless",
        "a pod with a variable of a Secret that is not there",
        "pod-failed",
        "container main of pod fails-secretless can't be made",
        "pod fails-secretless, node",
        'secret "nowhere" not found',
    ),
    Failure(
        "fails-unmounted",
        "a pod with a volume of a ConfigMap that is not there",
        "pod-failed",
        "pod fails-unmounted can't mount a volume",
        "pod fails-unmounted, node",
        'configmap "nowhere" not found',
    ),
    Failure(
        "fails-last",
        "a pod that writes its last words to /dev/termination-log",
        "pod-failed",
        "container main of pod fails-last ended 3 times",
        "pod fails-last, node",
        "exit code 5 (as the program chose): no such shard",
    ),
    Failure(
        "fails-once",
        "a container that fails once, and then runs",
        "container-restarted",
        "container main was restarted once, and runs again",
        "pod fails-once",
        "exit code 3 (as the program chose): the first try failed",
    ),
    Failure(
        "fails-full",
        "a pod that writes 30 MB where its limit is 5 MiB (ephemeral-storage)",
        "pod-failed",
        "pod fails-full was evicted from its node",
        "pod fails-full, node",
        "it wrote more to disk than its limit",
    ),
    Failure(
        "fails-volume",
        "a pod that writes 30 MB into an emptyDir with a sizeLimit of 5 MiB",
        "pod-failed",
        "pod fails-volume was evicted from its node",
        "pod fails-volume, node",
        'Usage of EmptyDir volume "code" exceeds the limit "5Mi"',
    ),
    Failure(
        "fails-port",
        "a pod with the hostPort of another one",
        "pod-failed",
        "no node takes pod fails-port",
        "pod fails-port, on no node yet",
        "a port of the node that it asks for (hostPort, hostNetwork) is another pod's",
    ),
    Failure(
        "fails-listening",
        "a program that listens on a port that is taken in its pod",
        "pod-failed",
        "container main of pod fails-listening ended 3 times",
        "pod fails-listening, node",
        "as a port that it listens on is taken",
    ),
    Failure(
        "fails-foreign",
        "a program for another processor",
        "wrong-architecture",
        "container main of pod fails-foreign has programs for another processor architecture",
        "pod fails-foreign, node",
        "exec format error",
    ),
    Failure(
        "fails-late",
        "a RayJob to which nobody submits within its deadline",
        "rayjob-failed",
        "RayJob fails-late failed",
        "RayCluster",
        "PreRunningDeadlineExceeded",
    ),
    Failure(
        "fails-refused",
        "a RayJob with a negative deadline",
        "rayjob-failed",
        "RayJob fails-refused failed",
        "RayCluster",
        "activeDeadlineSeconds must be a positive integer",
    ),
]
