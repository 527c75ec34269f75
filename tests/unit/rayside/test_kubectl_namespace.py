"""Tests what is read of a Kubernetes namespace through kubectl, and what is said where that is refused."""

from __future__ import annotations

import base64
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from rayside.connection import heads, kubectl_namespace
from rayside.connection.kubectl_namespace import KubectlNamespace
from rayside.errors import ClusterUnreachable, Forbidden, InvalidSetting, MissingProgram
from rayside.system.shell import Shell

# It answers as the file beside it says, by the words of its command line.
FAKE = f"""#!{sys.executable}
import json, pathlib, sys
script = json.loads(pathlib.Path(__file__).with_name("script.json").read_text())
answer = script.get(" ".join(sys.argv[1:]))
if answer is None:
    pathlib.Path(__file__).with_name("unscripted").write_text(" ".join(sys.argv[1:]))
    sys.exit("unscripted")
code, out, err = answer
sys.stdout.write(out)
sys.stderr.write(err)
sys.exit(code)
"""
REFUSED = 'Error from server (Forbidden): {} is forbidden: User "anna" cannot {} in the namespace "rays"\n'
DOWN = "E1129 memcache.go: tried\nThe connection to the server 10.0.0.1 was refused\x1b[31m\n"


class FakeKubectl:
    """A kubectl that answers what is scripted, and fails on anything else."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._answers: dict[str, tuple[int, str, str]] = {}
        (folder / "kubectl").write_text(FAKE)
        (folder / "kubectl").chmod(0o755)

    def answers(self, words: str, out: object = "", *, code: int = 0, err: str = "") -> None:
        """Scripts one answer; `out` that is no text is a document."""
        text = out if isinstance(out, str) else json.dumps(out)
        self._answers[words] = code, text, err
        (self._folder / "script.json").write_text(json.dumps(self._answers))

    def has(
        self, file: Path, context: str, namespace: str = "", default: str = "", *, asked: str = ""
    ) -> None:
        """Scripts a kubeconfig that has this context, whose namespace is `default`."""
        file.touch()
        found = {"name": context, "context": {"cluster": "c", **({"namespace": default} if default else {})}}
        self.answers(view(file, asked or context, namespace), {"kind": "Config", "contexts": [found]})


def view(file: Path, context: str, namespace: str = "") -> str:
    inside = f" --namespace {namespace}" if namespace else ""
    return f"--kubeconfig {file} --context {context}{inside} config view --minify --output json"


@pytest.fixture
def kubectl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeKubectl]:
    programs = tmp_path / "programs"
    programs.mkdir()
    monkeypatch.setenv("PATH", str(programs))
    yield FakeKubectl(programs)
    unscripted = programs / "unscripted"
    assert not unscripted.exists(), unscripted.read_text()


RAYS = KubectlNamespace(Shell(), Path("/k"), "prod", "rays")
WHERE = "--kubeconfig /k --context prod --namespace rays"


# --- which file, which namespace ---------------------------------------------------------


def test_of_several_kubeconfigs_the_first_with_the_context_is_meant(
    kubectl: FakeKubectl, tmp_path: Path
) -> None:
    gone, other, meant, later = (tmp_path / name for name in ("gone", "other", "meant", "later"))
    other.touch()
    kubectl.answers(view(other, "prod"), code=1, err="error: cannot locate context prod\n")
    kubectl.has(meant, "prod", default="rays")
    kubectl.has(later, "prod", default="elsewhere")
    named = os.pathsep.join(["", *(str(file) for file in (gone, other, meant, later)), ""])
    found = KubectlNamespace.of(Shell(), "prod", environment={"KUBECONFIG": named})
    assert (found.kubeconfig, found.context, found.namespace) == (meant, "prod", "rays")


def test_a_relative_kubeconfig_is_found_from_any_folder(
    kubectl: FakeKubectl, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    kubectl.has(tmp_path / "mine", "prod")
    found = KubectlNamespace.of(Shell(), "prod", environment={"KUBECONFIG": "mine"})
    assert found.kubeconfig == tmp_path / "mine"


def test_without_the_variable_it_is_the_file_of_the_home_folder(
    kubectl: FakeKubectl, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".kube").mkdir()
    file = tmp_path / ".kube" / "config"
    kubectl.has(file, "prod")
    assert KubectlNamespace.of(Shell(), "prod", environment={}).kubeconfig == file


def test_the_namespace_is_the_one_that_was_named_else_the_contexts_else_default(
    kubectl: FakeKubectl, tmp_path: Path
) -> None:
    file = tmp_path / "config"
    environment = {"KUBECONFIG": str(file)}
    kubectl.has(file, "prod")
    assert KubectlNamespace.of(Shell(), "prod", environment=environment).namespace == "default"
    kubectl.has(file, "prod", default="rays")
    assert KubectlNamespace.of(Shell(), "prod", environment=environment).namespace == "rays"
    kubectl.has(file, "prod", "named", default="rays")
    assert KubectlNamespace.of(Shell(), "prod", "named", environment).namespace == "named"


def test_a_context_that_none_has_is_said_with_where_it_was_looked_for(
    kubectl: FakeKubectl, tmp_path: Path
) -> None:
    other, broken, gone = (tmp_path / name for name in ("other", "broken", "gone"))
    kubectl.has(other, "another", asked="prod")
    broken.touch()
    kubectl.answers(view(broken, "prod"), "no JSON")
    named = os.pathsep.join(map(str, (other, broken, gone)))
    with pytest.raises(InvalidSetting, match="no context prod is in") as raised:
        KubectlNamespace.of(Shell(), "prod", environment={"KUBECONFIG": named})
    assert f"{other} or {broken} or {gone}" in raised.value.message
    assert "kubectl config get-contexts" in raised.value.hint


def test_a_machine_without_kubectl_is_said_to_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MissingProgram, match="kubectl is not on this machine"):
        RAYS.pods("a=b")


# --- rights ------------------------------------------------------------------------------


def test_what_the_user_may_is_asked_and_allowed(kubectl: FakeKubectl) -> None:
    asked = (
        "list pods",
        "get pods",
        *(f"{verb} pods --subresource=portforward" for verb in ("get", "create")),
    )
    for words in asked:
        kubectl.answers(f"{WHERE} auth can-i {words}", "yes\n", err="Warning: an old kubectl\n")
    heads.require_forwarding(RAYS)


@pytest.mark.parametrize("said", ["no\n", "no - RBAC: no role allows it\n"])
def test_a_right_that_is_lacking_is_named_with_the_rule_to_ask_for(kubectl: FakeKubectl, said: str) -> None:
    words = "auth can-i create pods --subresource=portforward"
    kubectl.answers(f"{WHERE} {words}", said, code=1, err="Warning: an old kubectl\n")
    with pytest.raises(
        Forbidden, match="denied by Kubernetes: create pods/portforward in namespace rays"
    ) as no:
        RAYS.require("create", "pods/portforward")
    assert 'resources: ["pods/portforward"], verbs: ["create"]' in no.value.hint


@pytest.mark.parametrize("said", ["", "not found\n", "nobody knows\n"])
def test_no_answer_is_not_taken_for_a_no(kubectl: FakeKubectl, said: str) -> None:
    kubectl.answers(f"{WHERE} auth can-i list pods", said, code=1, err=DOWN)
    with pytest.raises(ClusterUnreachable, match="kubectl gets no answer in prod") as raised:
        RAYS.require("list", "pods")
    # The last line says why; of what a server wrote, nothing reaches the terminal as it is.
    assert "The connection to the server 10.0.0.1 was refused" in raised.value.message
    assert "memcache" not in raised.value.message
    assert "\x1b" not in raised.value.message


# --- pods and secrets --------------------------------------------------------------------

GET_PODS = f"{WHERE} get pods --selector ray.io/node-type=head --output json"
GET_SECRET = f"{WHERE} get secret mine --ignore-not-found --output json"


def test_pods_are_documents(kubectl: FakeKubectl) -> None:
    kubectl.answers(GET_PODS, {"items": [{"metadata": {"name": "head"}}]})
    assert RAYS.pods("ray.io/node-type=head") == [{"metadata": {"name": "head"}}]


def test_a_secrets_value_is_decoded_and_none_where_there_is_none(kubectl: FakeKubectl) -> None:
    token = base64.b64encode(b"a token").decode()
    kubectl.answers(GET_SECRET, {"data": {"auth_token": token}})
    assert RAYS.secret("mine", "auth_token") == "a token"
    assert RAYS.secret("mine", "another") is None
    documents: tuple[object, ...] = ("", "\n", {"metadata": {}}, {"data": None})
    for document in documents:
        kubectl.answers(GET_SECRET, document)
        assert RAYS.secret("mine", "auth_token") is None


def test_what_kubernetes_forbids_is_said_in_its_words(kubectl: FakeKubectl) -> None:
    kubectl.answers(GET_PODS, code=1, err=REFUSED.format("pods", "list"))
    kubectl.answers(GET_SECRET, code=1, err=REFUSED.format("secrets", "get"))
    with pytest.raises(Forbidden, match=r'permission denied by Kubernetes: .*User "anna" cannot list'):
        RAYS.pods("ray.io/node-type=head")
    with pytest.raises(Forbidden, match="cannot get") as raised:
        RAYS.secret("mine", "auth_token")
    assert raised.value.hint == "ask for that right in the namespace rays"


def test_a_cluster_that_does_not_answer_is_said_not_to(
    kubectl: FakeKubectl, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kubectl.answers(GET_PODS, code=1, err=DOWN)
    kubectl.answers(GET_SECRET, code=7)
    with pytest.raises(ClusterUnreachable, match=r"10\.0\.0\.1 was refused") as raised:
        RAYS.pods("ray.io/node-type=head")
    assert raised.value.hint == "try it by hand: kubectl --context prod get pods"
    with pytest.raises(ClusterUnreachable, match="exit code 7"):
        RAYS.secret("mine", "auth_token")
    # A login that nobody finishes ends, too.
    (tmp_path / "programs" / "kubectl").write_text(f"#!{sys.executable}\nimport time\ntime.sleep(600)\n")
    monkeypatch.setattr(kubectl_namespace, "_PATIENCE", 0.2)
    with pytest.raises(ClusterUnreachable, match=r"did not end within 0\.2 s"):
        RAYS.pods("ray.io/node-type=head")
