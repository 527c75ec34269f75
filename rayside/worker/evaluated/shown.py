"""Values inside a debuggee: a truncated `repr`, without computing all of it, and statistics of arrays.

For builtin containers, no methods of subclasses are called. `repr` is called for other values only, and its
result is cut. Arrays are read in chunks. Libraries are recognized by their types, and none is imported.
"""

from __future__ import annotations

import math
import re
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any

# Limits: shown items of a container, and nesting depth.
ITEMS, DEEPEST = 6, 3
# Limits: characters of a value, and of a value within another.
LONGEST, LONGEST_WITHIN = 2_000, 200
_LONGEST_INT = 256  # bits; Python's decimal conversion of very long ones is slow

_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")

_Container = tuple[type, str, str, Callable[[Any], Iterable[Any]]]
# The builtin containers, with their brackets and their iterators.
_CONTAINERS: tuple[_Container, ...] = (
    (dict, "{", "}", dict.items),
    (list, "[", "]", list.__iter__),
    (tuple, "(", ")", tuple.__iter__),
    (set, "{", "}", set.__iter__),
    (frozenset, "{", "}", frozenset.__iter__),
    (deque, "[", "]", deque.__iter__),
    (type({}.keys()), "[", "]", iter),
    (type({}.values()), "[", "]", iter),
    (type({}.items()), "[", "]", iter),
)
_TEXTS = (str, bytes, bytearray)


def shown(value: Any, depth: int = 0, secrets: Any = None) -> str:
    """Returns a value's `repr`, cut at LONGEST.

    Args:
        depth: the nesting depth in another value.
        secrets: as for `cut`.
    """
    most = LONGEST_WITHIN if depth else LONGEST
    if (text := base_of(value, *_TEXTS)) is not None:
        return _beginning(value, text, most, secrets)
    if type(value) is int and value.bit_length() > _LONGEST_INT:
        return f"an int of {value.bit_length():,} bits"
    if (container := container_of(value)) is not None:
        return cut(_items(value, container, depth, secrets), LONGEST, secrets)
    kind = type(value)
    if has_its_fields_as_repr(kind):
        names = list(kind.__dataclass_fields__)
        texts = [
            f"{name}={_field(value, name, depth + 1, secrets)}" for name in names[:ITEMS] if depth < DEEPEST
        ]
        texts += ["..."] if len(names) > len(texts) else []
        return cut(f"{kind.__name__}({', '.join(texts)})", LONGEST, secrets)
    return described(value, most, depth, secrets)


def described(value: Any, most: int, depth: int = 0, secrets: Any = None) -> str:
    """Returns the `repr` of a value, no builtin container, cut; for a nested array, its shape and dtype."""
    kind = type(value)
    try:
        if depth and is_like_an_array(value):
            return cut(f"<{name_of(kind)} {tuple(value.shape)} {value.dtype}>", most, secrets)
        return cut(str(repr(value)), most, secrets)
    except Exception as error:
        return cut(f"<a {name_of(kind)}, whose repr raises {name_of(type(error))}>", most, secrets)


def raised(error: BaseException, secrets: Any = None) -> str:
    """Returns an error's type and message, as in a traceback's last line, cut at LONGEST."""
    name = type(error).__name__
    try:
        return cut(f"{name}: {error}", LONGEST, secrets)
    except Exception:
        return cut(name, LONGEST, secrets)


def cut(text: str, most: int, secrets: Any = None) -> str:
    """Returns the first `most` characters of a text, without secrets that begin in them.

    Args:
        secrets: a Redactor with known secrets; None without any. They are redacted before the cut, because
            the rest of a cut secret could not be recognized.
    """
    text = _without_secrets(text, most, secrets) + ("..." if len(text) > most else "")
    # An object's address differs in every process, and is of no use.
    return _ADDRESS.sub(" at 0x...", text)


def _without_secrets(text: str, most: int, secrets: Any) -> str:
    """Returns at most the first `most` characters of a text, without secrets, also not one that is cut."""
    margin = secrets.longest if secrets is not None else 0
    window = text[: most + margin]
    masked = secrets.known(window) if margin else window
    # A secret that extends beyond the window begins in its last characters.
    if margin and len(text) > len(window):
        masked = masked[:-margin]
    return masked[:most]


def _beginning(value: Any, base: Any, most: int, secrets: Any) -> str:
    """Returns the `repr` of the beginning of a text or of bytes."""
    margin = secrets.longest if secrets is not None else 0
    # A character takes at most four bytes. One more character indicates a longer text.
    head = base.__getitem__(value, slice(0, 4 * (most + margin + 1)))
    if margin and base is not str:
        text = bytes(head).decode("utf-8", "surrogateescape")
        head = base(_without_secrets(text, most, secrets).encode("utf-8", "surrogateescape"))
    elif margin:
        head = _without_secrets(head, most, secrets)
    head = base.__getitem__(head, slice(0, most))
    return repr(head) + ("..." if length_of(value) > most else "")


def has_its_fields_as_repr(kind: type) -> bool:
    """Returns whether a type is a dataclass with the generated `repr`."""
    return hasattr(kind, "__dataclass_fields__") and hasattr(kind.__repr__, "__wrapped__")


def container_of(value: Any) -> _Container | None:
    """Returns the row of _CONTAINERS for a value; None if it is no builtin container."""
    return next((row for row in _CONTAINERS if base_of(value, row[0]) is not None), None)


def base_of(value: Any, *kinds: type) -> Any:
    """Returns the first of these types that a value's real type derives from, not its `__class__`."""
    return next((kind for kind in kinds if issubclass(type(value), kind)), None)


def length_of(value: Any) -> int:
    """Returns the length of a builtin container or a text, ignoring a subclass's `__len__`."""
    container = container_of(value)
    base: Any = container[0] if container is not None else base_of(value, *_TEXTS)
    return int(base.__len__(value))


def is_like_an_array(value: Any) -> bool:
    """Returns whether a value has a shape and a dtype."""
    try:
        return not isinstance(value, type) and isinstance(value.shape, tuple) and hasattr(value, "dtype")
    except Exception:
        return False


def name_of(kind: type) -> str:
    """Returns a type's name, with its module unless that is `builtins`."""
    module = kind.__module__
    return f"{'' if module == 'builtins' else f'{module}.'}{kind.__qualname__}"


def _items(value: Any, container: _Container, depth: int, secrets: Any) -> str:
    kind, opening, closing, iterate = container
    some = list(islice(iterate(value), ITEMS)) if depth < DEEPEST else []
    if kind is dict:
        texts = [f"{shown(key, depth + 1, secrets)}: {shown(item, depth + 1, secrets)}" for key, item in some]
    else:
        texts = [shown(item, depth + 1, secrets) for item in some]
    texts += ["..."] if length_of(value) > len(some) else []
    comma = "," if kind is tuple and len(texts) == 1 else ""
    text = f"{opening}{', '.join(texts)}{comma}{closing}"
    if type(value) is set and not texts:
        return "set()"
    return text if type(value) in (dict, list, tuple, set) else f"{type(value).__name__}({text})"


def _field(value: Any, name: str, depth: int, secrets: Any) -> str:
    try:
        return shown(getattr(value, name), depth, secrets)
    except Exception:
        return "?"


# Elements that are read at once: computations on them allocate memory.
CHUNK = 1_000_000
# Types whose elements can be read. Others may compute or download their elements.
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
    """Statistics of numbers, chunk by chunk; `numpy` is the library."""

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
    """Returns an array that `is_known` as a numpy array. Raises the library's errors."""
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
    """Yields an array in parts of about CHUNK elements; with more than `most`, a sample from all of it."""
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
    """Returns whether a value is of a library's type, without importing the library."""
    kind = getattr(sys.modules.get(library), name, None)
    return isinstance(kind, type) and isinstance(value, kind)


def is_known(value: Any) -> bool:
    """Returns whether an array's elements are in memory, and accessible for numpy."""
    return any(is_of(value, library, name) for library, name in _KNOWN)
