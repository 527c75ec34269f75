"""Checks lab 12: each container's last words are kept, and what only its inside knew was seen."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from bootstrap.labs.exercise import Exercise
from bootstrap.labs.pods import Pods
from rayside.connection.heads import head_selector

TARGETS = ("kind",)
# What was not held open is gone within the second after its program has written its file.
_REJECTED = "until test -s /tmp/rejected; do sleep 0.2; done; sleep 1; cat /tmp/rejected"


def solve(exercise: Exercise) -> None:
    exercise.write_answers(shard=17, row=4711, attach="CLUSTER_CONFIG_FILE")


def verify(exercise: Exercise) -> None:
    shard, row, attach = (exercise.answer(name) for name in ("shard", "row", "attach"))
    pods = Pods(exercise)
    try:
        with exercise.untouched(Path(__file__).parent) as untouched:
            Pods(untouched).make("twice.yaml")
        for name in ("words.yaml", "held.yaml", "stopped.yaml"):
            pods.make(name)
        # They run side by side, so each of them is ready sooner than it is looked at.
        _check_twice(pods, shard)
        _check_words(pods)
        _check_held(pods, row)
        _check_stopped(pods)
    finally:
        pods.remove()
    _check_attach(pods, attach)


def _check_twice(pods: Pods, shard: object) -> None:
    """Compares the answer with the log of the container that is gone. Raises NotSolved."""
    pods.wait(
        "lab-12-twice",
        "loader",
        _runs_again,
        "ran again",
    )
    log = pods.kube.pod_log("lab-12-twice", "loader", previous="true")
    pods.exercise.require(
        f"shard {shard} " in log,
        f"the first run does not say that it was shard {shard}",
        "example/labs/kubectl logs -p lab-12-twice shows what the container before this one printed",
    )


def _check_words(pods: Pods) -> None:
    """Checks that Kubernetes has the last words of both containers. Raises NotSolved."""
    reporter = pods.wait("lab-12-words", "reporter", _ended, "ended")["state"]["terminated"]
    pods.exercise.require(
        "row 4 has 5 columns" in reporter.get("message", ""),
        f"of reporter Kubernetes has the last words {reporter.get('message', '')!r}, and its file has others",
        "terminationMessagePath names the file that the program writes",
    )
    native = pods.wait("lab-12-words", "native", _ended, "ended")["state"]["terminated"]
    pods.exercise.require(
        "Segmentation fault" in native.get("message", ""),
        f"of native Kubernetes has the last words {native.get('message', '')!r}, and its log has more",
        "terminationMessagePolicy decides where they come from if the file is empty",
    )


def _check_held(pods: Pods, row: object) -> None:
    """Checks that the container is still there after its program has failed. Raises NotSolved."""
    status = pods.wait("lab-12-held", "loader", lambda status: _runs(status) or _ended(status), "started")
    rejected = pods.execute("lab-12-held", "loader", "sh", "-c", _REJECTED) if _runs(status) else ""
    pods.exercise.require(
        rejected,
        "the container of lab-12-held ended with its program",
        "behind `load ||` comes what the shell does when it fails: sleep 600, for a while",
    )
    pods.exercise.require(
        f"row {row}:" in rejected,
        f"the program did not reject row {row}",
        "example/labs/kubectl exec lab-12-held -- cat /tmp/rejected",
    )


def _check_stopped(pods: Pods) -> None:
    """Removes the pod, and checks that its log ends with what it had in hand. Raises NotSolved."""
    name = "lab-12-stopped"
    pods.wait(name, "loader", _runs, "started")
    in_hand = pods.execute(name, "loader", "sh", "-c", "sleep 1; cat /tmp/in-hand").strip()
    assert in_hand.startswith("rows in hand"), in_hand
    with ThreadPoolExecutor(1) as pool:
        log = pool.submit(pods.kube.pod_log, name, "loader", follow="true")
        pods.kube.delete(pods.path(name))
        said = log.result()
    pods.exercise.require(
        in_hand in said,
        f"the log of lab-12-stopped ends with {said.splitlines()[-1:]}, not with its rows in hand",
        "lifecycle.preStop.exec.command runs before the container is asked to end; /proc/1/fd/1 is its log",
    )


def _check_attach(pods: Pods, attach: object) -> None:
    """Compares the answer with what Ray says in the head's pod. Raises NotSolved."""
    cluster = pods.exercise.target.access.cluster
    (head,) = (pod["metadata"]["name"] for pod in pods.kube.pods(head_selector(cluster)))
    usage = pods.execute(head, "ray-head", "ray", "attach", "--help").partition("\n")[0]
    pods.exercise.require(
        str(attach) in usage.split(),
        f"ray attach does not want {attach}",
        "the first line of its help has it, in capitals",
    )


def _runs(status: dict[str, Any]) -> bool:
    return "running" in status.get("state", {})


def _runs_again(status: dict[str, Any]) -> bool:
    return _runs(status) and status["restartCount"] > 0


def _ended(status: dict[str, Any]) -> bool:
    return "terminated" in status.get("state", {})
