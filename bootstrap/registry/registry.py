"""Is one registry: what it has is asked by digest, and a content is sent to it once.

https://github.com/opencontainers/distribution-spec/blob/v1.1.0/spec.md has all requests.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, TypeVar

from bootstrap.bundle.blobs import Blob
from bootstrap.errors import RaysideError, RegistryRefused
from bootstrap.plain import line
from bootstrap.registry.address import Address
from bootstrap.registry.exchange import Answer, Body, Broken, Content, Exchange, pause_of
from bootstrap.registry.login import Login

Pieces = Callable[[], Iterator[bytes]]
Result = TypeVar("Result")

# What fails for a moment only is tried so often, after so many seconds, twice as many each time.
_TRIES, _PAUSE = 6, 1.0
# A registry that is busy says when to come again; nobody waits longer than this for one answer, in seconds.
_LONGEST_PAUSE = 60.0
# In bytes: an answer that is held in memory, and a manifest, which registries refuse above 4 MiB.
_LONGEST_ANSWER, _LONGEST_MANIFEST = 64 * 1024, 4 * 1024 * 1024
_MOMENTARY = frozenset({408, 429, 500, 502, 503, 504})
_CHALLENGE = re.compile(r'([a-z]+)="([^"]*)"')
_TOKEN = re.compile(r"[\x21-\x7e]{1,16384}")
_FULL = re.compile(r"no space left|quota|upper limit|insufficient storage|disk full", re.IGNORECASE)
_MANIFESTS = "application/vnd.oci.image.manifest.v1+json"


class _Momentary(Exception):
    """A request failed in a way that the next one may not: `error` is what is raised if it does."""

    def __init__(self, error: RaysideError, pause: float = 0.0) -> None:
        super().__init__(error.message)
        self.error, self.pause = error, pause


@dataclass
class _State:
    """What is known by now: the tokens for each scope, and whether the registry has answered at all."""

    tokens: dict[str, str] = field(default_factory=dict, repr=False)
    has_answered: bool = False


@dataclass(frozen=True)
class Registry:
    """A registry, as one who has a login there.

    Attributes:
        login: the name and password of the Docker configuration; None where it has none.
        report: is told when it lets us wait.
    """

    exchange: Exchange
    login: Login | None = None
    report: Callable[[str], None] = lambda _: None
    _state: _State = field(default_factory=_State, repr=False)

    @property
    def address(self) -> Address:
        return self.exchange.address

    def require(self, repository: str) -> None:
        """Asks whether a registry is there that takes contents for a repository, and sends none.

        Raises RegistryUnreachable, RegistryRefused.
        """
        scope, url = _writing(repository), self._url(f"{repository}/blobs/uploads/")
        answer = self._tried(lambda: self._ask("POST", url, scope))
        if answer.status != HTTPStatus.ACCEPTED:
            raise self._refusal(answer, f"to take anything for {repository}", repository)
        place = self.exchange.place(answer.url, answer.headers.get("Location", ""))
        # It ends by itself, too.
        if self.exchange.is_own(place):
            with suppress(_Momentary, RaysideError):
                self._ask("DELETE", place, scope)

    def has(self, repository: str, blob: Blob) -> bool:
        """Returns whether a repository has a content. Raises RegistryUnreachable, RegistryRefused."""
        url = self._url(f"{repository}/blobs/sha256:{blob.digest}")
        answer = self._tried(lambda: self._ask("HEAD", url, _reading(repository)))
        if answer.status == HTTPStatus.NOT_FOUND:
            return False
        if answer.status != HTTPStatus.OK:
            raise self._refusal(answer, f"to be asked for {repository}")
        return answer.headers.get("Content-Length", str(blob.size)) == str(blob.size)

    def send(self, repository: str, blob: Blob, content: Pieces, known_in: str = "") -> int:
        """Gives a content to a repository, and returns the bytes that went over the line.

        `content` yields it from its start, each time it is called. `known_in` names a repository that has it.
        Raises RegistryUnreachable, RegistryRefused.
        """
        return self._tried(lambda: self._upload(repository, blob, content, known_in))

    def manifest(self, repository: str, reference: str, kinds: str = _MANIFESTS) -> bytes | None:
        """Returns the manifest of a tag, or of a digest as in sha256:...; None where there is none.

        `kinds`: the media types that are accepted, with commas between. Raises RegistryUnreachable;
        RegistryRefused, also where it is not the one of that digest.
        """
        url, headers = self._url(f"{repository}/manifests/{reference}"), {"Accept": kinds}
        answer = self._tried(
            lambda: self._ask("GET", url, _reading(repository), _LONGEST_MANIFEST, headers=headers)
        )
        if answer.status == HTTPStatus.NOT_FOUND:
            return None
        if answer.status != HTTPStatus.OK:
            raise self._refusal(answer, f"to give {repository}:{reference}")
        if (
            reference.startswith("sha256:")
            and f"sha256:{hashlib.sha256(answer.text).hexdigest()}" != reference
        ):
            raise self._changed(f"{repository}@{reference}")
        return answer.text

    def name(self, repository: str, tag: str, manifest: bytes) -> None:
        """Gives a manifest to a repository, under a tag; all that it names is there before."""
        url, headers = self._url(f"{repository}/manifests/{tag}"), {"Content-Type": _MANIFESTS}
        answer = self._tried(
            lambda: self._ask("PUT", url, _writing(repository), headers=headers, data=manifest)
        )
        if answer.status != HTTPStatus.CREATED:
            raise self._refusal(answer, f"to take {repository}:{tag}")

    def read(self, repository: str, blob: Blob) -> Iterator[bytes]:
        """Yields a content; its last piece comes once the whole is right.

        Where the line breaks, it goes on from there. Raises RegistryRefused; RegistryUnreachable, also where
        one try after another brings next to nothing.
        """
        hashed, done, held, left = hashlib.sha256(), 0, b"", _TRIES
        while done < blob.size:
            before, error = done, self.exchange.unreachable(OSError("the content breaks off"))
            try:
                for piece in self._pieces(repository, blob, done):
                    hashed.update(piece)
                    done += len(piece)
                    if held:
                        yield held
                    held = piece
            except Broken as broken:
                error = broken.error
                if self.exchange.has_ended:
                    raise error from None
            if done == blob.size:
                break
            # One that gives a few bytes each time would be asked for ever.
            left = left - 1 if done - before < self.exchange.pace.size else _TRIES
            if not left:
                raise error
            self.report("the line broke: going on")
        if hashed.hexdigest() != blob.digest:
            raise self._changed(f"{repository}@sha256:{blob.digest}")
        if held:
            yield held

    def end(self) -> None:
        """Ends what is under way, in whichever thread."""
        self.exchange.end()

    # --- requests ------------------------------------------------------------------------

    def _pieces(self, repository: str, blob: Blob, begin: int) -> Iterator[bytes]:
        """Yields a content from there on. Raises Broken."""
        with self._tried(lambda: self._content(repository, blob, begin)) as content:
            # Some send all of it, whatever they are asked for.
            skip = begin if content.status == HTTPStatus.OK else 0
            left = blob.size - begin
            for piece in content.pieces:
                part = piece[skip:]
                skip -= len(piece) - len(part)
                left -= len(part)
                if left < 0:
                    raise self._changed(f"{repository}@sha256:{blob.digest}")
                if part:
                    yield part

    def _content(self, repository: str, blob: Blob, begin: int) -> Content:
        """Asks for a content from there on. Raises _Momentary, RegistryRefused."""
        url, scope = self._url(f"{repository}/blobs/sha256:{blob.digest}"), _reading(repository)
        headers = {"Range": f"bytes={begin}-"} if begin else {}

        def asked(used: str) -> Content:
            try:
                return self.exchange.content(url, authorization=used, headers=headers)
            except Broken as broken:
                raise _Momentary(broken.error) from None

        used = self._state.tokens.get(scope, "")
        content = asked(used)
        if content.status == HTTPStatus.UNAUTHORIZED:
            content.close()
            # It asks for a login, and is given it by the way.
            self.has(repository, blob)
            content = asked(self._state.tokens.get(scope, ""))
        if content.status in (HTTPStatus.OK, HTTPStatus.PARTIAL_CONTENT):
            return content
        answer = content.whole(_LONGEST_ANSWER)
        self._require_no_moment(answer, "GET")
        raise self._refusal(answer, f"to give {repository}@sha256:{blob.digest[:12]}")

    def _upload(self, repository: str, blob: Blob, content: Pieces, known_in: str) -> int:
        scope = _writing(repository)
        query = {"mount": f"sha256:{blob.digest}", "from": known_in} if known_in else {}
        if known_in:
            scope = f"{scope} {_reading(known_in)}"
        begun = self._ask("POST", self._url(f"{repository}/blobs/uploads/"), scope, params=query)
        if begun.status == HTTPStatus.CREATED and known_in:
            return 0
        if begun.status != HTTPStatus.ACCEPTED:
            raise self._refusal(begun, f"to take anything for {repository}", repository)
        done = self._ask(
            "PUT",
            self.exchange.place(begun.url, begun.headers.get("Location", "")),
            scope,
            params={"digest": f"sha256:{blob.digest}"},
            headers={"Content-Type": "application/octet-stream"},
            data=Body(content(), blob.size),
        )
        if done.status != HTTPStatus.CREATED:
            raise self._refusal(done, f"to take a layer of {repository}")
        return blob.size

    def _ask(self, method: str, url: str, scope: str, most: int = _LONGEST_ANSWER, **more: Any) -> Answer:
        """Does one request, as whom the registry asks for. Raises _Momentary."""
        used = self._state.tokens.get(scope, "")
        answer = self._once(lambda: self.exchange.ask(method, url, most, authorization=used, **more))
        if answer.status == HTTPStatus.UNAUTHORIZED and self.exchange.is_own(answer.url):
            # Another thread may have got one meanwhile.
            if self._state.tokens.get(scope, "") == used:
                self._authenticate(answer, scope)
            token = self._state.tokens.get(scope, "")
            if token != used:
                if isinstance(more.get("data"), Body):  # It has gone, and is sent from its start again.
                    raise _Momentary(self._refusal(answer, "the token, which has run out"))
                answer = self._once(lambda: self.exchange.ask(method, url, most, authorization=token, **more))
        self._require_no_moment(answer, method)
        return answer

    def _once(self, request: Callable[[], Answer]) -> Answer:
        try:
            answer = request()
        except Broken as broken:
            # Of one that has answered, it may be a moment only.
            if not self._state.has_answered or self.exchange.has_ended:
                raise broken.error from None
            raise _Momentary(broken.error) from None
        self._state.has_answered = True
        return answer

    def _require_no_moment(self, answer: Answer, what: str) -> None:
        if answer.status in _MOMENTARY and not _FULL.search(_words(answer)):
            raise _Momentary(self._refusal(answer, f"({what}) for the moment"), pause_of(answer))

    def _authenticate(self, answer: Answer, scope: str) -> None:
        """Gets what the registry asks for: a token from who gives them, or the password itself."""
        challenge = answer.headers.get("WWW-Authenticate", "")
        kind = challenge.partition(" ")[0].lower()
        if kind == "basic" and self.login:
            self._state.tokens[scope] = self.login.basic
        if kind != "bearer":
            return
        asked = dict(_CHALLENGE.findall(challenge))
        query = [(key, asked[key]) for key in ("service",) if key in asked]
        # Each by itself: servers of tokens differ in what they make of several in one.
        query += [("scope", each) for each in (scope or asked.get("scope", "")).split(" ") if each]
        basic = self.login.basic if self.login else ""
        realm = asked.get("realm", "")
        got = self._once(lambda: self.exchange.token(realm, query, basic, _LONGEST_ANSWER))
        self._require_no_moment(got, "a token")
        if got.status != HTTPStatus.OK:
            raise self._refusal(got, "a token")
        try:
            document = json.loads(got.text)
            token = str(document.get("token") or document["access_token"])
        except (ValueError, KeyError, AttributeError, RecursionError):
            token = ""
        if not _TOKEN.fullmatch(token):
            raise RegistryRefused(
                f"the registry {self.address} has its tokens from {line(realm, 100)!r}, which gives none",
                hint="ask who looks after it",
            )
        self._state.tokens[scope] = f"Bearer {token}"

    def _tried(self, action: Callable[[], Result]) -> Result:
        """Does it again where it fails for a moment only. Raises RegistryRefused, RegistryUnreachable."""
        pause = _PAUSE
        for left in range(_TRIES, 0, -1):
            try:
                return action()
            except _Momentary as failure:
                if left == 1:
                    raise failure.error from None
                wait = min(failure.pause or pause, _LONGEST_PAUSE)
                self.report(f"{failure.error.message.partition(': ')[2] or 'no answer'}: again in {wait:g} s")
                self.exchange.wait(wait)
                if self.exchange.has_ended:
                    raise failure.error from None
                pause *= 2
        raise AssertionError("it was tried")

    def _url(self, path: str) -> str:
        return self.exchange.root + path

    # --- what went wrong -----------------------------------------------------------------

    def _refusal(self, answer: Answer, what: str, repository: str = "") -> RegistryRefused:
        """Returns why it did not, in the registry's words, and the one thing to do.

        `repository` is the one that takes nothing, where that was asked.
        """
        status, words = answer.status, _words(answer)
        message = f"the registry {self.address} refuses {what}: HTTP {status}{f', {words}' if words else ''}"
        if status == HTTPStatus.TOO_MANY_REQUESTS:
            hint = "it has too much to do: run the command again later, which goes on from there"
        elif status == HTTPStatus.INSUFFICIENT_STORAGE or _FULL.search(words):
            hint = "it is full: have room made there, then run the command again, which goes on from there"
        elif status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
            as_whom = f"as {self.login.user}" if self.login else "without a login"
            hint = f"it was asked {as_whom}: docker login {self.address.host}, as one who may do that"
        elif status == HTTPStatus.METHOD_NOT_ALLOWED:
            hint = "it is read-only: name one that takes images, or ask who looks after it"
        elif repository and status in (HTTPStatus.NOT_FOUND, HTTPStatus.BAD_REQUEST):
            # Many registries make none by themselves.
            hint = f"make the repository {repository}, or its project, there first, or name another HOST/PATH"
        else:
            hint = "run the command again, which goes on from there; ask who looks after the registry"
        return RegistryRefused(message, hint=hint)

    def _changed(self, what: str) -> RegistryRefused:
        return RegistryRefused(
            f"the registry {self.address} gives another content than {what}",
            hint=f"ask who looks after it; ./invokew mirror {self.address} gives it what it lacks",
        )


def _reading(repository: str) -> str:
    return f"repository:{repository}:pull"


def _writing(repository: str) -> str:
    return f"repository:{repository}:pull,push"


def _words(answer: Answer) -> str:
    """Returns what a registry says of an error, cleaned; empty where it says nothing that can be read.

    https://github.com/opencontainers/distribution-spec/blob/v1.1.0/spec.md#error-codes
    """
    try:
        errors: list[Mapping[str, Any]] = json.loads(answer.text)["errors"]
        first = errors[0]
        detail = first.get("detail")
        parts = [first.get("code"), first.get("message"), json.dumps(detail) if detail else None]
        return line(" ".join(str(part) for part in parts if part), 300)
    except (ValueError, KeyError, IndexError, TypeError, AttributeError, RecursionError):
        return ""
