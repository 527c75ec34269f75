"""Fake kubectl: lists pods and forwards ports as the real program does, to real servers.

A file in place of the kubeconfig contains the pods. As in kubectl, a forward ends at the first failed
connection, and does not notice before that its pod has gone. Anything that is not scripted is an error, and
the fixture fails then.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path

from rayside.event_loop import Call, background_loop
from rayside.reach.programs import Kubectl

SELECTOR = "ray.io/cluster=c,ray.io/node-type=head"
Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]

_PROGRAM = r"""
import json, os, pathlib, socket, sys, threading

words = sys.argv[1:]
file = pathlib.Path(words[1])
where, words = words[:6], words[6:]
muted = []
script = lambda: json.loads(file.read_text())

def log(name, text):
    with file.with_name(name).open("a") as stream:
        stream.write(text + chr(10))

def fail(text, code=1):
    sys.stderr.write(text + chr(10))
    sys.stderr.flush()
    os._exit(code)

def get(words):
    assert words[:3] == ["get", "pods", "-l"], words
    assert words[4:7] == ["--field-selector", "status.phase=Running", "-o"], words
    assert words[7].startswith("jsonpath="), words
    log("searches", words[3])
    for name, pod in script()["pods"].items():
        if pod["labels"] == words[3] and pod["phase"] == "Running":
            print(pod["created"], name, pod["deleted"])

def copy(source, target):
    try:
        while data := source.recv(65536):
            target.sendall(data)
    except OSError:
        pass
    try:
        target.shutdown(socket.SHUT_WR)
    except OSError:
        pass

def forward(words):
    assert words[:3] == ["port-forward", "--address", "127.0.0.1"], words
    kind, _, name = words[3].partition("/")
    assert kind == "pod" and words[4][0] == ":" and len(words) == 5, words
    port = words[4][1:]
    if name not in script()["pods"]:
        fail(f'Error from server (NotFound): pods "{name}" not found')
    log("forwards", f"{os.getpid()} {name}:{port}")
    server = socket.create_server(("127.0.0.1", 0))
    print(f"Forwarding from 127.0.0.1:{server.getsockname()[1]} -> {port}", flush=True)
    while True:
        client, _ = server.accept()
        threading.Thread(target=join, args=(client, name, port), daemon=True).start()

def join(client, name, port):
    print("Handling connection for", port, flush=True)
    if muted or script()["mute"]:
        muted.append(client)
        return threading.Event().wait()
    try:
        far = socket.create_connection(("127.0.0.1", script()["pods"][name]["ports"][port]))
    except (KeyError, OSError):
        sys.stderr.write(f"E0101 00:00:00.{os.getpid()}       1 portforward.go:424] "
            f'"Unhandled Error" err="an error occurred forwarding {port}: connection refused"' + chr(10))
        fail("error: lost connection to pod")
    back = threading.Thread(target=copy, args=(far, client), daemon=True)
    back.start()
    copy(client, far)
    back.join()
    client.close()

try:
    assert where[::2] == ["--kubeconfig", "--context", "--namespace"], where
    log("attempts", words[0])
    if refusal := script()["refusal"]:
        fail(refusal)
    if words[0].startswith("--request-timeout="):
        get(words[1:])
    else:
        forward(words)
except AssertionError as error:
    log("unscripted", str(error))
    fail(f"unscripted: {error}")
"""


@dataclass
class Pod:
    labels: str = SELECTOR
    phase: str = "Running"
    created: str = "2026-01-01T00:00:00Z"
    deleted: str = ""
    # The servers' real ports, by the pod's ports.
    ports: dict[int, int] = field(default_factory=dict)


@dataclass
class ScriptedKubectl:
    """Fake kubectl with the state of the last `tell`; `refusal` is an API error, `mute` a hanging forward."""

    call: Call
    folder: Path
    pods: dict[str, Pod] = field(default_factory=lambda: {"head-1": Pod()})
    refusal: str = ""
    mute: bool = False
    _servers: list[asyncio.Server] = field(default_factory=list)

    @property
    def program(self) -> Path:
        return self.folder / "kubectl"

    @property
    def kubeconfig(self) -> Path:
        return self.folder / "kubeconfig"

    def to(self, selector: str = SELECTOR) -> Kubectl:
        return Kubectl(str(self.program), str(self.kubeconfig), "scripted", "ns", selector)

    def tell(self) -> None:
        """Publishes the scripted state to running programs."""
        pods = {name: asdict(pod) for name, pod in self.pods.items()}
        draft = self.folder / "kubeconfig.draft"
        draft.write_text(json.dumps({"pods": pods, "refusal": self.refusal, "mute": self.mute}))
        draft.replace(self.kubeconfig)

    def down(self) -> None:
        """Ends all forwards, and prevents new ones, as if the API were down."""
        self.refusal = "Unable to connect to the server"
        self.tell()
        for pid in self.pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def up(self) -> None:
        self.refusal = ""
        self.tell()

    def serve(self, pod: str, port: int, handler: Handler) -> int:
        """Starts a real server for a pod's port; returns its real port."""

        async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
                await handler(reader, writer)
            writer.close()

        async def serve() -> int:
            server = await asyncio.start_server(connected, "127.0.0.1", 0)
            self._servers.append(server)
            return int(server.sockets[0].getsockname()[1])

        real = self.pods[pod].ports[port] = self.call(serve())
        self.tell()
        return real

    def close(self) -> None:
        async def close() -> None:
            for server in self._servers:
                server.close()

        self.call(close())

    def lines(self, name: str) -> list[str]:
        """Returns a log of the programs: `searches` for pods, `forwards` with their pids."""
        file = self.folder / name
        return file.read_text().splitlines() if file.exists() else []

    @property
    def pids(self) -> list[int]:
        """Returns the pids of all started forwards, oldest first."""
        return [int(each.split()[0]) for each in self.lines("forwards")]


@contextmanager
def scripted_kubectl(folder: Path) -> Iterator[ScriptedKubectl]:
    """Makes the fake program, with one pod, `head-1`."""
    folder.mkdir(exist_ok=True)
    with background_loop() as call:
        scripted = ScriptedKubectl(call, folder)
        scripted.program.write_text(f"#!{sys.executable}\n{_PROGRAM}")
        scripted.program.chmod(0o755)
        scripted.tell()
        try:
            yield scripted
        finally:
            scripted.close()
        assert scripted.lines("unscripted") == []
