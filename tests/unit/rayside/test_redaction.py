"""Tests that no secret stays in what is handed on, whatever it stands in, and that the rest stays."""

from __future__ import annotations

import base64
import json
import time

import pytest

from rayside.worker.redaction import REDACTED, Redactor
from rayside.worker.secret_names import SecretNames, is_secret_name, may_be_secret_name

TOKEN = "tG7-x_Zq9LmN2pRs/T+uVw=="
HIDDEN = "hunter2hunter2"
JWT = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJqb2UifQ.c2lnbmF0dXJlLW9mLWl0"
KEY = "-----BEGIN RSA PRIVATE KEY-----\nMIIEpAIBAAKCAQEA7x\nhunter2hunter2\n-----END RSA PRIVATE KEY-----"


@pytest.mark.parametrize(
    "text",
    [
        *(f"AWS_SECRET_ACCESS_KEY={HIDDEN}", f"export HF_TOKEN='{HIDDEN}' && run"),
        *(f'"password": "{HIDDEN}", "user": "joe"', f'{{\\"api_key\\": \\"{HIDDEN}\\"}}'),
        *(f"{{'client_secret': '{HIDDEN}'}}", f'"password": "a\\"{HIDDEN}"', f"dbPassword: {HIDDEN}"),
        *(f"connect(password='{HIDDEN}', port=1)", f"curl -H 'Authorization: Bearer {HIDDEN}' http://x"),
        *(f"authorization: {HIDDEN}", f"Authorization: Basic {base64.b64encode(HIDDEN.encode()).decode()}"),
        *(f"Cookie: session={HIDDEN}; theme=dark", f"Set-Cookie: a={HIDDEN}; HttpOnly"),
        *(f"Cookie: theme=dark; sid={HIDDEN}", f"Authorization: token {HIDDEN}", f"bearer {HIDDEN}"),
        *(f"postgresql://joe:{HIDDEN}@db:5432/x", f"postgresql://joe:p@{HIDDEN}@db:5432/x"),
        *(f"https://{HIDDEN}@github.com/x.git", f"python train.py --wandb-api-key {HIDDEN} --epochs 3"),
        *(f"python train.py --token={HIDDEN}", f"token = {HIDDEN}", f"token={HIDDEN}&next=1"),
        *(f"PASSWORD={HIDDEN},{HIDDEN}", f'password="{HIDDEN} and no end', KEY),
        KEY.partition("\n")[2],
        KEY.rpartition("\n")[0],
        KEY.replace("\n", "\\n"),
        *(f"https://x/a?next=1&token={HIDDEN}", f"https://x/a?token={HIDDEN}&next=1"),
        *(f"?X-Amz-Date=1&X-Amz-Security-Token={HIDDEN}", f"Server=x;Password={HIDDEN};"),
        *(f"AccountName=a;AccountKey={HIDDEN};", f"Uid=joe;Pwd={HIDDEN};", f"level=info,token={HIDDEN}"),
        *(f"{{a:1,password:{HIDDEN}}}", f"{{password:{HIDDEN},a:1}}"),
        *(f"url=http://x/?a=1&api_key={HIDDEN}", f"run --token '{HIDDEN}' --fast"),
        *(f'run --token "{HIDDEN}"', f'["run", "--token", "{HIDDEN}"]', f"['run', '--token', '{HIDDEN}']"),
        *(f"postgresql://joe:ab/{HIDDEN}@db:5432/x", f"postgresql://joe:a#{HIDDEN}@db:5432/x"),
        *(f"amqp://joe:a?{HIDDEN}@db/x", f'got {{"secrets": {{"a": "{HIDDEN}"}}}}'),
        *(f'got {{"password": ["{HIDDEN}"]}}', f'got {{\\"password\\": [\\"]\\", \\"{HIDDEN}\\"]}}'),
        *(f'{{"password": [\n "x",\n "{HIDDEN}"\n]}}', f"secrets={{'a': '}}', 'b': '{HIDDEN}'"),
        f'{{"name": "DB_PASSWORD", "value": "{HIDDEN}"}}',
        f'{{\\"name\\":\\"DB_PASSWORD\\",\\"value\\":\\"{HIDDEN}\\"}}',
        f"password: |\n  {HIDDEN}\n  more\nuser: joe",
        f"a:\n  token: >-\n    x\n\n    {HIDDEN}\n  user: joe",
        *(f"- name: DB_PASSWORD\n  value: {HIDDEN}\n", f"- name: DB_PASSWORD\n  value: |\n    {HIDDEN}\n"),
        *(f"tokens:\n - x\n - {HIDDEN}\nuser: joe", f"tokens:\n- x\n- {HIDDEN}\nuser: joe"),
        *(f"password: correct {HIDDEN} battery", f"Authorization: ApiKey {HIDDEN}"),
        *(f"Authorization: SSWS {HIDDEN}", f'Authorization: Digest username="joe", response="{HIDDEN}"'),
        *(f'{{"Authorization": "ApiKey {HIDDEN}", "n": 1}}', f"config['password'] = '{HIDDEN}'"),
        *(f"password == '{HIDDEN}'", f"password='<redacted {HIDDEN}'", f"password=<redacted{HIDDEN}"),
        *(f"password=b'{HIDDEN}'", f"password=SecretStr('{HIDDEN}')", f"password=ab(c){HIDDEN} next"),
        *(f"password=[!]{HIDDEN}", f"secretkey={HIDDEN}", f"encryptionkey: {HIDDEN}"),
        *(f'password = """{HIDDEN}"""', f"password=b'''one 'line'\n{HIDDEN}\n'''"),
        *(f'token = """\n{HIDDEN}', f'{{"line": "password = \\"\\"\\"a\\n{HIDDEN}\\"\\"\\""}}'),
        f"{{'name': 'password', 'value': '{HIDDEN}'}}",
        f'{{"value": "{HIDDEN}", "name": "DB_PASSWORD"}}',
        f'{{\\"value\\":\\"{HIDDEN}\\",\\"name\\":\\"DB_PASSWORD\\"}}',
        f'{{"key": "DB_PASSWORD", "value": "{HIDDEN}"}}',
        f'{{"Name": "DB_PASSWORD", "Value": "{HIDDEN}"}}',
        *(f"EnvVar{{Name:DB_PASSWORD,Value:{HIDDEN},ValueFrom:nil,}}", f"name=DB_PASSWORD\nvalue={HIDDEN}"),
        f"- name: DB_PASSWORD\n  value: correct {HIDDEN} battery\n",
        f"- value: correct {HIDDEN} battery\n  name: DB_PASSWORD\n",
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
        *(JWT, "AKIAIOSFODNN7EXAMPLE", "ghp_16C7e42F292c6912E7710c838347Ae178B4a"),
        *("hf_abcdefghijklmnopqrstuvwx", "sk-proj-abcdefghijklmnopqrstuv", "xoxb-1234567890-abcdef"),
        *("glpat-abcdefghijklmnop1234", "pypi-AgEIcHlwaS5vcmcCJDU1YjEyZmE0"),
        *("npm_abcdefghijklmnopqrstuvwxyz0123456789", "AIzaSyA-1234567890abcdefghijklmnopqrstu"),
        *("sk_live_4eC39HqLyjWDarjtT1zdp7dc", "dapi1234567890abcdef1234567890abcdef"),
        *("dckr_pat_abcdefghijklmnopqrstuvwxyz1", "glsa_AbCdEfGhIjKlMnOpQrStUvWxYz012345_1a2b3c4d"),
        "xapp-1-A0123456789-1234567890123-abcdef0123456789",
        "SG.abcdefghijklmnopqrstuv.ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_abcde",
        "ya29.a0AfH6SMBabcdefghijklmnop-_q",
    ],
)
def test_a_token_is_known_by_its_form(token: str) -> None:
    assert Redactor([]).text(f"we got {token} here") == "we got <redacted> here"


@pytest.mark.parametrize(
    "text",
    [
        *("KeyError: 'seven'", "TokenError: unexpected end", "http://127.0.0.1:8265/api/jobs?limit=3"),
        *('File "/home/joe/train.py", line 5, in load', "ssh://host:22/path and joe@example.org"),
        *("password=None, token: null", "the token has expired", "monkey=3 keyboard: qwerty"),
        *("RAY_ADDRESS=127.0.0.2:6379", "--name joe --num-cpus 2", "PWD=/home/joe", "password: <redacted>"),
        *("http://127.0.0.1:8265/x?mail=joe@example.org", "pypi-server-of-the-company"),
        *("DB_PASSWORD=\nUSER=joe", "password:\nuser: joe", "--token --verbose"),
        '{"name": "MODE", "value": "fast"}, {"value": "fast", "name": "MODE"}',
        *("- name: MODE\n  value: fast\n- value: b\n  name: A\n", "SG.a ya29.b glsa_c xapp-d dckr_pat_e"),
    ],
)
def test_what_is_no_secret_stays(text: str) -> None:
    redactor = Redactor([])
    assert redactor.text(text) == text
    assert redactor.counts.total() == 0


def test_lines_of_yaml_and_arguments_beside_a_secret_stay() -> None:
    shown = Redactor([]).text(f"a:\n  password: |\n    {HIDDEN}\n  user: joe\ntokens:\n- {HIDDEN}\nb: 1\n")
    assert shown == "a:\n  password: <redacted>\n  user: joe\ntokens:\n<redacted>\nb: 1\n"
    shown = Redactor([]).document(["run", "--token", HIDDEN, "--fast", "--name", "joe"])
    assert shown == ["run", "--token", "<redacted>", "--fast", "--name", "joe"]


@pytest.mark.parametrize(
    "text",
    [
        *(
            f"{name}={HIDDEN}"
            for name in (
                *("PGPASSWORD", "DB_PASS", "authtoken", "accesstoken", "sas", "pass", "sshkey", "hmackey2"),
            )
        ),
        *(f"https://x/c?sv=2020&sig={HIDDEN}&se=2022", f"conn_str='{HIDDEN}'"),
        *(f"    client-key-data: {HIDDEN}\n", f".dockerconfigjson: {HIDDEN}"),
    ],
)
def test_names_that_may_be_of_something_else_are_secret_where_that_is_asked_for(text: str) -> None:
    assert HIDDEN not in Redactor([], is_secret=may_be_secret_name).text(text)
    assert HIDDEN in Redactor([]).text(text)


def test_base64_is_looked_into() -> None:
    kubeconfig = base64.b64encode(f"users:\n- name: a\n  user:\n    token: {HIDDEN}\n".encode()).decode()
    plain = base64.b64encode(b"only a text of some length, and nothing else").decode()
    redactor = Redactor([])
    assert redactor.text(f"config {kubeconfig} and {plain}.") == f"config <redacted> and {plain}."
    twice = base64.b64encode(kubeconfig.encode()).decode()
    assert redactor.text(twice) == "<redacted>"


@pytest.mark.parametrize(
    "text", ["[" * 16_000, '{"a":' * 16_000, "[" * 900 + "]" * 900], ids=["lists", "objects", "closed"]
)
def test_however_deep_a_document_is_it_is_looked_through(text: str) -> None:
    deep: object = HIDDEN
    for _ in range(900):
        deep = [{"password": deep}]
    shown = Redactor([]).document({"a": text, "b": deep, "password": HIDDEN})
    assert HIDDEN not in json.dumps(shown)


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


def test_which_names_say_secret() -> None:
    secret = [
        *(
            *("RAY_AUTH_TOKEN", "password", "dbPassword", "client-secret", "API_KEY", "apiKey"),
            *("aws_session", "KEY"),
        ),
        *("Authorization", "Set-Cookie", "GOOGLE_CREDENTIALS", "signing.key", "access_tokens", "passphrase"),
    ]
    others = [
        *("monkey", "keyboard", "author", "PATH", "PWD", "OLDPWD", "KeyError", "secretName", "task_id"),
        "keys_seen",
    ]
    assert [name for name in (*secret, *others) if is_secret_name(name)] == secret


@pytest.mark.parametrize(
    ("rule", "secret", "shown"),
    [
        ("", ["db_password", "HF_TOKEN"], ["iban", "key_count"]),
        ("*iban*, pin", ["my_IBAN_1", "pin", "password"], ["pins"]),
        ("!*token*, hf_token", ["HF_TOKEN", "password"], ["token", "my_token_2"]),
        ("!key", ["api_key"], ["key", "Key"]),
    ],
)
def test_a_rule_adds_names_and_excepts_others(rule: str, secret: list[str], shown: list[str]) -> None:
    names = SecretNames(rule)
    assert [name for name in [*secret, *shown] if names.include(name)] == secret


def test_in_prose_only_what_is_quoted_counts_as_a_secret_names_value() -> None:
    redactor = Redactor([], quoted_only=True)
    text = "got token: expected one, --token abc; Login(password='x', n=1)"
    assert redactor.text(text) == text.replace("'x'", f"'{REDACTED}'")


def test_a_value_is_known_where_a_debugger_has_cut_it() -> None:
    value = "".join(chr(ord("a") + at * at % 26) for at in range(300))
    redactor = Redactor([])
    redactor.learn([value])
    shown = redactor.text(f"('{value[:84]}...{value[-42:]}', {value!r})")
    assert shown == f"('{REDACTED}{value[80:84]}...{value[-42:-40]}{REDACTED}', '{REDACTED}')"
    redactor.learn([])
    assert redactor.text(value) == value


@pytest.mark.parametrize(
    "piece",
    [
        *("a", "A", "a.", "-a", "a+", "token", "eyJaaaaaa.", "eyJaaaaaa-", "a://", "a://b:", "bearer "),
        *(
            *("-----BEGIN ", "ray::", "\\", "a=", "token=", "token=[", "token=(", "token=x('", 'token="'),
            "--token ",
        ),
        *(
            *('token="""', 'value="a" ', "value=", "value=a ", "value: a\n", "key=value=", "SG.a"),
            *('key="a", "value":', "key value: "),
        ),
        *("token:\n ", "token: |\n", "YWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFh "),
    ],
)
def test_a_strangers_text_takes_a_time_that_grows_with_its_length_alone(piece: str) -> None:
    def seconds(length: int) -> float:
        length *= 6 if piece == "key value: " else 1  # a square shows in long texts alone
        head = {"\\": "token=[a", "key value: ": "token: "}.get(piece, "a")
        text = head + piece * (length // len(piece))
        began = time.process_time()
        Redactor(["known-value"]).text(text)
        return time.process_time() - began

    # Four times the length took sixteen times as long with patterns that begin anew at each character.
    assert min(seconds(40_000) for _ in range(3)) < 9 * min(seconds(10_000) for _ in range(3)) + 0.02
