"""Tests why a node could not pull an image, in the words of containerd, CRI-O and the kubelet."""

from __future__ import annotations

import re
from typing import Any

import pytest

from bootstrap.errors import ImageMissing, WrongArchitecture
from bootstrap.kube import pulls, trouble
from rayside.errors import Forbidden
from tests.unit.bootstrap.test_trouble import container, event, explained, pod, waits
from tests.unit.scripted_objects import objects

IMAGE = "registry.test:5000/team/forbidden-app:401"
_PULL = f'failed to pull and unpack image "{IMAGE}": failed to resolve reference "{IMAGE}": '
_HEAD = f'{_PULL}failed to do request: Head "https://registry.test:5000/v2/team/denied/manifests/401": '
_DOCKER = 'Error response from daemon: Head "https://registry.test/v2/team/app/manifests/401": '
WORDS = {
    "name": [
        f"rpc error: code = NotFound desc = {_PULL}{IMAGE}: not found",
        "reading manifest 401 in registry.test/app: manifest unknown: manifest unknown",
        f"{_DOCKER}manifest unknown",
    ],
    "login": [
        f"{_PULL}failed to authorize: failed to fetch anonymous token: unexpected status: 401 Unauthorized",
        f"{_PULL}unexpected status from HEAD request to https://registry.test/v2/: 403 Forbidden",
        "reading manifest 1 in registry.test/app: authentication required",
        f"{_DOCKER}denied",
        f"{_DOCKER}no basic auth credentials",
        f"{_DOCKER}unauthorized: authentication required",
    ],
    "name-or-login": [
        f"{_PULL}pull access denied, repository does not exist or may require authorization: server message",
    ],
    "tls": [
        f"{_HEAD}x509: certificate signed by unknown authority",
        f"{_HEAD}tls: failed to verify certificate: x509: certificate signed by unknown authority",
        f"{_HEAD}x509: certificate has expired or is not yet valid: current time 2020-01-01T00:00:00Z "
        "is before 2026-11-01T00:00:00Z",
        f"{_HEAD}x509: certificate is valid for other.test, not registry.test",
        f"{_HEAD}http: server gave HTTP response to HTTPS client",
    ],
    "unreachable": [
        f"{_HEAD}dial tcp: lookup registry.test on 172.18.0.1:53: no such host",
        f"{_HEAD}dial tcp: lookup registry.test: i/o timeout",
        f"{_HEAD}proxyconnect tcp: dial tcp: lookup proxy.test on 172.18.0.1:53: no such host",
        f"{_HEAD}Proxy Authentication Required",
        f"{_HEAD}dial tcp 192.0.2.1:5000: connect: connection refused",
        f"{_HEAD}dial tcp 192.0.2.1:5000: i/o timeout",
        f"{_HEAD}context deadline exceeded",
        f"{_HEAD}EOF",
        f"{_HEAD}unexpected EOF",
        "failed to extract layer sha256:0: mount callback failed on /var/lib/x: unexpected EOF: unknown",
    ],
    "architecture": [
        f'failed to pull and unpack image "{IMAGE}": no match for platform in manifest: not found'
    ],
    "busy": [f"{_PULL}unexpected status code: 429 Too Many Requests - toomanyrequests: You have reached"],
    "disk": [f'failed to extract layer sha256:0: write /var/lib/x: no space left on device: "{IMAGE}"'],
    "never": [f'Container image "{IMAGE}" is not present with pull policy of Never'],
}


@pytest.mark.parametrize(("name", "words"), [(name, text) for name, texts in WORDS.items() for text in texts])
def test_each_cause_is_known_by_its_words_and_the_images_name_is_none(name: str, words: str) -> None:
    found = pulls.cause(words, IMAGE)
    assert found is not None
    assert found.name == name
    error = explained(pod(container(waits("ErrImagePull", words), image=IMAGE)))
    assert type(error) is (WrongArchitecture if name == "architecture" else ImageMissing)
    assert f"has no image {IMAGE}: {found.why}: " in error.message
    assert error.hint == found.hint


def test_what_is_not_known_is_told_as_it_is() -> None:
    assert pulls.cause("the moon is in the way", IMAGE) is None
    error = explained(pod(container(waits("ImagePullBackOff", "the moon"), image=IMAGE)))
    assert error.message.endswith(f"has no image {IMAGE}: the moon")
    assert "check its name and tag" in error.hint


def test_while_it_waits_for_the_next_try_the_events_tell_why() -> None:
    words = WORDS["tls"][2]
    failed = event("Failed", f'Failed to pull image "{IMAGE}": {words}')
    later = container(waits("ImagePullBackOff", f'Back-off pulling image "{IMAGE}"'), image=IMAGE)
    error = explained(pod(later), (event("Failed", "Error: ErrImagePull"), failed))
    assert "agree on no TLS" in error.message


def waiting(words: str = WORDS["login"][0], secret: str = "login") -> dict[str, Any]:
    """Returns a pod that waits for its image, which is pulled by a Secret."""
    document: dict[str, Any] = pod(container(waits("ErrImagePull", words), image=IMAGE))
    document["spec"]["imagePullSecrets"] = [{"name": secret}]
    return document


@pytest.mark.parametrize(
    ("secret", "cause"),
    [
        (None, "a Secret with a login is named that is not there"),
        ({"type": "Opaque"}, "the Secret with its login has the wrong type"),
        ({"type": "kubernetes.io/dockerconfigjson"}, "the registry wants a login"),
    ],
)
def test_what_is_wrong_with_the_secret_of_a_login_is_said_first(
    secret: dict[str, Any] | None, cause: str
) -> None:
    kube = objects(objects={"/api/v1/namespaces/team/secrets/login": secret})
    trouble.add_last_words(kube, document := waiting())
    assert f": {cause}" in explained(document).message


@pytest.mark.parametrize("is_told_before", [True, False])
def test_a_secret_is_no_cause_where_the_registry_was_not_reached(is_told_before: bool) -> None:
    kube = objects(objects={"/api/v1/namespaces/team/secrets/login": None})
    words = WORDS["unreachable"][0]
    document = waiting("Back-off pulling image" if is_told_before else words)
    trouble.add_last_words(kube, document)
    failed = event("Failed", f'Failed to pull image "{IMAGE}": {words}')
    error = explained(document, (failed,) if is_told_before else ())
    assert "the node does not reach the registry" in error.message


def test_a_secret_of_a_name_that_is_a_path_is_not_asked_for() -> None:
    for name in ("../pods/evil/log?follow=true", ""):
        assert "is not there" in pulls.fault_of_secrets(objects(objects={}), waiting(secret=name))


def test_who_may_not_read_secrets_is_told_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    kube = objects(objects={})

    def refuse(path: str, **query: str) -> None:
        raise Forbidden("no", hint="")

    monkeypatch.setattr(type(kube), "get", lambda self, path, **query: refuse(path))
    trouble.add_last_words(kube, document := waiting())
    assert "the registry wants a login" in explained(document).message


def test_no_cause_is_there_twice_and_each_says_what_to_do() -> None:
    names = [cause.name for _, cause in pulls._CAUSES]
    assert len(set(names)) == len(names)
    assert set(names) - {"no-secret", "secret-type"} == set(WORDS)
    assert all(re.match("[a-z./]", cause.hint) for _, cause in pulls._CAUSES)
