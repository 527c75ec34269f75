"""Redaction of secrets: known ones by value, others by their names and forms.

It also runs in debuggees, so it imports little. The running time grows linearly with a text's length, also
for hostile input: no pattern starts again within text that it has scanned.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any
from urllib.parse import quote

from .secret_names import is_secret_name

REDACTED = "<redacted>"
# Limit in characters: shorter values may appear by chance.
SHORTEST = 6
# Characters at the beginning and at the end that a debugger shows of a long text within another value.
_LONG, _BEGINNING, _END_OF_LONG = 100, 80, 40
_BY_NAME = "value with a secret's name"

_END = r"-----END [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----"
_BLOCK = re.compile(rf"-----BEGIN [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----.*?(?:{_END}|\Z)", re.DOTALL)
# A truncated log may begin within a key.
_END_OF_BLOCK = re.compile(rf"\A(?:[A-Za-z0-9+/=\s]|\\n)*{_END}")
# A password may contain characters that end a host name; a port number is no password.
_URL = re.compile(
    r"(?i)(?P<before>\b[a-z][a-z0-9+.-]{0,40}://)"
    r"(?:[^\s/\"'<>?#]+@|[^\s/\"'<>?#:@]{0,100}:(?!\d{1,5}[/?#])[^\s\"'<>]{1,300}@)"
)
_HEADER = re.compile(
    r"(?i)(?P<before>\b(?:proxy-)?authorization\\?[\"']?\s*[:=]\s*)(?P<quote>\\?[\"'])?"
    r"(?:(?:bearer|basic|digest|token|negotiate)\s+)?[^\s\"',;\\]+"
)
# Some of the many schemes have their secret after other fields, so the whole line is redacted.
_HEADER_LINE = re.compile(
    r"(?im)(?P<before>\b(?:proxy-)?authorization\\?[\"']?\s*[:=]\s*)"
    r"(?:(?P<quote>\\?[\"'])(?:\\.|[^\\\n])*?(?=(?P=quote)|\\?$)|[^\s\"'][^\n]*)"
)
_COOKIE = re.compile(r"(?P<before>\b(?:set-)?cookie\\?[\"']?\s*[:=]\s*)[^\n]+", re.IGNORECASE)
_BEARER = re.compile(r"(?P<before>\b(?:bearer|basic)\s+)[A-Za-z0-9._~+/=-]{8,}", re.IGNORECASE)
# Tokens with known prefixes: JWT, AWS, GitHub, GitLab, Hugging Face, OpenAI's form, Slack,
# PyPI, npm, Google, Stripe, Databricks, Docker, Grafana, SendGrid, Vault, NVIDIA, Groq.
_SHAPES = re.compile(
    r"(?<![\w-])eyJ[\w-]{6,}\.[\w-]{6,}(?:\.[\w-]*)?|\b(?:AKIA|ASIA)[A-Z0-9]{16}\b|\bgh[pousr]_\w{20,}"
    r"|\bgithub_pat_\w{20,}|\bglpat-[\w-]{16,}|\bhf_\w{20,}|\bsk-[\w-]{20,}|\bxox[abprs]-[\w-]{10,}"
    r"|\bpypi-AgE[\w-]{16,}|\bnpm_\w{30,}|\bAIza[\w-]{30,}|\b[sr]k_(?:live|test)_\w{10,}|\bdapi[0-9a-f]{32}"
    r"|\bdckr_[a-z]{3}_[\w-]{20,}|\bgl(?:sa|c)_\w{20,}|\bxapp-[\w-]{16,}|\bSG\.[\w-]{16,}\.[\w-]{16,}"
    r"|\bya29\.[\w-]{16,}|\bGOCSPX-[\w-]{20,}|\bhv[sb]\.[\w-]{20,}|\bnvapi-[\w-]{20,}|\bgsk_\w{20,}"
)
_BASE64 = re.compile(r"(?<![\w+/])[A-Za-z0-9+/]{24,}={0,2}")
# A quotation mark, with the backslashes of JSON within JSON.
_Q = r"\\{0,32}[\"']"
# NAME=value, "name": "value", name: value, d["name"] = value, in plain text or within a text of JSON; the
# variables of Kubernetes, `name: NAME` with `value: ...` after it; --name value, also in a list. The
# lookahead makes the name atomic: the engine does not backtrack into it.
_NAMED = re.compile(
    r"(?P<dashes>(?<![\w-])--?)?(?<!\w)(?=(?P<name>[A-Za-z_][\w.-]{0,100}))(?P=name)(?P<between>"
    rf"(?:{_Q})?\]?(?:\s*(?:=>|={{1,3}}|:=?)|(?P<pair>,?\s*(?:{_Q})?[Vv]alue(?:{_Q})?\s*[:=]))\s*"
    rf"|(?(dashes)(?:\s+|{_Q},\s*)(?![\s-])|(?!)))"
)
# The same variables with `value: ...` before `name: NAME`; a longer value may belong to another name.
_VALUE_FIRST = re.compile(
    rf"(?i)value(?:{_Q})?\s*[:=]\s*"
    rf"(?:(?P<quote>{_Q})(?P<quoted>(?:(?!(?P=quote))(?:\\.|[^\\\n])){{1,500}})(?P=quote)"
    rf"|(?P<bare>[^\s\"'{{}}][^\n{{}}]{{0,500}}?))(?:,\s{{0,50}}|\s{{1,50}})"
    rf"(?:{_Q})?(?:name|key)(?:{_Q})?\s*[:=]\s*(?:{_Q})?(?P<name>[\w.-]{{1,100}})"
)
# Only triple-quoted text continues in the next line.
_QUOTED = re.compile(
    rf"(?im)[bfru]{{0,2}}(?P<quote>(?P<mark>{_Q})(?P<triple>(?P=mark){{2}})?)"
    r"(?P<value>(?:\\[\s\S]|(?(triple)[^\\]|[^\\\n]))*?)(?:(?P=quote)|(?(triple)\Z|\\?$))"
)
_BARE = re.compile(r"[^\s\"']+")
_REST_OF_LINE = re.compile(r"[^\n]+")
_OPENING = re.compile(r"(?P<call>[\w.]{0,100})[\[({]")
_BRACKET = re.compile(rf"(?m)(?P<quote>{_Q})(?:\\.|[^\\\n])*?(?:(?P=quote)|\\?$)|[\[({{]|[\])}}]")
# The indentation of a line of YAML, and the indicator of a block scalar.
_INDENT = re.compile(r"[ \t]*(?:- +)*")
_MARK = re.compile(r"[|>][-+\d]{0,2}[ \t]*\n")
# Limits in characters: a call's arguments, and the distance from a name back to its line's start in YAML.
_LONGEST_CALL, _LONGEST_INDENT = 400, 300
# Limit of nested levels; real documents have fewer.
_DEEPEST = 60


class Redactor:
    """Redacts secrets in texts and documents, and counts them by kind in `counts`.

    Args:
        known: values that are always secret, such as Ray's token.
        is_secret: returns whether a name is the name of a secret.
        quoted_only: whether to redact a value after a secret's name only in quotes, as in a `repr`: in prose,
            any word may follow a name and a colon.
    """

    def __init__(
        self,
        known: Iterable[str],
        *,
        is_secret: Callable[[str], bool] = is_secret_name,
        quoted_only: bool = False,
    ) -> None:
        self.counts: Counter[str] = Counter()
        self._is_secret, self._quoted_only = is_secret, quoted_only
        self._known: list[str] = []
        self.learn(known)

    def learn(self, values: Iterable[str]) -> None:
        """Replaces the known values."""
        forms = {form for value in values if len(value) >= SHORTEST for form in _forms(value)}
        # The longest first: one value may contain another.
        self._known = sorted(forms, key=len, reverse=True)

    @property
    def longest(self) -> int:
        """Returns the length in characters of the longest form of a known value."""
        return len(self._known[0]) if self._known else 0

    def known(self, text: str) -> str:
        """Returns a text without the known values."""
        # A text contains few of them: a search for each one is faster than one pattern for all.
        if present := [form for form in self._known if form in text]:
            pattern = "|".join(map(re.escape, present))
            return re.sub(pattern, lambda _: self._told("known value"), text)
        return text

    def document(self, value: Any, depth: int = 0) -> Any:
        """Returns a JSON value without its secrets."""
        if isinstance(value, str):
            return self._string(value, depth)
        if not isinstance(value, Mapping | list):
            return value
        if depth > _DEEPEST:
            return self._told("too deep to be looked at")
        if isinstance(value, list):
            return [
                self._hidden(item) if self._is_option(before) else self.document(item, depth + 1)
                for before, item in zip([None, *value], value, strict=False)
            ]
        # Kubernetes has variables as {"name": ..., "value": ...}.
        names = [value.get(key) for key in ("name", "Name", "key", "Key")]
        named = any(isinstance(name, str) and self._is_secret(name) for name in names)
        return {
            self.text(str(key)): self._hidden(item)
            if self._is_secret(str(key)) or (named and key in ("value", "Value"))
            else self.document(item, depth + 1)
            for key, item in value.items()
        }

    def text(self, text: str) -> str:
        """Returns a text without its secrets."""
        if len(text) < SHORTEST:
            return text
        text = self.known(text)
        if not self._quoted_only:
            text = _BASE64.sub(self._encoded, text)
        for kind, pattern in (
            ("private key", _BLOCK),
            ("private key", _END_OF_BLOCK),
            ("password in a URL", _URL),
            ("authorization", _HEADER if self._quoted_only else _HEADER_LINE),
            ("cookie", _COOKIE),
            ("authorization", _BEARER),
            ("token by its form", _SHAPES),
        ):
            text = pattern.sub(partial(self._replaced, kind), text)
        return self._without_named(text)

    def _is_option(self, item: object) -> bool:
        """Returns whether an argument is an option whose value, the next argument, is a secret."""
        is_option = isinstance(item, str) and re.match(r"--?[^=\s]+\Z", item)
        return bool(is_option) and self._is_secret(str(item).strip("-"))

    def _string(self, value: str, depth: int) -> str:
        # Ray stores a runtime_env, and its own messages, as JSON within a text.
        if value.lstrip()[:1] in ("{", "["):
            try:
                return json.dumps(self.document(json.loads(value), depth + 1))
            except (ValueError, RecursionError):
                pass
        return self.text(value)

    def _hidden(self, value: Any, depth: int = 0) -> Any:
        """Returns the replacement of a secret's value; in mappings and lists, of each value."""
        if depth <= _DEEPEST and isinstance(value, Mapping):
            return {self.text(str(key)): self._hidden(item, depth + 1) for key, item in value.items()}
        if depth <= _DEEPEST and isinstance(value, list):
            return [self._hidden(item, depth + 1) for item in value]
        if value is None or isinstance(value, bool) or value == "":
            return value
        return self._told(_BY_NAME)

    def _replaced(self, kind: str, found: re.Match[str]) -> str:
        groups = found.groupdict()
        after = "@" if kind == "password in a URL" else ""
        return f"{groups.get('before') or ''}{groups.get('quote') or ''}{self._told(kind)}{after}"

    def _encoded(self, found: re.Match[str]) -> str:
        """Returns the replacement of base64 with a secret in it, as in a kubeconfig; else the base64."""
        try:
            text = base64.b64decode(found[0] + "==").decode()
        except (binascii.Error, ValueError):
            return found[0]
        within = Redactor([], is_secret=self._is_secret)
        within._known = self._known
        return found[0] if within.text(text) == text else self._told("base64 with a secret in it")

    def _without_named(self, text: str) -> str:
        """Returns a text without the values of secret names; the search resumes after other names."""
        pieces, kept, at, seen = [], 0, 0, 0
        while found := _NAMED.search(text, at):
            at = found.end()
            is_secret = self._is_secret(found["name"])
            if span := self._value(text, found) if is_secret else self._value_first(text, found):
                begin, at = span
                pieces += [text[kept:begin], self._told(_BY_NAME)]
                kept = at
                # In `{"key": NAME, "value": ...}` the value follows later.
                pair = _NAMED.match(text, begin) if begin >= seen else None
                if pair and pair["pair"] and pair.end("name") <= kept:
                    at, seen = begin, kept
        return "".join([*pieces, text[kept:]])

    def _value_first(self, text: str, name: re.Match[str]) -> tuple[int, int] | None:
        """Returns start and end of a value that precedes its name; None if it is no secret."""
        is_value = name["name"].lower() == "value" and not self._quoted_only
        found = _VALUE_FIRST.match(text, name.start("name")) if is_value else None
        if found is None or not self._is_secret(found["name"]):
            return None
        return found.span("quoted" if found["quote"] else "bare")

    def _value(self, text: str, name: re.Match[str]) -> tuple[int, int] | None:
        """Returns start and end of the value after a name; None if there is none to redact."""
        at = name.end()
        if quoted := _QUOTED.match(text, at):
            is_value = "=" in name[0] or ":" in name[0] or not self._quoted_only
            return quoted.span("value") if is_value and _is_hidden(quoted["value"]) else None
        if self._quoted_only:
            return None
        if end := _end_of_brackets(text, at) or _end_of_block(text, name):
            return (at, end) if re.search(r"[^\s\[\](){},]", text[at:end]) else None
        before = text[max(0, name.start() - _LONGEST_INDENT) : name.start()].rpartition("\n")[2]
        is_yaml = name["between"] == ": " and _INDENT.fullmatch(before)
        is_yaml = is_yaml or name["between"].endswith("value: ")
        bare = (_REST_OF_LINE if is_yaml else _BARE).match(text, at)
        if bare is None or not _is_hidden(bare[0]):
            return None
        # After a name without a value, the next line has another name.
        is_next = "\n" in name["between"] and ("=" in name["between"] or bare[0].endswith(":"))
        return None if is_next and not name["pair"] else bare.span()

    def _told(self, kind: str) -> str:
        self.counts[kind] += 1
        return REDACTED


def _is_hidden(value: str) -> bool:
    """Returns whether to redact a value: not if empty, a constant such as `null`, or redacted already."""
    bare = value.rstrip(",;&)}]")
    return bool(value) and bare != REDACTED and bare.lower() not in ("none", "null", "true", "false")


def _end_of_brackets(text: str, at: int) -> int | None:
    """Returns the end of a list, an object or a call that starts at `at`; None if none starts there."""
    opening = _OPENING.match(text, at)
    if opening is None:
        return None
    # Without a closing bracket it extends to the end of the text; but a bare value may contain a bracket.
    is_call = bool(opening["call"]) or opening[0] == "("
    depth, until = 0, min(len(text), at + _LONGEST_CALL) if is_call else len(text)
    for bracket in _BRACKET.finditer(text, opening.end() - 1, until):
        if not bracket["quote"]:
            depth += 1 if bracket[0] in "[({" else -1
            if depth == 0:
                more = _BARE.match(text, bracket.end())
                return more.end() if more else bracket.end()
    return None if is_call else len(text)


def _end_of_block(text: str, name: re.Match[str]) -> int | None:
    """Returns the end of the lines below a name that are its value in YAML; None if there are none."""
    at, key = name.end(), name.start("between") + len(name["between"].rstrip())
    if mark := _MARK.match(text, at):
        at = mark.end()
    elif "\n" in text[key:at]:
        at = text.rindex("\n", key, at) + 1
    else:
        return None
    line = text.rfind("\n", max(0, key - _LONGEST_INDENT), key) + 1
    indent = len(_INDENT.match(text, line)[0])  # type: ignore[index]
    end = None
    while at < len(text):
        after = text.find("\n", at)
        after = len(text) if after < 0 else after
        begin = text[at:after].lstrip(" \t")
        deeper = after - at - len(begin)
        if begin and deeper <= indent and not (deeper == indent and begin.startswith("- ")):
            break
        end = after if begin else end
        at = after + 1
    return end


def _forms(value: str) -> Iterable[str]:
    """Yields the forms of a value in texts: unchanged, cut, in a URL, in JSON, in a repr, in base64."""
    yield value
    yield quote(value, safe="", errors="replace")
    yield json.dumps(value)[1:-1]
    yield repr(value)[1:-1]
    yield base64.b64encode(value.encode(errors="replace")).decode().rstrip("=")
    if len(value) > _LONG:
        yield value[:_BEGINNING]
        yield value[-_END_OF_LONG:]
