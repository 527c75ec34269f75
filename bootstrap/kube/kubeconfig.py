"""Kubeconfig: reads one context, and runs its credential plugin.

The keys are defined in k8s.io/client-go, tools/clientcmd/api/v1/types.go. A plugin prints an ExecCredential
(https://kubernetes.io/docs/reference/access-authn-authz/authentication/#client-go-credential-plugins). The
package `kubernetes` runs plugins, too, but without a timeout; it lets them write to the terminal, and
continues without credentials if they fail.
"""

from __future__ import annotations

import atexit
import base64
import json
import os
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rayside import yaml_file
from rayside.errors import CredentialsRefused, InvalidSetting, InvalidYaml, RaysideError
from rayside.plain import line, printed
from rayside.system.shell import Shell

# Timeout in seconds of a plugin, which may ask a server, or open a browser for a login.
_PLUGIN_PATIENCE = 60.0
# Limit: characters that are shown of a plugin's error.
_LONGEST_COMPLAINT = 300


def file_with(context: str, environment: Mapping[str, str] = os.environ) -> tuple[Path, str]:
    """Returns the user's kubeconfig that has a context with its cluster and user, and its namespace.

    Raises InvalidSetting if none has it, InvalidYaml.
    """
    named = [part for part in environment.get("KUBECONFIG", "").split(os.pathsep) if part]
    files = [Path(part) for part in named] or [Path.home() / ".kube" / "config"]
    for file in files:
        try:
            by_kind = entries(file, context)
        except (OSError, KeyError, ValueError, TypeError, AttributeError) as error:
            raise InvalidYaml(f"the kubeconfig {file} can't be read: {error}", hint="correct it") from None
        if by_kind:
            return file.absolute(), str(by_kind["context"].get("namespace") or "default")
    raise InvalidSetting(
        f"no context {line(context)} is in {' or '.join(str(file) for file in files)}",
        hint="kubectl config get-contexts lists them; KUBECONFIG names another file",
    )


def server(file: Path, context: str) -> str:
    """Returns the API's URL, without running a plugin; empty if the file has none."""
    try:
        by_kind = entries(file, context)
        return str(by_kind["cluster"]["server"]).rstrip("/") if by_kind else ""
    except (InvalidYaml, OSError, KeyError, TypeError, ValueError, AttributeError):
        return ""


def entries(file: Path, context: str) -> dict[str, Any] | None:
    """Returns a context with its cluster and its user, by these names; None if one is missing.

    Raises InvalidYaml; TypeError or AttributeError for YAML that is no kubeconfig.
    """
    try:
        document: dict[str, Any] = yaml_file.parse(file.read_text(), str(file)) or {}
    except FileNotFoundError:
        return None
    by_kind: dict[str, Any] = {"context": _named(document, "context", context)}
    for kind in ("cluster", "user"):
        by_kind[kind] = _named(document, kind, (by_kind["context"] or {}).get(kind))
    return None if None in by_kind.values() else by_kind


def _named(document: Mapping[str, Any], kind: str, name: str | None) -> dict[str, Any] | None:
    listed: list[Mapping[str, Any]] = document.get(f"{kind}s") or []
    return next((entry[kind] for entry in listed if entry["name"] == name), None)


# --- plugins -----------------------------------------------------------------------------


def credentials(plugin: Mapping[str, Any], cluster: Mapping[str, Any], file: Path) -> dict[str, str]:
    """Runs a plugin, and returns its credentials as the keys of a kubeconfig's user.

    Raises CredentialsRefused if it gives none; KeyError, TypeError or AttributeError for an invalid `exec`.
    """
    command = str(plugin["command"])
    if os.sep in command:
        command = str(file.parent / command)
    spec: dict[str, Any] = {"interactive": False}
    if plugin.get("provideClusterInfo"):
        spec["cluster"] = dict(cluster)
    request = {"apiVersion": plugin["apiVersion"], "kind": "ExecCredential", "spec": spec}
    own = {variable["name"]: variable["value"] for variable in plugin.get("env") or []}
    shell = Shell()
    impatience = threading.Timer(_PLUGIN_PATIENCE, shell.interrupt)
    impatience.daemon = True
    impatience.start()
    # It may run in a thread that an interrupted command does not wait for.
    atexit.register(shell.interrupt)
    try:
        outcome = shell.run(
            [command, *(plugin.get("args") or [])],
            env={**os.environ, **own, "KUBERNETES_EXEC_INFO": json.dumps(request)},
            check=False,
        )
        if outcome.code != 0:  # Its output may be a token: only its standard error is shown.
            complaint = printed(outcome.err).strip().rpartition("\n")[2]
            raise ValueError(line(complaint, _LONGEST_COMPLAINT) or f"it ended with exit code {outcome.code}")
        return _as_user(json.loads(outcome.out))
    except (RaysideError, ValueError) as error:
        reason = error.message.splitlines()[-1] if isinstance(error, RaysideError) else error
        raise CredentialsRefused(
            f"{command}, which {file} names for credentials, gave none: {reason}",
            hint=plugin.get("installHint") or f"run {command} yourself: it may want you to log in",
        ) from None
    finally:
        impatience.cancel()
        atexit.unregister(shell.interrupt)


def _as_user(answer: Any) -> dict[str, str]:
    """Returns the credentials of an ExecCredential. Raises ValueError, which quotes no token."""
    status = answer.get("status") if isinstance(answer, dict) else None
    if not isinstance(status, dict):
        raise ValueError("it printed no status")
    token, chain, key = (status.get(k) for k in ("token", "clientCertificateData", "clientKeyData"))
    if bool(chain) != bool(key) or not (token or chain):
        raise ValueError("it printed neither a token nor a certificate with its key")
    pair = {"client-certificate-data": chain, "client-key-data": key} if chain else {}
    given = {name: base64.b64encode(str(pem).encode()).decode() for name, pem in pair.items()}
    return {**given, **({"token": str(token)} if token else {})}
