"""Reads of the Kubernetes API: what is there, what is not, and what is not there for a moment only."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import yaml

from bootstrap.errors import ClusterUnreachable
from bootstrap.kube.api import Kube

PODS = {"items": [{"metadata": {"name": "head-1"}}]}


class Api(ThreadingHTTPServer):
    """Answers with the scripted codes, one after the other, and fails when the script is over."""

    def __init__(self, *script: int) -> None:
        super().__init__(("127.0.0.1", 0), Answer)
        self.script = list(script)
        self.asked: list[str] = []


class Answer(BaseHTTPRequestHandler):
    server: Api

    def do_GET(self) -> None:
        self.server.asked.append(self.path)
        code = self.server.script.pop(0)
        body = json.dumps(PODS if code == 200 else {"code": code}).encode()
        self.send_response(code)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *words: object) -> None:
        """pytest's output is not this server's."""


@pytest.fixture
def api(request: pytest.FixtureRequest) -> Iterator[Api]:
    with Api(*request.param) as one:
        thread = threading.Thread(target=one.serve_forever, args=(0.01,))
        thread.start()
        yield one
        one.shutdown()
        thread.join()
        assert one.script == []


def kube(folder: Path, port: int) -> Kube:
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": {"server": f"http://127.0.0.1:{port}"}}],
        "users": [{"name": "u", "user": {}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
    }
    (folder / "kubeconfig").write_text(yaml.safe_dump(document))
    return Kube(folder / "kubeconfig", "c", "ns")


@pytest.mark.parametrize("api", [[200]], indirect=True)
def test_pods_are_asked_for_by_label(api: Api, tmp_path: Path) -> None:
    assert kube(tmp_path, api.server_port).pods("a=b,c=d") == PODS["items"]
    assert api.asked == ["/api/v1/namespaces/ns/pods?labelSelector=a%3Db%2Cc%3Dd"]


@pytest.mark.parametrize("api", [[429, 503, 200]], indirect=True)
def test_what_is_refused_for_a_moment_is_asked_again(api: Api, tmp_path: Path) -> None:
    """As a list of a custom resource is, while it is being set up."""
    assert kube(tmp_path, api.server_port).pods("") == PODS["items"]


@pytest.mark.parametrize("api", [[404]], indirect=True)
def test_what_is_not_there_is_none(api: Api, tmp_path: Path) -> None:
    assert kube(tmp_path, api.server_port).ray("rayjobs", "x") is None


@pytest.mark.parametrize("api", [[403]], indirect=True)
def test_what_is_forbidden_is_said(api: Api, tmp_path: Path) -> None:
    with pytest.raises(ClusterUnreachable, match=r"refused GET .* 403"):
        kube(tmp_path, api.server_port).pods("")


def test_an_api_that_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(ClusterUnreachable, match="does not answer"):
        kube(tmp_path, 9).pods("")


def test_a_kubeconfig_that_is_none_is_said(tmp_path: Path) -> None:
    for text in ("", "not: [closed", "clusters: []"):
        (tmp_path / "kubeconfig").write_text(text)
        with pytest.raises(ClusterUnreachable, match="does not lead to a cluster"):
            Kube(tmp_path / "kubeconfig", "kind-x").pods("")
