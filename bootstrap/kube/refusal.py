"""Error responses of the Kubernetes API: the meaning of each, and the one thing to do."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from bootstrap.errors import FieldConflict
from rayside.connection.heads import forbidden
from rayside.errors import ClusterUnreachable, CredentialsRefused, Forbidden, RaysideError
from rayside.plain import line

# Limit: characters that are shown of a redirect's address.
_LONGEST_ADDRESS = 200


def refusal(url: str, method: str, path: str, status: int, body: bytes) -> RaysideError:
    """Returns the error for a response other than success, `not found` and `not authorized`."""
    reason = words(body)
    if status == 403:
        return _forbidden(method, path, reason)
    if managers := _managers(body):
        fields = [f'"{manager}" owns {field}' for manager, field in managers]
        conflict = FieldConflict(
            f"conflict on {path}: {'; '.join(fields)}",
            hint="take back what was set there, then ./invokew up",
        )
        conflict.managers = frozenset(manager for manager, _ in managers)
        return conflict
    return ClusterUnreachable(
        f"the Kubernetes API at {url} refused {method} {path}: {status} {reason}".rstrip(),
        hint="./invokew status shows what is left",
    )


def redirected(url: str, method: str, path: str, location: str) -> ClusterUnreachable:
    """Returns the error for a redirect, to which no credentials or contents are sent."""
    where = line(without_user(location.partition("?")[0]), _LONGEST_ADDRESS)
    return ClusterUnreachable(
        f"the Kubernetes API at {url} sends {method} {path} to {where}, where it was not sent",
        hint="have the kubeconfig name the API's own address as the server",
    )


def without_user(url: str) -> str:
    """Returns the URL without a user name and password, also if it is malformed."""
    return re.sub(r"^(\w[\w+.-]*://)?.*@", r"\1", url, flags=re.DOTALL)


def refused(kubeconfig: Path, context: str) -> CredentialsRefused:
    """Returns the error for credentials that the API refuses."""
    return CredentialsRefused(
        f"the Kubernetes API refuses the credentials of {context} in {kubeconfig}, or they have expired",
        hint="log in to the cluster again; a kind cluster: ./invokew down, then ./invokew up",
    )


def _forbidden(method: str, path: str, reason: str) -> Forbidden:
    """Returns the error for a 403, which may also come from a quota or an admission rule."""
    _, root, *rest = path.split("/")
    if root not in ("api", "apis"):
        return Forbidden(
            f"permission denied by Kubernetes: {method.lower()} {path}",
            hint=f'ask for a ClusterRole with the rule {{nonResourceURLs: ["{path}"], verbs: ["get"]}}',
        )
    group, rest = ("", rest[1:]) if root == "api" else (rest[0], rest[2:])
    namespace = rest[1] if rest[:1] == ["namespaces"] and len(rest) > 1 else ""
    rest = rest[2:] if len(rest) > 2 and namespace else rest
    verbs = {"GET": "get" if len(rest) > 1 else "list", "POST": "create"}
    verb, resource = verbs.get(method, method.lower()), "/".join([*rest[:1], *rest[2:]])
    # An apply that makes an object may need `create`: the API names the missing permission.
    if named := re.search(r'cannot (\w+) resource "([^"]+)"', reason):
        verb, resource = named.groups()
    elif reason:
        return Forbidden(f"Kubernetes forbids {method} {path}: {reason}", hint="change what it names")
    return forbidden(verb, resource, group, namespace)


def words(body: bytes) -> str:
    """Returns the API's message for an error; empty if there is none."""
    return str(_status(body).get("message") or "")


def _managers(body: bytes) -> list[tuple[str, str]]:
    """Returns the managers that an apply conflicts with, each with its field, as in `.spec.replicas`."""
    causes = (_status(body).get("details") or {}).get("causes") or []
    conflicts = [cause for cause in causes if cause.get("reason") == "FieldManagerConflict"]
    # The message is as in `conflict with "kubectl" using apps/v1`.
    managers = [
        cause["message"].removeprefix("conflict with ").split(" ")[0].strip('"') for cause in conflicts
    ]
    return [(manager, cause["field"]) for manager, cause in zip(managers, conflicts, strict=True)]


def _status(body: bytes) -> dict[str, Any]:
    """Returns an error's Status, as in k8s.io/apimachinery, pkg/apis/meta/v1/types.go."""
    try:
        return dict(json.loads(body))
    except (ValueError, TypeError):
        return {}
