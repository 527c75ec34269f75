"""Adds up what three shops have sold; each shop is one remote task."""

import ray
from prices import in_cents

SALES = {
    "north": ["1.20", "3.50"],
    "south": ["2.00", "0.75"],
    "west": ["4.1", "0.20"],
}


@ray.remote
def total(shop: str, sales: list[str]) -> int:
    cents = 0
    for price in sales:
        cents += in_cents(price)
    breakpoint()  # The task stops here, on whichever worker it runs.
    return cents


print(f"total {sum(ray.get([total.remote(shop, sales) for shop, sales in SALES.items()]))}")
