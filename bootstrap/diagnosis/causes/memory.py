"""Explains failures for want of memory: of the node, of Python, of Ray's object store."""

from __future__ import annotations

import re

from bootstrap.diagnosis.causes.cause import Cause
from bootstrap.diagnosis.failure import Failure


def out_of_memory(failure: Failure) -> Cause | None:
    killed = re.search(
        r"low on memory\. Memory on the node .{0,300}? was ([\d.]{1,20} ?GB) used / ([\d.]{1,20} ?GB) limit",
        failure.text,
    )
    if failure.name != "OutOfMemoryError" or not killed:
        return _python_memory(failure)
    its = re.search(r"actual memory used=([\d.]+ ?GB)", failure.text)
    own = f", {its[1]} of that by its own process" if its else ""
    # Ray's tables lack a task of another Ray, as of one that the job itself has started.
    chosen = re.search(r"Selected to kill: \(Task: .{0,300}?task name=([^,)]{1,200})", failure.text)
    named = f"task {chosen[1]}" if chosen and failure.subject == "the driver" else failure.subject
    return Cause(
        "task-out-of-memory",
        f"{named} was killed by Ray, for its node ran low on memory",
        f"{killed[1]} of {killed[2]} were in use{own}",
        "let fewer run at once, as with @ray.remote(num_cpus=2), or have each load less",
    )


def _python_memory(failure: Failure) -> Cause | None:
    if failure.name not in ("OutOfMemoryError", "MemoryError"):
        return None
    what = f"{failure.subject} got no more memory"
    return Cause("task-out-of-memory", what, failure.message, "have it load less at a time")


def object_store_full(failure: Failure) -> Cause | None:
    if failure.name not in ("ObjectStoreFullError", "OutOfDiskError"):
        return None
    disk = failure.name == "OutOfDiskError"
    return Cause(
        "object-store-full",
        f"{failure.subject} could not store an object: the object store is full",
        "the disk that Ray spills objects to is full, too" if disk else failure.message.partition("\n")[0],
        "free disk space; ./invokew doctor shows how much there is"
        if disk
        else "drop references to objects that are no longer needed, or have tasks return less",
    )
