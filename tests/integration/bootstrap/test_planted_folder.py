"""Tests that no verb reads a folder that another user made, runs its programs, or sends to its addresses."""

from __future__ import annotations

import inspect
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

import tasks
from bootstrap.instance import configured
from bootstrap.verbs import development
from rayside.system import processes
from tests.integration.bootstrap.test_strangers import recording
from tests.integration.conftest import Rayside, apart

STRANGER = 65534
# What a verb is called with, where the bare verb is not all that it can do with the folder.
FORMS = {
    "submit": ([], ["--wait"], ["--job", "{rayjob}"]),
    "attach": (["main-1a2b3c"],),
    "bundle": (["rayside.bundle"],),
    "debug": (["--json"], ["--launch-json"]),
    "logs": ([], ["--follow"], ["--ray"]),
    "doctor": ([], ["--fix"]),
    "lab": (["1"], ["1", "--check"], ["1", "--solve"], ["--all", "--check"], ["--all", "--reset"]),
    "open": (["--no-browser"],),
    "workshop": (
        ["--places", "2"],
        ["--places", "2", "--dry-run"],
        ["--status"],
        ["--sheet", "sheet.csv"],
        ["--free", "place-001"],
        ["--push", "1"],
        ["--reset", "place-001"],
        ["--pause"],
        ["--resume"],
        ["--collect", "files"],
        ["--collect", "files", "--until", "23:59"],
        ["--remove"],
    ),
}


# Each verb reads the folder's record before it knows a target: these two are tried on all of them.
ON_ALL = ("up", "down")


def verbs() -> list[list[str]]:
    """Returns every verb of tasks.py, in its forms, without those that have nothing to do with a cluster."""
    lines = []
    for name, task in sorted(tasks.namespace.tasks.items()):
        # `labs` looks at the clone alone, and `mirror` at what `bundle` makes.
        if "import development" in inspect.getsource(task.body) or name in ("labs", "mirror"):
            continue
        lines += [[name, *options] for options in FORMS.get(name, ([],))]
    return lines


def test_the_verbs_that_are_left_out_know_no_target() -> None:
    assert {words[0] for words in verbs()} >= {"up", "down", "status", "submit", "debug", "prepare"}
    assert not {"plan", "StateFolder", "Dashboard"} & set(vars(development))


class Planted:
    """A state folder as a stranger would make it, with a cluster's folder in it.

    `received` is what the cluster's dashboard was sent.
    """

    def __init__(self, rayside: Rayside, received: list[str]) -> None:
        self.rayside, self.received = rayside, received
        self.root, self.folder = rayside.settings.state_folder, rayside.folder
        self.marker = self.root.with_name(f"{self.root.name}-marker")

    def write(self) -> None:
        """Writes all that verbs look for, so that they would believe it."""
        self.folder.mkdir(parents=True)
        settings = self.rayside.settings
        plugin = {
            "apiVersion": "client.authentication.k8s.io/v1",
            "command": "/bin/sh",
            "args": ["-c", f"touch {self.marker}"],
            "interactiveMode": "Never",
        }
        url = f"http://127.0.0.1:{settings.dashboard_port}"
        context = {"cluster": "c", "user": "u"}
        documents: dict[str, object] = {
            "kubeconfig": {
                "clusters": [{"name": "c", "cluster": {"server": url.replace("http:", "https:")}}],
                "users": [{"name": "u", "user": {"exec": plugin}}],
                "contexts": [{"name": f"kind-{settings.name}", "context": context}],
            },
            "cluster.json": {
                "dashboard": url,
                "submit": ["/bin/sh", "-c", f"touch {self.marker}"],
                "target": "kind",
            },
            "up.json": [],
        }
        this_process = {"pid": os.getpid(), "created": processes.created(os.getpid())}
        for name in ("ray", "relay-process", "workspace-process", "forwards-process"):
            documents[f"{name}.json"] = {**this_process, "spec": {}}
        for name, document in documents.items():
            (self.folder / name).write_text(
                yaml.safe_dump(document) if name == "kubeconfig" else json.dumps(document)
            )
        (self.folder / "token").write_text("planted")
        target = settings.target if settings.target != "auto" else "kind"
        (self.folder / "instance.json").write_text(configured(settings, target).document())

    def give_away(self) -> None:
        """Gives it to a stranger, if we may; otherwise opens it to everybody, as if made by one."""
        for path in (*self.folder.iterdir(), self.folder, self.root):
            if os.getuid() == 0:
                os.chown(path, STRANGER, STRANGER)
            else:
                path.chmod(path.stat().st_mode | 0o066 | (0o011 if path.is_dir() else 0))


@pytest.fixture
def planted(request: pytest.FixtureRequest) -> Iterator[Planted]:
    """Provides a planted folder of the target that the test's parameter `target` names."""
    base = Path(tempfile.mkdtemp(prefix="rs-", dir="/tmp"))
    base.rmdir()
    rayside = Rayside(apart(base, target=request.getfixturevalue("target"), name=f"rs-{os.getpid()}"))
    with recording(rayside.settings.dashboard_port) as (_, received):
        stranger_folder = Planted(rayside, received)
        stranger_folder.write()
        stranger_folder.give_away()
        try:
            yield stranger_folder
        finally:
            shutil.rmtree(base)
            stranger_folder.marker.unlink(missing_ok=True)


RAYJOB = """\
apiVersion: ray.io/v1
kind: RayJob
metadata: {name: a-job}
spec:
  submissionMode: InteractiveMode
  entrypoint: python sample_code.py
  clusterSelector: {ray.io/cluster: rayside}
"""


@pytest.mark.parametrize(
    ("words", "target"),
    [
        pytest.param(words, target, id=f"{target}-{' '.join(words)}")
        for number, words in enumerate(verbs())
        for turn, target in enumerate(("local", "kind", "auto"))
        if words[0] in ON_ALL or number % 3 == turn
    ],
)
def test_no_verb_believes_a_folder_that_a_stranger_planted(
    planted: Planted, words: list[str], target: str, tmp_path: Path
) -> None:
    (tmp_path / "rayjob.yaml").write_text(RAYJOB)
    words = [word.format(rayjob=tmp_path / "rayjob.yaml") for word in words]
    before = {path: path.read_bytes() for path in planted.folder.iterdir()}
    done = planted.rayside.run(*words, cwd=tmp_path if words[0] == "debug" else Path.cwd(), timeout=60)
    assert done.returncode == 3, done.stdout + done.stderr
    output = done.stdout + done.stderr
    assert "error[unsafe-folder]" in output or '"id": "unsafe-folder"' in output
    assert str(planted.root) in output
    assert planted.received == []
    assert not planted.marker.exists()
    assert {path: path.read_bytes() for path in planted.folder.iterdir()} == before
