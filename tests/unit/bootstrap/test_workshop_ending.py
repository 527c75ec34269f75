"""Tests when a workshop ends, and that a clock which is set anew is followed."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone

import pytest

from bootstrap.workshop.ending import moment, wait
from rayside.errors import InvalidArgument

NOW = datetime(2026, 11, 27, 16, 30, 20)


@pytest.fixture(autouse=True)
def madrid(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Has the machine's clock where the hour changes: on 25 October 2026, back to UTC+1."""
    monkeypatch.setenv("TZ", "Europe/Madrid")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def utc(*parts: int) -> datetime:
    return datetime(*parts, tzinfo=timezone.utc)  # type: ignore[misc,arg-type]


BEFORE_THE_CHANGE = datetime(2026, 10, 24, 18)


@pytest.mark.parametrize(
    ("text", "now", "ends"),
    [
        ("17:30", NOW, utc(2026, 11, 27, 16, 30)),
        (" 9:05", NOW, utc(2026, 11, 28, 8, 5)),
        ("16:30", NOW, utc(2026, 11, 28, 15, 30)),
        ("00:00", NOW, utc(2026, 11, 27, 23)),
        ("2026-11-27T18:00", NOW, utc(2026, 11, 27, 17)),
        ("2026-11-27 18:00:30+00:00", NOW, utc(2026, 11, 27, 18, 0, 30)),
        # After the clocks change, it is in the time of then.
        ("17:30", BEFORE_THE_CHANGE, utc(2026, 10, 25, 16, 30)),
        ("2026-10-26T17:30", BEFORE_THE_CHANGE, utc(2026, 10, 26, 16, 30)),
    ],
)
def test_a_time_is_the_next_one_that_is_so(text: str, now: datetime, ends: datetime) -> None:
    assert moment(text, now) == ends


@pytest.mark.parametrize(
    "text",
    ["", "24:00", "12:60", "17", "tomorrow", "1\uff12:00", "2026-13-01T10:00", "2026-11-28", "20261128"],
)
def test_what_is_no_time_is_said(text: str) -> None:
    with pytest.raises(InvalidArgument, match="--until is"):
        moment(text, NOW)


@pytest.mark.parametrize(
    ("text", "why"), [("2026-11-27T16:30", "past"), ("2026-12-12T10:00", "more than 14")]
)
def test_a_time_that_no_workshop_has_is_said(text: str, why: str) -> None:
    with pytest.raises(InvalidArgument, match=why):
        moment(text, NOW)


def test_it_is_waited_for_and_can_be_left() -> None:
    began = time.monotonic()
    wait(datetime.now(timezone.utc) + timedelta(seconds=0.3), threading.Event())
    assert 0.2 < time.monotonic() - began < 20
    stop = threading.Event()
    stop.set()
    wait(datetime.now(timezone.utc) + timedelta(hours=1), stop)
    assert time.monotonic() - began < 20
