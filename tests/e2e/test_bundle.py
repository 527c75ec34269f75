"""Tests clusters out of a bundle and of a mirror, without a way out, and in a Kubernetes of others."""

from __future__ import annotations

import json
import os
import re
import secrets
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from bootstrap.bundle.opened import Bundle
from bootstrap.errors import ImagesOutOfReach
from bootstrap.kube.api import CORE, Kube
from bootstrap.registry.address import parse
from bootstrap.steps.registry_in_nodes import NodeRegistries, Trusted
from tests.airgap import ADDRESS, Airgap, airgap
from tests.bundles import minisign_keys
from tests.conftest import FIGURE
from tests.e2e.conftest import gateway_of, node_of, with_kubectl
from tests.e2e.conftest import kube as kube_of
from tests.e2e.test_workshop import ports_of_the_door, room_for_places
from tests.integration.bootstrap.test_their_ray import both_stop
from tests.integration.conftest import Rayside, apart
from tests.registries import logged_in, private

LAB = "01-breakpoint"
Figure = Callable[[str, object], None]


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Returns the files of a secret and a public key of minisign."""
    return minisign_keys(tmp_path_factory.mktemp("keys"), "ours")


@pytest.fixture(scope="module")
def bundle(kind: Rayside, keys: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns a signed bundle of what the tests' own cluster is made of."""
    file = tmp_path_factory.mktemp("a stick") / "rayside.bundle"
    done = kind.run("bundle", str(file), "--sign", str(keys[0]), timeout=900)
    assert done.returncode == 0, done.stdout + done.stderr
    return file


@pytest.fixture(scope="module")
def gap() -> Iterator[Airgap]:
    with airgap() as gap:
        yield gap


def test_a_cluster_a_job_and_a_lab_need_no_network(
    bundle: Path, gap: Airgap, record_property: Figure
) -> None:
    manifest = Bundle.of(bundle).manifest
    place = gap.folder / "a place"
    place.mkdir()
    gap.run("sh", "-c", f"tar -xOf '{bundle}' {manifest.checkout.name} | tar -x", cwd=place)
    rayside = place / "rayside" / "invokew"
    began = time.monotonic()
    out = gap.run(rayside, "up", "--bundle", bundle, timeout=900)
    from_nothing = time.monotonic() - began
    assert "The example is paused" in out
    a_job_is_debugged_and_a_lab_passed(gap, place / "rayside")
    gap.run(rayside, "down", timeout=180)
    began = time.monotonic()
    gap.run(rayside, "up", "--bundle", bundle, timeout=600)
    again = time.monotonic() - began
    gap.run(rayside, "down", timeout=180)
    assert (gap.left(), gap.asked()) == ({}, set())
    layers = {layer.blob for image in manifest.images for layer in image.layers}
    size = bundle.stat().st_size / sum(blob.size for blob in layers)
    record_property(
        FIGURE,
        f"bundle over its images' layers {size:.3f}; up --bundle {from_nothing:.1f} s from nothing, "
        f"{again:.1f} s with all of it there, ratio {from_nothing / again:.2f}",
    )


def test_a_mirror_is_enough_too(
    bundle: Path, keys: tuple[Path, Path], gap: Airgap, record_property: Figure
) -> None:
    """It has TLS by an authority of its own, and a password, and is the one place that answers there.

    oras comes out of the bundle at once, since its signature is asked for: of a bundle that nobody checks it
    would be the last resort, after release pages and the Go module proxy.
    """
    rayside = gap.folder / "a place" / "rayside" / "invokew"
    with private(gap.folder / "registry", ADDRESS, command=gap.command) as registry:
        docker = logged_in(registry.name, gap.folder / "docker")
        name = f"{registry.name}/a-team"

        def run(*words: str | Path) -> str:
            ca = str(registry.authority)
            mine = {"DOCKER_CONFIG": str(docker), "INVOKE_RAYSIDE_REGISTRY_CA": ca}
            mine["INVOKE_RAYSIDE_BUNDLE_KEY"] = str(keys[1])
            mine["PATH"] = f"{gap.folder / 'bin'}{os.pathsep}{os.environ['PATH']}"
            return gap.run(rayside, *words, timeout=900, cwd=None, **mine)

        began = time.monotonic()
        sent = json.loads(run("mirror", name, "--bundle", bundle, "--json"))["bytes"]
        filled = time.monotonic() - began
        assert sent["there"] == 0
        # Where only the registry is reached, its client has to be installed.
        (oras,) = gap.folder.glob("home/.cache/rayside/bundle-*/oras/oras")
        (gap.folder / "bin").mkdir()
        shutil.copy(oras, gap.folder / "bin")
        # Nothing is left of what the bundle's own test has had.
        run("down", "--purge")
        gap.run("docker", "system", "prune", "--all", "--force")
        began = time.monotonic()
        out = run("up", "--mirror", name)
        up = time.monotonic() - began
        assert "The example is paused" in out
        # A pod of one's own names the Secret, and the node knows the CA certificate.
        (kubectl,) = gap.folder.glob("home/.cache/rayside/bundle-*/kubectl/kubectl")
        image = f"{name}/{Bundle.of(bundle).manifest.image('ray').reference}"
        pod = ["pulls", f"--image={image}", "--image-pull-policy=Always", "--restart=Never"]
        pod += ["--overrides", '{"spec": {"imagePullSecrets": [{"name": "rayside-registry"}]}}']
        gap.run(kubectl, "run", *pod, "--command", "--", "true")
        gap.run(kubectl, "wait", "--for=jsonpath={.status.phase}=Succeeded", "pod/pulls", "--timeout=120s")
        # The node has the same image twice now, as it was loaded and as it was pulled.
        assert "Nothing to change" in run("up", "--mirror", name, "--no-example")
    # The cluster knows what it is made of, and asks nobody any more.
    assert json.loads(gap.run(rayside, "status", "--json", timeout=60))["source"] == "mirror"
    a_job_is_debugged_and_a_lab_passed(gap, rayside.parent)
    gap.run(rayside, "down", timeout=180)
    assert (gap.left(), gap.asked()) == ({}, set())
    size = sent["sent"] / 10**6
    record_property(FIGURE, f"mirror {size:.0f} MB in {filled:.1f} s; up --mirror {up:.1f} s from nothing")


@pytest.mark.timeout(1200)
def test_in_a_kubernetes_of_others_nodes_pull_from_the_mirror(
    bundle: Path, up: Rayside, tmp_path: Path
) -> None:
    """One makes a Ray cluster there; another has a workspace beside it."""
    theirs = kube_of(up)
    demo = replace(theirs, namespace=f"demo-{secrets.token_hex(3)}")
    with private(tmp_path / "registry", gateway_of(up)) as registry:
        assert registry.authority
        name = f"{registry.name}/a-team"
        environment = {
            "DOCKER_CONFIG": str(logged_in(registry.name, tmp_path / "docker")),
            "KUBECONFIG": str(theirs.kubeconfig),
            "INVOKE_RAYSIDE_REGISTRY_CA": str(registry.authority),
            **with_kubectl(up),
        }
        # Whoever looks after the nodes has them trust the company's registry.
        NodeRegistries(up.settings.name, [Trusted(parse(name), registry.authority)]).apply(lambda _: None)
        cache = tmp_path / "cache"
        makes, looks = (
            Rayside(apart(tmp_path / user, ray_workers=1, cache_folder=cache), environment)
            for user in ("makes", "looks")
        )
        bring = ["up", "--context", theirs.context, "--namespace", demo.namespace, "--mirror", name]
        try:
            succeeds(makes, "mirror", name, "--bundle", str(bundle))
            succeeds(makes, *bring, "--create", "--no-example")
            pull_with_a_login(demo, "ray.io/cluster=rayside", name)
            # The images have not come here.
            assert {file.name.rpartition("-")[2] for file in cache.glob("mirrored-*[!k]")} == {"images"}
            # The mirror need not be named again.
            assert "Nothing to change" in succeeds(makes, "up", "--no-example")
            (tmp_path / "program").mkdir()
            both_stop(makes, tmp_path / "program")
            with room_for_places(up):
                a_place_comes_and_goes(makes, demo, name)
            succeeds(looks, *bring, "--workspace")
            pull_with_a_login(demo, "rayside.dev/workspace", name)
            assert len(logins(demo)) == 2
            succeeds(looks, "down")
            assert logins(demo) == ["rayside-registry"]
        finally:
            left = [each.run("down", timeout=300).stderr for each in (looks, makes)]
            shutil.rmtree(cache)
        assert theirs.get(f"{CORE}/namespaces/{demo.namespace}") is None, left


def test_in_a_kubernetes_of_others_without_a_registry_nothing_is_made(
    bundle: Path, up: Rayside, tmp_path: Path
) -> None:
    theirs = elsewhere(up, tmp_path / "kubeconfig")
    demo = replace(theirs, namespace=f"demo-{secrets.token_hex(3)}")
    user = Rayside(apart(tmp_path / "user"), {"KUBECONFIG": str(theirs.kubeconfig)})
    bring = ["up", "--context", theirs.context, "--namespace", demo.namespace, "--bundle", str(bundle)]
    refused = user.run(*bring, "--create", "--no-example", timeout=60)
    assert refused.returncode == ImagesOutOfReach.exit_code
    assert "./invokew mirror REGISTRY" in refused.stderr
    assert theirs.get(f"{CORE}/namespaces/{demo.namespace}") is None


def a_job_is_debugged_and_a_lab_passed(gap: Airgap, clone: Path) -> None:
    """Has the example end there, debugs a job that is submitted, and does a lab."""
    rayside = clone / "invokew"
    gap.run(rayside, "debug", "--json", timeout=180)
    submitted = json.loads(
        gap.run(
            *(rayside, "submit", "--debug", "--json", "--entrypoint", "python sample_code.py"),
            *("--working-dir", clone / "example/working_dir"),
            *("--py-modules", clone / "example/dependency"),
            timeout=180,
        )
    )
    line = f"{clone}/example/working_dir/sample_code.py:19"
    stopped = json.loads(gap.run(rayside, "debug", "--json", "--break", line, timeout=180))
    assert stopped["job"] == {"submission_id": submitted["submission_id"], "status": "SUCCEEDED"}
    gap.run(rayside, "lab", LAB, "--solve", timeout=180)
    gap.run(rayside, "lab", LAB, "--check", timeout=300)


def elsewhere(rayside: Rayside, file: Path) -> Kube:
    """Returns a way to the cluster that is not by this machine's engine: the node's own address."""
    kube = kube_of(rayside)
    document = yaml.safe_load(kube.kubeconfig.read_text())
    with node_of(rayside) as node:
        (network,) = node.attrs["NetworkSettings"]["Networks"].values()
    document["clusters"][0]["cluster"]["server"] = f"https://{network['IPAddress']}:6443"
    file.write_text(yaml.safe_dump(document))
    return replace(kube, kubeconfig=file)


def succeeds(user: Rayside, *words: str) -> str:
    done = user.run(*words, timeout=900)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def pull_with_a_login(kube: Kube, selector: str, registry: str) -> None:
    """Checks that all images of these pods are from the registry, and that the pods name a login for it."""
    pods = kube.pods(selector)
    images = [container["image"] for pod in pods for container in pod["spec"]["containers"]]
    # By a digest: whoever may write there could give a tag to another image.
    named = re.compile(rf"{re.escape(registry)}/rayside/bundled-\w+@sha256:\w{{64}}")
    assert images
    assert [image for image in images if not named.fullmatch(image)] == []
    assert all(pod["spec"]["imagePullSecrets"] for pod in pods)


def a_place_comes_and_goes(user: Rayside, base: Kube, registry: str) -> None:
    """Makes a workshop of one place beside a cluster, which pulls from the same registry."""
    place = base.within("rayside-place-001")
    user.environment_too.update(ports_of_the_door())
    succeeds(user, "workshop", "--places", "1")
    pull_with_a_login(place, f"ray.io/cluster={place.namespace}", registry)
    succeeds(user, "workshop", "--remove")
    assert base.get(f"{CORE}/namespaces/{place.namespace}") is None


def logins(kube: Kube) -> list[str]:
    """Returns the names of the Secrets that have logins of registries."""
    secrets_there = kube.items(f"{CORE}/namespaces/{kube.namespace}/secrets")
    return [
        each["metadata"]["name"] for each in secrets_there if each["type"] == "kubernetes.io/dockerconfigjson"
    ]
