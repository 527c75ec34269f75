"""Reads from the log of this machine's kernel which processes it killed for want of memory.

Its lines are those of mm/oom_kill.c (dump_oom_victim, __oom_kill_process) of Linux; `dmesg` prints the same.
"""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

_LOG = Path("/dev/kmsg")
# The kernel gives one record at a time, of at most so many bytes (CONSOLE_EXT_LOG_MAX).
_RECORD = 8192
# So many kills are kept, the last ones.
_MOST = 200
_RECORD_LINE = re.compile(r"^\d+,\d+,(?P<microseconds>\d+),[^;]*;(?P<text>[^\n]*)")
_WHERE = re.compile(r"^oom-kill:.*\btask_memcg=(?P<group>[^,]*),task=.*,pid=(?P<pid>\d+)")
_KILLED = re.compile(
    r"^(?P<scope>Memory cgroup out|Out) of memory: Killed process (?P<pid>\d+) \((?P<program>.*)\) "
    r".*\banon-rss:(?P<resident>\d+)kB"
)


def kills() -> list[dict[str, Any]]:
    """Returns what `read_kills` finds in this machine's log, nothing where this user may not read it."""
    # Linux alone has it; elsewhere, and where dmesg_restrict is set, there is nothing to say.
    with contextlib.suppress(OSError):
        return read_kills(_records(_LOG), time.time() - time.monotonic())
    return []


def read_kills(records: Iterable[str], booted: float) -> list[dict[str, Any]]:
    """Returns the last kills, oldest first, as `{"pid", "program", "megabytes", "limit", "group", "at"}`.

    `program` is at most 15 characters of its name, `megabytes` what it had in memory. `limit` says that the
    memory of its cgroup had run out, not the machine's; `group` is that cgroup's path. `at` is in seconds
    since 1970, as `booted` is, from which the records count.
    """
    kills: list[dict[str, Any]] = []
    groups: dict[str, str] = {}
    for record in records:
        line = _RECORD_LINE.match(record)
        if line is None:
            continue
        if where := _WHERE.match(line["text"]):
            groups[where["pid"]] = where["group"]
        elif killed := _KILLED.match(line["text"]):
            kills.append(
                {
                    "pid": int(killed["pid"]),
                    "program": killed["program"],
                    "megabytes": round(int(killed["resident"]) * 1024 / 1e6),
                    "limit": killed["scope"] != "Out",
                    "group": groups.pop(killed["pid"], ""),
                    "at": booted + int(line["microseconds"]) / 1e6,
                }
            )
    return kills[-_MOST:]


def _records(log: Path) -> Iterator[str]:
    """Yields the records that the log has now. Raises OSError where it can't be read."""
    descriptor = os.open(log, os.O_RDONLY | os.O_NONBLOCK)
    try:
        while True:
            try:
                yield os.read(descriptor, _RECORD).decode(errors="replace")
            except BlockingIOError:
                return
            except BrokenPipeError:  # Records were overwritten meanwhile: the next one is there.
                continue
    finally:
        os.close(descriptor)
