"""Subprocesses, which no other module starts; those that a command waits for end with the command."""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from rayside.errors import CommandFailed, Interrupted, MissingProgram

# Seconds for a process to end after each signal when a command is interrupted. Three of these must fit
# in the 2 s within which Ctrl-C has to end a command.
GRACE = 0.5


@dataclass(frozen=True)
class Outcome:
    """A finished process: its exit code, standard output, the tail of standard error."""

    code: int
    out: str
    err: str


@dataclass
class Shell:
    """Runs programs by argument list; `interrupt` ends running programs and refuses new ones."""

    _running: set[subprocess.Popen[bytes]] = field(default_factory=set)
    _interrupted: bool = False
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def run(
        self,
        args: Sequence[str | Path],
        *,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        on_line: Callable[[str], None] = lambda _: None,
        check: bool = True,
        feed: Sequence[str | Path] = (),
        typed: str = "",
        limit: float | None = None,
    ) -> Outcome:
        """Runs `args` to its end; each line of either stream goes to `on_line` at once.

        The input is the output of the program `feed`, or the short text `typed` (default: no input).
        `limit` is a timeout in seconds, which does not apply with `feed`.
        Raises CommandFailed (timeout; exit code not 0, and `check`), MissingProgram, Interrupted.
        """
        if feed:
            with self._start(feed, env=env, cwd=cwd) as source:
                errors: list[str] = []
                stream = source.stderr
                assert stream is not None
                listening = threading.Thread(
                    target=lambda: errors.extend(line.decode(errors="replace") for line in stream),
                    daemon=True,
                )
                try:
                    listening.start()
                    outcome = self._run(args, env, cwd, on_line, check=False, stdin=source.stdout)
                    listening.join()
                    failed = source.wait() != 0
                finally:
                    _end_groups([source])
                    with self._lock:
                        self._running.discard(source)
            # If the consumer fails, the producer fails too, with a broken pipe: the consumer's error counts.
            if outcome.code == 0 and failed:
                raise _failed(feed, source.returncode, "".join(errors))
            if check and outcome.code != 0:
                whys = [] if any("broken pipe" in error.lower() for error in errors) else errors
                raise _failed(args, outcome.code, "\n".join([outcome.out, outcome.err, *whys]))
            return outcome
        if typed:
            # A pipe holds at least 4 KiB: the text waits in it, and is never on a disk.
            reader, writer = os.pipe()
            os.write(writer, typed.encode())
            os.close(writer)
            with os.fdopen(reader, "rb") as stdin:
                return self._run(args, env, cwd, on_line, check=check, stdin=stdin, limit=limit)
        return self._run(args, env, cwd, on_line, check=check, limit=limit)

    def _run(
        self,
        args: Sequence[str | Path],
        env: Mapping[str, str] | None,
        cwd: Path | None,
        on_line: Callable[[str], None],
        *,
        check: bool,
        stdin: int | IO[bytes] | None = subprocess.DEVNULL,
        limit: float | None = None,
    ) -> Outcome:
        lines: dict[str, list[str]] = {"out": [], "err": []}
        is_late = threading.Event()

        def drain(stream: IO[bytes] | None, name: str) -> None:
            assert stream is not None
            for raw in stream:
                line = raw.decode(errors="replace").rstrip("\n")
                lines[name].append(line)
                on_line(line)

        def end() -> None:
            is_late.set()
            _end_groups([process])

        with self._start(args, env=env, cwd=cwd, stdin=stdin) as process:
            if stdin is not None and not isinstance(stdin, int):
                stdin.close()  # The process has its copy; the producer has to notice when that closes.
            timer = threading.Timer(limit or 0.0, end)
            try:
                if limit:
                    timer.start()
                errors = threading.Thread(target=drain, args=(process.stderr, "err"), daemon=True)
                errors.start()
                drain(process.stdout, "out")
                errors.join()
                code = process.wait()
            except BaseException:  # Ctrl-C in the main thread, or a defect in `on_line`.
                _end_groups([process])
                raise
            finally:
                timer.cancel()
                with self._lock:
                    self._running.discard(process)
        if self._interrupted:
            raise Interrupted(f"{args[0]} was interrupted", hint="run the command again to go on")
        if is_late.is_set():
            raise CommandFailed(
                f"{printable(args)}\ndid not end within {limit:g} s", hint="run it by itself to see more"
            )
        outcome = Outcome(code, "\n".join(lines["out"]), "\n".join(lines["err"]))
        if check and code != 0:
            raise _failed(args, code, f"{outcome.out}\n{outcome.err}")
        return outcome

    @contextlib.contextmanager
    def reading(self, args: Sequence[str | Path]) -> Iterator[IO[bytes]]:
        """Yields the output of `args`, which has to be read to its end.

        Raises CommandFailed (exit code not 0) after the end of the output, MissingProgram, Interrupted.
        """
        with self._start(args, env=None, cwd=None) as process:
            assert process.stdout is not None and process.stderr is not None
            stream, errors = process.stderr, list[str]()
            listening = threading.Thread(
                target=lambda: errors.extend(line.decode(errors="replace") for line in stream), daemon=True
            )
            listening.start()
            try:
                yield process.stdout
                listening.join()
                code = process.wait()
            finally:
                _end_groups([process])
                with self._lock:
                    self._running.discard(process)
        if self._interrupted:
            raise Interrupted(f"{args[0]} was interrupted", hint="run the command again to go on")
        if code != 0:
            raise _failed(args, code, "".join(errors))

    def spawn(
        self, args: Sequence[str | Path], *, env: Mapping[str, str], log: Path, cwd: Path | None = None
    ) -> int:
        """Starts a process that outlives this one, and returns its pid; `log` gets both its streams."""
        descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        with os.fdopen(descriptor, "ab") as stream:
            return self._popen(args, env=env, cwd=cwd, stdout=stream, stderr=stream).pid

    def interrupt(self) -> None:
        """Ends every running process with its group: interrupt, then terminate, then kill."""
        with self._lock:
            self._interrupted = True
            running = list(self._running)
        _end_groups(running)

    def _start(
        self,
        args: Sequence[str | Path],
        *,
        env: Mapping[str, str] | None,
        cwd: Path | None,
        stdin: int | IO[bytes] | None = subprocess.DEVNULL,
    ) -> subprocess.Popen[bytes]:
        with self._lock:
            if self._interrupted:
                raise Interrupted(f"{args[0]} was not started", hint="run the command again to go on")
            process = self._popen(args, env=env, cwd=cwd, stdin=stdin)
            self._running.add(process)
            return process

    @staticmethod
    def _popen(
        args: Sequence[str | Path],
        *,
        env: Mapping[str, str] | None,
        cwd: Path | None = None,
        stdin: int | IO[bytes] | None = subprocess.DEVNULL,
        stdout: int | IO[bytes] = subprocess.PIPE,
        stderr: int | IO[bytes] = subprocess.PIPE,
    ) -> subprocess.Popen[bytes]:
        try:
            # A separate session: the terminal's Ctrl-C reaches only this process, which ends the group.
            return subprocess.Popen(
                [str(arg) for arg in args],
                stdin=stdin,
                stdout=stdout,
                stderr=stderr,
                env=env,
                cwd=cwd,
                start_new_session=True,
            )
        except FileNotFoundError:
            raise MissingProgram(f"{args[0]} is not on this machine", hint="./invokew doctor --fix") from None


def _failed(args: Sequence[str | Path], code: int, output: str) -> CommandFailed:
    tail = "\n".join([line for line in output.splitlines() if line][-20:])
    return CommandFailed(
        f"{printable(args)}\nended with exit code {code}\n{tail}".rstrip(),
        hint="run it by itself to see more",
    )


def _end_groups(running: list[subprocess.Popen[bytes]]) -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGKILL):
        running = [process for process in running if process.poll() is None]
        for process in running:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, number)
        deadline = time.monotonic() + GRACE
        for process in running:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(max(0.0, deadline - time.monotonic()))


def printable(args: Sequence[str | Path]) -> str:
    """Returns the command as it can be pasted into a shell."""
    return shlex.join(str(arg) for arg in args)
