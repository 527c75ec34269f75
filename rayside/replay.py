"""`rayside replay`: opens a recorded failure without a cluster, or calls its function again.

The terminal debugger or an editor shows it as a stopped process (replayed.py). Unpickling runs code of the
capsule's author: only `--run` and `--submit` do it, after a question and in a separate process
(worker/replayed_call.py).
"""

from __future__ import annotations

import json
import platform
import secrets
import shlex
import shutil
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from rayside import capsule_file, run_program
from rayside.capsule_file import Capsule
from rayside.client import terminal
from rayside.client.commands import Place, break_option
from rayside.client.events import JobState
from rayside.client.session import AttachOptions
from rayside.connection.access import Access
from rayside.console import Console
from rayside.dap.client import Client
from rayside.errors import INTERRUPTED, CapsuleUnreadable, InvalidArgument, PortTaken, UnsupportedPython
from rayside.event_loop import background_loop
from rayside.options import port_of
from rayside.private_file import write_private
from rayside.program_relay import own_folder
from rayside.ray.debug import Debug
from rayside.replayed import Replayed
from rayside.verbs import submitting
from rayside.worker import edited_source, replayed_call
from rayside.worker.capsule import FUNCTION
from rayside.worker.run_driver import TOKEN

_LONGEST_NAME = 80
_PACKAGE = "rayside_replay"


@dataclass(frozen=True)
class Asked:
    """Options of `replay`."""

    run: bool = False
    breaks: tuple[str, ...] = ()
    listen: str | None = None
    submit: bool = False
    yes: bool = False

    def check(self) -> None:
        """Raises InvalidArgument for options that exclude each other."""
        if self.run and self.submit:
            raise InvalidArgument("--run is here, --submit on a cluster", hint="leave out one of them")
        if self.submit and self.listen is not None:
            raise InvalidArgument("--listen is for what runs here", hint="leave out --listen or --submit")
        lacking = {
            "--yes": self.yes and not (self.run or self.submit),
            "--break": self.breaks and not self.run,
        }
        for option in (option for option, is_wrong in lacking.items() if is_wrong):
            raise InvalidArgument(f"{option} goes with --run", hint=f"add --run, or leave out {option}")


def replay(file: str, console: Console, asked: Asked, access: Callable[[], Access]) -> int:
    """Opens the capsule, or calls its function again; returns the exit code. Raises RaysideError.

    `access` gives access to the cluster, for `--submit` only.
    """
    asked.check()
    places = [break_option(text) for text in asked.breaks]
    port = None if asked.listen is None else port_of("--listen", asked.listen)
    capsule = capsule_file.open_file(Path(file).expanduser())
    if asked.run or asked.submit:
        _require_whole(capsule, here=asked.run)
        if not (asked.yes or _is_agreed(capsule, console)):
            console.result("Nothing was run.")
            return 0
        if asked.run:
            return _run(capsule, console, places, port)
        _submit(capsule, console, access())
        return 0
    with own_folder() as folder:
        token = secrets.token_urlsafe(32)
        write_private(folder / TOKEN, token)
        console.event(capsule.title)
        return _open(capsule, console, folder, token, port)


def _open(capsule: Capsule, console: Console, folder: Path, token: str, listen: int | None) -> int:
    with background_loop() as call:
        replayed = call(_replayed(capsule, token))
        try:
            port = call(replayed.serve(listen or 0))
        except OSError as error:
            raise PortTaken(
                f"127.0.0.1:{listen} can't be listened on: {error.strerror}",
                hint="--listen 0 takes a free one",
            ) from None
        try:
            if listen is None:
                connect = partial(Client.connect, "127.0.0.1", port)
                options = AttachOptions(connect=connect, token=token)
                history = folder / "history"
                return terminal.run(options, _Recorded(replayed), console, history=history, end=lambda: None)
            console.event(f"it waits for an editor: attach its Python debugger to 127.0.0.1:{port}")
            console.event(f"  it asks for a token: cat {shlex.quote(str(folder / TOKEN))}")
            call(replayed.ended.wait())
            return 0
        except KeyboardInterrupt:
            return INTERRUPTED
        finally:
            call(replayed.close())


async def _replayed(capsule: Capsule, token: str) -> Replayed:
    return Replayed(capsule, token)


class _Recorded:
    """Recorded failure in place of a watched job: it ends when the user continues."""

    def __init__(self, replayed: Replayed) -> None:
        self._replayed = replayed

    def job(self) -> JobState:
        ended = self._replayed.ended.is_set()
        return JobState("", "FAILED" if ended else "RUNNING", ended)


# --- calling the function ---------------------------------------------------------------------


def _is_agreed(capsule: Capsule, console: Console) -> bool:
    """Asks the user whether to run it. Raises InvalidArgument without a terminal."""
    what = f"this runs pickled code of {capsule.whose}, recorded on {capsule.about['when']}"
    if not sys.stdin.isatty():
        raise InvalidArgument(f"{what}, and nobody is here to be asked", hint="--yes runs it unasked")
    return console.ask(f"{what}: run it? [y/N] ").strip().lower() in ("y", "yes")


def _run(capsule: Capsule, console: Console, breaks: Sequence[Place], listen: int | None) -> int:
    with own_folder() as folder:
        _write(folder, capsule)
        how = {"breaks": breaks, "post_mortem": True, "listen": listen, "safe_path": True}
        program = run_program.Program(replayed_call.__file__, [str(folder)], **how)  # type: ignore[arg-type]
        return run_program.run(program, console)


def _submit(capsule: Capsule, console: Console, access: Access) -> None:
    """Submits a job with the user's files, and a package of the capsule's parts as its program."""
    with own_folder() as folder:
        package = folder / _PACKAGE
        package.mkdir()
        _write(package, capsule)
        (package / "__init__.py").touch()
        shutil.copyfile(replayed_call.__file__, package / "__main__.py")
        shutil.copy(edited_source.__file__, package)
        debug = Debug(post_mortem=True, record_failures=True)
        request = submitting.Request(".", (str(package),), f"python -m {_PACKAGE}", None, debug)
        submitting.submit(access, console, request.prepare(), wait=False)


def _write(folder: Path, capsule: Capsule) -> None:
    """Writes the parts of a capsule for replayed_call.py."""
    files = {frame.file: frame.source for error in capsule.errors for frame in error.frames if frame.source}
    copies = {
        path: f"source-{number}-{Path(path).name[-_LONGEST_NAME:]}" for number, path in enumerate(files)
    }
    call = {
        "function": FUNCTION,
        "python": capsule.about["python"],
        **{name: capsule.function[name] for name in ("name", "file")},
        "folder": capsule.folder,
        "sources": copies,
        "inputs": [{"file": each.file, "keyword": each.keyword} for each in capsule.inputs],
    }
    for directory in {Path(name).parent for name in capsule.members}:
        (folder / directory).mkdir(mode=0o700, exist_ok=True)
    texts = {copies[path]: text.encode("utf-8", "replace") for path, text in files.items()}
    for name, content in {**capsule.members, **texts, replayed_call.CALL: json.dumps(call).encode()}.items():
        write_private(folder / name, content)


def _require_whole(capsule: Capsule, *, here: bool) -> None:
    """Raises UnsupportedPython or CapsuleUnreadable if the function can't be called from this capsule."""
    recorded, own = (
        ".".join(version.split(".")[:2]) for version in (capsule.about["python"], platform.python_version())
    )
    if here and recorded != own:
        raise UnsupportedPython(
            f"it was recorded by Python {recorded}, and this is Python {own}",
            hint="--run needs the same Python; without --run it opens with any",
        )
    if lacking := capsule.left_out:
        raise CapsuleUnreadable(
            f"it can't be called again, for the capsule lacks {lacking[0]}",
            hint="without --run it opens, with all variables that were recorded",
        )
