"""Tests how stacks are merged to a tree, and how the tree is drawn."""

from __future__ import annotations

import json
from typing import Any

from rayside.dap.drawn_stacks import drawn
from rayside.relay.messages import Frame
from rayside.relay.stacks import Thread, merged


def thread(number: int, *frames: str, name: str = "MainThread", stopped: bool = False) -> Thread:
    """Returns a thread of process `number`; a frame is `FUNCTION:LINE`, of a library with `~` before it."""
    stack = []
    for frame in frames:
        function, _, line = frame.removeprefix("~").partition(":")
        own = not frame.startswith("~")
        stack.append(Frame("train.py" if own else "/lib/torch.py", own, int(line), function, own))
    return Thread(f"w{number}", f"train rank {number}", name, stopped, stack)


def tree(*threads: Thread) -> list[dict[str, Any]]:
    rows, number = merged(threads)
    assert number == len(threads)
    return rows


def answer(*threads: Thread, **more: Any) -> dict[str, Any]:
    processes = len({thread.worker_id for thread in threads})
    whole = {"processes": processes, "threads": len(threads), "left_out": 0, "unanswered": []}
    return {**whole, **more, "stacks": tree(*threads)}


RANKS = [*(thread(n, "main:9", "step:20", "~all_reduce:5") for n in range(7)), thread(7, "main:9", "load:31")]


def test_what_stacks_have_in_common_is_there_once_and_counted() -> None:
    (main,) = tree(*RANKS)
    assert (main["function"], main["file"], main["lines"]) == ("main", "train.py", [[9, 8]])
    assert (main["threads"], main["processes"], main["here"]) == (8, 8, [])
    step, load = main["calls"]
    assert (step["function"], step["threads"], step["odd"]) == ("step", 7, False)
    assert (load["function"], load["threads"], load["odd"]) == ("load", 1, True)
    assert [here["worker_id"] for here in step["calls"][0]["here"]] == [f"w{n}" for n in range(7)]


def test_threads_at_several_lines_of_a_function_are_one_group_with_its_lines() -> None:
    (work,) = tree(thread(1, "work:3"), thread(2, "work:3"), thread(3, "work:4"))
    assert work["lines"] == [[3, 2], [4, 1]]
    assert [here["line"] for here in work["here"]] == [3, 3, 4]
    # Two threads of one process are two threads of one process.
    (work,) = tree(thread(1, "work:3"), thread(1, "work:3", name="feeder"))
    assert (work["threads"], work["processes"]) == (2, 1)
    assert [here["thread"] for here in work["here"]] == ["MainThread", "feeder"]


def test_without_a_crowd_nothing_is_odd() -> None:
    (main,) = tree(thread(1, "main:9", "step:20"), thread(2, "main:9", "load:31"))
    assert [call["odd"] for call in main["calls"]] == [False, False]
    (main,) = tree(*RANKS[:4], *(thread(n, "main:9", "load:31") for n in range(7, 10)))
    assert [call["odd"] for call in main["calls"]] == [False, False]


def test_a_recursion_is_a_chain() -> None:
    (outer,) = tree(thread(1, "deep:2", "deep:2", "deep:3"))
    assert outer["calls"][0]["calls"][0]["lines"] == [[3, 1]]


def test_the_tree_is_drawn_with_the_odd_one_out() -> None:
    assert [*drawn(answer(*RANKS))] == [
        *("8 threads of 8 processes", "8  main  train.py:9", "├─ 7  step  train.py:20"),
        *("│  7  all_reduce  /lib/torch.py:5", "│       train rank 0; train rank 1; train rank 2; 4 more"),
        *("└─ 1  load  train.py:31  <- the odd one out", "        train rank 7"),
    ]


def test_calls_in_libraries_are_shortened_and_those_outside_of_the_users_left_out() -> None:
    threads = [
        thread(1, "~run:1", "~worker:2", "work:3", *(f"~f{n}:{n}" for n in range(5)), stopped=True),
        thread(1, "~run:1", "~poll:7", name="poller"),
    ]
    assert [*drawn(answer(*threads))] == [
        *("2 threads of 1 process", "1  work  train.py:3", "1  f0  /lib/torch.py:0"),
        *("...  3 calls in libraries", "1  f4  /lib/torch.py:4", "     train rank 1, stopped"),
        "1 more thread in no code of yours (--json has them)",
    ]


def test_a_function_that_calls_and_is_where_others_are_shows_both() -> None:
    threads = [thread(1, "work:3"), thread(2, "work:4", "inner:9", name="feeder")]
    assert [*drawn(answer(*threads))][1:] == [
        *("2  work  train.py:3 (1), :4 (1)", "│    train rank 1", "└─ 1  inner  train.py:9"),
        "        train rank 2 (feeder)",
    ]


def test_what_is_missing_is_said_and_no_name_reaches_the_terminal_raw() -> None:
    odd = Thread("w1", "evil\x1b[2J", "t\n", False, [Frame("a\x1b]0;x\x07.py", False, 1, "f\u202e", True)])
    missing = [{"worker_id": "w2", "task": "slow\x1b[1m", "why": "it did not answer"}]
    rows = [*drawn(answer(odd, unanswered=missing, left_out=3))]
    assert rows[-2:] == ["3 threads left out: too many", "slow\\x1b[1m is not among them: it did not answer"]
    assert not [row for row in rows if not row.isprintable()]


def test_a_tree_is_bounded_and_the_first_threads_are_in_it() -> None:
    threads = [thread(n, f"main{n}:1", f"step{n}:2") for n in range(1_000)]
    whole = len(json.dumps(merged(threads)[0]))
    rows, number = merged(threads, whole // 10)
    assert [row["function"] for row in rows] == sorted(f"main{n}" for n in range(number))
    assert 0.6 * whole / 10 < len(json.dumps(rows)) < 1.4 * whole / 10
