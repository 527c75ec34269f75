"""Tests where the debugger's settings are read: pyproject.toml, below it the defaults, above it the rest."""

from __future__ import annotations

import os
from dataclasses import fields
from pathlib import Path

import pytest

from bootstrap.settings import Settings as Bootstrapper
from rayside import settings_sources
from rayside.errors import InvalidSetting, UnknownSetting
from rayside.settings import NO_TOKEN, Settings
from rayside.settings_sources import project, read, require_known, with_project

STRANGER = 12345
as_root = pytest.mark.skipif(os.getuid() != 0, reason="gives files to another user, which only root may")
OURS = {spec.name for spec in fields(Settings)}
BOOTSTRAPPERS = [spec.name for spec in fields(Bootstrapper) if spec.name not in OURS]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Provides a folder in a project; whatever is above that is not looked at."""
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "mine"\n')
    below = tmp_path / "package" / "tests"
    below.mkdir(parents=True)
    return below


def write(folder: Path, *lines: str) -> Path:
    """Writes the project's table of settings; returns its file."""
    file = folder / "pyproject.toml"
    file.write_text("\n".join(["[tool.other]", 'address = "http://elsewhere:1"', "[tool.rayside]", *lines]))
    return file


def test_a_project_without_settings_leaves_the_defaults(folder: Path) -> None:
    assert project(folder) == {}
    assert read({}, {}, folder) == Settings()


def test_settings_of_the_folder_and_of_one_above_it_are_read(folder: Path, tmp_path: Path) -> None:
    write(tmp_path, 'address = "http://head:8265"', "relay_port = 5700", "mask_by_value = true")
    settings = read({}, {}, folder)
    assert (settings.address, settings.relay_port) == ("http://head:8265", 5700)
    assert settings.mask_by_value is True
    # The nearest file alone counts.
    write(folder, 'user = "anna"')
    settings = read({}, {}, folder)
    assert (settings.address, settings.user) == ("", "anna")


def test_the_current_folder_is_the_one_that_is_meant(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(folder, 'user = "anna"')
    monkeypatch.chdir(folder)
    assert read({}, {}).user == "anna"
    assert with_project({}, {}) == {"user": "anna"}


def test_the_environment_is_above_the_project_and_options_are_above_both(folder: Path) -> None:
    write(folder, 'address = "http://project:8265"', 'user = "project"', 'name = "project"')
    environment = {
        **{"INVOKE_RAYSIDE_ADDRESS": "http://environment:8265", "INVOKE_RAYSIDE_USER": "environment"},
        **{"HOME": "/", "INVOKE_TASKS_DEDUPE": "0"},
    }
    settings = read(
        {"address": "http://option:8265", "user": None, "relay_port": "5700"}, environment, folder
    )
    assert settings.address == "http://option:8265"
    assert (settings.user, settings.name, settings.relay_port) == ("environment", "project", 5700)


def test_with_the_project_below_them_values_stay_that_the_environment_has(folder: Path) -> None:
    write(folder, 'address = "http://project:8265"', 'user = "project"')
    given = {"user": "environment", "name": "given", "ray_cpus": 4}
    assert with_project(given, {"INVOKE_RAYSIDE_USER": "environment"}, folder) == {
        **given,
        "address": "http://project:8265",
        "token_file": NO_TOKEN,
    }
    assert with_project(given, {}, folder, ["address", "user"]) == given
    # What is not of the environment is of a file that is for all projects.
    assert with_project({"user": "file"}, {}, folder)["user"] == "project"


# --- a project that somebody else has written, and this user has cloned -----------------------


@pytest.mark.parametrize("lead", ['address = "http://theirs:8265"', 'ssh = "theirs"', 'context = "prod"'])
def test_a_ray_that_only_a_project_names_gets_a_token_only_by_an_option(folder: Path, lead: str) -> None:
    write(folder, lead)
    environment = {"INVOKE_RAYSIDE_TOKEN_FILE": "of-another-ray"}
    for values in (read({}, environment, folder), read({"token_file": None}, {}, folder)):
        assert values.token_file == NO_TOKEN
    assert with_project({"token_file": "of-another-ray"}, environment, folder)["token_file"] == NO_TOKEN
    assert read({"token_file": "named"}, {}, folder).token_file == "named"
    # What this user names gets the token as ever.
    key, named = lead.partition(" ")[0], {"address": "http://mine:8265"}
    assert read({key: named.get(key, "mine")}, {}, folder).token_file == ""


@pytest.mark.parametrize("key", [*BOOTSTRAPPERS, "token_file", "state_folder", "cache_folder"])
def test_a_project_sets_no_file_of_this_machine_and_no_source_of_programs(folder: Path, key: str) -> None:
    write(folder, f'{key} = "x"')
    for settings in (lambda: read({}, {}, folder), lambda: with_project({}, {}, folder)):
        with pytest.raises(UnknownSetting, match=f"unknown setting '{key}' in"):
            settings()


# --- what is refused ---------------------------------------------------------------------


@as_root
def test_another_users_settings_are_refused_and_roots_are_not(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = write(folder, 'address = "http://theirs:8265"')
    os.chown(file, STRANGER, -1)
    for settings in (lambda: read({}, {}, folder), lambda: with_project({}, {}, folder)):
        with pytest.raises(InvalidSetting, match="belongs to another user") as raised:
            settings()
        assert str(file) in raised.value.message
        assert raised.value.hint == "work in another folder"
        assert "theirs" not in raised.value.message
    # Their project is nothing to refuse where it says nothing of us.
    file.write_text('[tool.other]\naddress = "http://theirs:8265"\n')
    assert read({}, {}, folder) == Settings()
    # Nor does a broken one keep anybody from work.
    for content in (b"[tool.rayside\n", b"a = " + b"[" * 100_000):
        file.write_bytes(content)
        assert read({}, {}, folder) == Settings()
    write(folder, 'user = "root"')
    os.chown(file, 0, -1)
    monkeypatch.setattr(os, "getuid", lambda: STRANGER)
    assert read({}, {}, folder).user == "root"


def test_a_key_that_is_nearly_one_of_ours_is_refused_with_the_one_that_is_meant(folder: Path) -> None:
    write(folder, 'adress = "http://head:8265"')
    with pytest.raises(UnknownSetting, match=r"'adress' in \[tool.rayside\] of pyproject.toml") as raised:
        read({}, {}, folder)
    assert raised.value.hint == "did you mean address?"
    write(folder)
    with pytest.raises(UnknownSetting, match="'relay_prot' from INVOKE_RAYSIDE_RELAY_PROT in the") as raised:
        read({}, {"INVOKE_RAYSIDE_RELAY_PROT": "5700"}, folder)
    assert raised.value.hint == "did you mean relay_port?"


@pytest.mark.parametrize("key", BOOTSTRAPPERS)
def test_a_key_of_the_bootstrapper_is_none_of_ours_misspelt(folder: Path, key: str) -> None:
    assert read({}, {f"INVOKE_RAYSIDE_{key.upper()}": "x"}, folder) == Settings()


def test_a_key_that_nobody_has_is_named_with_those_that_there_are() -> None:
    with pytest.raises(UnknownSetting, match="'wholly-other' here") as raised:
        require_known("wholly-other", ["address", "ssh"], "here")
    assert raised.value.hint == "the settings are address, ssh"


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(b"[tool.rayside\n", id="no TOML"),
        pytest.param(b"[tool.rayside]\nuser = '\xff'\n", id="no UTF-8"),
        pytest.param(b"tool = 1\n", id="no tables"),
        pytest.param(b"a = " + b"[" * 100_000, id="too deep"),
        pytest.param(b"[tool]\nrayside = 1\n", id="no table"),
    ],
)
def test_a_broken_file_is_an_error_that_names_it(folder: Path, content: bytes) -> None:
    file = folder / "pyproject.toml"
    file.write_bytes(content)
    for settings in (lambda: read({}, {}, folder), lambda: with_project({}, {}, folder)):
        with pytest.raises(InvalidSetting) as raised:
            settings()
        assert str(file) in raised.value.message
        assert raised.value.hint == "correct that file"


def test_no_more_of_a_file_is_read_than_people_write(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = write(folder, 'user = "anna"')
    monkeypatch.setattr(settings_sources, "_LONGEST_PROJECT", file.stat().st_size - 1)
    with pytest.raises(InvalidSetting, match="can't be read"):
        read({}, {}, folder)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('relay_port = "http"', "relay_port is 'http', not a whole number"),
        ("relay_port = 5678.9", "relay_port is 5678.9, not a whole number"),
        ("relay_port = true", "relay_port is True, not a whole number"),
        ("relay_port = 80", "relay_port is 80"),
        ("relay_port = 8265", "dashboard_port and relay_port are the same"),
        ('address = ["http://head:8265"]', "not a single value"),
        ('mask_by_value = "perhaps"', "not true or false"),
        ('ssh = "a host"', "is no host for ssh"),
        ('ssh = "head"\ncontext = "prod"', "two ways"),
        ('name = "Big"', "can't be a name in Kubernetes"),
        ('namespace = "a; b"', "namespace is 'a; b', which can't be a name in Kubernetes"),
        ('ray_cluster = "-a"', "ray_cluster is '-a', which can't be a name in Kubernetes"),
        ('masked_values = "("', "is no regular expression"),
    ],
)
def test_a_value_that_cannot_be_is_an_error_of_its_key(folder: Path, line: str, said: str) -> None:
    write(folder, line)
    with pytest.raises(InvalidSetting, match=said) as raised:
        read({}, {}, folder)
    assert raised.value.hint


def test_an_address_may_end_as_a_browser_shows_it(tmp_path: Path) -> None:
    given = {"address": "http://head.test:8265/"}
    assert settings_sources.read(given, {}, tmp_path).address == "http://head.test:8265"
