"""Tests a break of a workshop: workers go and come back, as many as there were, whatever the settings say."""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from types import SimpleNamespace
from typing import Any, cast

import pytest

from bootstrap.delivery.door_secrets import Claim
from bootstrap.steps.ray_cluster import PAUSED, PAUSED_FOR, PAUSED_IDLE, PAUSED_SINCE, RESUMED, paused
from bootstrap.targets.place import Place
from bootstrap.verbs import workshop_files
from bootstrap.verbs.workshop import minutes_of, require_one
from bootstrap.workshop import inside
from bootstrap.workshop.event import Workshop, _state
from bootstrap.workshop.pause import Culling, IdlePaused, Paused, Resumed
from rayside.console import Console
from rayside.errors import ClusterUnreachable, InvalidArgument, NotReady, NotRunning
from rayside.steps.step import Condition

NOON = datetime(2026, 11, 27, 12, tzinfo=timezone.utc)


@dataclass
class Api:
    """Has one RayCluster, whose workers are as many as it says, at once."""

    cluster: dict[str, Any] | None
    patches: int = 0
    # Somebody else scales it before a patch comes.
    meanwhile: int | None = None
    notes: dict[str, str] = field(default_factory=dict)
    # By the API's clock.
    time: datetime = NOON

    def ray(self, plural: str, name: str) -> dict[str, Any] | None:
        return copy.deepcopy(self.cluster)

    def pods(self, selector: str) -> list[dict[str, Any]]:
        assert selector == "ray.io/cluster=rayside-a,ray.io/node-type=worker"
        assert self.cluster is not None
        status = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
        pod = {"metadata": {"name": "worker"}, "spec": {"containers": []}, "status": status}
        return [pod] * self.cluster["spec"]["workerGroupSpecs"][0]["replicas"]

    def now(self) -> datetime:
        return self.time

    def patch(self, path: str, operations: Sequence[Mapping[str, Any]]) -> None:
        assert path == "/apis/ray.io/v1/namespaces/rayside-a/rayclusters/rayside-a"
        assert self.cluster is not None
        changed = copy.deepcopy(self.cluster)
        if self.meanwhile is not None:
            changed["spec"]["workerGroupSpecs"][0]["replicas"] = self.meanwhile
        for operation in operations:
            *parents, last = [
                part.replace("~1", "/").replace("~0", "~") for part in operation["path"].split("/")[1:]
            ]
            at: Any = changed
            for part in parents:
                at = at[int(part) if isinstance(at, list) else part]
            if operation["op"] == "test" and at.get(last) != operation["value"]:
                raise NotReady("changed meanwhile", hint="again")
            if operation["op"] in ("add", "replace"):
                at[last] = operation["value"]
            if operation["op"] == "remove":
                del at[last]
        self.cluster, self.patches = changed, self.patches + 1

    @property
    def place(self) -> Place:
        instance = SimpleNamespace(name="rayside-a", namespace="rayside-a", ray_cluster="rayside-a")
        return cast(Place, SimpleNamespace(instance=instance, kube=self))


def cluster(workers: int) -> dict[str, Any]:
    return {
        "metadata": {"annotations": {"rayside.dev/spec": "{}"}},
        "spec": {"workerGroupSpecs": [{"groupName": "workers", "replicas": workers}]},
    }


@pytest.mark.parametrize("workers", [1, 3])
def test_as_many_workers_come_back_as_there_were(workers: int) -> None:
    api = Api(cluster(workers))
    before = copy.deepcopy(api.cluster)
    pause, resume = Paused(api.place), Resumed(api.place)
    assert (resume.check().condition, pause.check().condition) == (Condition.READY, Condition.MISSING)
    pause.apply(lambda _: None)
    # A pause that is asked for twice, as another command has seen it before, forgets no workers.
    pause.apply(lambda _: None)
    assert (pause.check().condition, resume.check().condition) == (Condition.READY, Condition.MISSING)
    assert api.cluster is not None
    assert paused(api.cluster) == str(workers)
    assert _state(api.cluster, [])[0] == "paused"
    api.time += timedelta(minutes=40)
    resume.apply(lambda _: None)
    # How long it was is not forgotten: it was not to be paid for. Nor is since when it has workers.
    assert api.cluster["metadata"]["annotations"].pop(PAUSED_FOR) == "2400"
    assert api.cluster["metadata"]["annotations"].pop(RESUMED) == "2026-11-27T12:40:00+00:00"
    assert api.cluster == before
    assert resume.check().condition is Condition.READY
    # What is as it should be is not written again.
    assert api.patches == 2


def test_all_pauses_count_together_even_where_somebody_took_a_note_away() -> None:
    api = Api(cluster(2))
    for minutes in (10, 20):
        Paused(api.place).apply(lambda _: None)
        api.time += timedelta(minutes=minutes)
        Resumed(api.place).apply(lambda _: None)
    assert api.cluster is not None
    assert api.cluster["metadata"]["annotations"][PAUSED_FOR] == "1800"
    Paused(api.place).apply(lambda _: None)
    del api.cluster["metadata"]["annotations"][PAUSED_SINCE]
    api.cluster["metadata"]["annotations"][PAUSED_FOR] = "spoilt"
    Resumed(api.place).apply(lambda _: None)
    assert api.cluster["metadata"]["annotations"].pop(RESUMED)
    assert api.cluster["metadata"]["annotations"] == {"rayside.dev/spec": "{}", PAUSED_FOR: "0"}
    assert api.cluster["spec"]["workerGroupSpecs"][0]["replicas"] == 2


@pytest.mark.parametrize(
    ("told", "claimed", "is_idle"),
    [
        ({"now": 4000, "acted": 1000, "jobs": 0}, True, True),
        # The claim is younger than what was done: that was another attendee.
        ({"now": 4000, "acted": 0, "jobs": 0}, True, True),
        ({"now": 2000, "acted": 0, "jobs": 0}, True, False),
        ({"now": 4000, "acted": 3000, "jobs": 0}, True, False),
        ({"now": 4000, "acted": 1000, "jobs": 1}, True, False),
        ({"now": 4000, "acted": 1000, "jobs": 0}, False, False),
        # What an attendee's place may answer.
        ({"now": float("nan"), "acted": 1000, "jobs": 0}, True, False),
        ({"now": "4000", "acted": 1000, "jobs": 0}, True, False),
        ({"now": 4000, "acted": None, "jobs": 0}, True, False),
        ({"now": 10**400, "acted": 1000, "jobs": 0}, True, False),
        ({"now": 4000, "acted": -(10**400), "jobs": 0}, True, False),
        ([], True, False),
    ],
)
def test_only_a_place_whose_attendee_does_nothing_is_paused(
    told: object, claimed: bool, is_idle: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    api = Api(cluster(2))
    printed = json.dumps(told).encode()
    monkeypatch.setattr(inside, "bounded", lambda *_: printed)
    monkeypatch.setattr(inside, "_in_workspace", lambda *_: [])
    claim = Claim("Ada", "1970-01-01T00:20:00Z") if claimed else None
    part = IdlePaused(api.place, claim, 30)
    status = part.check()
    assert status.condition is (Condition.MISSING if is_idle else Condition.READY), status
    if is_idle:
        part.apply(lambda _: None)
        # From now on nothing is asked of the place, which is paused.
        monkeypatch.setattr(inside, "bounded", None)
        assert part.check().condition is Condition.READY


@dataclass
class Room:
    """Has a place, what is said of it, and the looks into it, all by one clock."""

    api: Api
    monkeypatch: pytest.MonkeyPatch
    said: list[str] = field(default_factory=list)
    culling: Culling = field(default_factory=lambda: Culling(30))
    claims: dict[str, Claim] = field(default_factory=lambda: {"a": Claim("Ada", "2026-11-27T12:20:00Z")})

    def look(self, minute: float, told: object) -> bool:
        """Looks so many minutes past noon, when the place tells that; returns whether it has workers then."""
        self.api.time = past_noon(minute)
        if isinstance(told, dict):
            told = {"now": self.api.time.timestamp(), "jobs": 0, **told}
        self.monkeypatch.setattr(inside, "bounded", lambda *_: json.dumps(told).encode())
        self.monkeypatch.setattr(inside, "_in_workspace", lambda *_: [])
        self.culling.look({"a": self.api.place}, self.claims, self.said.append)
        return not paused(self.api.cluster or {})


def past_noon(minute: float) -> datetime:
    return NOON + timedelta(minutes=minute)


def acted(minute: float) -> dict[str, float]:
    return {"acted": past_noon(minute).timestamp()}


PAUSES, RESUMES = "a is paused: nothing was done in it for 30 min", "a gets its workers again"


@pytest.fixture
def a_room(monkeypatch: pytest.MonkeyPatch) -> Room:
    return Room(Api(cluster(2)), monkeypatch)


# The pod's clock may be behind the API's; and something may be done between a look and the pause.
@pytest.mark.parametrize("back", [acted(70), acted(20.1), {**acted(20), "jobs": 1}])
def test_an_idle_place_has_its_workers_again_once_it_is_used(back: dict[str, float], a_room: Room) -> None:
    assert a_room.look(49, acted(20))
    assert not a_room.look(51, acted(20))
    # Nothing is done in it, and no answer is none.
    answers: list[object] = [acted(20), {"acted": None}, []]
    for told in answers:
        assert not a_room.look(60, told)
    assert a_room.look(71, back)
    assert a_room.said == [PAUSES, RESUMES]
    assert a_room.api.cluster is not None
    notes = a_room.api.cluster["metadata"]["annotations"]
    assert notes == {"rayside.dev/spec": "{}", PAUSED_FOR: "1200", RESUMED: past_noon(71).isoformat()}
    assert a_room.api.cluster["spec"] == cluster(2)["spec"]


def test_who_got_their_workers_back_has_as_many_minutes_again(a_room: Room) -> None:
    assert not a_room.look(60, acted(20))
    # By --resume.
    Resumed(a_room.api.place).apply(lambda _: None)
    assert a_room.look(89, acted(20))
    assert not a_room.look(91, acted(20))


def test_a_break_for_all_ends_for_nobody_before_the_others(a_room: Room) -> None:
    at_work = {**acted(69), "jobs": 1}
    Paused(a_room.api.place).apply(lambda _: None)
    assert not a_room.look(70, at_work)
    Resumed(a_room.api.place).apply(lambda _: None)
    # Nor for one that was idle before it.
    assert not a_room.look(101, acted(69))
    pause = Paused(a_room.api.place)
    assert pause.check().condition is Condition.MISSING
    pause.apply(lambda _: None)
    assert pause.check().condition is Condition.READY
    assert not a_room.look(103, at_work | acted(102))
    assert a_room.said == [PAUSES]
    Resumed(a_room.api.place).apply(lambda _: None)
    assert (a_room.api.cluster or {})["spec"] == cluster(2)["spec"]


@pytest.mark.parametrize("claims", [{}, {"a": Claim("Bob", "2026-11-27T13:05:00Z")}])
def test_a_freed_place_has_its_workers_for_the_next_attendee(claims: dict[str, Claim], a_room: Room) -> None:
    assert not a_room.look(60, acted(20))
    a_room.claims = claims
    # No editor has told anything of the next one.
    assert a_room.look(66, {"acted": 0})
    assert a_room.look(67, {"acted": 0})


def test_a_note_that_somebody_spoilt_gives_workers_to_no_idle_place(a_room: Room) -> None:
    assert not a_room.look(60, acted(20))
    assert a_room.api.cluster is not None
    a_room.api.cluster["metadata"]["annotations"][PAUSED_IDLE] = "spoilt"
    assert not a_room.look(61, acted(60.5))
    assert a_room.look(62, {**acted(60.5), "jobs": 1})


def test_what_fails_is_said_once_and_tried_again(a_room: Room) -> None:
    a_room.api.meanwhile = 5
    for minute in (60, 61, 62):
        assert a_room.look(minute, acted(20))
    # Workers that somebody changes meanwhile are not forgotten.
    assert a_room.api.cluster == cluster(2)
    a_room.api.meanwhile = None
    assert not a_room.look(63, acted(20))
    assert a_room.said == ["a: changed meanwhile", PAUSES]


def test_what_fails_with_all_is_said_once_other_workshops_are_left(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    away = ClusterUnreachable("the API does not answer", hint="wait")
    # It is there, then its network is not, then it is again, and then another one is in its stead.
    answers: list[str | ClusterUnreachable] = ["ours", away, away, "ours", away, "another"]

    def told() -> SimpleNamespace:
        answer = answers.pop(0)
        if isinstance(answer, ClusterUnreachable):
            raise answer
        return SimpleNamespace(teacher_key=answer)

    class Looks(Culling):
        def look(self, *_: object) -> None:
            said.append("looks")

    monkeypatch.setattr(workshop_files, "alone_with", lambda *_: nullcontext())
    monkeypatch.setattr(workshop_files, "LOOK", 0.0)
    door = SimpleNamespace(secrets=SimpleNamespace(told=told, claims=dict))
    workshop = cast(Workshop, SimpleNamespace(door=door, places=dict))
    console = cast(Console, SimpleNamespace(event=said.append))
    ends = datetime.now(timezone.utc) + timedelta(minutes=1)
    with pytest.raises(NotRunning, match="the workshop that was there has gone"):
        workshop_files._cull_until(ends, workshop, console, Looks(30), "ours")
    failed = "the API does not answer; the places are looked at again, every 0 s"
    assert said == ["looks", failed, "looks", failed]
    assert answers == []


def test_a_place_that_is_not_there_has_nothing_to_give_back() -> None:
    api = Api(None)
    for part in (Paused(api.place), Resumed(api.place)):
        assert part.check().condition is Condition.READY
        part.apply(lambda _: None)


@pytest.mark.parametrize("note", ["", "-1", "many", "²", "9" * 5000])
def test_a_note_that_somebody_spoilt_is_none(note: str) -> None:
    spoilt = cluster(1)
    spoilt["metadata"]["annotations"][PAUSED] = note
    assert paused(spoilt) == ""
    assert paused({"metadata": {}}) == ""


def test_one_thing_is_asked_for_at_once() -> None:
    require_one(lab=False, pause=True, status=False)
    require_one(lab=True, reset=True)
    require_one(lab=False, idle=True, pause=True)
    require_one(lab=False, idle=True, until=True, collect=True)
    with pytest.raises(InvalidArgument, match="--idle goes with --pause"):
        require_one(lab=False, idle=True, resume=True)
    for lab, asked in ((False, {}), (False, {"pause": True, "status": True}), (True, {"status": True})):
        with pytest.raises(InvalidArgument):
            require_one(lab=lab, **asked)


def test_minutes_are_from_one_to_a_day() -> None:
    assert minutes_of("30") == 30
    for text in ("0", "-1", "1441", "many", "1.5", "²", ""):
        with pytest.raises(InvalidArgument, match="--idle is"):
            minutes_of(text)
