"""Findings for tasks, actors, placement groups and jobs that are paused or wait, and for what."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence

from bootstrap.diagnosis.evidence import PENDING, RUNNING, Evidence, Finding, Node, Task, Weight
from bootstrap.diagnosis.raised import last_words

Amounts = Mapping[str, float]

# Seconds of a normal wait in a queue, and for a start: a worker's start takes 1 to 10.
_QUEUED, _STARTING = 5.0, 30.0
# A task in a placement group requests `CPU_group_0_<id>` and the like; a group's `ready` runs a task of Ray.
_IN_GROUP = re.compile(r"_group_(?:\d+_)?[0-9a-f]+\Z")
_GROUP_READY = "bundle_reservation_check_func"
# An actor that requests nothing keeps no CPU, but needs one to be placed.
_PLACED = {"CPU": 1.0}


def paused(evidence: Evidence) -> Iterator[Finding]:
    """Yields a finding for each job with paused tasks, and names the tasks that wait meanwhile."""
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
            what,
            f"process {first.pid} on node {first.node_ip}",
            f"it {began} {first.since}, and keeps its CPU{waiting}",
            f"./invokew debug --job {shlex.quote(name)}",
            Weight.STUCK if others or drivers else Weight.WAITING,
            job=name,
        )


def pending_tasks(evidence: Evidence) -> Iterator[Finding]:
    """Yields a finding for the tasks and actors of one name that wait for a node."""
    waiting: dict[tuple[str, str], list[Task]] = {}
    for task in evidence.live_tasks:
        # A method of an actor waits for its actor, which has a separate task.
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
        return Finding(identity, what, where, why, hint, weight, task.since, job)

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
    if evidence.nodes and (lacks := _lacking(required, evidence.nodes)):
        return finding(
            f"{kind}-infeasible",
            f"{subject} for {_words(lacks)}, which no node has",
            f"{task.state}: it needs {_words(required)}; {_most(lacks, evidence.nodes)}",
            f"{_ask_for_less(lacks)}; where an autoscaler runs, wait for its node",
            Weight.STUCK,
        )
    taken = _taken(required, evidence)
    who = _holders(taken, evidence) if taken else []
    if taken and waited >= _QUEUED:
        paused = any("(paused)" in holder for holder in who)
        return finding(
            f"{kind}-waits-for-resources",
            f"{subject} for {_words({name: required[name] for name in taken})}",
            f"all of it is in use, by {_some(who)}"
            if who
            else f"in use are {_words(taken)}, perhaps by workers that start{_of_raylets(evidence)}",
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
            f"a worker process for it has not come up{env}{_of_raylets(evidence)}",
            "./invokew logs --ray shows what its node says",
            Weight.STUCK,
        )
    return None


def pending_groups(evidence: Evidence) -> Iterator[Finding]:
    for group in evidence.groups:
        if group.state not in ("PENDING", "RESCHEDULING") or evidence.has_ended(group.job_id):
            continue
        job = evidence.job_name(group.job_id)
        asked = ", ".join(_words(bundle) for bundle in group.bundles)
        lacking: dict[str, float] = {}
        for bundle in group.bundles:
            lacking |= _lacking(bundle, evidence.nodes)
        if lacking:
            identity, why = "placement-group-infeasible", _most(lacking, evidence.nodes)
            hint = _ask_for_less(lacking)
        elif evidence.now - group.since >= _QUEUED:
            who = _holders({name for bundle in group.bundles for name in bundle}, evidence)
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
            f"placement group {group.name} waits for its bundles: {asked}",
            f"job {job}",
            why,
            hint,
            Weight.STUCK,
            at=group.since,
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
        if made:
            why = f"its runtime_env is being made ({', '.join(made)}), which may take minutes"
        else:
            why = (job.message or "Ray does not say why") + _of_raylets(evidence)
        yield Finding(
            "job-not-started",
            f"job {job.submission_id} has not started",
            f"for {evidence.now - job.started:.0f} s",
            why,
            "./invokew logs --ray shows what its node says",
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


def _of_raylets(evidence: Evidence) -> str:
    """Returns the last line of a node's error output, as about a missing program of a worker."""
    told = last_words(evidence.raylet_errors)
    return f"; a node printed last: {told}" if told else ""


def _may_wait(task: Task, evidence: Evidence) -> bool:
    """Returns whether a task may wait for a paused one, and not for resources that no node has."""
    if task.state == "PENDING_NODE_ASSIGNMENT" and evidence.nodes:
        return not _lacking(task.required, evidence.nodes)
    return task.state in PENDING


def _lacking(needed: Amounts, nodes: Sequence[Node]) -> dict[str, float]:
    """Returns the part of `needed` that the best live node lacks in total; empty if one could run it."""
    best: dict[str, float] | None = None
    for node in nodes:
        if node.alive:
            lacks = {name: amount for name, amount in needed.items() if node.total.get(name, 0) < amount}
            if best is None or len(lacks) < len(best):
                best = lacks
    return dict(needed) if best is None else best


def _taken(needed: Amounts, evidence: Evidence) -> dict[str, float] | None:
    """Returns the part of `needed` that is not free on the best node, as the amounts in use there.

    Empty if a node could run it now; None if no usage is known.
    """
    best: dict[str, float] | None = None
    for node in evidence.nodes:
        usage = evidence.used.get(node.node_id)
        if not node.alive or usage is None or _lacking(needed, [node]):
            continue
        used = {name: usage.get(_as_dashboard(name), 0.0) for name in needed}
        short = {
            name: used[name] for name in needed if round(node.total[name] - used[name], 4) < needed[name]
        }
        if best is None or len(short) < len(best):
            best = short
    return best


def _holders(names: Iterable[str], evidence: Evidence) -> list[str]:
    """Returns the tasks and actors that hold some of these resources, as in `task hold`, paused first."""
    held = set(names)
    paused = {task.worker_id for task in evidence.paused}
    tasks = [task for task in evidence.live_tasks if task.state in RUNNING and held & _kept(task)]
    tasks.sort(key=lambda task: task.worker_id not in paused)
    running = [
        f"task {task.name} of job {evidence.job_name(task.job_id)}"
        + (" (paused)" if task.worker_id in paused else "")
        for task in tasks
    ]
    actors = [
        f"actor {actor.name} of job {evidence.job_name(actor.job_id)}"
        for actor in evidence.actors
        if actor.state == "ALIVE" and held & actor.required.keys()
    ]
    return list(dict.fromkeys([*running, *actors]))


def _kept(task: Task) -> set[str]:
    """Returns the resources that a running task keeps: not its CPU while it waits for other tasks."""
    return set(task.required) - ({"CPU"} if task.state != "RUNNING" else set())


def _words(amounts: Amounts) -> str:
    """Returns amounts as text, as in `2 CPU and 1 GPU`."""
    return " and ".join(f"{amount:g} {name}" for name, amount in amounts.items()) or "nothing"


def _most(names: Iterable[str], nodes: Sequence[Node]) -> str:
    """Returns the largest amount on any live node, as in `no node has more than 2 CPU`."""
    alive = [node for node in nodes if node.alive]
    has = {name: max((node.total.get(name, 0) for node in alive), default=0) for name in names}
    parts = [
        f"no node has more than {amount:g} {name}" if amount else f"no node has any {name}"
        for name, amount in has.items()
    ]
    return ", ".join(parts)


def _as_dashboard(name: str) -> str:
    """Returns a resource's name as `/api/cluster_status` has it, whose keys are in camel case."""
    first, *rest = name.split("_")
    return first + "".join(part.title() for part in rest)
