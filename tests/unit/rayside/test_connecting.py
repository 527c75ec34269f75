"""Tests `connect`, `status` and `disconnect` on clusters that are recorded, without a Ray."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from rayside import cli
from rayside.connection import heads
from rayside.connection.access import RecordedAccess
from rayside.connection.instance import USUAL_DASHBOARD, Instance, Ports
from rayside.connection.kubectl_namespace import KubectlNamespace
from rayside.errors import InvalidSetting, NotRunning
from rayside.own_folder import make_own
from rayside.private_file import write_private
from rayside.settings import Settings
from rayside.settings_sources import read
from rayside.steps.state_folder import StateFolder
from rayside.system import marks
from rayside.system.shell import Shell
from rayside.verbs import connecting
from tests.patience import PATIENCE

# Nothing listens at these.
NOBODY = Ports(1, 2, 3, 4)


@pytest.fixture(autouse=True)
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("INVOKE_RAYSIDE_STATE_FOLDER", str(tmp_path / "state"))
    monkeypatch.setenv("INVOKE_RAYSIDE_CACHE_FOLDER", str(tmp_path / "cache"))
    make_own(tmp_path / "state")
    return Settings(state_folder=tmp_path / "state", cache_folder=tmp_path / "cache")


def recorded(settings: Settings, target: str = "cluster", **more: str) -> Instance:
    """Records a cluster, as what made or connected to it does."""
    location = settings.state_folder / settings.name
    make_own(location)
    identity = Instance(settings.name, target, "default", "", location, NOBODY)
    identity = Instance(**{**vars(identity), **more})
    write_private(identity.record, identity.document())
    return identity


class TestRayCluster:
    """A connection through a context, made with the name of a RayJob."""

    @pytest.fixture
    def identity(self, settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Instance:
        def find(kube: KubectlNamespace, name: str) -> str:
            assert (kube.context, kube.namespace) == ("office", "rays")
            found = {"train": "train-abc12", "train-abc12": "train-abc12", "other": "other-1"}
            if name not in found:
                raise NotRunning(f"no RayCluster {name}", hint="name another")
            return found[name]

        monkeypatch.setattr(heads, "find", find)
        where = {"context": "office", "namespace": "rays", "their_kubeconfig": "/k", "user": "anna"}
        return recorded(settings, address=USUAL_DASHBOARD, their_cluster="train-abc12", **where)

    @pytest.mark.parametrize("name", ["train", "train-abc12", ""])
    def test_the_same_command_connects_again(self, identity: Instance, settings: Settings, name: str) -> None:
        again = Settings(**{**vars(settings), "context": "office", "ray_cluster": name})
        assert connecting._identity(again, Shell()) == identity

    def test_another_one_is_refused(self, identity: Instance, settings: Settings) -> None:
        again = Settings(**{**vars(settings), "context": "office", "ray_cluster": "other"})
        with pytest.raises(InvalidSetting, match="ray_cluster is other, and the cluster rayside"):
            connecting._identity(again, Shell())


class TestClusterOfAClone:
    """A cluster that a clone of Rayside made, or a connection that it made, with a workspace beside it."""

    @pytest.fixture(params=["local", "cluster"])
    def identity(self, settings: Settings, request: pytest.FixtureRequest) -> Instance:
        address = {"cluster": "http://127.0.0.1:1"}.get(request.param, "")
        identity = recorded(settings, request.param, address=address)
        write_private(identity.cluster_file, json.dumps({"verbs": ["/clone/invokew"]}))
        return identity

    @pytest.mark.parametrize("verb", ["connect", "disconnect"])
    def test_only_that_clone_changes_it(
        self, identity: Instance, verb: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert cli.main([verb]) == 2
        assert "rayside was made in a clone of Rayside" in capsys.readouterr().err
        assert identity.record.exists()
        assert identity.cluster_file.exists()

    def test_what_repairs_it_is_advised_for_that_clone(
        self, identity: Instance, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert cli.main(["status"]) == 0
        shown = capsys.readouterr().out
        assert "Not ready. Next, where Rayside was cloned: ./invokew up" in shown
        assert "rayside connect" not in shown
        write_private(identity.token_file, "secret")
        assert cli.main(["compare", "x"]) == 4
        assert "where Rayside was cloned: ./invokew up" in capsys.readouterr().err


class TestWithoutARecord:
    """A connection whose record can't be read, as one of another version."""

    @pytest.fixture
    def forward(self, settings: Settings) -> Iterator[subprocess.Popen[bytes]]:
        identity = recorded(settings)
        identity.record.write_text('{"of": "another version"}')
        environment = {marks.FORWARDS: identity.mark}
        with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], env=environment) as one:
            yield one
            one.kill()

    def test_disconnect_ends_what_is_here(
        self, forward: subprocess.Popen[bytes], settings: Settings, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert cli.main(["status"]) == 2
        assert "rayside disconnect --name rayside removes" in capsys.readouterr().err
        assert cli.main(["disconnect"]) == 0
        forward.wait(PATIENCE)
        assert not (settings.state_folder / "rayside").exists()
        assert "a relay on the cluster's head" in capsys.readouterr().out


def test_a_namespace_that_is_named_wins_over_the_contexts(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    def of(kind: object, shell: Shell, context: str, namespace: str = "") -> KubectlNamespace:
        return KubectlNamespace(shell, Path("/k"), context, namespace or "of-the-context")

    monkeypatch.setattr(KubectlNamespace, "of", classmethod(of))
    monkeypatch.setattr(heads, "find", lambda kube, name: f"one-of-{kube.namespace}")
    for named, found in {"": "of-the-context", "default": "default"}.items():
        asked = Settings(**{**vars(settings), "context": "office", "namespace": named})
        identity = connecting._identity(asked, Shell())
        assert (identity.namespace, identity.their_cluster) == (found, f"one-of-{found}")


@pytest.mark.parametrize(
    ("target", "more", "cluster"),
    [
        ("local", {}, "local"),
        ("kind", {"context": "kind-rayside"}, "rayside"),
        ("cluster", {"context": "office", "their_kubeconfig": "/k"}, "rayside"),
        ("cluster", {"address": "http://head:8265"}, "http://head:8265"),
    ],
)
def test_a_job_s_cluster_is_named_as_the_clone_names_it(
    settings: Settings, target: str, more: dict[str, str], cluster: str
) -> None:
    assert RecordedAccess(recorded(settings, target, **more)).cluster == cluster


def test_ports_that_a_connection_does_not_open_collide_with_none(settings: Settings) -> None:
    named = {"demo": {}, "two": {}, "rayside": {"dashboard_port": 38265, "relay_port": 35678}}
    for name, ports in named.items():
        asked = Settings(**{**vars(settings), "name": name, "address": "http://head:8265", **ports})
        identity = connecting._identity(asked, Shell())
        assert (identity.ports.ray_client, identity.ports.workspace) == (0, 0)
        StateFolder(identity).apply(print)
        assert connecting._identity(asked, Shell()) == identity


@pytest.mark.parametrize("verb", [["status"], ["submit", "--entrypoint", "python main.py"], ["connect"]])
def test_a_cluster_that_the_project_does_not_mean_is_not_used(
    settings: Settings, tmp_path: Path, verb: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    recorded(settings, address="http://127.0.0.1:1")
    (tmp_path / "pyproject.toml").write_text('[tool.rayside]\naddress = "http://127.0.0.1:2"\n')
    assert cli.main(verb) == 2
    shown = capsys.readouterr().err
    assert "address is http://127.0.0.1:2, and the cluster rayside (http://127.0.0.1:1) was made" in shown
    assert "--name" in shown


def test_an_editors_submit_goes_to_its_cluster_whatever_the_folder_s_project_names(
    settings: Settings, tmp_path: Path
) -> None:
    (tmp_path / "pyproject.toml").write_text('[tool.rayside]\nname = "other"\n')
    identity = recorded(settings, address="http://127.0.0.1:1")
    environment = connecting._cluster_file(settings, identity).document()["environment"]
    assert read({}, {}).name == "other"
    assert read({}, environment).name == identity.name == "rayside"
