"""Tests, on the real node, that each way in which it can't pull an image is told with its cause."""

from __future__ import annotations

import hashlib
import json
import platform
import secrets
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import docker
import pytest
import requests
from docker.models.containers import Container

from bootstrap.bundle.blobs import Blob, Blobs
from bootstrap.bundle.layout import LAYOUT
from bootstrap.errors import ImageMissing, WrongArchitecture
from bootstrap.kube import pulls, trouble
from bootstrap.kube.api import CORE, Kube
from bootstrap.registry.address import Address
from bootstrap.registry.login import Login, login_for
from bootstrap.registry.oras import Oras
from bootstrap.settings import Settings
from bootstrap.sources.registry_client import RegistryClient
from bootstrap.steps.registry_in_nodes import NodeRegistries, StandIn, Trusted
from rayside.steps.step import Condition
from rayside.system.shell import Shell
from rayside.waiting import until
from tests.bundles import layer
from tests.e2e.conftest import gateway_of, make_namespace, node_of, target
from tests.e2e.test_rayjob import placed, pod
from tests.integration.conftest import Rayside
from tests.integration.connect_proxy import ConnectProxy, connect_proxy
from tests.integration.self_signed import of_tomorrow
from tests.patience import PATIENCE
from tests.registries import PASSWORD, USER, Served, logged_in, private, served, with_oras

INDEX = "application/vnd.oci.image.index.v1+json"


@dataclass(frozen=True)
class Registries:
    """Registries at the gateway of the node's network, where the node reaches this machine.

    `known` is one whose authority the node has, `unknown` one whose it has not, `open` has no TLS, and the
    certificate of `early` is of tomorrow.
    """

    known: Served
    unknown: Served
    open: Served
    early: Served


def silent(_: str) -> None:
    pass


@pytest.fixture(scope="module")
def kube(up: Rayside) -> Iterator[Kube]:
    """Provides a namespace for these tests alone."""
    name = f"rayside-test-{secrets.token_hex(3)}"
    cluster = target(up).kube
    make_namespace(cluster, name)
    yield replace(cluster, namespace=name)
    cluster.delete(f"/api/v1/namespaces/{name}")


@pytest.fixture(scope="module")
def registries(up: Rayside, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Registries]:
    folder = tmp_path_factory.mktemp("registries")
    with ExitStack() as stack:
        stack.enter_context(with_oras())
        gateway = gateway_of(up)
        tomorrow = of_tomorrow(gateway, folder)
        served_there = Registries(
            known=stack.enter_context(private(folder / "known", gateway)),
            unknown=stack.enter_context(private(folder / "unknown", gateway)),
            open=stack.enter_context(served(folder / "open", host=gateway)),
            early=stack.enter_context(served(folder / "early", host=gateway, certificate=tomorrow)),
        )
        assert served_there.known.authority
        address = Address(served_there.known.name)
        step = NodeRegistries(up.settings.name, [Trusted(address, served_there.known.authority)])
        step.apply(silent)
        foreign(served_there.known)
        yield served_there


def foreign(registry: Served) -> None:
    """Puts an image there that is for another processor alone."""
    login = Login(USER, PASSWORD)
    with pytest.MonkeyPatch.context() as patched, tempfile.TemporaryDirectory() as folder:
        patched.setenv("DOCKER_CONFIG", str(logged_in(registry.name, Path(folder))))
        client(registry).require("app")
    manifest = json.dumps({"schemaVersion": 2, "mediaType": INDEX, "manifests": []}).encode()
    answer = requests.put(
        f"https://{registry.name}/v2/app/manifests/foreign",
        data=manifest,
        headers={"Content-Type": INDEX, "Authorization": login.basic},
        verify=str(registry.authority),
        timeout=PATIENCE,
    )
    assert answer.status_code == 201, answer.text


def client(registry: Served, path: str = "") -> Oras:
    """Returns the client of a registry, as the user of the Docker configuration."""
    return RegistryClient(Settings(), Shell()).of(Address(registry.name, path), registry.authority)


def secret(name: str, registry: Served, kind: str = "kubernetes.io/dockerconfigjson") -> dict[str, Any]:
    login = Login(USER, PASSWORD).basic.partition(" ")[2]
    texts = {".dockerconfigjson": json.dumps({"auths": {registry.name: {"auth": login}}})}
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "type": kind,
        "metadata": {"name": name},
        "stringData": texts,
    }


@pytest.fixture(scope="module")
def pods(kube: Kube, registries: Registries) -> None:
    """Makes all of them at once, because each takes its time to fail."""
    known = registries.known.name
    kube.apply(placed(secret("login", registries.known), kube))
    kube.apply(placed(secret("opaque", registries.known, "Opaque"), kube))

    def with_secret(name: str, image: str, named: str) -> dict[str, Any]:
        document = pod(name, image)
        document["spec"]["imagePullSecrets"] = [{"name": named}]
        return document

    for document in (
        with_secret("name", f"{known}/app:absent", "login"),
        with_secret("architecture", f"{known}/app:foreign", "login"),
        pod("login", f"{known}/app:foreign"),
        with_secret("secret-type", f"{known}/app:foreign", "opaque"),
        with_secret("no-secret", f"{known}/app:foreign", "nowhere"),
        pod("authority", f"{registries.unknown.name}/app:1"),
        pod("no-tls", f"{registries.open.name}/app:1"),
        pod("clock", f"{registries.early.name}/app:1"),
        pod("dns", "registry.invalid/app:1"),
        pod("unreachable", "127.0.0.1:9/app:1"),
        pod("never", "rayside/absent:none", imagePullPolicy="Never"),
    ):
        kube.apply(placed(document, kube))


@pytest.mark.parametrize(
    "name",
    [
        *("name", "architecture", "login", "secret-type", "no-secret", "authority", "no-tls", "clock", "dns"),
        *("unreachable", "never"),
    ],
)
def test_why_an_image_is_not_pulled_is_told(kube: Kube, pods: None, name: str) -> None:
    expect_told(kube, name)


def expect_told(kube: Kube, name: str, cause: str = "") -> None:
    """Waits until the cause is told for which that pod's image is not pulled (default: that of its name)."""
    known = {cause.name: cause for _, cause in pulls._CAUSES}
    possible = [known[cause or name], *([known["name-or-login"]] if name == "login" else [])]

    def told() -> str:
        problem = trouble.first_problem(kube, f"test={name}")
        assert problem is None or isinstance(problem, WrongArchitecture | ImageMissing)
        assert problem is None or isinstance(problem, WrongArchitecture) is (name == "architecture")
        return problem.message if problem else ""

    message = until(told, lambda text: any(cause.why in text for cause in possible), PATIENCE)
    assert any(cause.why in message for cause in possible), message


def test_an_image_of_a_public_registry_comes_from_the_companys(
    kube: Kube, registries: Registries, up: Rayside, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    known = registries.known
    monkeypatch.setenv("DOCKER_CONFIG", str(logged_in(known.name, tmp_path / "docker")))
    content = small_image(client(known, "hub"), tmp_path / "layout")
    # Nobody answers by that name, which no resolver knows either.
    stand_in = StandIn(
        "public.invalid", Address(known.name, "hub"), known.authority, partial(login_for, known.name)
    )
    step = NodeRegistries(up.settings.name, [stand_in])
    assert step.check().condition is Condition.MISSING
    step.apply(silent)
    assert step.check().condition is Condition.READY
    kube.apply(placed(pod("public", "public.invalid/team/app:1"), kube))

    def pulled() -> bool:
        events = kube.items(f"{CORE}/namespaces/{kube.namespace}/events")
        return any(
            event["reason"] == "Pulled" and event["involvedObject"]["name"] == "public" for event in events
        )

    assert until(pulled, bool, PATIENCE), trouble.first_problem(kube, "test=public")
    assert known_in_node(up, content)


def small_image(registry: Oras, layout: Path) -> str:
    """Puts an image with one file there, as team/app:1; returns the digest of its configuration."""
    blobs = Blobs(layout / "blobs" / "sha256")
    content = layer("a file", b"some text")
    architecture = "arm64" if platform.machine() == "aarch64" else "amd64"
    rootfs = {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(content).hexdigest()}"]}
    config = json.dumps({"architecture": architecture, "os": "linux", "rootfs": rootfs}).encode()
    kind = "application/vnd.oci.image"

    def described(part: str, blob: Blob) -> dict[str, Any]:
        return {"mediaType": f"{kind}.{part}", "digest": f"sha256:{blob.digest}", "size": blob.size}

    configuration = described("config.v1+json", blobs.add([config]))
    manifest = {
        "schemaVersion": 2,
        "mediaType": f"{kind}.manifest.v1+json",
        "config": configuration,
        "layers": [described("layer.v1.tar", blobs.add([content]))],
    }
    whole = described("manifest.v1+json", blobs.add([json.dumps(manifest).encode()]))
    (layout / "oci-layout").write_bytes(LAYOUT)
    (layout / "index.json").write_text(json.dumps({"schemaVersion": 2, "manifests": [whole]}))
    registry.send(layout, whole["digest"], "team/app", silent)
    registry.tag("team/app", whole["digest"], "1")
    return str(configuration["digest"])


def known_in_node(up: Rayside, image: str) -> bool:
    """Returns whether the node's CRI lists an image of that id."""
    client = docker.from_env()
    try:
        (node,) = client.containers.list(filters={"name": target(up).cluster.node})
        listed = node.exec_run(["ctr", "--namespace", "k8s.io", "images", "list", "--quiet"])
        return image in listed.output.decode().splitlines()
    finally:
        client.close()


PROXIES = "/etc/systemd/system/containerd.service.d/test-proxy.conf"
PLAIN = "/etc/containerd/certs.d/plain.test/hosts.toml"


@pytest.fixture
def proxy(up: Rayside) -> Iterator[ConnectProxy]:
    """Provides the proxy by which the node asks registries; for those without TLS it has one that is away."""
    with connect_proxy(gateway_of(up)) as proxy, node_of(up) as node:
        proxies = f"HTTPS_PROXY=http://{proxy.host}:{proxy.port} HTTP_PROXY=http://127.0.0.1:9"
        _write(node, PROXIES, f"[Service]\nEnvironment={proxies}")
        _write(node, PLAIN, 'server = "http://plain.test"')
        _restart(node)
        try:
            yield proxy
        finally:
            _run(node, "rm", PROXIES, PLAIN)
            _restart(node)
    assert up.is_ready()


def test_a_proxy_that_does_not_let_the_node_through_is_told(kube: Kube, proxy: ConnectProxy) -> None:
    proxy.refusal = "403 Forbidden"
    kube.apply(placed(pod("refused", "refused.test/app:1"), kube))
    expect_told(kube, "refused", "proxy")
    proxy.refusal, proxy.login = "", "me:secret"
    kube.apply(placed(pod("without-login", "login.test/app:1"), kube))
    expect_told(kube, "without-login", "proxy")
    assert {"refused.test:443", "login.test:443"} <= {*proxy.targets}
    kube.apply(placed(pod("away", "plain.test/app:1"), kube))
    expect_told(kube, "away", "proxy")


def _restart(node: Container) -> None:
    _run(node, "sh", "-c", "systemctl daemon-reload && systemctl restart containerd")


def _write(node: Container, file: str, text: str) -> None:
    _run(node, "sh", "-c", 'mkdir -p "$(dirname "$0")" && echo "$1" > "$0"', file, text)


def _run(node: Container, *command: str) -> None:
    code, output = node.exec_run([*command])
    assert code == 0, output
