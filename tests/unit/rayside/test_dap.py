"""Tests DAP's framing: what is cut out of a byte stream, and what is refused."""

from __future__ import annotations

import tracemalloc
from typing import Any

import pytest

from rayside.dap.framing import Decoder, FramingError, encode

MESSAGES: list[dict[str, Any]] = [
    {"seq": 1, "type": "event", "event": "initialized"},
    {"seq": 2, "type": "response", "body": {"result": "'päng \U0001f40d'"}},
    {},
]


def test_a_message_is_framed_by_its_length_in_bytes() -> None:
    assert encode({"a": "ä"}) == b'Content-Length: 10\r\n\r\n{"a":"\xc3\xa4"}'


def test_what_is_encoded_is_decoded_split_at_every_byte() -> None:
    stream = b"".join(encode(message) for message in MESSAGES)
    for cut in range(len(stream) + 1):
        decoder = Decoder()
        assert decoder.feed(stream[:cut]) + decoder.feed(stream[cut:]) == MESSAGES, cut


@pytest.mark.parametrize(
    ("frame", "message"),
    [
        # Unknown headers, and any case; leading zeros; a lone surrogate.
        (b"Content-Type: application/json; charset=utf-8\r\ncontent-length:  2 \r\nX: y:z\r\n\r\n{}", {}),
        (b"Content-Length: 00000000002\r\n\r\n{}", {}),
        (encode({"a": "\udc80"}), {"a": "\udc80"}),
    ],
)
def test_an_unusual_frame_is_read(frame: bytes, message: dict[str, Any]) -> None:
    assert Decoder().feed(frame) == [message]


@pytest.mark.parametrize(
    ("frame", "message_part"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", "not a header"),
        (b"\r\n\r\n", "not a header"),
        (b"X: 1\r\n\r\n{}", "no Content-Length"),
        (b"Content-Length: -2\r\n\r\n{}", "not a number"),
        (b"Content-Length: 0x2\r\n\r\n{}", "not a number"),
        (b"Content-Length: \r\n\r\n{}", "not a number"),
        ("Content-Length: \u0662\r\n\r\n{}".encode(), "not a number"),
        (b"Content-Length: 2\r\nContent-Length: 2\r\n\r\n{}", "twice"),
        (b"Content-Length: 2\r\n\r\n{]", "not JSON"),
        (b"Content-Length: 1\r\n\r\n\xff", "not JSON"),
        (b"Content-Length: 0\r\n\r\n", "not JSON"),
        (b"Content-Length: 2\r\n\r\n[]", "not a JSON object"),
        (b"Content-Length: 4\r\n\r\nnull", "not a JSON object"),
        (b"Content-Length: 16777217\r\n\r\n", "longer than 16777216 bytes"),
        (b"Content-Length: " + b"9" * 5000 + b"\r\n\r\n", "longer than 16777216 bytes"),
    ],
)
def test_what_is_no_frame_is_refused_with_the_reason(frame: bytes, message_part: str) -> None:
    with pytest.raises(FramingError, match=message_part):
        Decoder().feed(frame)


def test_a_header_section_may_not_go_on_for_ever() -> None:
    with pytest.raises(FramingError, match="longer than 8192 bytes"):
        Decoder().feed(b"x" * 8192)
    decoder = Decoder()
    assert decoder.feed(b"x" * 8000) == []
    with pytest.raises(FramingError, match="longer than 8192 bytes"):
        decoder.feed(b"x" * 192 + b"\r\n\r\n")


def test_the_limits_can_be_set_and_hold_exactly() -> None:
    frame = b'Content-Length: 8\r\n\r\n{"a": 1}'
    assert Decoder(content_limit=8, header_limit=21).feed(frame) == [{"a": 1}]
    with pytest.raises(FramingError):
        Decoder(content_limit=7).feed(frame)
    with pytest.raises(FramingError):
        Decoder(header_limit=20).feed(frame)


def test_what_is_too_long_is_left_out_and_the_next_message_comes() -> None:
    long, short = encode({"request_seq": 7, "body": "x" * 10_000}), encode({"seq": 2})
    stream = short + long + long + short
    for size in (1, 7, 511, 512, 513, 5_000, len(stream)):
        skipped: list[tuple[int, bytes]] = []
        decoder = Decoder(content_limit=1_000, on_skipped=lambda *what, to=skipped: to.append(what))
        pieces = [stream[at : at + size] for at in range(0, len(stream), size)]
        assert [message for piece in pieces for message in decoder.feed(piece)] == [{"seq": 2}, {"seq": 2}]
        assert [length for length, _ in skipped] == [10_027, 10_027]
        assert all(head.startswith(b'{"request_seq":7,') and len(head) == 512 for _, head in skipped)


def test_what_is_left_out_is_not_kept() -> None:
    decoder = Decoder(content_limit=1_000, on_skipped=lambda length, head: None)
    decoder.feed(b"Content-Length: 1000000000000\r\n\r\n")
    tracemalloc.start()
    for _ in range(1_000):
        decoder.feed(b"x" * 65_536)
    assert tracemalloc.get_traced_memory()[1] < 1_000_000
    tracemalloc.stop()
