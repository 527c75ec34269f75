"""Explains why an object could not be sent, or is lost."""

from __future__ import annotations

import re

from bootstrap.diagnosis.causes.cause import Cause
from bootstrap.diagnosis.failure import Failure


def owner_died(failure: Failure) -> Cause | None:
    if failure.name != "OwnerDiedError":
        return None
    return Cause(
        "owner-died",
        f"{failure.subject} asked for an object whose owner has ended",
        "an object lives as long as the worker or actor that made it with ray.put or .remote",
        "keep that actor alive, or have the driver make the object",
    )


def object_lost(failure: Failure) -> Cause | None:
    names = (
        "ObjectLostError",
        "ObjectFetchTimedOutError",
        "ObjectFreedError",
        "ReferenceCountingAssertionError",
    )
    if failure.name not in (*names, "ObjectReconstructionFailedError"):
        return None
    words = [part for part in failure.message.split("\n") if part.strip()]
    return Cause(
        "object-lost",
        f"{failure.subject} asked for an object that is lost",
        words[-1] if words else "all copies of it are gone",
        "have a task with max_retries make the object, so that Ray can make it again",
    )


def not_serializable(failure: Failure) -> Cause | None:
    # A log may tell of others, which were handled.
    match = re.match(
        r"Could not serialize the (function|argument|actor class|return value)\s+(.{1,500}?)"
        r"(?: for a task or actor (\S{1,300}?))?:?$",
        failure.message,
        re.MULTILINE,
    )
    is_pickling = failure.name == "PicklingError" or re.search(r"cannot pickle|Can't pickle", failure.message)
    if not match and not is_pickling:
        return None
    variable = re.search(
        r"FailTuple\((\w{1,100}) \[path=([^,\n]{0,300}), obj=(.{1,500}?), parent=", failure.text
    )
    kind = re.search(r"cannot pickle '?([\w.]+)'? object", failure.text)
    of = f", of type {kind[1]}" if kind else ""
    if match and match[1] == "argument":
        what = f"an argument of {match[3] or 'a task'} can't be sent to a worker"
        why = f"{match[2]}{of} can't be pickled"
    elif match:
        what = f"{match[1]} {match[2]} can't be sent to a worker"
        name = variable[1] if variable and variable[1] != "unknown" else ""
        why = (
            f"it uses the variable {name}{of}, which can't be pickled" if name else f"what it uses{of} can't"
        )
    else:
        what, why = (
            f"{failure.subject} used an object that can't be pickled",
            failure.message.partition("\n")[0],
        )
    return Cause(
        "not-serializable", what, why, "make that object inside of the function or the actor's __init__"
    )
