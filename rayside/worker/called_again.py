"""Program that calls the function of a recorded failure again: `python called_again.py [FOLDER]`.

`rayside replay` runs it, with nothing of this package on its path. FOLDER, or this file's own, has the
capsule's pickled parts, and `CALL` says what they are. Functions get the code that the user's files have now,
by the path below the job's folder and the current one; where there is no such file, the recorded source is
used.
"""

from __future__ import annotations

import ast
import asyncio
import builtins
import gc
import importlib
import inspect
import json
import platform
import sys
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

CALL = "call.json"
_LONGEST = 2_000  # characters of the result that are shown


class _File:
    """A source file, as it is now or was then; `path` is where the debugger finds it."""

    def __init__(self, path: Path, then: Path) -> None:
        self.path = path
        text, before = (each.read_text(encoding="utf-8", errors="replace") for each in (path, then))
        tree = ast.parse(text)
        self.codes = dict(_codes(compile(tree, str(path), "exec")))
        self._statements = {name: statement for statement in tree.body for name in _bound(statement)}
        old = {name: ast.dump(each) for each in ast.parse(before).body for name in _bound(each)}
        self._changed = {
            name
            for name, each in self._statements.items()
            if isinstance(each, ast.Assign | ast.AnnAssign) and ast.dump(each) != old.get(name)
        }
        self._done: set[tuple[int, str]] = set()

    def renew(self, function: FunctionType) -> None:
        """Gives a function the code that this file has for it; without any it only finds its source here."""
        old, new = function.__code__, self.codes.get(function.__qualname__)
        if new is None or new.co_freevars != old.co_freevars:
            function.__code__ = _moved(old, str(self.path))
            return
        function.__code__ = new
        self._complete(function.__globals__, set(_names(new)))

    def _complete(self, variables: dict[str, Any], wanted: set[str]) -> None:
        """Runs the module's statements that give names which it lacks, or assign something else now.

        Only what was used was pickled.
        """
        for name in sorted(wanted):
            statement, key = self._statements.get(name), (id(variables), name)
            is_known = name in variables or hasattr(builtins, name)
            if statement is None or key in self._done or (is_known and name not in self._changed):
                continue
            self._done.add(key)
            used = {each.id for each in ast.walk(statement) if isinstance(each, ast.Name)}
            self._complete(variables, used - {name})
            exec(compile(ast.Module([statement], []), str(self.path), "exec"), variables)


def _bound(statement: ast.stmt) -> Iterator[str]:
    if isinstance(statement, ast.Import | ast.ImportFrom):
        yield from (each.asname or each.name.partition(".")[0] for each in statement.names)
    elif isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        yield statement.name
    elif isinstance(statement, ast.Assign | ast.AnnAssign):
        targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
        yield from (each.id for target in targets for each in ast.walk(target) if isinstance(each, ast.Name))


def _codes(code: CodeType, prefix: str = "") -> Iterator[tuple[str, CodeType]]:
    """Yields each function's code with its qualified name."""
    for each in code.co_consts:
        if isinstance(each, CodeType):
            name = prefix + each.co_name
            is_function = bool(each.co_flags & inspect.CO_OPTIMIZED)
            if is_function and not each.co_name.startswith("<"):
                yield name, each
            yield from _codes(each, f"{name}.<locals>." if is_function else f"{name}.")


def _names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for each in code.co_consts:
        if isinstance(each, CodeType):
            yield from _names(each)


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
        except (OSError, SyntaxError, ValueError) as error:
            _say(f"{own if is_here else copy}: {error}")
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
    # The user's modules are imported as they are here.
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
