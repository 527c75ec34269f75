"""Identity of a cluster for tests, with unused folders and ports."""

from __future__ import annotations

from pathlib import Path

from bootstrap.instance import Instance
from rayside.connection.instance import Ports


def instance(name: str = "rayside", namespace: str = "default", folder: Path = Path("/x")) -> Instance:
    return Instance(name, "kind", namespace, f"kind-{name}", folder, Ports(8265, 10001, 5678, 8443))
