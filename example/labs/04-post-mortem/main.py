"""Adds up the areas of triangular fields by their sides; each district is one remote task."""

import math

import ray
import register
from ray.exceptions import RayTaskError

DISTRICTS = {
    "north": [("meadow", 30, 40, 50), ("orchard", 60, 61, 11)],
    "south": [("pasture", 13, 14, 15), ("vineyard", 20, 48, 25), ("pond", 9, 10, 17)],
    "west": [("common", 51, 52, 53)],
}


@ray.remote
def survey(district, fields):
    register.connect(district)
    areas = {}
    for name, a, b, c in fields:
        half = (a + b + c) / 2
        areas[name] = math.sqrt(half * (half - a) * (half - b) * (half - c))
    return sum(areas.values())


def outcome(result) -> str:
    try:
        return f"{ray.get(result):.0f}"
    except RayTaskError:
        return "failed"
    except ValueError as error:
        return f"refused: {error}"


results = {district: survey.remote(district, fields) for district, fields in DISTRICTS.items()}
for district, result in results.items():
    print(f"{district} {outcome(result)}")
