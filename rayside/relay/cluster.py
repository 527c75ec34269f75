"""Discovery of a Ray cluster's debuggees: the only module of the relay that queries Ray's dashboard."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Generic, TypeVar

from rayside.dap.paused_task import PausedTask
from rayside.errors import NotRunning, RaysideError
from rayside.ray import authentication
from rayside.ray.job_folders import PathMap
from rayside.ray.job_processes import Announced, announced, announcing
from rayside.ray.records import DebuggableWorker, Job, RunningTask, WaitingTask
from rayside.ray.state import LAG, Dashboard
from rayside.relay.debuggee import Debuggee
from rayside.worker.handshake import proof

# Timeout in seconds of one poll of Ray: at most three requests, which normally take 4 to 50 ms each.
LOOK = 15.0
_PATIENCE = (2.0, 5.0)
# Seconds until Ray is asked again for a worker's unknown job, doubled each time: the task table lags by about
# a second, and a waiting worker has no task at all.
_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 30.0
# Seconds between requests for the reason why a process ended, until Ray has noticed that it ended.
_UNTIL_TOLD = (0.5, 1.0, 2.0, 4.0)
# Least seconds between two requests for the running tasks: workers run one task after another. A slow table
# is requested less often, so that this never takes more than a twentieth of the dashboard's time.
_NAMES, _LEAST_SHARE = 3.0, 19
# Seconds between two polls for drivers for which Ray has no worker yet.
_JOBS = 1.0
# The most jobs that are remembered besides those of the last poll.
_MOST_JOBS = 20_000

Answer = TypeVar("Answer")


@dataclass(frozen=True)
class _Known:
    """Ray's last answer about a worker."""

    job_id: str = ""
    task: str = ""
    since: str = ""


class ClusterDebuggees:
    """Discovery of one Ray cluster's processes with an open debugger port.

    `user` is the name of the relay's user if several people debug there; empty on a cluster of one person.
    A poll is one request, plus two more only for a new worker or, with growing pauses, while a worker's job
    is unknown. One more every few seconds returns the running tasks, and one every second finds drivers that
    wait before their `ray.init`.
    """

    def __init__(
        self,
        dashboard: Dashboard,
        *,
        token: str = "",
        user: str = "",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._dashboard, self._user, self._clock = dashboard, user, clock
        self._prove = partial(proof, token.encode())
        self._known: dict[str, _Known] = {}
        self._submissions: dict[str, str] = {}
        # Running jobs that Ray's list lacked: they are not looked up again.
        self._unlisted: set[str] = set()
        # User names that jobs report, by each of the job's ids.
        self._users: dict[str, str] = {}
        # When each worker without a known job was found, by worker id.
        self._found: dict[str, float] = {}
        self._jobs = _Shared[list[Job]]()
        # The input of the path map, which is rebuilt only if a job comes or goes.
        self._packed: list[tuple[dict[str, str], dict[str, Any]]] = []
        self._paths = PathMap()
        self._ask_again, self._pause = 0.0, _FIRST_PAUSE
        self._named_at, self._name_again = 0.0, 0.0
        self._jobs_again = 0.0
        self._looking = _Shared[list[Debuggee]]()
        self._waiting = _Shared[list[WaitingTask]]()
        self._table: dict[str, list[RunningTask]] = {}
        self._read_again = 0.0
        self._nodes: dict[str, str] = {}
        self._announced: list[Announced] = []
        # Worker ids of drivers that were found before Ray listed them, by address.
        self._early: dict[tuple[str, int], str] = {}
        # Addresses of the announced drivers that Ray has listed.
        self._met: set[tuple[str, int]] = set()

    @classmethod
    def at(cls, dashboard: str, token: str, user: str = "") -> ClusterDebuggees:
        """Returns the discovery for a dashboard's address, such as http://127.0.0.1:8265."""
        return cls(Dashboard(dashboard, token, patience=_PATIENCE), token=token, user=user)

    @classmethod
    def asked(cls, dashboard: str, token: str, user: str = "") -> ClusterDebuggees:
        """Does as `at`, but asks Ray first whether it needs the token. Raises NotRunning, NotRay; blocks."""
        return cls.at(
            dashboard, token if authentication.mode(dashboard) == authentication.TOKEN else "", user
        )

    async def debuggees(self) -> list[Debuggee]:
        """Returns the current debuggees. Concurrent calls share one poll, which updates this object's state.

        Raises NotRunning if Ray does not answer in time.
        """
        return list(await self._looking.answer(self.look))

    async def waiting(self) -> list[PausedTask]:
        """Returns the tasks that wait now; concurrent calls share one poll. Raises as `debuggees`."""
        return [
            PausedTask(
                *(task.worker_id, task.host, task.pid, task.job_id, task.task, task.since),
                user=self.user(task.job_id),
            )
            for task in await self._waiting.answer(self._look_for_waiting)
        ]

    def _look_for_waiting(self) -> list[WaitingTask]:
        waiting = self._dashboard.waiting(self._tasks)
        # A new job's tasks must not be shown to other users because its user is still unknown.
        job_ids = {task.job_id for task in waiting if task.job_id and not self._was_sought(task.job_id)}
        if self._user and job_ids:
            self._take(self._dashboard.all_jobs())
            self._miss(job_ids)
        return waiting

    def _tasks(self) -> dict[str, list[RunningTask]]:
        """Returns the running tasks, read again unless that would take too much of the dashboard's time."""
        began = self._clock()
        if began >= self._read_again:
            self._table = self._dashboard.running_tasks()
            now = self._clock()
            self._read_again = now + _LEAST_SHARE * (now - began)
        return self._table

    async def submission(self, job_id: str) -> str:
        """Returns a job's submission id from the last poll, or else from Ray. Raises NotRunning.

        Concurrent calls share one request: a job's workers start together.
        """
        for _ in range(2):  # A shared request may have begun before the job.
            if job_id and not self._was_sought(job_id):
                self._note(await self._jobs.answer(self._dashboard.all_jobs))
        self._miss({job_id} - {""})
        return self._submissions.get(job_id, "")

    def _was_sought(self, job_id: str) -> bool:
        """Returns whether Ray's list of jobs contains the job, or is known to lack it."""
        return job_id in self._submissions or job_id in self._unlisted

    def _miss(self, job_ids: Set[str]) -> None:
        """Records the jobs that Ray's list lacks: of a submission it has only the last driver.

        The list has been read after these jobs began.
        """
        if len(self._unlisted) > _MOST_JOBS:  # The ids come from processes, which may send any number.
            self._unlisted.clear()
        self._unlisted |= job_ids - self._submissions.keys()

    def user(self, job_id: str) -> str:
        return self._users.get(job_id, "")

    async def why_ended(self, debuggee: Debuggee) -> str:
        """Returns Ray's reason, which its table has within a second or two. Raises NotRunning."""
        for pause in _UNTIL_TOLD:
            ended = await _in_time(partial(self._dashboard.end_of, debuggee.shown_id))
            if ended is not None:
                return ended
            await asyncio.sleep(pause)
        return ""

    def local_roots(self) -> Mapping[str, Sequence[str]]:
        return self._paths.local_roots()

    def look(self) -> list[Debuggee]:
        """Does as `debuggees`, blocking."""
        workers = self._dashboard.debuggable()
        ids = {worker.worker_id for worker in workers}
        self._known = {worker_id: known for worker_id, known in self._known.items() if worker_id in ids}
        self._found = {worker_id: moment for worker_id, moment in self._found.items() if worker_id in ids}
        new = ids - set(self._known)
        now = self._clock()
        if new or (now >= self._ask_again and not all(self._complete(worker) for worker in workers)):
            self._pause = _FIRST_PAUSE if new else min(self._pause * 2, _LONGEST_PAUSE)
            self._ask(workers)
            self._ask_again = now + self._pause
        elif workers and now >= self._name_again:
            self._name(workers, self._running())
        if now >= self._jobs_again:
            self._jobs_again = now + _JOBS
            # Workers are found even if Ray has no Jobs API, or a slow one.
            with contextlib.suppress(RaysideError):
                self._take(self._dashboard.all_jobs())
        known = [worker for worker in workers if not self._may_be_anothers(worker)]
        return [*map(self._debuggee, known), *self._before_init(workers)]

    def _may_be_anothers(self, worker: DebuggableWorker) -> bool:
        """Returns whether a worker waits in a `breakpoint()` whose job is not yet in Ray's tables.

        Ray's own debugger does not authenticate clients, and breaks if one disconnects again.
        """
        if not (self._user and worker.paused) or self._job_of(worker):
            self._found.pop(worker.worker_id, None)
            return False
        return self._clock() < self._found.setdefault(worker.worker_id, self._clock()) + LAG

    def _job_of(self, worker: DebuggableWorker) -> str:
        """Returns Ray's id of a worker's job; empty if the job or its user is unknown."""
        job_id = self._known[worker.worker_id].job_id
        return job_id if not self._user or job_id in self._submissions else ""

    def _ask(self, workers: Sequence[DebuggableWorker]) -> None:
        jobs, tasks = self._dashboard.all_jobs(), self._running()
        self._take(jobs)
        self._name(workers, tasks)

    def _note(self, jobs: Sequence[Job]) -> None:
        submissions = {job.job_id: job.submission_id for job in jobs if job.job_id}
        users = {job_id: job.user for job in jobs for job_id in (job.job_id, job.submission_id) if job_id}
        # A late answer must not remove a newer job, which would then have no user.
        too_many = len(self._submissions) > _MOST_JOBS
        self._submissions = submissions if too_many else {**self._submissions, **submissions}
        self._users = users if too_many else {**self._users, **users}

    def _take(self, every: Sequence[Job]) -> None:
        self._note(every)
        jobs = [job for job in every if job.submission_id]
        packed = [(job.metadata, job.runtime_env) for job in jobs]
        if packed != self._packed:
            self._packed, self._paths = packed, PathMap.of(jobs)
        if any(job.node_id not in self._nodes for job in announcing(jobs)):
            self._nodes = self._dashboard.node_addresses()
        self._announced = announced(jobs, self._nodes)
        self._jobs_again = self._clock() + _JOBS

    def _before_init(self, workers: Sequence[DebuggableWorker]) -> list[Debuggee]:
        """Returns the announced drivers that Ray has not listed as workers, before or now."""
        known = {(worker.node_ip, worker.port) for worker in workers}
        # If two jobs claim one driver, it belongs to the older.
        announced = {driver.address: driver for driver in reversed(self._announced)}
        self._met = (self._met | known) & announced.keys()
        drivers = [driver for address, driver in announced.items() if address not in self._met]
        self._early = {
            **{address: key for address, key in self._early.items() if address in known | announced.keys()},
            **{driver.address: driver.key for driver in drivers},
        }
        return [
            Debuggee(
                worker_id=driver.key,
                host=driver.host,
                port=driver.port,
                pid=driver.pid,
                node_ip=driver.host,
                submission_id=driver.submission_id,
                user=self.user(driver.submission_id),
                task="driver",
                since=driver.since,
                driver=True,
                prove=self._prove,
            )
            for driver in drivers
        ]

    def _running(self) -> dict[str, list[RunningTask]]:
        self._named_at = self._clock()
        tasks = self._dashboard.running_tasks()
        now = self._clock()
        self._name_again = now + max(_NAMES, _LEAST_SHARE * (now - self._named_at))
        return tasks

    def _name(self, workers: Sequence[DebuggableWorker], tasks: Mapping[str, list[RunningTask]]) -> None:
        for worker in workers:
            running = tasks.get(worker.worker_id)
            if worker.driver:
                self._known[worker.worker_id] = _Known(worker.job_id, "driver", worker.since)
            elif running:
                self._known[worker.worker_id] = _Known(running[0].job_id, running[0].name, running[0].since)
            else:  # A worker runs tasks of one job only, so its job stays known.
                job_id = self._known.get(worker.worker_id, _Known()).job_id
                self._known[worker.worker_id] = _Known(job_id)

    def _complete(self, worker: DebuggableWorker) -> bool:
        known = self._known.get(worker.worker_id)
        return known is not None and self._was_sought(known.job_id)

    def _debuggee(self, worker: DebuggableWorker) -> Debuggee:
        known, job_id = self._known[worker.worker_id], self._job_of(worker)
        debuggee = Debuggee(
            worker_id=worker.worker_id,
            host=worker.node_ip,
            port=worker.port,
            pid=worker.pid,
            node_ip=worker.node_ip,
            job_id=job_id,
            submission_id=self._submissions.get(job_id, ""),
            user=self.user(job_id),
            task=known.task,
            since=known.since or worker.since,
            driver=worker.driver,
            as_of=self._named_at - LAG,
            prove=self._prove,
        )
        early = self._early.get((worker.node_ip, worker.port))
        # The debuggee keeps the id that it had before its `ray.init`.
        return replace(debuggee, worker_id=early, rays_id=worker.worker_id) if early else debuggee


class _Shared(Generic[Answer]):
    """Shares one request to Ray among concurrent callers."""

    def __init__(self) -> None:
        self._asking: asyncio.Future[Answer] | None = None

    async def answer(self, ask: Callable[[], Answer]) -> Answer:
        """Returns the answer to `ask`, which blocks. Raises as `_in_time`."""
        if self._asking is None or self._asking.done():
            self._asking = asyncio.ensure_future(_in_time(ask))
        return await asyncio.shield(self._asking)


async def _in_time(ask: Callable[[], Answer]) -> Answer:
    """Asks Ray in a thread. Raises NotRunning if it does not answer in time."""
    try:
        return await asyncio.wait_for(asyncio.to_thread(ask), LOOK)
    except asyncio.TimeoutError:
        raise NotRunning(
            f"Ray did not answer within {LOOK:g} s", hint="./invokew status shows what is left"
        ) from None
