"""Tests two kind clusters side by side: each has ports, files and jobs of its own, and `down` removes one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any
from urllib.parse import urlsplit

import pytest

from bootstrap.instance import read
from bootstrap.settings import Settings
from tests.e2e.conftest import traces
from tests.integration.conftest import Rayside

NAME = "second-test"


@pytest.fixture(scope="module")
def second(up: Rayside) -> Iterator[Rayside]:
    """Yields another cluster beside the first, without an example; nobody has named a port for it."""
    settings = Settings(
        name=NAME,
        target="kind",
        source="packages",
        workspace=up.settings.workspace,
        state_folder=up.settings.state_folder,
    )
    rayside = Rayside(settings, dict(up.environment_too))
    done = rayside.run("up", "--no-example", timeout=600)
    try:
        assert done.returncode == 0, done.stdout + done.stderr
        yield rayside
    finally:
        done = rayside.run("down", timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr


def listed(rayside: Rayside) -> dict[str, dict[str, Any]]:
    return {cluster["name"]: cluster for cluster in rayside.json("list", timeout=120)}


def test_both_are_listed_ready_at_addresses_of_their_own(up: Rayside, second: Rayside) -> None:
    clusters = listed(up)
    assert [(name, cluster["target"], cluster["ready"]) for name, cluster in clusters.items()] == [
        (up.settings.name, "kind", True),
        (NAME, "kind", True),
    ]
    ports = [urlsplit(url).port for cluster in clusters.values() for url in cluster["urls"].values()]
    assert len(ports) == len(set(ports)) == 6
    assert up.folder != second.folder
    assert (up.folder / "token").read_text() != (second.folder / "token").read_text()
    assert (up.folder / "kubeconfig").read_text() != (second.folder / "kubeconfig").read_text()


def test_its_ports_are_remembered_and_a_second_up_changes_nothing(second: Rayside) -> None:
    before = read(second.folder)
    done = second.run("up", "--no-example", timeout=300)
    assert "Nothing to change" in done.stdout
    assert read(second.folder) == before


def test_a_job_goes_to_the_cluster_that_is_named(up: Rayside, second: Rayside) -> None:
    # The first cluster is named by the setting, the second by the option; records have the ports of both.
    first = Rayside(replace(second.settings, name=up.settings.name), second.environment_too)
    document = first.json("submit", "--name", NAME, "--entrypoint", "python -c 1", timeout=180)
    assert document["cluster"] == NAME
    assert document["submission_id"] in second.run("status", timeout=120).stdout
    assert document["submission_id"] not in first.run("status", timeout=120).stdout


def test_what_one_advises_names_it(second: Rayside) -> None:
    assert (
        f"./invokew debug --name {NAME} stops in what is paused" in second.run("status", timeout=120).stdout
    )


def test_down_removes_one_and_leaves_the_other(up: Rayside, second: Rayside) -> None:
    identity = read(second.folder)
    assert identity is not None
    done = second.run("down", "--purge", timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    # The cache is of both.
    assert f"The cache stays, for {up.settings.name}." in done.stdout
    assert second.settings.cache_folder.exists()
    ports = {f"{name}_port": port for name, port in vars(identity.ports).items()}
    assert traces(Rayside(Settings(**{**vars(second.settings), **ports}), second.environment_too)) == []
    clusters = listed(up)
    assert list(clusters) == [up.settings.name]
    assert clusters[up.settings.name]["ready"] is True
