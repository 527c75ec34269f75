"""Tests from where attendees clone Rayside at home: it is in a command that they paste."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import cast

import pytest

from bootstrap.given_settings import parse
from bootstrap.network_addresses import is_clone, public_clone
from bootstrap.settings import Settings
from bootstrap.targets.on_kubernetes import OnKubernetes
from bootstrap.workshop import event
from bootstrap.workshop.event import Workshop
from rayside.errors import InvalidSetting
from rayside.system.shell import Shell


@pytest.mark.parametrize(
    ("remote", "address"),
    [
        ("https://github.com/team/rayside.git", "https://github.com/team/rayside.git"),
        ("https://git.example.com:3000/a/b/c", "https://git.example.com:3000/a/b/c"),
        ("git@github.com:team/rayside.git", "https://github.com/team/rayside.git"),
        ("github.com:team/rayside.git", "https://github.com/team/rayside.git"),
        ("git@git.example.com:/team/rayside", "https://git.example.com/team/rayside"),
        ("ssh://git@git.example.com:2222/team/rayside", "https://git.example.com/team/rayside"),
        # A login is nobody else's.
        ("https://ada:secret@github.com/team/rayside", "https://github.com/team/rayside"),
        ("https://secret@github.com/team/rayside", "https://github.com/team/rayside"),
        ("https://ada:se@cret@github.com/team/rayside", "https://github.com/team/rayside"),
        ("https://github.com/team/rayside?token=secret#secret", "https://github.com/team/rayside"),
    ],
)
def test_a_clones_origin_is_named_as_others_reach_it(remote: str, address: str) -> None:
    assert public_clone(remote) == address


@pytest.mark.parametrize(
    "remote",
    [
        *("", "/home/ada/rayside", "../rayside", "file:///home/ada/rayside", "C:/rayside", "C:\\rayside"),
        # Whoever is in between could answer.
        "http://git.example.com/team/rayside",
        *("git://github.com/team/rayside", "ext::sh -c id", "https://github.com", "https://github.com/"),
        # From elsewhere these lead nowhere.
        *("https://localhost/a", "https://10.0.0.1/a", "https://[::1]/a", "git@work:a"),
        *("https://github.com:99999/a", "https://[x/a"),
        *("https://x.org/$(id)", "git@x.org:a/`id`", "https://x.org/a;id", "https://x.org/a b"),
        *("https://x.org/a'b", "https://x.org/a&b", "https://x.org/~ada/b", "git@x.org:a>b"),
    ],
)
def test_what_nobody_else_can_clone_is_not_named(remote: str) -> None:
    assert public_clone(remote) == ""


ADDRESSES = [
    "https://github.com/team/rayside.git",
    "https://10.0.0.1:3000/rayside",
    "https://git/a/b_c/d-e.git",
]


@pytest.mark.parametrize("address", ADDRESSES)
def test_a_teacher_names_the_address(address: str) -> None:
    assert parse({"workshop_home": address}, {}).workshop_home == address


@pytest.mark.parametrize(
    "address",
    [
        *(
            *("github.com/team/rayside", "git@github.com:team/rayside", "/home/ada/rayside"),
            "https://github.com",
        ),
        *(
            *("https://ada:secret@github.com/a", "https://github.com/a;id", "https://github.com/$(id)"),
            "-https://a/b",
        ),
        *(
            *("https://github.com/a b", "https://github.com/a\n", "https://github.com/a\nid"),
            "https://github.com/`id`",
        ),
        *("https://github.com/a|id", "https://github.com/a&&id", "https://git.example/" + "a/" * 200),
    ],
)
def test_an_address_that_could_not_be_pasted_is_refused_and_not_shown(address: str) -> None:
    with pytest.raises(InvalidSetting, match="workshop_home is no address") as failure:
        parse({"workshop_home": address}, {})
    # A login may be in it.
    assert address not in failure.value.message
    assert not is_clone(address)


def test_it_is_the_setting_or_this_clones_origin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def home(folder: Path, setting: str = "") -> str:
        monkeypatch.setattr(event, "ROOT", folder)
        return Workshop(cast(OnKubernetes, None), Settings(workshop_home=setting), Shell()).home

    clone, within = tmp_path / "a clone", tmp_path / "a clone" / "rayside"
    within.mkdir(parents=True)
    git = ["git", "-C", str(clone)]
    subprocess.run([*git, "init", "--quiet"], check=True)
    assert home(clone) == ""
    subprocess.run([*git, "remote", "add", "origin", "git@github.com:team/rayside.git"], check=True)
    assert home(clone) == "https://github.com/team/rayside.git"
    assert home(clone, ADDRESSES[1]) == ADDRESSES[1]
    # An unpacked archive in somebody's repository is no clone of it.
    assert home(within) == ""
    monkeypatch.setenv("PATH", str(tmp_path))
    assert home(clone) == ""
