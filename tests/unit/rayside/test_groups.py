"""Tests groups of tasks: who belongs to one, what is typed, and how an answer is drawn."""

from __future__ import annotations

from typing import Any

import pytest

from rayside.dap.group_commands import Command, command, drawn, target
from rayside.relay.group_members import Selector
from rayside.relay.schemas import Refused

RANK_3 = {
    **{"task": "Trainer.step", "node": "10.0.0.4", "job": "01000000", "submission": "raysubmit_1"},
    **{"worker_id": "w1", "pid": 7, "actor": "Trainer", "actor_id": "a1", "actor_name": "", "rank": 3},
}
NOBODY = {**dict.fromkeys(RANK_3, ""), "pid": 8, "rank": None}


@pytest.mark.parametrize(
    "text",
    [
        *("all", "ranks", "actor:Trainer", "actor: Trainer ", "node:10.0.0.4", "task:Trainer.step"),
        *("job:01000000", "job:raysubmit_1", " ray.rank == 3 ", "ray.rank in (1, 3)", "ray.rank % 2 == 1"),
        *("ray.rank is not None and not ray.rank < 3", "2 < ray.rank <= 3", "ray.rank > -1"),
        *(
            "ray.node.startswith(('10.', '11.'))",
            "'step' in ray.task",
            "ray.actor in ['Trainer'] or ray.node_id",
        ),
    ],
)
def test_who_belongs(text: str) -> None:
    assert Selector.of(text).takes(RANK_3)
    assert Selector.of(text).takes(NOBODY) is (text == "all")


@pytest.mark.parametrize(
    "text", ["ray.rank < 4", "ray.rank % 2 == 0", "ray.rank.startswith('3')", "ray.rank > 'a'"]
)
def test_who_can_not_be_compared_does_not_belong(text: str) -> None:
    assert not Selector.of(text).takes(NOBODY)


def test_a_name_of_a_task_may_hold_anything() -> None:
    assert Selector.of('task:it\'s "mine" {x}').takes({"task": 'it\'s "mine" {x}'})


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "there is no expression"),
        ("slow", "'slow' is no group"),
        ("actor:", "it is no Python expression"),
        ("ray.rank =", "it is no Python expression"),
        ("ray.attempt > 0", "no 'attempt'"),
        *(
            (text, "nothing that a group can be told by")
            for text in (
                *("ray.get_actor('x')", "ray.task.__class__", "ray.task.format(ray)", "ray.task * 9"),
                *("'%99999999d' % ray.rank", "ray.task % 3", "9 ** 9 ** 9", "[x for x in ray.task]"),
                *("(lambda: 1)()", "open('/etc/passwd')", "ray.task.startswith(*ray.task)", "(x := 1)"),
                "ray.rank == b'1'",
            )
        ),
        ("ray.__class__", "no '__class__'"),
        ("(" * 60 + ")" * 60, "nested too deeply"),
        ("ray.rank == 1" + " " * 5_000 + "or 1", "the expression has"),
    ],
)
def test_what_is_no_group_is_refused_with_what_can_be_typed(text: str, why: str) -> None:
    with pytest.raises(Refused) as refused:
        Selector.of(text)
    assert why in str(refused.value)
    assert "ranks" in str(refused.value) or "of `ray`, a group has" in str(refused.value)


def test_only_what_the_processes_alone_know_is_asked() -> None:
    assert not any(Selector.of(text).asks for text in ("all", "node:1", "task:x", "job:1", "ray.pid > 3"))
    assert all(Selector.of(text).asks for text in ("ranks", "actor:X", "ray.pid > 3 or ray.node_id == ''"))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("@", None),
        ("@ranks", Command("ranks")),
        ("@ranks next", Command("ranks", "next")),
        ("@task:my next task step within 60", Command("task:my next task", "step", 60)),
        ("@ray.rank == 3 continue", Command("ray.rank == 3", "continue")),
        ("@ray.rank == 3 pause within 5 s", Command("ray.rank == 3", "pause", 5)),
        ("@slow == 3", Command("slow == 3")),
        ("@next", Command("next")),
        ("ranks next", None),
    ],
)
def test_what_is_typed_in_a_debug_console(text: str, expected: Command | None) -> None:
    assert command(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("@ranks", Command("ranks")),
        ("@ray.rank in (0, 1) within 7", Command("ray.rank in (0, 1)", within=7)),
        ("@task:next", Command("task:next")),
        ("@", None),
        ("@ranks within 1000", Command("ranks within 1000")),
    ],
)
def test_what_follows_a_word_of_the_terminal(text: str, expected: Command | None) -> None:
    assert target(text) == expected


def row(rank: int, state: str = "stopped", line: int = 3, **more: Any) -> dict[str, Any]:
    place = {"file": "/here/train.py", "line": line, "function": "train"}
    who = {"task": "train", "pid": 100 + rank, "node": "10.0.0.4", "thread": "", "workerId": f"w{rank}"}
    return {**who, "rank": rank, "state": state, "why": "", "place": place, "own": None, **more}


def answer(*rows: dict[str, Any], action: str = "next") -> dict[str, Any]:
    shape = {"group": "ranks", "selector": "ray.rank is not None", "action": action, "seconds": 10}
    return {**shape, "members": list(rows)}


def test_who_is_late_and_who_has_ended_comes_first() -> None:
    top = {"file": "/lib/c10d.py", "line": 9, "function": "all_reduce"}
    own = {"file": "/here/train.py", "line": 2, "function": "train"}
    rows = [
        *(row(rank) for rank in range(5)),
        row(5, line=4),
        row(6, "late", place=top, own=own),
        row(7, "ended", place=None, why="the kernel\x1b[2J killed it"),
        row(8, "running", place=None),
        row(9, "unknown", place=None, why="it did not answer"),
    ]
    assert list(drawn(answer(*rows))) == [
        "@ranks  (ray.rank is not None): 8 members",
        "1 late after 10 s, in all_reduce  /lib/c10d.py:9, called from train  /here/train.py:2",
        *("     train · 106@10.0.0.4 (rank 6)", "1 ended: the kernel\\x1b[2J killed it"),
        *("     train · 107@10.0.0.4 (rank 7)", "1 perhaps a member: it did not answer"),
        *("     train · 109@10.0.0.4 (rank 9)", "1 stopped at train  /here/train.py:4"),
        *("     train · 105@10.0.0.4 (rank 5)", "5 stopped at train  /here/train.py:3"),
        f"     {'; '.join(f'train · {100 + rank}@10.0.0.4 (rank {rank})' for rank in range(3))}; 2 more",
        "1 running, and left out",
        "     train · 108@10.0.0.4 (rank 8)",
    ]


def test_of_many_places_the_first_are_drawn() -> None:
    lines = list(drawn(answer(*(row(rank, line=rank) for rank in range(1, 31)))))
    assert len(lines) == 1 + 2 * 20 + 1
    assert lines[-1] == "10 more, elsewhere"
