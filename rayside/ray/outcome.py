"""Errors for failed jobs, and for jobs that Ray refused."""

from __future__ import annotations

import signal

from rayside.errors import JobFailed, RaysideError, SubmissionFailed
from rayside.plain import printed
from rayside.ray.records import Job


def failure(job: Job, *, output_shown: bool = False) -> RaysideError:
    """Returns the error for a job that did not end as SUCCEEDED, with its exit code explained.

    It ends with the last lines of the job's output, unless the output was already shown.
    """
    if job.status == "STOPPED":
        return JobFailed(f"job {job.submission_id} was stopped", hint="./invokew submit starts a new one")
    if job.exit_code is not None and output_shown:
        return JobFailed(
            f"job {job.submission_id} failed: {explain_exit(job.exit_code)}",
            hint=f"./invokew diagnose --job {job.submission_id} says what is known of the cause",
        )
    why = f": {explain_exit(job.exit_code)}" if job.exit_code is not None else ""
    # Ray's message ends with the end of the program's output, which says most; Ray colors it.
    lines = printed(job.message).strip().splitlines()
    if job.exit_code is not None:
        lines, hint = lines[-12:], f"./invokew logs --job {job.submission_id} shows all of its output"
    else:
        # The program never ran and printed nothing: a traceback of Ray's, with pip's words at its end.
        lines = lines if len(lines) <= 12 else [lines[0], "...", *lines[-4:]]
        hint = f"./invokew diagnose --job {job.submission_id} says what is known of the cause"
    return JobFailed("\n".join([f"job {job.submission_id} failed{why}", *lines]), hint=hint)


def explain_exit(code: int) -> str:
    """Returns an explanation of an exit code.

    Source: https://tldp.org/LDP/abs/html/exitcodes.html; above 128, and below 0, it is a signal.
    """
    number = -code if code < 0 else code - 128 if code > 128 else 0
    if number:
        try:
            name = signal.Signals(number).name
        except ValueError:
            return f"exit code {code}"
        reasons = {
            "SIGKILL": "killed, most often because memory ran out",
            "SIGTERM": "it was asked to end",
            "SIGINT": "it was interrupted",
            "SIGSEGV": "it crashed in native code",
            "SIGABRT": "it aborted, most often in native code",
        }
        return f"exit code {code} ({name}: {reasons.get(name, 'ended by that signal')})"
    reasons_by_code = {
        0: "it ended well, or what started it hid that it did not",
        1: "the program raised an exception or said so itself",
        2: "the program was called wrongly, or its file could not be opened",
        126: "the program is not executable",
        127: "the program was not found",
    }
    return f"exit code {code} ({reasons_by_code.get(code, 'as the program chose')})"


def refusal(text: str) -> SubmissionFailed:
    """Returns the error for a job that Ray refused; `text` is Ray's, most often a traceback."""
    lines = [line.strip() for line in printed(text).splitlines() if line.strip()]
    return SubmissionFailed(
        f"Ray did not take the job: {lines[-1] if lines else 'it gave no reason'}",
        hint="correct that, then submit it again",
    )
