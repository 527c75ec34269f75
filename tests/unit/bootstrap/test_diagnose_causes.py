"""Tests what is said of a failed job: each case, with what Ray 2.60 printed and had in its tables."""

from __future__ import annotations

import re
import time
from typing import Any

import pytest

from bootstrap.diagnosis.explain import findings
from tests.unit.diagnosed import NOW, actor, check, died, job, of_log, only, seen, task

RAY = "/opt/ray/lib/python3.11/site-packages/ray/_private/worker.py"
SEVEN = "invalid literal for int() with base 10: 'seven'"
NO_INT = f"ValueError: {SEVEN}"
# What the driver prints before the exception of a task.
GET = (
    "2026-11-23 12:00:38,614\tINFO worker.py:1691 -- Using address 127.0.0.2:39449\n"
    "Traceback (most recent call last):\n"
    '  File "/tmp/x/runtime_resources/working_dir_files/_ray_pkg_9e9d/train.py", line 6, in <module>\n'
    "    print(ray.get(load.remote(7)))\n"
    "          ^^^^^^^^^^^^^^^^^^^^^^^\n"
    f'  File "{RAY}", line 1053, in get_objects\n'
    "    raise value.as_instanceof_cause()\n"
)
IN_TASK = (
    "ray::load() (pid=25106, ip=127.0.0.2)\n"
    '  File "/tmp/x/runtime_resources/working_dir_files/_ray_pkg_9e9d/train.py", line 5, in load\n'
    "    return int(row)\n"
    "           ^^^^^^^^\n"
)


RAISED = f"{GET}ray.exceptions.RayTaskError(ValueError): {IN_TASK}{NO_INT}\n"
TRACED = 'Traceback (most recent call last):\n  File "t.py", line 1, in <module>\n    x\n'
LOW = (
    "1 worker(s) were killed due to the node running low on memory. Memory on the node "
    "(IP: 127.0.0.2, ID: 92ce) "
    "was 4.18GB used / 23.54GB limit (0.177669)\n"
    "OOM kill reason: Memory usage 4486627328B exceeded threshold\n"
    "Selected to kill: (Task: job ID=02000000, task name=load, pid=11202, actual memory "
    "used=0.05GB, worker ID=3)"
)
EOF = (
    "The actor is dead because its worker process has died. Worker exit type: "
    "SYSTEM_ERROR Worker exit detail: "
    "Worker unexpectedly exits with a connection error code 2. End of file. Some common "
    "causes include: (1) the"
)


CRASHED = f"{GET}ray.exceptions.WorkerCrashedError: The worker died unexpectedly in this task.\n"
SILENT = (
    "its process ended without a word, as by os._exit, a crash in native code, or a kill by the system for "
    "its memory; Ray does not know its exit code"
)
TASK_RAISED = "task-raised | task load raised ValueError"
UPSTREAM = "ConnectionError: upstream said 503"
KILLED = "task-out-of-memory | task load was killed by Ray, for its node ran low on memory"
IN_USE = "4.18GB of 23.54GB were in use, 0.05GB of that by its own process"
NO_ENV = "Failed to set up runtime environment.\nOSError: Failed to download file x.zip"
LOCK, CANT = "<unlocked _thread.lock object at 0x7f>", "can't be pickled"
OF_TYPE = "of type _thread.lock"
GUARD = f"it uses the variable guard, {OF_TYPE}, which {CANT}"
STORE_FULL = "object-store-full | the driver could not store an object: the object store is full"
DIED = "worker-died | the worker process of task load died"
LOST = "object-lost | the driver asked for an object that is lost"
TIMED_OUT = "get-timed-out | the driver waited in ray.get for longer than its timeout"
PUT = "[OBJECT_UNRECONSTRUCTABLE_PUT] The object cannot be reconstructed because it was created by ray.put()"
NOT_MADE = "actor Model could not be made: its __init__"
NO_FILE, IN_INIT = "[Errno 2] No such file or directory: '/no/weights.bin'", "train.py:6, in __init__"
PIPS_WORDS = (
    "runtime_env setup failed: Failed to set up runtime environment.\n"
    "ray._private.runtime_env.utils.SubprocessCalledProcessError: Run cmd[9] failed with these details.\n"
    "Last 50 lines of stdout:\n    Looking in links: /opt/wheels\n"
    "    ERROR: No matching distribution found for x\n"
)


# --- exceptions of the user's own --------------------------------------------------------


WORKER_DIED = {"error_type": "WORKER_DIED"}
EXITED_3 = "UnexpectedSystemExit: Worker exits with an exit code 3."
EVIDENCE: dict[str, dict[str, Any]] = {
    "tried to the last": {
        "tasks": [
            task(error=f"User exception:\n{IN_TASK}{UPSTREAM}", attempt_number=tried) for tried in range(3)
        ]
    },
    "runtime_env of a task": {"tasks": [task(error=NO_ENV, error_type="RUNTIME_ENV_SETUP_FAILED")]},
    "out of memory": {"tasks": [task(error=LOW, error_type="OUT_OF_MEMORY")]},
    "worker exits": {"tasks": [task(error=EXITED_3, **WORKER_DIED)]},
    **{
        f"worker dies{how}": {"tasks": [task(error="RpcError: RPC error: Socket closed", **WORKER_DIED)]}
        for how in ("", " by its signal", " and another by a signal")
    },
    "__init__ of an actor": {"actors": [actor()]},
    "ray.get that timed out": {
        "tasks": [
            task("slow", error="Worker force exited because its job has finished", **WORKER_DIED),
            *(task("never", **WORKER_DIED), task("still", state="RUNNING")),
            *(task("again", **WORKER_DIED), task("again", state="FINISHED", attempt_number=1)),
        ]
    },
}
OF_OTHER_NODES = "".join(
    f"= then {who} prints\n{RAISED}({who}) [E 2] monitor.cc:116: /tmp is full\n> {TASK_RAISED} | {SEVEN}\n"
    for who in ["raylet", "raylet, ip=127.0.0.3", "a pid=7, ip=127.0.0.3", "autoscaler +16s, ip=127.0.0.3"]
)
OF_ANY_NAME = "".join(
    f"= {name}\n{TRACED}my.{name}: row 7\n> driver-raised | the driver raised {name.split('.')[-1]} | row 7\n"
    for name in ("数据错误", "f.<locals>.RowError", "<lambda>.<locals>.Odd")
)
# A case's name, its log, and what is found.
CASES = f"""\
= task raises
{RAISED}> {TASK_RAISED} | {SEVEN} | train.py:5, in load | ./invokew submit --debug --post-mortem
= then the raylet tells of another
{RAISED}(raylet) Task other failed. There are 1 retries remaining. Error: User exception:
  x
KeyError: 'no'
> {TASK_RAISED} | {SEVEN}
= innermost of nested tasks
{GET}ray.exceptions.RayTaskError(ValueError): ray::outer() (pid=1, ip=127.0.0.2)
  File "train.py", line 9, in outer
    ray.get(load.remote())
ray.exceptions.RayTaskError(ValueError): {IN_TASK}{NO_INT}
> {TASK_RAISED}
= tried to the last
{GET}ray.exceptions.RayTaskError(ConnectionError): {IN_TASK}{UPSTREAM}
> task-raised | task load raised ConnectionError | upstream said 503; it was tried 3 times
= last traceback of the driver
{TRACED}KeyError: 1

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "train.py", line 2, in f
    y
ValueError: no such luck
> driver-raised | the driver raised ValueError | no such luck | train.py:2, in f
= no Python
Running entrypoint
  File "train.py", line 3
    def f(:
          ^
SyntaxError: invalid syntax
> driver-raised | the driver raised SyntaxError |  | train.py:3
= class of the user
{TRACED}my.pack.Oops: with: colon
> driver-raised | the driver raised Oops | with: colon
= what nothing else explains
{TRACED}Strange: ?
> driver-raised | the driver raised Strange
= module that the driver lacks
{TRACED}ModuleNotFoundError: No module named 'mylib'
> module-not-found | the driver can't import mylib |  |  | --py-modules path/to/mylib
= module that a task lacks
{GET}ray.exceptions.RayTaskError(ModuleNotFoundError): {IN_TASK}ModuleNotFoundError: No module named 'mylib'
> module-not-found | task load can't import mylib |  |  | --py-modules path/to/mylib
= module that a package lacks
{TRACED}ModuleNotFoundError: No module named 'mylib.deep.er'
> module-not-found | the driver can't import mylib.deep.er |  |  | mylib is there, without deep.er:
= Python without Ray
{TRACED}ModuleNotFoundError: No module named 'ray'
> module-not-found | the driver can't import ray |  |  | name the Python that Ray is installed in, by its path
= captured variable
{TRACED}TypeError: Could not serialize the function train.count:
=====
!!! FAIL serialization: cannot pickle '_thread.lock' object
\tFailTuple(guard [path=guard, obj=<unlocked _thread.lock object at 0x7f>, parent=<function count>])
> not-serializable | function train.count can't be sent to a worker | {GUARD} | t.py:1
= argument
{TRACED}TypeError: Could not serialize the argument {LOCK} for a task or actor train.count:
!!! FAIL serialization: cannot pickle '_thread.lock' object
\tFailTuple(unknown [path=, obj={LOCK}, parent=None])
> not-serializable | an argument of train.count can't be sent to a worker | {LOCK}, {OF_TYPE} {CANT}
= runtime_env of a task
{GET}ray.exceptions.RuntimeEnvSetupError: {NO_ENV}
> runtime-env-failed | the runtime_env of task load could not be made | OSError: Failed to download file x.zip
= out of memory
{GET}ray.exceptions.OutOfMemoryError: {LOW}
> {KILLED} | {IN_USE} |  | num_cpus
= out of memory, in no table
{GET}ray.exceptions.OutOfMemoryError: {LOW}
> {KILLED} | {IN_USE}
= object store full
{GET}ray.exceptions.ObjectStoreFullError: Failed to put object 00ff in object store
> {STORE_FULL} | Failed to put object 00ff in object store
= disk full
{GET}ray.exceptions.OutOfDiskError: Local disk is full
> {STORE_FULL} |  |  | free disk space
= worker exits
{CRASHED}> {DIED} | its process ended with exit code 3 (as the program chose)
= worker dies
{CRASHED}> {DIED} | {SILENT}
= worker dies by its signal
(load pid=27085) *** SIGSEGV received at time=1795435280 on cpu 1 ***
{CRASHED}> {DIED} | its process got SIGSEGV, as it crashed in native code
= worker dies and another by a signal
(other pid=1) *** SIGSEGV received at time=1 on cpu 1 ***
{CRASHED}> {DIED} | {SILENT}
= __init__ of an actor
{GET}ray.exceptions.ActorDiedError: The actor died because of an error raised in its creation task, \
ray::Model.__init__() (pid=26986, ip=127.0.0.2, actor_id=id-of-Model, repr=<train.Model object at 0x7f>)
  File "train.py", line 6, in __init__
    self.f = open(path)
             ^^^^^^^^^^
FileNotFoundError: [Errno 2] No such file or directory: '/no/weights.bin'
> actor-init-raised | {NOT_MADE} raised FileNotFoundError | {NO_FILE} | {IN_INIT}
= object without owner
{GET}ray.exceptions.OwnerDiedError: Failed to retrieve object 00ad.

The object's owner has exited.

Owner worker ID: 4e93, owner node ID: d4f7, owner address: 127.0.0.2:34485.
> {LOST} | The object's owner has exited.
= object of ray.put
{GET}ray.exceptions.ObjectReconstructionFailedError: Failed to retrieve object 00ad.

{PUT}
> {LOST} | {PUT}
= ray.get that timed out
{GET}ray.exceptions.GetTimeoutError: Get timed out: some object(s) not ready.
> {TIMED_OUT} | some object was not ready; unfinished were then: slow, never, still
= cancelled
{GET}ray.exceptions.TaskCancelledError
> task-cancelled | a task was cancelled
{OF_OTHER_NODES}{OF_ANY_NAME}"""


@pytest.mark.parametrize(
    "case", [pytest.param(case, id=case.partition("\n")[0]) for case in re.split(r"(?m)^= ", CASES)[1:]]
)
def test_a_failed_job_is_told_with_its_cause(case: str) -> None:
    name, _, rest = case.partition("\n")
    log, _, told = rest.rpartition("> ")
    found = of_log(log, **EVIDENCE.get(name, {}))
    check(found, told.strip("\n"))
    assert found.job == "train-1"


@pytest.mark.parametrize(
    "line",
    [
        "FileNotFoundError: [Errno 2] No such file or directory: '/data/train.pickle'",
        "_pickle.UnpicklingError: invalid load key, 'x'.",
        "ValueError: unknown label 'Pickle jar'",
    ],
)
def test_not_all_that_names_a_pickle_could_not_be_pickled(line: str) -> None:
    handled = "TypeError: Could not serialize the argument <lock> for a task or actor t.f:\nretrying\n"
    assert of_log(f"{handled}{TRACED}{line}\n").id == "driver-raised"


@pytest.mark.parametrize(
    "line",
    [
        "TypeError: cannot pickle '_thread.lock' object",
        "AttributeError: Can't pickle local object 'f.<locals>.g'",
        "_pickle.PicklingError: args[0] from __newobj__ args has the wrong class",
    ],
)
def test_what_could_not_be_pickled_outside_of_ray_is_told(line: str) -> None:
    assert of_log(f"{TRACED}{line}\n").id == "not-serializable"


def test_an_exception_of_a_program_that_ended_in_another_way_was_handled() -> None:
    log = f"{TRACED}KeyError: 'handled'\nwent on\naccuracy too low\n"
    found = only(findings(seen([job(code=3)], logs={"train-1": log})))
    assert (found.id, found.why) == ("job-failed", "accuracy too low")


@pytest.mark.parametrize(
    "aside",
    [
        "Exception ignored in: <function Conn.__del__ at 0x7f>\n",
        "Exception in thread Thread-1 (poll):\n",
        "Task exception was never retrieved\nfuture: <Task finished>\n",
    ],
)
def test_an_exception_that_ended_nothing_is_not_the_cause(aside: str) -> None:
    other = f"{aside}{TRACED}AttributeError: 'NoneType' object has no attribute 'close'\n"
    real = f"{TRACED}ValueError: the real cause\n"
    for log in (real + other, other + real):
        check(of_log(log), "driver-raised | the driver raised ValueError | the real cause")
    assert of_log(other).id == "job-failed"


@pytest.mark.parametrize(
    ("begin", "piece"),
    [
        ("ValueError: ", "ray::"),
        ("TypeError: ", "Could not serialize the argument a for a task or actor "),
        ("TypeError: ", "cannot pickle FailTuple(a [path=a, obj="),
        ("ray.exceptions.OutOfMemoryError: ", "low on memory. Memory on the node "),
        (f"ray.exceptions.OutOfMemoryError: {LOW}", "Selected to kill: (Task: task name="),
        ("ValueError: ", "its node has gone"),
        ("ray.exceptions.RuntimeEnvSetupError: x\n", " "),
        ("ValueError: x\n(a", " pid=1"),
    ],
)
def test_a_log_takes_a_time_that_grows_with_its_length_alone(begin: str, piece: str) -> None:
    def seconds(length: int) -> float:
        log = f"{TRACED}{begin}{piece * (length // len(piece))}\n"
        began = time.process_time()
        findings(seen([job()], logs={"train-1": log}))
        return time.process_time() - began

    assert min(seconds(60_000) for _ in range(3)) < 9 * min(seconds(15_000) for _ in range(3)) + 0.05


_RETRYING = "WARNING: Retrying (Retry(total=0, connect=None)) after connection broken by"
_FETCHING = "error: Failed to fetch: `https://pypi.test:8443/simple/thing/`\n  Caused by: client error\n"


@pytest.mark.parametrize(
    ("words", "told"),
    [
        # As uv 0.4.27 and 0.7.12 had it; test_package_index.py asks those that are here.
        (f"{_FETCHING}  Caused by: tcp connect error: Connection refused\n", "Connection refused"),
        ("  ├─▶ client error\n  ╰─▶ dns error: failed to lookup\n", "dns error: failed to lookup"),
        (
            "  due to a lack of valid authentication\n      credentials (401)\n",
            "valid authentication credentials",
        ),
        ("hint: An index (https://x/simple/) returned a 403 Forbidden error.\n", "returned a 403 Forbidden"),
        # pip 26.3, then 23.2.
        (
            f"{_RETRYING} 'OSError('Tunnel connection failed: 407 Proxy x')'\n",
            "Tunnel connection failed: 407 Proxy x",
        ),
        (f"{_RETRYING} 'ProxyError('x', OSError('Tunnel connection failed: 403 F'))'\n", "failed: 403 F"),
        (
            "error: Failed to parse: `uv.toml`\n unknown field `http-proxy`, expected x\n",
            "field `http-proxy`",
        ),
        # uv 0.13.9, and 0.9.24.
        (f"{_FETCHING}  cause: tunnel error: proxy authorization required\n", "proxy authorization required"),
        (f"{_FETCHING}  Caused by: tunnel error: unsuccessful\n", "tunnel error: unsuccessful"),
    ],
)
def test_an_index_that_is_no_good_is_told_in_place_of_the_package(words: str, told: str) -> None:
    message = f"Failed to set up runtime environment.\n{words}ERROR: No matching distribution found for x\n"
    row = job(code=None, job_id=None, error_type="RUNTIME_ENV_SETUP_FAILURE", message=message)
    found = only(findings(seen([row])))
    assert found.why.startswith("the package index, or the proxy to it, can't be used: ")
    assert told in found.why
    assert "package_index_ca and package_proxy" in found.hint


@pytest.mark.parametrize(
    ("words", "restarts", "why"),
    [
        ("The actor is dead because it was killed by `ray.kill`.", "0", "it was killed by `ray.kill`"),
        (EOF, "0", "its process ended without a word"),
        (EOF, "1", "it was started again once; its process ended without a word"),
        ("The actor is dead because its node has died. Node Id: 92ce", "0", "its node has died"),
        (
            "The actor is dead because its owner has died. Owner Id: 12",
            "0",
            "its owner has died. Owner Id: 12",
        ),
    ],
    ids=["killed", "no word", "restarted", "node", "owner"],
)
def test_why_an_actor_died(words: str, restarts: str, why: str) -> None:
    unexpected = f"The actor died unexpectedly before finishing this task.\n\tactor_id: id-of-Model\n{words}"
    row = actor(death_cause=died(words), num_restarts=restarts)
    found = of_log(f"{GET}ray.exceptions.ActorDiedError: {unexpected}\n", actors=[row])
    assert found.id == "actor-died"
    assert "actor Model" in found.what
    assert why in found.why


@pytest.mark.parametrize(
    ("row", "told"),
    [
        (
            job(code=None, job_id=None, error_type="RUNTIME_ENV_SETUP_FAILURE", message=PIPS_WORDS),
            "runtime-env-failed | its runtime_env could not be made | No matching distribution found for x",
        ),
        (
            job(code=None, error_type="JOB_SUPERVISOR_ACTOR_UNKNOWN_FAILURE", message=f"Unexpected: {LOW}"),
            f"{KILLED} | {IN_USE}",
        ),
        (
            job(code=None, error_type="JOB_SUPERVISOR_ACTOR_UNSCHEDULABLE", message="no node has 64 CPU"),
            "job-failed | JOB_SUPERVISOR_ACTOR_UNSCHEDULABLE | no node has 64 CPU",
        ),
        (
            job(message=f"Job entrypoint command failed with exit code 1, last:\n{GET}ValueError: seven\n"),
            "driver-raised | the driver raised ValueError | seven",
        ),
    ],
    ids=["runtime_env", "supervisor killed for memory", "could not start", "last logs"],
)
def test_without_a_log_the_message_of_the_job_is_read(row: dict[str, Any], told: str) -> None:
    check(only(findings(seen([row]))), told)


# --- endings without an exception --------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "log", "said", "words"),
    [
        (
            *(127, "/bin/sh: 1: nosuch: not found\nRunning entrypoint for job x: nosuch\n"),
            *("(the program was not found)", "/bin/sh: 1: nosuch: not found"),
        ),
        (130, "KeyboardInterrupt\n", "(SIGINT: it was interrupted)", "KeyboardInterrupt"),
        (139, "loads\nSegmentation fault\n\n", "(SIGSEGV: it crashed in native", "Segmentation fault"),
        (-11, "", "(SIGSEGV: it crashed in native code)", "Job is currently running."),
        (5, "bye\n", "exit code 5 (as the program chose)", "bye"),
        (
            *(1, "  +-+---------- 1 ----\n    | ValueError: shard 1\n    +--------\n", "1 ("),
            "ValueError: shard 1",
        ),
        (
            *(1, f"{TRACED}KeyError: 1\n╭─ Traceback (most recent call last) ─╮\n│ x │\nOSError: x\n", "1"),
            "OSError: x",
        ),
    ],
)
def test_a_program_without_a_plain_traceback_is_told_by_its_exit_code_and_its_last_words(
    code: int, log: str, said: str, words: str
) -> None:
    found = only(findings(seen([job(code=code)], logs={"train-1": log})))
    assert (found.id, found.why) == ("job-failed", words)
    assert said in found.what
    assert found.hint == "./invokew logs --job train-1 shows all of its output"


def test_a_task_whose_traceback_is_no_plain_one_is_told_by_its_last_words() -> None:
    error = "User exception:\n  | ExceptionGroup: x\n  +-+---- 1 ----\n    | KeyError: 'a'\n    +------\n"
    found = only(findings(seen([job(status="RUNNING", code=None)], [task(error=error)])))
    check(found, "task-raised | task load raised an exception | KeyError: 'a'")


def test_the_newest_failed_job_comes_first() -> None:
    rows = [job("old", start_time=1000), job("new", start_time=NOW * 1000, job_id="03000000")]
    assert [each.job for each in findings(seen(rows))] == ["new", "old"]


def test_a_name_that_a_shell_would_obey_is_quoted_in_a_command() -> None:
    found = only(findings(seen([job("x; rm -rf ~", code=5)])))
    assert "--job 'x; rm -rf ~'" in found.hint
