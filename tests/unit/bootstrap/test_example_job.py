"""Tests what `up` says of the example: Ray's table of tasks lags, and other jobs' tasks may be paused."""

from __future__ import annotations

import time

import pytest

from bootstrap.steps import example_job
from bootstrap.steps.example_job import ExampleJob, paused_in
from rayside.ray.records import Job, WaitingTask
from rayside.ray.state import LAG, Dashboard
from rayside.steps.step import ready


def task(name: str, job_id: str = "02000000") -> WaitingTask:
    return WaitingTask("w1", 3575, job_id, name, "", "127.0.0.2", 52381)


def run(submission_id: str, job_id: str, status: str = "RUNNING") -> Job:
    return Job(submission_id, job_id, status, "python job.py", "", None, 0.0, {}, {})


class Looks(Dashboard):
    """Says what is paused, look by look; the last answer stays."""

    def __init__(self, *looks: list[WaitingTask]) -> None:
        super().__init__("http://127.0.0.1:1", "token")
        self.looks = list(looks)

    def jobs(self) -> list[Job]:
        return [
            run("rayside-example-1", "01000000", "SUCCEEDED"),
            run("rayside-example-2", "02000000"),
            run("my-own", "03000000"),
        ]

    def waiting(self, running: object = None) -> list[WaitingTask]:
        return self.looks.pop(0) if len(self.looks) > 1 else self.looks[0]


@pytest.mark.parametrize(
    "looks",
    [
        pytest.param([[task("estimate")]], id="at once"),
        pytest.param([[task("sample")], [task("estimate")]], id="after the one its worker ran before"),
        pytest.param([[task("", "")], [task("estimate")]], id="after no task at all"),
        pytest.param([[task("theirs", "03000000"), task("estimate")]], id="beside another's"),
    ],
)
def test_the_examples_own_task_is_waited_for(looks: list[list[WaitingTask]]) -> None:
    assert paused_in(Looks(*looks)) == "estimate"


@pytest.mark.parametrize("paused", [[], [task("theirs", "03000000")], [task("estimate", "01000000")]])
def test_tasks_of_other_jobs_are_neither_the_examples_nor_waited_for(paused: list[WaitingTask]) -> None:
    began = time.monotonic()
    assert paused_in(Looks(paused)) == ""
    assert time.monotonic() - began < LAG / 2


def test_a_task_put_in_the_examples_place_is_said_in_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(example_job, "LAG", 0.2)
    assert paused_in(Looks([task("changed")])) == "changed"


def test_what_to_type_next_is_told_at_the_stop_before_the_workspace_is_ready() -> None:
    step = ExampleJob(lambda: Looks([task("estimate")]), lambda job, name: None, ("ray",))
    assert step.check() == ready("rayside-example-2 is paused; ./invokew debug stops in it")
