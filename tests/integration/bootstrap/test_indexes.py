"""Tests what this machine's own apt, pip and npm say about configurations that a test made."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from bootstrap.sources.indexes import debian_mirror, package_indexes
from rayside.system.shell import Shell

pytestmark = pytest.mark.gate


def test_pip_and_npm_are_asked_for_what_their_files_say(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in list(os.environ):
        if name.lower().startswith(("pip_", "npm_config_")):
            monkeypatch.delenv(name)
    (tmp_path / "pip.conf").write_text("[global]\nindex-url = https://pip.test/simple\n")
    (tmp_path / ".npmrc").write_text("registry=https://npm.test/\n")
    monkeypatch.setenv("PIP_CONFIG_FILE", str(tmp_path / "pip.conf"))
    monkeypatch.setenv("HOME", str(tmp_path))
    indexes = package_indexes(Shell(), os.environ)
    npm = {"NPM_CONFIG_REGISTRY": "https://npm.test/"} if shutil.which("npm") else {}
    assert indexes == {"PIP_INDEX_URL": "https://pip.test/simple", **npm}
    monkeypatch.setenv("PIP_INDEX_URL", "https://environment.test/simple")
    monkeypatch.setenv("NPM_CONFIG_REGISTRY", "https://environment.test/npm/")
    assert package_indexes(Shell(), os.environ) == {
        "PIP_INDEX_URL": "https://environment.test/simple",
        "NPM_CONFIG_REGISTRY": "https://environment.test/npm/",
    }


@pytest.mark.skipif(not shutil.which("apt-get"), reason="apt is Debian's, and it is what the test is of")
@pytest.mark.parametrize(
    ("file", "content"),
    [
        (
            "one.sources",
            "Types: deb\nURIs: http://127.0.0.1:9/off\nSuites: bookworm\nComponents: main\nEnabled: no\n\n"
            "Types: deb deb-src\nURIs: http://127.0.0.1:9/debian\nSuites: bookworm bookworm-updates\n"
            "Components: main contrib\nTrusted: yes\n",
        ),
        (
            "one.list",
            "deb-src http://127.0.0.1:9/off bookworm main\ndeb http://127.0.0.1:9/debian bookworm main\n",
        ),
    ],
)
def test_apt_is_asked_where_it_has_debian_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: str, content: str
) -> None:
    parts, config = tmp_path / "parts", tmp_path / "apt.conf"
    parts.mkdir()
    (parts / file).write_text(content)
    folders = {"Etc::sourcelist": "/dev/null", "Etc::sourceparts": parts, "State::lists": tmp_path / "lists"}
    config.write_text("".join(f'Dir::{name} "{folder}";\n' for name, folder in folders.items()))
    (tmp_path / "lists" / "partial").mkdir(parents=True)
    monkeypatch.setenv("APT_CONFIG", str(config))
    assert debian_mirror(Shell(), "bookworm") == "http://127.0.0.1:9/debian"
