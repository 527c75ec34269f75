"""Reads one context of a kubeconfig: the API's address, how it is known, and the credentials for it.

The keys are those of k8s.io/client-go, tools/clientcmd/api/v1/types.go. A user's `exec` names a plugin,
a program that prints credentials for a while
(https://kubernetes.io/docs/reference/access-authn-authz/authentication/#client-go-credential-plugins).
"""

from __future__ import annotations

import atexit
import base64
import contextlib
import json
import os
import ssl
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import Any
from urllib.parse import SplitResult, unquote, urlsplit

from bootstrap import yaml_file
from bootstrap.errors import (
    ClusterUnreachable,
    CredentialsRefused,
    InvalidSetting,
    InvalidYaml,
    RaysideError,
)
from bootstrap.kube.certificate import end as end_of
from bootstrap.kube.refusal import without_user
from bootstrap.loopback import proxy_for
from bootstrap.plain import fits_header, line, printed
from bootstrap.shell import Shell

# A plugin may ask a server, or open a browser for a login; so many seconds are enough for both.
_PLUGIN_PATIENCE = 60.0
# Credentials are renewed so many seconds before they expire: clocks differ, and requests take time.
_EARLY = 10.0
# These keys name files, relative to the kubeconfig's folder.
_FILES = ("certificate-authority", "client-certificate", "client-key", "tokenFile")
# By these a user acts with another's rights, mostly fewer.
_IMPERSONATION = ("as", "as-uid", "as-groups", "as-user-extra")
# A plugin's complaint is shown up to so many characters.
_LONGEST_COMPLAINT = 300

# What a plugin gave serves everybody who reads the same entry, until it expires or is refused.
_given: dict[str, dict[str, Any]] = {}
_giving = threading.Lock()


@dataclass(frozen=True)
class Access:
    """A way to one Kubernetes API. Its `repr` has nothing secret in it.

    Attributes:
        tls: has the authority that signs the API's certificate, and the client's own; None for plain HTTP.
        server_name: the name in the API's certificate, where it is not that of the address.
        expires: when the credentials end, in seconds since the epoch.
        read: each file that it was read from, with its content.
        plugin: names what a plugin gave; empty where none was asked.
        certificate: the client's own, in PEM; empty without one.
    """

    url: str
    headers: Mapping[str, str] = field(repr=False)
    tls: ssl.SSLContext | None
    server_name: str | None
    proxy: str | None = field(repr=False)
    expires: float
    read: Mapping[Path, bytes] = field(repr=False)
    plugin: str = field(repr=False)
    certificate: bytes = field(repr=False, default=b"")

    def certificate_ended(self) -> datetime | None:
        """Returns when the client's certificate ended; None where it has not, or there is none."""
        try:
            end = end_of(self.certificate)
        except ValueError:
            return None
        return end if end <= datetime.now(timezone.utc) else None

    def outdated(self) -> bool:
        """Returns whether the credentials are about to expire, or a file of them has changed."""
        return _ends_soon(self.expires) or any(_content(file) != was for file, was in self.read.items())

    def refuse(self) -> None:
        """Forgets what the plugin gave, as the API refused it: the next reader gets other credentials."""
        with _giving:
            _given.pop(self.plugin, None)


def access(file: Path, context: str) -> Access:
    """Reads a context. Raises ClusterUnreachable where it leads nowhere, CredentialsRefused by a plugin."""
    if not file.exists():
        raise ClusterUnreachable("there is no cluster yet", hint="./invokew up makes one")
    was = _content(file)
    try:
        by_kind = entries(file, context)
        if by_kind is None:
            raise ValueError(f"it has no context {context}, or not its cluster and user")
        cluster, user = (_absolute(by_kind[kind], file.parent) for kind in ("cluster", "user"))
        url = str(cluster["server"]).rstrip("/")
        server = _address("server", url)
        if server.username is not None:
            raise ValueError("its server's address has credentials in it, which belong to its user")
        proxy = cluster.get("proxy-url") or proxy_for(url)
        if proxy and _address("proxy", proxy).scheme not in ("http", "https"):
            raise ValueError(f"its proxy {without_user(proxy)} is not an HTTP proxy")
        if proxy and any(ord(character) > 255 for character in unquote(proxy)):  # not in Latin-1
            raise ValueError(f"its proxy {without_user(proxy)} has a password that no header takes")
        if acting := [key for key in _IMPERSONATION if user.get(key)]:
            raise ClusterUnreachable(
                f"the user of {context} in {file} acts as another ({', '.join(acting)}), which Rayside can't",
                hint="name a context whose user has these rights itself",
            )
        # As kubectl does, nothing secret is read, or asked for, that would be sent for everybody to see.
        is_private = server.scheme == "https"
        user = user if is_private else {}
        expires, plugin = float("inf"), ""
        if "exec" in user:
            plugin, status = _from_plugin(user["exec"], cluster, file)
            expires = _end(status)
            user = {**user, **_as_user(status)}
        read = {Path(part[key]): b"" for part in (cluster, user) for key in _FILES if key in part}
        return Access(
            url,
            _headers(user, context, file),
            _tls(cluster, user) if is_private else None,
            cluster.get("tls-server-name"),
            proxy,
            expires,
            {file: was, **{other: _content(other) for other in read}},
            plugin,
            _pem(user, "client-certificate"),
        )
    except (InvalidYaml, KeyError, TypeError, ValueError, AttributeError, OSError) as error:
        reason = error.message if isinstance(error, RaysideError) else error
        raise ClusterUnreachable(
            f"{file} does not lead to a cluster: {reason}", hint="./invokew up makes it anew"
        ) from None


def file_with(context: str, environment: Mapping[str, str] = os.environ) -> tuple[Path, str]:
    """Returns the user's kubeconfig that has a context with its cluster and user, and its namespace.

    Raises InvalidSetting where none has it, InvalidYaml.
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
    """Returns the API's address, for which no plugin is asked; empty where the file does not say it."""
    try:
        by_kind = entries(file, context)
        return str(by_kind["cluster"]["server"]).rstrip("/") if by_kind else ""
    except (InvalidYaml, OSError, KeyError, TypeError, ValueError, AttributeError):
        return ""


def entries(file: Path, context: str) -> dict[str, Any] | None:
    """Returns a context with its cluster and its user, by these names; None where one is missing.

    Raises InvalidYaml; TypeError or AttributeError for what is YAML and no kubeconfig.
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


def _absolute(entry: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    present = {key: value for key, value in entry.items() if value is not None}
    return {key: str(folder / value) if key in _FILES else value for key, value in present.items()}


def _address(what: str, url: str) -> SplitResult:
    """Splits a URL. Raises ValueError, which has no credentials in it."""
    try:
        parts = urlsplit(url)
        if parts.hostname and parts.port != 0:  # Where the port is no number, asking for it raises.
            return parts
    except ValueError:
        pass
    raise ValueError(f"its {what} {without_user(url)} is not an address")


def _content(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError:
        return b""


# --- credentials -------------------------------------------------------------------------


def _headers(user: Mapping[str, Any], context: str, file: Path) -> dict[str, str]:
    token = Path(user["tokenFile"]).read_text().strip() if "tokenFile" in user else user.get("token")
    if token:
        if not fits_header(str(token)):
            raise CredentialsRefused(
                f"the token for {context} in {file} has a line break or another character that no token has",
                hint="log in to the cluster again, or correct the token",
            )
        return {"Authorization": f"Bearer {token}"}
    if "username" in user and "password" in user:
        pair = f"{user['username']}:{user['password']}".encode()
        return {"Authorization": f"Basic {base64.b64encode(pair).decode()}"}
    return {}


def _tls(cluster: Mapping[str, Any], user: Mapping[str, Any]) -> ssl.SSLContext:
    authority = _pem(cluster, "certificate-authority")
    context = ssl.create_default_context(cadata=authority.decode() if authority else None)
    # Python 3.13 has it on; authorities of clusters often lack what it asks for, and kubectl takes them.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    if cluster.get("insecure-skip-tls-verify"):
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if own := _pem(user, "client-certificate"):
        # OpenSSL takes them from files only; these are the owner's alone and are gone at once.
        with _private_file(own) as chain, _private_file(_pem(user, "client-key")) as key:
            context.load_cert_chain(chain, key)
    return context


def _pem(entry: Mapping[str, Any], key: str) -> bytes:
    if f"{key}-data" in entry:
        return base64.b64decode(entry[f"{key}-data"])
    return Path(entry[key]).read_bytes() if key in entry else b""


@contextlib.contextmanager
def _private_file(content: bytes) -> Iterator[str]:
    with tempfile.NamedTemporaryFile() as stream:  # Its mode is 0600.
        stream.write(content)
        stream.flush()
        yield stream.name


def _from_plugin(
    plugin: Mapping[str, Any], cluster: Mapping[str, Any], file: Path
) -> tuple[str, dict[str, Any]]:
    """Returns the name of what the plugin gave, and its status. Raises CredentialsRefused."""
    name = json.dumps([plugin, str(file)], sort_keys=True)
    with _giving:
        if name not in _given or _ends_soon(_end(_given[name])):
            _given[name] = _run(plugin, cluster, file)
        return name, _given[name]


def _run(plugin: Mapping[str, Any], cluster: Mapping[str, Any], file: Path) -> dict[str, Any]:
    command = str(plugin["command"])
    if os.sep in command:
        command = str(file.parent / command)
    version = plugin["apiVersion"]
    spec: dict[str, Any] = {"interactive": False}
    if plugin.get("provideClusterInfo"):
        spec["cluster"] = dict(cluster)
    request = {"apiVersion": version, "kind": "ExecCredential", "spec": spec}
    own = {variable["name"]: variable["value"] for variable in plugin.get("env") or []}
    shell = Shell()
    impatience = threading.Timer(_PLUGIN_PATIENCE, shell.interrupt)
    impatience.daemon = True
    impatience.start()
    # It may run in a thread that an interrupted command leaves behind.
    atexit.register(shell.interrupt)
    try:
        outcome = shell.run(
            [command, *(plugin.get("args") or [])],
            env={**os.environ, **own, "KUBERNETES_EXEC_INFO": json.dumps(request)},
            check=False,
        )
        if outcome.code != 0:  # What it has printed may be a token: only its standard error is shown.
            complaint = printed(outcome.err).strip().rpartition("\n")[2]
            raise ValueError(line(complaint, _LONGEST_COMPLAINT) or f"it ended with exit code {outcome.code}")
        return _status(outcome.out)
    except (RaysideError, ValueError, KeyError, TypeError, AttributeError) as error:
        reason = error.message.splitlines()[-1] if isinstance(error, RaysideError) else error
        raise CredentialsRefused(
            f"{command}, which {file} names for credentials, gave none: {reason}",
            hint=plugin.get("installHint") or f"run {command} yourself: it may want you to log in",
        ) from None
    finally:
        impatience.cancel()
        atexit.unregister(shell.interrupt)


def _status(text: str) -> dict[str, Any]:
    """Reads what a plugin has printed, without what is null. Raises ValueError, which quotes no token."""
    answer = json.loads(text)
    given = answer.get("status") if isinstance(answer, dict) else None
    if not isinstance(given, dict):
        raise ValueError("it printed no status")
    status = {key: value for key, value in given.items() if value is not None}
    pair = {"clientCertificateData", "clientKeyData"} & status.keys()
    if len(pair) == 1 or not (pair or "token" in status):
        raise ValueError("it printed neither a token nor a certificate with its key")
    _end(status)
    return status


def _as_user(status: Mapping[str, Any]) -> dict[str, Any]:
    """Returns what a plugin gave in a kubeconfig's own words."""
    words = {"client-certificate-data": "clientCertificateData", "client-key-data": "clientKeyData"}
    encoded = {key: base64.b64encode(status[word].encode()) for key, word in words.items() if word in status}
    return {**encoded, **({"token": status["token"]} if "token" in status else {})}


def _end(status: Mapping[str, Any]) -> float:
    stamp = status.get("expirationTimestamp")
    return datetime.fromisoformat(stamp.replace("Z", "+00:00")).timestamp() if stamp else float("inf")


def _ends_soon(expires: float) -> bool:
    return time.time() + _EARLY >= expires
