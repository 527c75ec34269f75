"""Tests what of the labs' packages is installed for whom; that they work is seen in the labs themselves."""

from __future__ import annotations

import platform
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pytest

from bootstrap import pip
from bootstrap.labs import lab_packages
from bootstrap.settings import Settings
from bootstrap.targets.target import Target


@dataclass(frozen=True)
class Cluster:
    """A target as far as its packages go; it is its own access and dashboard, too."""

    settings: Settings
    version: str = "3.10.19"
    kubernetes: Any = None
    wheels: Path | None = None

    @property
    def access(self) -> Cluster:
        return self

    def require(self) -> Cluster:
        return self

    def python_version(self) -> str:
        return self.version


@dataclass
class Pip:
    """Installs one module of a name, and keeps what it was asked for."""

    asked: list[Sequence[str | Path]] = field(default_factory=list)

    def install(
        self, shell: object, python: str, lock_file: Path, options: Sequence[str | Path], **more: Any
    ) -> None:
        self.asked.append(options)
        folder = Path(options[1])
        folder.mkdir(parents=True)
        (folder / "a_module.py").write_text("ANSWER = 42\n")


@pytest.fixture
def installer(monkeypatch: pytest.MonkeyPatch) -> Pip:
    fake = Pip()
    monkeypatch.setattr(pip, "install", fake.install)
    return fake


def quiet(line: str) -> None:
    pass


def cluster(tmp_path: Path, **more: Any) -> Target:
    return cast(Target, Cluster(Settings(cache_folder=tmp_path / "cache"), **more))


def test_workers_get_what_is_for_their_python_and_not_for_this_one(tmp_path: Path, installer: Pip) -> None:
    target = cluster(tmp_path)
    package = lab_packages.profilers(target, quiet)
    assert list(installer.asked[0][2:]) == ["--python-version", "3.10.19"]
    assert lab_packages.profilers(target, quiet) == package
    assert len(installer.asked) == 1
    assert lab_packages.profilers(cluster(tmp_path, version="3.12.1"), quiet) != package


def test_pods_get_what_is_for_linux(tmp_path: Path, installer: Pip) -> None:
    lab_packages.profilers(cluster(tmp_path, kubernetes=object()), quiet)
    machine = "aarch64" if platform.machine() in ("arm64", "aarch64") else platform.machine()
    assert f"manylinux_2_28_{machine}" in installer.asked[0]
    assert list(installer.asked[0][2:]) == pip.for_linux("3.10.19")


def test_its_modules_are_importable(tmp_path: Path, installer: Pip, monkeypatch: pytest.MonkeyPatch) -> None:
    package = lab_packages.profilers(cluster(tmp_path), quiet)
    assert package.name == "profilers"
    monkeypatch.setattr(sys, "path", [*sys.path, str(package.parent)])
    __import__("profilers")
    assert __import__("a_module").ANSWER == 42


def test_the_learners_link_leads_to_what_this_cluster_needs(tmp_path: Path, installer: Pip) -> None:
    labs = tmp_path / "labs"
    labs.mkdir()
    for version in ("3.10.19", "3.12.1"):
        target = cluster(tmp_path, version=version)
        lab_packages.offer_profilers(target, quiet, labs)
        assert (labs / "profilers").resolve() == lab_packages.profilers(target, quiet)
    assert [path.name for path in labs.iterdir()] == ["profilers"]
