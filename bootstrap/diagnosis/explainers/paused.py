"""Explains tasks and drivers that stand still for a debugger, and what waits for them."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from bootstrap.diagnosis import resources
from bootstrap.diagnosis.evidence import PENDING, Evidence, Task
from bootstrap.diagnosis.finding import Finding, Weight, sentence


def paused(evidence: Evidence) -> Iterator[Finding]:
    """Yields a finding for each job with paused tasks; it says which tasks wait meanwhile."""
    for job_id in dict.fromkeys(task.job_id for task in evidence.paused):
        tasks = [task for task in evidence.paused if task.job_id == job_id]
        name = evidence.job_name(job_id)
        drivers = [task for task in tasks if task.task == "driver"]
        others = [task for task in evidence.tasks if task.job_id == job_id and _may_wait(task, evidence)]
        kinds = list(dict.fromkeys(task.name for task in others))
        first = tasks[0]
        holds = "is stopped in the debugger" if first.held else "waits for a debugger"
        # Ray does not record when a task that waits for a debugger stopped.
        began = "stopped" if first.held else "began to run"
        number = f" and {len(tasks) - 1} more" if len(tasks) > 1 else ""
        if drivers:
            identity, what = "driver-paused", f"the driver of job {name} {holds}"
        elif others:
            identity = "paused-others-wait"
            what = f"task {first.task or '?'}{number} of job {name} {holds}, and others wait for it"
        else:
            identity, what = "task-paused", f"task {first.task or '?'}{number} of job {name} {holds}"
        waiting = f"; waiting: {', '.join(kinds[:5])} ({len(others)} in all)" if others else ""
        yield Finding(
            identity,
            sentence(what),
            sentence(f"process {first.pid} on node {first.node_ip}"),
            sentence(f"it {began} {first.since}, and keeps its CPU{waiting}"),
            f"./invokew debug --job {shlex.quote(name)}",
            Weight.STUCK if others or drivers else Weight.WAITING,
            job=name,
        )


def _may_wait(task: Task, evidence: Evidence) -> bool:
    """Returns whether a task may wait for one that is paused: what no node has, it waits for in vain."""
    if task.state == "PENDING_NODE_ASSIGNMENT" and evidence.nodes:
        return not resources.lacking(task.required, evidence.nodes)
    return task.state in PENDING
