"""Tests the target of `--create`: when it is chosen, what it is made of, and how its images get there."""

from __future__ import annotations

import json
from contextlib import nullcontext
from dataclasses import replace
from graphlib import TopologicalSorter
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn

import pytest
import yaml

from bootstrap import docker_engine
from bootstrap.delivery.loaded import NodeImages
from bootstrap.delivery.theirs import Delivery, delivery
from bootstrap.errors import EngineNotRunning, ImagesOutOfReach
from bootstrap.given_settings import parse
from bootstrap.instance import Instance
from bootstrap.kube.api import Kube
from bootstrap.kube.kubeconfig import server
from bootstrap.settings import Settings
from bootstrap.steps.pull_secret import PullSecret
from bootstrap.steps.ray_cluster import RayCluster
from bootstrap.targets import choice, preparation
from bootstrap.targets.cluster_created import ClusterCreated
from bootstrap.targets.target import with_example
from rayside.errors import InvalidSetting
from rayside.own_folder import make_own
from rayside.steps.graph import dependants
from rayside.steps.step import Step, Undoable
from rayside.system.shell import Shell
from tests.bundles import recorded
from tests.targets import kind_target

ADDRESS = "https://127.0.0.1:40123"
MIRROR = "r.test/team"


@pytest.fixture
def prod(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Provides a kubeconfig with the context `prod`, in whose namespace `team` one is."""
    document = {
        "clusters": [{"name": "c", "cluster": {"server": ADDRESS}}],
        "users": [{"name": "u", "user": {"exec": {"command": "/nobody/may/run/this", "apiVersion": "x"}}}],
        "contexts": [{"name": "prod", "context": {"cluster": "c", "user": "u", "namespace": "team"}}],
    }
    file = tmp_path / "kubeconfig"
    file.write_text(yaml.safe_dump(document))
    monkeypatch.setenv("KUBECONFIG", str(file))
    return file


def settings(prod: Path, **more: Any) -> Settings:
    given = {"context": "prod", "create": True, "source": "packages", **more}
    return parse({"state_folder": prod.parent / "state", **given}, {})


def chosen(prod: Path, **more: Any) -> ClusterCreated:
    target = choice.choose(settings(prod, **more), Shell())
    assert isinstance(target, ClusterCreated)
    return target


@pytest.fixture(autouse=True)
def without_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Has no engine answer, unless a test plays one."""

    def no_engine(patience: float = 0) -> NoReturn:
        raise EngineNotRunning("none answers", hint="start it")

    monkeypatch.setattr(docker_engine, "connected", no_engine)


def with_engine(monkeypatch: pytest.MonkeyPatch, *containers: SimpleNamespace) -> None:
    """Plays an engine with these containers of kind clusters."""

    def listed(filters: dict[str, str], all: bool = False) -> list[SimpleNamespace]:
        key, _, value = filters["label"].partition("=")
        return [each for each in containers if each.labels.get(key) and value in ("", each.labels[key])]

    client = SimpleNamespace(containers=SimpleNamespace(list=listed))
    monkeypatch.setattr(docker_engine, "connected", lambda *_: nullcontext(client))


def container(name: str, cluster: str, role: str, *ports: int) -> SimpleNamespace:
    published = [{"HostIp": "127.0.0.1", "HostPort": str(port)} for port in ports]
    labels = {"io.x-k8s.kind.cluster": cluster, "io.x-k8s.kind.role": role}
    attributes = {"NetworkSettings": {"Ports": {"6443/tcp": published or None}}}
    return SimpleNamespace(name=name, labels=labels, attrs=attributes, status="running")


def record(identity: Instance) -> None:
    """Records a cluster, as `up` does."""
    make_own(identity.folder)
    identity.record.write_text(identity.document())


# --- the choice --------------------------------------------------------------------------


def test_a_context_with_create_is_a_cluster_of_ours_in_its_namespace(prod: Path) -> None:
    target = chosen(prod)
    identity = target.instance
    assert (identity.target, identity.created, identity.namespace) == ("cluster", True, "team")
    assert (identity.context, identity.their_kubeconfig) == ("prod", str(prod))
    # It is reached through a forward, not where others' Rays are.
    assert identity.dashboard == f"http://127.0.0.1:{identity.ports.dashboard}"
    assert target.kube == Kube(prod, "prod", "team")
    assert chosen(prod, namespace="demo").instance.namespace == "demo"
    assert target.brings_example is True


def test_a_cluster_that_was_created_is_known_again_without_create(prod: Path) -> None:
    identity = chosen(prod).instance
    record(identity)
    again = choice.choose(Settings(state_folder=prod.parent / "state"), Shell())
    assert isinstance(again, ClusterCreated)
    assert again.instance == identity
    with pytest.raises(InvalidSetting, match="RayCluster rayside in team of prod"):
        choice.choose(replace(settings(prod), context="other", create=False), Shell())


def test_a_cluster_that_is_looked_after_is_not_made(prod: Path) -> None:
    identity = replace(chosen(prod).instance, their_cluster="theirs")
    record(identity)
    with pytest.raises(
        InvalidSetting,
        match=r"^the cluster rayside \(the RayCluster theirs in team of prod\) was made without --create$",
    ):
        choice.choose(settings(prod), Shell())


def test_the_apis_address_is_read_without_asking_a_plugin(prod: Path) -> None:
    assert server(prod, "prod") == ADDRESS
    assert server(prod, "other") == server(prod.parent / "none", "prod") == ""
    prod.write_text("- no kubeconfig")
    assert server(prod, "prod") == ""


# --- the steps ---------------------------------------------------------------------------


def plans(prod: Path) -> dict[str, list[Step]]:
    return {
        source: with_example(chosen(prod, source=source, image_registry="r.test/x"))
        for source in ("packages", "upstream")
    } | {"mirror": with_example(mirrored(prod))}


def mirrored(prod: Path, **more: Any) -> ClusterCreated:
    """Returns the target where a mirror has what it is made of."""
    recorded(prod.parent / "state" / "rayside", mirror=MIRROR)
    return chosen(prod, source="mirror", **{"mirror": MIRROR, **more})


def test_nodes_get_time_to_pull_the_images(prod: Path) -> None:
    for steps in plans(prod).values():
        (ray_cluster,) = [step for step in steps if isinstance(step, RayCluster)]
        assert ray_cluster.patience == 1800


def test_its_steps_fit_together_and_nothing_is_made_before_it_was_looked_at(prod: Path) -> None:
    for steps in plans(prod).values():
        names = [step.name for step in steps]
        assert len(names) == len(set(names))
        assert {need for step in steps for need in step.needs} - set(names) <= {"kuberay-manifests"}
        TopologicalSorter({step.name: step.needs for step in steps}).prepare()
        looked_before = dependants(steps, "preflight") | {"python", "ports"}
        assert set(names) <= looked_before
        # Whatever `down` removes in the namespace goes before the namespace, and the record last.
        in_it = {"ray-cluster", "workspace-password", "custom-resources", "network-policies"}
        in_it |= {"pull-secret"} & set(names)
        assert in_it <= dependants(steps, "namespace")
        removed = {step.name for step in steps if isinstance(step, Undoable)}
        before_the_record = removed & dependants(steps, "state-folder")
        assert {*in_it, "namespace", "forwards", "cluster-file"} <= before_the_record


def test_down_can_be_told_its_steps_where_nothing_answers(prod: Path) -> None:
    target = chosen(prod)
    assert isinstance(target.delivery.refusal, ImagesOutOfReach)
    prod.unlink()
    unreachable = ClusterCreated(target.settings, Shell(), target.instance, "a test")
    assert {step.name for step in unreachable.steps()} >= {"namespace", "ray-cluster", "forwards"}


# --- its images --------------------------------------------------------------------------


def way(prod: Path, address: str = ADDRESS, registry: str = "", source: str = "upstream") -> Delivery:
    origin = kind_target(Settings(target="kind", source=source)).origin
    prod.write_text(prod.read_text().replace(ADDRESS, address))
    chosen = Settings(image_registry=registry)
    return delivery(chosen, Shell(), origin, Kube(prod, "prod"))


def test_every_node_of_a_kind_cluster_here_is_loaded(prod: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with_engine(
        monkeypatch,
        container("other-control-plane", "other", "control-plane", 40999),
        container("theirs-external-load-balancer", "theirs", "external-load-balancer", 40123),
        container("theirs-worker", "theirs", "worker"),
        container("theirs-control-plane", "theirs", "control-plane", 40001),
    )
    chosen_way = way(prod)
    step = chosen_way.step
    assert isinstance(step, NodeImages)
    assert (step.cluster, step.nodes) == ("theirs", ("theirs-control-plane", "theirs-worker"))
    # Names that others' manifests may use stay as they are.
    assert step.aliases == ()
    assert chosen_way.artifacts == ("ray", "workspace", "operator")
    assert way(prod, "https://10.0.0.1:6443").refusal is not None


def test_from_a_registry_nodes_pull_what_is_built_here_and_the_rest_from_where_it_is(prod: Path) -> None:
    built, pulled = way(prod).images, way(prod, registry="r.test:5000/team").images
    assert pulled.ray == f"r.test:5000/team/{built.ray}"
    assert pulled.workspace == f"r.test:5000/team/{built.workspace}"
    assert pulled.operator == built.operator
    # Whoever has a name of ours in a public registry would run programs in nodes that lack the image.
    assert (built.pull_policy, pulled.pull_policy) == ("Never", "IfNotPresent")
    packages = way(prod, registry="r.test", source="packages")
    assert packages.images.operator.startswith("r.test/rayside/operator:")
    assert packages.artifacts == ()
    assert packages.refusal is None


def test_without_a_way_what_is_missing_is_said(prod: Path) -> None:
    refusal = way(prod, "https://10.0.0.1:6443").refusal
    assert refusal is not None
    images = way(prod).images
    assert images.ray in refusal.message
    assert images.workspace in refusal.message
    assert images.operator not in refusal.message
    assert "./invokew mirror REGISTRY" in refusal.hint


def test_from_a_mirror_pods_pull_with_this_machines_login(prod: Path) -> None:
    target = mirrored(prod)
    images = target.images
    for name in ("ray", "workspace", "operator"):
        digest = target.origin.resolve(name).digest
        # Whoever may write to the registry could give a tag to another image.
        assert getattr(images, name) == f"{MIRROR}/rayside/bundled-{name}@{digest}"
    assert (images.pull_policy, images.pull_secret) == ("IfNotPresent", "rayside-registry")
    steps = {step.name: step for step in target.steps()}
    # A bundle that is refused leaves no folder, and no pod is made before it can pull.
    assert "bundle" in steps["state-folder"].needs
    assert "custom-resources" in dependants(target.steps(), "pull-secret")
    assert steps.keys() >= {"wheels", "kubectl", "kubectl-ray", "bundle-record"}
    # No gallery is asked, and nothing is loaded into nodes.
    assert not steps.keys() & {"extensions", "ray-image", "engine"}
    cluster = steps["ray-cluster"]
    assert isinstance(cluster, RayCluster)
    document = cluster.manifest()
    assert "rayside-registry" in document["metadata"]["annotations"]["rayside.dev/spec"]
    spec = document["spec"]
    for group in (spec["headGroupSpec"], *spec["workerGroupSpecs"]):
        assert group["template"]["spec"]["imagePullSecrets"] == [{"name": "rayside-registry"}]
    # Where somebody has named another registry, its logins are somebody's, too.
    named = mirrored(prod, image_registry="other.test")
    assert named.images.ray.startswith("other.test/rayside/bundled-")
    assert named.images.pull_secret == ""
    assert not login_of(named).registry
    # Whoever refuses that pods have a login has none named, either.
    refused = mirrored(prod, login_in_pods=False)
    assert (refused.images.pull_secret, login_of(refused).registry) == ("", "")
    assert "imagePullSecrets" not in json.dumps(refused._manifest._overlay(Path()))
    patched = json.dumps(target._manifest._overlay(Path()))
    assert "imagePullSecrets" in patched
    assert f'"digest": "{target.origin.resolve("operator").digest}"' in patched


def test_later_commands_know_the_mirror_without_the_setting(prod: Path) -> None:
    first = mirrored(prod)
    first.instance.record.write_text(first.instance.document())
    again = choice.choose(Settings(state_folder=prod.parent / "state"), Shell())
    assert isinstance(again, ClusterCreated)
    assert again.images == first.images
    (gone,) = preparation.removable(Settings(state_folder=prod.parent / "state"), Shell())
    assert "pull-secret" in {step.name for step in gone.steps() if isinstance(step, Undoable)}


def test_nodes_of_this_engine_get_a_bundles_images(prod: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with_engine(monkeypatch, container("theirs-control-plane", "theirs", "control-plane", 40123))
    # So they do where the mirror is on this machine, which nodes can't reach.
    recorded(prod.parent / "state" / "rayside", mirror="127.0.0.1:5000")
    target = chosen(prod, source="mirror", mirror="127.0.0.1:5000")
    step = target.delivery.step
    assert isinstance(step, NodeImages)
    assert step.archives is not None
    assert "bundle" in step.needs
    names = {each.name for each in target.steps()}
    assert "engine" in names
    assert "ray-image" not in names
    assert target.disk.setting == "kind_min_disk_gib"
    assert not login_of(target).registry


def login_of(target: ClusterCreated) -> PullSecret:
    (step,) = (step for step in target.steps() if isinstance(step, PullSecret))
    return step


def test_a_mirror_that_is_named_for_good_is_for_what_is_made_anew(prod: Path) -> None:
    recorded(prod.parent / "state" / "rayside", mirror=MIRROR)
    new = choice.choose(settings(prod, source="auto", mirror=MIRROR), Shell())
    assert new.instance.source == "mirror"
    # One that is there stays what it was made of, whatever is in invoke.yaml by now.
    before = chosen(prod).instance
    record(before)
    later = parse({"state_folder": prod.parent / "state", "mirror": MIRROR}, {})
    assert choice.choose(later, Shell()).instance.source == "packages"
    # What it was is taken back, too.
    (gone,) = preparation.removable(later, Shell())
    assert "pull-secret" in {step.name for step in gone.steps() if isinstance(step, Undoable)}


def test_a_mirror_has_nothing_for_a_ray_on_this_machine(prod: Path) -> None:
    folder = prod.parent / "state"
    recorded(folder / "rayside", mirror=MIRROR)
    given = {"state_folder": folder, "mirror": MIRROR}
    new = choice.choose(parse(given, {}), Shell())
    assert (new.instance.target, new.instance.source, new.reason) == (
        "kind",
        "mirror",
        "auto: a bundle has what it needs",
    )
    later, now, _ = preparation.preparation(parse(given, {}), Shell())
    assert later.instance.target == "kind"
    assert "workspace-files" not in {step.name for step in now}
    assert choice.choose(parse({**given, "target": "local"}, {}), Shell()).instance.target == "local"


def test_without_a_registry_a_bundle_has_no_way_there(prod: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with_engine(monkeypatch)
    monkeypatch.setattr(docker_engine, "answers", lambda: True)
    # A mirror on this machine's loopback is out of the nodes' reach.
    recorded(prod.parent / "state" / "rayside", mirror="127.0.0.1:5000")
    target = chosen(prod, source="mirror", mirror="127.0.0.1:5000")
    # It is the first that is looked at, so nothing is made before.
    with pytest.raises(ImagesOutOfReach, match=r"out of a bundle, as no registry .*bundled-ray:") as told:
        target.preflight.check()
    assert set(target.preflight.needs) == set()
    assert "./invokew mirror REGISTRY" in told.value.hint
    assert "--source mirror --mirror REGISTRY" in told.value.hint
    # Without an engine nobody knows whether these nodes are some of its containers.
    monkeypatch.setattr(docker_engine, "answers", lambda: False)
    refusal = chosen(prod, source="mirror", mirror="127.0.0.1:5000").delivery.refusal
    assert refusal is not None
    assert refusal.hint == "start the Docker engine"
