"""Describes the relay that is to run inside a Ray, for the job that begins it and for who submits that."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rayside.relay.config import UNSET, Masking

# The actor is in a Ray namespace of its own, where no job's actors are.
NAMESPACE = "rayside"
# The file, in the job's working_dir, that says what relay is to run.
FILE = "relay.json"
# The job prints this in front of its answer: its other lines are Ray's.
ANSWER = "RAYSIDE_RELAY "
# So it prints what kept it from that.
FAILURE = "RAYSIDE_RELAY_FAILED "
# This program, with the actor's name as its argument, ends a relay; it needs nothing of ours.
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
# No answer has more characters: it has some nodes' addresses.
_LONGEST = 100_000


@dataclass(frozen=True)
class RelaySpec:
    """One relay: the actor's `name`, Ray's `dashboard` as the head reaches it, `digest` and `masking`.

    `user` is the name of whom it is for.
    `digest` (hexadecimal) is that of the token that editors bring. The token itself is not in it: whoever may
    list jobs can read what a job was submitted with.
    """

    name: str
    dashboard: str
    digest: str
    masking: Masking = UNSET
    user: str = ""

    @classmethod
    def read(cls, file: Path) -> RelaySpec:
        """Reads `file`. Raises OSError, ValueError, KeyError or TypeError unless it is one."""
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
    """A relay that runs: `port` of the head's loopback, the actor's id, and the nodes it can't reach."""

    port: int
    actor_id: str
    away: tuple[str, ...] = ()

    @classmethod
    def parse(cls, text: str) -> Running:
        """Returns what `document` wrote. Raises ValueError, KeyError or TypeError unless it is one.

        It comes from the cluster: what is too long, or no port, is refused.
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
