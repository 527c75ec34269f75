"""Estimates pi on a Ray cluster: many tasks count random points, one puts the counts together."""

import ray
from dependency import inside_circle

BATCHES = 8
POINTS = 50_000


@ray.remote
def sample(batch: int) -> int:
    """One batch: how many of its points fall inside the circle."""
    return inside_circle(POINTS, seed=batch)


@ray.remote
def estimate(counts: list[int]) -> float:
    """Pi, from the share of the points that fell inside."""
    total = sum(counts)
    points = POINTS * len(counts)
    breakpoint()  # The task pauses here, on whichever worker it runs, until a debugger comes.
    share = total / points
    return 4 * share


@ray.remote
def describe(pi: float) -> str:
    """The estimate in words."""
    return f"pi is about {pi:.4f}"


def main() -> None:
    ray.init()
    counts = [sample.remote(batch) for batch in range(BATCHES)]
    pi = estimate.remote(ray.get(counts))
    print(ray.get(describe.remote(pi)))


if __name__ == "__main__":
    main()
