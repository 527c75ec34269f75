"""Tests source `upstream`: what it asks for on each machine, what it believes, what a refusal means."""

from __future__ import annotations

import io
import tarfile
from dataclasses import replace
from pathlib import Path

import pytest

from bootstrap import download
from bootstrap.errors import DownloadFailed, ImageMissing
from bootstrap.settings import EXTENSIONS, RAY_VERSION, Settings
from bootstrap.sources.digests import Digests
from bootstrap.sources.program import Program
from bootstrap.sources.pulled_image import PulledImage
from bootstrap.sources.references import located, registry_url, without_tag
from bootstrap.sources.releases import Releases, published
from bootstrap.sources.source import Source
from bootstrap.sources.upstream import RayImage, upstream
from rayside.system.shell import Shell
from tests.integration.vsix import without_asking

SUM = "a1" * 32
OTHER = "b2" * 32


def releases(system: str = "linux", architecture: str = "amd64", **changed: str) -> Releases:
    settings = Settings(cache_folder=Path("/cache"), **changed)  # type: ignore[arg-type]
    return Releases(settings, system=system, architecture=architecture)


def source(system: str = "linux", architecture: str = "amd64", **changed: str) -> Source:
    public = releases(system, architecture, **changed)
    return upstream(public, without_asking(public.settings), Shell())


def program(name: str, **machine: str) -> Program:
    chosen = next(step for step in source(**machine).steps if step.name == name)
    assert isinstance(chosen, Program)
    return chosen


# --- checksum files ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (SUM, SUM),
        (f"{SUM}\n", SUM),
        (f"{SUM.upper()}  kind-linux-amd64\n", SUM),
        (f"{SUM} *kind-linux-amd64\r\n", SUM),
        (f"{SUM}  ./dist/kind-linux-amd64\n", SUM),
        (f"{OTHER}  kind-linux-arm64\n{SUM}  kind-linux-amd64\n{OTHER}  kind-linux-amd64.sha256sum\n", SUM),
        ("", None),
        ("<html>please log in</html>", None),
        (SUM[:-1], None),
        (f"{SUM}  kind-linux-amd64-old\n", None),
        (f"{SUM}\n{OTHER}\n", None),
        (f"{SUM[:40]}  kind-linux-amd64\n", None),
    ],
)
def test_a_checksum_is_found_in_every_form_of_checksum_file(text: str, found: str | None) -> None:
    assert download.checksum(text, "kind-linux-amd64") == found


# --- archives -----------------------------------------------------------------------------


def tarball(file: Path, *entries: tarfile.TarInfo) -> Path:
    with tarfile.open(file, "w:gz") as archive:
        for entry in entries:
            entry.size = 7 if entry.isreg() else 0
            archive.addfile(entry, io.BytesIO(b"program"))
    return file


@pytest.mark.parametrize("stored", ["kubectl-ray", "./kubectl-ray"])
def test_one_member_is_taken_out_of_a_tarball(tmp_path: Path, stored: str) -> None:
    archive = tarball(tmp_path / "a.tar.gz", tarfile.TarInfo("LICENSE"), tarfile.TarInfo(stored))
    download.extract(archive, "kubectl-ray", tmp_path / "program")
    assert (tmp_path / "program").read_bytes() == b"program"


def test_a_link_is_not_a_program(tmp_path: Path) -> None:
    link = tarfile.TarInfo("kubectl-ray")
    link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
    with pytest.raises(DownloadFailed, match="no program kubectl-ray"):
        download.extract(tarball(tmp_path / "a.tar.gz", link), "kubectl-ray", tmp_path / "program")
    assert not (tmp_path / "program").exists()


# --- what is asked for -------------------------------------------------------------------


def test_for_another_machine_the_registry_is_asked_which_image_of_an_index_it_is() -> None:
    other = replace(releases(), images="arm64")
    of_other = upstream(other, without_asking(other.settings), Shell())
    steps = {step.name: step for step in of_other.steps}
    for name in ("ray-image", "operator-image", "node-image"):
        assert "registry-client" in steps[name].needs
    assert "registry-client" not in {step.name for step in source().steps}


@pytest.mark.parametrize(
    ("name", "url", "checksum"),
    [
        (
            "kind",
            "https://github.com/kubernetes-sigs/kind/releases/download/v0.33.0/kind-{}-{}",
            ".sha256sum",
        ),
        ("kubectl", "https://dl.k8s.io/release/v1.34.4/bin/{}/{}/kubectl", ".sha256"),
    ],
)
@pytest.mark.parametrize("system", ["linux", "darwin"])
@pytest.mark.parametrize("architecture", ["amd64", "arm64"])
def test_programs_fit_the_machine(name: str, url: str, checksum: str, system: str, architecture: str) -> None:
    step = program(name, system=system, architecture=architecture)
    address = url.format(system, architecture)
    assert step.released.url == address
    assert [file.url for file in step.checksums] == [address + checksum]
    assert step.file.parent.name.endswith(f"-{system}-{architecture}")


def test_the_plugin_is_the_release_s_tarball() -> None:
    step = program("kubectl-ray", system="darwin", architecture="arm64")
    release = "https://github.com/ray-project/kuberay/releases/download/v1.6.2/"
    assert step.released.url == f"{release}kubectl-ray_v1.6.2_darwin_arm64.tar.gz"
    assert [file.url for file in step.checksums] == [
        f"{release}kuberay_1.6.2_checksums.txt",
        f"{release}kubectl-ray_1.6.2_checksums.txt",
    ]
    assert step.member == "kubectl-ray"


def test_a_mirror_with_a_slash_at_its_end_is_one_without() -> None:
    step = releases(kind_releases="https://mirror.test/kind/").kind
    assert step.released.url.startswith("https://mirror.test/kind/v")
    assert "INVOKE_RAYSIDE_KIND_RELEASES" in step.released.failed("HTTP 500").hint


def test_the_ray_image_for_arm_has_a_tag_of_its_own() -> None:
    intel, arm = (
        next(step for step in resolved.steps if isinstance(step, RayImage))
        for resolved in (source(), source(architecture="arm64"))
    )
    assert intel.base.reference == f"rayproject/ray:{RAY_VERSION}"
    assert arm.base.reference == f"rayproject/ray:{RAY_VERSION}-aarch64"
    assert intel.build.reference != arm.build.reference


@pytest.mark.parametrize(
    ("setting", "reference", "record"),
    [
        ("kindest/node", "kindest/node:v1.34.4", "node-image v1.34.4"),
        ("mirror.test:5000/kindest/node", "mirror.test:5000/kindest/node:v1.34.4", "node-image v1.34.4"),
        # The user's own is held to no digest of ours.
        ("kindest/node:v1.34.4-mine", "kindest/node:v1.34.4-mine", "kindest/node:v1.34.4-mine"),
        ("kindest/node@sha256:" + SUM, "kindest/node@sha256:" + SUM, ""),
    ],
)
def test_a_setting_may_name_a_mirror_a_tag_or_a_digest(setting: str, reference: str, record: str) -> None:
    assert source(node_image=setting).resolve("node").reference == reference
    assert releases(node_image=setting).node.record == record


def test_everything_that_is_released_is_recorded_for_every_machine() -> None:
    assert sorted(published(Settings())) == sorted(
        [
            *(
                f"{program}-{system}-{architecture}"
                for program in ("kind-0.33.0", "kubectl-1.34.4", "kubectl-ray-1.6.2", "oras-1.3.4")
                for system in ("linux", "darwin")
                for architecture in ("amd64", "arm64")
            ),
            *("ray-base-image 2.60.0", "ray-base-image 2.60.0-aarch64"),
            *("operator-image v1.6.2", "node-image v1.34.4"),
            *(
                f"{id}-{version}-{platform}"
                for id, version in EXTENSIONS
                for platform in ("linux-x64", "linux-arm64", "darwin-x64", "darwin-arm64")
            ),
        ]
    )


@pytest.mark.parametrize(
    ("image", "registry", "repository"),
    [
        ("debian", "https://registry-1.docker.io", "library/debian"),
        ("debian:12", "https://registry-1.docker.io", "library/debian"),
        ("rayproject/ray", "https://registry-1.docker.io", "rayproject/ray"),
        ("rayproject/ray:2.60.0", "https://registry-1.docker.io", "rayproject/ray"),
        ("docker.io/rayproject/ray", "https://registry-1.docker.io", "rayproject/ray"),
        ("docker.io/debian@sha256:0", "https://registry-1.docker.io", "library/debian"),
        ("quay.io/a/b/c:v1@sha256:0", "https://quay.io", "a/b/c"),
        ("mirror:5000/ray", "https://mirror:5000", "ray"),
        ("127.0.0.1:5000/x:v1", "http://127.0.0.1:5000", "x"),
        ("localhost/x", "http://localhost", "x"),
    ],
)
def test_an_image_is_asked_for_where_docker_asks(image: str, registry: str, repository: str) -> None:
    assert located(image) == (registry.partition("//")[2], repository)
    if not image.startswith("docker.io/"):  # whose name is taken as it stands there
        assert registry_url(image) == f"{registry}/v2/"


def test_a_name_is_what_stands_before_tag_and_digest() -> None:
    for rest in ("", ":v1", "@sha256:0", ":v1@sha256:0"):
        assert without_tag(f"127.0.0.1:5000/a/b{rest}") == "127.0.0.1:5000/a/b"
        assert without_tag(f"ray{rest}") == "ray"


# --- what a refusal means ----------------------------------------------------------------

LOGIN = "docker login mirror.test"
NODE = PulledImage("node-image", "node", "mirror.test/kindest/node:v1", "node_image", Digests(Path("/x")))


@pytest.mark.parametrize(
    ("output", "error", "hint"),
    [
        ("manifest for mirror.test/kindest/node:v1 not found: manifest unknown", ImageMissing, "NODE_IMAGE"),
        (
            "pull access denied for kindest/nod, repository does not exist or may require 'docker login': "
            "denied: requested access to the resource is denied",
            ImageMissing,
            "NODE_IMAGE",
        ),
        ('Head "https://mirror.test/v2/": no basic auth credentials', ImageMissing, LOGIN),
        ("unauthorized: authentication required", ImageMissing, LOGIN),
        ("toomanyrequests: You have reached your pull rate limit", DownloadFailed, LOGIN),
        (
            'Get "https://mirror.test/v2/": dial tcp: lookup: no such host',
            DownloadFailed,
            "--source packages",
        ),
    ],
)
def test_a_registry_s_words_are_told_with_the_one_thing_to_do(output: str, error: type, hint: str) -> None:
    explained = NODE.explained(output)
    assert type(explained) is error
    assert output in explained.message
    assert hint in explained.hint
