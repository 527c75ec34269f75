"""Registry logins from the Docker configuration and its credential helpers."""

from __future__ import annotations

import base64
import warnings
from dataclasses import dataclass, field

from bootstrap.errors import RegistryRefused
from rayside.plain import line


@dataclass(frozen=True)
class Login:
    """A user's name and password; the password is not in its repr."""

    user: str
    password: str = field(repr=False)

    @property
    def basic(self) -> str:
        """Returns the value of HTTP's Authorization header."""
        return "Basic " + base64.b64encode(f"{self.user}:{self.password}".encode()).decode()


def login_for(host: str) -> Login | None:
    """Returns the login to a registry in the Docker configuration (DOCKER_CONFIG, ~/.docker); None without.

    Raises RegistryRefused if its credential helper fails, or has only an identity token.
    """
    from docker import auth
    from docker.errors import DockerException

    try:
        with warnings.catch_warnings():
            # The package warns of a missing helper, and raises an error as well.
            warnings.simplefilter("ignore")
            known = auth.load_config().resolve_authconfig(host)
    except DockerException as error:
        raise _unreadable(host, line(str(error), 300)) from None
    # The error's text may contain anything, also a password.
    except (OSError, ValueError, TypeError, AttributeError, KeyError) as error:
        raise _unreadable(host, type(error).__name__) from None
    if not known:
        return None
    user, password = (
        known.get("username") or known.get("Username"),
        known.get("password") or known.get("Password"),
    )
    if not user or not password:
        raise RegistryRefused(
            f"the Docker configuration has no password for {host}, but an identity token",
            hint=f"docker logout {host}, then docker login {host} with a password, or an access token",
        )
    return Login(str(user), str(password))


def _unreadable(host: str, why: str) -> RegistryRefused:
    return RegistryRefused(
        f"the Docker configuration has no login for {host} that can be read: {why}",
        hint=f"correct it (~/.docker/config.json, or DOCKER_CONFIG), then docker login {host}",
    )
