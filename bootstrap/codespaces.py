"""GitHub Codespaces: detection, URLs of forwarded ports, and whether a port is public.

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
# Timeout in seconds for a response through GitHub's proxy.
_PATIENCE = 10.0
# Without this header GitHub may send a phishing warning instead of the port's own response
# (https://learn.microsoft.com/azure/developer/dev-tunnels/security).
_NO_WARNING = {"X-Tunnel-Skip-AntiPhishing-Page": "true"}
_REDIRECTS, _REFUSALS, _UNREACHED = (301, 302, 303, 307, 308), (401, 403, 404), (502, 504)


@dataclass(frozen=True)
class Codespace:
    """A codespace; each forwarded port has its own host name below `domain`."""

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
        """Returns the host name of a forwarded port, without a port number: HTTPS's default is used."""
        return f"{self.name}-{port}.{self.domain}"

    def url(self, port: int) -> str:
        """Returns the URL of a forwarded port."""
        return f"https://{self.host(port)}"

    def is_public(self, port: int, path: str | None = None) -> bool | None:
        """Returns whether unauthenticated clients on the internet can reach `port`; None if unknown.

        The request is unauthenticated. For a private port GitHub itself responds, with a redirect to its
        login or a refusal. A port is public if the response is the one that this machine gets, or if GitHub
        tried to reach the port and failed.

        Args:
            path: requested path, whose response is the same each time; None if the port does not speak HTTP.
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
    """Returns the status and body of the port's response to this machine; None without a response."""
    import requests

    with requests.Session() as session:
        session.trust_env = False  # A proxy for the internet does not know this machine.
        try:
            got = session.get(f"http://127.0.0.1:{port}{path}", timeout=_PATIENCE, allow_redirects=False)
        except requests.RequestException:
            return None
        return got.status_code, got.content


def clickable(url: str) -> str:
    """Returns the URL at which users reach a port of this machine: in a codespace, the forwarded port's."""
    codespace, parts = Codespace.here(), urlsplit(url)
    if codespace is None or parts.scheme != "http" or parts.hostname != "127.0.0.1" or not parts.port:
        return url
    return parts._replace(scheme="https", netloc=codespace.host(parts.port)).geturl()


def addresses(urls: Mapping[str, str | None]) -> dict[str, str | None]:
    """Returns a target's URLs as users reach them; the relay's is unchanged: desktop editors forward it."""
    return {name: clickable(url) if url else None for name, url in urls.items()}


def trusted_origins(port: int) -> tuple[str, ...]:
    """Returns the hosts that code-server at `port` has to trust as origins (`--trusted-origins`).

    A browser's Origin is the forwarded port's host, and Codespaces rewrites Host; none are needed elsewhere.
    """
    codespace = Codespace.here()
    return (codespace.host(port),) if codespace else ()


def larger_machine() -> str:
    """Returns the advice for a codespace that is too small; empty anywhere else."""
    return f"choose a larger machine type for this codespace ({_MACHINE_TYPES})" if Codespace.here() else ""
