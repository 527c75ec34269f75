"""Tests what the relay keeps of secrets, and what a debuggee's nonsense does to it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any, cast

import pytest

from rayside.relay.config import UNSET, Masking
from rayside.relay.connection import Connection
from rayside.relay.masking import Masks, masked_breakpoint
from rayside.worker.evaluated import secret_values
from rayside.worker.redaction import REDACTED

BY_VALUE = Masking(by_value=True)
TOKEN = "the-token-of-this-ray"


class Telling:
    """Stands in for a debuggee: it says these are its secrets."""

    def __init__(self, told: object) -> None:
        self.told = told

    async def ask(self, timeout: float, function: Callable[..., object], *arguments: object) -> object:
        assert function is secret_values.values
        return self.told


def masks(*told: object, masking: Masking = BY_VALUE) -> Masks:
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
    "nonsense", [None, 7, "", "nonsense", "{}", "[7, null, []]", "[" * 90_000, json.dumps(["x" * 120_000])]
)
def test_a_debuggees_nonsense_masks_nothing_and_what_was_known_stays(nonsense: object) -> None:
    after = masks('["known-value"]', nonsense)
    assert after.text("known-value, x, 7, None") == f"{REDACTED}, x, 7, None"


def response(masks: Masks, command: str, expression: str = "", **body: Any) -> dict[str, Any]:
    return asyncio.run(masks.response(command, {"expression": expression}, body))


@pytest.mark.parametrize("masking", [UNSET, Masking("iban", "x+"), Masking("none", by_value=True)])
def test_unless_masked_by_value_no_debuggee_is_asked(masking: Masking) -> None:
    nobody: Any = None
    masks = Masks(masking, nobody)
    asyncio.run(masks.learn())
    assert response(masks, "evaluate", "1 + 1", result="2")["result"] == "2"
    assert response(masks, "setVariable", value="2")["value"] == "2"


def test_by_name_a_secret_is_masked_and_not_what_is_made_of_it() -> None:
    nobody: Any = None
    masks = Masks(UNSET, nobody)
    rows = [
        {"name": "'RAY_AUTH_TOKEN'", "value": "'abcdefgh'", "type": "str", "variablesReference": 0},
        {"name": "password", "value": "'hunter2-of-joe'", "type": "str", "variablesReference": 0},
        {"name": "greeting", "value": "'I am hunter2-of-joe'", "type": "str", "variablesReference": 0},
        {"name": "url", "value": "'postgresql://joe:hunter2-of-joe@db'", "type": "str"},
        {"name": "environ", "value": "environ({'HOME': '/h', 'RAY_AUTH_TOKEN': 'abcdefgh'})"},
    ]
    shown = [row["value"] for row in response(masks, "variables", variables=rows)["variables"]]
    environment = f"environ({{'HOME': '/h', 'RAY_AUTH_TOKEN': '{REDACTED}'}})"
    url = f"'postgresql://{REDACTED}@db'"
    assert shown == [REDACTED, REDACTED, "'I am hunter2-of-joe'", url, environment]
    assert response(masks, "evaluate", "password[:3]", result="'hun'", type="str")["result"] == REDACTED
    assert masks.text("connecting as hunter2-of-joe") == "connecting as hunter2-of-joe"


def test_the_relays_own_token_is_masked_wherever_it_stands_and_told_to_no_debuggee() -> None:
    nobody: Any = None
    assert Masks(Masking(token=TOKEN), nobody).text(f"sent {TOKEN}") == f"sent {REDACTED}"
    learned = masks('["known-value"]', masking=Masking(by_value=True, token=TOKEN))
    assert learned.text(f"known-value {TOKEN}") == f"{REDACTED} {REDACTED}"
    assert TOKEN not in repr((learned.known, Masking(token=TOKEN)))


def test_a_logpoint_has_no_expression_that_names_a_secret() -> None:
    spec = {"line": 3, "logMessage": "as {user} with {config['password']!r}, {max(key, 2)}"}
    message = f"as {{user}} with {REDACTED}, {{max(key, 2)}}"
    assert masked_breakpoint(spec, UNSET) == {"line": 3, "logMessage": message}
    assert masked_breakpoint(spec, Masking("none")) == spec
