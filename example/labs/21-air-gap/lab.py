"""Checks lab 21: without a network, pods get their images, and a job gets what it imports."""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bootstrap.diagnosis.causes import why_no_runtime_env
from bootstrap.kube import trouble
from bootstrap.kube.api import CORE, Kube
from bootstrap.labs.exercise import PATIENCE, Exercise
from bootstrap.labs.pods import LABEL, Pods
from rayside import yaml_file
from rayside.errors import RaysideError
from rayside.waiting import until

TARGETS = ("kind",)

_HERE = Path(__file__).parent
_REGISTRY, _SECRET = "lab-21-registry", "lab-21-login"
_WRONG_TYPE = "has the type"
# A node that got no image asks again after ten seconds, and after twenty more: it may have asked before it
# knew the way to the registry, or had the Secret.
_ASKED_AGAIN = 60.0


def solve(exercise: Exercise) -> None:
    exercise.write_answers(registry="registry.invalid", type="Opaque", words="exec format error")


def verify(exercise: Exercise) -> None:
    answers = {name: str(exercise.answer(name)) for name in ("registry", "type", "words")}
    pods, job = Pods(exercise), _submit(exercise)
    with exercise.untouched(_HERE) as untouched, _registry(Pods(untouched)):
        _spill(pods, untouched)
        _check_batch(pods, untouched, answers)
        _check_processor(pods, untouched, answers)
        _check_newest(pods)
        _check_storage(pods)
    _check_job(exercise, job)


def _submit(exercise: Exercise) -> str:
    """Submits the learner's job, which runs while their pods do. Raises NotSolved."""
    document = yaml_file.read(exercise.folder / "runtime_env.yaml")
    exercise.require(
        isinstance(document, dict), "runtime_env.yaml has no fields of a runtime_env", exercise.brought_back
    )
    return exercise.submit("python main.py", py_modules=["library/discount"], runtime_env=document)


@contextmanager
def _registry(pods: Pods) -> Iterator[None]:
    """Has the lab's registry run in the place of the learner's, and removes all of the lab."""
    kube, folder = pods.kube, pods.exercise.folder
    metadata = {"name": _REGISTRY, "namespace": kube.namespace}
    program = {"registry.py": (folder / "registry.py").read_text()}
    service = yaml_file.read(folder / "registry-service.yaml")
    _remove(pods)
    try:
        kube.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": program})
        kube.apply({**service, "metadata": metadata})
        pods.make("registry.yaml")
        pods.wait(_REGISTRY, "registry", lambda status: status.get("ready") is True, "become ready")
        yield
    finally:
        _remove(pods)


def _remove(pods: Pods) -> None:
    pods.remove()
    for plural, name in (("services", _REGISTRY), ("configmaps", _REGISTRY), ("secrets", _SECRET)):
        pods.kube.delete(_path(pods.kube, plural, name))


def _check_batch(pods: Pods, untouched: Exercise, answers: dict[str, str]) -> None:
    """Checks that the name of the image and the login were mended, each in its turn. Raises NotSolved."""
    require = pods.exercise.require
    _make_secret(untouched)
    Pods(untouched).make("batch.yaml")
    unreachable = _problem(pods, "batch", "registry.invalid/")
    require(
        re.fullmatch(r"[\w-]+(\.[\w-]+)+", answers["registry"])
        and re.search(rf"(?<![\w./-]){re.escape(answers['registry'])}/", unreachable),
        f"the node did not ask {answers['registry']} for the image of lab-21-batch",
        "./invokew diagnose --pod lab-21-batch has the image's name: its first part is the registry",
    )
    pods.make("batch.yaml")
    (container,) = (pods.kube.get(pods.path("lab-21-batch")) or {})["spec"]["containers"]
    require(
        container["imagePullPolicy"] == "Always",
        "a node that has the image of lab-21-batch would ask nobody for it, with no login at all",
        "leave imagePullPolicy in batch.yaml as it was: Always",
    )
    refused = _problem(pods, "batch")
    require(
        f"{_WRONG_TYPE} {answers['type']}," in refused,
        f"diagnose does not say that the Secret has the type {answers['type']}, but: {refused}",
        "mend the image's name and name the Secret: ./invokew diagnose --pod lab-21-batch says its type then",
    )
    pods.remove("lab-21-batch")
    _make_secret(pods.exercise)
    pods.make("batch.yaml")
    _require_printed(pods, "batch", "batch: release 1")


def _check_processor(pods: Pods, untouched: Exercise, answers: dict[str, str]) -> None:
    """Checks that the image for another processor was seen, and is not used any more. Raises NotSolved."""
    Pods(untouched).make("processor.yaml")
    foreign = _problem(pods, "processor", "another processor")
    pods.exercise.require(
        answers["words"].lower() == "exec format error" and answers["words"].lower() in foreign,
        f"lab-21-processor does not say {answers['words']!r}",
        "./invokew diagnose --pod lab-21-processor has the kernel's words, which end with `error`",
    )
    pods.make("processor.yaml")
    _require_printed(pods, "processor", "batch: release 1")


def _check_newest(pods: Pods) -> None:
    """Checks that the pod gets what the registry has now, and not what the node has. Raises NotSolved."""
    for release in (secrets.token_hex(3), secrets.token_hex(3)):
        pods.execute(_REGISTRY, "registry", "sh", "-c", f"echo {release} >/tmp/release")
        pods.make("newest.yaml")
        printed = _printed(pods, "newest")
    pods.exercise.require(
        printed == f"batch: release {release}",
        f"the registry has release {release}, and lab-21-newest printed {printed!r}",
        "imagePullPolicy says when the node asks the registry whether a tag still means the same image",
    )


def _spill(pods: Pods, untouched: Exercise) -> None:
    """Has the learner's pod spill, and then one as it was at the beginning: that is evicted no sooner."""
    pods.make("storage.yaml")
    pods.wait("lab-21-storage", "spilling", _has_begun, "started")
    spilled = until(lambda: pods.kube.pod_log("lab-21-storage", "spilling").strip(), bool, _ASKED_AGAIN)
    pods.exercise.require(
        spilled == "spilled 64 MiB", f"lab-21-storage printed {spilled!r}", pods.exercise.brought_back
    )
    for old in ("name: lab-21-storage", "part: storage"):
        untouched.replace("storage.yaml", old, f"{old}-before")
    Pods(untouched).make("storage.yaml")


def _has_begun(status: dict[str, Any]) -> bool:
    return bool({"running", "terminated"} & status.get("state", {}).keys())


def _check_storage(pods: Pods) -> None:
    """Checks that the learner's pod stays where the other one is evicted. Raises NotSolved."""
    before = _problem(pods, "storage-before", "evicted")
    pods.exercise.require("evicted" in before, before, pods.exercise.brought_back)
    if problem := _first_problem(pods, "storage"):
        pods.exercise.not_solved(problem.message, problem.hint)


def _check_job(exercise: Exercise, job: str) -> None:
    """Checks that the job had what it imports. Raises NotSolved."""
    run = exercise.wait(job)
    message = exercise.job(job).message
    exercise.require(
        "runtime_env" not in message,
        f"Ray could not make the environment of the job: {why_no_runtime_env(message)[0]}",
        "let runtime_env.yaml ask for nothing that has come with the job",
    )
    exercise.require_printed(exercise.succeeded(run).output, "price 450", exercise.brought_back)


def _require_printed(pods: Pods, part: str, text: str) -> None:
    printed = _printed(pods, part)
    pods.exercise.require(
        printed == text, f"lab-21-{part} printed {printed!r}, and not {text!r}", pods.exercise.brought_back
    )


def _printed(pods: Pods, part: str) -> str:
    """Returns what a pod has printed to its end. Raises NotSolved, in the words of `diagnose`."""
    name = f"lab-21-{part}"

    def seen() -> tuple[str, RaysideError | None]:
        status = (pods.kube.get(pods.path(name)) or {}).get("status") or {}
        return str(status.get("phase")), _first_problem(pods, part)

    def is_settled(seen: tuple[str, RaysideError | None]) -> bool:
        phase, problem = seen
        return phase in ("Succeeded", "Failed") or (problem is not None and _WRONG_TYPE in problem.message)

    phase, problem = until(seen, is_settled, _ASKED_AGAIN)
    if phase != "Succeeded":
        hint = f"./invokew diagnose --pod {name} says what keeps it"
        why, hint = (problem.message, problem.hint) if problem else (f"{name} is still {phase}", hint)
        pods.exercise.not_solved(why, hint)
    return pods.kube.pod_log(name, "batch").strip()


def _problem(pods: Pods, part: str, words: str = "") -> str:
    """Returns why a pod can't run, as soon as that has these words in it."""

    def message() -> str:
        problem = _first_problem(pods, part)
        return problem.message if problem else ""

    def is_told(message: str) -> bool:
        return message != "" and words in message and "connection refused" not in message

    return until(message, is_told, PATIENCE)


def _first_problem(pods: Pods, part: str) -> RaysideError | None:
    return trouble.first_problem(pods.kube, f"{LABEL}={_HERE.name},part={part}")


def _make_secret(exercise: Exercise) -> None:
    """Makes the Secret of that copy's secret.yaml anew, for its type can't be changed. Raises NotSolved."""
    kube = Pods(exercise).kube
    document = yaml_file.read(exercise.folder / "secret.yaml")
    metadata = document.get("metadata") if isinstance(document, dict) else None
    exercise.require(
        isinstance(metadata, dict) and (document.get("kind"), metadata.get("name")) == ("Secret", _SECRET),
        f"secret.yaml has no Secret {_SECRET}",
        exercise.brought_back,
    )
    kube.delete(_path(kube, "secrets", _SECRET))
    kube.apply({**document, "metadata": {"name": _SECRET, "namespace": kube.namespace}})


def _path(kube: Kube, plural: str, name: str) -> str:
    return f"{CORE}/namespaces/{kube.namespace}/{plural}/{name}"
