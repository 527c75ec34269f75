"""Tests what a workshop is said to take and to cost, before it starts and after it."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import Any

import pytest

from bootstrap.given_settings import parse
from bootstrap.kube.sizes import GIB, Size
from bootstrap.settings import Settings
from bootstrap.steps.ray_cluster import PAUSED, PAUSED_FOR, PAUSED_SINCE
from bootstrap.workshop.estimate import Prices, before, lasting, pods_at_work, prices, used
from rayside.errors import InvalidSetting

BEGAN = datetime(2026, 11, 27, 9, tzinfo=timezone.utc)
FREE = Prices(0, 0)


def cluster(began: str = "2026-11-27T09:00:00Z", replicas: int = 2, **notes: str) -> dict[str, Any]:
    """Returns a place whose head requests 0.5 CPU and 2 GiB; a worker with what KubeRay adds, 0.25 and 1."""

    def template(cpu: str, memory: str) -> dict[str, Any]:
        requests = {"cpu": cpu, "memory": memory}
        return {"spec": {"containers": [{"resources": {"requests": requests}}]}}

    return {
        "metadata": {"creationTimestamp": began, "annotations": notes},
        "spec": {
            "headGroupSpec": {"template": template("500m", "2Gi")},
            "workerGroupSpecs": [{"replicas": replicas, "template": template("250m", "1Gi")}],
        },
    }


def test_what_new_places_take_is_said_before() -> None:
    size = Size(600, 2 * GIB, 3)
    assert before(size, 1000, 8, FREE).startswith("600 CPU and 2000 GiB together")
    told = before(size, 33, 8, Prices(0.04, 0.005))
    # 19.8 processors and 66 GiB; five times eight places.
    assert (
        told
        == "19.8 CPU and 66 GiB together, 1.12 an hour at your prices; about 2 min, besides pulling images"
    )
    assert "0.33 an hour" in before(size, 33, 8, Prices(0, 0.005))
    assert "prices" not in before(size, 30, 8, FREE)
    assert before(size, 0, 8, FREE) == ""


def test_what_places_requested_is_said_after() -> None:
    seen = used([cluster(), cluster("2026-11-27T10:00:00Z")], BEGAN + timedelta(hours=3), Prices(0.1, 0.01))
    # Two heads for three and two hours, and two workers each.
    assert (seen.places, seen.hours, seen.cpu_hours, seen.gib_hours) == (2, 3.0, 5.0, 20.0)
    assert seen.cost == pytest.approx(0.7)
    told = "2 places requested 5 CPU hours and 20 GiB hours in 3.0 h; 0.70 at your prices"
    assert str(seen) == f"{told}."
    taken = {"places": 2, "hours": 3.0, "cpu_hours": 5.0, "gib_hours": 20.0}
    assert seen.document() == {**taken, "cost": pytest.approx(0.7)}
    # Without prices there is no cost.
    nothing = used([], BEGAN, FREE)
    assert nothing.document() == {**dict.fromkeys(taken, 0), "cost": None}
    assert "prices" not in str(nothing)


def test_pauses_count_without_workers() -> None:
    now = BEGAN + timedelta(hours=3)
    notes = {PAUSED: "2", PAUSED_SINCE: "2026-11-27T11:00:00+00:00", PAUSED_FOR: "3600"}
    # Two of the three hours there were no workers.
    assert used([cluster(replicas=0, **notes)], now, FREE).cpu_hours == 3 * 0.5 + 1 * 0.5
    # Its workers come back: what they need is not anybody's.
    assert pods_at_work(cluster(replicas=0, **notes)) == pods_at_work(cluster())


@pytest.mark.parametrize("spoilt", ["", "9" * 5000, "-1", "2099-01-01T00:00:00Z", "2026-11-27T09:00:00"])
def test_notes_that_somebody_spoilt_make_no_cost_of_less_than_nothing(spoilt: str) -> None:
    notes = {PAUSED: "2", PAUSED_SINCE: spoilt, PAUSED_FOR: spoilt}
    now = BEGAN + timedelta(hours=1)
    assert 0.5 <= used([cluster(replicas=0, **notes)], now, FREE).cpu_hours <= 1.0
    assert used([cluster(began=spoilt)], now, FREE).cpu_hours in (0.0, 1.0)


def test_durations_are_for_people() -> None:
    seconds = (20, 80, 100, 5399, 5400)
    assert [*map(lasting, seconds)] == ["20 s", "80 s", "2 min", "90 min", "1.5 h"]


def test_prices_are_numbers() -> None:
    assert prices(Settings()) == FREE
    for text in ("-1", "nan", "inf", "much"):
        with pytest.raises(InvalidSetting, match="cpu_hour_price"):
            parse({"cpu_hour_price": text}, {})
