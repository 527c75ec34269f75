"""Tests where builds get packages from, read from what npm and apt print of their configuration."""

from __future__ import annotations

import pytest

from bootstrap.sources.indexes import apt_mirror, npm_registry


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
