"""Tests `ray` in conditions, messages and the debug console of real debuggees, and what can't be read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rayside.worker.evaluated.scope import NAMES
from tests.integration.rayside.test_relay_scripted import scripted
from tests.integration.relay_debuggees import Session, relay_over
from tests.integration.scripted_debuggees import FILE

pytestmark = pytest.mark.usefixtures("answers_in_full")

# It has Ray's module in `work` alone.
WORK = """\
def work(x):
    import ray
    return x
def trace(ray):
    return ray.task
class Beam:
    task = "light"
print(work(1), flush=True)
trace(Beam())
print("done", flush=True)
"""


@pytest.mark.parametrize(
    "condition",
    [
        "ray.task == 'task-2'",
        "x == 1 and any(name == ray.task for name in ('task-2',))",
        "ray.get_runtime_context().get_task_name() == 'task-2'",
        "ray.task == 'task-2' and ray.job == '01000000' and ray.actor == '' and ray.pid > 1",
    ],
)
@pytest.mark.parametrize("line", [2, 3])
async def test_only_the_task_stops_that_the_condition_names(
    tmp_path: Path, condition: str, line: int
) -> None:
    async with relay_over(tmp_path) as setting:
        processes = await setting.cluster.start(WORK, count=3)
        editor = await setting.attach({"job.py": [{"line": line, "condition": condition}]})
        stop = await editor.event("stopped")
        assert stop["ray"]["task"] == "task-2"
        await editor.resume(stop)
        assert [(await process.end())[-1] for process in processes] == ["done"] * 3
        await editor.nothing("stopped", 0)


async def test_a_message_and_a_function_have_it_too(tmp_path: Path) -> None:
    async with relay_over(tmp_path) as setting:
        (process,) = await setting.cluster.start(WORK)
        function = {"name": "work", "condition": "ray.task == 'task-1'"}
        editor = await setting.attach(
            {"job.py": [{"line": 3, "logMessage": "{x} in {ray.task}, {ray.pid}"}]},
            requests={"setFunctionBreakpoints": {"breakpoints": [function]}},
        )
        stop = await editor.event("stopped", reason="function breakpoint")
        await editor.resume(stop)
        output = await editor.event("output", category="stdout")
        assert output["output"].endswith(f": 1 in task-1, {process.process.pid}\n")
        assert (await process.end())[-1] == "done"


async def test_the_debug_console_evaluates_and_completes_what_conditions_have(tmp_path: Path) -> None:
    async with relay_over(tmp_path) as setting:
        (process,) = await setting.cluster.start(WORK)
        editor = await setting.attach({"job.py": [3, 5]})
        stop = await editor.event("stopped")
        assert await editor.evaluate(stop, "ray.task") == "'task-1'"
        assert await editor.evaluate(stop, "[ray.pid, x]") == f"[{process.process.pid}, 1]"
        # The module itself is the program's.
        assert await editor.evaluate(stop, "type(ray).__name__") == "'module'"
        assert "NameError" in await editor.evaluate(stop, "nope + ray.pid")
        # What is in a result is called as the user has typed it.
        frame = (await editor.frames(stop))[0]["id"]
        result = await editor.request("evaluate", expression="[ray.task, x]", frameId=frame)
        inner = await editor.request("variables", variablesReference=result["variablesReference"])
        names = [each.get("evaluateName") for each in inner["variables"]]
        assert "[ray.task, x][0]" in names
        assert "rayside.worker" not in str(inner)
        completed = await completions(editor, stop, "x + ray.")
        assert completed[: len(NAMES)] == list(NAMES)
        assert "get_runtime_context" in completed
        assert [name for name in await completions(editor, stop, "ray.no") if name in NAMES] == [
            "node",
            "node_id",
        ]
        assert not {*await completions(editor, stop, "array.")} & {*NAMES}
        await editor.resume(stop)
        stop = await editor.event("stopped")
        # Here `ray` is a variable of the program's.
        assert await editor.evaluate(stop, "ray.task") == "'light'"
        assert "pid" not in await completions(editor, stop, "ray.")
        await editor.resume(stop)
        assert (await process.end())[-1] == "done"


async def completions(editor: Session, stop: dict[str, Any], text: str) -> list[str]:
    frame = (await editor.frames(stop))[0]["id"]
    answer = await editor.request("completions", frameId=frame, text=text, column=len(text) + 1)
    return [target["label"] for target in answer["targets"]]


# --- what can't be read ------------------------------------------------------------------


async def test_what_can_not_be_read_is_told_at_once_and_no_debuggee_gets_it() -> None:
    async with scripted() as setting:
        wire = await setting.configured()
        (debuggee,) = setting.debuggees
        for _ in ("the cluster's row", "the debuggee's"):
            await wire.hear(event="thread")
        specs = [
            {"line": 1, "condition": "unread >"},
            {"line": 2, "logMessage": "{unread +}"},
            {"line": 3, "hitCondition": "gather"},
            {"line": 1, "column": 2, "condition": "unread > 3"},
        ]
        answer = await wire.ask("setBreakpoints", source={"path": FILE}, breakpoints=specs)
        verdicts = answer["body"]["breakpoints"]
        assert [each["verified"] for each in verdicts] == [False, False, False, True]
        assert verdicts[0]["message"] == "The condition 'unread >' is no Python expression: invalid syntax."
        assert verdicts[1]["message"] == "The message can't be made: invalid syntax: unread +."
        assert "gather N" in verdicts[2]["message"]
        functions = [{"name": "f", "condition": "unread ="}]
        answer = await wire.ask("setFunctionBreakpoints", breakpoints=functions)
        assert answer["body"]["breakpoints"][0]["message"].startswith("The condition 'unread =' is no Python")
        options = [{"filterId": "raised", "condition": "(unread"}]
        answer = await wire.ask("setExceptionBreakpoints", filters=[], filterOptions=options)
        assert "is no Python expression" in answer["body"]["breakpoints"][0]["message"]
        assert debuggee.received("setExceptionBreakpoints")[-1] == {"filters": []}
        sent = str(debuggee.requests)
        assert "unread > 3" in sent
        assert sent.count("unread") == 1
        await wire.close()
