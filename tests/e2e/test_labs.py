"""Tests on kind the labs, and the parts of labs, that the cluster of this machine can't have.

The others are checked on `local`, in test_labs.py of tests/integration: a lab's code is the same on both.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from bootstrap.errors import NotSolved
from bootstrap.labs import checking
from bootstrap.labs.copies import Copy
from bootstrap.labs.exercise import Exercise
from bootstrap.labs.lesson import Lesson, find, lessons
from bootstrap.labs.pods import Pods
from bootstrap.settings import POD
from rayside.connection.heads import head_selector
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
    result = checking.checked(lesson, target(idle), notes.append)
    assert result.status == "passed", (result, notes)


def test_each_pitfall_of_the_air_gap_is_told_in_its_own_words_while_all_else_is_solved(
    idle: Rayside, tmp_path: Path
) -> None:
    lesson = find("air-gap", lessons())
    lab, answers = (
        lesson.code,
        {"registry": "registry.invalid", "type": "Opaque", "words": "exec format error"},
    )

    def unsolved(name: str) -> Exercise:
        copy = Copy(lesson, tmp_path / name)
        copy.solve()
        shutil.copy(lesson.folder / name, copy.folder)
        return Exercise(copy.folder, target(idle), lambda text: None)

    asks_an_index, is_evicted = unsolved("runtime_env.yaml"), Pods(unsolved("storage.yaml"))
    job = lab._submit(asks_an_index)
    with asks_an_index.untouched(lesson.folder) as untouched, lab._registry(Pods(untouched)):
        lab._spill(is_evicted, untouched)
        lab._make_secret(is_evicted.exercise)
        with pytest.raises(NotSolved, match="another processor"):
            lab._check_processor(Pods(unsolved("processor.yaml")), untouched, answers)
        with pytest.raises(NotSolved, match="the registry has release"):
            lab._check_newest(Pods(unsolved("newest.yaml")))
        with pytest.raises(NotSolved, match=r"has no image registry\.invalid"):
            lab._check_batch(Pods(unsolved("batch.yaml")), untouched, answers)
        with pytest.raises(NotSolved, match="has the type Opaque"):
            lab._check_batch(Pods(unsolved("secret.yaml")), untouched, answers)
        with pytest.raises(NotSolved, match="lab-21-storage was evicted"):
            lab._check_storage(is_evicted)
    with pytest.raises(NotSolved, match="No matching distribution found for discount"):
        lab._check_job(asks_an_index, job)


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
