"""Actor with a debug relay, for Ray clusters of which only the head can be reached."""

from __future__ import annotations

import logging
import os
from dataclasses import replace

from rayside.errors import CredentialsRefused
from rayside.ray import authentication
from rayside.ray.reach import out_of_reach
from rayside.ray.state import Dashboard
from rayside.relay.cluster import ClusterDebuggees
from rayside.relay.fan_out import allow_many_files
from rayside.relay.server import Relay
from rayside.relay_actor.spec import RelaySpec, Running

_log = logging.getLogger(__name__)


class RelayActor:
    """Relay on the loopback interface of its node; an async actor in Ray."""

    def __init__(self, spec: RelaySpec) -> None:
        logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
        self._spec, self._url = spec, spec.dashboard
        self._relay: Relay | None = None

    async def begin(self, actor_id: str) -> str:
        """Listens on a free port; returns the document of `Running`. Raises errors of Ray's dashboard."""
        allow_many_files()
        asks = authentication.mode(self._url) == authentication.TOKEN
        # Ray's processes have the token where Ray reads it.
        try:
            token = authentication.token("", os.environ) if asks else ""
        except CredentialsRefused:
            raise CredentialsRefused(
                "Ray's processes on the head have no token where Ray looks (as with enableK8sTokenAuth)",
                hint="have Ray started with RAY_AUTH_TOKEN_PATH",
            ) from None
        self._relay = Relay(
            ClusterDebuggees.at(self._url, token, self._spec.user),
            digest=bytes.fromhex(self._spec.digest),
            log=_log.info,
            user=self._spec.user,
            masking=replace(self._spec.masking, token=token),
        )
        server = await self._relay.serve("127.0.0.1", 0)
        port = int(server.sockets[0].getsockname()[1])
        _log.info("listening on port %s for %s", port, self._url)
        return Running(port, actor_id, tuple(out_of_reach(Dashboard(self._url, token).raylets()))).document()

    async def end(self) -> None:
        """Detaches from all debuggees: the actor is about to be killed."""
        if self._relay is not None:
            await self._relay.close()
