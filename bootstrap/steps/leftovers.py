"""Ends what a Ray that died has left on this machine."""

from __future__ import annotations

from dataclasses import dataclass

from bootstrap.step import Report, Status, missing, ready
from bootstrap.steps.local_ray import RayHead


@dataclass(frozen=True)
class Leftovers:
    """No process of a head's runs without it."""

    head: RayHead
    name: str = "leftovers"
    title: str = "leftovers of Ray"
    needs: tuple[str, ...] = ()

    def check(self) -> Status:
        count = 0 if self.head.running() else len(self.head.leftovers())
        return missing(f"{count} processes of a Ray that died still run") if count else ready("none")

    def apply(self, report: Report) -> None:
        self.head.undo(report)
