"""Does one request to a registry, or to a place that it names, and reads the answer within bounds.

Whoever answers is a stranger. A login goes to the registry's own address alone; nobody is followed to a place
without TLS, nor anywhere with what is sent; and what they say is read to a bound. The environment names
proxies and certificates, as Requests reads it, but not for this machine's own addresses.
"""

from __future__ import annotations

import re
import ssl
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urljoin, urlsplit

from bootstrap.download import innermost, reason
from bootstrap.errors import RegistryRefused, RegistryUnreachable
from bootstrap.plain import line
from bootstrap.registry.address import Address, is_loopback

if TYPE_CHECKING:
    from requests import PreparedRequest, Response, Session

# A connection may take so many seconds, and so may the next byte.
_PATIENCE = (10, 60)
_PIECE = 64 * 1024
# So many times in a row one is sent elsewhere for a content.
_MOST_HOPS = 5
_ELSEWHERE = frozenset({301, 302, 303, 307, 308})
# What may be wrong with a certificate besides its authority; another name, and another IP address:
# https://docs.openssl.org/3.0/man3/X509_STORE_CTX_get_error/#error-codes
_NOT_YET_VALID, _EXPIRED, _OTHER_NAMES = 9, 10, frozenset({62, 64})
# What http.client says of a proxy that refuses, with its status first; of these two another try may help.
_REFUSED_BY_A_PROXY = re.compile(r"(?<=Tunnel connection failed: )((?!408|429)4\d\d).*")
_DEFAULT_PORTS = {"http": 80, "https": 443}


class Body:
    """A content of a known size, which is sent piece by piece."""

    def __init__(self, content: Iterator[bytes], size: int) -> None:
        self._content, self._size = content, size

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[bytes]:
        return self._content


class Broken(Exception):
    """Nobody answered, or the answer broke off: `error` says so; another try may help."""

    def __init__(self, error: RegistryUnreachable) -> None:
        super().__init__(error.message)
        self.error = error


@dataclass(frozen=True)
class Answer:
    """An answer, whose text was read to a bound; `url` is who gave it."""

    status: int
    headers: Mapping[str, str]
    text: bytes
    url: str


@dataclass(frozen=True)
class Content(AbstractContextManager["Content"]):
    """A content that is asked for, of which only the head was read."""

    status: int
    headers: Mapping[str, str]
    pieces: Iterator[bytes]
    url: str
    # Ends the connection, where it is still there.
    close: Callable[[], None]

    def __exit__(self, *_: object) -> None:
        self.close()

    def whole(self, most: int) -> Answer:
        """Returns the answer with at most so many bytes of it. Raises Broken."""
        text = b""
        with self:
            for piece in self.pieces:
                text += piece[: most - len(text)]
                if len(text) == most:
                    break
        return Answer(self.status, self.headers, text, self.url)


@dataclass(frozen=True)
class Pace:
    """So many bytes have to come within so many seconds of waiting for them, or all that is left.

    The default is 1.1 kB/s. A Wi-Fi of 20 kB/s gives each of the four contents that come at once 5 kB/s, and
    may be silent for most of a minute.
    """

    size: int = 64 * 1024
    seconds: float = 60.0


@dataclass(frozen=True)
class Exchange:
    """Requests to the registry at `address`.

    Attributes:
        authority: the file of certificates that are trusted for it, and for whom it leads to, besides those
            of this machine.
        pace: at which each answer has to come; one that is slower breaks off.
    """

    address: Address
    authority: Path | None = None
    pace: Pace = Pace()
    _local: threading.local = field(default_factory=threading.local, repr=False)
    _ended: threading.Event = field(default_factory=threading.Event, repr=False)

    @property
    def root(self) -> str:
        """Returns where its interface is; as for the Docker engine, with TLS unless it is on this machine."""
        scheme = "http" if self.address.is_loopback and not self.authority else "https"
        return f"{scheme}://{self.address.host}/v2/"

    def is_own(self, url: str) -> bool:
        """Returns whether a URL is the registry's own."""
        return _origin(url) == _origin(self.root)

    def place(self, url: str, named: str) -> str:
        """Returns the URL that an answer from `url` names. Raises RegistryRefused where none may go there."""
        try:
            place = urljoin(url, named)
            parts = urlsplit(place)
            safe = parts.scheme == "https" or (parts.scheme == "http" and self._is_here(parts.hostname or ""))
            if safe and _origin(place)[1]:
                return place
        except ValueError:
            pass
        raise RegistryRefused(
            f"the registry {self.address} leads to {line(named, 100)!r}, which is no address of HTTPS",
            hint="ask who looks after it",
        )

    def ask(self, method: str, url: str, most: int, *, authorization: str = "", **more: Any) -> Answer:
        """Does it, and reads at most so many bytes of the answer. Raises Broken, RegistryRefused."""
        return self._answered(method, url, authorization, **more).whole(most)

    def content(self, url: str, *, authorization: str, headers: Mapping[str, str]) -> Content:
        """Asks for a content, and reads only its head yet. Raises Broken, RegistryRefused."""
        return self._answered("GET", url, authorization, headers=headers)

    def token(self, realm: str, query: list[tuple[str, str]], authorization: str, most: int) -> Answer:
        """Asks who gives tokens: whom the registry names gets the login. Raises Broken, RegistryRefused."""
        return self._once("GET", self.place(self.root, realm), authorization, params=query).whole(most)

    def end(self) -> None:
        """Has whatever is under way in other threads end with its next piece."""
        self._ended.set()

    @property
    def has_ended(self) -> bool:
        return self._ended.is_set()

    def wait(self, seconds: float) -> None:
        """Waits so long, or to the end."""
        self._ended.wait(seconds)

    def _answered(self, method: str, url: str, authorization: str, **more: Any) -> Content:
        """Does it, and goes where it is sent to for a content."""
        for _ in range(_MOST_HOPS):
            answer = self._once(method, url, authorization if self.is_own(url) else "", **more)
            if answer.status not in _ELSEWHERE or method not in ("GET", "HEAD"):
                return answer
            answer.close()
            url = self.place(url, answer.headers.get("Location", ""))
        raise RegistryRefused(
            f"the registry {self.address} leads to one place after another", hint="ask who looks after it"
        )

    def _once(self, method: str, url: str, authorization: str, **more: Any) -> Content:
        from requests.exceptions import ProxyError, SSLError
        from urllib3.exceptions import HTTPError

        if self.has_ended:
            raise Broken(self.unreachable(OSError("it was ended")))
        # If it were compressed on the way, a range would count other bytes than the content's.
        headers = {"Accept-Encoding": "identity", **more.pop("headers", {})}
        try:
            session = self._session(_origin(url)[1])
            answer: Response = session.request(
                method,
                url,
                auth=_Authorization(authorization),
                headers=headers,
                timeout=_PATIENCE,
                stream=True,
                **more,
            )
        except SSLError as error:
            raise self._insecure(url, error) or Broken(self.unreachable(error)) from None
        except ProxyError as error:
            raise self._refused_by_a_proxy(url, error) or Broken(self.unreachable(error)) from None
        # Of a name that is none, urllib3 raises what is no OSError.
        except (OSError, ValueError, HTTPError) as error:
            raise Broken(self.unreachable(error)) from None
        pieces = self._pieces(answer)
        return Content(answer.status_code, answer.headers, pieces, answer.url, answer.close)

    def _pieces(self, answer: Response) -> Iterator[bytes]:
        """Yields what is sent, as it is sent. Raises Broken."""
        from urllib3.exceptions import HTTPError

        try:
            for piece in answer.raw.stream(_PIECE, decode_content=False):
                if self.has_ended:
                    raise OSError("it was ended")
                yield piece
        except (OSError, ValueError, AttributeError, HTTPError) as error:
            raise Broken(self.unreachable(error)) from None

    def _session(self, host: str) -> Session:
        """Returns this thread's connections to this machine, or to others."""
        from bootstrap.registry.paced import paced

        kind = "here" if is_loopback(host) else "there"
        session: Session | None = getattr(self._local, kind, None)
        if session is None:
            session = _straight()
            session.trust_env = kind == "there"
            # Its tokens and its storage are often on other hosts, to which the same company's authority has
            # given certificates.
            context = _trusting(self.authority) if self.authority else None
            session.mount("http://", paced(self.pace))
            session.mount("https://", paced(self.pace, context))
            setattr(self._local, kind, session)
        return session

    def _is_here(self, host: str) -> bool:
        return self.address.is_loopback and is_loopback(host)

    def unreachable(self, error: Exception) -> RegistryUnreachable:
        """Returns the error that it was not reached, or that its answer did not come to an end."""
        from bootstrap.registry.paced import TooSlow

        hint = "correct its name; or set HTTPS_PROXY where this machine needs one, and NO_PROXY where not"
        if isinstance(innermost(error), TooSlow):
            hint = "where the line is better, run the command again; else ask who looks after the registry"
        return RegistryUnreachable(
            f"the registry {self.address} can't be reached: {line(reason(error), 300)}", hint=hint
        )

    def _refused_by_a_proxy(self, url: str, error: Exception) -> RegistryUnreachable | None:
        """Returns the error that a proxy does not lead there; None where it may do so in a moment."""
        refusal = _REFUSED_BY_A_PROXY.search(str(innermost(error)))
        if refusal is None:
            return None
        hint = "have the proxy's keeper let it through, or name it in NO_PROXY where this machine needs none"
        if int(refusal[1]) == HTTPStatus.PROXY_AUTHENTICATION_REQUIRED:
            hint = "the proxy wants a login, or another one: HTTPS_PROXY=http://NAME:PASSWORD@HOST:PORT"
        return RegistryUnreachable(
            f"{self._named(url)} is not reached, for the proxy refuses: HTTP {line(refusal[0], 200).strip()}",
            hint=hint,
        )

    def _insecure(self, url: str, error: Exception) -> RegistryUnreachable | None:
        """Returns the error of a certificate, or that there is no TLS; None where only the line broke."""
        cause = innermost(error)
        if isinstance(cause, ssl.SSLCertVerificationError):
            return RegistryUnreachable(
                f"the certificate of {self._named(url)} is not trusted: {line(reason(error), 300)}",
                hint=self._hint_of_certificate(cause.verify_code),
            )
        # So OpenSSL calls an answer that is no TLS.
        if isinstance(cause, ssl.SSLError) and cause.reason == "WRONG_VERSION_NUMBER":
            hint = "correct its port, or have TLS set up there: only one on this machine may go without"
            if self.address.is_loopback and self.is_own(url):
                hint = (
                    f"leave out the setting registry_ca, or {self.address.certificates}: here it needs no TLS"
                )
            return RegistryUnreachable(f"{self._named(url)} speaks no TLS", hint=hint)
        return None

    def _hint_of_certificate(self, code: int) -> str:
        """Returns what to do where OpenSSL refuses a certificate with that code."""
        if code == _NOT_YET_VALID:
            return "set this machine's clock; if that is right, ask who looks after the registry"
        if code == _EXPIRED:
            return "if this machine's clock is right, ask who looks after the registry for a new certificate"
        if code in _OTHER_NAMES:
            return "name the registry as its certificate does, or ask who looks after it"
        return (
            "name your company's authority, also where a proxy has its own: "
            f"INVOKE_RAYSIDE_REGISTRY_CA=FILE, or {self.address.certificates}"
        )

    def _named(self, url: str) -> str:
        """Returns who answers at a URL, for people."""
        if self.is_own(url):
            return f"the registry {self.address}"
        return f"{line(_origin(url)[1], 100)}, to which the registry {self.address} leads,"


class _Authorization:
    """Sends this header, or none: Requests would send what ~/.netrc has."""

    def __init__(self, value: str) -> None:
        self._value = value

    def __call__(self, request: PreparedRequest) -> PreparedRequest:
        if self._value:
            request.headers["Authorization"] = self._value
        return request


def _straight() -> Session:
    """Returns a session that follows nobody: Requests would read all that comes with a redirection."""
    from requests import Session

    class Straight(Session):
        def get_redirect_target(self, resp: Response) -> None:
            return None

    return Straight()


def _trusting(authority: Path) -> ssl.SSLContext:
    """Returns what trusts those whom that authority has signed, too. Raises OSError."""
    context = ssl.create_default_context()
    context.load_verify_locations(authority)
    return context


def _origin(url: str) -> tuple[str, str, int]:
    """Returns scheme, host and port. Raises ValueError where the URL has no such."""
    parts = urlsplit(url)
    port = parts.port or _DEFAULT_PORTS.get(parts.scheme, 0)
    return parts.scheme, (parts.hostname or "").lower(), port


def pause_of(answer: Answer) -> float:
    """Returns the seconds after which one may ask again, as the answer has it; 0 where it has none."""
    after = answer.headers.get("Retry-After", "")
    return float(after) if re.fullmatch("[0-9]{1,5}", after) else 0.0
