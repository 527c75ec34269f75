"""Explains what waits and on what: tasks, actors, placement groups and jobs that have not begun."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from bootstrap.diagnosis import resources, start_failures
from bootstrap.diagnosis.evidence import Evidence, Task
from bootstrap.diagnosis.finding import Finding, Weight, sentence

# What has waited for fewer seconds than this is on its way: a worker's start takes 1 to 10.
_QUEUED, _STARTING = 5.0, 30.0
# In a placement group a task asks for `CPU_group_0_<id>` and the like; its `ready` runs a task of Ray's.
_IN_GROUP = re.compile(r"_group_(?:\d+_)?[0-9a-f]+\Z")
_GROUP_READY = "bundle_reservation_check_func"
# An actor that asks for nothing keeps no CPU, but needs one to be placed.
_PLACED = {"CPU": 1.0}


def pending_tasks(evidence: Evidence) -> Iterator[Finding]:
    """Yields a finding for the tasks and actors of one name that wait for a node."""
    waiting: dict[tuple[str, str], list[Task]] = {}
    for task in evidence.live_tasks:
        # A method of an actor waits for its actor, which has a task of its own.
        is_method, is_rays = task.kind == "ACTOR_TASK", task.name == _GROUP_READY
        if task.state == "PENDING_NODE_ASSIGNMENT" and not is_method and not is_rays:
            waiting.setdefault((task.job_id, task.name), []).append(task)
    for tasks in waiting.values():
        if finding := _pending(evidence, tasks):
            yield finding


def _pending(evidence: Evidence, tasks: Sequence[Task]) -> Finding | None:
    task = min(tasks, key=lambda task: task.since)
    kind = "actor" if task.kind == "ACTOR_CREATION_TASK" else "task"
    name = task.name.removesuffix(".__init__") if kind == "actor" else task.name
    subject = f"{len(tasks)} {kind}s {name} wait" if len(tasks) > 1 else f"{kind} {name} waits"
    job, waited = evidence.job_name(task.job_id), max(0.0, evidence.now - task.since)

    def finding(identity: str, what: str, why: str, hint: str, weight: Weight) -> Finding:
        where = f"job {job}, for {waited:.0f} s"
        words = (sentence(what), sentence(where), sentence(why), sentence(hint))
        return Finding(identity, *words, weight, at=task.since, job=job)

    if any(map(_IN_GROUP.search, task.required)):
        if waited < _QUEUED:
            return None
        return finding(
            f"{kind}-waits-in-placement-group",
            f"{subject} in its placement group",
            "what is in its bundles is in use, or the group has not got them yet",
            "wait, or stop what runs in the group, or make its bundles larger",
            Weight.WAITING,
        )
    required = task.required or (_PLACED if kind == "actor" else {})
    if evidence.nodes and (lacking := resources.lacking(required, evidence.nodes)):
        return finding(
            f"{kind}-infeasible",
            f"{subject} for {resources.words(lacking)}, which no node has",
            f"it needs {resources.words(required)}; {resources.most(lacking, evidence.nodes)}",
            _ask_for_less(lacking),
            Weight.STUCK,
        )
    taken = resources.taken(required, evidence)
    who = resources.holders(taken, evidence) if taken else []
    # While a worker starts, or fails to, it has what its task asked for.
    if waited >= _QUEUED and (
        failed := start_failures.explained(
            task.environment, job, evidence, is_free=not who and waited >= _STARTING
        )
    ):
        stuck = f"{subject.removesuffix(' wait').removesuffix(' waits')} can't start"
        return finding(f"{kind}-not-starting", stuck, *failed, Weight.STUCK)
    if taken and waited >= _QUEUED:
        paused = any("(paused)" in holder for holder in who)
        return finding(
            f"{kind}-waits-for-resources",
            f"{subject} for {resources.words({name: required[name] for name in taken})}",
            f"all of it is in use, by {_some(who)}" if who else f"in use are {resources.words(taken)}",
            "./invokew debug lets the paused task go on"
            if paused
            else "wait, or stop what holds it, or have each task ask for less",
            Weight.STUCK if paused else Weight.WAITING,
        )
    if taken == {} and waited >= _STARTING:
        env = (
            "; it has a runtime_env of its own, which may still be in the making" if task.runtime_env else ""
        )
        return finding(
            f"{kind}-not-starting",
            f"{subject} though a node has what it needs",
            f"a worker process for it has not come up{env}",
            "./invokew logs --ray shows what its node says",
            Weight.STUCK,
        )
    return None


def pending_groups(evidence: Evidence) -> Iterator[Finding]:
    """Yields a finding for each placement group that has not got its bundles."""
    for group in evidence.groups:
        if group.state not in ("PENDING", "RESCHEDULING") or evidence.has_ended(group.job_id):
            continue
        job = evidence.job_name(group.job_id)
        asked = ", ".join(resources.words(bundle) for bundle in group.bundles)
        lacking: dict[str, float] = {}
        for bundle in group.bundles:
            lacking |= resources.lacking(bundle, evidence.nodes)
        if lacking:
            identity, why = "placement-group-infeasible", resources.most(lacking, evidence.nodes)
            hint = _ask_for_less(lacking)
        elif evidence.now - group.since >= _QUEUED:
            who = resources.holders({name for bundle in group.bundles for name in bundle}, evidence)
            identity = "placement-group-pending"
            why = (
                f"its bundles don't fit beside {_some(who)}"
                if who
                else "its bundles don't fit on the nodes at once"
            )
            hint = "wait, or stop what holds it, or ask for fewer or smaller bundles"
        else:
            continue
        yield Finding(
            identity,
            sentence(f"placement group {group.name} waits for its bundles: {asked}"),
            sentence(f"job {job}"),
            sentence(why),
            hint,
            Weight.STUCK,
            at=group.since,
            job=job,
        )


def full_object_store(evidence: Evidence) -> Iterator[Finding]:
    """Yields a finding for each job with tasks that wait for room in the object store."""
    waiting = [task for task in evidence.live_tasks if task.state == "PENDING_OBJ_STORE_MEM_AVAIL"]
    for job_id in dict.fromkeys(task.job_id for task in waiting):
        names = dict.fromkeys(task.name for task in waiting if task.job_id == job_id)
        job = evidence.job_name(job_id)
        yield Finding(
            "object-store-full",
            sentence(f"tasks wait for room in the object store: {_some(list(names))}"),
            sentence(f"job {job}"),
            "it is full of objects that are still referred to",
            "drop references to objects that are no longer needed, or have tasks return less",
            Weight.STUCK,
            job=job,
        )


def pending_jobs(evidence: Evidence) -> Iterator[Finding]:
    """Yields a finding for each job whose driver has not started for a while."""
    for job in evidence.jobs:
        if job.status != "PENDING" or evidence.now - job.started < _STARTING:
            continue
        made = [
            name for name in ("pip", "uv", "conda", "container", "image_uri") if job.runtime_env.get(name)
        ]
        why, hint = start_failures.explained(job.runtime_env, job.submission_id, evidence, is_free=True) or (
            f"its runtime_env is being made ({', '.join(made)}), which may take minutes"
            if made
            else job.message or "Ray does not say why",
            "./invokew logs --ray shows what its node says",
        )
        yield Finding(
            "job-not-started",
            sentence(f"job {job.submission_id} has not started"),
            f"for {evidence.now - job.started:.0f} s",
            sentence(why),
            sentence(hint),
            Weight.STUCK,
            at=job.started,
            job=job.submission_id,
        )


def _ask_for_less(lacking: Mapping[str, float]) -> str:
    options = {"CPU": "num_cpus", "GPU": "num_gpus", "memory": "memory"}
    names = [options.get(name, f'resources={{"{name}": ...}}') for name in lacking]
    return f"have it ask for less in @ray.remote ({', '.join(names)}), or use a cluster whose nodes have it"


def _some(names: Sequence[str], number: int = 4) -> str:
    more = f" and {len(names) - number} more" if len(names) > number else ""
    return ", ".join(names[:number]) + more
