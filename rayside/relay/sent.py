"""Makes expressions that call our functions inside a debuggee: no text of ours is sent."""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec

_P = ParamSpec("_P")


def call(function: Callable[_P, object], *arguments: _P.args, **named: _P.kwargs) -> str:
    """Returns an expression that imports a function of the package there, and calls it with literals."""
    literals = ", ".join([*map(repr, arguments), *(f"{name}={value!r}" for name, value in named.items())])
    return (
        f"__import__('importlib').import_module({function.__module__!r}).{function.__qualname__}({literals})"
    )
