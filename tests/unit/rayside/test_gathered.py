"""Tests that an answer for many who ask at once is made once, and never before it was asked for."""

from __future__ import annotations

import asyncio
import time

import pytest

from rayside.dap.framing import Decoder, encode
from rayside.relay.fan_out import LEAST_SHARE, Coalesced


class Rows:
    """Counts how often the rows are made."""

    def __init__(self, takes: float = 0.0) -> None:
        self.made, self.now = 0, 0
        self._takes = takes

    async def make(self) -> int:
        self.made += 1
        time.sleep(self._takes)
        return self.now


async def ask(gathered: Coalesced[int]) -> int:
    return await gathered.since(asyncio.get_running_loop().time())


async def test_an_answer_is_made_once_for_all_who_wait_for_it() -> None:
    rows = Rows()
    gathered = Coalesced(rows.make)
    began = asyncio.get_running_loop().time()
    answers = await asyncio.gather(*(gathered.since(began) for _ in range(1000)))
    assert set(answers) == {0}
    assert rows.made == 1


async def test_an_answer_is_never_older_than_the_question() -> None:
    rows = Rows()
    gathered = Coalesced(rows.make)
    for rows.now in range(50):
        first, second = await asyncio.gather(ask(gathered), ask(gathered))
        assert first == second == rows.now
        await asyncio.sleep(0.001)  # the clock of the next question is another


async def test_making_answers_takes_a_bounded_share_of_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []
    sleep = asyncio.sleep

    async def noted(seconds: float) -> None:
        pauses.append(seconds)
        await sleep(0)

    monkeypatch.setattr("rayside.relay.fan_out.asyncio.sleep", noted)
    rows = Rows(takes=0.05)
    gathered = Coalesced(rows.make)
    for _ in range(3):
        await ask(gathered)
    assert rows.made == 3
    assert len(pauses) == 2
    assert all(pause > 0.02 * LEAST_SHARE for pause in pauses)


def test_a_body_that_is_json_already_is_part_of_its_message() -> None:
    message = {"seq": 1, "type": "response"}
    frame = encode(message, b'{"threads":[]}')
    assert Decoder().feed(frame) == [{**message, "body": {"threads": []}}]
