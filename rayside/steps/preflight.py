"""Preflight of an existing Ray cluster: checks that it can be debugged from here before making anything."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from rayside.errors import (
    CredentialsRefused,
    Forbidden,
    NodesUnreachable,
    NotRunning,
    UnsupportedPython,
    UnsupportedRay,
)
from rayside.plain import counted, line, some_of
from rayside.ray import authentication
from rayside.ray.reach import out_of_reach
from rayside.ray.state import Dashboard
from rayside.settings import NO_TOKEN
from rayside.steps.step import Report, Status, ready
from rayside.versions import OLDEST_RAY, is_before

# Authentication modes in words; Ray's makers call a cluster without a token a feature.
_TOKENS = {
    authentication.TOKEN: "asks for a token",
    authentication.DISABLED: "asks for no token: whoever reaches it can run programs there (CVE-2023-48022)",
}
# Without a token, a Ray before this version does not reject `DELETE` requests from web pages.
_BROWSERS_KEPT_OUT = "2.54"
_LET_IN = (
    ", and a web page in the browser of who does can delete its jobs (CVE-2026-27482, fixed in Ray 2.54)"
)
_LONGEST_VERSION = 40
_OLDEST_PYTHON = "3.10"


@dataclass(frozen=True)
class Seen:
    """Ray cluster as it answered; `token` is the token that it requires, or empty."""

    url: str
    version: str
    python: str
    authentication: str
    token: str

    @property
    def dashboard(self) -> Dashboard:
        return Dashboard(self.url, self.token)

    @property
    def document(self) -> dict[str, str]:
        """Returns the fields that a file may contain: no secret."""
        return {"version": self.version, "python": self.python, "authentication": self.authentication}

    def __str__(self) -> str:
        is_open = self.authentication == authentication.DISABLED
        browsers = _LET_IN if is_open and is_before(self.version, _BROWSERS_KEPT_OUT) else ""
        return f"Ray {self.version}, Python {self.python}; it {_TOKENS[self.authentication]}{browsers}"


@dataclass(frozen=True)
class Preflight:
    """Step: Ray answers and accepts the token; if the relay runs here, Ray's nodes can be reached from here.

    `passage` yields the dashboard's URL for this machine while in its context; `token_file` is the user's
    setting; `kept` is the file with the token of an earlier `up`; `place` names the cluster for people.
    """

    passage: Callable[[], AbstractContextManager[str]]
    token_file: str
    kept: Path
    place: str
    relay_is_here: bool = True
    # The first returns a token that the cluster offers, if any; the second raises for missing permissions.
    offered: Callable[[], str | None] = lambda: None
    require_rights: Callable[[], None] = lambda: None
    name: str = "preflight"
    title: str = "existing Ray cluster, seen from here"
    needs: tuple[str, ...] = ()

    def check(self) -> Status:
        """Checks the cluster. Raises as `look` and `passage`, KubernetesTokens, NodesUnreachable,
        UnsupportedRay, UnsupportedPython."""
        self.require_rights()
        with self.passage() as url:
            seen = self.look(url)
            self._require_ray(seen.version)
            if authentication.is_of_kubernetes(seen.token):
                raise authentication.kubernetes_tokens(self.place)
            if not self.relay_is_here:
                self._require_python(seen.python)
            nodes = _require_reachable(seen.dashboard) if self.relay_is_here else seen.dashboard.live_nodes()
        reach = " in reach" if self.relay_is_here else ""
        return ready(f"{seen}; {counted(nodes, 'node')}{reach}")

    def _require_ray(self, version: str) -> None:
        """Checks that this Ray's jobs can be debugged. Raises UnsupportedRay."""
        if is_before(version, OLDEST_RAY):
            raise UnsupportedRay(
                f"the Ray at {self.place} is {version}, and the oldest that Rayside debugs is {OLDEST_RAY}",
                hint=f"have it upgraded to {OLDEST_RAY} or later; from 2.52 on Ray can ask for a token",
            )

    def _require_python(self, version: str) -> None:
        """Checks that the cluster's Python can run the relay. Raises UnsupportedPython."""
        if is_before(version, _OLDEST_PYTHON):
            raise UnsupportedPython(
                f"the Ray at {self.place} has Python {version}, and the relay, which runs there, needs 3.10",
                hint="where this machine reaches Ray's nodes, --address runs the relay here",
            )

    def apply(self, report: Report) -> None:
        """Does nothing: the user has to meet this step's requirements."""

    def look(self, url: str) -> Seen:
        """Queries the dashboard at that URL. Raises NotRunning, NotRay, CredentialsRefused."""
        mode = authentication.mode(url)
        token = ""
        for token in self._tokens() if mode == authentication.TOKEN else [""]:
            dashboard = Dashboard(url, token)
            try:
                version = str(dashboard.version()["ray_version"])
            except NotRunning as error:
                if "refuses our token" not in error.message:
                    raise
                continue
            return Seen(url, _short(version), _short(dashboard.python_version()), mode, token)
        raise CredentialsRefused(
            f"the Ray at {self.place} refuses the token{authentication.expiry(token)}",
            hint="name the file of the right one: --token-file FILE",
        )

    def _tokens(self) -> Iterator[str]:
        """Yields the tokens to try, each if the one before was refused. Raises CredentialsRefused."""
        if self.token_file not in ("", NO_TOKEN):
            yield authentication.token(self.token_file)
            return
        # A restarted Ray cluster may have another token, or require one for the first time.
        if is_tried := self.kept.exists():
            yield self.kept.read_text()
        # A user without permission to read Secrets may have the token from elsewhere.
        with contextlib.suppress(Forbidden):
            if offered := self.offered():
                is_tried = True
                yield offered
        # A cluster that refuses its own token gets no other token of the user.
        if not is_tried:
            if self.token_file == NO_TOKEN:
                raise CredentialsRefused(
                    f"the Ray at {self.place} asks for a token, and only a pyproject.toml named it",
                    hint="if you trust that file, name the file of its token: --token-file FILE",
                )
            yield authentication.token("")


def _short(text: str) -> str:
    return line(text)[:_LONGEST_VERSION]


def _require_reachable(dashboard: Dashboard) -> int:
    """Returns the number of nodes, if they can be reached from here. Raises NodesUnreachable."""
    nodes = dashboard.raylets()
    if away := out_of_reach(nodes):
        raise NodesUnreachable(
            f"of Ray's {len(nodes)} nodes {some_of(away)} can't be reached from here: the debugger has to "
            "reach the workers' ports",
            hint="run Rayside on a machine in the network of Ray's nodes",
        )
    return len(nodes)
