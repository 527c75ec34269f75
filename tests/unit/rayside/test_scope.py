"""Tests `ray` in the conditions and messages of breakpoints: which of it is ours, and which the program's."""

from __future__ import annotations

import asyncio
import json
import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from rayside.dap.expressions import DEEPEST, LONGEST
from rayside.relay.connection import Connection
from rayside.relay.debuggee import Debuggee
from rayside.relay.translation import evaluated
from rayside.worker.evaluated import PROTOCOL, scope


class Context:
    def get_task_name(self) -> str:
        return "train"

    def get_job_id(self) -> str:
        return "01000000"

    def get_node_id(self) -> None:
        return None


@pytest.fixture
def ray(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Has a module `ray`, as a process of Ray's has it, and the modules of ours."""
    module = ModuleType("ray")
    vars(module).update(get_runtime_context=Context, cluster_resources=lambda: {"CPU": 2}, task="a module's")
    monkeypatch.setitem(sys.modules, "ray", module)
    monkeypatch.setitem(sys.modules, "rayside.worker.evaluated.scope", scope)
    return module


@pytest.fixture
def worker(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """Has Ray's worker, of an actor in its second try."""

    class Trainer:
        pass

    class Identity(str):
        def is_nil(self) -> bool:
            return False

        def hex(self) -> str:
            return str(self)

    identity = Identity("a1")
    config = SimpleNamespace(metadata={"job_submission_id": "raysubmit_1"})
    worker = SimpleNamespace(
        mode=1,
        actors={identity: Trainer()},
        actor_id=identity,
        actor_name="boss",
        node_ip_address="10.0.0.4",
        core_worker=SimpleNamespace(get_current_task_attempt_number=lambda: 1, get_job_config=lambda: config),
    )
    module = ModuleType("ray._private.worker")
    vars(module).update(SCRIPT_MODE=0, global_worker=worker)
    monkeypatch.setitem(sys.modules, "ray._private.worker", module)
    return worker


def test_a_process_tells_what_holds_in_all_its_threads(
    ray: ModuleType, worker: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RANK", "3")
    actor = {"actor": "Trainer", "actor_id": "a1", "actor_name": "boss"}
    assert json.loads(scope.of_process()) == {**actor, "rank": 3, "node_id": ""}


def value(expression: str, names: dict[str, Any] | None = None, **own: Any) -> Any:
    """Returns what a condition gives in a frame with these globals and locals."""
    return eval(scope.compiled(expression, "<condition>"), names or {}, own)


def test_a_condition_says_where_it_holds(ray: ModuleType, worker: SimpleNamespace) -> None:
    assert value("ray.task == 'train' and ray.actor == 'Trainer' and ray.actor_name == 'boss'")
    seen = ("10.0.0.4", "01000000", "raysubmit_1", 1, "a1")
    assert value("ray.node, ray.job, ray.submission, ray.attempt, ray.actor_id") == seen
    worker.mode = 0
    assert value("ray.task") == "driver"


def test_what_does_not_apply_is_empty(ray: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RANK", raising=False)
    names = ("actor", "actor_id", "actor_name", "node", "node_id", "submission", "task_id", "worker_id")
    assert [value(f"ray.{name}") for name in names] == [""] * len(names)
    assert value("ray.rank is None and ray.attempt == 0")
    monkeypatch.setenv("RANK", "3")
    assert value("ray.rank == 3")


def test_the_rank_is_ray_trains_where_that_has_one(ray: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "3")
    session = ModuleType("ray.train._internal.session")
    session.get_session = lambda: SimpleNamespace(world_rank=5)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "ray.train._internal.session", session)
    assert value("ray.rank") == 5
    context = ModuleType("ray.train.v2._internal.execution.context")
    context.get_train_context = lambda: SimpleNamespace(get_world_rank=lambda: 7)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "ray.train.v2._internal.execution.context", context)
    assert value("ray.rank") == 7


def test_what_the_module_has_is_there_also_where_it_was_not_imported(ray: ModuleType) -> None:
    for names in ({"ray": ray}, {}):
        assert value("ray.cluster_resources()['CPU'] == 2 and ray.get_runtime_context().get_job_id()", names)
        assert value("ray.task", names) == "train"


def test_the_module_ray_actor_is_the_programs_where_something_of_it_is_named(ray: ModuleType) -> None:
    actor = vars(ray)["actor"] = SimpleNamespace(ActorHandle=int)
    names = {"ray": ray, "h": 3}
    assert value("isinstance(h, ray.actor.ActorHandle) and ray.task == 'train'", names)
    assert value("[ray.actor.ActorHandle for _ in (1,)]", names) == [int]
    assert value("ray.actor", names) == ""
    # What every text has is the text's.
    assert value("ray.actor.upper() == '' and not ray.actor.startswith('T')", names)
    assert actor.ActorHandle is int


def test_a_variable_of_the_programs_that_is_called_ray_is_left_alone(ray: ModuleType) -> None:
    beam = SimpleNamespace(task="light", length=4)
    assert value("ray.task", ray=beam) == "light"
    assert value("ray.length > 3", {"ray": beam})
    assert value("[ray.length for _ in (1, 2)]", ray=beam) == [4, 4]
    # A local one hides the module, as in the program.
    assert value("ray.task", {"ray": ray}, ray=beam) == "light"
    # What the expression itself calls so is neither.
    assert value("any(ray.length == 4 for ray in rays)", {"rays": [beam]})
    assert value("(lambda ray: ray.length)(beam)", {"beam": beam}) == 4


def test_ray_is_ours_inside_of_what_runs_in_a_frame_of_its_own(ray: ModuleType) -> None:
    names = {"ray": ray, "tasks": ["x", "train"]}
    assert value("any(task == ray.task for task in tasks)", names)
    assert value("(lambda: [ray.task for _ in (1,)])()", names) == ["train"]
    assert value("f'{ray.task}: {ray.pid > 0}'", names) == "train: True"


def test_what_does_not_name_ray_is_compiled_as_it_is() -> None:
    for text in ("x.ray > 3", "'ray.task' in names", "rays[0]", "x > 3"):
        expected = compile(text, "<condition>", "eval")
        assert scope.compiled(text, "<condition>").co_code == expected.co_code


def test_nothing_can_be_set_or_made_up(ray: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("task", "other"):
        with pytest.raises(AttributeError):
            value(f"setattr(ray, '{name}', 'x')")
    with pytest.raises(AttributeError, match="no attribute 'nodes'"):
        value("ray.nodes")
    monkeypatch.delitem(sys.modules, "ray")
    with pytest.raises(AttributeError, match="of ours, `ray` has task, task_id, attempt, actor"):
        value("ray.nodes")


# --- in the debug console, where the relay reads what is evaluated -----------------------


async def in_console(expression: str) -> str:
    """Returns what a debuggee that is not attached would get to evaluate."""
    debuggee = Debuggee("w1", "127.0.0.1", 1, 1, "127.0.0.1", "01000000", as_of=0.0)
    connection = Connection(debuggee, lambda event: None)
    connection.protocol = PROTOCOL
    sent = evaluated(connection, {"expression": expression})
    return str(sent["expression"])


@pytest.mark.parametrize(
    "expression",
    [
        "ray.task or " + "+".join(["1"] * 1900),
        "ray.task or " + "1" * LONGEST,
        "ray.task or " + "(" * (DEEPEST + 1) + "1" + ")" * (DEEPEST + 1),
        "ray.task or " + "lambda: " * (DEEPEST + 1) + "1",
        "ray.task +",
        "ray.task\0",
    ],
    ids=["long", "longest", "deep", "lambdas", "unread", "null"],
)
def test_what_the_relay_can_not_compile_within_bounds_is_evaluated_as_it_is(expression: str) -> None:
    assert asyncio.run(in_console(expression)) == expression
    assert asyncio.run(in_console("ray.task or 1")) == f"{scope.CALL}.task or 1"
