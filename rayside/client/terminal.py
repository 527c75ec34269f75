"""Terminal debugger: one prompt for all stopped tasks.

The event loop runs in a separate thread and the prompt in the main thread, so that Ctrl-C reaches the prompt
and never interrupts a request.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Collection
from functools import partial
from pathlib import Path

from rayside.client import commands, listing
from rayside.client.attaching import attached
from rayside.client.cluster_commands import Groups, Places
from rayside.client.events import Ended, Notice, SessionEvent, Stop, stop_after
from rayside.client.keyboard import line_editing, typed
from rayside.client.session import AttachOptions, JobWatch, Session
from rayside.client.view import View
from rayside.console import Console
from rayside.dap.group_commands import ACTIONS, RAISED, drawn_edits
from rayside.errors import (
    INTERRUPTED,
    DebuggerGone,
    InvalidArgument,
    NothingPaused,
    RequestFailed,
)
from rayside.event_loop import Call, background_loop
from rayside.signals import signals_noticed

PROMPT = "(rayside) "
_POLL = 0.5  # seconds between two checks of the clock in a wait
_QUIET = 0.3  # seconds for the relay to report all tasks that are stopped already; it takes milliseconds
_WAITING = "waiting for the next stop (Ctrl-C: back to the prompt)"
_STEP = 2.0  # seconds after which a step counts as still running; one takes milliseconds


def run(
    options: AttachOptions,
    watch: JobWatch,
    console: Console,
    *,
    timeout: float = 60,
    history: Path,
    end: Callable[[], None] | None = None,
) -> int:
    """Debugs until the user quits or the job has ended; returns the exit code.

    `timeout` is in seconds, for the first stop; the file `history` gets the typed lines, and mode 0600; `end`
    ends the debugged program, if Ctrl-C at the prompt has to do so. The exit code is 130 if the user left
    with Ctrl-C, or input from a file ended without `quit`: without `end`, stopped tasks stay stopped then.
    Raises:
        DebuggerBusy: another debugger has the tasks, and the user leaves them to it.
        NothingPaused: no task stopped within `timeout` seconds.
        RaysideError: the relay or Ray is gone, or another debugger took over.
    """
    with background_loop() as call, line_editing(history), signals_noticed(signal.SIGHUP, signal.SIGTERM):
        session = attached(options, watch, console, call)
        code: int | None = None
        try:
            code = Terminal(session, console, call, stays=end is None).talk(timeout)
        finally:
            if end is not None and code != 0:
                end()  # before its tasks resume
            call(session.close(keep_stopped=code == INTERRUPTED and end is None))
        return code


class Terminal:
    """Dialog with the user, in `talk`."""

    def __init__(self, session: Session, console: Console, call: Call, *, stays: bool = True) -> None:
        self._session, self._stays = session, stays
        self._console, self._call = console, call
        self._say = console.event
        self._view = View(session, console, call)
        self._places = Places(session, console, call, self._view)
        self._groups = Groups(session, console, call)
        self._repeat = ""
        self._exit: int | None = None

    def talk(self, timeout: float) -> int:
        try:
            self._say("waiting for a task to stop ...")
            self._first_stop(timeout)
        except KeyboardInterrupt:
            self._console.result()
        except (DebuggerGone, RequestFailed) as error:
            self._failed(error)
        while self._exit is None:
            try:
                self._turn()
            except KeyboardInterrupt:
                self._console.result()
                self._say("interrupted; back at the prompt")
            except (DebuggerGone, RequestFailed, InvalidArgument) as error:
                self._failed(error)
        return self._exit

    def _turn(self) -> None:
        self._tell_news()
        if self._exit is not None:
            return
        try:
            line = self._console.ask(PROMPT)
        except EOFError:
            self._input_ended()
            return
        except KeyboardInterrupt:
            self._console.result()
            if not typed().strip():
                self._interrupt()
            return
        self._obey(line)

    def _obey(self, line: str) -> None:
        repeated = not line.strip()
        text = line if not repeated else self._repeat
        name, rest = commands.parse(text)
        if not name:
            return
        is_of_group = rest[:1] == "@" and name in ACTIONS
        repeats = text if is_of_group else name
        self._repeat = repeats if name in {*commands.STEPS, "list"} else ""
        view = self._view
        work: dict[str, Callable[[], None]] = {
            **{step: partial(self._step, request) for step, request in commands.STEPS.items()},
            "continue": self._continue,
            "list": lambda: view.list(rest, more=repeated),
            "where": view.where,
            "up": lambda: view.move(1),
            "down": lambda: view.move(-1),
            "locals": view.locals,
            "p": lambda: view.evaluate(rest, statement=False),
            "!": lambda: view.evaluate(rest, statement=True),
            "compare": lambda: view.compare(rest),
            "break": lambda: self._places.add(rest),
            "clear": lambda: self._places.clear(rest),
            "group": lambda: self._groups.show(rest),
            "pause": lambda: self._move(name, rest),
            "retry": lambda: self._retry(rest),
            "tasks": self._tasks,
            "task": lambda: self._task(rest),
            "help": lambda: self._console.result(commands.usage(stays=self._stays)),
            "quit": self._quit,
        }
        if is_of_group:
            self._move(name, rest)
        elif name in work:
            work[name]()
        else:
            self._say(commands.unknown(name, line.strip()))

    # --- resuming ------------------------------------------------------------------------

    def _step(self, request: str) -> None:
        stop = self._view.current_stop()
        before = [*self._session.stops.values()]
        self._call(self._session.resume(request, stop))
        self._wait(stop, before)

    def _continue(self) -> None:
        stop = self._view.stop
        if stop is not None and self._is_stopped(stop):
            self._call(self._session.resume("continue", stop))
            self._say(f"{stop.title} goes on; {_WAITING}")
        self._view.stop = None
        self._wait(None)

    def _move(self, word: str, rest: str) -> None:
        """Applies a command to all tasks of a group; then shows the current task, or another."""
        self._tell_news(self._groups.move(word, rest))
        current, stops = self._view.stop, self._session.stops
        if stops and (current is None or not self._is_stopped(current)):
            self._view.arrive(next(iter(stops.values())))
        elif word == "continue" and not stops:
            self._say(_WAITING)
            self._continue()

    def _retry(self, rest: str) -> None:
        stop, before = self._view.stop, [*self._session.stops.values()]
        outcomes = self._groups.retry(rest, 0 if rest else self._view.current_stop().thread_id)
        if not rest and RAISED in outcomes:  # It has stopped again, or is about to.
            self._wait(stop, before)
            return
        self._tell_news()
        if self._exit is None and not (self._view.stop and self._is_stopped(self._view.stop)):
            self._view.stop = None
            self._wait(None)

    def _first_stop(self, timeout: float) -> None:
        """Waits until a task stops; if several are stopped, the user chooses."""
        until = time.monotonic() + timeout
        while not self._over():
            if self._session.stops:
                while self._news(self._call(self._session.next_event(_QUIET))):
                    pass
                self._choose()
                return
            if time.monotonic() > until:
                raise NothingPaused(
                    f"no task stopped within {timeout:g} s",
                    hint="./invokew submit --debug, and stop it by --break FILE:LINE; --timeout waits longer",
                )
            self._news(self._call(self._session.next_event(min(_POLL, timeout))))

    def _wait(self, stepped: Stop | None, before: Collection[Stop] = ()) -> None:
        """Waits until the stepped task stops, or any task if `stepped` is None; shows the stop.

        A step may end in the task that it calls; `before` are the stops before the step. If the step still
        runs after _STEP, because its function returned to Ray or waits, any task's stop ends the wait.
        """
        began = time.monotonic()
        while not self._over():
            if stepped is not None:
                again = stop_after(stepped, self._session.stops.values(), before)
                if again is not None:
                    self._view.arrive(again)
                    return
                if time.monotonic() - began > _STEP:
                    self._say(f"{stepped.title} runs on; waiting for the next stop of any task")
                    stepped = None
            elif self._session.stops:
                self._view.arrive(next(iter(self._session.stops.values())))
                return
            event = self._call(self._session.next_event(_POLL))
            self._news(event)
            if isinstance(event, Ended) and event.stop is stepped:
                if not event.was_stopped:
                    self._say(f"{stepped.title} has ended")
                stepped = None

    def _over(self) -> bool:
        """Returns whether the debugger ends: the job has ended, and no task is stopped."""
        if self._session.lost is not None:
            raise self._session.lost
        job = self._session.ended
        if job is None or self._session.stops:
            return False
        for event in self._call(self._session.pending_events()):  # messages from before its end
            self._news(event)
        self._say(f"{job.title} ended: {job.status}")
        if edited := job.edited or drawn_edits(self._groups.edited):  # A program has no job that lists them.
            self._say(edited)
        if job.next:
            self._say(f"Next: {job.next}")
        self._exit = 0
        return True

    def _choose(self) -> None:
        stops = self._listed()
        if len(stops) > 1:
            self._console.result(f"{len(stops)} tasks are stopped:")
            self._console.result(listing.tasks(stops, None, self._session.title))
        number = "1"
        while len(stops) > 1:
            try:
                number = self._console.ask("which one? [1] ").strip() or "1"
            except EOFError:
                self._input_ended()
                return
            if number in {"q", "quit"}:
                self._console.result()
                self._quit()
                return
            if number.isdecimal() and 1 <= int(number) <= len(stops):
                break
            self._say(f"a number from 1 to {len(stops)}, or `q`")
        if stops:
            self._view.arrive(stops[int(number) - 1])

    # --- tasks ---------------------------------------------------------------------------

    def _listed(self) -> list[Stop]:
        """Returns the current stops, in an order that a step does not change."""
        return sorted(self._session.stops.values(), key=lambda stop: (stop.title, stop.thread_id))

    def _is_stopped(self, stop: Stop) -> bool:
        return self._session.stops.get(stop.thread_id) is stop

    def _tasks(self) -> None:
        listed = listing.tasks(self._listed(), self._view.stop, self._session.title)
        self._console.result(listed or "no task is stopped")

    def _task(self, rest: str) -> None:
        stops = self._listed()
        if not rest.isdecimal() or not 1 <= int(rest) <= len(stops):
            raise InvalidArgument(f"no task {rest}".rstrip(), hint="`tasks` lists them; `task N` switches")
        self._view.arrive(stops[int(rest) - 1])

    # --- news ----------------------------------------------------------------------------

    def _tell_news(self, told: Collection[str] = ()) -> None:
        """Shows new events; `told` are the workers whose stops were shown already."""
        for event in self._call(self._session.pending_events()):
            self._news(event)
            current = self._view.stop
            if not isinstance(event, Stop) or not self._is_stopped(event) or event is current:
                continue
            # The debugger has reconnected, or a task that was stepped into has started.
            if current is not None and current.thread_id in (event.thread_id, event.called_by):
                self._view.arrive(event)
                continue
            if event.worker_id in told:
                continue
            self._say(f"{self._session.title(event)} has stopped, too: `tasks` lists what is stopped")
        self._over()

    def _news(self, event: SessionEvent | None) -> bool:
        """Shows an event's message to the user; returns whether there was an event at all."""
        if isinstance(event, Ended) and event.was_stopped:
            self._say(f"{event.stop.title} has ended while it was stopped")
        elif isinstance(event, Notice):
            self._say(event.text)
        return event is not None

    def _failed(self, error: DebuggerGone | RequestFailed | InvalidArgument) -> None:
        if error is self._session.lost:
            raise error
        self._say(f"{error.message} ({error.hint})")

    # --- leaving -------------------------------------------------------------------------

    def _interrupt(self) -> None:
        """Ends the debugger; stopped tasks stay stopped."""
        stays = "stays stopped; ./invokew debug comes back to it"
        lost = "goes on soon: the connection is lost, and the cluster can't be told to keep it stopped"
        for stop in self._listed() if self._stays else ():
            self._say(f"{stop.title} {lost if self._session.waiting else stays}")
        self._exit = INTERRUPTED

    def _input_ended(self) -> None:
        """Quits at Ctrl-D. At the end of a file or a pipe, tasks stay stopped: they may be a colleague's."""
        self._console.result()
        if self._console.typed_at:
            self._quit()
        else:
            self._say("the input has ended; `quit` in it would let every task go on")
            self._interrupt()

    def _quit(self) -> None:
        for stop in self._listed():
            self._say(f"{stop.title} goes on")
        self._exit = 0
