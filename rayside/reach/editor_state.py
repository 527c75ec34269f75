"""State of one editor's DAP session: pending requests, and the messages that end the session."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rayside.dap.additions import LONGEST_TICKET, RELAY_ENDING, RESTARTS, TICKET, WAITING
from rayside.dap.framing import Message


class Exchange:
    """Tracks the messages of both sides.

    Attributes:
        attached: whether the relay has accepted the editor's `attach`.
        over: whether one side has ended the session.
        ticket: lets the editor resume its session; empty if the relay sent none.
    """

    def __init__(self) -> None:
        self.attached = self.over = False
        self.ticket = ""
        self._open: dict[int, str] = {}  # commands of pending requests, by their seq

    def asked(self, message: Message) -> None:
        """Records a message from the editor."""
        seq, command = message.get("seq"), message.get("command")
        if message.get("type") == "request" and isinstance(seq, int):
            self._open[seq] = str(command)
            self.over = self.over or command == "disconnect"

    def answered(self, message: Message) -> None:
        """Records a message from the relay."""
        if message.get("type") == "event":
            self.over = self.over or message.get("event") == "terminated"
            return
        seq = message.get("request_seq")
        command = self._open.pop(seq, "") if isinstance(seq, int) else ""
        if command == "attach" and message.get("success") is True:
            self.attached = True
            ticket = _ray(message).get(TICKET)
            self.ticket = ticket if isinstance(ticket, str) and len(ticket) <= LONGEST_TICKET else ""

    def unanswered(self, why: str) -> list[Message]:
        """Returns error responses to the pending requests, which the relay won't answer any more."""
        asked, self._open = self._open, {}
        return [_refusal(seq, command, why) for seq, command in asked.items()]

    @property
    def restart(self) -> Message:
        """Returns the value of `restart` with which the editor attaches again and resumes its session."""
        return {**RESTARTS, **({TICKET: self.ticket} if self.ticket else {})}

    @property
    def outlasts(self) -> bool:
        """Returns whether the editor keeps its session if the connection breaks now."""
        return self.attached and not self.over


def answer(message: Message, why: str) -> Message | None:
    """Returns the response to an editor's message while there is no relay; None if it needs none."""
    seq, command = message.get("seq"), str(message.get("command"))
    if message.get("type") != "request" or not isinstance(seq, int):
        return None
    if command != "disconnect":
        return _refusal(seq, command, why)
    arguments = message.get("arguments")
    if isinstance(arguments, dict) and arguments.get("suspendDebuggee") is True:
        return _refusal(seq, command, f"it can't be told to keep tasks stopped: {why}")
    return {"type": "response", "request_seq": seq, "command": command, "success": True}


def is_relay_ending(message: Message) -> bool:
    """Returns whether the relay announces its end; another relay may replace it."""
    return message.get("event") == "terminated" and _ray(message).get("reason") == RELAY_ENDING


def waiting(text: str) -> Message:
    """Returns the output event that tells an editor that the connection is lost and retried."""
    return _output(text, {"ray": {"reason": WAITING}})


def end(text: str, reason: str, restart: Message | None = None) -> list[Message]:
    """Returns the messages that end an editor's session; with `restart`, editors that support it reattach."""
    body: Message = {"ray": {"reason": reason}, **({"restart": restart} if restart else {})}
    return [_output(text), {"type": "event", "event": "terminated", "body": body}]


def _ray(message: Message) -> Message:
    """Returns the part of a relay's message that is an addition to DAP."""
    body = message.get("body")
    ray = body.get("ray") if isinstance(body, dict) else None
    return ray if isinstance(ray, dict) else {}


def _output(text: str, more: Mapping[str, Any] | None = None) -> Message:
    return {
        "type": "event",
        "event": "output",
        "body": {"category": "console", "output": f"{text}\n", **(more or {})},
    }


def _refusal(seq: int, command: str, why: str) -> Message:
    return {
        "type": "response",
        "request_seq": seq,
        "command": command,
        "success": False,
        "message": why,
        "body": {"error": {"id": 1, "format": why, "showUser": False}},
    }
