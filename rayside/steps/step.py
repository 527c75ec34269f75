"""Step protocols: a required state of a cluster, and the result of its check."""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from rayside.errors import RaysideError

Report = Callable[[str], None]


class Condition(str, enum.Enum):
    """Result of a check."""

    MISSING = "missing"  # It does not exist: apply makes it.
    PENDING = "pending"  # It is starting: wait.
    READY = "ready"
    DRIFTED = "drifted"  # It is ours, but differs from what apply would make now: never changed unasked.


@dataclass(frozen=True)
class Status:
    """Condition, with a text for people about what the check saw.

    Attributes:
        error: the error that the check raised, if any.
        gave_up: whether it is missing only because it exceeded its own timeout.
    """

    condition: Condition
    detail: str = ""
    error: RaysideError | None = None
    gave_up: bool = False

    def document(self) -> dict[str, Any]:
        """Returns the status as in `status --json`; `error` is left out without one."""
        document = {"condition": self.condition.value, "detail": self.detail}
        return {**document, **(self.error.document() if self.error else {})}


def missing(detail: str = "", *, gave_up: bool = False) -> Status:
    return Status(Condition.MISSING, detail, gave_up=gave_up)


def pending(detail: str = "") -> Status:
    return Status(Condition.PENDING, detail)


def ready(detail: str = "") -> Status:
    return Status(Condition.READY, detail)


def drifted(detail: str) -> Status:
    return Status(Condition.DRIFTED, detail)


def failed(error: RaysideError) -> Status:
    """Returns the status of a step whose check raised this error."""
    return Status(Condition.MISSING, error.message, error)


class Step(Protocol):
    """Required state. The protocols below define optional members."""

    @property
    def name(self) -> str:
        """Returns its unique and stable name, as in `status --json`."""

    @property
    def title(self) -> str:
        """Returns its name for people: a noun phrase."""

    @property
    def needs(self) -> tuple[str, ...]:
        """Returns the names of the steps that have to be ready first."""

    def check(self) -> Status:
        """Checks the state, and changes nothing. Raises RaysideError if no apply can help."""


@runtime_checkable
class Appliable(Step, Protocol):
    """Step that can be made. The check of any other step raises, and never returns MISSING."""

    def apply(self, report: Report) -> None:
        """Makes it, or starts it; runs only after `check` returned MISSING. May be killed at any point."""


@runtime_checkable
class Patient(Protocol):
    """Step that may be pending for a while; other steps have a timeout of 0."""

    @property
    def patience(self) -> float:
        """Returns the timeout for PENDING in seconds."""


@runtime_checkable
class Undoable(Protocol):
    """Step that `down` undoes; caches stay, and things that the step did not make."""

    def undo(self, report: Report) -> str | None:
        """Removes only what `apply` made; reports only if there is something to remove.

        Returns what remains, and why, if anything does.
        """


class PortStep(Step, Protocol):
    """Step that makes the relay, or the workspace, answer at `url` on this machine."""

    @property
    def url(self) -> str:
        """Returns the address, for people."""

    def present(self) -> bool:
        """Returns whether it runs, and so holds its port."""
