"""Pickles of a failed call's function and inputs, within limits."""

from __future__ import annotations

import inspect
import io
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from typing import Any

from .capsule_values import Masks
from .evaluated.reached import described

# Limit in bytes of one pickle.
MOST = 8 * 1024 * 1024
INPUTS = "inputs/"


class _TooLong(Exception):
    pass


class _Bounded(io.BytesIO):
    def write(self, data: Any) -> int:
        if self.tell() + len(data) > MOST:
            raise _TooLong
        return super().write(data)


def inputs(call: Any, masks: Masks) -> Iterator[tuple[str, dict[str, Any], Callable[[], bytes]]]:
    """Yields each input: the name of its file, its description, and a function that pickles it.

    The value is the original one if Ray still holds it, else as the call left it.
    """
    held = dict(_held(call)) if call.serialized else {}
    of_actor = int(hasattr(call.executed, "method"))
    values = [(place - of_actor, each) for place, each in enumerate(call.arguments)]
    for number, (place, value) in enumerate([*values, *call.named.items()]):
        take, length = held.get(place, (None, 0))
        keyword = place if isinstance(place, str) else ""
        described = {
            **masks.variable(keyword or _parameter(call.function, number), value),
            "keyword": keyword,
            "as_left": take is None,
        }

        def pickled(value: Any = value, take: Any = take, length: int = length) -> bytes:
            if length > MOST:
                raise _TooLong
            return pickle_of(take() if take else value)

        yield f"{INPUTS}{number}.pickle", described, pickled


def _parameter(function: Any, place: int) -> str:
    """Returns the name of a positional argument."""
    with suppress(Exception):
        for number, (name, parameter) in enumerate(inspect.signature(function).parameters.items()):
            if parameter.kind is parameter.VAR_POSITIONAL:
                return f"{name}[{place - number}]"
            if number == place:
                return name
    return str(place)


def _held(call: Any) -> Iterator[tuple[int | str, tuple[Callable[[], Any], int]]]:
    """Yields, by position or name, a function that deserializes an input again, and its size in bytes."""
    from ray._private.worker import global_worker

    objects, references = call.serialized

    def taken(index: int) -> Any:
        return global_worker.deserialize_objects([objects[index]], [references[index]])[0]

    place = 0
    for index in range(0, len(objects), 2):
        # The name of a positional argument is a marker in bytes.
        name = taken(index)
        key = name if isinstance(name, str) else place
        place += not isinstance(name, str)
        length = 0
        with suppress(Exception):
            length = len(objects[index + 1][0])
        yield key, (partial(taken, index + 1), length)


def pickle_of(value: Any) -> bytes:
    """Returns the pickle of a value. Raises _TooLong, and errors from the value's own code."""
    from ray import ObjectRef, cloudpickle
    from ray.actor import ActorHandle

    class Pickler(cloudpickle.CloudPickler):  # type: ignore[misc]
        def reducer_override(self, part: Any) -> Any:
            if isinstance(part, ObjectRef | ActorHandle):
                raise TypeError(f"it has a {type(part).__name__}, which is nothing without its cluster")
            return super().reducer_override(part)

    stream = _Bounded()
    Pickler(stream, protocol=5).dump(value)
    return stream.getvalue()


class Parts:
    """Pickled parts by name, without those that are too long or contain a secret."""

    def __init__(self, masks: Masks) -> None:
        self._secrets = [value.encode("utf-8", "replace") for value in masks.known]
        self._secret = masks.secret if masks.is_on else None
        self.contents: dict[str, bytes] = {}

    def add(self, name: str, pickled: Callable[[], bytes], of: str = "") -> str:
        """Adds a part; returns why it is left out, or an empty text. `of` is the name of an input."""
        if self._secret is not None and of and self._secret.include(of):
            return "its name is a secret's"
        try:
            content = pickled()
        except _TooLong:
            return f"it is longer than {MOST // 1024 // 1024} MiB"
        except Exception as error:
            return f"it can't be pickled: {described(error)}"[:400]
        if any(secret in content for secret in self._secrets):
            return "it has a secret's value in it"
        self.contents[name] = content
        return ""
