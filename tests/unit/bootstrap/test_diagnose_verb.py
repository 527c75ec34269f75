"""Tests what `diagnose` refuses, and how it shows what was found."""

from __future__ import annotations

import io
import json
import zipfile
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from bootstrap.diagnosis.evidence import Evidence
from bootstrap.diagnosis.gather import Gathered
from bootstrap.errors import PodNotFound, RayDied
from bootstrap.settings import Settings
from bootstrap.targets import choice
from bootstrap.verbs import diagnose as verb
from rayside.console import Console
from rayside.errors import InvalidArgument, JobNotFound
from tests.instances import instance
from tests.unit.bootstrap.test_trouble import NAME
from tests.unit.diagnosed import job, seen


@dataclass
class Place:
    """A target whose cluster is as the evidence says."""

    folder: Path
    access: Any = None
    kubernetes: Any = None
    instance: Any = field(init=False)

    def __post_init__(self) -> None:
        self.instance = instance(folder=self.folder)
        self.access = SimpleNamespace(workspace_password=lambda: "correct-horse")
        (self.folder / "token").write_text("the-token-of-ray\n")


@pytest.fixture
def place(tmp_path: Path) -> Place:
    tmp_path.chmod(0o700)
    return Place(tmp_path)


def shown(
    evidence: Evidence,
    place: Place,
    monkeypatch: pytest.MonkeyPatch,
    *,
    as_json: bool = False,
    cluster: str = "rayside",
    documents: dict[str, Any] | None = None,
    settings: Settings | None = None,
    **options: str,
) -> str:
    """What `diagnose` prints of that evidence."""
    monkeypatch.setattr(choice, "existing", lambda settings, shell: place)
    monkeypatch.setattr(verb, "gather", lambda target, paused, **of: Gathered(documents or {}, evidence))
    out = io.StringIO()
    console = Console(as_json, cluster, out=out, err=io.StringIO())
    given = {"job": None, "pod": None, "archive": None, **options}
    verb.diagnose(settings or Settings(), console, **given)
    return out.getvalue()


FAILED = [job("a", code=137), job("b", code=5, job_id="03", start_time=1)]


def test_each_finding_is_a_paragraph_one_hint_next(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    text = shown(seen(FAILED, unread=["actors: no answer within 20 s"]), place, monkeypatch, cluster="two")
    assert text == (
        "Job a failed: exit code 137 (SIGKILL: killed, most often because memory ran out)\n"
        "  Job is currently running.\n"
        "  [job-failed]\n"
        "Job b failed: exit code 5 (as the program chose)\n"
        "  Job is currently running.\n"
        "  hint: ./invokew logs --name two --job b shows all of its output\n"
        "  [job-failed]\n"
        "Not read: actors: no answer within 20 s\n"
        "\nNext: ./invokew logs --name two --job a shows all of its output\n"
    )


def test_the_document_has_the_same(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    document = json.loads(shown(seen(FAILED), place, monkeypatch, as_json=True, cluster="two", job="b"))
    assert set(document) == {"findings", "unread"}
    (found,) = document["findings"]
    assert set(found) == {"id", "what", "where", "why", "hint"}
    assert found["hint"] == "./invokew logs --name two --job b shows all of its output"


HIDES = "<redacted> <redacted>"


@pytest.mark.parametrize(
    ("settings", "log", "kept", "its_settings"),
    [
        ({}, "the-token-of-ray correct-horse from-my-shell", f"{HIDES} <redacted>", ""),
        (
            {"package_index": "https://ada:s3cret%2Fword@pypi.test/simple"},
            *("s3cret/word s3cret%2Fword, says ada", f"{HIDES}, says ada", "<redacted>@pypi.test/simple"),
        ),
        (
            {"package_index": "https://token-of-it@pypi.test/simple"},
            *("token-of-it token-of-it, says ada", f"{HIDES}, says ada", "<redacted>@pypi.test/simple"),
        ),
        (
            {"package_proxy": "http://eve:s3cret%2Fword@proxy.test:3128"},
            *("s3cret/word s3cret%2Fword, says eve", f"{HIDES}, says eve", ""),
        ),
    ],
    ids=["token, password and environment", "login of the index", "token of the index", "login of the proxy"],
)
def test_an_archive_has_no_secret_that_is_known(
    settings: dict[str, str],
    log: str,
    kept: str,
    its_settings: str,
    place: Place,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("MY_SERVICE_TOKEN", "from-my-shell")
    file, given = place.folder / "d.zip", Settings(**settings)  # type: ignore[arg-type]
    documents = {"head's log": log}
    text = shown(seen(FAILED), place, monkeypatch, archive=str(file), documents=documents, settings=given)
    assert f"{file} holds what was read; {3 if not settings else ''}" in text
    with zipfile.ZipFile(file) as archive:
        assert archive.read("logs/head.log").decode() == kept
        written = archive.read("settings.json").decode()
    assert its_settings in written
    assert not [secret for secret in ("s3cret", "token-of-it") if secret in written]


def test_what_failures_have_left_is_in_an_archive(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    file, evidence = place.folder / "d.zip", seen(FAILED)
    monkeypatch.setattr(verb, "documents", lambda access: [{"task": "half", "api_token": "tell-nobody"}])
    shown(evidence, place, monkeypatch, archive=str(file))
    with zipfile.ZipFile(file) as archive:
        assert "ray/failures.json" not in archive.namelist()  # no job had a debugger
    file.unlink()
    evidence.jobs[0].metadata["rayside.debug"] = "{}"
    shown(evidence, place, monkeypatch)  # no archive: nothing is asked
    shown(evidence, place, monkeypatch, archive=str(file))
    with zipfile.ZipFile(file) as archive:
        recorded = json.loads(archive.read("ray/failures.json"))
    assert recorded == [{"task": "half", "api_token": "<redacted>"}]

    def gone(access: Any) -> Any:
        raise RayDied("Ray has died", hint="")

    file.unlink()
    monkeypatch.setattr(verb, "documents", gone)
    text = shown(evidence, place, monkeypatch, archive=str(file))
    assert "Not read: recorded failures: Ray has died" in text


def test_a_job_that_is_gone_is_told_and_a_dead_ray(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(JobNotFound, match="no job 'c', or no longer") as caught:
        shown(seen(FAILED), place, monkeypatch, job="c")
    assert caught.value.hint == "the newest are b, a"
    with pytest.raises(RayDied):
        shown(seen(ray=RayDied("Ray died", hint="")), place, monkeypatch, job="c")


def test_a_pod_that_is_gone_is_an_error(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InvalidArgument, match="--pod needs a Kubernetes cluster"):
        shown(seen(), place, monkeypatch, pod=NAME)
    kube = SimpleNamespace(pods=lambda selector: [{"metadata": {"name": "head-1"}}])
    place.kubernetes = SimpleNamespace(kube=kube)
    with pytest.raises(PodNotFound, match=f"no pod '{NAME}' in the namespace default") as caught:
        shown(seen(), place, monkeypatch, pod=NAME)
    assert caught.value.hint == "there are head-1"


def test_a_job_and_a_pod_are_two_questions(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InvalidArgument, match="two questions"):
        shown(seen(), place, monkeypatch, job="a", pod="b")


def test_an_archive_that_cannot_be_is_refused_first(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InvalidArgument, match="no ending that says what it is"):
        shown(seen(FAILED), place, monkeypatch, archive=str(place.folder / "d.txt"))
    with pytest.raises(InvalidArgument, match="there is no folder ~nosuchuser"):
        shown(seen(FAILED), place, monkeypatch, archive="~nosuchuser/d.zip")
