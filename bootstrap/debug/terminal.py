"""The debugger in a terminal: one prompt for all the tasks that are paused.

The event loop runs in a thread of its own and the prompt in the main thread, so that Ctrl-C is the
prompt's and never tears a connection: a client that dies with a request in flight spoils its
debuggee.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from pathlib import Path

from bootstrap.console import Console
from bootstrap.debug import commands, listing, pausing, stops
from bootstrap.debug.background import Call, background_loop
from bootstrap.debug.client import Client
from bootstrap.debug.keyboard import line_editing, typed
from bootstrap.debug.session import Attached, Connect, Debuggee, Discovery, Ended, Happening, Session
from bootstrap.debug.stops import Frame
from bootstrap.debug.view import View
from bootstrap.errors import (
    INTERRUPTED,
    AttachFailed,
    DebuggerGone,
    InvalidArgument,
    NothingPaused,
    RequestFailed,
)

PROMPT = "(rayside) "
_FIRST_STOP = 20.0  # seconds from attaching to the first stop; measured 0.1 to 0.5
_LOOK = 0.5  # seconds between two looks at whether a task that was stepped still runs
_AGAIN = 3.0  # seconds for Ray to list a task that pauses again; measured 0.2


def run(
    discovery: Discovery,
    console: Console,
    *,
    timeout: float = 60,
    history: Path,
    connect: Connect = Client.connect,
) -> int:
    """Debugs until the user leaves or the job has ended; the exit code.

    Args:
        timeout: seconds to wait for the first paused task.
        history: the file of the lines typed; made with mode 0600.

    Returns:
        0, or 130 where the user left with Ctrl-C, upon which what was stopped is paused again.

    Raises:
        NothingPaused: no task paused within `timeout` seconds.
        RaysideError: Ray is gone.
    """
    with background_loop() as call, line_editing(history):
        session = Session(discovery, connect=connect)
        call(_start(session))
        try:
            return Terminal(session, console, call).talk(timeout)
        finally:
            call(session.close())


async def _start(session: Session) -> None:
    session.start()


async def _look_soon(session: Session) -> None:
    session.look_soon()


class Terminal:
    """The conversation; `talk` holds it."""

    def __init__(self, session: Session, console: Console, call: Call) -> None:
        self._session = session
        self._console = console
        self._call = call
        self._view = View(session.discovery, console, call)
        self._repeat = ""
        self._exit: int | None = None

    def talk(self, timeout: float) -> int:
        try:
            self._say("waiting for a task to pause ...")
            self._wait(None, timeout=timeout)
        except KeyboardInterrupt:
            self._console.result()
        except (DebuggerGone, AttachFailed, RequestFailed) as error:
            self._failed(error)
        while self._exit is None:
            try:
                self._turn()
            except KeyboardInterrupt:
                self._console.result()
                self._say("interrupted; back at the prompt")
            except (DebuggerGone, AttachFailed, RequestFailed, InvalidArgument) as error:
                self._failed(error)
        return self._exit

    def _turn(self) -> None:
        self._tell_news()
        if self._exit is not None:
            return
        try:
            line = self._console.ask(PROMPT)
        except EOFError:
            self._console.result()
            self._quit()
            return
        except KeyboardInterrupt:
            self._console.result()
            if not typed().strip():
                self._interrupt()
            return
        self._obey(line)

    def _obey(self, line: str) -> None:
        repeated = not line.strip()
        name, rest = commands.parse(line if not repeated else self._repeat)
        if not name:
            return
        self._repeat = name if name in {*commands.STEPS, "list"} else ""
        if name in commands.STEPS:
            self._step(commands.STEPS[name])
        elif name == "continue":
            self._continue()
        elif name == "list":
            self._view.list(rest, more=repeated)
        elif name == "where":
            self._view.where()
        elif name in {"up", "down"}:
            self._view.move(1 if name == "up" else -1)
        elif name == "locals":
            self._view.locals()
        elif name in {"p", "!"}:
            self._view.evaluate(rest, statement=name == "!")
        elif name == "break":
            self._break(rest)
        elif name == "clear":
            self._clear(rest)
        elif name == "tasks":
            self._tasks()
        elif name == "task":
            self._task(rest)
        elif name == "help":
            self._console.result(commands.usage())
        elif name == "quit":
            self._quit()
        else:
            self._say(f"`{name}` is no command; `p {line.strip()}` evaluates it, `help` lists the commands")

    # --- moving --------------------------------------------------------------------------

    def _step(self, request: str) -> None:
        attached = self._view.standing()
        assert attached.stop is not None
        outermost = self._view.frames[-1] if self._view.frames else None
        self._call(attached.move(request, attached.stop.thread_id))
        self._wait(attached, inside=outermost)

    def _continue(self) -> None:
        attached = self._view.attached
        if attached is not None and attached.stop is not None:
            self._call(attached.move("continue", attached.stop.thread_id))
            self._say(f"{attached.title} goes on; waiting for the next stop (Ctrl-C: back to the prompt)")
        self._view.attached = None
        self._call(_look_soon(self._session))
        self._wait(None)

    def _wait(
        self, own: Attached | None, *, inside: Frame | None = None, timeout: float | None = None
    ) -> None:
        """Until `own` stops, or any task where it is None; returns to the prompt then.

        Args:
            inside: the outermost frame of `own` when it was stepped; once no thread is in that
                function any more, any task's stop will do.
            timeout: seconds after which NothingPaused is raised.
        """
        began = time.monotonic()
        told = False
        if own is not None:
            self._view.attached = own
        while True:
            if own is not None and own.stop is not None:
                self._view.arrive(own)
                return
            if own is None and self._settled():
                return
            happening: Happening | None = self._call(self._happening(_LOOK))
            self._news(happening)
            waited = time.monotonic() - began
            if own is not None and own.stop is None and happening is None:
                if own.left:
                    own = None
                elif inside is None and waited > _FIRST_STOP:
                    self._say(f"{own.title} has not stopped and runs on")
                    own = None
                elif inside is not None and not self._call(stops.is_running(own.client, inside)):
                    self._say(f"{inside.function} has returned; waiting for the next stop of any task")
                    own = None
                elif not told and waited > 2:
                    told = True
                    self._say(f"{own.title} runs on; Ctrl-C goes back to the prompt")
            elif own is not None and own.left:
                own = None
            if timeout is not None and own is None and not self._settles() and waited > timeout:
                raise NothingPaused(
                    f"no task paused within {timeout:g} s",
                    hint="Put a breakpoint() into a task and submit the job; `--timeout` waits longer.",
                )

    def _settles(self) -> bool:
        return bool(self._session.waiting or any(a.stop for a in self._session.attached.values()))

    def _settled(self) -> bool:
        """Whether there is something for the user to do, which then has been shown."""
        stopped = [attached for attached in self._session.attached.values() if attached.stop is not None]
        if stopped:
            self._view.arrive(stopped[0])
            return True
        if self._session.waiting:
            waiting = list(self._session.waiting)
            debuggee = waiting[0] if len(waiting) == 1 else self._choose(waiting)
            if debuggee is not None:
                self._attach(debuggee)
            return True
        job = self._session.ended
        if job is not None:
            self._say(f"job {job.submission_id} ended: {job.status}")
            self._exit = 0
            return True
        if self._session.lost is not None:
            raise self._session.lost
        return False

    def _choose(self, waiting: list[Debuggee]) -> Debuggee | None:
        self._console.result(f"{len(waiting)} tasks are paused:")
        self._console.result(listing.tasks([(debuggee, "paused") for debuggee in waiting], None))
        while True:
            try:
                answer = self._console.ask("which one? [1] ").strip() or "1"
            except EOFError:
                answer = "q"
            if answer.isdecimal() and 1 <= int(answer) <= len(waiting):
                return waiting[int(answer) - 1]
            if answer in {"q", "quit"}:
                self._console.result()
                self._quit()
                return None
            self._say(f"a number from 1 to {len(waiting)}, or `q`")

    def _attach(self, debuggee: Debuggee) -> None:
        attached: Attached = self._call(self._session.attach(debuggee))
        self._wait(attached)

    # --- tasks ---------------------------------------------------------------------------

    def _rows(self) -> list[tuple[Debuggee, str]]:
        rows = [
            (replace(attached.debuggee, task=attached.task), "stopped" if attached.stop else "runs")
            for attached in self._session.attached.values()
        ]
        rows += [(debuggee, "paused") for debuggee in self._session.waiting]
        return sorted(rows, key=lambda row: (row[0].since, row[0].worker_id))

    def _tasks(self) -> None:
        rows = self._rows()
        current = self._view.attached.debuggee.worker_id if self._view.attached else None
        self._console.result(listing.tasks(rows, current) if rows else "no task is paused")

    def _task(self, rest: str) -> None:
        rows = self._rows()
        if not rest.isdecimal() or not 1 <= int(rest) <= len(rows):
            raise InvalidArgument(f"no task {rest}".rstrip(), hint="`tasks` lists them; `task N` switches")
        debuggee, state = rows[int(rest) - 1]
        if state == "paused":
            self._attach(debuggee)
            return
        attached = self._session.attached.get(debuggee.worker_id)
        if attached is None or attached.stop is None:
            self._say(f"{debuggee.title} runs; `continue` waits for its next stop")
            return
        self._view.arrive(attached)

    # --- breakpoints ---------------------------------------------------------------------

    def _break(self, rest: str) -> None:
        frame, worker = self._view.frame, self._view.standing().debuggee.worker_id
        if not rest:
            rows = self._view.breakpoints.rows(worker)
            self._console.result("\n".join(f"  {row}" for row in rows) or "no breakpoints in this task")
            return
        place = _place("break", rest)
        self._say(self._call(self._view.breakpoints.add(self._view.client, worker, place, frame.path)))

    def _clear(self, rest: str) -> None:
        frame, worker = self._view.frame, self._view.standing().debuggee.worker_id
        place = _place("clear", rest) if rest else None
        work = self._view.breakpoints.remove(self._view.client, worker, place, frame.path)
        removed = self._call(work)
        self._say(f"{removed} breakpoint{'' if removed == 1 else 's'} removed")

    # --- news ----------------------------------------------------------------------------

    async def _happening(self, timeout: float) -> Happening | None:
        try:
            return await asyncio.wait_for(self._session.happenings.get(), timeout)
        except asyncio.TimeoutError:
            return None

    async def _happened(self) -> list[Happening]:
        found = []
        while not self._session.happenings.empty():
            found.append(self._session.happenings.get_nowait())
        return found

    def _tell_news(self) -> None:
        for happening in self._call(self._happened()):
            self._news(happening)
        if self._session.lost is not None:
            raise self._session.lost
        if self._session.ended is not None and not self._settles():
            self._settled()

    def _news(self, happening: Happening | None) -> None:
        if isinstance(happening, Ended):
            attached = happening.attached
            how = " while it was stopped" if happening.was_stopped else ""
            self._say(f"the worker of {attached.title} has ended{how}")
            self._view.breakpoints.forget(attached.debuggee.worker_id)
            if attached is self._view.attached:
                self._view.attached = None

    def _failed(self, error: DebuggerGone | AttachFailed | RequestFailed | InvalidArgument) -> None:
        if isinstance(error, DebuggerGone):
            self._view.attached = None
        self._say(f"{listing.plain(error.message)} ({error.hint})")

    # --- leaving -------------------------------------------------------------------------

    def _interrupt(self) -> None:
        """Ctrl-C: leaves only where every stopped task stays paused."""
        stuck = [a for a in self._stopped() if not self._call(self._pause_again(a))]
        if not stuck:
            self._leave()
            self._exit = INTERRUPTED
            return
        for attached in stuck:
            self._say(
                f"{attached.title} can't be paused again where it stands now: "
                "`quit` leaves and lets it go on, `continue` lets it go on and stays"
            )
        if self._view.attached is not None and self._view.attached.stop is not None:
            self._view.arrive(self._view.attached)

    def _quit(self) -> None:
        going = [a for a in self._stopped() if not self._call(self._pause_again(a))]
        self._leave(going)
        self._exit = 0

    def _stopped(self) -> list[Attached]:
        return [attached for attached in self._session.attached.values() if attached.stop is not None]

    async def _pause_again(self, attached: Attached) -> bool:
        try:
            return attached.stop is not None and await pausing.return_to_breakpoint(attached.stop)
        except DebuggerGone:
            return True  # nothing is there to be kept paused

    def _leave(self, going: list[Attached] | None = None) -> None:
        stopped = self._stopped()
        for attached in list(self._session.attached.values()):
            self._call(self._session.leave(attached))
        for attached in stopped:
            title = attached.title
            if going and attached in going:
                self._say(f"{title} goes on")
            elif self._call(self._session.waits_again(attached.debuggee, _AGAIN)):
                self._say(f"{title} is paused again, and waits for the next debugger")
            else:
                self._say(f"{title} was sent back to its breakpoint(); Ray does not list it as paused yet")

    def _say(self, text: str) -> None:
        self._console.event(text)


def _place(command: str, text: str) -> commands.Place:
    place = commands.place(text)
    if place is None:
        raise InvalidArgument(
            f"not a place: {text}", hint=f"`{command} 12` or `{command} file.py:12`; `break 12 if x > 3`"
        )
    return place
