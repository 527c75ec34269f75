"""Reads prices; jobs get this package with --py-modules."""


def in_cents(price: str) -> int:
    """Returns the cents of a price such as 1.20."""
    euros, _, cents = price.partition(".")
    return int(euros) * 100 + int(cents)
