"""Tests the workspace's folder, settings and errors, and the file by which editors find a cluster."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bootstrap.errors import BadChecksum, NoNetwork
from bootstrap.settings import ROOT, Settings
from bootstrap.sources import extensions
from bootstrap.steps import workspace
from bootstrap.steps.workspace import FOLDER, head_folder, local_folder
from bootstrap.targets.local import Local
from rayside.errors import CommandFailed
from rayside.own_folder import make_own
from rayside.ray.records import Job
from rayside.steps.relay_process import LocalRelay
from rayside.steps.step import Appliable, Condition
from rayside.system.shell import Outcome, Shell
from tests.targets import kind_target, local_target

UNPACKED = "/tmp/ray/session_latest/runtime_resources"


def job(*, working_dir: str = "", uri: str = "") -> Job:
    metadata = {"rayside.working_dir": working_dir} if working_dir else {}
    runtime_env = {"working_dir": uri} if uri else {}
    return Job("one", None, "RUNNING", "python x.py", "", None, 0.0, metadata, runtime_env)


def local(tmp_path: Path, **settings: object) -> Local:
    parsed = Settings(target="local", state_folder=tmp_path, cache_folder=tmp_path, **settings)  # type: ignore[arg-type]
    target = local_target(parsed)
    make_own(target.instance.folder)
    return target


# --- which folder opens ------------------------------------------------------------------


def test_locally_the_newest_jobs_folder_opens_if_it_is_still_there(tmp_path: Path) -> None:
    older, newer = tmp_path / "older", tmp_path / "newer"
    older.mkdir()
    newer.mkdir()
    jobs = [job(working_dir=str(older)), job(working_dir=str(newer)), job()]
    assert local_folder(jobs) == str(newer)
    newer.rmdir()
    assert local_folder(jobs) == str(older)
    older.rmdir()
    assert local_folder(jobs) == local_folder([]) == str(FOLDER)


def test_in_a_pod_the_newest_package_opens_where_ray_unpacks_it() -> None:
    jobs = [
        job(uri="gcs://_ray_pkg_0000000000000001.zip"),
        job(uri="gcs://_ray_pkg_0a1b2c3d4e5f6071.zip"),
        job(uri="s3://bucket/code.zip"),
        job(),
    ]
    assert head_folder(jobs) == f"{UNPACKED}/working_dir_files/_ray_pkg_0a1b2c3d4e5f6071"
    assert head_folder(jobs[2:]) == UNPACKED
    # What is no package of Ray's opens nothing.
    for uri in ("gcs://_ray_pkg_../../etc.zip", "gcs://_ray_pkg_0a.zip?x=/", "file:///etc"):
        assert head_folder([job(uri=uri)]) == UNPACKED


# --- the process -------------------------------------------------------------------------


def test_only_a_hash_of_the_password_is_in_its_environment(tmp_path: Path) -> None:
    target = local(tmp_path)
    secret = next(step for step in target.steps() if step.name == "workspace-password")
    assert isinstance(secret, Appliable)
    secret.apply(lambda _: None)
    password = target.access.workspace_password()
    assert password
    assert len(password) >= 20
    environment = target.workspace_here.process.environment()
    assert environment["HASHED_PASSWORD"] == hashlib.sha256(password.encode()).hexdigest()
    assert password not in environment.values()
    assert password not in str(target.workspace_here.command())
    assert password not in json.dumps(target.workspace_here.spec)
    assert (tmp_path / "rayside" / "workspace-password").stat().st_mode & 0o777 == 0o600


def test_what_changes_code_server_is_not_inherited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    unwanted = {
        "VSCODE_IPC_HOOK_CLI": "another editor's terminal",
        "PORT": "80",
        "PASSWORD": "another",
        "HASHED_PASSWORD": "another",
        "NODE_OPTIONS": "--inspect",
        "RAY_ADDRESS": "another Ray",
        "RAYSIDE_STATE": "/of/another/cluster",
        "RAYSIDE_WORKSPACE_PROCESS": "/of/another/workspace",
    }
    for name, value in unwanted.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy")
    target = local(tmp_path)
    environment = target.workspace_here.process.environment()
    assert not {"VSCODE_IPC_HOOK_CLI", "PORT", "PASSWORD", "NODE_OPTIONS", "RAY_ADDRESS"} & set(environment)
    # There is no password yet, and code-server starts with none of another's.
    assert environment["HASHED_PASSWORD"] == ""
    assert "RAYSIDE_STATE" not in environment
    assert environment["RAYSIDE_WORKSPACE_PROCESS"] == str(tmp_path / "rayside")
    assert environment["HTTPS_PROXY"] == "http://proxy"
    # Nor has a Ray that is started from its terminal its mark.
    assert "RAYSIDE_WORKSPACE_PROCESS" not in target.head.environment()
    relay = target.relay
    assert isinstance(relay, LocalRelay)
    assert "RAYSIDE_WORKSPACE_PROCESS" not in relay.process.environment()


def test_it_is_started_anew_for_another_port_password_or_interpreter(tmp_path: Path) -> None:
    target = local(tmp_path)
    before = target.workspace_here.spec
    assert target.workspace_here.spec == before
    assert local(tmp_path, workspace_port=9000).workspace_here.spec != before
    assert replace(target.workspace_here, head=replace(target.head, programs=Path("/x"))).spec != before
    (tmp_path / "rayside" / "workspace-password").write_text("another")
    assert target.workspace_here.spec != before


def test_the_extension_is_packed_anew_for_a_new_lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extensions, "_LABS", tmp_path)
    readme = tmp_path / "01-one" / "README.md"
    readme.parent.mkdir()
    readme.write_text("# One\n")
    before = local(tmp_path).workspace_files.installed
    assert local(tmp_path).workspace_files.installed == before
    readme.write_text("# Two\n")
    assert local(tmp_path).workspace_files.installed != before


@pytest.mark.parametrize(
    ("raised", "error"),
    [
        (CommandFailed("npm error code ENOTFOUND", hint="x"), NoNetwork),
        (CommandFailed("npm error code EINTEGRITY", hint="x"), BadChecksum),
        (CommandFailed("no code-server for Linux on riscv64", hint="x"), CommandFailed),
        (NoNetwork("the Python package index could not be reached", hint="x"), NoNetwork),
    ],
)
def test_what_npm_says_is_explained(raised: CommandFailed, error: type[Exception]) -> None:
    explained = workspace.explained(raised)
    assert type(explained) is error
    assert explained.hint.endswith("INVOKE_RAYSIDE_WORKSPACE=false")


# --- the cluster file --------------------------------------------------------------------


def test_the_cluster_file_says_how_to_reach_and_submit(tmp_path: Path) -> None:
    step = local(tmp_path, relay_port=6000).cluster_file
    assert step.check().condition is Condition.MISSING
    step.apply(lambda _: None)
    assert step.check().condition is Condition.READY
    assert step.file.stat().st_mode & 0o777 == 0o600
    assert json.loads(step.file.read_text()) == {
        "dashboard": "http://127.0.0.1:8265",
        "relay": {"host": "127.0.0.1", "port": 6000},
        "name": "rayside",
        "token_file": str(tmp_path / "rayside" / "token"),
        "verbs": [str(ROOT / "invokew")],
        "submit": [str(ROOT / "invokew"), "submit"],
        "environment": {
            "INVOKE_RAYSIDE_TARGET": "local",
            "INVOKE_RAYSIDE_NAME": "rayside",
            "INVOKE_RAYSIDE_NAMESPACE": "default",
            "INVOKE_RAYSIDE_STATE_FOLDER": str(tmp_path),
            "INVOKE_RAYSIDE_CACHE_FOLDER": str(tmp_path),
        },
        "shared_files": True,
        "target": "local",
        "user": "",
    }
    other = local(tmp_path, relay_port=6001).cluster_file
    assert other.check().condition is Condition.MISSING
    step.undo(lambda _: None)
    assert not step.file.exists()


def test_an_editor_of_this_machine_does_not_see_the_files_of_kinds_workers(tmp_path: Path) -> None:
    settings = Settings(target="auto", state_folder=tmp_path / "s")
    document = kind_target(settings).cluster_file.document()
    assert (document["shared_files"], document["target"]) == (False, "kind")
    assert document["environment"]["INVOKE_RAYSIDE_TARGET"] == "kind"
    assert document["token_file"] == str(tmp_path / "s" / "rayside" / "token")


def test_the_pods_cluster_file_leads_to_the_pods_own_ports() -> None:
    document = json.loads((ROOT / "image" / "workspace" / "cluster.json").read_text())
    relay = json.loads((ROOT / "image" / "workspace" / "relay.json").read_text())
    assert document["relay"] == {"host": relay["host"], "port": relay["port"]}
    assert (document["dashboard"], document["token_file"]) == (relay["dashboard"], relay["token_file"])


def test_scripts_of_the_image_can_be_run() -> None:
    names = (
        *("install", "prune", "install-extensions", "entrypoint", "start-relay", "bring-verbs"),
        "pack-files",
    )
    assert [name for name in names if not os.access(ROOT / "image" / "workspace" / name, os.X_OK)] == []


def test_what_is_said_of_a_cluster_does_not_change_with_what_it_would_be_made_by(tmp_path: Path) -> None:
    """An `up` that is refused, because the cluster differs, leaves `status` as it was."""
    first, second = local(tmp_path), local(tmp_path, ray_cpus=7, min_memory_gib=9.0)
    assert first.cluster_file.document() == second.cluster_file.document()
    assert first.workspace_here.environment() == second.workspace_here.environment()
    kinds = [kind_target(Settings(target="kind", state_folder=tmp_path, ray_workers=n)) for n in (1, 2)]
    assert kinds[0].cluster_file.document() == kinds[1].cluster_file.document()


# --- its own extension -------------------------------------------------------------------


class Packer(Shell):
    """Packs nothing, in place of `pack`, and keeps what it was called with."""

    def run(self, args: Sequence[str | Path], **how: Any) -> Outcome:
        self.words, self.home = [*map(str, args)], Path(how["env"]["HOME"])
        Path(self.words[-1]).write_text("packed")
        return Outcome(0, "", "")


def test_the_extension_is_packed_in_a_folder_that_goes_and_leaves_a_ray_that_starts_the_processors(
    tmp_path: Path,
) -> None:
    shell, vsix = Packer(), tmp_path / "ours.vsix"
    files = replace(local(tmp_path).workspace_files, shell=shell)
    files.folder.mkdir()
    files.pack(vsix, lambda text: None)
    assert vsix.read_text() == "packed"
    assert shell.words[:4] == ["nice", "-n", "15", str(extensions.OWN / "pack")]
    assert not shell.home.exists()
