"""End time of a workshop: parsed from the teacher's text, and waited for."""

from __future__ import annotations

import re
import threading
from datetime import datetime, timedelta

from rayside.errors import InvalidArgument

_CLOCK = re.compile(r"(\d{1,2}):(\d\d)", re.ASCII)
_DATE = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d)?([+-]\d\d:\d\d)?", re.ASCII)
# Limit of the time until the end, so that no workshop is forgotten for longer.
LONGEST = timedelta(days=14)
# Seconds between checks of the clock, as a machine may have slept.
_LOOK = 5.0


def moment(text: str, now: datetime) -> datetime:
    """Parses an end time: the next 17:30, or a day and a time as in 2026-11-27T17:30.

    `now` is in local time, without an offset, as clocks may change until then. The result has an offset.
    Raises InvalidArgument for an invalid time, or one that is past, or more than 14 days ahead.
    """
    wrong = InvalidArgument(f"--until is {text!r}", hint="write it as 17:30, or as 2026-11-27T17:30")
    if clock := _CLOCK.fullmatch(text.strip()):
        hour, minute = map(int, clock.groups())
        if hour > 23 or minute > 59:
            raise wrong
        ends = now.replace(hour=hour, minute=minute, second=0, microsecond=0)
        return (ends if ends > now else ends + timedelta(days=1)).astimezone()
    if not _DATE.fullmatch(text.strip()):
        raise wrong
    try:
        ends = datetime.fromisoformat(text.strip()).astimezone()
    except ValueError:
        raise wrong from None
    local = now.astimezone()
    if not local < ends <= local + LONGEST:
        when = "past" if ends <= local else f"more than {LONGEST.days} days ahead"
        raise InvalidArgument(f"--until {text} is {when}", hint="name a time from now on, within 14 days")
    return ends


def wait(ends: datetime, stop: threading.Event) -> None:
    """Waits until `ends`, by the machine's clock, or until `stop` is set."""
    while (left := (ends - datetime.now(ends.tzinfo)).total_seconds()) > 0:
        if stop.wait(min(left, _LOOK)):
            return
