"""Tests the engine: what it applies, in which order, how it waits, fails and is interrupted."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from rayside.errors import ClusterUnreachable, Drifted, NotReady, NotRunning, PortTaken, RaysideError
from rayside.steps import graph
from rayside.steps.graph import Timing, critical_path
from rayside.steps.step import Condition, Report, Status, drifted, missing, pending, ready


@dataclass
class Diary:
    """Progress that only remembers."""

    lines: list[str] = field(default_factory=list)
    details: dict[str, str] = field(default_factory=dict)

    def started(self, name: str, title: str) -> None:
        self.lines.append(f"started {name}")

    def note(self, name: str, text: str) -> None:
        self.lines.append(f"{name}: {text}")

    def finished(self, name: str, title: str, outcome: str, detail: str) -> None:
        self.lines.append(f"{outcome} {name}")
        self.details[name] = detail


@dataclass
class Scripted:
    """A step whose checks answer as scripted, one after the other, and fail when the script is over."""

    name: str
    script: list[Status | RaysideError]
    needs: tuple[str, ...] = ()
    patience: float = 10.0
    on_apply: Callable[[], None] = lambda: None
    log: list[str] = field(default_factory=list)

    @property
    def title(self) -> str:
        return f"the {self.name}"

    def check(self) -> Status:
        answer = self.script.pop(0)
        if isinstance(answer, RaysideError):
            raise answer
        return answer

    def apply(self, report: Report) -> None:
        self.log.append(f"apply {self.name}")
        report("working")
        self.on_apply()

    def undo(self, report: Report) -> None:
        self.log.append(f"undo {self.name}")
        report("going")


def test_up_applies_only_what_is_missing() -> None:
    log: list[str] = []
    existing = Scripted("there", [ready()], log=log)
    absent = Scripted("absent", [missing(), ready()], log=log)
    timings = graph.up([existing, absent], Diary())
    assert log == ["apply absent"]
    assert {timing.name: timing.changed for timing in timings} == {"there": False, "absent": True}


def test_a_step_starts_after_those_it_needs() -> None:
    log: list[str] = []
    steps = [
        Scripted("c", [missing(), ready()], ("b",), log=log),
        Scripted("b", [missing(), ready()], ("a",), log=log),
        Scripted("a", [missing(), ready()], log=log),
    ]
    graph.up(steps, Diary())
    assert log == ["apply a", "apply b", "apply c"]


def test_independent_steps_run_side_by_side() -> None:
    # Each waits inside its apply for the other: one after the other they would never meet.
    meeting = threading.Barrier(2, timeout=10)

    def meet() -> None:
        meeting.wait()

    graph.up([Scripted(name, [missing(), ready()], on_apply=meet) for name in ("left", "right")], Diary())


def test_a_pending_step_is_waited_for_and_not_applied() -> None:
    scripted = Scripted("one", [pending("half"), pending("nearly"), ready()])
    diary = Diary()
    (timing,) = graph.up([scripted], diary)
    assert scripted.log == []
    assert not timing.changed
    assert "one: half" in diary.lines
    assert diary.lines[-1] == "ready one"


def test_what_vanishes_while_it_is_waited_for_is_made_anew() -> None:
    scripted = Scripted("one", [pending(), missing(), pending(), ready()])
    graph.up([scripted], Diary())
    assert scripted.log == ["apply one"]


SILENT = ClusterUnreachable("no answer", hint="")


@pytest.mark.parametrize(
    ("script", "patience", "error", "message", "times"),
    [
        # What vanishes after it was made is an error at once.
        ([missing(), pending(), missing("gone")], 10, NotReady, "the one did not come up: gone", 1),
        ([pending("stuck")] * 100, 0.2, NotReady, r"not ready after 0\.2 s: stuck", 0),
        # Enough for 0.2 s, not for the step's patience of 10 s.
        ([pending(), *[SILENT] * 8], 10, ClusterUnreachable, "no answer", 0),
        ([missing(), *[SILENT] * 100], 0, ClusterUnreachable, "no answer", 1),
        # What has drifted is left alone.
        ([drifted("cpus is 2")], 10, Drifted, "cpus is 2", 0),
    ],
)
def test_what_does_not_become_ready_is_an_error(
    script: list[Status | RaysideError],
    patience: float,
    error: type[RaysideError],
    message: str,
    times: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(graph, "_LONGEST_SILENCE", 0.2)
    scripted = Scripted("one", [*script], patience=patience)
    with pytest.raises(error, match=message):
        graph.up([scripted], Diary())
    assert scripted.log == ["apply one"] * times


def test_what_gives_up_is_made_once_more_and_not_again() -> None:
    gave_up = missing("it took too long", gave_up=True)
    scripted, diary = Scripted("one", [missing(), gave_up, pending(), ready()]), Diary()
    graph.up([scripted], diary)
    assert scripted.log == ["apply one"] * 2
    assert "one: once more, for it took too long" in diary.lines
    scripted = Scripted("one", [missing(), gave_up, gave_up])
    with pytest.raises(NotReady, match="the one did not come up: it took too long"):
        graph.up([scripted], Diary())
    assert scripted.log == ["apply one"] * 2


def test_what_is_silent_for_a_moment_is_waited_for() -> None:
    scripted = Scripted("one", [missing(), NotRunning("no answer", hint=""), pending(), ready()])
    diary = Diary()
    graph.up([scripted], diary)
    assert scripted.log == ["apply one"]
    assert "one: no answer" in diary.lines


@pytest.mark.parametrize("goes_on", [False, True])
def test_after_a_failure_nothing_that_needs_it_starts_and_all_else_may(goes_on: bool) -> None:
    def fail() -> None:
        raise PortTaken("taken", hint="free it")

    bad = Scripted("bad", [missing()], on_apply=fail)
    after = Scripted("after", [missing(), ready()], ("bad",))
    others = [Scripted(f"other {number}", [missing(), ready()]) for number in range(5 * goes_on)]
    with pytest.raises(PortTaken):
        graph.up([bad, after, *others], diary := Diary(), at_once=1, goes_on=goes_on)
    assert after.log == []
    assert "failed bad" in diary.lines
    assert all(other.log for other in others)
    # Only the first error is raised; of each of them it is said why.
    assert diary.details["bad"] == "taken" or not goes_on


def test_so_many_steps_run_at_once_and_no_more() -> None:
    running = 0
    most = 0
    lock = threading.Lock()
    are_two = threading.Event()

    def count() -> None:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
            if running == 2:
                are_two.set()
        assert are_two.wait(10)
        with lock:
            running -= 1

    steps = [Scripted(f"step {number}", [missing(), ready()], on_apply=count) for number in range(6)]
    assert len(graph.up(steps, Diary(), at_once=2)) == 6
    assert most == 2
    graph.down(steps, Diary(), at_once=2)
    assert all(each.log[-1].startswith("undo") for each in steps)


@pytest.mark.usefixtures("python_signals")
@pytest.mark.parametrize("wakes", [True, False])
def test_ctrl_c_interrupts_what_runs_and_is_raised(wakes: bool) -> None:
    interrupted: list[str] = []
    released = threading.Event()

    def block() -> None:
        # As Ctrl-C does: a signal to the main thread, while a step is at work. One that comes just before
        # that thread blocks does not wake it, and neither does one that another thread gets.
        main = threading.main_thread().ident or 0
        released.wait(0.2)  # until that thread blocks; where it does not yet, there is nothing to miss
        signal.pthread_kill(main if wakes else threading.get_ident(), signal.SIGINT)
        if not released.wait(10):
            interrupted.append("late")

    def interrupt() -> None:
        interrupted.append("yes")
        released.set()

    with pytest.raises(KeyboardInterrupt):
        graph.up([Scripted("one", [missing(), ready()], on_apply=block)], Diary(), interrupt=interrupt)
    assert interrupted == ["yes"]


def test_down_undoes_the_dependants_first() -> None:
    log: list[str] = []
    graph.down([Scripted("a", [], log=log), Scripted("b", [], ("a",), log=log)], Diary())
    assert log == ["undo b", "undo a"]


def test_down_tells_only_of_what_was_there() -> None:
    class Empty(Scripted):
        def undo(self, report: Report) -> None:
            pass

    diary = Diary()
    graph.down([Scripted("a", []), Empty("b", [])], diary)
    assert diary.lines == ["started a", "a: going", "done a"]


def test_check_tells_every_step_and_survives_an_error() -> None:
    taken = PortTaken("taken", hint="free it")
    statuses = graph.check([Scripted("b", [ready("fine")]), Scripted("a", [taken])])
    assert list(statuses) == ["b", "a"]
    assert statuses["a"] == Status(Condition.MISSING, "taken", taken)
    assert statuses["b"].detail == "fine"


@dataclass(frozen=True)
class Bare:
    """A step that only looks: it can't be made, gets no time and is not undone."""

    status: Status
    name: str = "bare"
    title: str = "a bare step"
    needs: tuple[str, ...] = ()

    def check(self) -> Status:
        return self.status


def test_a_step_needs_no_more_than_a_check() -> None:
    diary = Diary()
    (timing,) = graph.up([Bare(ready("seen"))], diary)
    assert not timing.changed
    graph.down([Bare(ready())], diary)
    assert diary.lines == ["started bare", "kept bare"]
    with pytest.raises(NotReady, match="not ready after 0 s"):
        graph.up([Bare(pending())], diary)
    with pytest.raises(AssertionError, match="its check has to raise"):
        graph.up([Bare(missing())], diary)


def test_the_critical_path_is_the_chain_that_took_longest() -> None:
    steps = [
        Scripted("root", []),
        Scripted("slow", [], ("root",)),
        Scripted("quick", [], ("root",)),
        Scripted("last", [], ("slow", "quick")),
    ]
    seconds = {"root": 1.0, "slow": 5.0, "quick": 2.0, "last": 1.0}
    timings = [Timing(name, 0.0, duration, True) for name, duration in seconds.items()]
    assert critical_path({each.name: each.needs for each in steps}, timings) == ["root", "slow", "last"]


def test_what_needs_a_step_is_found_along_every_chain() -> None:
    steps = [
        Scripted("last", [], ("between", "other")),
        Scripted("between", [], ("root", "elsewhere")),
        Scripted("root", []),
        Scripted("other", []),
    ]
    assert graph.dependants(steps, "root") == {"root", "between", "last"}
    assert graph.dependants(steps, "last") == {"last"}


def test_what_is_not_among_the_steps_is_taken_as_given() -> None:
    """It holds for going up, going down and the critical path alike."""
    log: list[str] = []
    alone = Scripted("alone", [missing(), ready()], needs=("elsewhere",), log=log)
    timings = graph.up([alone], Diary())
    assert timings[0].changed
    graph.down([alone], Diary())
    assert log == ["apply alone", "undo alone"]
    assert critical_path({alone.name: alone.needs}, timings) == ["alone"]
