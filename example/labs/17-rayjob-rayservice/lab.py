"""Checks lab 17: a RayService was stopped in one request, and mended in its running cluster."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import requests

from bootstrap.kube.api import CORE, RAY, Kube
from bootstrap.labs.exercise import PATIENCE, Exercise
from bootstrap.targets.forwarded import ForwardedAccess
from rayside import yaml_file
from rayside.client.scripted import run_sync
from rayside.connection.heads import head_selector
from rayside.dap.additions import ALWAYS
from rayside.verbs.cluster_job import ClusterJob, attach_options
from rayside.waiting import until

TARGETS = ("kind",)

_HERE = Path(__file__).parent
_NAME = "toll-check"
_KINDS = {"shared": "RayCluster", "nightly": "RayJob", "serving": "RayService"}
_SERVE_PORT = 8000
# Seconds until the changed application serves, which took six; and until a new RayService does.
_UPDATED = 60.0
_COMES_UP = 300.0


def solve(exercise: Exercise) -> None:
    exercise.write_answers(rate="lorry", per_axle=35, answered="yes", **_KINDS)


def verify(exercise: Exercise) -> None:
    answers = {name: exercise.answer(name) for name in ("rate", "per_axle", "answered", *_KINDS)}
    for name, kind in _KINDS.items():
        exercise.require(
            answers[name] == kind,
            f"a {answers[name]} is not for that ({name})",
            "a RayCluster stays until somebody removes it, a RayJob's cluster may go with its job",
        )
    kubernetes = exercise.target.kubernetes
    assert kubernetes
    with _serving(exercise, kubernetes) as service:
        kubernetes.lead_to(service.cluster)
        try:
            seen = _stopped(exercise, service)
        finally:
            kubernetes.lead_to(exercise.target.instance.ray_cluster)
        _check_answers(exercise, answers, seen)
        _check_mended(exercise, service)


class _Service(NamedTuple):
    """The lab's own RayService that runs: its RayCluster, and the port of this machine that leads to it."""

    kube: Kube
    cluster: str
    port: int

    def ask(self, query: str, timeout: float = PATIENCE) -> str:
        with requests.Session() as session:
            session.trust_env = False
            answer = session.get(f"http://127.0.0.1:{self.port}/?{query}", timeout=timeout)
        return answer.text


@contextmanager
def _serving(exercise: Exercise, kubernetes: ForwardedAccess) -> Iterator[_Service]:
    """Makes the service as it is at the beginning, and removes it."""
    kube = kubernetes.kube
    service = _document(kube, _HERE)
    files = {name: (_HERE / name).read_text() for name in ("toll.py", "ask.py")}
    code = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": service["metadata"], "data": files}
    exercise.report(f"making the RayService {_NAME}")
    try:
        kube.apply(code)
        kube.apply(service)
        status = until(lambda: _status(kube), lambda status: _cluster(status) != "", _COMES_UP)
        cluster = _cluster(status)
        assert cluster, f"the RayService does not run: {status}"
        with kubernetes.forwarded(head_selector(cluster), _SERVE_PORT) as port:
            yield _Service(kube, cluster, port)
    finally:
        exercise.report(f"removing the RayService {_NAME}")
        kube.delete(f"{RAY}/namespaces/{kube.namespace}/rayservices/{_NAME}")
        kube.delete(f"{CORE}/namespaces/{kube.namespace}/configmaps/{_NAME}")
        for pod in kube.pods(f"lab={_NAME}"):
            path = f"{CORE}/namespaces/{kube.namespace}/pods/{pod['metadata']['name']}"
            kube.delete(path, gracePeriodSeconds="1")


def _document(kube: Kube, folder: Path) -> dict[str, Any]:
    """Returns the RayService in that folder's service.yaml, under the check's own name."""
    document = dict(yaml_file.read(folder / "service.yaml"))
    document["metadata"] = {"name": _NAME, "namespace": kube.namespace}
    template = document["spec"]["rayClusterConfig"]["headGroupSpec"]["template"]
    template["metadata"] = {"labels": {"lab": _NAME}}
    for volume in template["spec"]["volumes"]:
        if volume["name"] == "code":
            volume["configMap"]["name"] = _NAME
    return document


def _status(kube: Kube) -> dict[str, Any]:
    return dict((kube.ray("rayservices", _NAME) or {}).get("status") or {})


def _cluster(status: dict[str, Any]) -> str:
    """Returns the RayCluster that serves; empty while none does."""
    return str((status.get("activeServiceStatus") or {}).get("rayClusterName") or "")


def _stopped(exercise: Exercise, service: _Service) -> dict[str, Any]:
    """Stops one request, sends another, and lets the first go on; returns what was seen."""
    prices: list[str] = []
    first = threading.Thread(target=lambda: prices.append(service.ask("axles=3&debug=1")), daemon=True)
    first.start()
    dashboard = exercise.dashboard
    assert until(dashboard.waiting, bool, PATIENCE), "the request does not stop"
    try:
        answered = service.ask("axles=2", timeout=40) == "400"
    except requests.Timeout:
        answered = False
    options = attach_options(exercise.target.instance, None, (), exceptions=False, take_over=ALWAYS)
    evaluate = ["rate", "self.cents[rate]"]
    document = run_sync(
        options, ClusterJob(dashboard, None), evaluate=evaluate, timeout=8, on_event=exercise.report
    )
    first.join(PATIENCE)
    (stop,) = document["stopped"]
    assert prices == ["105"], prices
    return {**stop["evaluated"], "answered": "yes" if answered else "no"}


def _check_answers(exercise: Exercise, answers: dict[str, Any], seen: dict[str, Any]) -> None:
    exercise.require(
        repr(answers["rate"]) == seen["rate"],
        f"the rate was not {answers['rate']}",
        "p rate, where the request with debug in it stops",
    )
    exercise.require(
        str(answers["per_axle"]) == seen["self.cents[rate]"],
        f"that rate is not {answers['per_axle']} per axle",
        "p self.cents[rate], where the request stops",
    )
    # YAML reads yes as true.
    said = {True: "yes", False: "no"}.get(answers["answered"], answers["answered"])
    exercise.require(
        said == seen["answered"],
        f"it is not so that the answer is {said}",
        "ask for axles=2, in another terminal, while the other request stands still",
    )


def _check_mended(exercise: Exercise, service: _Service) -> None:
    """Puts the learner's application into the running cluster, and asks it. Raises NotSolved."""
    document = _document(service.kube, exercise.folder)
    original = _document(service.kube, _HERE)
    config = document["spec"]["serveConfigV2"]
    exercise.require(
        document["spec"]["rayClusterConfig"] == original["spec"]["rayClusterConfig"],
        "service.yaml describes another cluster than it did: KubeRay would make a second one",
        "what is wrong is in serveConfigV2; leave rayClusterConfig as it was",
    )
    original["spec"]["serveConfigV2"] = config
    service.kube.apply(original)
    price = until(lambda: service.ask("axles=3"), lambda price: price == "1050", _UPDATED)
    exercise.require(
        price == "1050" and service.ask("axles=2") == "400",
        f"a vehicle with three axles still pays {price}, and 1050 is right",
        "args of serveConfigV2 has the cents per axle: a lorry's are 350",
    )
    assert _cluster(_status(service.kube)) == service.cluster, "KubeRay made a second cluster"
