"""Defines why something failed, and the one next thing to do about it."""

from __future__ import annotations

from dataclasses import dataclass

POST_MORTEM = "./invokew submit --debug --post-mortem, with the same options, stops where it raises"


@dataclass(frozen=True)
class Cause:
    """Why something failed: `what` is a clause with its subject, `hint` the one next thing to do."""

    id: str
    what: str
    why: str
    hint: str
