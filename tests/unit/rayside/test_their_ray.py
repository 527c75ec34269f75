"""Tests an existing Ray cluster without one: its token, what its preflight says, what goes with a job."""

from __future__ import annotations

import base64
import json
import re
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest

from rayside.connection.debugpy_packages import packages_for
from rayside.errors import CredentialsRefused, KubernetesTokens, NotRunning
from rayside.ray import authentication
from rayside.ray.debug import Debug
from rayside.ray.state import Dashboard
from rayside.settings import NO_TOKEN
from rayside.steps.preflight import Preflight, Seen
from rayside.worker import driver
from rayside.worker.debug_config import change
from tests.http_servers import answering, says

CARRIED = "/cache/bytecode", "/cache/debugpy"
URL = "http://head.example:8265"


def test_the_token_is_looked_for_where_ray_looks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    named, other = tmp_path / "named", tmp_path / "other"
    named.write_text("named\n")
    other.write_text("other\n")
    environment = {"RAY_AUTH_TOKEN": "given", "RAY_AUTH_TOKEN_PATH": str(other)}
    assert authentication.token(str(named), environment) == "named"
    assert authentication.token("", environment) == "given"
    assert authentication.token("", {"RAY_AUTH_TOKEN_PATH": str(other)}) == "other"
    with pytest.raises(CredentialsRefused, match="can't be read"):
        authentication.token(str(tmp_path / "gone"), {})
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(CredentialsRefused, match="asks for a token, and there is none"):
        authentication.token("", {})
    (tmp_path / ".ray").mkdir()
    (tmp_path / ".ray" / "auth_token").write_text("home")
    assert authentication.token("", {}) == "home"


TAKEN = {"token": "right"}


def dashboard(request: BaseHTTPRequestHandler) -> None:
    """Answers as a dashboard does that asks for the token in TAKEN."""
    answers = {
        "/api/authentication_mode": {"authentication_mode": authentication.TOKEN},
        "/api/version": {"ray_version": "2.60.0"},
        "/api/v0/cluster_metadata": {"data": {"pythonVersion": "3.11.2"}},
    }
    told = request.headers["Authorization"] == f"Bearer {TAKEN['token']}"
    is_taken = told or request.path.startswith("/api/auth")
    says(request, 200 if is_taken else 403, json.dumps(answers[request.path]).encode(), Connection="close")


@pytest.fixture
def asking() -> Iterator[str]:
    """Yields the address of a Ray that asks for the token `right`."""
    with answering(dashboard) as port:
        yield f"http://127.0.0.1:{port}"


@pytest.mark.parametrize("kept", [None, "of-a-Ray-before"])
def test_the_token_that_ray_made_is_used_where_none_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asking: str, kept: str | None
) -> None:
    for name in ("RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    file = tmp_path / "kept"
    if kept:
        file.write_text(kept)
    preflight = Preflight(lambda: nullcontext(asking), "", file, "here")
    with pytest.raises(CredentialsRefused, match="refuses the token" if kept else "there is none"):
        preflight.look(asking)
    (tmp_path / ".ray").mkdir()
    (tmp_path / ".ray" / "auth_token").write_text("right\n")
    if kept:
        # Whoever refuses the token that was given for them gets no other one of the user's.
        with pytest.raises(CredentialsRefused, match="refuses the token"):
            preflight.look(asking)
        file.unlink()
    with pytest.raises(CredentialsRefused, match=r"only a pyproject\.toml named it"):
        replace(preflight, token_file=NO_TOKEN).look(asking)
    assert preflight.look(asking).token == "right"
    # Once a token was named for that Ray, it is the one.
    (tmp_path / "kept").write_text("right")
    assert replace(preflight, token_file=NO_TOKEN).look(asking).token == "right"
    wrong = tmp_path / "wrong"
    wrong.write_text("wrong")
    with pytest.raises(CredentialsRefused, match="refuses the token"):
        replace(preflight, token_file=str(wrong)).look(asking)


def web_token(**claims: Any) -> str:
    """Returns a JSON Web Token with these claims, which nobody has signed."""
    parts = ({"alg": "RS256"}, claims)
    encoded = [base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in parts]
    return ".".join([*encoded, "c2ln"])


def test_a_kubernetes_token_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asking: str) -> None:
    token = web_token(exp=4e9, **{"kubernetes.io": {"namespace": "default"}})
    monkeypatch.setitem(TAKEN, "token", token)
    file = tmp_path / "token"
    file.write_text(token)
    with pytest.raises(KubernetesTokens, match="the Ray at here takes tokens of Kubernetes"):
        Preflight(lambda: nullcontext(asking), str(file), tmp_path / "kept", "here").check()


def test_a_token_that_has_expired_is_said_to_have(tmp_path: Path, asking: str) -> None:
    file = tmp_path / "token"
    file.write_text(web_token(exp=1767225600))
    with pytest.raises(CredentialsRefused, match="refuses the token, which expired on 2026-01-01 00:00 UTC"):
        Preflight(lambda: nullcontext(asking), str(file), tmp_path / "kept", "here").look(asking)
    with pytest.raises(NotRunning, match="refuses our token, which expired on 2026-01-01 00:00 UTC"):
        Dashboard(asking, file.read_text()).version()


@pytest.mark.parametrize(
    "token", ["a.b.c", "a.b", web_token(exp=4e9), web_token(exp="soon"), web_token(), ".W10.", "0a" * 32]
)
def test_of_other_tokens_nothing_is_said(token: str) -> None:
    assert authentication.expiry(token) == ""
    assert not authentication.is_of_kubernetes(token)


@pytest.mark.parametrize(
    ("version", "mode", "expected"),
    [
        ("2.53.0", authentication.DISABLED, ["CVE-2023-48022", "CVE-2026-27482"]),
        ("2.54.0", authentication.DISABLED, ["CVE-2023-48022"]),
        ("3.0.0.dev0", authentication.DISABLED, ["CVE-2023-48022"]),
        ("of our own", authentication.DISABLED, ["CVE-2023-48022"]),
        ("2.53.0", authentication.TOKEN, []),
    ],
)
def test_what_a_ray_without_a_token_means_is_said(version: str, mode: str, expected: list[str]) -> None:
    assert re.findall(r"CVE-\d+-\d+", str(Seen(URL, version, "3.11.2", mode, ""))) == expected


@pytest.mark.parametrize("content", ["", " \n", "two words", "a\x1bb", "x" * 5_000])
def test_what_is_no_token_is_refused_and_not_shown(tmp_path: Path, content: str) -> None:
    file = tmp_path / "token"
    file.write_text(content)
    with pytest.raises(CredentialsRefused, match="holds no token") as raised:
        authentication.token(str(file), {})
    assert content.strip() not in raised.value.message or not content.strip()


def test_debugpy_goes_with_the_job_before_the_hook() -> None:
    sent = Debug(packages=CARRIED).added_to({"py_modules": ["/mine"]}, driver=True)
    assert sent["py_modules"][:3] == ["/mine", "/cache/bytecode", "/cache/debugpy"]
    assert sent["py_modules"][3].endswith("/rayside")
    assert '"carried": 2' in sent["env_vars"]["RAYSIDE_DEBUG"]
    assert "carried" not in Debug().added_to({}, driver=True)["env_vars"]["RAYSIDE_DEBUG"]
    # What pip installs need not be carried.
    pip = Debug(packages=("/cache/debugpy",), pip_debugpy=True).added_to({}, driver=True)
    assert "/cache/debugpy" not in pip["py_modules"]


@pytest.mark.parametrize("drivers", [["gcs://mine.zip"], ["gcs://drivers_own.zip"], []])
def test_workers_get_debugpy_in_any_case(monkeypatch: pytest.MonkeyPatch, drivers: list[str]) -> None:
    sent = Debug(packages=CARRIED).added_to({"py_modules": ["/mine"]}, driver=True)
    carried = ["gcs://bytecode.zip", "gcs://debugpy.zip"]
    job = {**sent, "py_modules": ["gcs://mine.zip", *carried, "gcs://hook.zip"]}
    for name in driver.OURS:
        monkeypatch.delenv(name, raising=False)
    for name, value in sent["env_vars"].items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("RAY_JOB_CONFIG_JSON_ENV_VAR", json.dumps({"runtime_env": job, "metadata": {}}))
    change(given=())

    def hooked(env: dict[str, Any], *_: object) -> dict[str, Any]:
        return env

    monkeypatch.setattr(driver, "hooked", hooked)
    merged = {**job, **({"py_modules": drivers} if drivers else {})}
    expected = [*(drivers or ["gcs://mine.zip"]), *carried, "gcs://hook.zip"]
    assert driver.on_init(merged)["py_modules"] == expected


def test_packages_for_another_python_than_the_workers_have_no_compiled_parts(tmp_path: Path) -> None:
    same = f"{sys.version_info.major}.{sys.version_info.minor}.0"
    own = [Path(package) for package in packages_for(same, tmp_path)]
    assert {package.name for package in own} == {"bytecode", "debugpy"}
    assert all((package / "__init__.py").exists() for package in own)
    assert not list(tmp_path.iterdir())
    copies = [Path(package) for package in packages_for("3.9.1", tmp_path)]
    assert all(package.is_relative_to(tmp_path) for package in copies)
    (debugpy,) = [package for package in copies if package.name == "debugpy"]
    assert not [*debugpy.rglob("*.so"), *debugpy.rglob("__pycache__")]
    assert len([*debugpy.rglob("*.py")]) > 100
