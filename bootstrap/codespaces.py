"""GitHub Codespaces: whether this is one, the addresses of its ports, and who reaches them.

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
# An answer through GitHub's own proxy may take so many seconds.
_PATIENCE = 10.0
# Without this header a page that warns of phishing may come instead of the port's own answer
# (https://learn.microsoft.com/azure/developer/dev-tunnels/security).
_NO_WARNING = {"X-Tunnel-Skip-AntiPhishing-Page": "true"}
_REDIRECTS, _REFUSALS, _UNREACHED = (301, 302, 303, 307, 308), (401, 403, 404), (502, 504)


@dataclass(frozen=True)
class Codespace:
    """A codespace, by its name; each forwarded port has an address of its own below `domain`."""

    name: str
    domain: str = _DOMAIN

    @classmethod
    def here(cls, environment: Mapping[str, str] | None = None) -> Codespace | None:
        """Returns the codespace that this process runs in; None anywhere else."""
        env = os.environ if environment is None else environment
        if env.get("CODESPACES") != "true" or not env.get("CODESPACE_NAME"):
            return None
        return cls(env["CODESPACE_NAME"], env.get("GITHUB_CODESPACES_PORT_FORWARDING_DOMAIN") or _DOMAIN)

    def host(self, port: int) -> str:
        """Returns the host that a browser asks for `port`; it names no port, for HTTPS's own is used."""
        return f"{self.name}-{port}.{self.domain}"

    def url(self, port: int) -> str:
        """Returns the address of `port` that people click."""
        return f"https://{self.host(port)}"

    def is_public(self, port: int, path: str | None = None) -> bool | None:
        """Returns whether anybody on the internet reaches `port`; None where that can't be found out.

        It asks as an unauthenticated client does. For a private port GitHub answers itself, by sending that
        to its login or away. A port is public where such a client gets the answer that this machine gets, or
        where GitHub tried to reach it for one and could not.

        Args:
            path: asked for; its answer has to be the same each time. None where the port
                speaks something else than HTTP.
        """
        import requests

        try:
            got = requests.get(
                f"{self.url(port)}{path or '/'}",
                headers=_NO_WARNING,
                timeout=_PATIENCE,
                allow_redirects=False,
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
    """Returns the status and body that this machine gets from itself; None where nothing answers."""
    import requests

    with requests.Session() as session:
        session.trust_env = False  # A proxy for the internet does not know this machine.
        try:
            got = session.get(f"http://127.0.0.1:{port}{path}", timeout=_PATIENCE, allow_redirects=False)
        except requests.RequestException:
            return None
        return got.status_code, got.content


def clickable(url: str) -> str:
    """Returns a web address on this machine as people reach it: in a codespace, the forwarded port's."""
    codespace, parts = Codespace.here(), urlsplit(url)
    if codespace is None or parts.scheme != "http" or parts.hostname != "127.0.0.1" or not parts.port:
        return url
    return parts._replace(scheme="https", netloc=codespace.host(parts.port)).geturl()


def addresses(urls: Mapping[str, str | None]) -> dict[str, str | None]:
    """Returns a target's addresses as people reach them; the relay's stays: desktop editors forward it."""
    return {name: clickable(url) if url else None for name, url in urls.items()}


def trusted_origins(port: int) -> tuple[str, ...]:
    """Returns the hosts that code-server at `port` has to take for its own (`--trusted-origins`).

    A browser's Origin is the forwarded port's host, and Codespaces rewrites Host; none are needed elsewhere.
    """
    codespace = Codespace.here()
    return (codespace.host(port),) if codespace else ()


def larger_machine() -> str:
    """Returns the advice for a codespace that is too small; empty anywhere else."""
    return f"choose a larger machine type for this codespace ({_MACHINE_TYPES})" if Codespace.here() else ""
