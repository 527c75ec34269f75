"""Masking of secrets in data for editors: by name and form and, as an option, also by value.

It keeps secrets off shared screens, and out of files that editors write. It is no security boundary:
code that an editor evaluates can read everything in a debuggee (docs/internals/security.md).
"""

from __future__ import annotations

import contextlib
import itertools
import json
import re
from collections.abc import Sequence
from typing import Any

from rayside.dap.framing import Message
from rayside.errors import DebuggerGone
from rayside.relay.config import Masking
from rayside.relay.connection import PATIENCE, Connection
from rayside.worker.evaluated import secret_values
from rayside.worker.redaction import REDACTED, Redactor

# Limits for one debuggee, of which the relay may have a thousand: secret values, their characters in total,
# and characters of their JSON, in which each may take six.
_MOST, _LONGEST_IN_ALL, _LONGEST_LIST = 100, 16_384, 100_000
# Characters of a text in which patterns are searched, a second at worst; known values are masked everywhere.
_MOST_BY_FORM = 200_000
# Types whose values are seldom secrets, whatever their name: `max_tokens`, `is_token_valid`.
_PLAIN = frozenset({"int", "float", "bool", "complex", "NoneType"})
_QUOTED = re.compile(r"[\"']")
_BRACES = re.compile(r"\{[^{}]*\}")
_WORD = re.compile(r"[A-Za-z_][\w-]*")
# Requests that may create or show new secrets.
_CHANGING = frozenset({"evaluate", "setVariable", "setExpression"})
# Contexts of frequent expressions that change nothing: the secrets that were learned at the stop suffice.
_ASKED_OFTEN = frozenset({"watch", "hover"})
# Fields of DAP that may show a value, and fields that may contain one only as part of a name.
_VALUES = frozenset({"value", "result", "text", "description", "message", "stackTrace", "output"})
_NAMES = frozenset({"name", "evaluateName", "label", "detail"})
_EMPTY = (None, "", "''", '""', "b''", "[]", "{}", "()")


class Masks:
    """Masks secrets in the messages of one debuggee."""

    def __init__(self, masking: Masking, connection: Connection) -> None:
        self._masking, self._on, self._connection = masking, masking.is_on, connection
        self._redactor = Redactor([masking.token], is_secret=masking.secret.include, quoted_only=True)
        self._pattern = re.compile(masking.values) if masking.values else None
        self._values: list[str] = []  # the newest first

    async def learn(self) -> None:
        """Asks the debuggee for its secrets, to mask them by value; earlier ones stay known."""
        if not (self._on and self._masking.by_value):
            return
        try:
            # The timeout is long, so that a slow machine does not reveal secrets.
            values = await self._connection.ask(PATIENCE, secret_values.values, self._masking.rule)
        except DebuggerGone:
            return
        # The answer is untrusted.
        if not isinstance(values, str) or len(values) > _LONGEST_LIST:
            return
        with contextlib.suppress(ValueError, RecursionError):
            secrets = json.loads(values)
            if isinstance(secrets, list):
                self._know([value for value in secrets if isinstance(value, str)])

    def _know(self, values: Sequence[str]) -> None:
        """Adds these values; drops the oldest ones above the limits."""
        newest_first = [*values, *(value for value in self._values if value not in values)][:_MOST]
        totals = itertools.accumulate(map(len, newest_first))
        kept = [value for value, total in zip(newest_first, totals, strict=True) if total <= _LONGEST_IN_ALL]
        if kept != self._values:
            self._values = kept
            self._redactor.learn([self._masking.token, *kept])

    @property
    def known(self) -> tuple[str, list[str]] | None:
        """Returns the rule of secret names, and the known secret values; None if masking is off."""
        return (self._masking.rule, self._values) if self._on else None

    def text(self, text: str) -> str:
        """Returns a text without secrets."""
        if not self._on:
            return text
        text = self._redactor.known(text)
        text = self._redactor.text(text[:_MOST_BY_FORM]) + text[_MOST_BY_FORM:]
        return self._pattern.sub(REDACTED, text) if self._pattern is not None else text

    def event(self, body: Message) -> Message:
        """Masks an event's body in place; returns it."""
        return self._in_place(body) if self._on else body

    async def response(self, command: str, arguments: Message, body: Message) -> Message:
        """Masks a response's body in place; returns it.

        Args:
            arguments: the request's arguments, with the value's `expression` or `name`.
        """
        if not self._on or command == "source":
            return body
        if command == "variables":
            for variable in body.get("variables") or []:
                # pydevd shows the key of a dict as its `repr`.
                name = variable["name"].strip("\"' ").removeprefix("(return) ")
                self._mask_value(variable, "value", [name])
        elif command in _CHANGING:
            if arguments.get("context") not in _ASKED_OFTEN:
                await self.learn()
            shown = str(arguments.get("expression") or arguments.get("name") or "")
            self._mask_value(body, "result" if command == "evaluate" else "value", words(shown))
        return self._in_place(body)

    def _mask_value(self, document: Message, field: str, names: Sequence[str]) -> None:
        """Masks a value and its children, if one of its names is secret, and it may be or contain a text."""
        secret, value = self._masking.secret, document.get(field)
        if value in _EMPTY or not any(map(secret.include, names)):
            return
        # A container without quotes has no text; children with a secret name are masked when they are shown.
        plain = document.get("type") in _PLAIN or (
            document.get("variablesReference") and not _QUOTED.search(str(value))
        )
        if plain and not any(map(secret.are_added, names)):
            return
        document[field] = REDACTED
        if "variablesReference" in document:
            document["variablesReference"] = 0
        for count in ("namedVariables", "indexedVariables"):
            document.pop(count, None)

    def _in_place(self, document: Message) -> Message:
        """Masks each text that may show a value, in place; returns the document."""
        todo: list[Any] = [document]
        while todo:
            at = todo.pop()
            if isinstance(at, list):
                todo += at
            elif isinstance(at, dict):
                for name, value in at.items():
                    if isinstance(value, str) and name in _VALUES:
                        at[name] = self.text(value)
                    elif isinstance(value, str) and name in _NAMES:
                        at[name] = self._redactor.known(value)
                    elif isinstance(value, (dict, list)) and name != "source":
                        todo.append(value)
        return document


def masked_breakpoint(spec: Message, masking: Masking) -> Message:
    """Returns a SourceBreakpoint without expressions in its log message that contain a secret name."""
    message = spec.get("logMessage")
    if not masking.is_on or not isinstance(message, str):
        return spec

    def unless_secret(found: re.Match[str]) -> str:
        return REDACTED if any(map(masking.secret.include, words(found[0]))) else found[0]

    return {**spec, "logMessage": _BRACES.sub(unless_secret, message)}


def words(expression: str) -> list[str]:
    """Returns the names and the words in string literals of an expression: `d["key"]` has `d` and `key`."""
    return _WORD.findall(expression[:_MOST_BY_FORM])
