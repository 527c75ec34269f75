"""Causes of failed image pulls, by the container runtime's messages.

The messages come from containerd (core/remotes/docker), CRI-O (containers/image), and Go's net and
crypto/x509. They are in the message of a waiting container, and in the pod's events.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from bootstrap.kube.api import CORE, Kube
from rayside.errors import Forbidden
from rayside.options import is_kubernetes_name
from rayside.plain import line


@dataclass(frozen=True)
class Cause:
    """Cause of a failure, as the end of a sentence, and the one thing to do.

    `why` is empty if the message itself says it best.
    """

    name: str
    why: str
    hint: str


Table = Sequence[tuple[str, Cause]]
Otherwise = TypeVar("Otherwise", Cause, None)


def first(table: Table, words: str, otherwise: Otherwise) -> Cause | Otherwise:
    """Returns the first cause whose pattern is in the message, ignoring case, or `otherwise`."""
    found = (cause for pattern, cause in table if re.search(pattern, words, re.IGNORECASE))
    return next(found, otherwise)


# Types of Secrets that the kubelet accepts as a login (pkg/credentialprovider/secrets/secrets.go).
_TYPES = ("kubernetes.io/dockerconfigjson", "kubernetes.io/dockercfg")
_SECRET = "kubectl create secret docker-registry NAME --docker-server=HOST makes one"


_OF_SECRETS, _OF_LOGINS = ("no-secret", "secret-type"), ("login", "name-or-login")
_NO_SECRET = "is not there, and its imagePullSecrets name it"
_WRONG_TYPE = f"and the kubelet takes a login only from {_TYPES[0]}"
# The first match counts. docs/troubleshooting.md distinguishes them further.
_CAUSES: Table = (
    (
        _NO_SECRET,
        Cause(
            "no-secret",
            "a Secret with a login is named that is not there",
            f"make it in the pod's namespace, or correct imagePullSecrets: {_SECRET}",
        ),
    ),
    (
        _WRONG_TYPE,
        Cause(
            "secret-type",
            "the Secret with its login has the wrong type",
            f"make it anew, of the right type: {_SECRET}",
        ),
    ),
    (
        r"x509:|tls: |http response to https client",
        Cause(
            "tls",
            "the node and the registry agree on no TLS",
            "compare `date` on the node with the true time; or give the node the CA certificate, or "
            "http:// where it has no TLS: /etc/containerd/certs.d/HOST/hosts.toml",
        ),
    ),
    (
        r"proxyconnect|proxy authentication required|no such host|server misbehaving|name resolution"
        r"|i/o timeout|connection refused|no route to host|network is unreachable|deadline exceeded"
        r"|handshake timeout|connection reset|connection timed out|unexpected eof|: eof$",
        Cause(
            "unreachable",
            "the node does not reach the registry",
            "correct the registry in the image's name, or the node's DNS; behind a firewall, give the node a "
            "mirror, or a proxy (HTTPS_PROXY and NO_PROXY of its container runtime)",
        ),
    ),
    (
        r"toomanyrequests|too many requests",
        Cause(
            "busy",
            "the registry refuses so many requests (429)",
            "wait, log in there, or have the images in a registry of your own: ./invokew mirror REGISTRY",
        ),
    ),
    (
        r"no match for platform|no matching manifest|no image found in (manifest|image) list",
        Cause(
            "architecture",
            "it is not there for the node's processor architecture",
            "use an image for that architecture (kubectl get node -o wide; uname -m)",
        ),
    ),
    (
        r"no space left on device",
        Cause(
            "disk",
            "the node's disk is full",
            "free some there: crictl rmi --prune removes images that nothing uses",
        ),
    ),
    (
        r"pull access denied|repository does not exist or may require",
        Cause(
            "name-or-login",
            "the registry has no such name, or hides it from who is not logged in",
            f"correct the name; or name a Secret in imagePullSecrets: {_SECRET}",
        ),
    ),
    (
        r"unauthorized|authorization failed|no basic auth|authentication required|insufficient.scope"
        r"|forbidden|denied",
        Cause(
            "login",
            "the registry wants a login that the pod does not have",
            f"name a Secret with one in imagePullSecrets: {_SECRET}",
        ),
    ),
    (
        r"not present with pull policy of never",
        Cause(
            "never",
            "the node does not have it, and is told to pull it from nowhere",
            "./invokew up loads our images again; for your own: kind load docker-image, or IfNotPresent",
        ),
    ),
    (
        r"not found|manifest unknown|name unknown",
        Cause("name", "the registry has no such name or tag", "correct the image's name and tag"),
    ),
)


def cause(words: str, image: str = "") -> Cause | None:
    """Returns the cause in a runtime's message about an image; None if it is unknown."""
    # Names and addresses, which are mostly quoted, may contain any words.
    text = re.sub(r'"[^"]*"', '""', words.replace(image, "IMAGE") if image else words)
    return first(_CAUSES, text, None)


def told(texts: Sequence[str], image: str) -> tuple[str, Cause] | None:
    """Returns the first text with a known cause, and that cause; None if there is none.

    A fault of a Secret counts only if the registry asked for a login, or there is no other cause.
    """
    known = [(text, found) for text in texts for words in text.splitlines() if (found := cause(words, image))]
    of_secrets = next((each for each in known if each[1].name in _OF_SECRETS), None)
    other = next((each for each in known if each[1].name not in _OF_SECRETS), None)
    return of_secrets if other is None or (of_secrets and other[1].name in _OF_LOGINS) else other


def is_ours(image: str) -> bool:
    """Returns whether Rayside builds the image, and delivers it to the nodes."""
    return image.removeprefix("docker.io/").startswith("rayside/")


def fault_of_secrets(kube: Kube, pod: Mapping[str, Any]) -> str:
    """Returns the fault of a pod's pull Secrets; empty if there is none.

    Only a Secret's type is checked, if this user may read it. Raises ClusterUnreachable.
    """
    named: Sequence[Mapping[str, str]] = pod.get("spec", {}).get("imagePullSecrets") or []
    for name in (str(each.get("name", "")) for each in named):
        # Kubernetes accepts any name of a Secret in a pod, also a path.
        if not is_kubernetes_name(name):
            return f"the Secret {line(name, 100)!r} {_NO_SECRET}"
        try:
            secret = kube.get(f"{CORE}/namespaces/{kube.namespace}/secrets/{name}")
        except Forbidden:
            continue
        if secret is None:
            return f"the Secret {name} {_NO_SECRET}"
        if secret.get("type") not in _TYPES:
            return f"the Secret {name} has the type {secret.get('type')}, {_WRONG_TYPE}"
    return ""
