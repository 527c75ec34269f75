"""Reads arrays piece by piece, and measures their numbers, inside a debuggee.

Libraries are known by their types, and none is imported: who has such a value has its library.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from typing import Any

# The elements that are looked at at once: what is computed of them is made anew.
CHUNK = 1_000_000
# The types whose elements can be read. Others may compute or download what they are asked for.
_KNOWN = (
    ("numpy", "ndarray"),
    ("numpy", "generic"),
    ("torch", "Tensor"),
    ("cupy", "ndarray"),
    ("jax", "Array"),
    ("pandas", "Series"),
    ("pandas", "Index"),
    ("pandas.api.extensions", "ExtensionArray"),
    ("polars", "Series"),
)


class Numbers:
    """Counts and measures numbers, piece by piece; `numpy` is the library."""

    def __init__(self, numpy: Any) -> None:
        self._numpy = numpy
        self.seen = self.nan = self.inf = 0
        self._finite, self._sum = 0, 0.0
        self._min: Any = None
        self._max: Any = None

    def add(self, piece: Any) -> None:
        """Adds a numpy array with a dtype of numbers."""
        numpy, kind = self._numpy, piece.dtype.kind
        self.seen += int(piece.size)
        with numpy.errstate(all="ignore"):
            if kind in "fc":
                self.nan += (nan := int(numpy.isnan(piece).sum()))
                self.inf += (inf := int(numpy.isinf(piece).sum()))
                if nan or inf:
                    piece = piece[numpy.isfinite(piece)]
            if kind == "c" or not piece.size:
                return
            if kind == "b":
                piece = piece.view("uint8")
            least, most = piece.min().item(), piece.max().item()
            self._min = least if self._min is None else min(least, self._min)
            self._max = most if self._max is None else max(most, self._max)
            self._sum += float(piece.sum(dtype="float64"))
            self._finite += int(piece.size)

    def document(self, size: int) -> dict[str, Any]:
        fields: dict[str, Any] = {"nan": self.nan, "inf": self.inf}
        if self._finite:
            fields |= {"min": self._min, "max": self._max, "mean": self._sum / self._finite}
        if self.seen < size:
            fields["sample"] = self.seen
        return fields


def as_numpy(part: Any) -> Any:
    """Returns an array of a library that `is_known` as one of numpy's. Raises what the library raises."""
    if is_of(part, "torch", "Tensor"):
        part = part.detach().cpu()
        half = part.dtype.is_floating_point and part.dtype.itemsize < 4
        return (part.float() if half else part.resolve_conj().resolve_neg()).numpy()
    if is_of(part, "cupy", "ndarray"):
        return part.get()
    if is_of(part, "pandas", "Series") and part.dtype.kind in "biuf":
        return part.to_numpy(na_value=math.nan) if part.hasnans else part.to_numpy()
    return sys.modules["numpy"].asarray(part)


def parts(value: Any, most: int) -> Iterator[Any]:
    """Yields an array in parts of about CHUNK elements; of one with more than `most` a sample all over it."""
    size = math.prod(value.shape)
    if size <= CHUNK:
        if size:
            yield value
        return
    count = value.shape[0]
    row = size // count
    if row <= CHUNK:
        length = CHUNK // row
        every = max(1, -(-size // max(most, CHUNK)))
        for first in range(0, count, length * every):
            yield value[first : first + length]
        return
    of_row = max(CHUNK, most // count)
    every = max(1, -(-count * min(row, of_row) // max(most, CHUNK)))
    for index in range(0, count, every):
        yield from parts(value[index], of_row)


def is_of(value: Any, library: str, name: str) -> bool:
    """Returns whether a value is of a library's type, which is not imported for that."""
    kind = getattr(sys.modules.get(library), name, None)
    return isinstance(kind, type) and isinstance(value, kind)


def is_known(value: Any) -> bool:
    """Returns whether an array's elements are in memory, and numpy gets at them."""
    return any(is_of(value, library, name) for library, name in _KNOWN)
