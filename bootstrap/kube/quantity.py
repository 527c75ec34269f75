"""Reads Kubernetes' quantities of processor and memory, and writes them for people.

https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/quantity/
"""

from __future__ import annotations

import re
from decimal import Decimal
from math import ceil

_QUANTITY = re.compile(r"([0-9]{1,20}(?:\.[0-9]{0,20})?)(m|[kMGTPE]|[KMGTPE]i|[eE][+-]?[0-9]{1,2})?")
_FACTORS = {
    "": Decimal(1),
    "m": Decimal(1) / 1000,
    "k": Decimal(10**3),
    **{letter: Decimal(1000 ** (power + 2)) for power, letter in enumerate("MGTPE")},
    **{f"{letter}i": Decimal(1024 ** (power + 1)) for power, letter in enumerate("KMGTPE")},
}
GIB = 1024**3


def quantity(text: str) -> Decimal:
    """Returns the number that a quantity names, as 0.1 for 100m. Raises ValueError."""
    match = _QUANTITY.fullmatch(str(text).strip())
    if match is None:
        raise ValueError(f"{text!r} is no quantity")
    number, suffix = Decimal(match[1]), match[2] or ""
    if suffix in _FACTORS:
        return number * _FACTORS[suffix]
    return number * Decimal(10) ** int(suffix[1:])


def millicores(text: str) -> int:
    """Returns thousandths of a processor, rounded up as the scheduler does."""
    return ceil(quantity(text) * 1000)


def octets(text: str) -> int:
    """Returns bytes, rounded up."""
    return ceil(quantity(text))


def shown(cpu: int, memory: int) -> str:
    """Returns thousandths of a processor, and bytes, for people: 1.5 CPU and 3 GiB."""
    return f"{figure(cpu / 1000)} CPU and {figure(memory / GIB)} GiB"


def figure(number: float) -> str:
    """Returns a number for people, of three digits or more: 0.57, 2.31, 1155."""
    return f"{number:.3g}" if number < 100 else f"{number:.0f}"
