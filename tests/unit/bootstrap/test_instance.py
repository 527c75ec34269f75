"""Tests a cluster's identity, its record, and the ports that it is given."""

from __future__ import annotations

import io
import json
import os
import socket
import sys
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bootstrap import instance
from bootstrap.errors import OtherTarget, UnknownTarget
from bootstrap.given_settings import parse
from bootstrap.instance import configured
from bootstrap.settings import Settings
from bootstrap.targets import choice, preparation
from bootstrap.verbs import up_and_down
from rayside.connection.instance import names
from rayside.console import Console
from rayside.errors import InvalidSetting, NotRunning, PortTaken
from rayside.own_folder import make_own
from rayside.steps.state_folder import StateFolder
from rayside.system.lock import alone
from rayside.system.shell import Shell


@pytest.fixture(autouse=True)
def without_an_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is chosen here depends on no Docker engine of this machine."""
    monkeypatch.setenv("DOCKER_HOST", "tcp://127.0.0.1:9")


def recorded(state: Path, name: str, target: str = "local", **settings: int | str) -> instance.Instance:
    """Records a cluster of that name, which was made and is down."""
    parsed = configured(Settings(state_folder=state, name=name, **settings), target)  # type: ignore[arg-type]
    identity = replace(parsed, source="packages")
    make_own(identity.folder)
    identity.record.write_text(identity.document())
    return identity


@pytest.mark.parametrize("name", ["", "Rayside", "a_b", "-a", "a-", "1a", "a.b", "a/b", "..", "a" * 41])
def test_a_name_that_kubernetes_could_not_have_is_refused(name: str) -> None:
    with pytest.raises(InvalidSetting, match="can't be a name in Kubernetes") as refused:
        parse({"name": name}, {})
    assert "at most 40 of a-z, 0-9 and -" in refused.value.hint


@pytest.mark.parametrize("name", ["a", "rayside", "place-07", "a" * 40])
def test_other_names_are_taken(name: str) -> None:
    assert parse({"name": name}, {}).name == name


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"ports": {"dashboard": "x"}}', '{"ports": 1}'])
def test_a_damaged_record_says_how_to_remove_it_and_down_can(text: str, tmp_path: Path) -> None:
    identity = recorded(tmp_path, "demo")
    identity.record.write_text(text)
    with pytest.raises(InvalidSetting) as refused:
        instance.read(tmp_path / "demo")
    assert refused.value.hint.startswith("./invokew down --name demo")
    settings = Settings(state_folder=tmp_path, name="demo", target="local")
    (target,) = preparation.removable(settings, Shell())
    StateFolder(target.instance).undo(lambda _: None)
    assert not identity.location.exists()


def test_what_another_version_recorded_besides_is_no_damage(tmp_path: Path) -> None:
    identity = recorded(tmp_path, "demo")
    identity.record.write_text(json.dumps({**json.loads(identity.record.read_text()), "later": "x"}))
    assert instance.read(tmp_path / "demo") == identity


@pytest.mark.parametrize("length", [20, 33, 34, 200])
def test_rays_own_files_lie_where_their_sockets_have_room(length: int) -> None:
    identity = configured(Settings(), "local")
    identity = replace(identity, location=Path("/" + "x" * (length - 1)))
    longest = identity.ray_folder / "ray/session_2026-01-01_00-00-00_000000_4194304/sockets/plasma_store.1"
    assert len(str(longest)) <= 103
    assert (identity.ray_folder == identity.folder) is (length <= 33)
    if length > 33:
        assert identity.ray_folder.parent == Path("/tmp")
        assert identity.ray_folder.name.startswith(f"rayside-{os.getuid()}-")
        assert identity.ray_folder != replace(identity, location=Path(f"{identity.location}y")).ray_folder


def test_without_a_short_temporary_folder_a_long_one_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    long = Path("/var/folders/zz/zyxvpxvq6csfxvn_n0000000000000/T")
    monkeypatch.setattr(instance, "short_folder", lambda: long)
    identity = configured(Settings(state_folder=Path("/home/somebody/.local/state/rayside-host")), "local")
    with pytest.raises(InvalidSetting, match="too long for Ray's sockets"):
        _ = identity.ray_folder
    assert configured(Settings(state_folder=Path("/short")), "local").ray_folder == Path("/short/rayside")


# --- several -----------------------------------------------------------------------------


def test_a_second_cluster_gets_ports_that_no_other_has_and_keeps_them(tmp_path: Path) -> None:
    first = recorded(tmp_path, "rayside")
    settings = Settings(state_folder=tmp_path, name="demo", target="local", relay_port=25678)
    second = choice.choose(settings, Shell()).instance
    assert second.ports.relay == 25678
    assert not set(vars(second.ports).values()) & set(vars(first.ports).values())
    make_own(second.folder)
    second.record.write_text(second.document())
    # The first goes, and the second stays where it is, but for a port that is named.
    StateFolder(first).undo(lambda _: None)
    assert choice.choose(replace(settings, relay_port=5678), Shell()).instance == second
    named = choice.choose(replace(settings, dashboard_port=29000), Shell()).instance
    assert named.ports == replace(second.ports, dashboard=29000)


def test_a_second_cluster_gets_ports_that_nobody_listens_on_and_none_twice(tmp_path: Path) -> None:
    settings = Settings(state_folder=tmp_path, name="demo", target="local")
    free = choice.choose(settings, Shell()).instance.ports
    with socket.create_server(("127.0.0.1", free.dashboard)):
        assert choice.choose(settings, Shell()).instance.ports.dashboard > free.dashboard
    # Its dashboard is where its relay would have been.
    ports = choice.choose(replace(settings, dashboard_port=free.relay), Shell()).instance.ports
    assert ports.dashboard == free.relay < ports.relay


def test_a_cluster_has_one_lock_and_one_mark_which_no_other_has(tmp_path: Path) -> None:
    settings = Settings(state_folder=tmp_path)
    identity = configured(settings, "local")
    assert identity.lock(tmp_path) == configured(settings, "kind").lock(tmp_path)
    for other in (replace(settings, name="demo"), replace(settings, state_folder=tmp_path / "other")):
        another = configured(other, "local")
        assert another.lock(tmp_path) != identity.lock(tmp_path)
        assert another.mark != identity.mark


def test_a_port_that_was_named_for_one_thing_is_no_other_things(tmp_path: Path) -> None:
    for name in ("demo", "rayside"):
        ports = {"workspace_port": 25678, "relay_port": 25679}
        settings = parse({"state_folder": tmp_path, "name": name, **ports})
        assert choice.choose(replace(settings, target="local"), Shell()).instance.ports.workspace == 25678
    usual = configured(Settings(), "").ports.relay
    settings = parse({"state_folder": tmp_path, "name": "demo", "workspace_port": usual, "target": "local"})
    chosen = choice.choose(settings, Shell()).instance.ports
    assert chosen.workspace == usual != chosen.relay


def test_what_is_known_of_a_cluster_goes_after_its_folders_elsewhere(tmp_path: Path) -> None:
    identity = recorded(tmp_path / "state", "demo")
    elsewhere = tmp_path / "elsewhere"
    step = StateFolder(identity, (elsewhere,))
    step.apply(lambda _: None)
    removed: list[str] = []
    step.undo(removed.append)
    assert removed == [f"removing {elsewhere}", f"removing {identity.folder}"]
    assert not elsewhere.exists()
    assert not identity.folder.exists()


def test_the_first_cluster_gets_the_usual_ports_and_keeps_those_that_were_named(tmp_path: Path) -> None:
    settings = Settings(state_folder=tmp_path, target="local")
    recorded(tmp_path, "demo")
    assert choice.choose(settings, Shell()).instance.ports == configured(settings, "local").ports
    recorded(tmp_path, "rayside", dashboard_port=9265)
    assert choice.choose(settings, Shell()).instance.ports.dashboard == 9265
    assert choice.choose(replace(settings, dashboard_port=9266), Shell()).instance.ports.dashboard == 9266


def test_a_namespace_that_is_named_later_is_refused(tmp_path: Path) -> None:
    recorded(tmp_path, "demo", "kind")
    with pytest.raises(
        InvalidSetting, match="namespace is ours, and the cluster demo was made with default"
    ) as refused:
        choice.choose(Settings(state_folder=tmp_path, name="demo", namespace="ours"), Shell())
    assert "./invokew down --name demo" in refused.value.hint
    recorded(tmp_path, "demo", "kind", namespace="ours")
    for namespace in ("ours", Settings().namespace):
        settings = Settings(state_folder=tmp_path, name="demo", namespace=namespace)
        assert choice.choose(settings, Shell()).instance.namespace == "ours"


def test_two_clusters_that_want_one_port_are_told_of_each_other(tmp_path: Path) -> None:
    demo = recorded(tmp_path, "demo", dashboard_port=9265)
    rival = configured(Settings(state_folder=tmp_path, name="rival", dashboard_port=9265), "local")
    with pytest.raises(PortTaken, match="port 9265 is that of the cluster demo") as refused:
        StateFolder(rival).apply(lambda _: None)
    assert "INVOKE_RAYSIDE_DASHBOARD_PORT=9266" in refused.value.hint
    assert "./invokew down --name demo" in refused.value.hint
    assert not rival.location.exists()
    StateFolder(demo).apply(lambda _: None)


def test_a_cluster_keeps_its_target(tmp_path: Path) -> None:
    recorded(tmp_path, "demo", "local")
    settings = Settings(state_folder=tmp_path, name="demo")
    assert choice.choose(settings, Shell()).instance.target == "local"
    with pytest.raises(OtherTarget, match="demo is on the target local, not on kind") as refused:
        choice.choose(replace(settings, target="kind"), Shell())
    assert "./invokew down --name demo" in refused.value.hint
    # It goes from where it is, and the machine can be looked at for another target all the same.
    (removable,) = preparation.removable(replace(settings, target="kind"), Shell())
    assert removable.instance.target == "local"
    assert preparation.for_machine(replace(settings, target="kind"), Shell()).instance.target == "kind"


def test_a_damaged_cluster_is_in_nobodys_way(tmp_path: Path) -> None:
    recorded(tmp_path, "damaged").record.write_text("{")
    recorded(tmp_path, "rayside").location.chmod(0o755)
    kept = recorded(tmp_path, "demo")
    (tmp_path / "no-cluster").mkdir()
    assert names(tmp_path) == ["damaged", "demo", "rayside"]
    assert list(instance.all_recorded(tmp_path)) == [kept]
    settings = Settings(state_folder=tmp_path, name="another", target="local")
    StateFolder(choice.choose(settings, Shell()).instance).apply(lambda _: None)


def test_a_target_of_a_later_version_is_said_and_nothing_of_it_is_removed(tmp_path: Path) -> None:
    identity = recorded(tmp_path, "demo")
    identity.record.write_text(replace(identity, target="vm").document())
    settings = Settings(state_folder=tmp_path, name="demo")
    for look in (choice.choose, preparation.removable):
        with pytest.raises(UnknownTarget, match="demo is on the target vm, which this version"):
            look(settings, Shell())
    assert identity.record.exists()
    assert list(instance.all_recorded(tmp_path)) == []


def test_where_there_is_no_cluster_that_is_said(tmp_path: Path) -> None:
    with pytest.raises(NotRunning, match="no Ray cluster is up"):
        choice.existing(Settings(state_folder=tmp_path, name="nobody", target="local"), Shell())


def test_the_undo_of_one_leaves_the_others_and_the_last_takes_the_state_folder_along(tmp_path: Path) -> None:
    state = tmp_path / "state"
    first, second = recorded(state, "rayside"), recorded(state, "demo")
    StateFolder(first).undo(lambda _: None)
    assert list(state.iterdir()) == [second.location]
    StateFolder(second).undo(lambda _: None)
    assert not state.exists()


def test_the_record_goes_last_as_an_interrupted_removal_is_known_by_it(tmp_path: Path) -> None:
    identity = recorded(tmp_path / "state", "demo")
    for number in range(20):
        (identity.location / f"file-{number}").touch()
    removed: list[Path] = []

    def watch(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "os.remove" and watching:
            removed.append(Path(arguments[0]))

    watching = True
    sys.addaudithook(watch)
    try:
        StateFolder(identity).undo(lambda _: None)
    finally:
        # A hook stays for good.
        watching = False
    assert len(removed) == 21
    assert removed[-1] == identity.location / "instance.json"


# --- two commands at once ----------------------------------------------------------------


def after_another(
    settings: Settings, verb: Callable[[Console], None], meanwhile: Callable[[], object]
) -> tuple[Future[None], str, str]:
    """Runs a verb while another command holds the cluster, which does `meanwhile` before it ends.

    Returns the verb as it ended, and what it wrote to standard output and to standard error.
    """
    out, err = io.StringIO(), io.StringIO()
    lock = configured(settings, "").lock(settings.cache_folder)
    # The lock is let go before the end of the verb is waited for.
    with ThreadPoolExecutor() as pool, alone(lock, lambda: None):
        running = pool.submit(verb, Console(cluster=settings.name, out=out, err=err))
        while "Another up or down is at work: waiting for its end" not in err.getvalue():
            assert not running.done(), running.result()
            time.sleep(0.01)
        meanwhile()
    return running, out.getvalue(), err.getvalue()


def test_up_chooses_target_and_ports_when_no_other_command_changes_the_cluster(tmp_path: Path) -> None:
    # No machine has so much disk: nothing is made, whichever target is chosen.
    settings = Settings(
        name="demo",
        state_folder=tmp_path / "state",
        cache_folder=tmp_path / "cache",
        workspace=False,
        min_memory_gib=0,
        min_disk_gib=1e9,
        kind_min_disk_gib=1e9,
    )
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        running, _, err = after_another(
            settings,
            lambda console: up_and_down.up(settings, console, example=False),
            lambda: recorded(settings.state_folder, "demo", dashboard_port=port),
        )
        assert "Target local (auto: it was made so)" in err
        with pytest.raises(PortTaken, match=f"port {port} is taken"):
            running.result()


def test_down_looks_for_the_cluster_when_no_other_command_changes_it(tmp_path: Path) -> None:
    state, cache = tmp_path / "state", tmp_path / "cache"
    settings = Settings(name="demo", target="local", state_folder=state, cache_folder=cache)

    def made_by_a_later_version() -> None:
        identity = recorded(settings.state_folder, "demo")
        identity.record.write_text(replace(identity, target="vm").document())

    running, out, _ = after_another(
        settings, lambda console: up_and_down.down(settings, console, purge=False), made_by_a_later_version
    )
    # Without its record it would have been taken for one that this version knows, and removed as such.
    with pytest.raises(UnknownTarget, match="demo is on the target vm"):
        running.result()
    assert out == ""
    assert (settings.state_folder / "demo" / "instance.json").exists()
