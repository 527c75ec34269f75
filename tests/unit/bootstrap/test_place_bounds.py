"""Tests what the bounds of a place let its pods reach, and what is said of them."""

from __future__ import annotations

from ipaddress import ip_address, ip_network
from typing import Any

import pytest

from bootstrap.kube.api import path_of
from bootstrap.kube.sizes import GIB, Size, octets
from bootstrap.settings import ROOT
from bootstrap.steps.place_bounds import PlaceBounds
from rayside import yaml_file
from tests.instances import instance
from tests.unit.scripted_objects import applied, objects


def bounds(**more: Any) -> PlaceBounds:
    place = instance("rayside-place-001", namespace="rayside-place-001")
    return PlaceBounds(place, objects(**more), Size(600, 1024**3, 3), instance())


def reaches(address: str, port: int) -> bool:
    """Returns whether the policy lets a pod of the place reach an address outside of the cluster."""
    (policy,) = [each for each in bounds().documents() if each["kind"] == "NetworkPolicy"]
    asked = ip_address(address)

    def leads_to(peer: dict[str, Any]) -> bool:
        block = peer.get("ipBlock")
        if block is None:
            return False
        left_out = [network for network in block.get("except", []) if asked in ip_network(network)]
        return asked in ip_network(block["cidr"]) and not left_out

    return any(
        ("to" not in rule or any(map(leads_to, rule["to"])))
        and ("ports" not in rule or any(each["port"] == port for each in rule["ports"]))
        for rule in policy["spec"]["egress"]
    )


@pytest.mark.parametrize(
    ("address", "port", "is_public"),
    [
        ("169.254.169.254", 80, False),
        ("fd00:ec2::254", 80, False),
        # Azure's, which gives what a node is set up with, and has its DNS at the same address.
        *(("168.63.129.16", port, port == 53) for port in (80, 32526, 53)),
        ("100.100.100.200", 80, False),
        *(("168.63.129.17", 443, True), ("2001:db8::1", 443, True)),
    ],
)
def test_a_place_reaches_public_addresses_and_names_and_nothing_that_a_cloud_tells_its_nodes(
    address: str, port: int, is_public: bool
) -> None:
    assert reaches(address, port) is is_public


def test_what_is_said_is_what_the_policy_asks_for() -> None:
    there = {path_of(document): applied(document) for document in bounds().documents()}
    detail = bounds(objects=there).check().detail
    # Whether anything enforces it is not seen.
    assert detail.endswith("5 pods; a policy asks that it reach no other place")
    assert "A policy does something only where a network plugin enforces it" in (
        (ROOT / "docs" / "workshop.md").read_text()
    )


def test_a_pod_may_write_as_much_as_the_page_says() -> None:
    (limits,) = [each for each in bounds().documents() if each["kind"] == "LimitRange"]
    each = octets(limits["spec"]["limits"][0]["default"]["ephemeral-storage"])
    spec = yaml_file.read(ROOT / "k8s" / "ray-cluster.yaml")["spec"]
    head, worker = (
        len(group["template"]["spec"]["containers"]) * each // GIB
        for group in (spec["headGroupSpec"], *spec["workerGroupSpecs"])
    )
    page = (ROOT / "docs" / "workshop.md").read_text()
    assert f"a worker at {worker} GiB, the head at {head} GiB" in page
