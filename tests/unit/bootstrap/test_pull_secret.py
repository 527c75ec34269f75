"""Tests how pods get the login of a mirror, and what of others stays as it is."""

from __future__ import annotations

import base64
import json
from dataclasses import replace
from typing import Any, cast

import pytest

from bootstrap.errors import RegistryRefused
from bootstrap.kube.api import CORE, FIELD_MANAGER
from bootstrap.registry.login import Login
from bootstrap.steps.pull_secret import PullSecret
from rayside.errors import ClusterUnreachable
from rayside.steps.step import Condition
from tests.instances import instance
from tests.unit.scripted_objects import Objects, applied, objects

SECRET = f"{CORE}/namespaces/team/secrets/rayside-registry"
DEPLOYMENTS = "/apis/apps/v1/namespaces/team/deployments"
ADA = Login("ada", "secret")
HOST = "registry.test:5000"
OPERATOR = {
    "kind": "Deployment",
    "metadata": {"name": "kuberay-operator"},
    "spec": {"template": {"spec": {"imagePullSecrets": [{"name": "rayside-registry"}]}}},
}


def step(kube: Objects, login: Login | None = ADA) -> PullSecret:
    return PullSecret(
        *(instance("rayside"), kube, f"{HOST}/team", "rayside-registry"), login={HOST: login}.__getitem__
    )


def stored(kube: Objects) -> dict[str, Any]:
    """Keeps the Secret as the API does, with its values in base64, and returns it."""
    secret = kube.objects[SECRET]
    assert secret is not None
    texts = secret.pop("stringData", {})
    secret["data"] = {key: base64.b64encode(value.encode()).decode() for key, value in texts.items()}
    return secret


def api(secret: dict[str, Any] | None = None) -> Objects:
    return objects(objects={SECRET: secret}, lists={DEPLOYMENTS: []})


def made(step: PullSecret) -> PullSecret:
    """Returns the step once its Secret is in the API."""
    step.apply(print)
    stored(cast(Objects, step.kube))
    return step


def locked(host: str) -> Login:
    raise RegistryRefused("the helper is locked", hint="")


def test_the_namespace_gets_the_login() -> None:
    kube = api()
    ours = step(kube)
    assert ours.check().condition is Condition.MISSING
    ours.apply(print)
    secret = stored(kube)
    assert secret["type"] == "kubernetes.io/dockerconfigjson"
    kept = json.loads(base64.b64decode(secret["data"][".dockerconfigjson"]))
    assert kept == {"auths": {HOST: {"auth": base64.b64encode(b"ada:secret").decode()}}}
    assert ours.check().condition is Condition.READY
    # Another password is another login.
    other = step(kube, Login("ada", "other"))
    assert other.check().condition is Condition.MISSING
    assert made(other).check().condition is Condition.READY
    # Whoever wants none any more, or has none, leaves none there.
    unwanted = replace(other, registry="")
    assert unwanted.check().condition is Condition.MISSING
    unwanted.apply(print)
    assert kube.objects[SECRET] is None
    assert unwanted.check().condition is Condition.READY


def test_where_a_registry_needs_no_login_the_secret_that_pods_name_has_none() -> None:
    kube = api()
    without = step(kube, None)
    without.apply(print)
    kept = base64.b64decode(stored(kube)["data"][".dockerconfigjson"])
    assert json.loads(kept) == {"auths": {}}
    assert without.check().condition is Condition.READY


def test_what_others_have_made_stays() -> None:
    secret = {"metadata": {"name": "rayside-registry"}, "type": "Opaque"}
    kube = api(secret=secret)
    assert "is another's" in step(kube).check().detail
    # An operator that we made may pull by it.
    kube.lists[DEPLOYMENTS] = [applied(OPERATOR, FIELD_MANAGER)]
    assert step(kube).undo(print) is None
    assert kube.objects[SECRET] == secret


def test_down_removes_it_unless_kubernetes_itself_goes() -> None:
    kube = api()
    ours = made(step(kube))
    replace(ours, cluster_goes=True).undo(print)
    assert kube.objects[SECRET] is not None
    ours.undo(print)
    assert kube.objects[SECRET] is None


def test_a_login_stays_while_this_machine_has_none_or_can_not_read_it() -> None:
    kube = api()
    made(step(kube))
    before = (kube.objects[SECRET] or {})["data"]
    later = replace(step(kube), login=locked)
    for now in (step(kube, None), later):
        assert now.check().condition is Condition.READY
        now.apply(print)
        assert stored(kube)["data"] == before
    with pytest.raises(RegistryRefused):
        replace(later, kube=api()).check()


@pytest.mark.parametrize("ours", [True, False])
def test_it_stays_while_an_operator_of_ours_pulls_by_it(ours: bool) -> None:
    kube = api()
    made(step(kube))
    kube.lists[DEPLOYMENTS] = [applied(OPERATOR, FIELD_MANAGER if ours else "helm")]
    left = step(kube).undo(print)
    assert (bool(left), kube.objects[SECRET] is not None) == (ours, ours)


def test_a_kubernetes_that_does_not_answer_is_no_obstacle_to_down(monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(*_: Any, **__: Any) -> None:
        raise ClusterUnreachable("nobody answers", hint="")

    monkeypatch.setattr(Objects, "_call", gone)
    assert "could not be removed from team: nobody answers" in str(step(api()).undo(print))


def test_where_nothing_is_pulled_an_earlier_login_goes() -> None:
    kube = api()
    now = replace(made(step(kube)), registry="")
    assert now.check().condition is Condition.MISSING
    now.apply(print)
    assert (now.check().condition, kube.objects[SECRET]) == (Condition.READY, None)
