"""Clients of Kubernetes' API with the package `kubernetes`: one for each context that this process uses.

This module is imported only where a request is sent: the package's import takes half a second.
"""

from __future__ import annotations

import base64
import contextlib
import re
import ssl
import tempfile
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import SplitResult, unquote, urlsplit

from kubernetes.client import ApiClient, Configuration
from kubernetes.client.exceptions import ApiException
from kubernetes.config import ConfigException
from kubernetes.config.kube_config import KubeConfigLoader
from urllib3 import Retry
from urllib3.exceptions import HTTPError, SSLError

from bootstrap.kube import kubeconfig
from bootstrap.kube.refusal import redirected, refused, without_user
from rayside.errors import ClusterUnreachable, CredentialsRefused, InvalidYaml, RaysideError
from rayside.loopback import proxy_for
from rayside.plain import fits_header, line

# Timeouts in seconds to connect, and to read.
_PATIENCE = (3.0, 15.0)
# Limit: idle connections that are kept open; as many places are removed at once.
_KEPT_OPEN = 32
# Limit: characters that are shown of an error of the package, or of TLS.
_LONGEST_REASON = 500
# TLS alerts of a server that rejects the client's certificate in the handshake.
_CERTIFICATE_REFUSED = re.compile(r"alert (\w+ )?certificate|alert unknown ca")
# Keys of a user that the package gets: with `auth-provider` it would renew tokens without storing them.
_CREDENTIALS = (
    *("client-certificate", "client-certificate-data", "client-key", "client-key-data"),
    *("token", "tokenFile", "username", "password"),
)
# Impersonation: a user acts with another user's permissions, mostly fewer.
_IMPERSONATION = ("as", "as-uid", "as-groups", "as-user-extra")
# Errors of an invalid kubeconfig, here or in the package.
_UNREADABLE = (ConfigException, InvalidYaml, KeyError, TypeError, ValueError, AttributeError, OSError)

_clients: dict[tuple[Path, str], Client] = {}
_connecting = threading.Lock()


class _Retries(Retry):
    """Retries of requests that the API rejects, as for a moment while it sets up a custom resource.

    With 429 and 503 it has not begun with the request; with 500, a write may have been done.
    """

    def is_retry(self, method: str, status_code: int, has_retry_after: bool = False) -> bool:
        return status_code in (429, 503) or (status_code == 500 and method in ("GET", "POST"))


# Redirects are not followed.
_RETRIES = _Retries(
    connect=0,
    read=0,
    redirect=0,
    other=0,
    status=5,
    raise_on_redirect=False,
    raise_on_status=False,
    backoff_factor=0.2,
    respect_retry_after_header=False,
)


@dataclass(eq=False)
class Client:
    """A client with the credentials of a context, from its kubeconfig with this `stamp`."""

    api: ApiClient
    file: Path
    context: str
    stamp: tuple[int, ...]
    # Credentials were refused, or TLS failed: the next client reads the files again.
    is_spent: bool = False

    @property
    def url(self) -> str:
        return without_user(self.api.configuration.host)

    def outdated(self) -> bool:
        """Returns whether it is spent, or the kubeconfig has changed."""
        return self.is_spent or _stamp(self.file) != self.stamp

    def refuse(self) -> CredentialsRefused:
        """Records that the API refuses the credentials, and returns the error."""
        self.is_spent = True
        return refused(self.file, self.context)

    def send(self, method: str, path: str, query: Mapping[str, str], body: Any = None, kind: str = "") -> Any:
        """Returns the response, with its `status`, `headers` and `data`, also for an error other than 401.

        Raises ClusterUnreachable, CredentialsRefused.
        """
        headers = {"Accept": "application/json"}
        if body is not None:
            headers["Content-Type"] = kind or "application/json"
        request = self.api.param_serialize(
            method, path, None, dict(query), headers, body, auth_settings=["BearerToken"]
        )
        try:
            answer = self.api.call_api(*request, _request_timeout=_PATIENCE)
            answer.read()
        except (HTTPError, ApiException, OSError) as error:
            reason = getattr(error, "reason", None) or error
            tls_failed = isinstance(reason, SSLError)
            if tls_failed and _CERTIFICATE_REFUSED.search(str(reason)):
                raise self.refuse() from None
            self.is_spent |= tls_failed
            why = f": {line(str(reason), _LONGEST_REASON)}" if tls_failed else ""
            raise ClusterUnreachable(
                f"the Kubernetes API at {self.url} does not answer{why}",
                hint="./invokew up repairs the cluster",
            ) from None
        if answer.status == 401:
            raise self.refuse()
        if 300 <= answer.status < 400:
            raise redirected(self.url, method, path, answer.headers.get("Location", ""))
        return answer


def client(file: Path, context: str) -> Client:
    """Returns this process's client of a context; a credential plugin runs once for all callers.

    Raises ClusterUnreachable if the kubeconfig names no cluster, CredentialsRefused.
    """
    with _connecting:
        known = _clients.get((file, context))
        if known is None or known.outdated():
            known = _clients[file, context] = _connected(file, context)
        return known


def _connected(file: Path, context: str) -> Client:
    if not file.exists():
        raise ClusterUnreachable("there is no cluster yet", hint="./invokew up makes one")
    stamp = _stamp(file)
    try:
        return Client(_api(file, context), file, context, stamp)
    except _UNREADABLE as error:
        reason = line(error.message if isinstance(error, RaysideError) else str(error), _LONGEST_REASON)
        raise ClusterUnreachable(
            f"{file} does not lead to a cluster: {reason}", hint="./invokew up makes it anew"
        ) from None


def _api(file: Path, context: str) -> ApiClient:
    cluster, user = _entries(file, context)
    configuration = Configuration(connection_pool_maxsize=_KEPT_OPEN, retries=_RETRIES)
    tls = None
    # The package gets no file: an error of its parser would quote a whole entry, with its token.
    document = {
        "contexts": [{"name": context, "context": {"cluster": "its", "user": "its"}}],
        "clusters": [{"name": "its", "cluster": cluster}],
        "users": [{"name": "its", "user": user}],
    }
    # OpenSSL reads certificates and keys from files only; these are private and are removed at once.
    with tempfile.TemporaryDirectory(prefix="rayside-") as folder:
        loader = KubeConfigLoader(document, context, config_base_path=str(file.parent), temp_file_path=folder)
        loader.load_and_set(configuration)
        if configuration.host.startswith("https:"):
            tls = _tls(configuration)
    # The hook would set the credentials again before each request.
    configuration.refresh_api_key_hook = None
    if token := configuration.api_key.get("BearerToken", "").strip():
        if not fits_header(token.partition(" ")[2]):
            raise CredentialsRefused(
                f"the token for {context} in {file} has a line break or another character that no token has",
                hint="log in to the cluster again, or correct the token",
            )
        configuration.api_key["BearerToken"] = token
    _set_proxy(configuration, cluster.get("proxy-url") or proxy_for(configuration.host))
    api = ApiClient(configuration)
    if tls:
        api.rest_client.pool_manager.connection_pool_kw["ssl_context"] = tls
    return api


def _entries(file: Path, context: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Returns the context's cluster and its user, with the credentials of a plugin."""
    by_kind = kubeconfig.entries(file, context)
    if by_kind is None:
        raise ValueError(f"it has no context {context}, or not its cluster and user")
    cluster, user = (
        {key: value for key, value in by_kind[kind].items() if value is not None}
        for kind in ("cluster", "user")
    )
    if acting := [key for key in _IMPERSONATION if user.get(key)]:
        raise ClusterUnreachable(
            f"the user of {context} in {file} acts as another ({', '.join(acting)}), which Rayside can't",
            hint="name a context whose user has these rights itself",
        )
    # As in kubectl, no credentials are read or requested for a connection without TLS.
    if _address("server", cluster["server"]).scheme != "https":
        return cluster, {}
    own = {key: user[key] for key in _CREDENTIALS if key in user}
    if "exec" in user:
        own.update(kubeconfig.credentials(user["exec"], cluster, file))
    elif "tokenFile" in own:
        own.pop("token", None)  # The package prefers it, though the file has the newer one.
    return cluster, own


def _set_proxy(configuration: Configuration, proxy: str | None) -> None:
    """Sets the proxy instead of the environment's, which the package would use for this machine, too."""
    configuration.proxy, configuration.no_proxy = proxy, None
    if proxy and (address := _address("proxy", proxy)).username:
        pair = f"{unquote(address.username)}:{unquote(address.password or '')}".encode()
        login = f"Basic {base64.b64encode(pair).decode()}"
        configuration.proxy_headers = {"proxy-authorization": login}


def _address(what: str, url: str) -> SplitResult:
    """Splits a URL. Raises ValueError, without credentials in its message."""
    with contextlib.suppress(ValueError):
        parts = urlsplit(url)
        # A port that is no number raises.
        if parts.scheme in ("http", "https") and parts.hostname and parts.port != 0:
            return parts
    raise ValueError(f"its {what} {without_user(url)} is not an HTTP {what}")


def _tls(configuration: Configuration) -> ssl.SSLContext:
    """Moves the certificates out of a configuration, whose files are about to be removed."""
    tls = ssl.create_default_context(cafile=configuration.ssl_ca_cert)
    # Python 3.13 sets it; certificates of clusters' CAs often violate it, and kubectl accepts them.
    tls.verify_flags &= ~ssl.VERIFY_X509_STRICT
    if not configuration.verify_ssl:
        tls.check_hostname = False
        tls.verify_mode = ssl.CERT_NONE
    if configuration.cert_file:
        tls.load_cert_chain(configuration.cert_file, configuration.key_file)
    configuration.ssl_ca_cert = configuration.cert_file = configuration.key_file = None
    return tls


def _stamp(file: Path) -> tuple[int, ...]:
    try:
        state = file.stat()
    except OSError:
        return ()
    return state.st_ino, state.st_mtime_ns, state.st_size
