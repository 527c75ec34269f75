"""Makes .venv from the lock file. Run by `invokew` with a bare Python: standard library only."""

from __future__ import annotations

import ast
import fcntl
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

# So many seconds pass between two lines on how far it is.
_QUIET = 5.0
# What leads pip to packages, or lets it reach them. Others, as target and user, are for what its user
# installs.
_REACHING = (
    *("index-url", "extra-index-url", "find-links", "no-index"),
    *("trusted-host", "proxy", "cert", "client-cert", "keyring-provider", "use-feature"),
    *("timeout", "default-timeout", "retries", "cache-dir", "no-cache-dir"),
)
# With -v it prints also where its configuration has it quiet.
PIP_SETTINGS = ["-m", "pip", "config", "list", "-v"]


def for_pip(environment: Mapping[str, str], listed: str = "") -> dict[str, str]:
    """Returns the environment for pip in which only these of its user's settings count.

    `listed`: what PIP_SETTINGS prints, of configuration files too: `global.index-url='https://...'`. Without
    it pip reads the files itself.
    """
    values = dict(line.split("=", 1) for line in listed.splitlines() if "=" in line)
    variables = {option: f"PIP_{option.upper().replace('-', '_')}" for option in _REACHING}
    kept = {*variables.values(), "PIP_CONFIG_FILE"}
    found = {key: value for key, value in environment.items() if not key.startswith("PIP_") or key in kept}
    for option, variable in variables.items():
        # The strongest first (https://pip.pypa.io/en/stable/topics/configuration/#precedence-override-order).
        for key in (f"install.{option}", f"global.{option}"):
            if variable not in found and key in values:
                found[variable] = " ".join(str(ast.literal_eval(values[key])).split())
    if "PIP_FIND_LINKS" not in found:  # An index that is off, with nothing in its place, has no packages.
        found.pop("PIP_NO_INDEX", None)
    return {**found, **({"PIP_CONFIG_FILE": os.devnull} if listed else {})}


def main(root: Path, arguments: list[str]) -> int:
    """Makes `root`/.venv; returns 0, or the exit code of the error that it has printed."""
    venv, lock = root / ".venv", root / "requirements" / "rayside.txt"
    stamp = venv / "rayside.txt"
    try:
        # The lock is held until this process ends: of two first runs at once, the second finds the work done.
        guard = os.open(root / ".venv.lock", os.O_RDWR | os.O_CREAT, 0o600)
        fcntl.flock(guard, fcntl.LOCK_EX)
        if stamp.exists() and stamp.read_bytes() == lock.read_bytes():
            return 0
        if venv.is_symlink():
            # `venv --clear` would empty the folder that the link leads to: another checkout's, or anybody's.
            return _fail(
                arguments,
                "unsafe-folder",
                f"{venv} is a symbolic link to {venv.readlink()}, which is not set up for this checkout; "
                "nothing was changed there",
                f"rm {shlex.quote(str(venv))}, which removes the link alone, and run it again",
            )
        began = time.monotonic()
        bundle = _bundle(root, arguments)
        print("Setting up .venv, once: about half a minute ...", file=sys.stderr, flush=True)
        environment = _run([sys.executable, "-m", "venv", "--clear", str(venv)])
        if environment.returncode != 0:
            return _fail(
                arguments,
                "missing-program",
                f"{sys.executable} can't make virtual environments: {_last_line(environment)}",
                "Debian, Ubuntu: apt-get install python3-venv; or name another Python in RAYSIDE_PYTHON",
            )
        python = venv / "bin" / "python"
        # The lock is the whole closure, so there is nothing to resolve: --no-deps. Wheels alone: as pip.py.
        # A pip that is killed leaves what it unpacked in the temporary folder.
        temporary = venv / "tmp"
        temporary.mkdir()
        listed = _run([str(python), *PIP_SETTINGS], for_pip(os.environ))
        if listed.returncode != 0:
            return _explain(arguments, listed)
        env = {**for_pip(os.environ, listed.stdout), "TMPDIR": str(temporary)}
        pip = [str(python), "-m", "pip", "install", "--disable-pip-version-check", "--progress-bar", "off"]
        exact = ["--no-deps", "--require-hashes", "--only-binary", ":all:", "-r", str(lock)]
        offline = _wheels(bundle, lock, temporary) if bundle else []
        installed = _run([*pip, *exact, *offline], env)
        shutil.rmtree(temporary)
        if installed.returncode != 0 and bundle:
            why = f"the bundle lacks a package for this Python and this system: {_last_line(installed)}"
            return _fail(arguments, "bad-bundle", why, "make it anew, on a system like this one")
        if installed.returncode != 0:
            return _explain(arguments, installed)
        shutil.copyfile(lock, stamp)
        print(f".venv is ready ({time.monotonic() - began:.0f} s)", file=sys.stderr, flush=True)
        return 0
    except _Refused as refused:
        return _fail(arguments, *refused.args)
    except KeyboardInterrupt:
        return _fail(arguments, "interrupted", "setting up .venv was interrupted", "run it again")
    except OSError as error:
        return _fail(arguments, "unsafe-folder", f"can't write {venv}: {error}", f"make {root} writable")


class _Refused(Exception):
    """The bundle can't be used; it has the id, the message and the hint of the error."""


def _bundle(root: Path, arguments: list[str]) -> Any:
    """Returns the bundle that the command, or else the environment, names; None where none is named.

    It is for this code, machine and Python. Raises _Refused where it is not; what `mirror` sends may be for
    any, and then that is None too.
    """
    file = os.environ.get("INVOKE_RAYSIDE_BUNDLE", "")
    for option, value in zip(arguments, [*arguments[1:], ""], strict=True):
        file = value if option == "--bundle" else option.partition("--bundle=")[2] or file
    if not file:
        return None
    # What follows needs no packages; of this program alone Python would not find it.
    sys.path.insert(0, str(root))
    from bootstrap.bundle.opened import Bundle, path_of, require_fit
    from bootstrap.errors import RaysideError

    try:
        path = path_of(file)
        bundle = Bundle.of(path)
    except RaysideError as error:
        raise _refused(error) from None
    try:
        require_fit(bundle.manifest, path)
    except RaysideError as error:
        if next((each for each in arguments if not each.startswith("-")), "") == "mirror":
            return None
        raise _refused(error) from None
    return bundle


def _refused(error: Any) -> _Refused:
    # What comes from a stranger's file may have more in it than text.
    from bootstrap import plain

    return _Refused(error.id, plain.plain(error.message), plain.plain(error.hint))


def _wheels(bundle: Any, lock: Path, folder: Path) -> list[str]:
    """Takes what the lock file names out of a bundle; returns pip's options. Raises _Refused."""
    from bootstrap.errors import RaysideError

    names = {name.lower() for name in re.findall(r"^([\w.-]+)==", lock.read_text(), re.MULTILINE)}
    try:
        for file, blob in bundle.manifest.wheels.items():
            if file.partition("-")[0].lower().replace("_", "-") in names:
                with (folder / file).open("wb") as wheel:
                    wheel.writelines(bundle.read(blob))
    except RaysideError as error:
        raise _refused(error) from None
    return ["--no-index", "--find-links", str(folder)]


def _run(command: list[str], env: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """Runs `command` to its end; every few seconds one line says what it does."""
    lines = [""]
    began = time.monotonic()
    with tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen(
            command, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors, text=True
        )
        with process:
            reading = threading.Thread(target=_read, args=(process.stdout, lines), daemon=True)
            reading.start()
            try:
                while reading.is_alive():
                    reading.join(_QUIET)
                    if reading.is_alive():
                        _tell(lines, time.monotonic() - began)
            except BaseException:  # It is Ctrl-C.
                process.kill()
                raise
        errors.seek(0)
        return subprocess.CompletedProcess(command, process.returncode, "\n".join(lines), errors.read())


def _read(stream: IO[str], lines: list[str]) -> None:
    for line in stream:
        lines.append(line.strip())


def _tell(lines: list[str], seconds: float) -> None:
    # It cuts off the rest of "Collecting rich==15.0 (from ...)" and of "Installing collected packages: ...".
    now = lines[-1].partition(" (from ")[0].partition(": ")[0]
    packages = sum(line.startswith("Collecting ") for line in lines)
    count = f"package {packages}, " if packages else ""
    print(f"  {count}{seconds:.0f} s: {now or 'making the environment'}", file=sys.stderr, flush=True)


def _explain(arguments: list[str], pip: subprocess.CompletedProcess[str]) -> int:
    errors = pip.stderr  # pip says there what is wrong.
    if "THESE PACKAGES DO NOT MATCH THE HASHES" in errors:
        return _fail(
            arguments,
            "bad-checksum",
            f"a download is not what the lock file names: {_last_line(pip)}",
            "ask who runs the package mirror (pip config list); nothing was installed from it",
        )
    if any(sign in errors for sign in ("connection", "Connection", "resolve", "timed out", "No matching")):
        return _fail(
            arguments,
            "no-network",
            f"the Python package index could not be reached: {_last_line(pip)}",
            "connect, or set pip's index-url and proxy (pip config), and run it again",
        )
    return _fail(arguments, "command-failed", f"pip failed: {errors.strip()}", "mend that and run it again")


def _last_line(done: subprocess.CompletedProcess[str]) -> str:
    lines = [line for line in f"{done.stdout}\n{done.stderr}".splitlines() if line.strip()]
    return lines[-1].removeprefix("ERROR: ").strip() if lines else f"exit code {done.returncode}"


def _fail(arguments: list[str], identity: str, message: str, hint: str) -> int:
    # These have the shapes of bootstrap.console and bootstrap.errors, which can't be imported before
    # the environment exists.
    if "--json" in arguments:
        print(json.dumps({"error": {"id": identity, "message": message, "hint": hint}}, indent=2))
    else:
        print(f"error[{identity}]: {message}\n hint: {hint}", file=sys.stderr)
    return 130 if identity == "interrupted" else 4 if identity == "command-failed" else 3


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2:]))
