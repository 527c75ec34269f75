"""Finds the mean temperature and the coldest hour of weather stations; each is one remote task."""

import csv
from pathlib import Path

import ray


@ray.remote
def measure(station: str, tenths: list[int]) -> str:
    total, coldest = 0.0, 0
    for hour, tenth in enumerate(tenths):
        degrees = tenth / 10
        total += degrees
        if tenth < tenths[coldest]:
            coldest = hour
    return f"{station}: mean {total / len(tenths):.1f}, coldest at hour {coldest}"


rows = csv.reader(Path("readings.csv").read_text().splitlines())
for result in ray.get([measure.remote(station, [int(tenth) for tenth in rest]) for station, *rest in rows]):
    print(result)
