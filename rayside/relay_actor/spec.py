"""Specification and state of a relay inside a Ray cluster, for the job that starts it and its submitter."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rayside.relay.config import UNSET, Masking

# The actor's Ray namespace, separate from all jobs' actors.
NAMESPACE = "rayside"
# File in the job's working_dir with the RelaySpec.
FILE = "relay.json"
# Prefix of the job's answer: its other lines are Ray's.
ANSWER = "RAYSIDE_RELAY "
# Prefix of the job's error message.
FAILURE = "RAYSIDE_RELAY_FAILED "
# Program that ends a relay, with the actor's name as its argument; it does not need our package.
END = """\
import ray, sys
ray.init(namespace="rayside", log_to_driver=False)
try:
    actor = ray.get_actor(sys.argv[1])
except ValueError:
    sys.exit()
try:
    ray.get(actor.end.remote(), timeout=10)
except ray.exceptions.RayError:
    pass
ray.kill(actor)
"""
# Limit in characters of an answer, which contains addresses of nodes.
_LONGEST = 100_000


@dataclass(frozen=True)
class RelaySpec:
    """Specification: the actor's `name`, Ray's `dashboard` as seen from the head, `digest` and `masking`.

    `user` is the name of the relay's user.
    `digest` (hexadecimal) is the digest of the editors' token. The token itself is not part of it: a user
    with permission to list jobs can read everything that was submitted with a job.
    """

    name: str
    dashboard: str
    digest: str
    masking: Masking = UNSET
    user: str = ""

    @classmethod
    def read(cls, file: Path) -> RelaySpec:
        """Reads `file`. Raises OSError, ValueError, KeyError or TypeError if it is invalid."""
        document: dict[str, Any] = json.loads(file.read_text())
        masked = document["masking"]
        masking = Masking(str(masked["names"]), str(masked["values"]), masked["by_value"] is True)
        name, dashboard, digest, user = (
            str(document[key]) for key in ("name", "dashboard", "digest", "user")
        )
        return cls(name, dashboard, digest, masking, user)

    def document(self) -> str:
        """Returns the text that `read` reads."""
        return json.dumps({**asdict(self), "masking": self.masking.document()})


@dataclass(frozen=True)
class Running:
    """Running relay: its `port` on the head's loopback, the actor's id, and the nodes that it can't reach."""

    port: int
    actor_id: str
    away: tuple[str, ...] = ()

    @classmethod
    def parse(cls, text: str) -> Running:
        """Parses the text from `document`. Raises ValueError, KeyError or TypeError if it is invalid.

        The text is untrusted: one that is too long, or has no valid port, is refused.
        """
        try:
            document = json.loads(text[:_LONGEST])
            port, actor_id, away = int(document["port"]), str(document["actor_id"]), document["away"]
        except (OverflowError, RecursionError):
            raise ValueError(text[:200]) from None
        is_id = actor_id.isalnum() and actor_id.isascii() and len(actor_id) <= 64
        if not (0 < port < 65536 and is_id and isinstance(away, list)):
            raise ValueError(text[:200])
        return cls(port, actor_id, tuple(str(node)[:100] for node in away))

    def document(self) -> str:
        return json.dumps(asdict(self))
