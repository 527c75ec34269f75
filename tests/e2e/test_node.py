"""Tests the node's image by itself, without Kubernetes."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import docker
from docker.models.containers import Container

from rayside.waiting import until
from tests.e2e.conftest import target
from tests.integration.conftest import Rayside


@contextlib.contextmanager
def node(kind: Rayside, **environment: str) -> Iterator[Container]:
    """Runs one, as kind does."""
    client = docker.from_env()
    container = client.containers.run(
        target(kind).cluster.image,
        detach=True,
        privileged=True,
        tmpfs={"/run": "", "/tmp": ""},
        volumes=["/var"],
        environment=environment,
    )
    try:
        yield container
    finally:
        container.remove(v=True, force=True)
        client.close()


def test_containerd_pulls_through_the_proxy_of_whoever_makes_the_cluster(kind: Rayside) -> None:
    proxy = "http://ada:p%20w@proxy.test:3128"
    with node(kind, HTTPS_PROXY=proxy, NO_PROXY="10.96.0.0/16,.svc") as running:

        def environment() -> list[str]:
            shown = ["sh", "-c", 'tr "\\0" "\\n" < "/proc/$(pidof containerd)/environ"']
            return str(running.exec_run(shown).output.decode()).splitlines()

        told = until(environment, lambda lines: any(line.startswith("PATH=") for line in lines), 60)
        assert {f"HTTPS_PROXY={proxy}", "NO_PROXY=10.96.0.0/16,.svc"} <= set(told)
