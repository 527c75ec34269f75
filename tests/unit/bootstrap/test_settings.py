"""Tests settings: where a value comes from, and what is said about a wrong one."""

import os
import pwd
import sys
from pathlib import Path
from typing import Any

import pytest

from bootstrap.errors import UnknownSource, UnknownTarget
from bootstrap.given_settings import parse
from bootstrap.settings import Settings
from rayside.errors import InvalidSetting, UnknownSetting
from rayside.settings import as_environment


def test_unset_keys_keep_their_defaults() -> None:
    unset = dict.fromkeys(Settings.__dataclass_fields__)
    assert parse(unset, {}) == Settings()


NO_DASHBOARDS = ("head:8265", "ray://head:10001", "http://me:secret@head:8265", "http://head/x", "http://a b")
# A machine listens on all addresses at 0.0.0.0, and nobody's link leads there.
NO_ADDRESSES = ("", "localhost", "room.test", "192.0.2.300", "0.0.0.0", "::", "224.0.0.1", "192.0.2.10:8445")


def test_values_of_the_environment_are_parsed_from_strings() -> None:
    settings = parse({"dashboard_port": "9000", "min_memory_gib": "0.5", "cache_folder": "~/c"}, {})
    assert settings.dashboard_port == 9000
    assert settings.min_memory_gib == 0.5
    assert settings.cache_folder == Path.home() / "c"
    switches: tuple[object, ...] = ("false", False, "NO", "1")
    assert [parse({"workspace": each}, {}).workspace for each in switches] == [False, False, False, True]


def test_an_unknown_key_is_named_with_the_nearest_known_one_and_not_ignored_in_the_environment() -> None:
    with pytest.raises(UnknownSetting, match="'dashboard_prot' in the rayside section") as caught:
        parse({"dashboard_prot": 1}, {})
    assert caught.value.hint == "did you mean dashboard_port?"
    with pytest.raises(UnknownSetting, match="INVOKE_RAYSIDE_RAY_CPU "):
        parse({}, {"INVOKE_RAYSIDE_RAY_CPU": "4", "INVOKE_TASKS_DEDUPE": "0", "HOME": "/"})


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("dashboard_port", "http"),
        ("dashboard_port", True),
        ("dashboard_port", 80),
        ("ray_client_port", 65536),
        ("ray_client_port", 8265),
        ("workspace_port", 5678),
        ("ray_cpus", 0),
        ("ray_cpus", [2]),
        ("min_disk_gib", "-1"),
        ("ray_patience", "nan"),
        ("workspace", "perhaps"),
        ("workspace", ["false"]),
        ("masked_names", "iban pin"),
        ("masked_names", "!"),
        ("masked_names", ["iban"]),
        ("masked_values", "("),
        ("masked_values", "x*"),
        *((f"{whose}_address", value) for whose in ("workshop", "teacher") for value in NO_ADDRESSES),
        *(
            ("workshop_host", host)
            for host in (
                *("https://workshop.example.com", "workshop.example.com:443", "*.example.com", "10.0.0.1"),
                *("Workshop.example.com", "workshop.example.com.", "a..b", "a_b", "-a.b", f"{'a' * 64}.com"),
                *("workshop.example.com/x", "a b", "a\nb", ".".join(["a" * 63] * 4)),
            )
        ),
        ("workshop_ingress_class", "nginx"),
        ("workshop_tls_secret", "our-tls"),
    ],
)
def test_a_value_that_cannot_be_is_refused_by_name(key: str, value: object) -> None:
    with pytest.raises(InvalidSetting, match=key):
        parse({key: value}, {})


@pytest.mark.parametrize(
    ("given", "message"),
    [
        # A cluster that others made: its address, or the way to it.
        *(({"address": address}, "no address of a dashboard") for address in NO_DASHBOARDS),
        *(
            ({"ssh": host}, "no host for ssh")
            for host in ("-oProxyCommand=id", "head; id", "$(id)", "a" * 256, "head:22", "ssh://-F/x")
        ),
        ({"ssh": "head", "address": "http://127.0.0.1:99999"}, "no address of a dashboard"),
        ({"ssh": "head", "context": "prod"}, "two ways"),
        ({"context": "prod", "ray_cluster": "No Name"}, "can't be a name in Kubernetes"),
        ({"ssh": "head", "target": "kind"}, "ssh is for the target cluster"),
        ({"ssh": "head", "address": "http://other:8265"}, "what the head itself reaches"),
        (
            {"address": "http://head:8265", "target": "local"},
            "for the target cluster, and the target is local",
        ),
        # One that is made in a Kubernetes of others, or a workspace there.
        ({"create": True}, "there is no context"),
        ({"create": True, "context": "prod", "ray_cluster": "theirs"}, "with create one is made"),
        ({"create": True, "context": "prod", "target": "kind"}, "the target is kind"),
        *(
            ({"image_registry": registry}, "which is no registry")
            for registry in ("https://registry.test", "user@registry.test", "-registry")
        ),
        ({"workspace_pod": True}, "there is no context"),
        ({"workspace_pod": True, "ssh": "host"}, "there is no context"),
        ({"workspace_pod": True, "context": "prod", "create": True}, "beside its head"),
        # A bundle, or a mirror.
        ({"bundle": "a bundle", "context": "prod"}, "the target is cluster"),
        ({"bundle": "a bundle", "source": "packages"}, "source is packages"),
        ({"bundle": "a bundle", "target": "local"}, "the target is local"),
        ({"mirror": "https://registry.test"}, "which is no registry"),
        *(
            ({"registry_mirrors": named}, "names no registry and its mirror")
            for named in (
                *("docker.io", "docker.io=", "https://docker.io=r.test", "docker.io/library=r.test"),
                "a=b.test,a=c.test",
            )
        ),
        (
            {"source": "mirror", "target": "cluster", "address": "http://h:1"},
            "has what the target kind needs",
        ),
    ],
)
def test_what_does_not_go_together_is_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidSetting, match=message):
        parse(given, {})


@pytest.mark.parametrize("host", ["workshop.example.com", "workshop", "xn--bcher-kva.example", "3.a1"])
def test_a_host_of_a_workshop_may_have_a_class_and_a_certificate(host: str) -> None:
    more = {"workshop_ingress_class": "nginx.example", "workshop_tls_secret": "our-tls"}
    settings = parse({"workshop_host": host, **more}, {})
    assert settings.workshop_host == host
    for key in more:
        with pytest.raises(InvalidSetting, match=f"{key} is 'A/b'"):
            parse({"workshop_host": host, **more, key: "A/b"}, {})


def test_settings_reach_another_process_through_its_environment() -> None:
    settings = parse({"target": "local", "workspace": "false", "relay_port": 6000, "ray_cpus": 2}, {})
    environment = as_environment(settings)
    names = ("TARGET", "WORKSPACE", "RELAY_PORT")
    assert environment.keys() == {f"INVOKE_RAYSIDE_{name}" for name in names}
    values = {name.removeprefix("INVOKE_RAYSIDE_").lower(): value for name, value in environment.items()}
    assert parse(values, environment) == settings


def test_unknown_targets_and_sources_are_refused_with_the_known_ones() -> None:
    with pytest.raises(UnknownTarget, match="'moon'") as target:
        parse({"target": "moon"}, {})
    assert "auto, local" in target.value.hint
    with pytest.raises(UnknownSource, match="'tape'"):
        parse({"source": "tape"}, {})


# --- where a cluster's files lie ---------------------------------------------------------


@pytest.fixture
def home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    return tmp_path


def test_a_clusters_files_lie_below_ones_home_folder(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.node", lambda: "a/b")
    name = "rayside-a-b" if sys.platform == "linux" else "rayside"
    assert Settings().state_folder == home / ".local" / "state" / name
    monkeypatch.setenv("XDG_STATE_HOME", "not/absolute")
    assert Settings().state_folder == home / ".local" / "state" / name
    monkeypatch.setenv("XDG_STATE_HOME", "/elsewhere")
    assert Settings().state_folder == Path("/elsewhere") / name


def test_a_home_folder_of_somebody_else_is_not_used_as_under_a_sudo_that_keeps_it(
    home: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    own_home = tmp_path / "own"
    own_home.mkdir()
    if os.getuid() == 0:
        os.chown(home, 12345, 12345)
    else:
        monkeypatch.setenv("HOME", "/")
    user = pwd.struct_passwd(("me", "", os.getuid(), 0, "", str(own_home), ""))
    monkeypatch.setattr(pwd, "getpwuid", lambda uid: user)
    assert Settings().state_folder.parent == own_home / ".local" / "state"
    own_home.rmdir()
    assert Settings().state_folder == Path(f"/tmp/rayside-{os.getuid()}")
