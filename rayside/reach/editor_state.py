"""State of one editor's connection to the relay: what is open, and what ends it towards the editor."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rayside.dap.additions import LONGEST_TICKET, RELAY_ENDING, RESTARTS, TICKET, WAITING
from rayside.dap.framing import Message


class Exchange:
    """Follows what both sides say.

    Attributes:
        attached: whether the relay has let the editor attach.
        over: whether one side has said that it is the end.
        ticket: by which the editor takes its session back; empty where the relay gave none.
    """

    def __init__(self) -> None:
        self.attached = self.over = False
        self.ticket = ""
        self._open: dict[int, str] = {}  # the commands without an answer, by the request's seq

    def asked(self, message: Message) -> None:
        """Notes a message of the editor."""
        seq, command = message.get("seq"), message.get("command")
        if message.get("type") == "request" and isinstance(seq, int):
            self._open[seq] = str(command)
            self.over = self.over or command == "disconnect"

    def answered(self, message: Message) -> None:
        """Notes a message of the relay."""
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
        """Returns the answers to what the relay will not answer any more."""
        asked, self._open = self._open, {}
        return [_refusal(seq, command, why) for seq, command in asked.items()]

    @property
    def restart(self) -> Message:
        """Returns what has the editor attach again, and take its session back."""
        return {**RESTARTS, **({TICKET: self.ticket} if self.ticket else {})}

    @property
    def outlasts(self) -> bool:
        """Returns whether the editor is to keep its session if the way breaks now."""
        return self.attached and not self.over


def answer(message: Message, why: str) -> Message | None:
    """Returns the answer to a message of an editor without a relay; None where it needs none."""
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
    """Returns whether the relay says that it ends, as one does in whose place another may come."""
    return message.get("event") == "terminated" and _ray(message).get("reason") == RELAY_ENDING


def waiting(text: str) -> Message:
    """Returns what tells an editor that the way is lost, and is looked for."""
    return _output(text, {"ray": {"reason": WAITING}})


def end(text: str, reason: str, restart: Message | None = None) -> list[Message]:
    """Returns what ends an editor's session; with `restart`, editors that know it in DAP attach again."""
    body: Message = {"ray": {"reason": reason}, **({"restart": restart} if restart else {})}
    return [_output(text), {"type": "event", "event": "terminated", "body": body}]


def _ray(message: Message) -> Message:
    """Returns what a message of the relay says beyond DAP."""
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
