"""Pauses places in which nothing is done, and gives them their workers again when something is."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor

from bootstrap.delivery.door_secrets import Claim
from bootstrap.step import Condition, Report
from bootstrap.targets.place import Place
from bootstrap.workshop.event import AT_ONCE
from bootstrap.workshop.pause import BackFromIdle, IdlePaused
from rayside.errors import RaysideError

# Seconds from one look to the next. Each runs a program in each place that somebody has.
LOOK = 60.0


class Culling:
    """Looks into places again and again.

    Attributes:
        minutes: for so long nothing has to be done in a place.
    """

    def __init__(self, minutes: int) -> None:
        self.minutes = minutes
        # Why a place could not be changed at the last look, by its name.
        self._failures: dict[str, str] = {}

    def look(self, places: Mapping[str, Place], claims: Mapping[str, Claim], report: Report) -> None:
        """Looks into all of them once, side by side; says what it changes, and once what fails."""

        def one(name: str) -> None:
            failure = ""
            try:
                self._change(name, places[name], claims.get(name), report)
            except RaysideError as error:
                failure = error.message
            if failure and failure != self._failures.get(name):
                report(f"{name}: {failure}")
            self._failures[name] = failure

        with ThreadPoolExecutor(AT_ONCE) as pool:
            list(pool.map(one, places))

    def _change(self, name: str, place: Place, claim: Claim | None, report: Report) -> None:
        """Changes a place where that is due. Raises RaysideError."""
        back = BackFromIdle(place, claim)
        if back.check().condition is Condition.MISSING:
            back.apply(report)
            report(f"{name} gets its workers again")
            return
        idle = IdlePaused(place, claim, self.minutes)
        if idle.check().condition is Condition.MISSING:
            idle.apply(report)
            report(f"{name} is paused: nothing was done in it for {self.minutes} min")
