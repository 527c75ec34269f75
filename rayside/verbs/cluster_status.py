"""Output of verb `status`: a cluster's steps as they are now, and its addresses."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from rayside.connection.instance import Instance
from rayside.console import Console
from rayside.private_file import write_private
from rayside.steps.graph import Timing
from rayside.steps.step import Condition, Status

# File in a cluster's folder with the timing of the last `up`.
_TIMINGS = "up.json"


def show(
    console: Console,
    instance: Instance,
    statuses: Mapping[str, Status],
    urls: Mapping[str, str | None],
    **where: str,
) -> bool:
    """Shows each step, and the addresses; returns whether more can be shown: all ready, and no JSON.

    `where` contains the document's `target` and `source`.
    """
    if console.as_json:
        steps = [{"name": name, **status.document()} for name, status in statuses.items()]
        seen = {"ready": is_ready(statuses), "steps": steps, "urls": urls, "timing": _timings(instance)}
        console.document({**where, **seen})
        return False
    console.table(
        ("step", "condition", "detail"),
        [(name, status.condition.value, status.detail) for name, status in statuses.items()],
    )
    console.result()
    hints: dict[str, list[str]] = {}
    for name, status in statuses.items():
        if status.error:
            hints.setdefault(status.error.hint, []).append(name)
    for hint, names_of in hints.items():
        console.result(f"{', '.join(names_of)}: {hint}")
    if not is_ready(statuses):
        console.result("Not ready. Next: ./invokew up")
        return False
    ready_urls = ", ".join(f"{name} {url}" for name, url in urls.items() if url)
    console.result(f"Ready. {ready_urls.capitalize()}")
    return True


def is_ready(statuses: Mapping[str, Status]) -> bool:
    """Returns whether every step is ready."""
    return all(status.condition is Condition.READY for status in statuses.values())


def record(instance: Instance, timings: Sequence[Timing]) -> None:
    """Stores the timings of an `up` for `status --json`."""
    write_private(instance.folder / _TIMINGS, json.dumps([timing.document() for timing in timings]))


def _timings(instance: Instance) -> list[dict[str, Any]]:
    """Returns the timings of the last `up` that changed something; empty without one."""
    try:
        return list(json.loads((instance.folder / _TIMINGS).read_text()))
    except (FileNotFoundError, ValueError):
        return []
