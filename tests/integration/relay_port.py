"""Check whether a relay answers on a port."""

from __future__ import annotations

import contextlib
import time
from typing import Any

from rayside.dap.one_request import ask
from rayside.errors import DebuggerGone
from tests.patience import PATIENCE


def initialize(port: int) -> dict[str, Any]:
    return ask(port, "initialize", {"adapterID": "test"}, timeout=PATIENCE)


def until(condition: Any, within: float = 60) -> None:
    deadline = time.monotonic() + within
    while not condition():
        assert time.monotonic() < deadline, "in vain"
        time.sleep(0.02)


def answers(port: int) -> bool:
    with contextlib.suppress(DebuggerGone):
        return bool(initialize(port))
    return False
