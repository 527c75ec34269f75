"""Takes secrets out of what is handed on: known ones by value, others by their names and forms."""

from __future__ import annotations

import base64
import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any
from urllib.parse import quote

# A value that is shorter may stand anywhere by chance.
_SHORTEST = 6
_BY_NAME = "value with a secret's name"
# A name says that its value is secret by one of these, or by `key` as its last word.
_FRAGMENTS = (
    r"tokens?|passw(?:or)?d|passphrase|pwd|secrets?|api_?keys?|access_?keys?|private_?keys?|credentials?"
    r"|authorization|cookies?|session_?id|signature|connection_?string|dsn"
)
_SECRET_NAME = re.compile(
    rf"(?:^|[^a-z])(?:{_FRAGMENTS})(?:$|[^a-z])|^aws|(?:^|[^a-z])(?:key|auth|jwt|pat)s?$", re.IGNORECASE
)
# These name a Secret of Kubernetes, an error, or the current folder, and hold none.
_NO_SECRET = re.compile(
    r"(?:Error|Exception|Warning)$|^secretKeyRef$|^secretName$|^imagePullSecrets$|^(?:OLD)?PWD$"
)
_WORDS = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")

_END = r"-----END [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----"
_BLOCK = re.compile(rf"-----BEGIN [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----.*?(?:{_END}|\Z)", re.DOTALL)
# A log that is cut may begin in a key.
_END_OF_BLOCK = re.compile(rf"\A(?:[A-Za-z0-9+/=\s]|\\n)*{_END}")
_URL = re.compile(r"(?P<before>\b[a-z][a-z0-9+.-]*://)[^\s/\"'<>?#]+@", re.IGNORECASE)
_HEADER = re.compile(
    r"(?P<before>\b(?:proxy-)?authorization\\?[\"']?\s*[:=]\s*)(?P<quote>\\?[\"'])?"
    r"(?:(?:bearer|basic|digest|token|negotiate)\s+)?[^\s\"',;\\]+",
    re.IGNORECASE,
)
_COOKIE = re.compile(r"(?P<before>\b(?:set-)?cookie\\?[\"']?\s*[:=]\s*)[^\n]+", re.IGNORECASE)
_BEARER = re.compile(r"(?P<before>\b(?:bearer|basic)\s+)[A-Za-z0-9._~+/=-]{8,}", re.IGNORECASE)
# Tokens that are known by their beginning: JWT, AWS, GitHub, GitLab, Hugging Face, OpenAI's form, Slack.
_SHAPES = re.compile(
    r"\beyJ[\w-]{6,}\.[\w-]{6,}(?:\.[\w-]*)?|\b(?:AKIA|ASIA)[A-Z0-9]{16}\b|\bgh[pousr]_\w{20,}"
    r"|\bgithub_pat_\w{20,}|\bglpat-[\w-]{16,}|\bhf_\w{20,}|\bsk-[\w-]{20,}|\bxox[abprs]-[\w-]{10,}"
)
# NAME=value, "name": "value", name: value, in plain text or within a text of JSON.
_ASSIGNED = re.compile(
    r"(?P<name>[A-Za-z_][\w.-]*)(?P<between>\\*[\"']?\s*(?:=|:)\s*)"
    r"(?:(?P<quote>\\*[\"'])(?P<quoted>(?:\\.|[^\\\n])*?)(?:(?P=quote)|$)|(?P<bare>[^\s\"']+))",
    re.MULTILINE,
)
_OPTION = re.compile(r"(?P<before>--?(?P<name>[A-Za-z][\w-]*)\s+)(?P<value>[^\s\"'-][^\s\"']*)")


def is_secret_name(name: str) -> bool:
    """Returns whether a variable, a field or an option of that name holds a secret, to judge by its name."""
    name = _WORDS.sub("_", name)
    return bool(_SECRET_NAME.search(name)) and not _NO_SECRET.search(name.replace("_", ""))


class Redactor:
    """Takes secrets out of texts and documents, and counts them by kind in `counts`.

    `known` are values that are secret wherever they stand, as Ray's token.
    """

    def __init__(self, known: Iterable[str]) -> None:
        self.counts: Counter[str] = Counter()
        forms = {form for value in known if len(value) >= _SHORTEST for form in _forms(value)}
        # The longest first, for one may hold another.
        ordered = sorted(forms, key=len, reverse=True)
        self._known = re.compile("|".join(map(re.escape, ordered))) if ordered else None

    def document(self, value: Any) -> Any:
        """Returns a JSON value without its secrets."""
        if isinstance(value, str):
            return self._string(value)
        if isinstance(value, list):
            return [self.document(item) for item in value]
        if not isinstance(value, Mapping):
            return value
        # Kubernetes lists variables as {"name": ..., "value": ...}.
        named = isinstance(value.get("name"), str) and is_secret_name(value["name"])
        return {
            self.text(str(key)): self._hidden(item)
            if is_secret_name(str(key)) or (named and key == "value")
            else self.document(item)
            for key, item in value.items()
        }

    def text(self, text: str) -> str:
        """Returns a text without its secrets."""
        if self._known:
            text = self._known.sub(lambda _: self._told("known value"), text)
        for kind, pattern in (
            ("private key", _BLOCK),
            ("private key", _END_OF_BLOCK),
            ("password in a URL", _URL),
            ("authorization", _HEADER),
            ("cookie", _COOKIE),
            ("authorization", _BEARER),
            ("token by its form", _SHAPES),
        ):
            text = pattern.sub(partial(self._replaced, kind), text)
        text = _ASSIGNED.sub(self._assigned, text)
        return _OPTION.sub(self._option, text)

    def _string(self, value: str) -> str:
        # Ray keeps a runtime_env, and its own messages, as JSON within a text.
        if value.lstrip()[:1] in ("{", "["):
            try:
                return json.dumps(self.document(json.loads(value)))
            except ValueError:
                pass
        return self.text(value)

    def _hidden(self, value: Any) -> Any:
        """Returns what stands in place of the value of a secret's name: of a folder of them, of each."""
        if isinstance(value, Mapping):
            return {self.text(str(key)): self._hidden(item) for key, item in value.items()}
        if isinstance(value, list):
            return [self._hidden(item) for item in value]
        if value is None or isinstance(value, bool) or value == "":
            return value
        return self._told(_BY_NAME)

    def _replaced(self, kind: str, found: re.Match[str]) -> str:
        groups = found.groupdict()
        after = "@" if kind == "password in a URL" else ""
        return f"{groups.get('before') or ''}{groups.get('quote') or ''}{self._told(kind)}{after}"

    def _assigned(self, found: re.Match[str]) -> str:
        value = found["quoted"] if found["quote"] else found["bare"]
        if not value or "<redacted" in value or not is_secret_name(found["name"]):
            return found[0]
        if value.lower().rstrip(",;)}]") in ("none", "null", "true", "false"):
            return found[0]
        mark = found["quote"] or ""
        return f"{found['name']}{found['between']}{mark}{self._told(_BY_NAME)}{mark}"

    def _option(self, found: re.Match[str]) -> str:
        if not is_secret_name(found["name"]) or "<redacted" in found["value"]:
            return found[0]
        return f"{found['before']}{self._told(_BY_NAME)}"

    def _told(self, kind: str) -> str:
        self.counts[kind] += 1
        return "<redacted>"


def _forms(value: str) -> Iterable[str]:
    """Yields the value as it may stand in a text: as it is, in a URL, in JSON, in base64."""
    yield value
    yield quote(value, safe="")
    yield json.dumps(value)[1:-1]
    yield base64.b64encode(value.encode()).decode().rstrip("=")
