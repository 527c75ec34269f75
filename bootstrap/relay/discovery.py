"""Says what the relay has to know of debuggees; who knows it is another's affair."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from bootstrap.dap.paused import PausedTask
from bootstrap.relay.debuggee import Debuggee


class Discovery(Protocol):
    """Finds debuggees."""

    async def debuggees(self) -> list[Debuggee]:
        """Returns the live processes with an open debugger port, attached or not.

        Raises:
            RaysideError: the cluster does not answer now; it is asked again.
        """

    async def waiting(self) -> list[PausedTask]:
        """Returns the tasks that wait for a debugger now; none of them is `held`. Raises as `debuggees`."""

    async def submission(self, job_id: str) -> str:
        """Returns the submission id of Ray's job id; "" where it has none. Raises as `debuggees`."""

    def user(self, job_id: str) -> str:
        """Returns the name of the user whose job it says it is, by Ray's job id, as `submission` last saw."""

    async def why_ended(self, debuggee: Debuggee) -> str:
        """Returns what is known of the end of a process that has ended: one sentence, "" where nothing is.

        May wait some seconds for it. Raises as `debuggees`.
        """

    def local_roots(self) -> Mapping[str, Sequence[str]]:
        """Returns the folders that a package was packed from, by its name, as in `_ray_pkg_9e9d6e2076c1b321`.

        They are of the submitter's machine, absolute, and as of the last `debuggees`; the first is shown.
        What a symlink in a package leads to has the symlink in its key: `_ray_pkg_9e9d6e2076c1b321/shared`.
        """
