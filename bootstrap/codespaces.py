"""GitHub Codespaces: whether this is one, its ports as people click them, and who reaches them.

Sources: https://docs.github.com/en/codespaces/developing-in-a-codespace/default-environment-variables-for-your-codespace
and https://docs.github.com/en/codespaces/developing-in-a-codespace/forwarding-ports-in-your-codespace
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

_DOMAIN = "app.github.dev"
_MACHINE_TYPES = (
    "https://docs.github.com/en/codespaces/customizing-your-codespace/"
    "changing-the-machine-type-for-your-codespace"
)
# Seconds for an answer through GitHub's own proxy.
_PATIENCE = 10.0
# Else a page that warns of phishing may come instead of the port's own answer
# (https://learn.microsoft.com/azure/developer/dev-tunnels/security).
_STRANGER = {"X-Tunnel-Skip-AntiPhishing-Page": "true"}
_REDIRECTS, _REFUSALS, _UNREACHED = (301, 302, 303, 307, 308), (401, 403, 404), (502, 504)


@dataclass(frozen=True)
class Codespace:
    """A codespace, by its name; each forwarded port has an address of its own below `domain`."""

    name: str
    domain: str = _DOMAIN

    @classmethod
    def here(cls, environment: Mapping[str, str] | None = None) -> Codespace | None:
        """The one that this process runs in; None anywhere else."""
        env = os.environ if environment is None else environment
        if env.get("CODESPACES") != "true" or not env.get("CODESPACE_NAME"):
            return None
        return cls(env["CODESPACE_NAME"], env.get("GITHUB_CODESPACES_PORT_FORWARDING_DOMAIN") or _DOMAIN)

    def host(self, port: int) -> str:
        """The host that a browser asks for `port`; without a port of its own, for it is HTTPS's."""
        return f"{self.name}-{port}.{self.domain}"

    def url(self, port: int) -> str:
        """What people click."""
        return f"https://{self.host(port)}"

    def is_public(self, port: int, path: str | None = None) -> bool | None:
        """Whether anybody on the internet reaches `port`; None where that can't be found out.

        Asked as a stranger would ask, without a session. Of a private port GitHub answers itself, by
        sending the stranger to its login or away. A port is public where a stranger gets the answer
        that this machine gets, or where GitHub tried to reach it for one and could not.

        Args:
            path: what is asked for; its answer has to be the same each time. None where the port
                speaks something else than HTTP.
        """
        import requests

        try:
            got = requests.get(
                f"{self.url(port)}{path or '/'}", headers=_STRANGER, timeout=_PATIENCE, allow_redirects=False
            )
        except requests.RequestException:
            return None
        if path is not None and (got.status_code, got.content) == _own_answer(port, path):
            return True
        to = urlsplit(got.headers.get("Location", ""))
        to_login = to.hostname not in (None, self.host(port)) or "signin" in to.path
        if got.status_code in _REFUSALS or (got.status_code in _REDIRECTS and to_login):
            return False
        return True if got.status_code in _UNREACHED else None


def _own_answer(port: int, path: str) -> tuple[int, bytes] | None:
    """Status and body that this machine gets from itself; None where nothing answers."""
    import requests

    with requests.Session() as session:
        session.trust_env = False  # a proxy for the internet does not know this machine
        try:
            got = session.get(f"http://127.0.0.1:{port}{path}", timeout=_PATIENCE, allow_redirects=False)
        except requests.RequestException:
            return None
        return got.status_code, got.content


def clickable(url: str) -> str:
    """A web address on this machine as people reach it: in a codespace, the forwarded port's."""
    codespace, parts = Codespace.here(), urlsplit(url)
    if codespace is None or parts.scheme != "http" or parts.hostname != "127.0.0.1" or not parts.port:
        return url
    return parts._replace(scheme="https", netloc=codespace.host(parts.port)).geturl()


def addresses(urls: Mapping[str, str | None]) -> dict[str, str | None]:
    """A target's addresses as people reach them; the relay's stays, for desktop editors forward it."""
    return {name: clickable(url) if url else None for name, url in urls.items()}


def trusted_origins(port: int) -> tuple[str, ...]:
    """What code-server at `port` has to take for its own host (`--trusted-origins`), each by itself.

    A browser's Origin is the forwarded port's host, and Codespaces rewrites Host; empty anywhere else.
    """
    codespace = Codespace.here()
    return (codespace.host(port),) if codespace else ()


def larger_machine() -> str:
    """What to do where this codespace is too small; empty anywhere else."""
    return f"choose a larger machine type for this codespace ({_MACHINE_TYPES})" if Codespace.here() else ""
