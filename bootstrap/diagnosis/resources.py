"""Says which resources something needs and lacks: those that no node has, or those that others hold."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from bootstrap.diagnosis.evidence import RUNNING, Evidence, Node, Task

Amounts = Mapping[str, float]


def lacking(needed: Amounts, nodes: Sequence[Node]) -> dict[str, float]:
    """Returns what of `needed` even the best live node lacks in all; empty where one could run it."""
    best: dict[str, float] | None = None
    for node in nodes:
        if node.alive:
            lacks = {name: amount for name, amount in needed.items() if node.total.get(name, 0) < amount}
            if best is None or len(lacks) < len(best):
                best = lacks
    return dict(needed) if best is None else best


def taken(needed: Amounts, evidence: Evidence) -> dict[str, float] | None:
    """Returns what of `needed` is not free on the node that has the most free, as the amounts in use there.

    It is empty where a node could run it now, and None where nobody knows what is in use.
    """
    best: dict[str, float] | None = None
    for node in evidence.nodes:
        usage = evidence.used.get(node.node_id)
        if not node.alive or usage is None or lacking(needed, [node]):
            continue
        used = {name: usage.get(_as_dashboard(name), 0.0) for name in needed}
        short = {
            name: used[name] for name in needed if round(node.total[name] - used[name], 4) < needed[name]
        }
        if best is None or len(short) < len(best):
            best = short
    return best


def holders(names: Iterable[str], evidence: Evidence) -> list[str]:
    """Returns who has some of these resources now, as in `task hold`, with what is paused first."""
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
    """Returns the resources that a running task keeps: while it waits for others' results, not its CPU."""
    return set(task.required) - ({"CPU"} if task.state != "RUNNING" else set())


def words(amounts: Amounts) -> str:
    """Returns amounts for people, as in `2 CPU and 1 GPU`."""
    return " and ".join(f"{amount:g} {name}" for name, amount in amounts.items()) or "nothing"


def most(names: Iterable[str], nodes: Sequence[Node]) -> str:
    """Returns the most that any live node has of each, as in `no node has more than 2 CPU`."""
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
