"""Makes expressions that call our functions inside a debuggee: no text of ours is sent."""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec

from bootstrap.hook import rayside_hook

_P = ParamSpec("_P")
# In a debuggee the package stands by itself.
_ABOVE = rayside_hook.__name__.removesuffix("rayside_hook")


def call(function: Callable[_P, object], *arguments: _P.args, **named: _P.kwargs) -> str:
    """Returns an expression that imports a function of the package there, and calls it with literals."""
    module = function.__module__.removeprefix(_ABOVE)
    literals = ", ".join([*map(repr, arguments), *(f"{name}={value!r}" for name, value in named.items())])
    return f"__import__('importlib').import_module({module!r}).{function.__qualname__}({literals})"
