"""Check that unauthenticated clients on the internet can't reach a codespace's forwarded ports."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from bootstrap.codespaces import Codespace
from bootstrap.errors import PortPublic
from rayside.steps.step import Status, ready


@dataclass(frozen=True)
class PortsPrivate:
    """Only authenticated clients reach the ports.

    `ports` has for each a path with a constant response; None for a port without HTTP.
    """

    codespace: Codespace
    ports: Mapping[int, str | None]
    name: str = "ports-private"
    title: str = "private ports"
    needs: tuple[str, ...] = ()

    def check(self) -> Status:
        public = {port: self.codespace.is_public(port, path) for port, path in self.ports.items()}
        if wrong := [str(port) for port, is_public in public.items() if is_public]:
            visibility = " ".join(f"{port}:private" for port in wrong)
            raise PortPublic(
                f"anybody on the internet reaches {', '.join(wrong)}",
                hint="make it private: Port Visibility in the Ports view, or "
                f"gh codespace ports visibility {visibility} --codespace {self.codespace.name}",
            )
        unknown = [str(port) for port, is_public in public.items() if is_public is None]
        private = [str(port) for port, is_public in public.items() if is_public is False]
        uncertain = [f"could not be found out of {', '.join(unknown)}"] if unknown else []
        return ready("; ".join([*([", ".join(private)] if private else []), *uncertain]))
