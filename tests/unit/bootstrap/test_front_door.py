"""Tests what the front door of a workshop is made of, and the Ingress by which a host leads to it."""

from __future__ import annotations

import base64
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bootstrap.delivery.door_secrets import Listed
from bootstrap.delivery.front_door import FrontDoor
from bootstrap.delivery.ingress import Ingress
from bootstrap.errors import NoIngressClass, NotOurs
from bootstrap.kube.api import FIELD_MANAGER, made_here
from bootstrap.settings import Settings
from bootstrap.sources.source import Images
from bootstrap.workshop.event import Workshop
from rayside.errors import Forbidden
from rayside.steps.step import Condition
from rayside.system.shell import Shell
from tests.instances import instance
from tests.targets import kind_target
from tests.unit.scripted_objects import Objects, applied, objects

HOST = "workshop.example.com"
INGRESS = "/apis/networking.k8s.io/v1/namespaces/team/ingresses/rayside-door"
SERVICE = "/api/v1/namespaces/team/services/rayside-door"
POLICY = "/apis/networking.k8s.io/v1/namespaces/team/networkpolicies/rayside-door"
DEPLOYMENT = "/apis/apps/v1/namespaces/team/deployments/rayside-door"
MAPS = "/api/v1/namespaces/team/configmaps"
CLASSES = "/apis/networking.k8s.io/v1/ingressclasses"
LISTED = Listed("A workshop", "key", "another", f"https://{HOST}", "https://127.0.0.1:8445")


class Cluster(Objects):
    """Has nothing at any path at first."""

    def _call(self, method: str, path: str, *rest: Any) -> dict[str, Any] | None:
        if path not in self.unlistable and "/selfsubject" not in path and path not in self.lists:
            self.objects.setdefault(path, None)
        return super()._call(method, path, *rest)


def cluster(**more: Any) -> Cluster:
    return Cluster(Path("/k/config"), "prod", "team", lists={MAPS: []}, **more)


def door(kube: Objects, folder: Path, ingress: Ingress | None = None) -> FrontDoor:
    program = folder / "door"
    program.write_bytes(b"a program")
    images = Images("rayside/ray:1", "rayside/workspace:1", "rayside/operator:1")
    return FrontDoor(instance("rayside", "team"), kube, images, program, "1", LISTED, ingress)


def ports(kube: Objects) -> dict[str, Any]:
    """Returns the ports at which something is to be reached: of the pod, the Service and the policy."""
    deployment, service, policy = (kube.made(path)["spec"] for path in (DEPLOYMENT, SERVICE, POLICY))
    (container,) = deployment["template"]["spec"]["containers"]
    return {
        "pod": [each["containerPort"] for each in container["ports"]],
        "service": {each["name"]: each["targetPort"] for each in service["ports"]},
        "policy": [each["port"] for each in policy["ingress"][0]["ports"]],
        "host": {each["name"]: each["value"] for each in container["env"]}.get("RAYSIDE_HOST"),
    }


def test_without_a_host_there_is_no_ingress_and_no_plain_port(tmp_path: Path) -> None:
    kube = cluster()
    door(kube, tmp_path).apply(lambda _: None)
    assert kube.objects[INGRESS] is None
    expected = {"pod": [8443, 8445, 8081], "service": {"door": 8443}, "policy": [8443, 8445], "host": None}
    assert ports(kube) == expected


def test_the_program_is_in_parts_each_of_which_fits_into_a_config_map(tmp_path: Path) -> None:
    kube = cluster()
    made = door(kube, tmp_path)
    program = os.urandom(2_000_001)
    made.program.write_bytes(program)
    made.apply(lambda _: None)
    deployment = kube.made(DEPLOYMENT)
    sources = deployment["spec"]["template"]["spec"]["volumes"][0]["projected"]["sources"]
    maps = [kube.made(f"{MAPS}/{each['configMap']['name']}") for each in sources]
    parts = {name: base64.b64decode(part) for each in maps for name, part in each["binaryData"].items()}
    # The container's shell joins them in the order of their names.
    assert [len(parts[name]) for name in sorted(parts)] == [1_000_000, 1_000_000, 1]
    assert b"".join(parts[name] for name in sorted(parts)) == program


def test_a_host_leads_to_the_plain_port_of_the_doors_service(tmp_path: Path) -> None:
    kube = cluster()
    door(kube, tmp_path, Ingress(HOST)).apply(lambda _: None)
    assert ports(kube) == {
        "pod": [8443, 8445, 8081, 8080],
        "service": {"door": 8443, "http": 8080},
        "policy": [8443, 8445, 8080],
        "host": HOST,
    }
    made = kube.made(INGRESS)
    assert (made["apiVersion"], made["kind"]) == ("networking.k8s.io/v1", "Ingress")
    labels = {"app.kubernetes.io/managed-by": "rayside", "rayside.dev/door": "rayside"}
    assert {**made["metadata"]["labels"], **labels} == made["metadata"]["labels"]
    backend = {"service": {"name": "rayside-door", "port": {"name": "http"}}}
    path = {"path": "/", "pathType": "Prefix", "backend": backend}
    assert made["spec"] == {"tls": [{"hosts": [HOST]}], "rules": [{"host": HOST, "http": {"paths": [path]}}]}
    # The class and the certificate are those that were named.
    door(kube, tmp_path, Ingress(HOST, "nginx", "our-tls")).apply(lambda _: None)
    spec = kube.made(INGRESS)["spec"]
    assert (spec["ingressClassName"], spec["tls"]) == ("nginx", [{"hosts": [HOST], "secretName": "our-tls"}])


def test_what_an_ingress_is_made_of_is_looked_at(tmp_path: Path) -> None:
    kube = cluster()
    made = door(kube, tmp_path, Ingress(HOST, "nginx"))
    assert made.check().condition is Condition.MISSING
    made.apply(lambda _: None)
    deployment = kube.made(DEPLOYMENT)
    for other in (None, Ingress("other.example.com", "nginx"), Ingress(HOST), Ingress(HOST, "nginx", "tls")):
        status = replace(made, ingress=other).check()
        assert (status.condition, status.detail) == (Condition.MISSING, "it is of an earlier version")
    # As the API gives a Secret, and a Deployment whose pod runs.
    told = kube.made("/api/v1/namespaces/team/secrets/rayside-door")
    told["data"] = {"places.json": base64.b64encode(told["stringData"]["places.json"].encode()).decode()}
    deployment["metadata"]["generation"] = 1
    deployment["status"] = {"observedGeneration": 1, "availableReplicas": 1}
    assert made.check().condition is Condition.READY
    kube.objects[INGRESS] = None
    assert made.check().detail == "not all of it is there"


def test_a_route_of_the_users_own_has_the_plain_port_and_no_ingress(tmp_path: Path) -> None:
    kube = cluster()
    none = Ingress(HOST, "none")
    none.require(objects())
    door(kube, tmp_path, none).apply(lambda _: None)
    assert kube.objects[INGRESS] is None
    assert (ports(kube)["service"], ports(kube)["host"]) == ({"door": 8443, "http": 8080}, HOST)


@pytest.mark.parametrize("ingress", [None, Ingress(HOST, "none")])
def test_an_ingress_goes_when_none_is_wanted_any_more(tmp_path: Path, ingress: Ingress | None) -> None:
    kube = cluster()
    made = door(kube, tmp_path, Ingress(HOST))
    made.apply(lambda _: None)
    replace(made, ingress=ingress).apply(lambda _: None)
    assert kube.deleted == [INGRESS]
    assert ("http" in ports(kube)["service"]) is bool(ingress)


@pytest.mark.parametrize("ingress", [None, Ingress(HOST), Ingress(HOST, "none")])
def test_an_ingress_goes_with_the_workshop_in_any_case(tmp_path: Path, ingress: Ingress | None) -> None:
    kube = cluster()
    made = door(kube, tmp_path, Ingress(HOST))
    made.apply(lambda _: None)
    assert replace(made, ingress=ingress).undo(lambda _: None) is None
    assert kube.deleted.count(INGRESS) == 1


def test_an_ingress_of_somebody_else_stays(tmp_path: Path) -> None:
    kube = cluster()
    made = door(kube, tmp_path, Ingress(HOST))
    theirs = applied(Ingress(HOST).documents(made._metadata())[0], "kubectl")
    kube.objects[INGRESS] = theirs
    with pytest.raises(NotOurs, match="Ingress rayside-door"):
        made.apply(lambda _: None)
    without = replace(made, ingress=None)
    without.apply(lambda _: None)
    assert without.undo(lambda _: None) is None
    assert kube.objects[INGRESS] == theirs


def test_who_may_see_no_ingress_has_a_workshop_without_one(tmp_path: Path) -> None:
    kube = cluster(unlistable={INGRESS})
    made = door(kube, tmp_path)
    made.apply(lambda _: None)
    assert made.undo(lambda _: None) is None
    with pytest.raises(Forbidden):
        replace(made, ingress=Ingress(HOST)).apply(lambda _: None)


def test_what_a_user_and_a_controller_add_to_an_ingress_makes_it_not_theirs(tmp_path: Path) -> None:
    # As kube-apiserver has it after `kubectl annotate`, and after a controller has written its address.
    managers = [
        {
            "manager": FIELD_MANAGER,
            "fieldsV1": {"f:metadata": {"f:labels": {"f:x": {}}}, "f:spec": {"f:tls": {}}},
        },
        {
            "manager": "kubectl-annotate",
            "fieldsV1": {"f:metadata": {"f:annotations": {".": {}, "f:nginx": {}}}},
        },
        {"manager": "controller", "fieldsV1": {"f:status": {"f:loadBalancer": {"f:ingress": {}}}}},
        {"manager": "controller", "fieldsV1": {"f:metadata": {"f:finalizers": {".": {}}}}},
    ]
    assert made_here({"metadata": {"managedFields": managers}})
    # So that nothing of ours is ever in the way of an annotation, an Ingress of ours has none.
    (made,) = Ingress(HOST).documents(door(objects(), tmp_path)._metadata())
    assert "annotations" not in made["metadata"]


# --- before anything is made ---------------------------------------------------------------


def classed(*names: str, default: str = "") -> list[dict[str, Any]]:
    mark = {"ingressclass.kubernetes.io/is-default-class": "true"}
    return [
        {"metadata": {"name": each, **({"annotations": mark} if each == default else {})}} for each in names
    ]


@pytest.mark.parametrize(
    ("classes", "named", "told"),
    [
        (classed(), "", "no IngressClass of that Kubernetes is the default one: it has none"),
        (classed("b", "a"), "", "no IngressClass of that Kubernetes is the default one: it has a, b"),
        (classed(), "nginx", "workshop_ingress_class is nginx, and .* no such IngressClass: it has none"),
        (classed("b", "a", default="a"), "nginx", "no such IngressClass: it has a, b"),
    ],
)
def test_a_class_that_nobody_serves_is_said(classes: list[dict[str, Any]], named: str, told: str) -> None:
    with pytest.raises(NoIngressClass, match=told):
        Ingress(HOST, named).require(objects(lists={CLASSES: classes}))


def test_a_class_that_is_there_or_may_not_be_seen_is_taken() -> None:
    there = objects(lists={CLASSES: classed("a", "b", default="b")})
    Ingress(HOST).require(there)
    Ingress(HOST, "a").require(there)
    Ingress(HOST, "nginx").require(objects(unlistable={CLASSES}))


def test_rights_that_are_lacking_are_said_at_once() -> None:
    kube = objects(lists={CLASSES: classed("a", default="a")}, lacking={"create ingresses in team"})
    with pytest.raises(Forbidden, match="create ingresses") as caught:
        Ingress(HOST).require(kube)
    assert 'apiGroups: ["networking.k8s.io"], resources: [ingresses], verbs: [create]' in caught.value.hint


# --- what is told ----------------------------------------------------------------------------


def workshop(kube: Objects, **settings: Any) -> Workshop:
    base = kind_target(Settings(target="kind", source="upstream"))
    vars(base)["kube"] = kube
    home = "https://example.com/team/rayside.git"
    return Workshop(base, Settings(target="kind", workshop_home=home, **settings), Shell())


def test_the_rooms_link_has_the_host_and_no_forward_leads_there() -> None:
    host, forward = workshop(cluster(), workshop_host=HOST), workshop(cluster())
    assert (host.url, forward.url) == (f"https://{HOST}", "https://127.0.0.1:8444")
    forwards = [[each.name for each in it.door_steps(it.door)[-1].ports] for it in (host, forward)]  # type: ignore[attr-defined]
    assert forwards == [["teacher"], ["workshop", "teacher"]]
    assert host.door.ingress == Ingress(HOST)
    told = host.door_to({}).listed
    assert told is not None
    assert (told.url, told.teacher_url, told.is_by_ingress) == (
        f"https://{HOST}",
        "https://127.0.0.1:8445",
        True,
    )
    for url in ("https://127.0.0.1:8444", "https://[::1]:8444"):
        assert not replace(told, url=url).is_by_ingress


def test_ground_for_a_host_is_looked_at_before_anything_else() -> None:
    with pytest.raises(NoIngressClass):
        workshop(cluster(), workshop_host=HOST).require_ground([])
