"""Sums up the sales of a day; it knows nothing of Ray."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple


class Sale(NamedTuple):
    """A line of a file: its number on the receipt, the shop, and the price as it was written."""

    number: int
    shop: str
    price: str


def load(file: Path) -> list[Sale]:
    lines = file.read_text().splitlines()
    return [Sale(int(number), shop, price) for number, shop, price in (line.split(",") for line in lines)]


def clean(sales: list[Sale]) -> list[Sale]:
    """Returns the sales without those that stand there twice."""
    return list(dict.fromkeys(sales))


def cents(price: str) -> int | None:
    """Returns the cents of a price such as 1.20; None where nothing was written."""
    return round(float(price) * 100) if price else None


def transform(sales: list[Sale]) -> dict[str, int]:
    """Returns the cents that each shop has sold for; a sale without a price counts as nothing."""
    sums: dict[str, int] = {}
    for sale in sales:
        sums[sale.shop] = sums.get(sale.shop, 0) + cents(sale.price)
    return sums


def aggregate(parts: list[dict[str, int]]) -> dict[str, int]:
    """Returns the cents of each shop over all parts."""
    sums: dict[str, int] = {}
    for part in parts:
        sums.update(part)
    return sums
