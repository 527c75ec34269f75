"""Step protocols: a thing that must be true of a cluster, and the result of its check."""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from rayside.errors import RaysideError

Report = Callable[[str], None]


class Condition(str, enum.Enum):
    """The findings of a check."""

    MISSING = "missing"  # It does not exist: apply makes it.
    PENDING = "pending"  # It is coming: wait.
    READY = "ready"
    DRIFTED = "drifted"  # It is ours, but not as it would be made now: never changed unasked.


@dataclass(frozen=True)
class Status:
    """A condition, with a text for people on what was seen.

    Attributes:
        error: what the check raised, if it did.
        gave_up: of what is missing: whether it has ended only because it took longer than it allows itself.
    """

    condition: Condition
    detail: str = ""
    error: RaysideError | None = None
    gave_up: bool = False

    def document(self) -> dict[str, Any]:
        """Returns it as `status --json` shows it; `error` only stands there where there is one."""
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
    """Returns the status of a step of which nothing is known but the error."""
    return Status(Condition.MISSING, error.message, error)


class Step(Protocol):
    """A thing that must be true. What it may have besides is in the protocols that follow."""

    @property
    def name(self) -> str:
        """Returns its name, unique and stable: it is in `status --json`."""

    @property
    def title(self) -> str:
        """Returns its name for people: a noun phrase."""

    @property
    def needs(self) -> tuple[str, ...]:
        """Returns the names of the steps that have to be ready first."""

    def check(self) -> Status:
        """Reads whether it is true, and changes nothing. Raises RaysideError where no apply can help."""


@runtime_checkable
class Appliable(Step, Protocol):
    """A step that can be made. The check of any other never says MISSING: it raises."""

    def apply(self, report: Report) -> None:
        """Makes it, or sets it going; run only when `check` says MISSING. May be killed anywhere."""


@runtime_checkable
class Patient(Protocol):
    """A step that may be pending for a while; any other gets no time."""

    @property
    def patience(self) -> float:
        """Returns how many seconds it may stay pending."""


@runtime_checkable
class Undoable(Protocol):
    """A step that `down` undoes; what it did not make stays, and so does a cache."""

    def undo(self, report: Report) -> str | None:
        """Removes what `apply` made, and nothing else; reports only where there is something.

        Returns what it has left, and why, where it has left anything.
        """


class PortStep(Step, Protocol):
    """The step that makes the relay, or the workspace, answer at `url` of this machine."""

    @property
    def url(self) -> str:
        """Returns the address, for people."""

    def present(self) -> bool:
        """Returns whether it runs: then it holds its port."""
