"""Counting the random points that fall inside a quarter circle."""

import random


def inside_circle(points: int, seed: int) -> int:
    """How many of `points` random points of the unit square are at most 1 away from its corner."""
    source = random.Random(seed)
    return sum(source.random() ** 2 + source.random() ** 2 <= 1.0 for _ in range(points))
