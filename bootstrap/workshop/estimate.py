"""Estimates of a workshop's time and cost, before it starts and after its end."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from math import ceil
from typing import Any

from bootstrap.kube.sizes import GIB, NOTHING, Size, figure, of_cluster, shown
from bootstrap.settings import Settings
from bootstrap.steps.ray_cluster import PAUSED_FOR, PAUSED_SINCE, notes, paused
from rayside.plain import counted

# Seconds from the first request for a place to its editor, if its node has the images:
# docs/internals/measured.md.
A_PLACE = 20.0


@dataclass(frozen=True)
class Prices:
    """Prices of a CPU hour and of an hour of a GiB of memory, in the user's currency."""

    cpu: float
    gib: float

    def of(self, cpu_hours: float, gib_hours: float) -> float | None:
        """Returns the cost; None without prices."""
        return self.cpu * cpu_hours + self.gib * gib_hours if self.cpu or self.gib else None


def prices(settings: Settings) -> Prices:
    return Prices(settings.cpu_hour_price, settings.gib_hour_price)


def before(size: Size, new: int, at_once: int, at: Prices) -> str:
    """Returns a text with the resources, cost and time of new places of that size; empty for none."""
    if not new:
        return ""
    together = shown(size.cpu * new, size.memory * new)
    cost = at.of(size.cpu * new / 1000, size.memory * new / GIB)
    costs = f", {cost:.2f} an hour at your prices" if cost is not None else ""
    lasts = lasting(A_PLACE * ceil(new / at_once))
    return f"{together} together{costs}; about {lasts}, besides pulling images"


@dataclass(frozen=True)
class Used:
    """Resources that the places requested while they existed; not a provider's bill.

    Attributes:
        places: number of places at the end.
        hours: age of the oldest.
        cpu_hours, gib_hours: sums of all requests. Pauses count without workers.
        cost: None without prices.
    """

    places: int
    hours: float
    cpu_hours: float
    gib_hours: float
    cost: float | None

    def document(self) -> dict[str, Any]:
        rounded = {name: round(value, 3) for name, value in vars(self).items() if value is not None}
        return {**vars(self), **rounded}

    def __str__(self) -> str:
        cost = f"; {self.cost:.2f} at your prices" if self.cost is not None else ""
        requested = f"{figure(self.cpu_hours)} CPU hours and {figure(self.gib_hours)} GiB hours"
        lasted = lasting(self.hours * 3600)
        return f"{counted(self.places, 'place')} requested {requested} in {lasted}{cost}."


def used(clusters: Iterable[Mapping[str, Any]], now: datetime, at: Prices) -> Used:
    """Returns the resources that these RayClusters have requested until `now`, by the API's clock."""
    ages, cpu, memory = [timedelta()], 0.0, 0.0
    count = 0
    for cluster in clusters:
        count += 1
        age = max(now - _moment(cluster["metadata"]["creationTimestamp"], now), timedelta())
        ages.append(age)
        head, *workers = pods_at_work(cluster)
        at_work = max(age - paused_for(cluster, now), timedelta())
        for size, lasted in ((head, age), (sum(workers, NOTHING), at_work)):
            hours = lasted / timedelta(hours=1)
            cpu += size.cpu / 1000 * hours
            memory += size.memory / GIB * hours
    return Used(count, max(ages) / timedelta(hours=1), cpu, memory, at.of(cpu, memory))


def pods_at_work(cluster: Mapping[str, Any]) -> list[Size]:
    """Returns the size of each pod of a place without a pause, its head first."""
    spec = cluster["spec"]
    group = spec["workerGroupSpecs"][0]
    replicas = int(paused(cluster) or group["replicas"])
    return of_cluster({**spec, "workerGroupSpecs": [{**group, "replicas": replicas}]})


def paused_for(cluster: Mapping[str, Any], now: datetime) -> timedelta:
    """Returns the total time of a place's pauses."""
    noted = notes(cluster)
    before = timedelta(seconds=_seconds(noted.get(PAUSED_FOR, "")))
    return before + (now - _moment(noted.get(PAUSED_SINCE, ""), now) if paused(cluster) else timedelta())


def _seconds(note: str) -> int:
    """Returns the seconds in an annotation, at most ten digits; 0 if it is invalid."""
    return int(note) if note.isascii() and note.isdigit() and len(note) <= 10 else 0


def _moment(text: str, otherwise: datetime) -> datetime:
    """Parses a time of Kubernetes; returns at most `otherwise`, also for an invalid one."""
    return min(timestamp(text) or otherwise, otherwise)


def lasting(duration: float) -> str:
    """Returns a duration in seconds as text: 40 s, 3 min, 4.5 h."""
    if duration < 90:
        return f"{duration:.0f} s"
    return f"{duration / 60:.0f} min" if duration < 5400 else f"{duration / 3600:.1f} h"


def timestamp(text: str) -> datetime | None:
    """Parses a time with an offset; None if it is invalid, or has no offset."""
    try:
        # Python reads Z from 3.11 on.
        moment = datetime.fromisoformat(text.replace("Z", "+00:00"))
    except ValueError:
        return None
    return moment if moment.tzinfo else None
