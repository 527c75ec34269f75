"""Tests the workspace of a RayCluster of others that is a pod: what it is told, and what `up` refuses."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bootstrap import instance
from bootstrap.errors import ImagesOutOfReach, NotOurs
from bootstrap.given_settings import parse
from bootstrap.instance import Instance
from bootstrap.kube.api import CORE, RAY
from bootstrap.settings import POD, Settings
from bootstrap.sources.source import Images
from bootstrap.steps.pull_secret import PullSecret
from bootstrap.steps.ray_environment import RayEnvironment
from bootstrap.steps.secret_file import SecretFile
from bootstrap.steps.workspace_pod import WorkspacePod, WorkspaceSecret, new_name
from bootstrap.targets import choice
from bootstrap.targets.cluster_with_workspace import ClusterWithWorkspace
from bootstrap.targets.existing_cluster import Cluster
from bootstrap.targets.pod import PodAccess, PodsRay
from rayside.connection import heads
from rayside.errors import Forbidden, InvalidSetting, KubernetesTokens, NotRunning
from rayside.own_folder import make_own
from rayside.ray import jobs
from rayside.ray.debug import Debug
from rayside.relay.config import Config, Masking
from rayside.steps.existing_ray import ExistingRay
from rayside.steps.preflight import Preflight
from rayside.steps.step import Condition
from rayside.system.shell import Outcome, Shell
from rayside.users import in_a_name
from tests.bundles import recorded
from tests.instances import instance as an_instance
from tests.unit.bootstrap.test_created_cluster import prod, without_engine
from tests.unit.scripted_objects import Objects, applied, objects

__all__ = ["prod", "without_engine"]

NAME = "workspace-ada-0123ab"
TEAM = f"{CORE}/namespaces/team"
SECRET, THE_POD = (f"{TEAM}/{kind}/{NAME}" for kind in ("secrets", "pods"))
THEIRS = f"{RAY}/namespaces/team/rayclusters/theirs"
SERVED = {"status": {"head": {"serviceName": "theirs-head-svc"}}}


def identity(folder: Path) -> Instance:
    return replace(
        an_instance("rayside", "team", folder),
        target="cluster",
        context="prod",
        their_kubeconfig="/k/config",
        their_cluster="theirs",
        address="http://127.0.0.1:8265",
        workspace_pod=NAME,
        user="Ada",
    )


def secret(folder: Path, kube: Objects, mode: str = "token") -> WorkspaceSecret:
    """Returns the step where `up` has seen a Ray that asks for a token, or, by `disabled`, for none."""
    mine = identity(folder)
    make_own(folder)
    (folder / "token").write_text("t0ken")
    (folder / "ray.json").write_text(json.dumps({"authentication": mode, "version": "2.60.0"}))
    password = SecretFile(folder / "password", 18, "workspace-password", "password")
    password.file.write_text("pass")
    preflight: Any = Preflight
    head = ExistingRay(mine, preflight)
    return WorkspaceSecret(mine, kube, head, 8265, password)


def pod(
    folder: Path, kube: Objects, image: str = "r.test/x:1", pull_secret: str = "", **more: Any
) -> WorkspacePod:
    told = secret(folder, kube, **more)
    images = Images("", image, "", "IfNotPresent", pull_secret)
    return WorkspacePod(told.instance, kube, told.head, told, images, Masking("*iban*", ""))


def api(**more: Any) -> Objects:
    there: dict[str, Any] = {SECRET: None, THE_POD: None, THEIRS: SERVED, TEAM: {"metadata": {}}}
    return objects(objects={**there, **more.pop("there", {})}, **more)


def stored(kube: Objects) -> None:
    """Keeps the Secret as the API does, with its values in base64."""
    document = kube.objects[SECRET]
    assert document is not None
    document["data"] = {
        key: base64.b64encode(value.encode()).decode() for key, value in document.pop("stringData").items()
    }


# --- what it is told ---------------------------------------------------------------------


def test_the_secret_says_where_ray_is_and_who_submits_and_no_more(tmp_path: Path) -> None:
    contents = secret(tmp_path / "rayside", api()).contents()
    assert (contents["password"], contents["auth_token"]) == ("pass", "t0ken")
    dashboard = "http://theirs-head-svc.team.svc:8265"
    cluster = json.loads(contents["cluster.json"])
    assert (cluster["dashboard"], cluster["target"], cluster["user"]) == (dashboard, POD, "Ada")
    assert cluster["shared_files"] is False
    # It is read in the pod as any record is.
    folder = tmp_path / "of-the-pod"
    make_own(folder)
    (folder / "instance.json").write_text(contents["instance.json"])
    read = instance.read(folder)
    assert read is not None
    assert (read.target, read.dashboard, read.user) == (POD, dashboard, "Ada")
    assert (read.context, read.their_kubeconfig, read.their_cluster) == ("", "", "")
    file = tmp_path / "relay.json"
    file.write_text(contents["relay.json"])
    relay = Config.read(file, {})
    assert (relay.host, relay.dashboard, relay.user) == ("127.0.0.1", dashboard, "Ada")
    assert (relay.rays_token, relay.shared_files) == (True, False)
    assert str(tmp_path) not in json.dumps(contents)


def test_a_ray_that_asks_for_no_token_is_sent_none_and_one_that_is_not_served_is_said(tmp_path: Path) -> None:
    step = pod(tmp_path / "rayside", api(), mode="disabled")
    assert json.loads(step.secret.contents()["relay.json"])["rays_token"] is False
    workspace = step.manifest()["spec"]["containers"][0]
    assert {"name": "RAY_AUTH_MODE", "value": "disabled"} in workspace["env"]
    # A head without a service is said.
    with pytest.raises(NotRunning, match="names no service"):
        secret(tmp_path / "rayside", api(there={THEIRS: {"status": {}}})).contents()


def test_the_pod_has_its_image_its_secret_and_what_is_masked_and_no_secret_value(tmp_path: Path) -> None:
    document = pod(tmp_path / "rayside", api()).manifest()
    assert document["metadata"]["name"] == NAME
    workspace, relay = document["spec"]["containers"]
    assert {workspace["image"], relay["image"]} == {"r.test/x:1"}
    assert {workspace["imagePullPolicy"], relay["imagePullPolicy"]} == {"IfNotPresent"}
    assert {"name": "RAYSIDE_MASKED_NAMES", "value": "*iban*"} in relay["env"]
    assert document["spec"]["volumes"][0]["secret"]["secretName"] == NAME
    text = json.dumps(document)
    assert "t0ken" not in text and '"pass"' not in text
    # A password is no file that jobs of the workspace could send along.
    volume, _ = document["spec"]["volumes"]
    keys = {item["key"] for item in volume["secret"]["items"]}
    assert keys == secret(tmp_path / "rayside", api()).contents().keys() - {"password"}


# --- made, kept, removed -------------------------------------------------------------------


def test_it_is_made_kept_and_removed(tmp_path: Path) -> None:
    kube = api(lists={f"{TEAM}/pods": []})
    step = pod(tmp_path / "rayside", kube)
    assert step.secret.check().condition is step.check().condition is Condition.MISSING
    for made in (step.secret, step):
        made.apply(lambda text: None)
    stored(kube)
    kube.objects[THE_POD] = {**(kube.objects[THE_POD] or {}), "status": {"phase": "Pending"}}
    assert step.secret.check().condition is Condition.READY
    assert step.check().condition is not Condition.MISSING
    # Ray has another token by now: the pod is told.
    (tmp_path / "rayside" / "token").write_text("another")
    assert step.secret.check().condition is Condition.MISSING
    assert step.undo(lambda text: None) is step.secret.undo(lambda text: None) is None
    assert kube.deleted == [THE_POD, SECRET]
    assert step.undo(lambda text: None) is None


def test_another_image_is_said_and_the_pod_with_what_was_written_in_it_stays(tmp_path: Path) -> None:
    kube = api()
    pod(tmp_path / "rayside", kube).apply(lambda text: None)
    status = pod(tmp_path / "rayside", kube, image="r.test/x:2").check()
    assert status.condition is Condition.DRIFTED
    assert "its" not in status.detail.split()[0] and "r.test/x:2" in status.detail


def test_objects_of_others_by_that_name_are_refused_and_stay(tmp_path: Path) -> None:
    theirs = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": NAME}}
    kube = api(there={THE_POD: applied(theirs, "kubectl"), SECRET: applied(theirs, "kubectl")})
    step = pod(tmp_path / "rayside", kube)
    for each in (step, step.secret):
        with pytest.raises(NotOurs):
            each.check()
        assert each.undo(lambda text: None) is None
    assert kube.deleted == []


@pytest.mark.parametrize(
    ("leaving", "grace"), [({}, "1"), ({"deletionTimestamp": "2020-01-01T00:00:00Z"}, "0")]
)
def test_a_pod_on_a_dead_node_is_removed_at_once(tmp_path: Path, leaving: dict[str, str], grace: str) -> None:
    kube = api()
    step = pod(tmp_path / "rayside", kube)
    document = applied(step.manifest())
    document["metadata"] |= leaving
    kube.objects[THE_POD] = document
    assert step.undo(lambda text: None) is None
    assert kube.graces == {THE_POD: grace}


def test_down_says_what_it_can_not_remove(tmp_path: Path) -> None:
    kube = api()
    del kube.objects[THE_POD]
    kube.unlistable.add(THE_POD)
    left = pod(tmp_path / "rayside", kube).undo(lambda text: None)
    assert left is not None
    assert f"the pod {NAME} could not be removed from team" in left


# --- the choice --------------------------------------------------------------------------


def settings(prod: Path, **more: Any) -> Settings:
    given = {"context": "prod", "workspace_pod": True, "user": "Ada B.", "source": "packages", **more}
    return parse({"state_folder": prod.parent / "state", **given}, {})


@pytest.fixture
def one_ray(prod: Path, monkeypatch: pytest.MonkeyPatch, without_engine: None) -> Path:
    monkeypatch.setattr(heads, "find", lambda kube, name: "theirs")
    return prod


def chosen(prod: Path, **more: Any) -> ClusterWithWorkspace:
    target = choice.choose(settings(prod, **more), Shell())
    assert isinstance(target, ClusterWithWorkspace)
    return target


def test_a_context_with_workspace_has_a_pod_of_a_name_of_its_own_which_stays(one_ray: Path) -> None:
    mine = chosen(one_ray).instance
    assert mine.workspace_pod.startswith("workspace-ada-b-")
    assert mine.workspace_pod != choice.choose(settings(one_ray), Shell()).instance.workspace_pod
    make_own(mine.folder)
    mine.record.write_text(mine.document())
    again = choice.choose(Settings(state_folder=one_ray.parent / "state"), Shell())
    assert isinstance(again, ClusterWithWorkspace)
    assert again.instance.workspace_pod == mine.workspace_pod


def test_a_cluster_that_was_begun_without_gets_no_pod_unasked(one_ray: Path) -> None:
    mine = choice.choose(settings(one_ray, workspace_pod=False), Shell()).instance
    assert mine.workspace_pod == ""
    make_own(mine.folder)
    mine.record.write_text(mine.document())
    with pytest.raises(InvalidSetting, match=r"^the cluster rayside \(.*\) was made without --workspace$"):
        choice.choose(settings(one_ray), Shell())


def test_its_steps_fit_together_and_no_actor_is_among_them(one_ray: Path) -> None:
    target = chosen(one_ray, image_registry="r.test/x")
    steps = {step.name: step.needs for step in target.steps()}
    assert {need for needs in steps.values() for need in needs} <= steps.keys()
    assert {"workspace-secret", "workspace-pod", "relay", "workspace"} <= steps.keys()
    assert "relay-actor" not in steps
    urls = target.access.urls()
    assert urls["workspace"] == f"http://127.0.0.1:{target.instance.ports.workspace}"


def test_what_lacks_is_said_before_anything_is_made(one_ray: Path) -> None:
    with pytest.raises(ImagesOutOfReach, match=r"workspace:\S+$"):
        chosen(one_ray).connection.require_rights()
    target = chosen(one_ray, image_registry="r.test/x")
    vars(target)["kube"] = objects(lacking={"create pods in team", "get secrets in team"})
    with pytest.raises(Forbidden, match="create pods; get secrets"):
        target.connection.require_rights()


@pytest.mark.parametrize("workspace_pod", [True, False])
def test_a_ray_that_takes_tokens_of_kubernetes_is_refused_at_once(one_ray: Path, workspace_pod: bool) -> None:
    target = choice.choose(settings(one_ray, image_registry="r.test/x", workspace_pod=workspace_pod), Shell())
    assert isinstance(target, Cluster)
    env = [{"name": "TZ", "valueFrom": {}}, {"name": "RAY_ENABLE_K8S_TOKEN_AUTH", "value": "true"}]
    pods = [{"spec": {"containers": [{"name": "ray-head", "env": env}, {"name": "metrics"}]}}]
    lists = {f"{CORE}/namespaces/team/pods": pods}
    vars(target)["kube"] = objects(lists=lists, objects={"/version": {"minor": "34"}})
    with pytest.raises(KubernetesTokens) as caught:
        target.connection.preflight.check()
    assert "leave enableK8sTokenAuth out" in caught.value.hint
    assert not heads.takes_kubernetes_tokens(objects(lists={f"{CORE}/namespaces/team/pods": []}), "theirs")


def test_from_a_mirror_the_pod_pulls_with_a_secret_of_its_own(one_ray: Path) -> None:
    recorded(one_ray.parent / "state" / "rayside", mirror="r.test/team")
    target = chosen(one_ray, source="mirror", mirror="r.test/team")
    steps = {step.name: step for step in target.steps()}
    assert {need for step in steps.values() for need in step.needs} <= steps.keys()
    secret = steps["pull-secret"]
    assert isinstance(secret, PullSecret)
    # Another workspace in that namespace has its own.
    assert secret.secret == f"{target.instance.workspace_pod}-registry"
    assert "pull-secret" in steps["workspace-pod"].needs
    assert "bundle" in steps["state-folder"].needs
    assert steps.keys() >= {"wheels", "bundle-record"}
    assert not steps.keys() & {"extensions", "workspace-image", "engine"}
    document = pod(one_ray.parent / "another", api(), pull_secret=secret.secret).manifest()
    assert document["spec"]["imagePullSecrets"] == [{"name": secret.secret}]
    assert secret.secret in document["metadata"]["annotations"]["rayside.dev/spec"]
    # No index is asked for the packages of this machine.
    environment = steps["ray-environment"]
    assert isinstance(environment, RayEnvironment)
    assert environment.wheels == target.wheels is not None


def test_a_users_name_can_stand_in_a_pods() -> None:
    assert in_a_name("Ada Lovelace <ada@x.test>") == "ada-lovelace-ada-x-test"
    assert in_a_name("李雷") == "somebody"
    assert len(new_name("x" * 64)) <= 63


# --- in the pod --------------------------------------------------------------------------


class Says(Shell):
    """Answers as Python does that is asked where the debugger's packages are."""

    def run(self, args: Sequence[str | Path], **how: Any) -> Outcome:
        assert list(args)[:2] == ["/usr/bin/python", "-c"]
        return Outcome(0, "/site-packages/bytecode\n/site-packages/debugpy\n", "")


def test_a_job_submitted_in_the_pod_is_its_users_and_brings_the_debugger(tmp_path: Path) -> None:
    mine = replace(an_instance("rayside", "", tmp_path), target=POD, user="Ada")
    access = PodAccess(Says(), PodsRay(mine))
    job = jobs.Submission("python x.py", None, debug=Debug())
    completed = access.completed(job)
    carried = Debug(packages=("/site-packages/bytecode", "/site-packages/debugpy"))
    assert (completed.user, completed.debug) == ("Ada", carried)
    # Beside a head of ours all is one person's, and the image has the debugger.
    beside = PodAccess(Says(), PodsRay(replace(mine, user="")))
    assert beside.completed(job) == job
