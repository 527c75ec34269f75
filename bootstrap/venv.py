"""Setup of .venv from the lock file. `invokew` runs it with a bare Python, so it imports no package."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import shutil
import signal
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from bootstrap import pip
from bootstrap.bundle.opened import Bundle, path_of, require_fit
from bootstrap.errors import BadBundle
from rayside.console import Console
from rayside.errors import CommandFailed, Interrupted, MissingProgram, RaysideError, UnsafeFolder
from rayside.system.lock import alone
from rayside.system.shell import Shell

# Seconds between two lines of progress.
_QUIET = 5.0


def main(root: Path, arguments: list[str]) -> int:
    """Makes `root`/.venv; returns 0, or the exit code of the error that it has printed."""
    console = Console("--json" in arguments)
    # Child processes run in separate sessions, which the terminal does not end.
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler)
    try:
        # The lock is held until this process ends: of two first runs at once, the second finds the work done.
        with alone(root / ".venv.lock", lambda: None):
            _make(root, arguments, console)
        return 0
    except RaysideError as error:
        console.error(error)
        return error.exit_code
    except KeyboardInterrupt:
        interrupted = Interrupted("setting up .venv was interrupted", hint="run it again")
        console.error(interrupted)
        return interrupted.exit_code
    except OSError as error:
        unsafe = UnsafeFolder(f"can't write {root / '.venv'}: {error}", hint=f"make {root} writable")
        console.error(unsafe)
        return unsafe.exit_code


def _make(root: Path, arguments: list[str], console: Console) -> None:
    venv, lock = root / ".venv", root / "requirements" / "rayside.txt"
    stamp = venv / "rayside.txt"
    if stamp.exists() and stamp.read_bytes() == lock.read_bytes():
        return
    if venv.is_symlink():
        # `venv --clear` would empty the folder that the link leads to: another checkout's, or anybody's.
        raise UnsafeFolder(
            f"{venv} is a symbolic link to {venv.readlink()}, which is not set up for this checkout; "
            "nothing was changed there",
            hint=f"rm {shlex.quote(str(venv))}, which removes the link alone, and run it again",
        )
    bundle = _bundle(arguments)
    console.event("Setting up .venv, once: about half a minute ...")
    with _progress(console) as notes:
        shell, python, temporary = Shell(), venv / "bin" / "python", venv / "tmp"
        try:
            shell.run([sys.executable, "-I", "-m", "venv", "--clear", venv])
        except CommandFailed as error:
            raise MissingProgram(
                f"{sys.executable} can't make virtual environments: {error.message.splitlines()[-1]}",
                hint="Debian, Ubuntu: apt-get install python3-venv; or name another Python in RAYSIDE_PYTHON",
            ) from None
        # A killed process leaves its unpacked files in the temporary folder.
        temporary.mkdir()
        wheels = _wheels(bundle, lock.parent, temporary / "wheels") if bundle else None
        env = {**os.environ, "TMPDIR": str(temporary)}

        def install(lock_file: Path) -> None:
            pip.install(shell, python, lock_file, wheels=wheels, tools=python, env=env, report=notes.append)

        # Without a uv for this system, pip installs everything.
        with contextlib.suppress(pip.NotAtIndex, BadBundle):
            install(root / "requirements" / "uv.txt")
        try:
            install(lock)
        except (RaysideError, OSError):
            uv = pip.uv_of(python)
            if uv is None:
                raise
            # uv can't run here, or can't reach the index that pip has reached: pip is used from now on.
            uv.unlink()
            install(lock)
        shutil.rmtree(temporary)
        shutil.copyfile(lock, stamp)


@contextlib.contextmanager
def _progress(console: Console) -> Iterator[list[str]]:
    """Yields a list of notes; the newest note is printed every few seconds."""
    notes = ["making the environment"]
    began, ended = time.monotonic(), threading.Event()

    def tell() -> None:
        while not ended.wait(_QUIET):
            console.event(f"  {time.monotonic() - began:.0f} s: {notes[-1]}")

    thread = threading.Thread(target=tell, daemon=True)
    thread.start()
    try:
        yield notes
    finally:
        ended.set()
        thread.join()
    console.event(f".venv is ready ({time.monotonic() - began:.0f} s)")


def _bundle(arguments: list[str]) -> Bundle | None:
    """Returns the bundle that the command line, or else the environment, names; None if neither does.

    Raises BadBundle if it does not fit this code, machine and Python. The verb `mirror` uploads any bundle:
    for it the result is None, too.
    """
    file = os.environ.get("INVOKE_RAYSIDE_BUNDLE", "")
    for option, value in zip(arguments, [*arguments[1:], ""], strict=False):
        file = value if option == "--bundle" else option.partition("--bundle=")[2] or file
    if not file:
        return None
    path = path_of(file)
    bundle = Bundle.of(path)
    try:
        require_fit(bundle.manifest, path)
    except RaysideError:
        if next((each for each in arguments if not each.startswith("-")), "") == "mirror":
            return None
        raise
    return bundle


def _wheels(bundle: Bundle, requirements: Path, folder: Path) -> Path:
    """Extracts the wheels of .venv from a bundle into a folder, and returns the folder. Raises BadBundle."""
    locked = "".join((requirements / f"{name}.txt").read_text() for name in ("rayside", "uv"))
    names = {name.lower() for name in re.findall(r"^([\w.-]+)==", locked, re.MULTILINE)}
    folder.mkdir()
    for file, blob in bundle.manifest.wheels.items():
        if file.partition("-")[0].lower().replace("_", "-") in names:
            with (folder / file).open("wb") as wheel:
                wheel.writelines(bundle.read(blob))
    return folder
