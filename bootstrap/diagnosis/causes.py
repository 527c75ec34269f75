"""Causes of failed drivers, tasks and actors, each with the one next thing to do."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from bootstrap.diagnosis.raised import Failure, last_words
from rayside.ray.outcome import explain_exit

_POST_MORTEM = "./invokew submit --debug --post-mortem, with the same options, stops where it raises"
_SILENT = (
    "its process ended without a word, as by os._exit, a crash in native code, or a kill by the system "
    "for its memory"
)


@dataclass(frozen=True)
class Cause:
    """Cause of a failure: `what` is a clause with its subject, `hint` the one next thing to do."""

    id: str
    what: str
    why: str
    hint: str


def cause(failure: Failure) -> Cause:
    """Returns the cause of a failure; one without an explainer is an exception of the user's code."""
    if explain := _EXPLAINED_BY.get(failure.name):
        return explain(failure)
    return not_serializable(failure) or raised(failure)


def raised(failure: Failure) -> Cause:
    identity = "driver-raised" if failure.subject == "the driver" else "task-raised"
    words = failure.message or "it has no words of its own"
    tried = f"; it was tried {failure.attempts} times" if failure.attempts > 1 else ""
    return Cause(identity, f"{failure.subject} raised {failure.name}", words + tried, _POST_MORTEM)


# --- missing resources -------------------------------------------------------------------


def out_of_memory(failure: Failure) -> Cause:
    killed = re.search(
        r"low on memory\. Memory on the node .{0,300}? was ([\d.]{1,20} ?GB) used / ([\d.]{1,20} ?GB) limit",
        failure.text,
    )
    if failure.name == "MemoryError" or not killed:
        what = f"{failure.subject} got no more memory"
        return Cause("task-out-of-memory", what, failure.message, "have it load less at a time")
    its = re.search(r"actual memory used=([\d.]+ ?GB)", failure.text)
    own = f", {its[1]} of that by its own process" if its else ""
    # Ray's tables lack tasks of another Ray cluster, such as one that the job itself has started.
    chosen = re.search(r"Selected to kill: \(Task: .{0,300}?task name=([^,)]{1,200})", failure.text)
    named = f"task {chosen[1]}" if chosen and failure.subject == "the driver" else failure.subject
    return Cause(
        "task-out-of-memory",
        f"{named} was killed by Ray, for its node ran low on memory",
        f"{killed[1]} of {killed[2]} were in use{own}",
        "let fewer run at once, as with @ray.remote(num_cpus=2), or have each load less",
    )


def module_not_found(failure: Failure) -> Cause:
    match = re.search(r"No module named '([\w.]+)'", failure.message)
    module = match[1] if match else ""
    package, _, within = module.partition(".")
    # Python names the missing module: for a package that is installed, the module within it.
    hint = (
        "name the Python that Ray is installed in, by its path, in --entrypoint"
        if module == "ray"
        else f"{package} is there, without {within}: does its version, or what was sent of it, have that?"
        if within
        else f"a package of yours: ./invokew submit --py-modules path/to/{module}; from PyPI: name it in the "
        "runtime_env (--runtime-env)"
        if module
        else "look whether the module, and the one that it imports from, are of the versions that you expect"
    )
    return Cause(
        "module-not-found", f"{failure.subject} can't import {module or 'a name'}", failure.message, hint
    )


def runtime_env_failed(failure: Failure) -> Cause:
    what = f"the runtime_env of {failure.subject} could not be made"
    return Cause("runtime-env-failed", what, *why_no_runtime_env(failure.text))


def not_serializable(failure: Failure) -> Cause | None:
    # A log may contain other errors, which were handled.
    match = re.match(
        r"Could not serialize the (function|argument|actor class|return value)\s+(.{1,500}?)"
        r"(?: for a task or actor (\S{1,300}?))?:?$",
        failure.message,
        re.MULTILINE,
    )
    is_pickling = failure.name == "PicklingError" or re.search(r"cannot pickle|Can't pickle", failure.message)
    if not match and not is_pickling:
        return None
    variable = re.search(
        r"FailTuple\((\w{1,100}) \[path=([^,\n]{0,300}), obj=(.{1,500}?), parent=", failure.text
    )
    kind = re.search(r"cannot pickle '?([\w.]+)'? object", failure.text)
    of = f", of type {kind[1]}" if kind else ""
    if match and match[1] == "argument":
        what = f"an argument of {match[3] or 'a task'} can't be sent to a worker"
        why = f"{match[2]}{of} can't be pickled"
    elif match:
        what = f"{match[1]} {match[2]} can't be sent to a worker"
        name = variable[1] if variable and variable[1] != "unknown" else ""
        why = (
            f"it uses the variable {name}{of}, which can't be pickled" if name else f"what it uses{of} can't"
        )
    else:
        what = f"{failure.subject} used an object that can't be pickled"
        why = _first_line(failure)
    hint = "make that object inside of the function or the actor's __init__"
    return Cause("not-serializable", what, why, hint)


# --- processes ---------------------------------------------------------------------------


def worker_died(failure: Failure) -> Cause:
    process = failure.subject.partition(" ")[2] or failure.subject
    # Only lines of the task's own process show its signal.
    own = rf"^\({re.escape(process)} pid=\d+[^)]*\) .*?\*\*\* (SIG[A-Z]+) received"
    ended = re.search(r"exits with an exit code (.+?)\.?$", failure.text, re.MULTILINE)
    if received := re.search(own, failure.text, re.MULTILINE):
        why = f"its process got {received[1]}"
        why += ", as it crashed in native code" if received[1] in ("SIGSEGV", "SIGABRT", "SIGBUS") else ""
    elif ended:
        # A program may end itself with words in place of a number.
        told = explain_exit(int(ended[1])) if re.fullmatch(r"-?\d{1,9}", ended[1]) else ended[1]
        why = f"its process ended with {told}"
    else:
        why = f"{_SILENT}; Ray does not know its exit code"
    tried = f"; it was tried {failure.attempts} times" if failure.attempts > 1 else ""
    return Cause(
        "worker-died",
        f"the worker process of {failure.subject} died",
        why + tried,
        "dmesg, as root, says whether the kernel killed it for its memory; else look at its native code",
    )


def actor_died(failure: Failure) -> Cause:
    created = "creation task" in failure.message or "__init__" in failure.subject
    if failure.name == "ActorDiedError" and created and failure.cause:
        actor = failure.subject.removeprefix("task ").removeprefix("actor ").partition(".")[0]
        name, _, words = failure.cause.partition(": ")
        what = f"actor {actor} could not be made: its __init__ raised {name.rstrip(':')}"
        return Cause("actor-init-raised", what, words, _POST_MORTEM)
    reason = re.search(r"The actor is (?:dead because|temporarily unavailable:) (.+)", failure.text)
    why = (reason[1] if reason else failure.message).partition(" Some common causes include")[0]
    if "End of file" in why or "Socket closed" in why:
        why = _SILENT
    again = " again and has no restarts left" if failure.restarts else ""
    times = "once" if failure.restarts == 1 else f"{failure.restarts} times"
    before = f"it was started again {times}; " if failure.restarts else ""
    hint = "fix what ended it; @ray.remote(max_restarts=3) starts it again, unless ray.kill ended it"
    return Cause("actor-died", f"{failure.subject} died{again}", before + why, hint)


# --- requests to Ray ---------------------------------------------------------------------


def object_store_full(failure: Failure) -> Cause:
    disk = failure.name == "OutOfDiskError"
    return Cause(
        "object-store-full",
        f"{failure.subject} could not store an object: the object store is full",
        "the disk that Ray spills objects to is full, too" if disk else _first_line(failure),
        "free disk space; ./invokew doctor shows how much there is"
        if disk
        else "drop references to objects that are no longer needed, or have tasks return less",
    )


def object_lost(failure: Failure) -> Cause:
    # Ray names the object first, then says what became of it.
    words = [part for part in failure.message.split("\n\n") if part.strip()][:2]
    return Cause(
        "object-lost",
        f"{failure.subject} asked for an object that is lost",
        words[-1] if words else "all copies of it are gone",
        "keep the actor that made it alive, or have a task with max_retries make it, which Ray can run again",
    )


def get_timed_out(failure: Failure) -> Cause:
    waited = f"; unfinished were then: {', '.join(failure.unfinished[:5])}" if failure.unfinished else ""
    return Cause(
        "get-timed-out",
        f"{failure.subject} waited in ray.get for longer than its timeout",
        f"some object was not ready{waited}",
        "./invokew diagnose, while it waits, says on what; or give ray.get a longer timeout",
    )


def cancelled(failure: Failure) -> Cause:
    task = "a task" if failure.subject == "the driver" else failure.subject
    hint = "look for ray.cancel in the program, and don't ask for the result of what it cancelled"
    return Cause("task-cancelled", f"{task} was cancelled", "somebody called ray.cancel on it", hint)


def _first_line(failure: Failure) -> str:
    return failure.message.partition("\n")[0]


_EXPLAINED_BY: dict[str, Callable[[Failure], Cause]] = {
    **dict.fromkeys(("OutOfMemoryError", "MemoryError"), out_of_memory),
    **dict.fromkeys(("ModuleNotFoundError", "ImportError"), module_not_found),
    "RuntimeEnvSetupError": runtime_env_failed,
    "WorkerCrashedError": worker_died,
    **dict.fromkeys(("ActorDiedError", "ActorUnavailableError"), actor_died),
    **dict.fromkeys(("ObjectStoreFullError", "OutOfDiskError"), object_store_full),
    **dict.fromkeys(("ObjectLostError", "ObjectFetchTimedOutError", "ObjectFreedError"), object_lost),
    **dict.fromkeys(("OwnerDiedError", "ReferenceCountingAssertionError"), object_lost),
    "ObjectReconstructionFailedError": object_lost,
    "GetTimeoutError": get_timed_out,
    "TaskCancelledError": cancelled,
}


# --- Ray's output for a runtime_env that could not be made -------------------------------

# Lines in which the programs that make it print the reason, or an exception.
_TELLING = re.compile(r"^(ERROR: .+|error: .+|[\w.]*(?:Error|Exception): .+|.*No such file or directory.*)$")
# Lines that only say that something failed.
_EMPTY = re.compile(r"SubprocessCalledProcessError|RuntimeEnvSetupError|Failed to set up")
# Characters that are read, from its end: most of it is a traceback.
_MOST = 20_000
# pip and uv end with the name of the package, as if the index lacked it. Other lines of their output show
# what is wrong with the index itself, or with a proxy (pip 23.2 and 26.3, uv 0.4.27 to 0.13.9).
_OF_INDEX = re.compile(
    (
        r"Tunnel connection failed[^\n']{0,100}|tunnel error: [^\n]{0,100}"
        r"|CERTIFICATE_VERIFY_FAILED\][^\n]{0,300}(?:issuer certificate|self[- ]signed)"
        r"|Could not fetch URL [^\n]{0,300}problem confirming the ssl certificate"
        r"|(?:peer certificate: UnknownIssuer|invalid peer certificate)[^\n]{0,100}"
        r"|40[13] Error, Credentials not correct|HTTP error 40[13] while getting|in _prompt_for_password"
        r"|lack of valid authentication credentials|returned a 403 Forbidden"
        r"|total=0,[^\n]{0,200}connection broken by "
        r"'(?:\w*(?:Connection|Resolution|Timeout|Proxy)|Protocol)\w*Error[^\n]{0,200}"
        r"|(?:cause:|Caused by:|─▶) (?:tcp connect error|dns error|operation timed out)[^\n]{0,100}"
        # uv older than 0.9.23.
        r"|unknown field `http-proxy`"
    ).replace(" ", r"\s+")  # uv breaks its lines anywhere.
)


def why_no_runtime_env(text: str) -> tuple[str, str]:
    text = text[-_MOST:]
    if found := _OF_INDEX.search(text):
        return (
            f"the package index, or the proxy to it, can't be used: {' '.join(found[0].split())}",
            "correct the settings package_index (with its login), package_index_ca and package_proxy, "
            "and ./invokew up (targets kind, and cluster with --create)",
        )
    telling = [line for line in map(str.strip, text.splitlines()) if _TELLING.match(line)]
    telling = [line for line in telling if not _EMPTY.search(line)]
    why = telling[-1].removeprefix("ERROR: ") if telling else last_words(text) or "Ray gave no reason"
    return why, "correct what it names in the runtime_env, and submit again"
