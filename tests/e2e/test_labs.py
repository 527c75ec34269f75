"""Tests on kind the labs, and the parts of labs, that the cluster of this machine can't have.

The others are checked on `local`, in tests/integration/test_labs.py: a lab's code is the same on both.
"""

from __future__ import annotations

import json
import subprocess

import pytest

from bootstrap.kube.api import head_selector
from bootstrap.labs import checking
from bootstrap.labs.lesson import Lesson, lessons
from bootstrap.settings import POD
from tests.e2e.conftest import NAME, target, terminal
from tests.integration.conftest import Rayside, stop_jobs

# Labs for both targets with a part that needs pods: each asks for the target's part for Kubernetes.
WITH_PODS = {"11-exit-codes"}
ON_KIND = [lesson for lesson in lessons() if "local" not in lesson.targets or lesson.name in WITH_PODS]


@pytest.fixture(scope="module")
def idle(up: Rayside) -> Rayside:
    """Provides the cluster without jobs: what stands still holds processors that the labs' tasks need."""
    stop_jobs(target(up).access.require())
    return up


@pytest.mark.parametrize("lesson", ON_KIND, ids=lambda lesson: lesson.name)
def test_a_lab_fails_before_it_is_solved_and_passes_after(idle: Rayside, lesson: Lesson) -> None:
    notes: list[str] = []
    (result,) = checking.check_all([lesson], target(idle), lambda name, text: notes.append(text))
    assert result.status == "passed", (result, notes)


def test_the_labs_of_the_workspaces_pod_are_done_in_it(idle: Rayside) -> None:
    """As its learner has them: with the verbs of the image, in a terminal of the workspace."""
    verbs = [*terminal(RAY_AUTH_MODE="token"), "/home/ray/rayside/invokew"]
    checks = [*verbs, "lab", "--all", "--check", "--json"]
    kubernetes = target(idle).kubernetes
    (head,) = kubernetes.kube.pods(head_selector(NAME))
    command = kubernetes.kubectl("exec", head["metadata"]["name"], "-c", "workspace", "--", *checks)
    done = subprocess.run(command, capture_output=True, text=True, timeout=500, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    statuses = {lab["name"]: lab["status"] for lab in json.loads(done.stdout)["labs"]}
    assert statuses == {lesson.name: "passed" if POD in lesson.targets else "skipped" for lesson in lessons()}


def test_each_lab_with_a_part_for_pods_is_among_them() -> None:
    with_pods = {lesson.name for lesson in lessons() if "Pods(" in (lesson.folder / "lab.py").read_text()}
    assert with_pods <= {lesson.name for lesson in ON_KIND}
