"""The console: what goes where, on a terminal, elsewhere, and with JSON."""

import io
import json

from bootstrap.console import Console
from bootstrap.errors import LowDisk


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
    console.error(LowDisk("0.1 GiB is free", hint="free some"))
    assert err.getvalue() == "error[low-disk]: 0.1 GiB is free\n hint: free some\n"
    assert out.getvalue() == ""


def test_an_error_is_a_document_where_json_was_asked_for() -> None:
    console, out, err = streams(as_json=True)
    console.error(LowDisk("0.1 GiB is free", hint="free some"))
    assert json.loads(out.getvalue())["error"]["id"] == "low-disk"
    assert err.getvalue() == ""


def test_on_a_terminal_finished_work_stays_and_running_work_is_drawn() -> None:
    screen = Terminal()
    console = Console(out=io.StringIO(), err=screen)
    with console.progress():
        console.started("ray", "Ray")
        console.note("ray", "starting [up]")
        console.finished("ray", "Ray", "ready", "[it] answers")
    assert "✓ " in screen.getvalue()
    assert "Ray: ready, [it] answers" in screen.getvalue()


def test_columns_are_as_wide_as_their_widest_cell() -> None:
    console, out, _ = streams()
    console.table(("step", "detail"), [("a-long-name", "x"), ("b", "")])
    assert out.getvalue().splitlines() == ["step         detail", "a-long-name  x", "b"]
