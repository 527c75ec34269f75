"""Tests where builds get packages from, read from what pip, npm and apt print of their configuration."""

from __future__ import annotations

import os

import pytest

from bootstrap.sources.indexes import apt_mirror, npm_registry
from bootstrap.venv import for_pip


def test_pip_is_told_what_leads_to_packages_the_environment_winning_and_nothing_else() -> None:
    listed = (
        "For variant 'user', will try loading '/home/a=b/pip.conf'\n"
        ":env:.index-url='https://environment.test/simple'\n"
        "global.cert='/etc/ssl/x.crt'\n"
        "global.extra-index-url='https://one.test/simple\\nhttps://two.test/simple'\n"
        "global.index-url='https://global.test/simple'\n"
        "global.require-virtualenv='true'\n"
        "global.trusted-host='global.test'\n"
        "install.trusted-host='install.test'\n"
        "install.user='yes'\n"
    )
    environment = {"PIP_INDEX_URL": "https://environment.test/simple", "PIP_TARGET": "/tmp", "PATH": "/bin"}
    assert for_pip(environment, listed) == {
        "PATH": "/bin",
        "PIP_CERT": "/etc/ssl/x.crt",
        "PIP_CONFIG_FILE": os.devnull,
        "PIP_EXTRA_INDEX_URL": "https://one.test/simple https://two.test/simple",
        "PIP_INDEX_URL": "https://environment.test/simple",
        "PIP_TRUSTED_HOST": "install.test",
    }
    # Its files are still to be read.
    assert for_pip({"PIP_CONFIG_FILE": "/a", "PIP_USER": "1"}) == {"PIP_CONFIG_FILE": "/a"}


@pytest.mark.parametrize(("links", "is_off"), [({}, False), ({"PIP_FIND_LINKS": "/wheels"}, True)])
def test_no_index_counts_where_something_stands_in_its_place(links: dict[str, str], is_off: bool) -> None:
    assert ("PIP_NO_INDEX" in for_pip({"PIP_NO_INDEX": "1", **links}, "global.quiet='1'")) == is_off


def test_what_npm_is_configured_for() -> None:
    listed = (
        '; "user" config from /home/a/.npmrc\n\n'
        "audit = false\n"
        '; registry = "https://user.test/" ; overridden by env\n\n'
        '; "env" config from environment\n\n'
        'registry = "https://environment.test/"\n\n'
        "; npm version = 11.19.1\n"
    )
    assert npm_registry(listed) == {"NPM_CONFIG_REGISTRY": "https://environment.test/"}
    assert npm_registry("audit = false\n; npm version = 11.19.1\n") == {}


@pytest.mark.parametrize(
    ("targets", "mirror"),
    [
        ("", ""),
        ("Packages|main|Debian|bookworm|https://mirror.test/debian/", "https://mirror.test/debian"),
        # Before the first `apt-get update`.
        ("Packages|main|$(LABEL)|bookworm|http://mirror.test/debian/", "http://mirror.test/debian"),
        # Of other releases, which the same mirror has too, but not of their updates.
        (
            "Packages|main|Debian|trixie-updates|http://updates.test/debian/\n"
            "Packages|main|Debian-Security|trixie-security|http://security.test/debian/\n"
            "Packages|main|Debian|trixie|http://mirror.test/debian/\n",
            "http://mirror.test/debian",
        ),
        (
            "Packages|main|Debian|trixie|http://trixie.test/debian/\n"
            "Packages|main|Debian|bookworm|http://bookworm.test/debian/\n",
            "http://bookworm.test/debian",
        ),
        ("Packages|main|Ubuntu|noble|http://ubuntu.test/ubuntu/", ""),
        ("Packages|contrib|Debian|bookworm|http://mirror.test/debian/", ""),
        ("Translations|main|Debian|bookworm|http://mirror.test/debian/", ""),
        ("Packages|main|Debian|bookworm|cdrom://[Debian]/", ""),
        ("Packages|main|Debian|bookworm|https://me:secret@mirror.test/debian/", ""),
    ],
)
def test_the_mirror_that_apt_has_debian_from(targets: str, mirror: str) -> None:
    assert apt_mirror(targets, "bookworm") == mirror
