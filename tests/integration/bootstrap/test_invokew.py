"""Tests the wrapper: it sets up once, from any folder, in a path with spaces, and explains a failure."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

from bootstrap import pip
from bootstrap.bundle.opened import this_python
from bootstrap.bundle.version import this_version
from rayside.system.shell import Shell
from tests.bundles import small
from tests.checkout import check_out

pytestmark = pytest.mark.gate

NO_INDEX = {"PIP_INDEX_URL": "http://127.0.0.1:9/simple", "PIP_RETRIES": "0", "PIP_NO_CACHE_DIR": "1"}


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Provides a checkout in a folder with a space in its name."""
    return check_out(tmp_path_factory.mktemp("a checkout"))


def run(checkout: Path, *arguments: str, cwd: Path, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(checkout / "invokew"), *arguments],
        cwd=cwd,
        env={**os.environ, **env},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def test_without_a_network_the_first_run_says_so_and_leaves_nothing_half(
    checkout: Path, tmp_path: Path
) -> None:
    no_network = {**NO_INDEX, "PIP_FIND_LINKS": ""}
    done = run(checkout, "up", cwd=tmp_path, **no_network)
    assert done.returncode == 3
    assert "error[no-network]" in done.stderr
    assert "pip config" in done.stderr
    done = run(checkout, "status", "--json", cwd=tmp_path, **no_network)
    assert json.loads(done.stdout)["error"]["id"] == "no-network"
    assert not (checkout / ".venv" / "rayside.txt").exists()


def test_with_a_bundle_the_first_run_needs_no_network(tmp_path: Path) -> None:
    checkout, wheels = check_out(tmp_path / "a new checkout"), tmp_path / "wheels"
    lock_file = checkout / "requirements" / "rayside.txt"
    pip.download(Shell(), lock_file, wheels, this_python())
    file = small(tmp_path, wheels.iterdir())
    done = run(checkout, "status", "--json", cwd=tmp_path, INVOKE_RAYSIDE_BUNDLE=str(file), **NO_INDEX)
    assert "target" in json.loads(done.stdout), done.stdout + done.stderr
    # This one has no uv.
    assert not (checkout / ".venv" / "bin" / "uv").exists()
    # Set up, it needs no bundle.
    assert run(checkout, "--version", cwd=tmp_path, **NO_INDEX).returncode == 0


def test_where_uv_does_not_run_pip_sets_up_and_does_it_from_then_on(tmp_path: Path) -> None:
    checkout, wheels = check_out(tmp_path / "a new checkout"), tmp_path / "wheels"
    pip.download(Shell(), checkout / "requirements" / "rayside.txt", wheels, this_python())
    uv = wheels / "uv-1-py3-none-any.whl"
    with zipfile.ZipFile(uv, "w") as archive:
        archive.writestr("uv-1.data/scripts/uv", "not a program of this system")
        archive.writestr("uv-1.dist-info/METADATA", "Metadata-Version: 2.1\nName: uv\nVersion: 1\n")
        archive.writestr("uv-1.dist-info/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        archive.writestr("uv-1.dist-info/RECORD", "".join(f"{name},,\n" for name in archive.namelist()))
    digest = hashlib.sha256(uv.read_bytes()).hexdigest()
    (checkout / "requirements" / "uv.txt").write_text(f"uv==1 --hash=sha256:{digest}\n")
    done = run(checkout, "--version", cwd=tmp_path, PIP_NO_INDEX="1", PIP_FIND_LINKS=str(wheels))
    assert done.returncode == 0, done.stderr
    assert not (checkout / ".venv" / "bin" / "uv").exists()


def test_a_bundle_for_other_code_is_refused_before_anything_is_set_up(tmp_path: Path) -> None:
    checkout = check_out(tmp_path / "a new checkout")
    file = small(tmp_path, version=replace(this_version(), ray="2.1.0"))
    for option in (["--bundle", file.name], [f"--bundle={file.name}"]):
        done = run(checkout, "up", *option, "--json", cwd=tmp_path, **NO_INDEX)
        error = json.loads(done.stdout)["error"]
        assert (done.returncode, error["id"]) == (3, "bad-bundle")
        assert "is for Ray 2.1.0" in error["message"]
        assert "Signed bundles" in error["hint"]
    assert not (checkout / ".venv").exists()


def test_a_python_that_is_too_old_is_refused(checkout: Path, tmp_path: Path) -> None:
    done = run(checkout, "up", cwd=tmp_path, RAYSIDE_PYTHON="false")
    assert done.returncode == 3
    assert "error[unsupported-python]" in done.stderr


def test_a_venv_that_is_a_link_is_used_where_it_is_right_and_never_emptied(tmp_path: Path) -> None:
    checkout, another = check_out(tmp_path / "a checkout"), tmp_path / "another"
    (another / "bin").mkdir(parents=True)
    python = another / "bin" / "python"
    python.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} "$@"\n')
    python.chmod(0o755)
    shutil.copyfile(checkout / "requirements" / "rayside.txt", another / "rayside.txt")
    (checkout / ".venv").symlink_to(another)
    done = run(checkout, "--list", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert "breakpoints" in done.stdout
    (another / "rayside.txt").write_text("of other requirements")
    done = run(checkout, "--list", cwd=tmp_path)
    assert done.returncode == 3
    assert f"error[unsafe-folder]: {checkout}/.venv is a symbolic link to {another}" in done.stderr
    assert f" hint: rm '{checkout}/.venv'" in done.stderr
    assert {file.name for file in another.iterdir()} == {"bin", "rayside.txt"}
    assert python.exists()


def test_one_set_up_that_was_killed_is_made_anew_once_and_runs_from_anywhere(
    checkout: Path, tmp_path: Path
) -> None:
    # A killed one leaves the environment without the mark that comes last, and it may lack anything.
    python = checkout / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True, exist_ok=True)
    python.unlink(missing_ok=True)
    python.write_text("#!/bin/sh\nexit 1\n")
    python.chmod(0o755)
    assert not (checkout / ".venv" / "rayside.txt").exists()
    first = run(checkout, "--list", cwd=tmp_path)
    assert first.returncode == 0, first.stderr
    assert "Setting up .venv" in first.stderr
    assert (checkout / ".venv" / "bin" / "uv").exists()
    seconds = re.search(r"\.venv is ready \((\d+) s\)", first.stderr)
    assert seconds
    # Two pieces of work, and a line after each 5 s of one: none only where both are quicker.
    assert int(seconds[1]) < 10 or re.search(r"^  \d+ s: \w", first.stderr, re.MULTILINE)
    assert "breakpoints" in first.stdout
    link = tmp_path / "rayside"
    link.symlink_to(checkout / "invokew")
    second = subprocess.run([str(link), "--list"], cwd="/", capture_output=True, text=True, check=True)
    assert second.stdout == first.stdout
    assert second.stderr == ""
    # And in an activated environment, as `invoke TASK`.
    activated = subprocess.run(
        [str(checkout / ".venv" / "bin" / "invoke"), "--list"],
        cwd=checkout,
        capture_output=True,
        text=True,
        check=True,
    )
    assert activated.stdout == first.stdout


def test_every_verb_has_help_that_says_what_it_and_its_options_do(checkout: Path, tmp_path: Path) -> None:
    listed = run(checkout, "--list", "--list-format=json", cwd=tmp_path)
    verbs = [verb["name"] for verb in json.loads(listed.stdout)["tasks"]]
    assert {"up", "status", "doctor", "submit", "breakpoints", "debug", "logs", "prepare", "down"} <= set(
        verbs
    )
    for verb in verbs:
        text = run(checkout, verb, "--help", cwd=tmp_path).stdout
        assert "Docstring:\n  none" not in text
        options = [line for line in text.splitlines() if line.startswith("  -")]
        # An option without help is a line that ends after its name.
        assert all("   " in line.strip() for line in options), text


def test_alone_it_lists_the_verbs(checkout: Path, tmp_path: Path) -> None:
    listed, alone = run(checkout, "--list", cwd=tmp_path), run(checkout, cwd=tmp_path)
    assert (alone.returncode, alone.stderr) == (0, "")
    assert alone.stdout == listed.stdout
    assert "breakpoints" in alone.stdout


def test_a_verb_and_an_option_that_do_not_exist_are_refused_as_the_docs_say(
    checkout: Path, tmp_path: Path
) -> None:
    for words in (["upp"], ["status", "--nope"], ["status", "--nope", "--json"]):
        done = run(checkout, *words, cwd=tmp_path)
        assert (done.returncode, done.stdout) == (1, "")
        assert re.fullmatch(r"No idea what '.*' is!\n", done.stderr)
