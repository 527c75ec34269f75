"""Asks a Ray whether it wants a token, and finds the token where Ray itself would look for it.

Sources: https://docs.ray.io/en/latest/ray-security/token-auth.html, and `/api/authentication_mode` in
ray/dashboard/http_server_head.py (2.60), which answers everybody.
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
# No answer to these questions is longer.
_LONGEST = 100_000
# Ray's tokens are some dozens of characters; what is longer is some other file.
_LONGEST_TOKEN = 4_096


def mode(url: str) -> str:
    """Returns TOKEN or DISABLED, for the Ray whose dashboard is at `url`; a Ray before 2.52 has no tokens.

    Raises NotRunning where nothing answers there, and NotRay where something else does.
    """
    try:
        with requests.Session() as session:
            # Neither a proxy of the environment nor ~/.netrc has to do with it, as in `Dashboard`.
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
    """Returns the mode of a Ray that a program started here gets; empty where that is Ray's choice."""
    return environment.get("RAY_AUTH_MODE", "").strip().lower()


def token(named: str, environment: Mapping[str, str] = os.environ) -> str:
    """Returns Ray's token: of the file `named`, or, if that is empty, of the places where Ray looks for it.

    Raises CredentialsRefused where there is none, or what is there is no token.
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
    """Returns the error for a Ray that asks for tokens of Kubernetes: each pod has another one there.

    A worker's debugger asks for the token that its own pod has.
    """
    return KubernetesTokens(
        f"the Ray at {place} takes tokens of Kubernetes (enableK8sTokenAuth): its workers can't be debugged",
        hint="leave enableK8sTokenAuth out of its authOptions: KubeRay then makes one token for all pods",
    )


def is_of_kubernetes(token: str) -> bool:
    """Returns whether Kubernetes has made the token, for a service account."""
    return "kubernetes.io" in _claims(token)


def expiry(token: str) -> str:
    """Returns `, which expired on` a date, for a token that says of itself that it has; else nothing."""
    until = _claims(token).get("exp")
    now = datetime.now(timezone.utc)
    if not isinstance(until, int | float) or until >= now.timestamp():
        return ""
    return f", which expired on {datetime.fromtimestamp(until, timezone.utc):%Y-%m-%d %H:%M} UTC"


def _claims(token: str) -> dict[str, Any]:
    """Returns the claims of a JSON Web Token, unverified (RFC 7519); none of another token."""
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
