"""Framing of the Debug Adapter Protocol, without input or output of its own.

A frame is an ASCII header section, one blank line, and a JSON object of `Content-Length` bytes.
Source: https://microsoft.github.io/debug-adapter-protocol/overview#base-protocol
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

Message = dict[str, Any]

HEADER_LIMIT = 8 * 1024
CONTENT_LIMIT = 16 * 1024 * 1024
# Limit in bytes of a message that a decoder skips; a greater length is invalid.
SKIPPED_LIMIT = 2**40
# The first bytes of a skipped message that are kept.
HEAD = 512

_END = b"\r\n\r\n"
# `json.dumps` would create an encoder for each message.
_ENCODER = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False)


class FramingError(ValueError):
    """Invalid DAP; the connection can't be read any further."""


class Decoder:
    """Decoder of a byte stream into messages.

    Args:
        header_limit: limit of a header section in bytes, including its blank line.
        content_limit: limit of a message's body in bytes.
        on_skipped: called for a longer message, with its length and its first HEAD bytes. The message is
            not buffered. Without `on_skipped`, a longer message is an error.

    Attributes:
        content_limit: the current limit; a change applies from the next message on.
    """

    def __init__(
        self,
        *,
        header_limit: int = HEADER_LIMIT,
        content_limit: int = CONTENT_LIMIT,
        on_skipped: Callable[[int, bytes], None] | None = None,
    ) -> None:
        self.content_limit = content_limit
        self._header_limit = header_limit
        self._on_skipped = on_skipped
        self._head = b""  # the first bytes of the message that is being skipped
        self._skipped = 0  # received bytes of that message
        self._buffer = bytearray()
        self._length: int | None = None  # the length of the awaited body; None in a header section

    def feed(self, data: bytes) -> list[Message]:
        """Returns the messages that `data` completes, in order; the rest is buffered.

        Raises:
            FramingError: a malformed or oversized header section, or a body that isn't a JSON object.
        """
        self._buffer += data
        messages: list[Message] = []
        while True:
            if self._length is None:
                end = self._buffer.find(_END, 0, self._header_limit)
                if end < 0:
                    if len(self._buffer) >= self._header_limit:
                        raise FramingError(f"a header section is longer than {self._header_limit} bytes")
                    return messages
                self._length = self._content_length(bytes(self._buffer[:end]))
                del self._buffer[: end + len(_END)]
            if self._length > self.content_limit and self._on_skipped is not None:
                if not self._skip(self._length, self._on_skipped):
                    return messages
                continue
            if len(self._buffer) < self._length:
                return messages
            body = bytes(self._buffer[: self._length])
            del self._buffer[: self._length]
            self._length = None
            messages.append(_message(body))

    def _skip(self, length: int, on_skipped: Callable[[int, bytes], None]) -> bool:
        """Drops received bytes of a message that is too long; returns whether it is complete."""
        part = min(length - self._skipped, len(self._buffer))
        self._head += bytes(self._buffer[: min(part, HEAD - len(self._head))])
        del self._buffer[:part]
        self._skipped += part
        if self._skipped < length:
            return False
        head, self._head, self._skipped, self._length = self._head, b"", 0, None
        on_skipped(length, head)
        return True

    def _content_length(self, section: bytes) -> int:
        limit = self.content_limit if self._on_skipped is None else SKIPPED_LIMIT
        length: int | None = None
        for line in section.split(b"\r\n"):
            name, colon, value = line.partition(b":")
            if not colon:
                raise FramingError(f"not a header: {_excerpt(line)}")
            if name.strip().lower() != b"content-length":
                continue
            digits = value.strip()
            # Unlike str.isdigit(), bytes.isdigit() accepts only ASCII digits.
            if not digits.isdigit():
                raise FramingError(f"Content-Length is not a number: {_excerpt(digits)}")
            if length is not None:
                raise FramingError("Content-Length is given twice")
            # Lengths are compared first: int() of thousands of digits is slow, and Python refuses it.
            significant = digits.lstrip(b"0") or b"0"
            if len(significant) > len(str(limit)) or int(significant) > limit:
                raise FramingError(f"a message is longer than {limit} bytes")
            length = int(significant)
        if length is None:
            raise FramingError("a header section has no Content-Length")
        return length


def encode(message: Message, body: bytes | None = None) -> bytes:
    """Returns the message as one frame; `body` is the message's body, if it is already JSON."""
    content = as_json(message)
    if body is not None:
        content = b'%b,"body":%b}' % (content[:-1], body)
    return b"Content-Length: %d\r\n\r\n%b" % (len(content), content)


def as_json(value: Message) -> bytes:
    return _ENCODER.encode(value).encode("utf-8", "surrogatepass")


def _message(body: bytes) -> Message:
    try:
        value = json.loads(body.decode("utf-8", "surrogatepass"))
    except (ValueError, RecursionError) as error:
        raise FramingError(f"a message is not JSON ({error}): {_excerpt(body)}") from error
    if not isinstance(value, dict):
        raise FramingError(f"a message is not a JSON object: {_excerpt(body)}")
    return value


def _excerpt(data: bytes) -> str:
    return repr(data[:60].decode("latin-1")) + ("..." if len(data) > 60 else "")
