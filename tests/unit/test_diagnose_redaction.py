"""Tests that no secret stays in what is handed on, whatever it stands in, and that the rest stays."""

from __future__ import annotations

import base64
import json

import pytest

from bootstrap.diagnosis.redaction import Redactor, is_secret_name

TOKEN = "tG7-x_Zq9LmN2pRs/T+uVw=="
HIDDEN = "hunter2hunter2"
JWT = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJqb2UifQ.c2lnbmF0dXJlLW9mLWl0"
KEY = "-----BEGIN RSA PRIVATE KEY-----\nMIIEpAIBAAKCAQEA7x\nhunter2hunter2\n-----END RSA PRIVATE KEY-----"


@pytest.mark.parametrize(
    "text",
    [
        f"AWS_SECRET_ACCESS_KEY={HIDDEN}",
        f"export HF_TOKEN='{HIDDEN}' && run",
        f'"password": "{HIDDEN}", "user": "joe"',
        f'{{\\"api_key\\": \\"{HIDDEN}\\"}}',
        f"{{'client_secret': '{HIDDEN}'}}",
        f'"password": "a\\"{HIDDEN}"',
        f"dbPassword: {HIDDEN}",
        f"connect(password='{HIDDEN}', port=1)",
        f"curl -H 'Authorization: Bearer {HIDDEN}' http://x",
        f"authorization: {HIDDEN}",
        f"Authorization: Basic {base64.b64encode(HIDDEN.encode()).decode()}",
        f"Cookie: session={HIDDEN}; theme=dark",
        f"Set-Cookie: a={HIDDEN}; HttpOnly",
        f"Cookie: theme=dark; sid={HIDDEN}",
        f"Authorization: token {HIDDEN}",
        f"bearer {HIDDEN}",
        f"postgresql://joe:{HIDDEN}@db:5432/x",
        f"postgresql://joe:p@{HIDDEN}@db:5432/x",
        f"https://{HIDDEN}@github.com/x.git",
        f"python train.py --wandb-api-key {HIDDEN} --epochs 3",
        f"python train.py --token={HIDDEN}",
        f"token = {HIDDEN}",
        f"token={HIDDEN}&next=1",
        f"PASSWORD={HIDDEN},{HIDDEN}",
        f'password="{HIDDEN} and no end',
        KEY,
        KEY.partition("\n")[2],
        KEY.rpartition("\n")[0],
        KEY.replace("\n", "\\n"),
    ],
)
def test_a_secret_is_taken_out_of_a_text(text: str) -> None:
    redactor = Redactor([])
    shown = redactor.text(text)
    assert HIDDEN not in shown
    assert base64.b64encode(HIDDEN.encode()).decode() not in shown
    assert "<redacted>" in shown
    assert redactor.counts.total() >= 1


@pytest.mark.parametrize(
    "token",
    [
        JWT,
        "AKIAIOSFODNN7EXAMPLE",
        "ghp_16C7e42F292c6912E7710c838347Ae178B4a",
        "hf_abcdefghijklmnopqrstuvwx",
        "sk-proj-abcdefghijklmnopqrstuv",
        "xoxb-1234567890-abcdef",
        "glpat-abcdefghijklmnop1234",
    ],
)
def test_a_token_is_known_by_its_form(token: str) -> None:
    assert Redactor([]).text(f"we got {token} here") == "we got <redacted> here"


@pytest.mark.parametrize(
    "text",
    [
        "KeyError: 'seven'",
        "TokenError: unexpected end",
        "http://127.0.0.1:8265/api/jobs?limit=3",
        'File "/home/joe/train.py", line 5, in load',
        "ssh://host:22/path and joe@example.org",
        "password=None, token: null",
        "the token has expired",
        "monkey=3 keyboard: qwerty",
        "RAY_ADDRESS=127.0.0.2:6379",
        "--name joe --num-cpus 2",
        "PWD=/home/joe",
    ],
)
def test_what_is_no_secret_stays(text: str) -> None:
    redactor = Redactor([])
    assert redactor.text(text) == text
    assert redactor.counts.total() == 0


def test_known_values_are_taken_out_in_every_form_that_they_may_have() -> None:
    redactor = Redactor([TOKEN, "", "abc"])
    forms = [TOKEN, "tG7-x_Zq9LmN2pRs%2FT%2BuVw%3D%3D", base64.b64encode(TOKEN.encode()).decode()]
    shown = redactor.text(" ".join(forms) + " abc")
    assert shown.rstrip("= abc").count("<redacted>") == 3
    assert not any(form in shown for form in forms)
    assert shown.endswith("abc")  # It is too short to be told from any other text.
    assert redactor.counts["known value"] == 3


def test_a_documents_secrets_are_known_by_their_keys() -> None:
    document = {
        "runtime_env": {"env_vars": {"WANDB_API_KEY": HIDDEN, "MODE": "fast", "AWS_REGION": HIDDEN}},
        "env": [{"name": "DB_PASSWORD", "value": HIDDEN}, {"name": "HOME", "value": "/home/joe"}],
        "valueFrom": {"secretKeyRef": {"name": "rayside", "key": HIDDEN}},
        "credentials": {"any": [HIDDEN, 12345678], "none": None, "set": True},
        "serialized_runtime_env": json.dumps({"env_vars": {"secrets": {"a": HIDDEN}, "pip": ["x"]}}),
        "message": f"login with password={HIDDEN}",
        "exit_code": 7,
    }
    redactor = Redactor([])
    shown = redactor.document(document)
    assert HIDDEN not in json.dumps(shown)
    assert "12345678" not in json.dumps(shown)
    assert shown["runtime_env"]["env_vars"]["MODE"] == "fast"
    assert shown["env"] == [
        {"name": "DB_PASSWORD", "value": "<redacted>"},
        {"name": "HOME", "value": "/home/joe"},
    ]
    assert shown["valueFrom"]["secretKeyRef"]["name"] == "rayside"
    assert shown["credentials"] == {"any": ["<redacted>", "<redacted>"], "none": None, "set": True}
    assert json.loads(shown["serialized_runtime_env"])["env_vars"] == {
        "secrets": {"a": "<redacted>"},
        "pip": ["x"],
    }
    assert shown["exit_code"] == 7
    assert redactor.counts.total() == 8


@pytest.mark.parametrize(
    "name",
    [
        *(
            "RAY_AUTH_TOKEN",
            "password",
            "dbPassword",
            "client-secret",
            "API_KEY",
            "apiKey",
            "aws_session",
            "KEY",
        ),
        *("Authorization", "Set-Cookie", "GOOGLE_CREDENTIALS", "signing.key", "access_tokens", "passphrase"),
    ],
)
def test_a_name_that_says_secret(name: str) -> None:
    assert is_secret_name(name)


@pytest.mark.parametrize(
    "name",
    [
        "monkey",
        "keyboard",
        "author",
        "PATH",
        "PWD",
        "OLDPWD",
        "KeyError",
        "secretName",
        "task_id",
        "keys_seen",
    ],
)
def test_a_name_that_says_none(name: str) -> None:
    assert not is_secret_name(name)
