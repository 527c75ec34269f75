"""Step for one place of a workshop, which includes all of the place's steps."""

from __future__ import annotations

from contextlib import AbstractContextManager

from bootstrap.targets.place import Place
from rayside.console import Console
from rayside.errors import RaysideError
from rayside.steps import graph
from rayside.steps.step import Condition, Report, Status, missing, ready
from rayside.system.lock import alone


class PlaceUp:
    """A place is ready, with all of its own steps, which are one step here."""

    needs: tuple[str, ...] = ()

    def __init__(self, place: Place) -> None:
        self._place = place
        self._is_up = False
        self.name = place.instance.name
        self.title = f"place {self.name}"

    def check(self) -> Status:
        if not self._is_up:
            for name, status in graph.check(self._place.hosted_steps).items():
                if status.condition is not Condition.READY:
                    return missing(f"{name}: {status.detail}")
        self._is_up = True
        return ready(f"namespace {self._place.instance.namespace}")

    def apply(self, report: Report) -> None:
        """Applies the place's steps, under its lock. Raises their errors, with the place's name."""
        with self._alone(report):
            try:
                graph.up(self._place.hosted_steps, _Notes(report))
            except RaysideError as error:
                # The hint is for the place, not for the cluster beside which it is.
                hint = Console(cluster=self.name).for_cluster(error.hint)
                raise type(error)(f"{self.title}: {error.message}", hint=hint) from error
        # The steps were just checked.
        self._is_up = True

    def undo(self, report: Report) -> None:
        with self._alone(report):
            graph.down(self._place.steps(), _Notes(report))

    @property
    def is_up(self) -> bool:
        return self._is_up

    def _alone(self, report: Report) -> AbstractContextManager[None]:
        lock = self._place.instance.lock(self._place.settings.cache_folder)
        return alone(lock, lambda: report("another command changes it: waiting"))


class _Notes:
    """Progress of one place's steps, as notes of one step."""

    def __init__(self, report: Report) -> None:
        self._report = report

    def started(self, name: str, title: str) -> None:
        self._report(title)

    def note(self, name: str, text: str) -> None:
        self._report(f"{name}: {text}")

    def finished(self, name: str, title: str, outcome: str, detail: str) -> None:
        pass
