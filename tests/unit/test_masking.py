"""Tests what the relay keeps of secrets, and what a debuggee's nonsense does to it."""

from __future__ import annotations

import asyncio
import json
from typing import Any, cast

import pytest

from rayside.relay.config import UNSET, Masking
from rayside.relay.connection import Connection
from rayside.relay.masking import Masks, masked_breakpoint
from rayside.worker.redaction import REDACTED


class Telling:
    """Stands in for a debuggee: it says these are its secrets."""

    def __init__(self, told: object) -> None:
        self.told = told

    has_package = True

    async def literal(self, expression: str, *, timeout: float) -> object:
        return self.told


def masks(*told: object, masking: Masking = UNSET) -> Masks:
    """Returns masks that have learned these, one after the other."""
    debuggee = Telling(None)
    masks = Masks(masking, cast(Connection, debuggee))
    for debuggee.told in told:
        asyncio.run(masks.learn())
    return masks


def test_what_was_learned_stays_until_there_is_no_room() -> None:
    early, late = [f"early-value-{number:03}" for number in range(90)], ["late-value"]
    first = json.dumps(early)
    both = masks(first, json.dumps(late))
    assert both.text("early-value-000 late-value") == f"{REDACTED} {REDACTED}"
    long = [str(number) * 4_000 for number in range(1, 5)]
    full = masks(first, json.dumps(long))
    assert [full.text(value) for value in long] == [REDACTED] * 4
    assert full.text("early-value-089") == "early-value-089"


@pytest.mark.parametrize(
    "nonsense",
    [None, 7, "", "nonsense", "{}", "[7, null, []]", "[" * 90_000, json.dumps(["x" * 120_000])],
)
def test_a_debuggees_nonsense_masks_nothing_and_what_was_known_stays(nonsense: object) -> None:
    after = masks('["known-value"]', nonsense)
    assert after.text("known-value, x, 7, None") == f"{REDACTED}, x, 7, None"


def test_nothing_is_asked_where_nothing_is_to_be_masked() -> None:
    nobody: Any = None
    asyncio.run(Masks(Masking("none"), nobody).learn())


def test_a_logpoint_has_no_expression_that_names_a_secret() -> None:
    spec = {"line": 3, "logMessage": "as {user} with {config['password']!r}, {max(key, 2)}"}
    message = f"as {{user}} with {REDACTED}, {{max(key, 2)}}"
    assert masked_breakpoint(spec, UNSET) == {"line": 3, "logMessage": message}
    assert masked_breakpoint(spec, Masking("none")) == spec
