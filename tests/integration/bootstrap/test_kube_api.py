"""Tests reads of the Kubernetes API: of what is there, what is not, and what is only briefly missing."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest
import yaml

from bootstrap.errors import FieldConflict
from bootstrap.kube.api import Kube
from rayside.errors import ClusterUnreachable, CredentialsRefused, Forbidden, NotReady, NotRunning
from rayside.steps.graph import up
from rayside.steps.step import Report, Status, pending
from tests.http_servers import answering, body_of, says
from tests.integration.bootstrap.test_forwards import Quiet

pytestmark = pytest.mark.gate

PODS = {"items": [{"metadata": {"name": "head-1"}}]}


@dataclass
class Api:
    """Answers with the scripted codes, one after the other, and fails when the script is over.

    A Status, as Kubernetes gives for an error, has its code in it; `headers` may be there, too.
    """

    script: list[int | dict[str, Any]]
    requests: list[str] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)
    server_port: int = 0

    def answer(self, request: BaseHTTPRequestHandler) -> None:
        self.bodies.append(body_of(request))
        self.requests.append(request.path)
        answer = self.script.pop(0)
        status: dict[str, Any] = answer if isinstance(answer, dict) else {"code": answer}
        body = json.dumps(PODS if status["code"] == 200 else status).encode()
        says(request, int(status["code"]), body, **status.get("headers", {}))


@pytest.fixture
def api(request: pytest.FixtureRequest) -> Iterator[Api]:
    scripted = Api(list(request.param))
    with answering(scripted.answer) as scripted.server_port:
        yield scripted
    assert scripted.script == []


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
    assert api.requests == ["/api/v1/namespaces/ns/pods?labelSelector=a%3Db%2Cc%3Dd"]


@pytest.mark.parametrize("api", [[429, 503, 500, 200]], indirect=True)
def test_what_is_refused_for_a_moment_is_asked_again(api: Api, tmp_path: Path) -> None:
    """The API refuses the list of a custom resource while it is being set up."""
    assert kube(tmp_path, api.server_port).pods("") == PODS["items"]


def sent_on(code: int) -> dict[str, Any]:
    """Returns an answer that names an address where nobody listens."""
    return {"code": code, "headers": {"Location": "http://me:secret@127.0.0.1:9/there\x1b[1m?state=secret"}}


@pytest.mark.parametrize("api", [[sent_on(code)] for code in (301, 302, 303, 307, 308)], indirect=True)
@pytest.mark.parametrize("writes", [False, True])
def test_nothing_is_sent_where_an_answer_leads(api: Api, tmp_path: Path, writes: bool) -> None:
    client = kube(tmp_path, api.server_port)
    with pytest.raises(ClusterUnreachable, match=r"to http://127\.0\.0\.1:9/there\\x1b\[1m, where") as caught:
        client.apply(SECRET) if writes else client.pods("")
    assert "secret" not in caught.value.message.partition(" to ")[2]
    assert len(api.requests) == 1


LATER = {"code": 503, "headers": {"Retry-After": "7200"}}


@pytest.mark.parametrize("api", [[LATER, 200]], indirect=True)
def test_the_api_does_not_say_how_long_to_wait(api: Api, tmp_path: Path) -> None:
    began = time.monotonic()
    assert kube(tmp_path, api.server_port).pods("") == PODS["items"]
    assert time.monotonic() - began < 5


@pytest.mark.parametrize("api", [[500, 500]], indirect=True)
def test_a_write_that_may_have_been_done_is_not_sent_again(api: Api, tmp_path: Path) -> None:
    client = kube(tmp_path, api.server_port)
    with pytest.raises(ClusterUnreachable, match=r"refused PATCH .*: 500"):
        client.apply(SECRET)
    with pytest.raises(ClusterUnreachable, match=r"refused DELETE .*: 500"):
        client.delete("/api/v1/namespaces/ns/secrets/s")


@pytest.mark.parametrize("api", [[429, 503, 200]], indirect=True)
def test_a_write_that_is_turned_away_is_sent_again(api: Api, tmp_path: Path) -> None:
    kube(tmp_path, api.server_port).apply(SECRET)
    assert [json.loads(body) for body in api.bodies] == [SECRET] * 3


@pytest.mark.parametrize("api", [[404]], indirect=True)
def test_what_is_not_there_is_none(api: Api, tmp_path: Path) -> None:
    assert kube(tmp_path, api.server_port).ray("rayjobs", "x") is None


@pytest.mark.parametrize("api", [[403]], indirect=True)
def test_what_is_forbidden_is_said(api: Api, tmp_path: Path) -> None:
    with pytest.raises(Forbidden, match="permission denied by Kubernetes: list pods in namespace ns"):
        kube(tmp_path, api.server_port).pods("")


def status(code: int, message: str, **details: Any) -> dict[str, Any]:
    return {"kind": "Status", "code": code, "message": message, "details": details}


SECRET = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s", "namespace": "ns"}}
LACKING = (
    'secrets "s" is forbidden: User "u" cannot create resource "secrets" in API group "" in the namespace'
)
QUOTA = 'secrets "s" is forbidden: exceeded quota: few'


@pytest.mark.parametrize("api", [[status(403, LACKING), status(403, QUOTA)]], indirect=True)
def test_the_right_is_the_one_that_the_api_names_and_a_quota_is_none(api: Api, tmp_path: Path) -> None:
    """Tests an object that applying makes, for which one needs the right to patch and to create."""
    with pytest.raises(
        Forbidden, match="permission denied by Kubernetes: create secrets in namespace ns"
    ) as caught:
        kube(tmp_path, api.server_port).apply(SECRET)
    rule = '{apiGroups: [""], resources: ["secrets"], verbs: ["create"]}'
    assert caught.value.hint == f"ask for a Role in ns with the rule {rule}"
    with pytest.raises(Forbidden, match="exceeded quota: few"):
        kube(tmp_path, api.server_port).apply(SECRET)
    assert api.requests == ["/api/v1/namespaces/ns/secrets/s?fieldManager=rayside"] * 2


@pytest.mark.parametrize("api", [[403] * 5], indirect=True)
def test_the_right_is_told_by_what_was_asked_where_the_api_does_not_say(api: Api, tmp_path: Path) -> None:
    client = kube(tmp_path, api.server_port)
    for path, right, group in (
        ("/api/v1/nodes", "list nodes in the whole cluster", ""),
        ("/api/v1/namespaces/ns", "get namespaces in namespace ns", ""),
        ("/apis/ray.io/v1/namespaces/ns/rayjobs/x", "get rayjobs in namespace ns", "ray.io"),
        ("/api/v1/namespaces/ns/pods/x/log", "get pods/log in namespace ns", ""),
    ):
        with pytest.raises(Forbidden) as caught:
            client.get(path)
        assert caught.value.message.endswith(f": {right}")
        assert f'apiGroups: ["{group}"]' in caught.value.hint
    with pytest.raises(Forbidden, match="get /version") as caught:
        client.get("/version")
    assert 'nonResourceURLs: ["/version"]' in caught.value.hint


@dataclass
class Waiting:
    """A step that is on its way, until it asks for what nobody lets it see."""

    kube: Kube
    checks: int = 0
    name: str = "waiting"
    title: str = "what waits"
    needs: tuple[str, ...] = ()
    patience: float = 60.0

    def check(self) -> Status:
        self.checks += 1
        if self.checks > 1:
            self.kube.pods("")
        return pending("on its way")

    def apply(self, report: Report) -> None:
        raise AssertionError

    def undo(self, report: Report) -> None:
        raise AssertionError


@pytest.mark.parametrize("api", [[403], [401, 401]], ids=str, indirect=True)
def test_a_refusal_ends_a_step_at_once(api: Api, tmp_path: Path) -> None:
    began = time.monotonic()
    with pytest.raises((Forbidden, CredentialsRefused)):
        up([Waiting(kube(tmp_path, api.server_port))], Quiet())
    assert time.monotonic() - began < 2


def conflicts(*managers: str) -> dict[str, Any]:
    """Returns the answer to an apply that these managers are in the way of: the field x, y, of each."""
    causes = [
        {
            "reason": "FieldManagerConflict",
            "message": f'conflict with "{manager}" using v1',
            "field": f".data.{field}",
        }
        for manager, field in zip(managers, "xyz", strict=False)
    ]
    return status(409, "conflicts", causes=causes)


@pytest.mark.parametrize("api", [[conflicts("rayside", "rayside"), 200]], indirect=True)
def test_a_field_that_was_patched_in_our_name_is_ours(api: Api, tmp_path: Path) -> None:
    kube(tmp_path, api.server_port).apply(SECRET)
    assert [request.partition("?")[2] for request in api.requests] == [
        "fieldManager=rayside",
        "fieldManager=rayside&force=true",
    ]


@pytest.mark.parametrize("other", ["kubectl", "raysides"])
@pytest.mark.parametrize("api", [[conflicts("rayside")]], indirect=True)
def test_a_field_of_somebody_else_beside_ours_is_theirs(api: Api, tmp_path: Path, other: str) -> None:
    api.script[:] = [conflicts("rayside", other)]
    with pytest.raises(FieldConflict):
        kube(tmp_path, api.server_port).apply(SECRET)
    assert len(api.requests) == 1


@pytest.mark.parametrize("api", [[200]], indirect=True)
def test_a_change_is_sent_as_a_patch_in_our_name(api: Api, tmp_path: Path) -> None:
    operations = [{"op": "test", "path": "/x", "value": 1}, {"op": "replace", "path": "/x", "value": 2}]
    kube(tmp_path, api.server_port).patch("/api/v1/namespaces/ns/secrets/s", operations)
    assert api.requests == ["/api/v1/namespaces/ns/secrets/s?fieldManager=rayside"]
    assert [json.loads(body) for body in api.bodies] == [operations]


@pytest.mark.parametrize("api", [[status(422, "the server rejected our request")]], indirect=True)
def test_a_change_of_what_was_changed_meanwhile_is_refused(api: Api, tmp_path: Path) -> None:
    with pytest.raises(NotReady, match=r"was changed meanwhile, or must not be: .*the server rejected"):
        kube(tmp_path, api.server_port).patch("/api/v1/namespaces/ns/secrets/s", [])


@pytest.mark.parametrize("api", [[conflicts("kubectl", "helm")]], indirect=True)
def test_a_field_that_another_manager_has_set_is_named_with_it(api: Api, tmp_path: Path) -> None:
    with pytest.raises(FieldConflict, match=r'"kubectl" owns \.data\.x; "helm" owns \.data\.y'):
        kube(tmp_path, api.server_port).apply(SECRET)


@pytest.mark.parametrize("api", [[404, 404]], indirect=True)
def test_a_namespace_that_is_not_there_is_said_with_the_command(api: Api, tmp_path: Path) -> None:
    with pytest.raises(NotRunning, match="there is no namespace ns") as caught:
        kube(tmp_path, api.server_port).apply(SECRET)
    assert caught.value.hint == "kubectl --context c create namespace ns"


def test_an_api_that_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(ClusterUnreachable, match="does not answer"):
        kube(tmp_path, 9).pods("")


def test_a_kubeconfig_that_is_none_is_said(tmp_path: Path) -> None:
    for text in ("", "not: [closed", "clusters: []"):
        (tmp_path / "kubeconfig").write_text(text)
        with pytest.raises(ClusterUnreachable, match="does not lead to a cluster"):
            Kube(tmp_path / "kubeconfig", "kind-x").pods("")
