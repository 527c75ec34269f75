"""Tests that the steps of each target fit together, and that the files beside the code have the pins."""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from graphlib import TopologicalSorter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from bootstrap import docker_engine
from bootstrap.settings import (
    CODE_SERVER_VERSION,
    COREDNS_VERSION,
    EXTENSIONS,
    KIND_VERSION,
    KUBERAY_VERSION,
    KUBERNETES_VERSION,
    OLDEST_GO,
    ORAS_VERSION,
    PAUSE_TAG,
    RAY_VERSION,
    ROOT,
    Settings,
)
from bootstrap.sources.image_build import ImageBuild
from bootstrap.targets.kind import Kind
from bootstrap.targets.local import Local
from bootstrap.targets.target import with_example
from rayside.steps.graph import check, dependants
from rayside.steps.state_folder import StateFolder
from rayside.steps.step import Condition, Step, Undoable
from tests.integration.vsix import gallery, vsix
from tests.targets import kind_target, local_target

# What a source may bring in a step of its own, or with another.
OPTIONAL = {"kuberay-manifests"}


def kind(source: str) -> Kind:
    return kind_target(Settings(target="kind", source=source))


PLANS = {
    "local": with_example(local_target()),
    "kind from packages": with_example(kind("packages")),
    "kind from upstream": with_example(kind("upstream")),
}


@pytest.mark.parametrize("steps", PLANS.values(), ids=PLANS.keys())
def test_every_need_is_a_step_and_none_needs_itself(steps: Sequence[Step]) -> None:
    names = [step.name for step in steps]
    assert len(names) == len(set(names))
    assert {need for step in steps for need in step.needs} - set(names) <= OPTIONAL
    TopologicalSorter({step.name: step.needs for step in steps}).prepare()


def before(steps: Sequence[Step], name: str) -> set[str]:
    """Returns the step and all that have to be ready before it."""
    (needs,) = [step.needs for step in steps if step.name == name] or [()]
    return {name}.union(*(before(steps, need) for need in needs)) & {step.name for step in steps}


def ray_cluster(**settings: Any) -> tuple[Kind, dict[str, Any]]:
    """Returns a target, and the RayCluster that it makes."""
    target = kind_target(Settings(target="kind", source="upstream", **settings))
    step = next(step for step in target.steps() if step.name == "ray-cluster")
    assert step.title == f"RayCluster {target.instance.name}"
    document: dict[str, Any] = step.manifest()  # type: ignore[attr-defined]
    return target, document


@pytest.mark.parametrize("source", ["packages", "upstream"])
def test_a_source_gives_all_that_the_cluster_needs_and_starts_nothing(source: str) -> None:
    names = {step.name for step in kind(source).cacheable(engine=True)}
    assert names >= {"kind", "kubectl", "kubectl-ray", "operator-manifest", "ray-environment"}
    assert names >= {f"{image}-image" for image in ("ray", "workspace", "operator", "node")}
    assert not names & {"cluster", "images", "kuberay", "ray-cluster", "forwards", "example"}


def test_a_local_workspace_is_made_beside_ray_and_can_be_left_out() -> None:
    of_workspace = {"extensions", "workspace-files", "workspace-password", "workspace"}
    steps = PLANS["local"]
    assert {step.name for step in steps} >= {*of_workspace, "cluster-file"}
    assert not before(steps, "workspace") & {"ray", "relay", "ray-environment"}
    assert "workspace" not in before(steps, "example")
    without = local_target(Settings(target="local", workspace=False))
    names = {step.name for step in without.steps()}
    assert (names & of_workspace, "cluster-file" in names) == (set(), True)
    assert without.access.urls()["workspace"] is None
    assert not {step.name for step in without.cacheable(engine=True)} & {"extensions", "workspace-files"}


@pytest.mark.parametrize("source", ["packages", "upstream"])
def test_the_workspace_image_is_named_by_the_extensions_that_were_got(source: str, tmp_path: Path) -> None:
    def image(**settings: str) -> str:
        parsed = Settings(target="kind", source=source, cache_folder=tmp_path, **settings)  # type: ignore[arg-type]
        return kind_target(parsed).origin.images.workspace

    assert kind_target(Settings(target="kind", source=source)).asks is False
    (tmp_path / "vsix").mkdir()
    without = image(vsix_folder=str(tmp_path / "vsix"))
    id, version = EXTENSIONS[0]
    vsix(tmp_path / "vsix" / "any-name.vsix", id, version)
    assert image() == without != image(vsix_folder=str(tmp_path / "vsix"))
    settings = Settings(target="kind", source=source, vsix_folder=str(tmp_path / "vsix"))
    target = kind_target(settings)
    steps = {step.name: step for step in target.origin.steps}
    build = steps["workspace-image"]
    assert isinstance(build, ImageBuild)
    assert build.extra[f"extensions/{id}.vsix"] == tmp_path / "vsix" / "any-name.vsix"
    (record,) = json.loads(build.arguments["EXTENSIONS"])
    assert (record["id"], record["version"], record["from"]) == (id, version, "file any-name.vsix")
    (extension,) = (artifact for artifact in target.origin.artifacts if artifact.kind == "extension")
    assert (extension.name, extension.digest) == (id, record["sha256"])


@pytest.mark.parametrize("steps", PLANS.values(), ids=PLANS.keys())
def test_a_cluster_is_known_by_its_record_until_all_else_of_it_is_removed(steps: Sequence[Step]) -> None:
    undone_before = dependants(steps, "state-folder")
    others = {step.name for step in steps if isinstance(step, Undoable)} - undone_before
    assert {"ray-token", "cluster-file"} <= undone_before
    # These have only what they cache, which is every cluster's.
    of_the_cache = {"ray-environment", "operator-manifest", "kuberay-manifests", "go", "kind", "kubectl"}
    assert others <= {*of_the_cache, "kubectl-ray", "coredns", "pause"}


@pytest.mark.parametrize("source", ["packages", "upstream"])
def test_no_file_is_read_twice_to_name_what_images_are_made_of(source: str) -> None:
    reads: Counter[Path] = Counter()

    def watch(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open" and watching and isinstance(arguments[0], str):
            reads[Path(arguments[0])] += 1

    target = kind(source)
    # This machine's own environment is named by a file that is in Ray's image, too.
    assert target.environment.folder.name
    watching = True
    sys.addaudithook(watch)
    try:
        with_example(target)
        target.cacheable(engine=True)
        assert {artifact.reference for artifact in target.origin.artifacts if artifact.kind == "image"}
    finally:
        # A hook stays for good (https://docs.python.org/3/library/sys.html#sys.addaudithook).
        watching = False
    inputs = {
        file: count
        for file, count in reads.items()
        if any(file.is_relative_to(ROOT / folder) for folder in ("bootstrap", "image", "rayside", "vscode"))
    }
    assert len(inputs) > 50
    assert {file: count for file, count in inputs.items() if count > 1} == {}


@pytest.mark.parametrize("source", ["packages", "upstream"])
def test_a_cluster_keeps_its_workspace_when_a_gallery_has_more_by_now(source: str, tmp_path: Path) -> None:
    with gallery() as open_vsx:
        url, port = open_vsx.url, int(open_vsx.url.rpartition(":")[2])
    settings = Settings(
        target="kind",
        source=source,
        cache_folder=tmp_path / "cache",
        state_folder=tmp_path / "state",
        extension_gallery=url,
    )

    def target(*, prepares: bool = False) -> Kind:
        return replace(kind_target(settings), asks=True, prepares=prepares)

    first = target()
    StateFolder(first.instance).apply(lambda _: None)
    assert first.extensions.variant.extensions == ()
    first.extensions.apply(lambda _: None)
    with gallery(port) as open_vsx:
        for number, (id, version) in enumerate(EXTENSIONS):
            open_vsx.publish(vsix(tmp_path / f"{number}.vsix", id, version), id, version, "universal")
        assert target().origin.images == first.origin.images
        assert open_vsx.requests == []
        later = target(prepares=True)
        assert later.origin.images.workspace != first.origin.images.workspace
        assert len(later.extensions.variant.extensions) == len(EXTENSIONS)
        # Named before anything was fetched, and the same afterwards.
        later.extensions.apply(lambda _: None)
        assert target(prepares=True).origin.images == later.origin.images
    StateFolder(first.instance).undo(lambda _: None)
    assert target().origin.images == later.origin.images


def test_a_source_resolves_and_lists_what_a_target_is_made_of() -> None:
    for source in ("packages", "upstream"):
        origin = kind(source).origin
        assert {name: origin.resolve(name).kind for name in ("kind", "kuberay", "go", "ray")} == {
            **{"kind": "program", "kuberay": "manifest", "go": "wheel", "ray": "image"}
        }
        steps = {step.name for step in origin.steps}
        assert {origin.step_of(artifact.name) for artifact in origin.artifacts} <= steps
        # Without a node, a source is asked for nothing that only a node is made of.
        names = {step.name for step in origin.steps_for("kubectl", "workspace")}
        assert names >= {"kubectl", "ray-image", "workspace-image", "extensions"}
        assert not names & {"kind", "plain-node-image", "node-image", "operator-image", "coredns"}
        assert origin.steps_for(*(artifact.name for artifact in origin.artifacts)) == list(origin.steps)


@pytest.mark.parametrize("source", ["packages", "upstream"])
def test_nothing_is_fetched_or_built_before_the_machine_was_looked_at(source: str) -> None:
    steps = kind(source).steps()
    machine_checks = {"engine", "python", "memory", "ports", "disk"}
    assert before(steps, "disk") == machine_checks
    early = {step.name for step in steps if "disk" not in before(steps, step.name)}
    assert early == machine_checks - {"disk"}


@pytest.mark.parametrize("target", [kind("packages"), local_target()])
def test_doctor_lists_the_steps_of_the_target_and_each_port(target: Kind | Local) -> None:
    steps = {step.name: step for step in target.machine()}
    cluster = {step.name: step for step in target.steps()}
    assert {"system", "python", "memory", "disk", "ray-environment", "dashboard-port"} <= steps.keys()
    ports = {port.replace("_", "-") for port in target.ports}
    assert {name for name in steps if name.endswith("-port")} == ports
    for name in ("python", "memory", "ray-environment"):
        assert steps[name] == cluster[name]


@pytest.mark.parametrize("source", ["packages", "upstream"])
def test_without_an_engine_programs_and_rays_environment_are_prepared(source: str) -> None:
    steps = kind(source).cacheable(engine=False)
    need_engine = dependants(steps, "engine")
    prepared = [step for step in steps if step.name not in need_engine]
    left_out = [step for step in steps if step.name in need_engine]
    names = {step.name for step in prepared}
    assert names >= {"memory", "disk", "kind", "kubectl", "kubectl-ray", "operator-manifest"}
    assert "ray-environment" in names
    assert not any("image" in name for name in names)
    assert {step.name for step in left_out} >= {"engine", "ray-image", "workspace-image", "node-image"}
    assert not {need for step in prepared for need in step.needs} & {step.name for step in left_out}


# What is read of a cluster, in the order of `status`.
ON_A_CLUSTER = (
    *("cluster", "kubeconfig", "context", "images", "custom-resources", "kuberay", "workspace-password"),
    *("ray-cluster", "ray-token", "forwards"),
)


@pytest.mark.parametrize("node", [None, "exited"])
def test_without_a_cluster_each_step_says_so_in_one_short_line(
    node: str | None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    target = kind_target(Settings(target="kind", source="packages", state_folder=tmp_path / "state"))
    mark = {"Source": str(target.instance.folder / "node"), "Destination": "/etc/rayside/source=packages"}
    name = "rayside-control-plane"
    attributes = {"Mounts": [mark], "NetworkSettings": {"Ports": {}}}
    container = SimpleNamespace(name=name, status=node, attrs=attributes)

    @contextmanager
    def connected(patience: float = 0) -> Iterator[Any]:
        listed = [container] if node else []
        yield SimpleNamespace(containers=SimpleNamespace(list=lambda **_: listed))

    monkeypatch.setattr(docker_engine, "connected", connected)
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "config"))
    statuses = check([step for step in target.steps() if step.name in ON_A_CLUSTER])
    assert tuple(statuses) == ON_A_CLUSTER
    for name, status in statuses.items():
        assert status.condition is Condition.MISSING, name
        assert len(status.detail) <= 60, name
        assert "\n" not in status.detail, name
        assert str(tmp_path) not in status.detail, name
    in_the_node = "the node rayside-control-plane is exited" if node else "there is no cluster yet"
    assert statuses["images"].detail == in_the_node


def test_the_workspace_of_a_codespace_trusts_its_own_address(monkeypatch: pytest.MonkeyPatch) -> None:
    def environment() -> dict[str, str]:
        head = ray_cluster()[1]["spec"]["headGroupSpec"]
        _, workspace, _ = head["template"]["spec"]["containers"]
        return {variable["name"]: variable.get("value", "") for variable in workspace["env"]}

    monkeypatch.delenv("CODESPACES", raising=False)
    assert "TRUSTED_ORIGINS" not in environment()
    monkeypatch.setenv("CODESPACES", "true")
    monkeypatch.setenv("CODESPACE_NAME", "a-b")
    monkeypatch.setenv("GITHUB_CODESPACES_PORT_FORWARDING_DOMAIN", "ports.test")
    assert environment()["TRUSTED_ORIGINS"] == "a-b-8443.ports.test"


def test_upstreams_cluster_boots_while_images_are_fetched() -> None:
    assert not before(kind("upstream").steps(), "cluster") & {
        "ray-image",
        "workspace-image",
        "operator-image",
    }


def test_the_go_modules_are_the_pinned_ones() -> None:
    required = {
        "kind": f"sigs.k8s.io/kind v{KIND_VERSION}",
        "kuberay": f"github.com/ray-project/kuberay/ray-operator v{KUBERAY_VERSION}",
        "kubernetes": f"k8s.io/kubernetes v{KUBERNETES_VERSION}",
        "coredns": f"github.com/coredns/coredns v{COREDNS_VERSION}",
        "oras": f"oras.land/oras v{ORAS_VERSION}",
    }
    for module, line in required.items():
        assert line in (ROOT / "image" / "programs" / module / "go.mod").read_text(), module
    oldest = ".".join(map(str, OLDEST_GO))
    for file in (ROOT / "image" / "programs").glob("*/go.mod"):
        needed = re.search(r"^go (\d+)\.(\d+)(?:\.(\d+))?", file.read_text(), re.MULTILINE)
        assert needed and tuple(int(each or 0) for each in needed.groups()) <= OLDEST_GO, (
            f"{file} wants more than {oldest}"
        )


@pytest.mark.parametrize(
    ("file", "pinned"),
    [
        (
            "image/node/files/etc/containerd/config.toml",
            f'sandbox_image = "registry.k8s.io/pause:{PAUSE_TAG}"',
        ),
        ("k8s/ray-cluster.yaml", f"rayVersion: {RAY_VERSION}\n"),
        ("example/ray-job.interactive-mode.yaml", f"rayVersion: {RAY_VERSION}\n"),
        ("image/workspace/package.json", f'"code-server": "{CODE_SERVER_VERSION}"'),
    ],
)
def test_files_beside_the_code_have_the_pins(file: str, pinned: str) -> None:
    assert pinned in (ROOT / file).read_text()


def test_the_ray_cluster_is_what_the_settings_say_with_the_names_of_its_instance() -> None:
    target, document = ray_cluster(ray_workers=3, name="mine")
    head, workers = document["spec"]["headGroupSpec"], document["spec"]["workerGroupSpecs"][0]
    assert workers["replicas"] == 3
    assert json.loads(document["metadata"]["annotations"]["rayside.dev/spec"])["workers"] == "3"
    ray, workspace, relay = head["template"]["spec"]["containers"]
    images = target.origin.images
    assert ray["image"] == images.ray
    assert workspace["image"] == relay["image"] == images.workspace
    labels = {"app.kubernetes.io/managed-by": "rayside", "rayside.dev/instance": "mine"}
    assert (document["metadata"]["name"], document["metadata"]["labels"]) == ("mine", labels)
    assert [group["template"]["metadata"]["labels"] for group in (head, workers)] == [labels, labels]
    _, token, _ = head["template"]["spec"]["volumes"]
    assert token["secret"]["secretName"] == "mine"
    password = next(variable for variable in workspace["env"] if variable["name"] == "PASSWORD")
    assert password["valueFrom"]["secretKeyRef"] == {"name": "mine-workspace", "key": "password"}


@pytest.mark.parametrize("file", sorted((ROOT / "k8s").glob("*.yaml")), ids=lambda file: file.stem)
def test_manifests_are_one_plain_document_that_names_no_instance(file: Path) -> None:
    document = yaml.safe_load(file.read_text())
    assert {"apiVersion", "kind"} <= set(document)
    text = yaml.safe_dump(document)
    for allowed in (
        *("rayside/ray:current", "rayside/workspace:current", "/opt/rayside/", "/home/ray/rayside/"),
    ):
        text = text.replace(allowed, "")
    assert "rayside" not in text
