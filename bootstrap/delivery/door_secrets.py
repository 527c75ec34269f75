"""Secrets of a workshop's front door: its list of places, and the attendees' claims."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import secrets
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from bootstrap.kube.api import CORE, Kube
from rayside.errors import NotReady

LIST, _CLAIMS = "places.json", "claims.json"
# Attempts to release a claim, as the door may write at the same time.
_TRIES = 10


@dataclass(frozen=True)
class Entry:
    """A place in the door's list; with an empty `attendee`, anybody may claim it."""

    name: str
    attendee: str
    url: str
    password: str


@dataclass(frozen=True)
class Claim:
    """Claim of a place: the name that the attendee gave, and since when, in UTC."""

    attendee: str
    since: str


@dataclass(frozen=True)
class Listed:
    """The door's list of places, with its keys and URLs.

    Attributes:
        title: heading of its page.
        key: in the room's link.
        teacher_key: in the link of the teacher's page.
        url: the door's URL for attendees.
        teacher_url: URL of the teacher's page.
        home: URL from which attendees clone Rayside at home; empty if unknown.
    """

    title: str
    key: str
    teacher_key: str
    url: str
    teacher_url: str
    home: str = ""
    places: tuple[Entry, ...] = ()

    @property
    def is_by_ingress(self) -> bool:
        """Returns whether attendees connect through an Ingress: the URL of a port forward has a port."""
        return urlsplit(self.url).port is None

    def text(self) -> str:
        return json.dumps({**vars(self), "places": [vars(entry) for entry in self.places]}, indent=1)


def new_key() -> str:
    """Returns a random key for a link."""
    return secrets.token_urlsafe(12)


@dataclass(frozen=True)
class DoorSecrets:
    """Secrets of a door: its list, its claims and its certificate; their names begin with `label`."""

    kube: Kube
    label: str

    @property
    def claims_name(self) -> str:
        return f"{self.label}-claims"

    def told(self) -> Listed | None:
        """Returns the door's list; None if there is none, or its format is unknown."""
        content = self._secret(self.label, LIST)
        try:
            document = json.loads(content)
            places = tuple(Entry(**entry) for entry in document.pop("places"))
            return Listed(**document, places=places)
        except (ValueError, TypeError, KeyError, AttributeError):
            return None

    def fingerprint(self) -> str:
        """Returns the SHA-256 of its certificate, as browsers show it; empty if it has none yet."""
        for name in (f"{self.label}-tls", self.claims_name):
            with contextlib.suppress(ValueError):
                first, end, _ = self._secret(name, "tls.crt").partition("-----END CERTIFICATE-----")
                return hashlib.sha256(ssl.PEM_cert_to_DER_cert(first + end)).digest().hex(":").upper()
        return ""

    def claims(self) -> dict[str, Claim]:
        """Returns the claims by name of the place; attendees' names are as they gave them."""
        content = self._secret(self.claims_name, _CLAIMS)
        try:
            document = json.loads(content)
            return {
                str(name): Claim(str(claim["attendee"]), str(claim["since"]))
                for name, claim in document.items()
            }
        except (ValueError, TypeError, KeyError, AttributeError):
            return {}

    def free(self, place: str) -> bool:
        """Releases a place, which logs its browsers out a moment later; returns whether it was claimed.

        Raises NotReady if the door writes all the time.
        """
        path = f"{CORE}/namespaces/{self.kube.namespace}/secrets/{self.claims_name}"
        for _ in range(_TRIES):
            document = self.kube.get(path) or {}
            with contextlib.suppress(ValueError, AttributeError):
                claims = json.loads(_value(document, _CLAIMS))
                if claims.pop(place, None) is None:
                    return False
                text = base64.b64encode(json.dumps(claims).encode()).decode()
                if self.kube.replace(path, document["metadata"]["resourceVersion"], {_CLAIMS: text}):
                    return True
                continue
            return False
        raise NotReady(
            f"the claims are being written all the time, and {place} is as it was",
            hint="run the command again",
        )

    def _secret(self, name: str, key: str) -> str:
        return _value(self.kube.get(f"{CORE}/namespaces/{self.kube.namespace}/secrets/{name}") or {}, key)


def _value(secret: Mapping[str, Any], key: str) -> str:
    """Returns a value of a Secret as text; empty if it has none."""
    return base64.b64decode((secret.get("data") or {}).get(key, "")).decode(errors="replace")
