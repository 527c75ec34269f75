"""Explains how jobs ended that did not end well: one finding each, the cause and not its consequences."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from bootstrap.diagnosis import runtime_env, start_failures
from bootstrap.diagnosis.causes import Cause, cause
from bootstrap.diagnosis.evidence import Evidence
from bootstrap.diagnosis.failure import Failure, of_driver
from bootstrap.diagnosis.finding import Finding, Weight, sentence
from bootstrap.diagnosis.ray_errors import last_raised
from rayside.ray.outcome import explain_exit
from rayside.ray.records import Job

_NOT_FOUND, _NOT_EXECUTABLE, _USAGE, _RAISED = 127, 126, 2, 1
_SIGNALS = {129, 130, 131, 132, 134, 135, 136, 137, 139, 141, 143}


@dataclass(frozen=True)
class _Ended:
    """A failed job, with what it printed last and what Ray calls its failure."""

    job: Job
    log: str
    error_type: str
    evidence: Evidence

    @property
    def words(self) -> str:
        """Returns all that is told of its end."""
        return f"{self.job.message}\n{self.log}"

    @property
    def logs_hint(self) -> str:
        return f"./invokew logs --job {shlex.quote(self.job.submission_id)} shows all of its output"


def failed_jobs(evidence: Evidence) -> Iterator[Finding]:
    """Yields a finding for each failed job."""
    for job in evidence.jobs:
        if job.status == "FAILED":
            yield _failed(job, evidence)


def stopped_jobs(evidence: Evidence) -> Iterator[Finding]:
    """Yields a finding for each job that somebody stopped."""
    for job in evidence.jobs:
        if job.status == "STOPPED":
            yield Finding(
                "job-stopped",
                f"job {sentence(job.submission_id)} was stopped",
                "",
                "somebody asked Ray to stop it; it did not fail",
                "./invokew submit starts a new one",
                Weight.PAST,
                at=job.started,
                job=job.submission_id,
            )


def _failed(job: Job, evidence: Evidence) -> Finding:
    ended = _Ended(
        job,
        evidence.logs.get(job.submission_id, ""),
        evidence.error_types.get(job.submission_id, ""),
        evidence,
    )
    place = ""
    its_cause = next((its_cause for explain in ENDINGS if (its_cause := explain(ended))), None)
    if its_cause is None:
        failure = _failure(ended)
        its_cause, place = (cause(failure), failure.place) if failure else (_unexplained(ended), "")
    return Finding(
        its_cause.id,
        sentence(f"job {job.submission_id} failed: {its_cause.what}"),
        sentence(place),
        sentence(its_cause.why),
        sentence(its_cause.hint),
        Weight.FAILED,
        at=job.started,
        job=job.submission_id,
    )


def _failure(ended: _Ended) -> Failure | None:
    """Returns the failure by which the driver ended; None where it printed no exception."""
    # What it printed was handled where it ended in another way: Python ends with 1 of an exception.
    if ended.job.exit_code not in (None, _RAISED):
        return None
    # Ray's message has the last ten lines of the log, which may have the exception only half.
    raised = last_raised(ended.log) or last_raised(ended.job.message)
    if raised is None:
        return None
    evidence, job_id = ended.evidence, ended.job.job_id or ""
    tasks = evidence.failed_tasks(job_id) if job_id else []
    actors = [actor for actor in evidence.actors if actor.job_id == job_id]
    unfinished = [task.name for task in evidence.unfinished_tasks(job_id)] if job_id else []
    return of_driver(raised, ended.log, tasks, actors, unfinished)


# --- endings that no exception tells of --------------------------------------------------


def runtime_env_failed(ended: _Ended) -> Cause | None:
    if ended.error_type != "RUNTIME_ENV_SETUP_FAILURE":
        return None
    return Cause(
        "runtime-env-failed",
        "its runtime_env could not be made",
        *runtime_env.explained(ended.job.message),
    )


def not_started(ended: _Ended) -> Cause | None:
    """Explains a job whose supervisor, the actor of Ray's that runs the entrypoint, did not run or died."""
    if "SUPERVISOR" not in ended.error_type and ended.error_type != "JOB_ENTRYPOINT_COMMAND_START_ERROR":
        return None
    words = ended.job.message
    if "low on memory" in words:
        used = re.search(r"was ([\d.]+ ?GB) used / ([\d.]+ ?GB) limit", words)
        return Cause(
            "job-out-of-memory",
            "Ray killed the process that runs it, for its node ran low on memory",
            f"{used[1]} of {used[2]} were in use" if used else words,
            "free memory on the node, or have the job load less, and submit it again",
        )
    failed = start_failures.explained(
        ended.job.runtime_env, ended.job.submission_id, ended.evidence, is_free="_START_" in ended.error_type
    )
    if failed and "_START_" in ended.error_type:
        return Cause("job-supervisor-died", "Ray's process that runs it did not start", *failed)
    if ended.error_type.endswith("UNSCHEDULABLE"):
        hint = "lower what its entrypoint asks for (entrypoint_num_cpus and the like)"
        return Cause("job-unschedulable", "no node can run its entrypoint", words, hint)
    what = "Ray's process that runs it did not start, or died"
    return Cause("job-supervisor-died", what, words, "./invokew logs --ray says more; then submit it again")


def entrypoint_not_run(ended: _Ended) -> Cause | None:
    """Explains an entrypoint that the shell, or Python, could not run at all."""
    code, entrypoint = ended.job.exit_code, ended.job.entrypoint
    why = f"the entrypoint is {entrypoint}"
    if code == _NOT_FOUND:
        shell = re.search(r"^\S*sh: (?:\d+: |line \d+: )?(.+?): (?:command )?not found$", ended.words, re.M)
        return Cause(
            "entrypoint-not-found",
            f"its program {shell[1] if shell else entrypoint.split(' ')[0]} was not found",
            why,
            'correct it in --entrypoint "python your_program.py", or in the script that calls it',
        )
    if code == _NOT_EXECUTABLE:
        hint = (
            'run it by its interpreter: ./invokew submit --entrypoint "python your_program.py"; or chmod +x'
        )
        return Cause("entrypoint-not-executable", "its program is not executable", why, hint)
    missing = re.search(r"^\S*python[\d.]*: can't open file '(.+?)'.*No such file", ended.words, re.M)
    if code == _USAGE and missing:
        return Cause(
            "entrypoint-file-missing",
            f"there is no file {missing[1].rpartition('/')[2]} in the folder that was submitted",
            f"Python looked for {missing[1]}",
            "name the folder that has it: ./invokew submit --working-dir FOLDER --entrypoint ...",
        )
    return None


def python_without_ray(ended: _Ended) -> Cause | None:
    """Explains a driver whose Python is another one than Ray's."""
    # `python -m ray` says it in one line, without a traceback.
    module = re.search(
        r"^(\S*python[\d.]*): .*(?:No module named ray|specification for 'ray\.)", ended.words, re.M
    )
    raised = last_raised(ended.log) or last_raised(ended.job.message)
    is_missing = raised and not raised.tasks and re.match("No module named 'ray'(?!\\.)", raised.message)
    if ended.job.exit_code not in (None, _RAISED) or not (module or is_missing):
        return None
    entrypoint = sentence(ended.job.entrypoint)
    named = re.search(r"(?:^|[\s;&|'\"])(/[^\s;&|'\"]*/python[\d.]*)(?=[\s'\"]|$)", ended.job.entrypoint)
    library = re.search(r'^ *File "(/[^"\n]+?)/lib/(python\d\.\d+)/', raised.text, re.M) if raised else None
    path = named[1] if named else module[1] if module and module[1][0] == "/" else ""
    path = path or (f"{library[1]}/bin/{library[2]}" if library else "")
    return Cause(
        "driver-without-ray",
        f"its Python{f', {path},' if path else ''} is not Ray's: it has no module ray",
        f"the entrypoint is {entrypoint}",
        "name the Python that Ray is installed in, by its path: "
        './invokew submit --entrypoint "/PATH/bin/python your_program.py"',
    )


def ended_by_signal(ended: _Ended) -> Cause | None:
    code = ended.job.exit_code
    if code is None or (code not in _SIGNALS and code >= 0):
        return None
    number = -code if code < 0 else code - 128
    identity, what = {
        2: ("job-interrupted", "its program was interrupted"),
        9: ("job-killed", "its program was killed"),
        11: ("job-crashed", "its program crashed in native code"),
        6: ("job-crashed", "its program aborted, most often in native code"),
        15: ("job-terminated", "its program was asked to end"),
    }.get(number, ("job-ended-by-signal", "a signal ended its program"))
    hint = {
        "job-killed": "look whether memory ran out (./invokew logs --ray), and have the driver load less",
        "job-crashed": 'submit it with --entrypoint "python -X faulthandler ...", which shows the line',
    }.get(identity, ended.logs_hint)
    return Cause(identity, what, explain_exit(code), hint)


def _unexplained(ended: _Ended) -> Cause:
    lines = [line.strip() for line in ended.words.splitlines() if line.strip()]
    code = ended.job.exit_code
    why = explain_exit(code) if code is not None else ended.error_type
    return Cause(
        "job-failed",
        why or "for a reason that Ray does not tell",
        lines[-1] if lines else "",
        ended.logs_hint,
    )


ENDINGS: tuple[Callable[[_Ended], Cause | None], ...] = (
    runtime_env_failed,
    not_started,
    entrypoint_not_run,
    python_without_ray,
    ended_by_signal,
)
