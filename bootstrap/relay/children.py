"""Describes the processes that a debuggee has started: debuggees of their own, which Ray does not list."""

from __future__ import annotations

from dataclasses import replace

from bootstrap.dap.framing import Message
from bootstrap.hook.rayside_hook.children import ATTRIBUTE, MOST
from bootstrap.relay.debuggee import Debuggee
from bootstrap.relay.worker import Workers


def child_of(parent: Debuggee, child: Message) -> Debuggee:
    """Returns the description of a child; `child` has its `pid` and its `port`, as the parent told them."""
    pid = child["pid"]
    return replace(
        parent,
        worker_id=f"{parent.worker_id}.{pid}",
        rays_id=f"{parent.rays_id}.{pid}" if parent.rays_id else "",
        pid=pid,
        port=child["port"],
        task=f"child of {parent.task}" if parent.task else "child process",
        since="",
        parent=parent.worker_id,
    )


def let_go(child: Message) -> str:
    """Returns what a debuggee evaluates to have a child go on, which waits to be attached to."""
    return f"__import__('pydevd').get_global_debugger().{ATTRIBUTE}.go_on({child['pid']})"


def sentence(parent: Debuggee) -> str:
    """Returns what an editor is told of a debuggee with as many children as it may have."""
    return f"{parent.title} has {MOST} children: further ones run on by themselves."


def are_many(workers: Workers, parent: Debuggee) -> bool:
    """Returns whether a debuggee has as many children there as it may: no program is to fill the list."""
    return sum(worker.debuggee.parent == parent.worker_id for worker in workers.values()) >= MOST
