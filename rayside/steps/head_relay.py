"""Debug relay as an actor of an existing Ray cluster, if this machine reaches only the head.

Jobs start it, with its code, and end it. It reserves no CPU, changes nothing and restarts nothing.
"""

from __future__ import annotations

import json
import secrets
import shlex
import tempfile
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from rayside import debugger_files
from rayside.connection.instance import Instance
from rayside.errors import NodesUnreachable, NotRunning, RaysideError, RelayNotStarted
from rayside.plain import line, some_of
from rayside.private_file import write_private
from rayside.ray import jobs
from rayside.ray.own_job import OwnJob, write_code
from rayside.ray.state import Dashboard
from rayside.relay.config import UNSET, Masking, digest_of
from rayside.relay_actor.spec import ANSWER, END, FAILURE, FILE, RelaySpec, Running
from rayside.steps.existing_ray import ExistingRay
from rayside.steps.step import Report, Status, missing, ready
from rayside.users import in_a_name

# Limit: characters of a failed job's output in its error.
_TOLD = 400


@dataclass(frozen=True)
class HeadRelay:
    """Detached actor with this instance's relay, on the head node.

    `passage` forwards a port to the dashboard while in its context, if the cluster's own forward has ended.
    """

    instance: Instance
    head: ExistingRay
    passage: Callable[[], AbstractContextManager[str]]
    masking: Masking = UNSET
    name: str = "relay-actor"
    title: str = "debug relay, as an actor on the head"
    needs: tuple[str, ...] = ("ray",)
    patience: float = 30.0

    def port(self) -> int:
        """Returns the relay's port on the head's loopback address. Raises NotRunning."""
        running = self._running
        if running is None:
            raise NotRunning(
                "the debug relay has not begun", hint=f"./invokew up{self.instance.verb_options} begins it"
            )
        return running.port

    def check(self) -> Status:
        known, running = self._known, self._running
        if running is None:
            return missing("it has not begun")
        if known.get("spec") != self._spec:
            return missing("it was begun for something else, or by another version")
        states = [row["state"] for row in self.head.require().table("actors", actor_id=running.actor_id)]
        if states != ["ALIVE"]:
            return missing("its actor has ended")
        return ready(f"{known['name']}, port {running.port} of the head")

    def apply(self, report: Report) -> None:
        """Starts the actor. Raises RelayNotStarted, NodesUnreachable, and the errors of `jobs.submit`."""
        # The name is recorded before the actor starts, so that `down` ends it after an interrupted start.
        name = self._name or f"rayside-relay-{in_a_name(self.instance.user)}-{secrets.token_hex(3)}"
        self._write(name)
        report("a job begins it")
        dashboard = self.head.require()
        digest = digest_of(self._token).hex()
        spec = RelaySpec(name, self.instance.address, digest, self.masking, self.instance.user)
        own_job = OwnJob(dashboard, name, self.patience)
        output = own_job.run(lambda job: self._submit(dashboard, job, spec))
        lines = {
            kind: text for text in output.splitlines() for kind in (ANSWER, FAILURE) if text.startswith(kind)
        }
        try:
            running = Running.parse(lines.get(ANSWER, "").removeprefix(ANSWER))
        except (ValueError, KeyError, TypeError):
            why = lines.get(FAILURE, output[-_TOLD:]).removeprefix(FAILURE)
            raise RelayNotStarted(
                f"the relay did not begin on {self.instance.place}: {line(why) or 'its job printed nothing'}",
                hint="./invokew up tries again; jobs can be submitted meanwhile, and not debugged",
            ) from None
        if running.away:
            raise NodesUnreachable(
                f"the head does not reach {some_of(running.away)}, and the debugger needs the workers' ports",
                hint="let the head connect to all TCP ports of its nodes",
            )
        self._write(name, spec=self._spec, running=asdict(running))

    def undo(self, report: Report) -> None:
        """Ends the actor; a cluster that has gone is no error."""
        if name := self._name:
            report("a job ends it")
            try:
                with self.passage() as url:
                    dashboard = replace(self.head, at=url).require()
                    program = shlex.join(["python", "-c", END, name])
                    OwnJob(dashboard, name, self.patience).run(
                        lambda job: dashboard.submit(program, job, {}, user=self.instance.user)
                    )
            except RaysideError as error:
                report(f"it could not be ended: {error.message}; if Ray is there, its actor {name} goes on")
        self._record.unlink(missing_ok=True)

    # --- the job --------------------------------------------------------------------------

    def _submit(self, dashboard: Dashboard, submission_id: str, spec: RelaySpec) -> None:
        """Submits the job that starts the actor, with its code."""
        with tempfile.TemporaryDirectory(prefix="rayside-") as folder:
            write_code(Path(folder), {FILE: spec.document()})
            job = jobs.Submission("python -m rayside.relay_actor", folder, user=self.instance.user)
            jobs.submit(dashboard, job, submission_id)

    # --- its record -------------------------------------------------------------------------

    @property
    def _record(self) -> Path:
        return self.instance.folder / "relay-actor.json"

    @property
    def _known(self) -> dict[str, Any]:
        """Returns the record: `name`, and for a running relay `spec` and `running`; empty without one."""
        try:
            document = json.loads(self._record.read_text())
        except (OSError, ValueError):
            return {}
        return document if isinstance(document, dict) else {}

    @property
    def _name(self) -> str:
        return str(self._known.get("name") or "")

    @property
    def _running(self) -> Running | None:
        try:
            return Running.parse(json.dumps(self._known["running"]))
        except (ValueError, KeyError, TypeError):
            return None

    @property
    def _token(self) -> str:
        """Returns the token for editors. Raises NotRunning without one."""
        try:
            return self.head.token.read_text()
        except FileNotFoundError:
            raise NotRunning(
                f"{self.head.token} is missing", hint=f"./invokew up{self.instance.verb_options} writes it"
            ) from None

    def _write(self, name: str, **more: Any) -> None:
        write_private(self._record, json.dumps({"name": name, **more}))

    @property
    def _spec(self) -> dict[str, Any]:
        """Returns the relay's specification; a running relay with another one is replaced."""
        return {
            "code": debugger_files.code(),
            "digest": digest_of(self._token).hex(),
            "masking": self.masking.document(),
            "user": self.instance.user,
            "ray": self.head.identity,
        }
