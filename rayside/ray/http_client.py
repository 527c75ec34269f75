"""HTTP client of Ray's dashboard: no proxy, no netrc, no data to another user's listener."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

import requests
from requests.adapters import HTTPAdapter
from urllib3.connection import HTTPConnection
from urllib3.connectionpool import HTTPConnectionPool

from rayside.errors import CredentialsRefused, NotRunning
from rayside.loopback import require_own
from rayside.plain import fits_header
from rayside.ray.authentication import expiry


class _Known(HTTPAdapter):
    """HTTP adapter that checks which user listens before it sends anything over a connection."""

    def __init__(self, trusted: Collection[int]) -> None:
        self._trusted = trusted
        super().__init__()

    def init_poolmanager(self, *arguments: Any, **more: Any) -> None:
        trusted = self._trusted

        class Connection(HTTPConnection):
            def connect(self) -> None:
                super().connect()
                try:
                    require_own(self.sock, trusted)
                except BaseException:
                    self.close()
                    raise

        class Pool(HTTPConnectionPool):
            ConnectionCls = Connection

        super().init_poolmanager(*arguments, **more)
        # Each manager has a map of its own, documented for this use.
        self.poolmanager.pool_classes_by_scheme = {"http": Pool}


class HttpClient:
    """HTTP client of one dashboard; `url` as in http://127.0.0.1:8265, `token` Ray's authentication, empty
    if this Ray requires none.

    `patience`: timeouts in seconds to connect, and for each piece of an answer. `trusted`: uids that may
    listen there, besides this user; another user's listener on this machine gets no data, and each method
    raises StrangerListens. Raises CredentialsRefused for an invalid token.
    """

    def __init__(
        self,
        url: str,
        token: str,
        *,
        patience: tuple[float, float] = (2, 20),
        trusted: Collection[int] = (),
    ) -> None:
        self.url, self._patience, self._trusted = url, patience, trusted
        self._session = requests.Session()
        # No proxy and no ~/.netrc for a loopback address.
        self._session.trust_env = False
        # Ray never redirects: a fake dashboard could make this client send requests to other servers.
        self._session.max_redirects = 0
        self._session.mount("http://", _Known(trusted))
        if not fits_header(token):
            raise CredentialsRefused(
                "Ray's token has a line break or another character that no token has",
                hint="put the token alone into its file, or into RAY_AUTH_TOKEN",
            )
        if token:
            self._session.headers["Authorization"] = f"Bearer {token}"

    def _get(self, path: str, parameters: Iterable[tuple[str, str]] = ()) -> Any:
        return self._ask("GET", path, params=list(parameters))

    def _ask(self, method: str, path: str, **more: Any) -> Any:
        answer = self._answer(method, path, **more)
        try:
            answer.raise_for_status()
        except requests.HTTPError as error:
            raise NotRunning(
                f"the dashboard at {self.url} failed: {error}", hint="./invokew doctor"
            ) from None
        try:
            return answer.json() if answer.content else None
        except ValueError:
            raise self._absent from None

    def _answer(
        self, method: str, path: str, *, timeout: tuple[float, float] | None = None, **more: Any
    ) -> requests.Response:
        """Returns the response with any status. Raises NotRunning without one, or for a refused token."""
        patience = timeout or self._patience
        try:
            answer = self._session.request(method, self.url + path, timeout=patience, **more)
        except requests.ReadTimeout:
            raise NotRunning(
                f"the dashboard at {self.url} gave no answer within {patience[1]:g} s",
                hint="./invokew logs --ray says more",
            ) from None
        except (requests.RequestException, ValueError):
            raise self._absent from None
        if answer.status_code in (401, 403):
            _, _, token = str(self._session.headers.get("Authorization", "")).partition(" ")
            raise NotRunning(
                f"the dashboard at {self.url} refuses our token{expiry(token) or ': it is another Ray'}",
                hint="./invokew doctor",
            )
        return answer

    @property
    def _absent(self) -> NotRunning:
        return NotRunning(f"no Ray dashboard answers at {self.url}", hint="./invokew up starts one")
