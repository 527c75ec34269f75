"""Tests that the documented rights are enough for a workshop, by one who is no administrator."""

from __future__ import annotations

import csv
import secrets
import shutil
import tarfile
import tempfile
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from bootstrap.kube.api import CORE, Kube
from bootstrap.kube.contents import held
from bootstrap.kube.rights import Rule
from rayside.waiting import until
from tests.documented_rights import documented
from tests.e2e.conftest import kube as kube_of
from tests.e2e.conftest import make_namespace
from tests.e2e.test_created import few, grant, standing
from tests.integration.conftest import Rayside, apart, free_ports
from tests.patience import PATIENCE

# A fixture of another module.
__all__ = ["few"]

LAB = "01-breakpoint"


@pytest.mark.timeout(900)
def test_one_with_the_documented_rights_has_a_workshop_and_leaves_nothing(
    up: Rayside, few: Kube, tmp_path: Path
) -> None:
    folder = Path(tempfile.mkdtemp(prefix="rs-", dir="/tmp"))
    folder.rmdir()
    theirs, name = kube_of(up), f"few-{secrets.token_hex(3)}"
    beside = theirs.within(name)
    make_namespace(theirs, name)
    ports = dict(zip(("workshop_port", "teacher_port"), free_ports(2), strict=True))
    # Without workers, the cluster and a place have room on two processors beside the tests' own cluster.
    user = Rayside(apart(folder, source="packages", ray_workers=0, name=name, **ports))
    user.environment_too["KUBECONFIG"] = str(few.kubeconfig)
    bring = ["up", "--context", "few", "--create", "--namespace", name, "--no-example"]
    grant(theirs, "few", documented("workshop.md", "rayside-workshop"))
    before = standing(theirs)
    try:
        # Kubernetes knows of rights a moment later.
        assert until(lambda: user.run(*bring, timeout=600).returncode == 0, bool, PATIENCE), user.run(
            *bring
        ).stderr
        # The lack of the other Role is said with what cures it, before anything is made.
        error = user.json("workshop", "--places", "1", "--dry-run", code=4)["error"]
        assert f"in the namespace {name}: " in error["message"]
        assert "get, create, patch, delete deployments" in error["message"]
        grant(theirs, "few", documented("workshop.md", "rayside-workshop-door"), namespace=name)
        dry = ("workshop", "--places", "1", "--dry-run")
        assert until(lambda: user.run(*dry).returncode == 0, bool, PATIENCE), user.run(*dry).stderr
        assert standing(theirs)["namespaces"] == before["namespaces"]
        has_a_workshop(user, tmp_path)
    except BaseException:
        # A right that is lacking would leave all that takes it.
        grant(theirs, "few", [Rule("*", "*", ("*",))])
        raise
    finally:
        user.run("workshop", "--remove", timeout=300)
        done = user.run("down", timeout=300)
        left, has_folder, now = sorted(held(beside)), folder.exists(), standing(theirs)
        theirs.delete(f"{CORE}/namespaces/{name}")
        shutil.rmtree(folder, ignore_errors=True)
    assert done.returncode == 0, done.stdout + done.stderr
    # The Role is its administrator's.
    assert (left, has_folder) == (["rolebindings/few", "roles/few"], False)
    assert now == before


def has_a_workshop(user: Rayside, folder: Path) -> None:
    """Makes a place, does once all that a teacher does with it, and ends with its files, and no place."""

    def states(*words: str, **how: Any) -> list[tuple[str, str]]:
        rows = user.json("workshop", *words, **how)["places"]
        return [(row["name"], row["state"]) for row in rows]

    ready = [("place-001", "ready")]
    assert states("--places", "1", timeout=300) == ready
    assert states("--status") == ready
    sheet = folder / "sheet.csv"
    assert user.run("workshop", "--sheet", str(sheet)).returncode == 0
    with sheet.open(newline="") as opened:
        assert [row["place"] for row in csv.DictReader(opened)] == ["place-001"]
    done = user.run("workshop", "--free", "place-001")
    assert (done.returncode, "may stay" in done.stdout + done.stderr) == (0, False), done.stderr
    pushed = user.json("workshop", "--push", LAB)
    assert [row["place"] for row in pushed["places"]] == ["place-001"]
    assert user.json("workshop", "--reset", "place-001", "--lab", LAB)["place"] == "place-001"
    assert states("--pause") == [("place-001", "paused")]
    assert states("--resume") == ready
    ends = (datetime.now() + timedelta(seconds=25)).isoformat(timespec="seconds")
    document = user.json("workshop", "--until", ends, "--collect", str(folder / "files"), timeout=300)
    assert (document["places"], [row["place"] for row in document["files"]]) == ([], ["place-001"])
    with tarfile.open(document["files"][0]["file"]) as archive:
        assert all(member.name.startswith("labs/") for member in archive.getmembers())
    assert "0 places removed" in user.run("workshop", "--remove").stdout
