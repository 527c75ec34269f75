"""Tests which rights in Kubernetes a workshop takes, and that those that are lacking are named at once."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pytest
import yaml

from bootstrap.delivery.front_door import FrontDoor
from bootstrap.kube import rights
from bootstrap.kube.api import CORE
from bootstrap.settings import ROOT, Settings
from bootstrap.sources.source import Images
from bootstrap.targets.on_kubernetes import OnKubernetes
from bootstrap.workshop.event import Workshop
from rayside.errors import Forbidden
from rayside.system.shell import Shell
from tests.documented_rights import documented, each, rules_of
from tests.instances import instance
from tests.targets import kind_target
from tests.unit.scripted_objects import Objects, objects

MAPS = f"{CORE}/namespaces/team/configmaps"


def refused(kube: Objects) -> Forbidden:
    """Returns the error for one who is no administrator."""
    kube.lacking.add("* * in all")
    with pytest.raises(Forbidden) as raised:
        rights.require_workshop(kube)
    return raised.value


# --- what the page says ------------------------------------------------------------------


def test_the_documented_roles_have_the_rights_that_are_asked_for_and_no_other() -> None:
    places = documented("workshop.md", "rayside-workshop")
    assert each(places) == each((*rights.PLACES, rights.LOOK))
    assert each(documented("workshop.md", "rayside-workshop-door")) == each(rights.DOOR)
    page = (ROOT / "docs" / "workshop.md").read_text()
    (ingress,) = re.findall(r"```yaml\n(- \{apiGroups.+?)```", page, re.DOTALL)
    assert each(rules_of({"rules": yaml.safe_load(ingress)})) == each(rights.INGRESS)
    # Who has the ClusterRole may make the cluster itself.
    assert {right for right in each(rights.STACK) - each(rights.PLACES) if right[2] != "list"} == set()


@dataclass(frozen=True)
class Noting(Objects):
    """Has nothing at any path at first, and notes what right each request takes: group, resource, verb."""

    used: set[tuple[str, str, str]] = field(default_factory=set)

    def _call(self, method: str, path: str, query: Any, body: Any = None) -> dict[str, Any] | None:
        seen = re.fullmatch(r"/apis?(?:/([a-z.0-9]+))?/v1/namespaces/team/(\w+)(/[^/]+)?", path)
        assert seen, path
        group, resource, name = seen.groups()
        verbs = {"GET": ("get",) if name else ("list",), "PATCH": ("patch", "create"), "DELETE": ("delete",)}
        self.used.update((group or "", resource, verb) for verb in verbs[method])
        if path not in self.lists:
            self.objects.setdefault(path, None)
        return super()._call(method, path, query, body)


def door_of(kube: Objects, program: Path) -> FrontDoor:
    images = Images("rayside/ray:1", "rayside/workspace:1", "rayside/operator:1")
    return FrontDoor(instance("rayside", "team"), kube, images, program, "1")


@dataclass(frozen=True)
class Counting(Objects):
    """Notes what is asked."""

    asked: list[str] = field(default_factory=list)

    def _call(self, method: str, path: str, query: Any, body: Any = None) -> dict[str, Any] | None:
        self.asked.append(body or path)
        return super()._call(method, path, query, body)


def test_the_front_door_takes_all_rights_of_its_role_and_no_other(tmp_path: Path) -> None:
    program = tmp_path / "door"
    program.write_bytes(b"a program")
    kube = Noting(Path("/k/config"), "prod", "team", lists={MAPS: []})
    door = door_of(kube, program)
    door.apply(lambda _: None)
    kube.lists[MAPS] = [made for path, made in kube.objects.items() if made and path.startswith(MAPS)]
    assert door.undo(lambda _: None) is None
    # Without a host, an Ingress is only looked for, and who may not look has none.
    ingress = ("networking.k8s.io", "ingresses", "get")
    listed = {right for right in kube.used if right[2] == "list"}
    assert kube.used - each(rights.PLACES) - listed - {ingress} == each(rights.DOOR)


def test_the_front_doors_role_gives_nothing_that_its_maker_lacks(tmp_path: Path) -> None:
    beside = door_of(objects(), tmp_path)._beside()
    (role,) = [document for document in beside if document["kind"] == "Role"]
    given = each(rules_of(role))
    assert given
    assert given <= each(rights.PLACES)


# --- what is lacking ---------------------------------------------------------------------


def test_all_that_is_lacking_is_named_with_the_rules_that_give_it() -> None:
    rights.require_workshop(objects())
    lacking = {
        *("create namespaces in all", "delete namespaces in all", "create pods/exec in all"),
        *("patch deployments in team", "create secrets in team"),
    }
    error = refused(objects(lacking=lacking))
    # Of Secrets, the right in the whole cluster is there.
    assert error.message.endswith(
        "in the whole cluster: create, delete namespaces; create pods/exec, and in the namespace team: "
        "patch deployments"
    )
    assert error.hint == (
        "ask an administrator for the ClusterRole rayside-workshop, and for the Role rayside-workshop-door "
        "in the namespace team, as docs/workshop.md has under Rights"
    )
    only_here = refused(objects(lacking={"get roles in team"}))
    assert "whole cluster" not in only_here.message
    assert "ClusterRole" not in only_here.hint


def test_the_right_to_list_every_kind_is_named_as_that() -> None:
    error = refused(objects(lacking={"list * in all"}))
    assert error.message.endswith("in the whole cluster: list every kind of object")


def test_an_administrator_is_asked_about_once() -> None:
    kube = Counting(Path("/k/config"), "prod", "team")
    rights.require_workshop(kube)
    assert len(kube.asked) == 1
    kube.lacking.update({"* * in all", "get secrets in all"})
    assert "get secrets" in refused(kube).message


def test_rights_are_looked_at_before_anything_that_takes_one() -> None:
    base = kind_target(Settings(target="kind", source="upstream"))
    lacking = {"* * in all", "create pods/exec in all", "list deployments in all"}
    vars(base)["kube"] = objects(lacking=lacking)
    workshop = Workshop(cast(OnKubernetes, base), Settings(), Shell())
    with pytest.raises(Forbidden, match="create pods/exec"):
        workshop.require_ground([])
