"""Pause of a workshop: removes the workers of places, as for a lunch break; editors and files stay."""

from __future__ import annotations

import math
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from bootstrap.delivery.door_secrets import Claim
from bootstrap.kube import trouble
from bootstrap.kube.api import RAY
from bootstrap.steps.ray_cluster import PAUSED, PAUSED_FOR, PAUSED_IDLE, PAUSED_SINCE, RESUMED, notes, paused
from bootstrap.targets.place import Place
from bootstrap.workshop import inside
from bootstrap.workshop.estimate import paused_for, timestamp
from bootstrap.workshop.event import AT_ONCE
from rayside.errors import NotRunning, RaysideError
from rayside.steps.step import Condition, Report, Status, missing, pending, ready

# Seconds between checks of `Culling`. Each check runs a program in each claimed place.
LOOK = 60.0
_REPLICAS = "/spec/workerGroupSpecs/0/replicas"


class _Part:
    """A place's RayCluster; only its number of workers, and the annotation of that, are changed."""

    needs: tuple[str, ...] = ()
    patience = 180.0

    def __init__(self, place: Place) -> None:
        self._place = place
        self.name = place.instance.name

    def there(self) -> dict[str, Any] | None:
        return self._place.kube.ray("rayclusters", self._place.instance.ray_cluster)

    def _has(self, workers: int) -> Status:
        cluster = self._place.instance.ray_cluster
        pods = self._place.kube.pods(f"ray.io/cluster={cluster},ray.io/node-type=worker")
        if len(pods) != workers:
            return pending(f"{len(pods)} workers, {workers} are meant")
        waits = trouble.waits(pods)
        return pending("; ".join(waits)) if waits else ready(f"{workers} workers")

    def _change(self, *operations: Mapping[str, Any]) -> None:
        instance = self._place.instance
        path = f"{RAY}/namespaces/{instance.namespace}/rayclusters/{instance.ray_cluster}"
        self._place.kube.patch(path, operations)


class Paused(_Part):
    """A place has no workers, and an annotation with their number before: for a break, even if active."""

    @property
    def title(self) -> str:
        return f"pause of the place {self.name}"

    def check(self) -> Status:
        there = self.there()
        if there is None:
            return ready("it is not there")
        if not paused(there):
            return missing("it has workers")
        return missing("it was paused for being idle") if PAUSED_IDLE in notes(there) else self._has(0)

    def apply(self, report: Report) -> None:
        there = self.there()
        if there is None:
            return
        if not paused(there):
            self._take(there, {})
        # Another command may have paused it meanwhile: its recorded number of workers stays.
        elif (idle := notes(there).get(PAUSED_IDLE)) is not None:
            at = _path(PAUSED_IDLE)
            self._change({"op": "test", "path": at, "value": idle}, {"op": "remove", "path": at})

    def _take(self, there: Mapping[str, Any], also: Mapping[str, str]) -> None:
        workers = there["spec"]["workerGroupSpecs"][0]["replicas"]
        since = self._place.kube.now().isoformat(timespec="seconds")
        added = {PAUSED: str(workers), PAUSED_SINCE: since, **also}
        self._change(
            {"op": "test", "path": _REPLICAS, "value": workers},
            {"op": "replace", "path": _REPLICAS, "value": 0},
            *({"op": "add", "path": _path(key), "value": value} for key, value in added.items()),
        )


class IdlePaused(Paused):
    """An idle place without running jobs has no workers; other places are unchanged.

    An unclaimed place keeps its workers, too, so that a late attendee need not wait. So does a place that
    was resumed within these minutes.
    """

    def __init__(self, place: Place, claim: Claim | None, minutes: int) -> None:
        super().__init__(place)
        self._claim, self._minutes = claim, minutes
        self._acted = 0.0

    def check(self) -> Status:
        there = self.there()
        if there is None:
            return ready("it is not there")
        if paused(there):
            return self._has(0)
        if self._claim is None:
            return ready("nobody has it")
        try:
            seen = inside.activity(self._place)
        except NotRunning as error:
            return ready(error.message)
        if seen.jobs:
            return ready("a job runs in it")
        self._acted = seen.acted
        # Activity before the claim belongs to an earlier attendee.
        begun = max(_seconds(self._claim.since), _seconds(notes(there).get(RESUMED, "")))
        if seen.now - max(seen.acted, begun) < self._minutes * 60:
            return ready(f"something was done in it {self._minutes} min ago or less")
        return missing("its attendee does nothing")

    def apply(self, report: Report) -> None:
        there = self.there()
        if there and not paused(there):
            self._take(there, {PAUSED_IDLE: repr(self._acted)})


class Resumed(_Part):
    @property
    def title(self) -> str:
        return f"place {self.name}"

    def check(self) -> Status:
        there = self.there()
        if there is None:
            return ready("it is not there")
        if paused(there):
            return missing("it is paused")
        return self._has(int(there["spec"]["workerGroupSpecs"][0]["replicas"]))

    def apply(self, report: Report) -> None:
        there = self.there() or {}
        note = paused(there)
        if note:
            goes = {PAUSED, PAUSED_SINCE, PAUSED_IDLE} & {*notes(there)}
            now = self._place.kube.now()
            lasted = round(paused_for(there, now).total_seconds())
            added = {PAUSED_FOR: str(lasted), RESUMED: now.isoformat(timespec="seconds")}
            self._change(
                {"op": "test", "path": _path(PAUSED), "value": note},
                {"op": "replace", "path": _REPLICAS, "value": int(note)},
                *({"op": "add", "path": _path(key), "value": value} for key, value in added.items()),
                *({"op": "remove", "path": _path(key)} for key in sorted(goes)),
            )


def _is_back(place: Place, there: Mapping[str, Any] | None, claim: Claim | None) -> bool:
    """Returns whether a place that was paused as idle is active again.

    A place that was released since then counts, too: unclaimed places, and new attendees, get their workers.
    """
    noted = notes(there) if there and paused(there) else {}
    if PAUSED_IDLE not in noted:
        return False
    if claim is None or _seconds(claim.since) > _seconds(noted.get(PAUSED_SINCE, "")):
        return True
    try:
        seen = inside.activity(place)
    except NotRunning:
        return False
    return bool(seen.jobs) or seen.acted > _number(noted[PAUSED_IDLE])


class Culling:
    """Repeated checks that pause idle places and resume active ones.

    Attributes:
        minutes: time without activity after which a place is idle.
    """

    def __init__(self, minutes: int) -> None:
        self.minutes = minutes
        # Errors of the last check, by place.
        self._failures: dict[str, str] = {}

    def look(self, places: Mapping[str, Place], claims: Mapping[str, Claim], report: Report) -> None:
        """Checks all places once, in parallel; reports changes, and each new error once."""

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
        resumed = Resumed(place)
        if _is_back(place, resumed.there(), claim):
            resumed.apply(report)
            report(f"{name} gets its workers again")
            return
        idle = IdlePaused(place, claim, self.minutes)
        if idle.check().condition is Condition.MISSING:
            idle.apply(report)
            report(f"{name} is paused: nothing was done in it for {self.minutes} min")


def _seconds(time: str) -> float:
    """Parses a time of the API; returns seconds since 1970, 0 if it is invalid."""
    moment = timestamp(time)
    return moment.timestamp() if moment else 0


def _number(text: str) -> float:
    """Parses a number in an annotation; returns infinity if it is invalid."""
    try:
        return float(text)
    except ValueError:
        return math.inf


def _path(annotation: str) -> str:
    """Returns the path of an annotation as JSON Pointer (RFC 6901)."""
    return f"/metadata/annotations/{annotation.replace('~', '~0').replace('/', '~1')}"
