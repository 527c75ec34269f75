"""Tests what an editor is told whose way to the relay breaks, and whose session outlasts that."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from bootstrap.carrier.exchange import Exchange, answer, end, is_relay_ending, waiting
from bootstrap.dap.additions import MOST_MISSED, RELAY_ENDING, TAKEN_OVER, WAY_BACK, WAY_LOST
from bootstrap.dap.framing import Message
from bootstrap.relay.presence import Presence


def request(seq: int, command: str, **arguments: Any) -> Message:
    return {"seq": seq, "type": "request", "command": command, "arguments": arguments}


def response(seq: int, command: str, *, success: bool = True) -> Message:
    return {"seq": 9, "type": "response", "request_seq": seq, "command": command, "success": success}


def terminated(reason: str) -> Message:
    return {"type": "event", "event": "terminated", "body": {"ray": {"reason": reason}}}


def attached() -> Exchange:
    exchange = Exchange()
    exchange.asked(request(1, "attach"))
    exchange.answered(response(1, "attach"))
    return exchange


def test_a_session_outlasts_its_way_from_a_good_attach_until_either_side_ends_it() -> None:
    exchange = Exchange()
    exchange.asked(request(1, "attach"))
    assert not exchange.outlasts
    exchange.answered(response(1, "attach", success=False))
    assert not exchange.outlasts
    assert attached().outlasts
    for over in (terminated(TAKEN_OVER), terminated("unheard")):
        exchange = attached()
        exchange.answered(over)
        assert not exchange.outlasts
    exchange = attached()
    exchange.asked(request(2, "disconnect"))
    assert not exchange.outlasts


def test_what_the_relay_will_not_answer_any_more_is_refused_once() -> None:
    exchange = attached()
    for seq, command in ((2, "threads"), (3, "evaluate")):
        exchange.asked(request(seq, command))
    exchange.answered(response(2, "threads"))
    (refused,) = exchange.unanswered("lost")
    assert (refused["request_seq"], refused["command"], refused["success"]) == (3, "evaluate", False)
    assert refused["message"] == refused["body"]["error"]["format"] == "lost"
    assert exchange.unanswered("lost") == []


@pytest.mark.parametrize("seq", [None, "1", 1.5, {}])
def test_what_no_request_is_needs_no_answer(seq: object) -> None:
    message = {"seq": seq, "type": "request", "command": "threads"}
    exchange = attached()
    exchange.asked(message)
    exchange.answered({"type": "response", "request_seq": seq})
    assert exchange.unanswered("lost") == []
    assert answer(message, "lost") is None
    assert answer({"seq": 1, "type": "response"}, "lost") is None


def test_without_a_way_an_editor_may_leave_but_nothing_can_be_kept_for_it() -> None:
    for ask, good in (
        (request(4, "threads"), False),
        (request(4, "disconnect"), True),
        (request(4, "disconnect", suspendDebuggee=True), False),
    ):
        told = answer(ask, "lost")
        assert told is not None
        assert (told["request_seq"], told["success"]) == (4, good)


def test_an_editor_brings_the_ticket_back_that_the_relay_gave_it_and_nothing_else_of_its_answer() -> None:
    bodies: list[object] = [None, [], {"ray": "t"}, {"ray": {"ticket": ["t"]}}, {"ray": {"ticket": "t" * 65}}]
    good: object = {"ray": {"ticket": "t", "more": 1}}
    for body in [good, *bodies]:
        restart = {"ray": "again", "ticket": "t"} if body is good else {"ray": "again"}
        exchange = Exchange()
        exchange.asked(request(1, "attach"))
        exchange.answered({**response(1, "attach"), "body": body})
        assert exchange.restart == restart


def test_only_a_relay_that_ends_may_be_followed_by_another() -> None:
    assert is_relay_ending(terminated(RELAY_ENDING))
    assert not is_relay_ending(terminated(TAKEN_OVER))
    bodies: list[object] = [None, {}, [], {"ray": []}, {"ray": None}]
    for body in bodies:
        assert not is_relay_ending({"type": "event", "event": "terminated", "body": body})


def test_reasons_are_words_and_data_and_only_a_way_that_is_back_asks_to_attach_again() -> None:
    lost = waiting("It is lost.")
    assert lost["body"] == {"category": "console", "output": "It is lost.\n", "ray": {"reason": "waiting"}}
    output, last = end("It is back.", WAY_BACK, attached().restart)
    assert (output["event"], output["body"]["output"]) == ("output", "It is back.\n")
    assert last["body"] == {"ray": {"reason": "way-back"}, "restart": {"ray": "again"}}
    assert end("It is lost.", WAY_LOST)[1]["body"] == {"ray": {"reason": "way-lost"}}


def test_an_editor_counts_as_away_when_its_forward_has_missed_its_beats() -> None:
    async def story() -> None:
        presence = Presence(every=0.01, away=0.1)
        away = asyncio.ensure_future(presence.until_away())
        await asyncio.sleep(0.2)
        # There is no forward that could say something.
        assert not away.done()
        assert (presence.by_forward, presence.is_silent) == (False, False)
        presence.beat()
        while not presence.is_silent:
            await asyncio.sleep(0)
        assert not away.done()
        presence.beat()
        assert not presence.is_silent
        await asyncio.wait_for(away, 60)
        assert presence.is_silent

    asyncio.run(story())


def test_a_pause_of_the_whole_machine_is_one_beat_that_was_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []

    async def slept(seconds: float) -> None:
        pauses.append(seconds)

    monkeypatch.setattr(asyncio, "sleep", slept)
    presence = Presence(every=5, away=60)
    presence.beat()
    asyncio.run(presence.until_away())
    assert pauses == [5] * 12
    assert MOST_MISSED < 12
