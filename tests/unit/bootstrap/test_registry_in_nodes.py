"""Tests which nodes are told of a mirror, and what."""

from __future__ import annotations

import base64
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bootstrap.registry.address import parse
from bootstrap.settings import Settings
from bootstrap.steps.pull_secret import PullSecret
from bootstrap.steps.registry_in_nodes import NodeRegistries, Trusted
from rayside.errors import InvalidSetting
from rayside.steps.step import Step
from tests.integration.self_signed import self_signed
from tests.registries import PASSWORD, USER, logged_in
from tests.targets import kind_target

HOST = "registry.test:5000"


def test_nodes_are_told_of_a_registry_that_they_can_reach(tmp_path: Path) -> None:
    authority, _ = self_signed("registry.test", tmp_path)

    def steps(mirror: str, **more: Any) -> dict[str, Step]:
        given = Settings(target="kind", source="mirror", mirror=mirror, registry_ca=str(authority), **more)
        target = kind_target()
        mirrored = replace(target, settings=given, instance=replace(target.instance, source="mirror"))
        return {each.name: each for each in mirrored.registries}

    assert [*steps(HOST)] == ["node-registries", "pull-secret"]
    assert steps("127.0.0.1:5000") == {}
    for is_wanted in (True, False):
        secret = steps(HOST, login_in_pods=is_wanted)["pull-secret"]
        assert isinstance(secret, PullSecret)
        assert secret.registry == (HOST if is_wanted else "")
    files = Trusted(parse(HOST), authority).files()
    assert files["ca.crt"] == authority.read_bytes()
    assert files["hosts.toml"].decode().splitlines() == [
        f'server = "https://{HOST}"',
        f'ca = "/etc/containerd/certs.d/{HOST}/ca.crt"',
    ]


def test_nodes_ask_a_companys_registry_instead(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    authority, _ = self_signed("registry.test", tmp_path)
    monkeypatch.setenv("DOCKER_CONFIG", str(logged_in(HOST, tmp_path / "docker")))

    def told(**more: Any) -> dict[str, list[str]]:
        named = f"docker.io={HOST}/dockerhub, quay.io=other.test"
        given = Settings(target="kind", registry_mirrors=named, registry_ca=str(authority), **more)
        (step,) = kind_target(given).registries
        assert isinstance(step, NodeRegistries)
        hosts = {each.host: each.files() for each in step.registries}
        assert hosts["docker.io"]["ca.crt"] == authority.read_bytes()
        return {host: files["hosts.toml"].decode().splitlines() for host, files in hosts.items()}

    def how(host: str, url: str) -> list[str]:
        asked = [f'[host."{url}"]', 'capabilities = ["pull", "resolve"]', "override_path = true"]
        return [*asked, f'ca = "/etc/containerd/certs.d/{host}/ca.crt"']

    basic = "Basic " + base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
    hub = f"https://{HOST}/v2/dockerhub"
    anonymous = how("docker.io", hub)
    assert told() == {
        "docker.io": [*anonymous, f'[host."{hub}".header]', f'Authorization = "{basic}"'],
        # Nobody is given a login that is another's.
        "quay.io": how("quay.io", "https://other.test/v2"),
    }
    assert told(login_in_pods=False)["docker.io"] == anonymous
    with pytest.raises(InvalidSetting, match="nodes can't reach this machine's loopback"):
        _ = kind_target(Settings(target="kind", registry_mirrors="docker.io=localhost:5000")).registries
