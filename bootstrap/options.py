"""Reads and checks what was typed as the value of an option."""

from __future__ import annotations

from math import inf

from bootstrap.errors import InvalidArgument


def seconds(
    option: str, value: float | str, *, hint: str, most: float = inf, may_be_zero: bool = True
) -> float:
    """Returns the seconds that `option` (as in `--timeout`) was given, at most `most`.

    Raises InvalidArgument with `hint` for what is no number, and for a number outside the bounds.
    """
    try:
        number = float(value)
    except ValueError:
        number = -1.0
    if not 0 <= number <= most or (number == 0 and not may_be_zero):
        raise InvalidArgument(f"{option} is {value!r}", hint=hint)
    return number
