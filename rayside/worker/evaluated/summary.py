"""Evaluation of an expression inside a debuggee, with a summary of its value: no value is sent whole.

Arrays, tensors and tables are recognized by their libraries' types, without an import: a process with such a
value has imported the library."""

from __future__ import annotations

import hashlib
import json
import math
import operator
import sys
import threading
import time
from collections.abc import Iterable
from contextlib import suppress
from itertools import chain, islice
from typing import Any

from ..redaction import Redactor
from . import secret_values, shown

# Limits: elements of arrays that are read, and dimensions (numpy's limit).
MOST_ELEMENTS, MOST_DIMENSIONS = 50_000_000, 64
# Limit: cells of a table, which take longer.
MOST_CELLS = 10_000_000
# Limits: items of containers that are read, and nesting depth.
MOST_ITEMS, DEEPEST = 100_000, 20
# Cost of an item's `repr`, in items.
_REPR = 10
# Limits: shown elements of an array, and columns of a table.
SHOWN_ELEMENTS, SHOWN_COLUMNS = 12, 20
# Limit: characters of a name.
LONGEST_NAME = 200
_DIGEST = 12  # bytes
_TABLES = ("pandas", "polars")
# Limit: characters of a text that are read.
LONGEST_TEXT = 1_000_000

_Document = dict[str, Any]


# Deadlines for the start of each requested evaluation, by its number.
_until: dict[int, float] = {}


def asked(number: int, seconds: float) -> None:
    """Sets the timeout in seconds for the start of the following `summary` with this number."""
    for each in [each for each, until in _until.items() if until < time.monotonic()]:
        del _until[each]
    _until[number] = time.monotonic() + seconds


def summary(number: int, expression: str, secret: tuple[str, list[str]] | None = None) -> str:
    """Returns, in JSON, a summary of the expression's value in the frame that calls this.

    Args:
        number: as for `asked`. After its timeout nothing is evaluated: the request has waited for another
            evaluation, and no client waits for it, or would interrupt it, any more.
        secret: the rule of secret names, and known secret values. They are redacted here, because the rest of
            a cut secret could not be recognized. None: no redaction.

    Returns:
        `{"thread": its name, "value": {"kind", "type", "shown", ...}}`. Further fields by kind: for a
        `number`, `number`; for an `array`, `size`, `shape`, `dtype` and `device`; for a `table`, `shape` and
        `columns`, each with `name` and `dtype`; for a `container` and a `text`, `size`. With numbers: counts
        of `nan` and `inf`, and `min`, `max` and `mean` of the others, for a `table` by column; `sample`, the
        number of elements or items that were read, if these are not all. `digest` is equal for equal content.
        If the expression raises, the kind is `error`, and `shown` is its message.
    """
    secrets = None
    try:
        if time.monotonic() > _until.pop(number, 0):
            raise TimeoutError("it began too late")  # not reported to any client
        names = sys._getframe(1).f_globals  # includes the frame's variables, by pydevd
        value = eval(compile(expression.strip(), "<compared>", "eval"), names)
        secrets = _secrets(secret)
        document = _Survey(secrets).document(value)
    except BaseException as error:  # also the interrupt of an evaluation, and `exit()`
        secrets = secrets or _secrets(secret)
        name = shown.cut(type(error).__qualname__, LONGEST_NAME, secrets)
        document = {"kind": "error", "type": name, "shown": shown.raised(error, secrets), "digest": ""}
    thread = shown.cut(str(threading.current_thread().name), LONGEST_NAME, secrets)
    return json.dumps({"thread": thread, "value": document})


def summed_up(value: Any, secrets: Any = None) -> _Document:
    """Returns the summary of a value; `secrets` is as for `shown.cut`."""
    return _Survey(secrets).document(value)


def _secrets(secret: tuple[str, list[str]] | None) -> Any:
    """Returns a Redactor for the current secrets, and the known ones."""
    if secret is None:
        return None
    rule, known = secret
    values = json.loads(secret_values.values(rule))
    return Redactor([*values, *known])


class _Survey:
    """Scan of one value, and of its items; `secrets` is as for `shown.cut`."""

    def __init__(self, secrets: Any = None) -> None:
        self._secrets = secrets
        self._numpy = sys.modules.get("numpy")
        self._elements, self._items = MOST_ELEMENTS, MOST_ITEMS
        self._hash = hashlib.blake2b(digest_size=_DIGEST)
        self._nan = self._inf = self._seen = 0
        self._cut = False  # whether the value was not read completely

    def document(self, value: Any) -> _Document:
        """Returns the summary of a value."""
        document = {
            "type": self._name(shown.name_of(type(value))),
            "shown": "",
            **self._described(value),
        }
        return {**document, "digest": self._hash.hexdigest()}

    def _name(self, value: object) -> str:
        """Returns the text of a name or a dtype, cut and without secrets."""
        return str(shown.cut(str(value), LONGEST_NAME, self._secrets))

    def _shown(self, value: Any) -> str:
        return str(shown.shown(value, 0, self._secrets))

    def _described(self, value: Any) -> _Document:
        if shown.is_of(value, "numpy", "generic") and value.dtype.kind in "biufSU":
            value = value.item()
        if type(value) is not bool and shown.base_of(value, int, float):
            self._feed(value, 0)
            return {"kind": "number", "shown": self._shown(value), **self._of_number(value)}
        for library in _TABLES:
            if shown.is_of(value, library, "DataFrame"):
                return {"kind": "table", **self._of_table(value, library)}
        if (shape := self._shape_of(value)) is not None:
            return {"kind": "array", **self._of_array(value, shape)}
        self._feed(value, 0)
        sort = "text" if shown.base_of(value, str, bytes, bytearray) else "object"
        sort = "container" if shown.container_of(value) else sort
        document: _Document = {"kind": sort, "shown": self._shown(value)}
        if sort != "object":
            document["size"] = shown.length_of(value)
        if sort == "container":
            document |= {"nan": self._nan, "inf": self._inf}
        return {**document, "sample": self._seen} if self._cut and sort != "text" else document

    def _of_number(self, value: float) -> _Document:
        fields: _Document = {"nan": self._nan, "inf": self._inf}
        with suppress(OverflowError):
            if math.isfinite(value):
                fields["number"] = value if abs(value) < 2**53 else float(value)
        return fields

    # --- arrays --------------------------------------------------------------------------

    def _shape_of(self, value: Any) -> list[int] | None:
        """Returns an array's shape; None for other values, and for an unknown size, as in lazy arrays."""
        if not shown.is_like_an_array(value):
            return None
        try:
            shape = [operator.index(length) for length in value.shape[: MOST_DIMENSIONS + 1]]
            str(value.dtype), str(getattr(value, "device", ""))
        except Exception:
            return None
        return shape if len(shape) <= MOST_DIMENSIONS and min(shape, default=0) >= 0 else None

    def _of_array(self, value: Any, shape: list[int]) -> _Document:
        size = math.prod(shape)
        document: _Document = {"size": size, "shape": shape, "dtype": self._name(value.dtype)}
        device = self._name(getattr(value, "device", "cpu"))
        if device != "cpu":
            document["device"] = device
        if not shown.is_known(value):
            document["shown"] = self._shown(value)
        elif size <= SHOWN_ELEMENTS:
            with suppress(Exception):
                document["shown"] = self._shown((getattr(value, "tolist", None) or value.to_list)())
        document |= self._measured(value, size, 0)
        return {"sample": self._seen, **document} if self._cut else document

    def _measured(self, value: Any, size: int, depth: int) -> _Document:
        """Reads an array's elements; if they are not accessible, its `repr`, which shows a part of it."""
        if self._numpy is not None and shown.is_known(value):
            with suppress(Exception):
                return self._of_elements(value, size, depth)
        self._feed_repr(value)
        self._cut = True
        return {}

    def _of_elements(self, value: Any, size: int, depth: int) -> _Document:
        numpy: Any = self._numpy
        self._hash.update(str((value.shape, value.dtype)).encode())
        numbers = shown.Numbers(numpy)
        of_numbers = True
        for part in shown.parts(value, self._elements):
            piece = shown.as_numpy(part)
            self._elements -= int(piece.size)
            if (
                piece.dtype.kind == "V" and piece.dtype.names is None
            ):  # bfloat16 and its like, where numpy does not have them itself
                piece = piece.astype("float32")
            if piece.dtype.hasobject:
                self._feed_all(piece.ravel()[: max(0, self._items) + 1].tolist(), depth)
            else:
                self._hash.update(numpy.ascontiguousarray(piece).view("uint8"))
            of_numbers = piece.dtype.kind in "biufc"
            if of_numbers:
                numbers.add(piece)
        self._nan += numbers.nan
        self._inf += numbers.inf
        document: _Document = numbers.document(size) if of_numbers else {}
        return document

    # --- tables --------------------------------------------------------------------------

    def _of_table(self, table: Any, library: str) -> _Document:
        rows, width = (int(length) for length in table.shape)
        every = max(1, -(-rows * width // MOST_CELLS))
        part = table
        if every > 1:
            part = table.iloc[::every] if library == "pandas" else table.gather_every(every)
        columns = []
        for place, name in enumerate(islice(table.columns, SHOWN_COLUMNS)):
            column = part.iloc[:, place] if library == "pandas" else part[name]
            columns.append(
                {
                    "name": self._name(name),
                    "dtype": self._name(column.dtype),
                    **self._of_column(column, library),
                }
            )
        self._hash.update(repr((rows, list(table.columns))).encode("utf-8", "surrogatepass"))
        try:
            if library == "pandas":
                hashes = sys.modules["pandas"].util.hash_pandas_object(part).to_numpy()
            else:
                hashes = part.hash_rows().to_numpy()
            self._hash.update(hashes.tobytes())
        except Exception:  # a cell that can't be hashed
            for place in range(width):
                column = part.iloc[:, place] if library == "pandas" else part[:, place]
                self._feed_all(column.head(max(0, self._items) + 1).to_list(), 0)
        sample = {"sample": self._seen if self._cut else len(part) * width} if every > 1 or self._cut else {}
        return {"shape": [rows, width], "columns": columns, "nan": self._nan, "inf": self._inf, **sample}

    def _of_column(self, column: Any, library: str) -> _Document:
        with suppress(Exception):
            if library == "pandas" and column.dtype.kind in "biuf":
                numbers = column.to_numpy(dtype="float64", na_value=math.nan)
            elif library == "polars" and column.dtype.is_numeric():
                numbers = column.cast(sys.modules["polars"].Float64).to_numpy()
            else:
                return {}
            measured = shown.Numbers(self._numpy)
            measured.add(numbers)
            self._nan += measured.nan
            self._inf += measured.inf
            document: _Document = measured.document(len(numbers))
            return document
        return {}

    # --- items of containers -------------------------------------------------------------

    def _feed(self, value: Any, depth: int) -> None:
        """Adds a value to the digest, and to the counts of NaN and infinity."""
        self._items -= 1
        if self._items < 0 or depth > DEEPEST:
            self._cut = True
            return
        self._seen += 1
        container = shown.container_of(value)
        self._hash.update(f"\0{shown.name_of(type(value))}\0".encode("utf-8", "replace"))
        if shown.base_of(value, float):
            self._nan += math.isnan(value)
            self._inf += math.isinf(value)
            self._hash.update(float.hex(value).encode())
        elif shown.base_of(value, int):
            self._hash.update(int.to_bytes(value, int.bit_length(value) // 8 + 1, "little", signed=True))
        elif shown.base_of(value, str):
            self._hash.update(str.__getitem__(value, slice(LONGEST_TEXT)).encode("utf-8", "surrogatepass"))
            self._hash.update(str(shown.length_of(value)).encode())
        elif shown.base_of(value, bytes, bytearray):
            self._hash.update(memoryview(value)[:LONGEST_TEXT])
            self._hash.update(str(shown.length_of(value)).encode())
        elif container is not None:
            self._hash.update(str(shown.length_of(value)).encode())
            base, _, _, iterate = container
            items: Iterable[Any] = iterate(value)
            if base is dict:
                items = chain.from_iterable(items)
            elif base in (set, frozenset):
                items = self._in_order(value, items)
            self._feed_all(items, depth)
        elif library := next((each for each in _TABLES if shown.is_of(value, each, "DataFrame")), ""):
            self._of_table(value, library)
        elif (shape := self._shape_of(value)) is not None:
            self._measured(value, math.prod(shape), depth)
        elif shown.has_its_fields_as_repr(type(value)):
            names = list(type(value).__dataclass_fields__)
            self._feed_all((getattr(value, name, None) for name in names), depth)
        else:
            self._feed_repr(value)

    def _feed_all(self, items: Iterable[Any], depth: int) -> None:
        for item in items:
            if self._items <= 0:
                self._cut = True
                break
            self._feed(item, depth + 1)

    def _feed_repr(self, value: Any) -> None:
        self._items -= _REPR - 1
        text = shown.described(value, LONGEST_TEXT)
        self._cut |= len(text) > LONGEST_TEXT
        self._hash.update(text.encode("utf-8", "surrogatepass"))

    def _in_order(self, value: Any, members: Iterable[Any]) -> list[Any]:
        """Returns the members of a set in an order that is the same in every process."""
        if shown.length_of(value) > MOST_ITEMS:
            self._cut = True  # A selection of them would differ in every process.
            return []
        some = list(members)
        try:
            return sorted(some)
        except Exception:
            return sorted(some, key=shown.shown)
