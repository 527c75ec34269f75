"""Handlers of requests about failed tasks: `sources`, `edits`, `retry`, and DAP's `restartFrame`."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from rayside.dap.framing import Message
from rayside.relay.connection import PATIENCE
from rayside.relay.editor import Editor, Handler
from rayside.relay.retries import Retries, Wanted, files_of
from rayside.relay.schemas import Refused
from rayside.relay.worker import Worker

# Returns the worker of a request, its thread, and the arguments with the worker's own ids.
Inward = Callable[[Editor, Message], tuple[Worker, int | None, Message]]


class RetryRequests:
    """Request handlers of one debug session."""

    def __init__(self, retries: Retries, inward: Inward) -> None:
        self._retries, self._inward = retries, inward

    @property
    def handlers(self) -> Mapping[str, Handler]:
        return {
            "edits": self._edits,
            "restartFrame": self._restart_frame,
            "retry": self._retry,
            "sources": self._sources,
        }

    async def _edits(self, editor: Editor, request: Message, arguments: Message) -> None:
        self._retries.files.offer(files_of(arguments))
        editor.respond(request, {"edited": self._retries.files.applied})

    async def _sources(self, editor: Editor, request: Message, arguments: Message) -> None:
        editor.respond(request, await self._retries.sources())

    async def _retry(self, editor: Editor, request: Message, arguments: Message) -> None:
        at = self._inward(editor, arguments)[:2] if "threadId" in arguments else None
        answer = await self._retries.retry(Wanted.of(arguments), at)
        async with editor.turn:
            editor.respond(request, answer)
            await editor.taken()

    async def _restart_frame(self, editor: Editor, request: Message, arguments: Message) -> None:
        worker, thread, inner = self._inward(editor, arguments)
        if thread is None or not worker.has_failed(thread):
            raise Refused("only a task that failed can run again, from its outermost frame")
        body = await worker.connection.client.request("stackTrace", {"threadId": thread}, timeout=PATIENCE)
        frames = [frame.get("id") for frame in body.get("stackFrames", [])]
        if inner["frameId"] not in frames[-1:]:
            raise Refused("a failed task runs again from its outermost frame: choose the last one")
        await self._retries.restart(worker, thread)
        editor.respond(request)


def mark_restartable(asked: Message, body: Message, *, failed: bool) -> None:
    """Sets `canRestart` of each frame in an answer to `stackTrace`, for DAP's `restartFrame`.

    `failed`: whether the thread waits in a failed call, whose outermost frame can be restarted.
    """
    frames = body.get("stackFrames", [])
    for frame in frames:
        frame["canRestart"] = False
    if failed and frames and asked.get("startFrame", 0) + len(frames) >= body.get("totalFrames", 0):
        frames[-1]["canRestart"] = True
