"""Tests the console: what goes where, on a terminal, elsewhere, and with JSON."""

import io
import json
import threading
from collections.abc import Callable

import pytest

from rayside.console import Console
from rayside.errors import PortTaken


class Terminal(io.StringIO):
    """A text stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def streams(*, as_json: bool = False) -> tuple[Console, io.StringIO, io.StringIO]:
    out, err = io.StringIO(), io.StringIO()
    return Console(as_json, out=out, err=err), out, err


def test_results_and_progress_go_to_different_streams() -> None:
    console, out, err = streams()
    console.started("ray", "Ray")
    console.note("ray", "starting")
    console.finished("ray", "Ray", "ready", "it answers")
    console.result("done")
    assert out.getvalue() == "done\n"
    first, last = err.getvalue().splitlines()
    assert first == "Ray: starting"
    assert last.startswith("Ray: ready, it answers (0.")


def test_off_a_terminal_the_same_work_tells_little() -> None:
    console, _, err = streams()
    console.started("pip", "packages")
    for number in range(100):
        console.note("pip", f"package {number}")
    assert err.getvalue().splitlines() == ["packages: package 0"]


def test_json_leaves_nothing_but_the_document_on_standard_output() -> None:
    console, out, _ = streams(as_json=True)
    console.result("hello")
    console.output("text")
    console.table(("a", "b"), [("1", "2")])
    console.document({"ok": True})
    assert json.loads(out.getvalue()) == {"ok": True}


def test_an_error_says_id_message_and_hint() -> None:
    console, out, err = streams()
    console.error(PortTaken("0.1 GiB is free", hint="free some"))
    assert err.getvalue() == "error[port-taken]: 0.1 GiB is free\n hint: free some\n"
    assert out.getvalue() == ""
    # Where JSON was asked for it is a document.
    console, out, err = streams(as_json=True)
    console.error(PortTaken("0.1 GiB is free", hint="free some"))
    document = {"id": "port-taken", "message": "0.1 GiB is free", "hint": "free some"}
    assert json.loads(out.getvalue()) == {"error": document}
    assert err.getvalue() == ""


def test_on_a_terminal_finished_work_stays_and_running_work_is_drawn() -> None:
    screen = Terminal()
    console = Console(cluster="mine", out=io.StringIO(), err=screen)
    with console.progress():
        console.started("ray", "Ray")
        console.note("ray", "starting [up]")
        console.finished("ray", "Ray", "ready", "[it] answers; ./invokew debug")
    assert "✓ " in screen.getvalue()
    assert "Ray: ready, [it] answers; ./invokew debug --name mine (" in screen.getvalue()


@pytest.mark.parametrize(
    "shows",
    [
        lambda console: console.finished("ray", "Ray", "ready", "it answers"),
        lambda console: console.event("something happened"),
        lambda console: console.note("ray", "starting"),
    ],
    ids=["finished", "event", "note"],
)
def test_who_speaks_while_the_display_is_drawn_does_not_stop_it(shows: Callable[[Console], None]) -> None:
    """Both have a lock, and want the other's: `up` stood still for good."""
    console = Console(out=io.StringIO(), err=Terminal())
    console.started("ray", "Ray")
    with console.progress():
        assert console._live is not None
        says = threading.Thread(target=shows, args=(console,), daemon=True)
        draws = threading.Thread(target=console._render, daemon=True)
        # Rich has it while it draws.
        with console._live._lock:
            says.start()
            says.join(0.3)
            draws.start()
            draws.join(10)
            assert not draws.is_alive()
        says.join(10)
        assert not says.is_alive()


def test_columns_are_as_wide_as_their_widest_cell_and_a_cell_is_one_line() -> None:
    console, out, _ = streams()
    console.table(("step", "detail"), [("a-long-name", "x"), ("b\nerror: b", "")])
    assert out.getvalue().splitlines() == ["step         detail", "a-long-name  x", "b\\nerror: b"]


@pytest.mark.parametrize(
    ("advice", "shown"),
    [
        ("./invokew up goes on", "./invokew up --name demo goes on"),
        ("./invokew down, then ./invokew up", "./invokew down --name demo, then ./invokew up --name demo"),
        ("./invokew logs --job a --follow", "./invokew logs --name demo --job a --follow"),
        ("./invokew down --name other removes it", "./invokew down --name other removes it"),
        ("./invokew up --target local --name demo", "./invokew up --target local --name demo"),
        (
            "./invokew up; ./invokew down --name other removes it",
            "./invokew up --name demo; ./invokew down --name other removes it",
        ),
        ("./invokew up, or ./invokew up --name b", "./invokew up --name demo, or ./invokew up --name b"),
        ("./invokew list", "./invokew list"),
        ("./invokew upper", "./invokew upper"),
    ],
)
def test_what_is_advised_is_for_the_cluster_that_is_meant(advice: str, shown: str) -> None:
    for cluster, expected in (("demo", shown), ("rayside", advice)):
        out, err = io.StringIO(), io.StringIO()
        console = Console(False, cluster, out, err)
        console.result(advice)
        console.error(PortTaken("full", hint=advice))
        assert out.getvalue() == f"{expected}\n"
        assert err.getvalue().splitlines()[1] == f" hint: {expected}"
        document = io.StringIO()
        Console(True, cluster, document, err).error(PortTaken("full", hint=advice))
        assert json.loads(document.getvalue())["error"]["hint"] == expected


COMMAND = "\x1b]52;c;eA==\x07\x9b2J\u202e"


def test_nothing_that_is_shown_commands_the_terminal() -> None:
    """It tries each way in, one after another, on a terminal and elsewhere, with JSON and without."""
    for as_json in (False, True):
        for stream in (io.StringIO, Terminal):
            out, err = stream(), stream()
            console = Console(as_json, out=out, err=err)
            with console.progress():
                console.started("name", f"title{COMMAND}")
                console.note("name", f"note{COMMAND}")
                console.event(f"event{COMMAND}")
                console.finished("name", f"title{COMMAND}", "failed", f"detail{COMMAND}")
            console.result(f"result{COMMAND}")
            console.table((f"head{COMMAND}", "b"), [(f"cell{COMMAND}", f"last{COMMAND}")])
            console.output(f"output{COMMAND}")
            console.document({f"name{COMMAND}": [f"value{COMMAND}"]})
            console.error(PortTaken(f"message{COMMAND}", hint=f"hint{COMMAND}"))
            shown = out.getvalue() + err.getvalue()
            for bad in ("\x1b]", "\x07", "\x9b", "\u202e"):
                assert bad not in shown, (as_json, stream, bad)
            assert all(word in shown for word in ("event", "title", "value", "message"))


def test_a_style_is_drawn_only_where_there_is_colour(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    screen = Terminal()
    Console(out=screen).result("here \x1b[31m", style="current")
    assert screen.getvalue() == "\x1b[1;33mhere \\x1b[31m\x1b[0m\n"
    monkeypatch.setenv("NO_COLOR", "1")
    screen = Terminal()
    Console(out=screen).result("here", style="current")
    assert screen.getvalue() == "here\n"
    console, out, _ = streams()
    console.result("here", style="current")
    assert out.getvalue() == "here\n"


def test_a_programs_colours_show_on_terminals_its_commands_nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    screen, pipe = Terminal(), io.StringIO()
    for stream in (screen, pipe):
        Console(out=stream).output(f"\x1b[32mgreen{COMMAND}\x1b[0m\n")
    assert screen.getvalue() == "\x1b[32mgreen\\u202e\x1b[0m\n"
    assert pipe.getvalue() == "green\\u202e\n"
