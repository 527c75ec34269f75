"""Capsule of a failed call: a zip file with the exception, its frames and variables, sources and inputs.

Viewers read `capsule.json` and the source files in `sources/`. Only a new call of the function unpickles
`function.pickle` and `inputs/`. Values are summarized and masked as in the debugger. A function or an input
that contains a secret's value is left out.
"""

from __future__ import annotations

import io
import json
import linecache
import platform
import sys
import traceback
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any

from .capsule_inputs import Parts, inputs, pickle_of
from .capsule_values import LONGEST_NAME, NO_VARIABLES, Masks
from .evaluated import shown
from .loaded_sources import text_of
from .redaction import Redactor
from .secret_names import may_be_secret_name

FORMAT = 1
DOCUMENT, FUNCTION, SOURCES = "capsule.json", "function.pickle", "sources/"
# Limits in bytes: a capsule; one source file and all of them, uncompressed.
MOST_BYTES, _MOST_OF_SOURCE, _MOST_OF_SOURCES = 1024 * 1024, 256 * 1024, 2 * 1024 * 1024
# Limits: chained exceptions, frames of each, local and global variables of a frame.
_MOST_ERRORS, _MOST_FRAMES, _MOST_VARIABLES, _MOST_GLOBALS = 8, 100, 100, 50
_MOST_VERSIONS, _LONGEST_ENVIRONMENT = 300, 100_000
# Bytes of a zip entry's header, and of the end of the zip file.
_ENTRY, _END = 256, 4_096
_OWN = Path(__file__).parent


def made(
    call: Any, error: BaseException, about: Mapping[str, Any], masked: tuple[str, str]
) -> tuple[bytes, str]:
    """Returns the capsule of a failed call (calls.py), and the last line of its traceback.

    Args:
        about: id, time, task, job and node of the failure.
        masked: the settings `masked_names` and `masked_values`.
    """
    frames = [frame for each, _ in _errors(error) for frame, _ in _frames(each.__traceback__)]
    masks = Masks(*masked, frames)
    document = {
        "format": FORMAT,
        "python": platform.python_version(),
        **about,
        "runtime_env": _runtime_env(masks),
        "versions": _versions(),
        "folder": str(Path.cwd()),
        "function": _function(call.function),
    }
    sources = _Sources(masks)
    document["errors"] = [_error(each, how, masks, sources) for each, how in _errors(error)]
    parts = Parts(masks)
    document["function"]["left_out"] = parts.add(FUNCTION, lambda: pickle_of(call.function))
    document["inputs"] = [
        {**described, "file": name, "left_out": parts.add(name, pickled, str(described["name"]))}
        for name, described, pickled in inputs(call, masks)
    ]
    return _zip(document, sources.texts, parts), document["errors"][0]["text"]


# --- exceptions -------------------------------------------------------------------------


def _errors(error: BaseException) -> Iterator[tuple[BaseException, str]]:
    """Yields the exception and its chain, each with its relation: "cause", "context" or "group"."""
    left, seen = [(error, "")], set[int]()
    while left and len(seen) < _MOST_ERRORS:
        each, how = left.pop(0)
        if id(each) in seen:
            continue
        seen.add(id(each))
        yield each, how
        if each.__cause__ is not None:
            left.append((each.__cause__, "cause"))
        elif each.__context__ is not None and not each.__suppress_context__:
            left.append((each.__context__, "context"))
        inner = getattr(each, "exceptions", ())
        left += (
            [(one, "group") for one in inner if isinstance(one, BaseException)]
            if type(inner) is tuple
            else []
        )


def _frames(trace: TracebackType | None) -> list[tuple[FrameType, int]]:
    """Returns the frames of a traceback with their lines, innermost first, without the debugger's own."""
    found = [
        (frame, line)
        for frame, line in traceback.walk_tb(trace)
        if _OWN not in Path(frame.f_code.co_filename).parents
    ][::-1]
    half = _MOST_FRAMES // 2
    return found if len(found) <= _MOST_FRAMES else [*found[:half], *found[-half:]]


def _error(error: BaseException, how: str, masks: Masks, sources: _Sources) -> dict[str, Any]:
    return {
        "type": masks.name(type(error).__qualname__),
        "text": masks.text(shown.raised(error, masks.redactor)),
        "how": how,
        "frames": [
            {
                "function": masks.name(getattr(frame.f_code, "co_qualname", frame.f_code.co_name)),
                "file": frame.f_code.co_filename,
                "line": line,
                "source": sources.of(frame),
                "locals": masks.variables(frame.f_locals, _MOST_VARIABLES),
                "globals": masks.variables(_used_globals(frame), _MOST_GLOBALS),
            }
            for frame, line in _frames(error.__traceback__)
        ],
    }


def _used_globals(frame: FrameType) -> dict[str, Any]:
    names = (name for name in frame.f_code.co_names if name in frame.f_globals)
    return {
        name: value
        for name in names
        if not issubclass(type(value := frame.f_globals[name]), NO_VARIABLES)
        and name not in ("__builtins__", "__annotations__")
    }


class _Sources:
    """Source files of frames; `texts` has them by their name in the capsule."""

    def __init__(self, masks: Masks) -> None:
        self.texts: dict[str, str] = {}
        self._masks, self._room = masks, _MOST_OF_SOURCES
        self._names: dict[str, str] = {}

    def of(self, frame: FrameType) -> str:
        path = frame.f_code.co_filename
        if path not in self._names:
            text = text_of(path) or "".join(linecache.getlines(path, frame.f_globals))
            fits = 0 < len(text) <= min(_MOST_OF_SOURCE, self._room)
            self._names[path] = f"{SOURCES}{len(self.texts)}.py" if fits else ""
            if fits:
                self.texts[self._names[path]] = self._masks.redactor.known(text)
                self._room -= len(text)
        return self._names[path]


# --- function and environment ----------------------------------------------------------------------------


def _function(function: Any) -> dict[str, Any]:
    code = getattr(function, "__code__", None)
    return {
        "name": str(getattr(function, "__qualname__", function))[:LONGEST_NAME],
        "module": str(getattr(function, "__module__", ""))[:LONGEST_NAME],
        "file": str(getattr(code, "co_filename", "")),
    }


def _runtime_env(masks: Masks) -> Any:
    with suppress(Exception):
        import ray

        env = json.loads(json.dumps(dict(ray.get_runtime_context().runtime_env), default=str))
        redactor = Redactor(masks.known, is_secret=may_be_secret_name)
        clean = redactor.document(env)
        return clean if len(json.dumps(clean)) <= _LONGEST_ENVIRONMENT else "left out: it is too long"
    return {}


def _versions() -> dict[str, str]:
    """Returns the versions of imported packages that have a `__version__`."""
    found = {
        name: vars(module)["__version__"]
        for name, module in list(sys.modules.items())
        if "." not in name and isinstance(getattr(module, "__dict__", {}).get("__version__"), str)
    }
    return {name: version[:LONGEST_NAME] for name, version in sorted(found.items())[:_MOST_VERSIONS]}


def _zip(document: dict[str, Any], sources: Mapping[str, str], parts: Parts) -> bytes:
    """Returns the zip file, without what exceeds the limit: the longest inputs first, then sources."""
    room = MOST_BYTES - len(zlib.compress(json.dumps(document).encode())) - _END
    texts = {name: text.encode("utf-8", "replace") for name, text in sources.items()}
    by_length = sorted(parts.contents.items(), key=lambda part: (part[0] != FUNCTION, len(part[1])))
    kept: dict[str, bytes] = {}
    for name, content in [*by_length[:1], *texts.items(), *by_length[1:]]:
        length = len(zlib.compress(content)) + _ENTRY
        if length <= room:
            kept[name] = content
            room -= length
    why = f"the capsule would be longer than {MOST_BYTES // 1024} KiB"
    for row, name in [(document["function"], FUNCTION), *((row, row["file"]) for row in document["inputs"])]:
        if name in parts.contents and name not in kept:
            row["left_out"] = why
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(DOCUMENT, json.dumps(document, ensure_ascii=False).encode("utf-8", "replace"))
        for name, content in kept.items():
            archive.writestr(name, content)
    return stream.getvalue()
