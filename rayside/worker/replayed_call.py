"""Program that calls the function of a recorded failure: `python replayed_call.py [FOLDER]`.

`rayside replay` runs it without this package on its path, except for edited_source.py beside it. FOLDER, by
default this file's, has the capsule's pickled parts, which `CALL` describes. Functions get today's code from
the user's files, found by their path in the job's folder below the current one; a missing file is replaced by
the recorded source.
"""

from __future__ import annotations

import asyncio
import gc
import importlib
import importlib.util
import inspect
import json
import platform
import sys
from pathlib import Path
from types import CodeType, FunctionType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from . import edited_source
else:
    _spec = importlib.util.spec_from_file_location(
        "rayside_edited_source", Path(__file__).with_name("edited_source.py")
    )
    # dataclasses look up the module in sys.modules.
    edited_source = sys.modules[_spec.name] = importlib.util.module_from_spec(_spec)
    _spec.loader.exec_module(edited_source)

CALL = "call.json"
_LONGEST = 2_000  # characters shown of the result


class _File:
    """Today's or the recorded source of a file; `path` is where the debugger finds it."""

    def __init__(self, path: Path, then: Path) -> None:
        self.path = path
        self._now, self._then = (edited_source.Source.of(str(path), _text(each)) for each in (path, then))
        self._changed: dict[int, set[str]] = {}  # by namespace

    def renew(self, function: FunctionType) -> None:
        """Gives a function its code from this file; a function that is missing here keeps its own code."""
        old = function.__code__
        new = self._then.successor(old, function.__qualname__, self._now)
        if new is None or new.co_freevars != old.co_freevars:
            function.__code__ = _moved(old, str(self.path))
            return
        function.__code__ = new
        # A pickled function only brings the globals that it used.
        variables = function.__globals__
        names = {*edited_source.changed_names(self._then, self._now)}
        changed = self._changed.setdefault(id(variables), names)
        edited_source.define(edited_source.names_in(new), self._now, variables, changed)


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace")


def _moved(code: CodeType, path: str) -> CodeType:
    inner = tuple(_moved(each, path) if isinstance(each, CodeType) else each for each in code.co_consts)
    return code.replace(co_filename=path, co_consts=inner)


def _files(folder: Path, call: dict[str, Any]) -> dict[str, _File]:
    """Returns the files, by the path that each had on the cluster."""
    files = {}
    for path, copy in call["sources"].items():
        below = Path(path).relative_to(call["folder"]) if Path(path).is_relative_to(call["folder"]) else None
        own = below and Path.cwd() / below
        is_here = own is not None and own.is_file()
        try:
            files[path] = _File(own if own is not None and is_here else folder / copy, folder / copy)
        except (OSError, edited_source.Refused) as error:
            _say(str(error))
            continue
        if below:
            _say(f"{below}: " + ("as it is here now" if is_here else "as recorded, for it is not here"))
    return files


def _say(text: str) -> None:
    sys.stderr.write(f"rayside: {text}\n")
    sys.stderr.flush()


def main(folder: Path) -> None:
    call = json.loads((folder / CALL).read_text())
    here = platform.python_version()
    if here.split(".")[:2] != call["python"].split(".")[:2]:
        sys.exit(f"rayside: it was recorded by Python {call['python']}, and this is Python {here}")
    # Imports find the user's modules of today.
    sys.path[:0] = [str(Path.cwd())]
    files = _files(folder, call)
    if own := files.get(call["file"]):
        sys.path.insert(1, str(own.path.parent))
    cloudpickle = importlib.import_module("ray.cloudpickle")
    function = cloudpickle.loads((folder / call["function"]).read_bytes())
    values = [
        (each["keyword"], cloudpickle.loads((folder / each["file"]).read_bytes())) for each in call["inputs"]
    ]
    for each in gc.get_objects():
        if type(each) is FunctionType and (file := files.get(each.__code__.co_filename)):
            file.renew(each)
    result = function(
        *(value for keyword, value in values if not keyword),
        **{keyword: value for keyword, value in values if keyword},
    )
    if inspect.iscoroutine(result):
        result = asyncio.run(result)
    elif inspect.isgenerator(result):
        result = list(result)
    elif inspect.isasyncgen(result):
        result = asyncio.run(_all(result))
    _say(f"{call['name']} returned {repr(result)[:_LONGEST]}")


async def _all(generator: Any) -> list[Any]:
    return [each async for each in generator]


if __name__ == "__main__":
    main(Path(sys.argv[1]) if sys.argv[1:] else Path(__file__).parent)
