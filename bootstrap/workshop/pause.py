"""Pause of a workshop: the workers of places go, as for a lunch break; editors and files stay."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from bootstrap.delivery.door_secrets import Claim
from bootstrap.kube import trouble
from bootstrap.kube.api import RAY
from bootstrap.step import Report, Status, missing, pending, ready
from bootstrap.steps.ray_cluster import PAUSED, PAUSED_FOR, PAUSED_IDLE, PAUSED_SINCE, RESUMED, notes, paused
from bootstrap.targets.place import Place
from bootstrap.workshop import inside
from bootstrap.workshop.estimate import paused_for, timestamp
from rayside.errors import NotRunning

_REPLICAS = "/spec/workerGroupSpecs/0/replicas"


class _Part:
    """A place's RayCluster, of which nothing is changed but how many workers it has, and the note of that."""

    needs: tuple[str, ...] = ()
    patience = 180.0

    def __init__(self, place: Place) -> None:
        self._place = place
        self.name = place.instance.name

    def _there(self) -> dict[str, Any] | None:
        return self._place.kube.ray("rayclusters", self._place.instance.ray_cluster)

    def _has(self, workers: int) -> Status:
        """Returns whether so many workers are there, and ready."""
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
    """A place has no workers, and a note of how many it had: for a break, whatever is done in it."""

    @property
    def title(self) -> str:
        return f"pause of the place {self.name}"

    def check(self) -> Status:
        there = self._there()
        if there is None:
            return ready("it is not there")
        if not paused(there):
            return missing("it has workers")
        return missing("it was paused for being idle") if PAUSED_IDLE in notes(there) else self._has(0)

    def apply(self, report: Report) -> None:
        """Takes its workers away, with what runs on them."""
        there = self._there()
        if there is None:
            return
        if not paused(there):
            self._take(there, {})
        # Another command may have paused it meanwhile: how many workers it noted stays.
        elif (idle := notes(there).get(PAUSED_IDLE)) is not None:
            at = _path(PAUSED_IDLE)
            self._change({"op": "test", "path": at, "value": idle}, {"op": "remove", "path": at})

    def _take(self, there: Mapping[str, Any], also: Mapping[str, str]) -> None:
        """Takes the workers of a place that has some; notes `also`."""
        workers = there["spec"]["workerGroupSpecs"][0]["replicas"]
        since = self._place.kube.now().isoformat(timespec="seconds")
        added = {PAUSED: str(workers), PAUSED_SINCE: since, **also}
        self._change(
            {"op": "test", "path": _REPLICAS, "value": workers},
            {"op": "replace", "path": _REPLICAS, "value": 0},
            *({"op": "add", "path": _path(key), "value": value} for key, value in added.items()),
        )


class IdlePaused(Paused):
    """A place whose attendee does nothing, and where no job runs, has no workers; any other stays as it is.

    A place that nobody has stays, too: who comes late is not to wait for its workers. So does one that got
    its workers back within these minutes.
    """

    def __init__(self, place: Place, claim: Claim | None, minutes: int) -> None:
        super().__init__(place)
        self._claim, self._minutes = claim, minutes
        self._acted = 0.0

    def check(self) -> Status:
        there = self._there()
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
        # What was done before a claim is another's.
        begun = max(_seconds(self._claim.since), _seconds(notes(there).get(RESUMED, "")))
        if seen.now - max(seen.acted, begun) < self._minutes * 60:
            return ready(f"something was done in it {self._minutes} min ago or less")
        return missing("its attendee does nothing")

    def apply(self, report: Report) -> None:
        """Takes its workers away, with a note of when something was done at last."""
        there = self._there()
        if there and not paused(there):
            self._take(there, {PAUSED_IDLE: repr(self._acted)})


class Resumed(_Part):
    """A place has the workers again that it had before its pause."""

    @property
    def title(self) -> str:
        return f"place {self.name}"

    def check(self) -> Status:
        there = self._there()
        if there is None:
            return ready("it is not there")
        if paused(there):
            return missing("it is paused")
        return self._has(int(there["spec"]["workerGroupSpecs"][0]["replicas"]))

    def apply(self, report: Report) -> None:
        there = self._there() or {}
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


class BackFromIdle(Resumed):
    """A place that was paused for being idle has its workers again, once something is done in it.

    So has one that was freed since then: it is as all that nobody has, or its next attendee's.
    """

    def __init__(self, place: Place, claim: Claim | None) -> None:
        super().__init__(place)
        self._claim = claim

    def check(self) -> Status:
        there = self._there()
        noted = notes(there) if there and paused(there) else {}
        if PAUSED_IDLE not in noted:
            return ready("it is not paused, or for a break")
        if self._claim is None or _seconds(self._claim.since) > _seconds(noted.get(PAUSED_SINCE, "")):
            return missing("it was freed")
        try:
            seen = inside.activity(self._place)
        except NotRunning as error:
            return ready(error.message)
        if seen.jobs or seen.acted > _number(noted[PAUSED_IDLE]):
            return missing("its attendee is back")
        return ready("its attendee does nothing yet")


def _seconds(time: str) -> float:
    """Returns a time in UTC, as the API writes it, in seconds since 1970; 0 where it is none."""
    moment = timestamp(time)
    return moment.timestamp() if moment else 0


def _number(text: str) -> float:
    """Returns a number that is in a note; where it is spoilt, one that nothing is above."""
    try:
        return float(text)
    except ValueError:
        return math.inf


def _path(annotation: str) -> str:
    """Returns the path of an annotation, as JSON Pointer (RFC 6901) has it."""
    return f"/metadata/annotations/{annotation.replace('~', '~0').replace('/', '~1')}"
