"""Tests what passes between this machine and the relay inside a Ray that others made."""

from __future__ import annotations

import asyncio
import json
import pickle
from pathlib import Path

import pytest

from rayside.errors import CredentialsRefused, NotRunning
from rayside.ray import authentication
from rayside.relay.config import Masking, digest_of
from rayside.relay_actor.actor import RelayActor
from rayside.relay_actor.spec import RelaySpec, Running

ANSWER = {"port": 40123, "actor_id": "0123456789abcdef" * 2, "away": []}


def test_a_spec_is_read_as_it_was_written_and_has_no_token(tmp_path: Path) -> None:
    spec = RelaySpec(
        "rayside-relay-ann-0a1b2c",
        "http://127.0.0.1:8265",
        digest_of("a-token-of-rays").hex(),
        Masking("*iban*", "x+", by_value=True),
    )
    file = tmp_path / "relay.json"
    file.write_text(spec.document())
    assert RelaySpec.read(file) == spec
    assert "a-token-of-rays" not in file.read_text()


def test_a_head_without_a_token_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is Ray's processes that lack it, and not who has named a token's file."""
    for name in ("RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(authentication, "mode", lambda _: authentication.TOKEN)
    actor = RelayActor(RelaySpec("rayside-relay-1", "http://127.0.0.1:1", "00", Masking("", "")))
    with pytest.raises(CredentialsRefused, match="Ray's processes on the head have no token"):
        asyncio.run(actor.begin("a"))


def test_a_digest_is_of_the_whole_token() -> None:
    assert digest_of("one") != digest_of("one ") != digest_of("")
    # A token that is no text at all is refused, and raises nothing.
    assert digest_of("\udc80") != digest_of("?")


def test_an_error_passes_between_processes() -> None:
    error = pickle.loads(pickle.dumps(NotRunning("it does not answer", hint="./invokew up")))
    assert (type(error), error.message, error.hint) == (NotRunning, "it does not answer", "./invokew up")


def test_what_the_job_answers_is_read() -> None:
    assert Running.parse(json.dumps({**ANSWER, "away": ["10.0.0.2"]})).away == ("10.0.0.2",)


@pytest.mark.parametrize(
    "answer",
    [
        *("", "null", "[]", "{}"),
        json.dumps({**ANSWER, "port": 0}),
        json.dumps({**ANSWER, "port": 65536}),
        json.dumps({**ANSWER, "port": "5678; id"}),
        json.dumps({**ANSWER, "actor_id": "../../token"}),
        json.dumps({**ANSWER, "actor_id": "a" * 65}),
        json.dumps({**ANSWER, "away": 3}),
        json.dumps({**ANSWER, "away": "abc"}),
        json.dumps({**ANSWER, "away": ["n" * 99] * 2_000}),
        "[" * 100_000,
        '{"port": Infinity, "actor_id": "a", "away": []}',
    ],
)
def test_what_is_no_answer_is_refused(answer: str) -> None:
    with pytest.raises((ValueError, KeyError, TypeError)):
        Running.parse(answer)
