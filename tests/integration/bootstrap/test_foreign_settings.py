"""Tests that what a user's own Python, Invoke and pip are told changes nothing of the verbs."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.checkout import check_out
from tests.patience import PATIENCE

# Each of these has the same answer as none.
TOLD = {
    "INVOKE_DEBUG": "1",
    "INVOKE_RUNTIME_CONFIG": "/nowhere/invoke.yaml",
    "INVOKE_RUN_ECHO": "1",
    "INVOKE_RUN_ENV": "x",
    "INVOKE_TASKS_AUTO_DASH_NAMES": "",
    "PYTHONHOME": "/nowhere",
    "PYTHONINSPECT": "1",
    "PYTHONOPTIMIZE": "2",
    "PYTHONSAFEPATH": "1",
    "PYTHONSTARTUP": "/nowhere/start.py",
    "PYTHONVERBOSE": "1",
    "PYTHONWARNINGS": "error",
}
FILES = [
    (
        ".invoke.yaml",
        "tasks: {collection_name: fabfile, executor_class: theirs.Executor}\nrun: {echo: true}\n",
    ),
    (".invoke.yaml", "rayside: {ports: many}\n"),
    (".invoke.yaml", ": : [\n"),
    (".invoke.py", "raise SystemExit('theirs')\n"),
]


def run(checkout: Path, *words: str, cwd: Path, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [checkout / "invokew", *words],
        cwd=cwd,
        env={**os.environ, "INVOKE_RAYSIDE_TARGET": "local", **env},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=5 * PATIENCE,
        check=False,
    )


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Provides a checkout that is set up with this test's own environment."""
    folder = check_out(tmp_path_factory.mktemp("checkout"))
    packages = folder / ".venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", packages], check=True)
    site = next(packages.glob("lib/python3*/site-packages"))
    (site / "ours.pth").write_text("\n".join(path for path in sys.path if path.endswith("site-packages")))
    shutil.copyfile(folder / "requirements" / "rayside.txt", packages / "rayside.txt")
    return folder


def answers(checkout: Path, home: Path, cwd: Path, env: Mapping[str, str]) -> list[object]:
    home.mkdir(exist_ok=True)
    # Without the caches' and the state's own variables, these lie in the home folder.
    listed = run(checkout, "--list", cwd=cwd, HOME=str(home), **env)
    status = run(checkout, "status", "--json", cwd=cwd, HOME=str(home), **env)
    assert status.stderr == listed.stderr == "", status.stderr + listed.stderr
    document = json.loads(status.stdout)
    return [
        listed.stdout,
        status.returncode,
        document["target"],
        [step["name"] for step in document["steps"]],
    ]


def test_variables_of_python_and_invoke_change_nothing(checkout: Path, tmp_path: Path) -> None:
    plain = answers(checkout, tmp_path / "home", tmp_path, {})
    assert "breakpoints" in str(plain[0])
    assert answers(checkout, tmp_path / "home", tmp_path, TOLD) == plain


@pytest.mark.parametrize(("name", "content"), FILES)
def test_files_of_invoke_in_the_home_folder_change_nothing(
    checkout: Path, tmp_path: Path, name: str, content: str
) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / name).write_text(content)
    assert "breakpoints" in str(answers(checkout, tmp_path / "home", tmp_path, {})[0])


def test_modules_of_the_users_path_and_folder_are_not_ours(checkout: Path, tmp_path: Path) -> None:
    for name in ("bootstrap", "invoke", "random", "tasks", "yaml"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('theirs')\n")
    assert "breakpoints" in str(
        answers(checkout, tmp_path / "home", tmp_path, {"PYTHONPATH": str(tmp_path)})[0]
    )
    # Invoke takes this for the name of a lab; the help comes from another process.
    helped = run(checkout, "lab", "--help", cwd=tmp_path, PYTHONPATH=str(tmp_path))
    assert helped.stdout.startswith("Usage: inv[oke] [--core-opts] lab "), helped.stdout + helped.stderr


def test_what_pip_is_told_for_other_environments_changes_no_set_up(tmp_path: Path) -> None:
    checkout, home = check_out(tmp_path / "a checkout"), tmp_path / "home"
    (home / ".config" / "pip").mkdir(parents=True)
    away = str(tmp_path / "away")
    config = home / ".config" / "pip" / "pip.conf"
    config.write_text(
        f"[global]\nrequire-virtualenv = true\nquiet = 1\n[install]\nuser = yes\nprefix = {away}\n"
    )
    told = dict.fromkeys(("PIP_CONSTRAINT", "PIP_LOG", "PIP_REQUIREMENT", "PIP_TARGET"), away)
    told |= {"PIP_DRY_RUN": "1", "PIP_USER": "1"}
    done = run(checkout, "--version", cwd=tmp_path, HOME=str(home), **TOLD, **told)
    assert done.returncode == 0, done.stderr
    assert "Invoke" in done.stdout
    assert not Path(away).exists()
