"""Tests what becomes of a server of Kubernetes' API that ends TLS."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Any

import pytest
from kubernetes.client import ApiClient
from urllib3 import HTTPSConnectionPool
from urllib3.exceptions import MaxRetryError, SSLError

from bootstrap.kube.api_client import Client
from rayside.errors import ClusterUnreachable, CredentialsRefused, RaysideError


def ended(text: str) -> ApiClient:
    """A client whose server ends TLS so."""

    def call_api(*_: Any, **__: Any) -> None:
        reason = SSLError(ssl.SSLError(1, f"{text} (_ssl.c:2580)"))
        raise MaxRetryError(HTTPSConnectionPool("127.0.0.1"), "/api", reason)

    client = ApiClient()
    client.call_api = call_api
    return client


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[SSL: SSLV3_ALERT_CERTIFICATE_EXPIRED] sslv3 alert certificate expired", CredentialsRefused),
        ("[SSL: SSL/TLS_ALERT_CERTIFICATE_UNKNOWN] ssl/tls alert certificate unknown", CredentialsRefused),
        ("[SSL: SSLV3_ALERT_CERTIFICATE_REVOKED] sslv3 alert certificate revoked", CredentialsRefused),
        ("[SSL: SSLV3_ALERT_BAD_CERTIFICATE] sslv3 alert bad certificate", CredentialsRefused),
        ("[SSL: TLSV13_ALERT_CERTIFICATE_REQUIRED] tlsv13 alert certificate required", CredentialsRefused),
        ("[SSL: TLSV1_ALERT_UNKNOWN_CA] tlsv1 alert unknown ca", CredentialsRefused),
        ("[SSL: SSLV3_ALERT_BAD_RECORD_MAC] sslv3 alert bad record mac", ClusterUnreachable),
        ("[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed: it has expired", ClusterUnreachable),
    ],
)
def test_a_client_certificate_that_a_server_refuses_is_refused_credentials(
    tmp_path: Path, text: str, expected: type[RaysideError]
) -> None:
    client = Client(ended(text), tmp_path / "config", "prod", ())
    with pytest.raises(expected):
        client.send("GET", "/api", {})
    assert client.outdated()
