"""Reduces the price of a fish in a task, with a package that Ray's image lacks."""

from __future__ import annotations

import ray


@ray.remote
def price(cents: int) -> int:
    from discount import reduced

    return reduced(cents)


if __name__ == "__main__":
    ray.init()
    print(f"price {ray.get(price.remote(500))}")
