"""Tests that editors are shown no secret of real debuggees, whichever way they ask."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from rayside.errors import RequestFailed
from rayside.relay.config import Masking
from rayside.worker.redaction import REDACTED
from tests.integration.relay_debuggees import Session, relay_over

pytestmark = pytest.mark.gate

HIDDEN, OTHER, INNER, WITHIN = "hunter2-of-joe", "swordfish-9", "deep-in-it-77", "vaulted-5"
SCRIPT = f"""\
import dataclasses, os
os.environ["DB_PASSWORD"] = "{OTHER}"

@dataclasses.dataclass
class Account:
    user: str
    secret: str

class Odd:
    def __init__(self):
        self.api_key = "{INNER}"
    def __repr__(self):
        return "Odd<" + self.api_key + ">"
    @property
    def told(self):
        raise SystemExit("a debugger must not ask this")

class Vault:
    def __init__(self):
        self.region, self.token = "a-usual-word", "{WITHIN}"

def connect(password, iban):
    config = {{"password": password, "user": "joe", "deep": [Odd(), {{"n": 1}}]}}
    account = Account("joe", password)
    pair = ("joe", password)
    url = "postgresql://joe:" + password + "@db"
    credentials = {{"user": "joe-the-user", "pin": "1234"}}
    max_tokens, key, odd = 512, "north", Odd()
    vault_secret, many_tokens = Vault(), {{"a": dict.fromkeys(range(200), 1)}}
    many_tokens["itself"] = many_tokens
    print("connecting as", password, flush=True)
    raise ValueError(f"joe can't connect with {{password}}")

try:
    connect("{HIDDEN}", "DE89370400440532013000")
except ValueError:
    print("done", flush=True)
"""
STOP = SCRIPT.splitlines().index('    print("connecting as", password, flush=True)') + 1


async def variables(session: Session, reference: int) -> dict[str, Any]:
    body = await session.request("variables", variablesReference=reference)
    return {variable["name"]: variable for variable in body["variables"]}


async def local(session: Session, stop: dict[str, Any]) -> tuple[int, int, dict[str, Any]]:
    """Returns the numbers of the top frame and of its local variables, and these."""
    frame = (await session.frames(stop))[0]["id"]
    scope = (await session.request("scopes", frameId=frame))["scopes"][0]["variablesReference"]
    return frame, scope, await variables(session, scope)


def heard(session: Session, answers: list[Any]) -> str:
    """Returns all that the editor was told, as one text."""
    return json.dumps([answers, session.unmatched])


async def test_no_secret_is_shown_by_name_within_others_or_by_value(tmp_path: Path) -> None:
    async with relay_over(tmp_path, masking=Masking(by_value=True)) as setting:
        await setting.cluster.start(SCRIPT)
        session = await setting.attach({"job.py": [STOP]})
        stop = await session.event("stopped", reason="breakpoint")
        _frame, _scope, shown = await local(session, stop)
        assert (shown["password"]["value"], shown["password"]["type"]) == (REDACTED, "str")
        assert shown["credentials"]["value"] == REDACTED
        assert shown["credentials"]["variablesReference"] == 0
        assert shown["config"]["value"].startswith(f"{{'password': {REDACTED!r}, 'user': 'joe'")
        assert shown["account"]["value"] == f"Account(user='joe', secret={REDACTED!r})"
        assert shown["pair"]["value"] == f"('joe', {REDACTED!r})"
        assert shown["odd"]["value"] == f"Odd<{REDACTED}>"
        assert (shown["max_tokens"]["value"], shown["key"]["value"]) == ("512", "'north'")
        assert shown["iban"]["value"] == "'DE89370400440532013000'"
        answers: list[Any] = [shown]
        for name in ("config", "account", "pair", "odd"):
            answers.append(await variables(session, shown[name]["variablesReference"]))
        assert answers[1]["'password'"]["value"] == REDACTED
        assert answers[1]["'user'"]["value"] == "'joe'"
        assert answers[2]["secret"]["value"] == REDACTED
        deep = await variables(session, answers[1]["'deep'"]["variablesReference"])
        told = heard(session, [*answers, deep])
        assert not [secret for secret in (HIDDEN, INNER, "joe-the-user", "1234'") if secret in told]
        await session.client.disconnect()


@pytest.mark.parametrize(
    ("expression", "shown"),
    [
        ("password", REDACTED),
        ("password[:3]", REDACTED),
        ("'-'.join(password)", REDACTED),
        ("config['password'][::-1]", REDACTED),
        ("[ord(c) for c in config['user']]", "[106, 111, 101]"),
        ("len(password)", str(len(HIDDEN))),
        ("password == 'x'", "False"),
        ("pair", f"('joe', {REDACTED!r})"),
        ("pair[1]", repr(REDACTED)),
        ("url", f"'postgresql://joe:{REDACTED}@db'"),
        ("__import__('os').environ['DB_PASS' + 'WORD']", repr(REDACTED)),
        ("__import__('base64').b64encode(pair[1].encode())", f"b'{REDACTED}='"),
        ("f'{pair[1]!r} in a text'", f'"{REDACTED!r} in a text"'),
        ("max_tokens + 1", "513"),
        # An object under a secret's name has secrets and other things.
        ("'a-usual-' + 'word', 'vaulted' + '-5'", f"('a-usual-word', '{REDACTED}')"),
    ],
)
async def test_an_expression_shows_no_secret(tmp_path: Path, expression: str, shown: str) -> None:
    async with relay_over(tmp_path, masking=Masking(by_value=True)) as setting:
        await setting.cluster.start(SCRIPT)
        session = await setting.attach({"job.py": [STOP]})
        stop = await session.event("stopped", reason="breakpoint")
        assert await session.evaluate(stop, expression) == shown
        await session.client.disconnect()


async def test_what_is_set_raised_printed_or_logged_shows_no_secret(tmp_path: Path) -> None:
    async with relay_over(tmp_path, masking=Masking(by_value=True)) as setting:
        (process,) = await setting.cluster.start(SCRIPT)
        log = {"line": STOP + 1, "logMessage": "as {config['user']} with {password[:7]} and {pair}"}
        session = await setting.attach(
            {"job.py": [STOP, log]},
            {"setExceptionBreakpoints": {"filters": ["raised"]}},
            redirectOutput=True,
        )
        stop = await session.event("stopped", reason="breakpoint")
        frame, scope, _ = await local(session, stop)
        answers: list[Any] = [
            await session.request("setVariable", variablesReference=scope, name="key", value="pair[1]"),
            await session.request(
                "setVariable", variablesReference=scope, name="password", value="'new-secret-1'"
            ),
            await session.request("setExpression", frameId=frame, expression="url", value="password * 2"),
        ]
        assert [answer["value"] for answer in answers] == [
            repr(REDACTED),
            REDACTED,
            repr(2 * REDACTED),
        ]
        refusal = f"invalid literal for int() with base 10: '{REDACTED}'"
        assert refusal in await session.evaluate(stop, "int(pair[1])")
        with pytest.raises(RequestFailed, match=re.escape(refusal)):
            await session.request("evaluate", frameId=frame, expression="int(pair[1])", context="repl")
        await session.resume(stop)
        logged = await session.event("output", line=STOP + 1)
        assert logged["output"].endswith(f": as joe with {REDACTED} and ('joe', '{REDACTED}')\n")
        printed = await session.event("output", category="stdout", line=STOP)
        assert printed["output"].endswith(f"connecting as {REDACTED}\n")
        stop = await session.event("stopped", reason="exception")
        info = await session.request("exceptionInfo", threadId=stop["threadId"])
        assert f"joe can't connect with {REDACTED}" in info["description"]
        told = heard(session, [*answers, info, stop, logged, printed])
        assert not [secret for secret in (HIDDEN, "new-sec") if secret in told]
        await session.resume(stop)
        await session.client.disconnect()
        # Only what is shown is masked: the program has its values.
        assert await process.end() == ["connecting as new-secret-1", "done"]


async def test_by_default_a_secret_is_masked_by_its_name_alone(tmp_path: Path) -> None:
    async with relay_over(tmp_path) as setting:
        await setting.cluster.start(SCRIPT)
        session = await setting.attach({"job.py": [STOP]})
        stop = await session.event("stopped", reason="breakpoint")
        _, _, shown = await local(session, stop)
        assert (shown["password"]["value"], shown["credentials"]["value"]) == (REDACTED, REDACTED)
        assert shown["config"]["value"].startswith(f"{{'password': {REDACTED!r}, 'user': 'joe'")
        assert shown["account"]["value"] == f"Account(user='joe', secret={REDACTED!r})"
        assert shown["url"]["value"] == f"'postgresql://{REDACTED}@db'"
        assert shown["pair"]["value"] == f"('joe', {HIDDEN!r})"
        assert await session.evaluate(stop, "__import__('os').environ['DB_PASSWORD']") == REDACTED
        environment = await session.evaluate(stop, "dict(__import__('os').environ)")
        assert "DB_PASSWORD" in environment
        assert OTHER not in environment
        await session.client.disconnect()


async def test_a_rule_adds_names_excepts_others_and_masks_by_pattern(tmp_path: Path) -> None:
    masking = Masking("iban, max_tokens, !*password, !secret", r"\bjo\w\b", by_value=True)
    async with relay_over(tmp_path, masking=masking) as setting:
        await setting.cluster.start(SCRIPT)
        session = await setting.attach({"job.py": [STOP]})
        stop = await session.event("stopped", reason="breakpoint")
        _, _, shown = await local(session, stop)
        assert shown["iban"]["value"] == shown["max_tokens"]["value"] == REDACTED
        assert shown["password"]["value"] == repr(HIDDEN.replace("joe", REDACTED))
        assert await session.evaluate(stop, "config['user']") == repr(REDACTED)
        assert await session.evaluate(stop, "max_tokens") == REDACTED
        await session.client.disconnect()


async def test_nothing_is_masked_where_the_setting_says_so(tmp_path: Path) -> None:
    async with relay_over(tmp_path, masking=Masking("none")) as setting:
        await setting.cluster.start(SCRIPT)
        session = await setting.attach({"job.py": [STOP]})
        stop = await session.event("stopped", reason="breakpoint")
        _, _, shown = await local(session, stop)
        assert shown["password"]["value"] == repr(HIDDEN)
        assert await session.evaluate(stop, "config['password']") == repr(HIDDEN)
        await session.client.disconnect()
