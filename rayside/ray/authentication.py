"""Authentication mode of a Ray cluster, and its token, from the places where Ray itself looks.

Sources: https://docs.ray.io/en/latest/ray-security/token-auth.html, and `/api/authentication_mode` in
ray/dashboard/http_server_head.py (2.60), which requires no token.
"""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Mapping
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import requests

from rayside.errors import CredentialsRefused, KubernetesTokens, NotRay, NotRunning
from rayside.plain import fits_header

TOKEN, DISABLED = "token", "disabled"
_WHERE = "Ray's dashboard is at port 8265 of its head, unless it was told otherwise"
_PATIENCE = (5.0, 20.0)
# Limit: bytes of an answer.
_LONGEST = 100_000
# Limit: characters of a token. Ray's tokens have some dozens; a longer file is no token.
_LONGEST_TOKEN = 4_096


def mode(url: str) -> str:
    """Returns TOKEN or DISABLED for the Ray cluster with the dashboard `url`; before 2.52 Ray has no tokens.

    Raises NotRunning if nothing answers there, and NotRay if another program does.
    """
    try:
        with requests.Session() as session:
            # No proxy from the environment, and no ~/.netrc, as in `Dashboard`.
            session.trust_env = False
            asked = f"{url}/api/authentication_mode"
            with session.get(asked, timeout=_PATIENCE, stream=True, allow_redirects=False) as answer:
                text = answer.raw.read(_LONGEST, decode_content=True)
                if answer.status_code == requests.codes.not_found:
                    return DISABLED
                document = json.loads(text) if answer.ok else {}
    except ValueError:
        document = {}
    except requests.RequestException as error:
        raise NotRunning(
            f"nothing answers at {url}: {_reason(error)}",
            hint=f"check the address; {_WHERE}",
        ) from None
    answered = document.get("authentication_mode") if isinstance(document, dict) else None
    if answered not in (TOKEN, DISABLED):
        raise NotRay(f"what answers at {url} is not Ray's dashboard", hint=_WHERE)
    return str(answered)


def mode_here(environment: Mapping[str, str] = os.environ) -> str:
    """Returns the mode of a Ray cluster that a program starts here; empty for Ray's default."""
    return environment.get("RAY_AUTH_MODE", "").strip().lower()


def token(named: str, environment: Mapping[str, str] = os.environ) -> str:
    """Returns Ray's token from the file `named`, or, if that is empty, from the places where Ray looks.

    Raises CredentialsRefused without a valid token.
    """
    if not named and (given := environment.get("RAY_AUTH_TOKEN", "").strip()):
        return given
    path = named or environment.get("RAY_AUTH_TOKEN_PATH") or "~/.ray/auth_token"
    hint = "put Ray's token into a file that only you can read, and name it: --token-file FILE"
    try:
        with Path(path).expanduser().open() as file:
            text = file.read(_LONGEST_TOKEN + 1).strip()
    except (OSError, UnicodeDecodeError) as error:
        if named:
            raise CredentialsRefused(f"the token file {path} can't be read: {error}", hint=hint) from None
        raise CredentialsRefused("this Ray asks for a token, and there is none", hint=hint) from None
    if not text or len(text) > _LONGEST_TOKEN or not fits_header(text):
        raise CredentialsRefused(f"{path} holds no token", hint=hint)
    return text


def kubernetes_tokens(place: str) -> KubernetesTokens:
    """Returns the error for a Ray cluster with Kubernetes tokens, where each pod has another token.

    A worker's debugger requires its own pod's token.
    """
    return KubernetesTokens(
        f"the Ray at {place} takes tokens of Kubernetes (enableK8sTokenAuth): its workers can't be debugged",
        hint="leave enableK8sTokenAuth out of its authOptions: KubeRay then makes one token for all pods",
    )


def is_of_kubernetes(token: str) -> bool:
    """Returns whether it is a Kubernetes token of a service account."""
    return "kubernetes.io" in _claims(token)


def expiry(token: str) -> str:
    """Returns `, which expired on` and the date, for a token whose claims say so; else an empty text."""
    until = _claims(token).get("exp")
    now = datetime.now(timezone.utc)
    if not isinstance(until, int | float) or until >= now.timestamp():
        return ""
    return f", which expired on {datetime.fromtimestamp(until, timezone.utc):%Y-%m-%d %H:%M} UTC"


def _claims(token: str) -> dict[str, Any]:
    """Returns the claims of a JSON Web Token, unverified (RFC 7519); empty for another token."""
    try:
        _, payload, _ = token.split(".")
        claims = json.loads(base64.urlsafe_b64decode(payload + "=="))
    except (ValueError, RecursionError):
        return {}
    return claims if isinstance(claims, dict) else {}


def _reason(error: requests.RequestException) -> str:
    if isinstance(error, requests.Timeout):
        return "no answer in time"
    if isinstance(error, requests.exceptions.SSLError):
        return "it does not speak HTTPS, or its certificate is not trusted here"
    return "the connection was refused, or there is no such host"
