"""Pods of a lab in the cluster's namespace: created, watched and removed by the lab's label."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from bootstrap.errors import NotSolved
from bootstrap.kube.api import CORE, Kube
from bootstrap.labs.exercise import PATIENCE, Exercise
from bootstrap.targets.target import Target
from rayside import waiting, yaml_file
from rayside.errors import InvalidArgument
from rayside.system.shell import Shell

LABEL = "rayside.dev/lab"


@dataclass(frozen=True)
class Pods:
    """The pods of one learner's exercise, on a target with Kubernetes."""

    exercise: Exercise

    @property
    def kube(self) -> Kube:
        assert self.exercise.target.kubernetes is not None
        return self.exercise.target.kubernetes.kube

    def make(self, name: str) -> str:
        """Creates the pod in that file of the learner's copy, replacing an earlier one; returns its name.

        Raises NotSolved if the file has no pod of this lab.
        """
        document, lab = yaml_file.read(self.exercise.folder / name), self.exercise.folder.name
        try:
            metadata = document["metadata"]
            is_ours = document["kind"] == "Pod" and "name" in metadata and metadata["labels"][LABEL] == lab
        except (KeyError, TypeError):
            is_ours = False
        message = f"{name} has no pod with the label {LABEL}: {lab}"
        self.exercise.require(is_ours, message, self.exercise.brought_back)
        self.remove(str(metadata["name"]))
        self.kube.apply({**document, "metadata": {**metadata, "namespace": self.kube.namespace}})
        return str(metadata["name"])

    def wait(
        self, name: str, container: str, reached: Callable[[dict[str, Any]], bool], what: str
    ) -> dict[str, Any]:
        """Waits for a state of a pod's container, and returns its status. Raises NotSolved on timeout.

        `reached` gets the status, an entry of Kubernetes' `containerStatuses`; `what` describes the state.
        """

        def status() -> dict[str, Any]:
            pod = self.kube.get(self.path(name)) or {}
            statuses = (pod.get("status") or {}).get("containerStatuses") or []
            return next((dict(each) for each in statuses if each["name"] == container), {})

        seen = waiting.until(status, reached, patience=PATIENCE)
        if not reached(seen):
            hint = f"./invokew diagnose --pod {name} says what keeps it"
            raise NotSolved(f"{container} of pod {name} has not {what} within {PATIENCE:g} s", hint=hint)
        return seen

    def execute(self, name: str, container: str, *command: str) -> str:
        """Runs a program in a pod's container; returns its output, also if it fails."""
        words = kubectl(self.exercise.target, "exec", name, "--container", container, "--", *command)
        return Shell().run(words, check=False).out

    def remove(self, *names: str) -> None:
        """Removes these pods of the lab, or all pods of the lab, and waits until they are gone."""
        pods = self.kube.pods(f"{LABEL}={self.exercise.folder.name}")
        own = [pod["metadata"]["name"] for pod in pods if not names or pod["metadata"]["name"] in names]
        for name in own:
            self.kube.delete(self.path(name), gracePeriodSeconds="0")
        waiting.until(
            lambda: [name for name in own if self.kube.get(self.path(name))],
            lambda left: not left,
            patience=PATIENCE,
        )

    def path(self, name: str) -> str:
        return f"{CORE}/namespaces/{self.kube.namespace}/pods/{name}"


def kubectl(target: Target, *arguments: str) -> list[str]:
    """Returns a command with Rayside's own kubectl. Raises InvalidArgument for a target without pods."""
    if target.kubernetes is None:
        name, kind = target.instance.name, target.instance.target
        raise InvalidArgument(
            f"the cluster {name} is on the target {kind}, and has no pods",
            hint="./invokew up --target kind --name NAME makes one that has",
        )
    return target.kubernetes.kubectl(*arguments)
