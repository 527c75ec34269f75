"""Tests what is said of a failed job: each case, with what Ray 2.60 printed and had in its tables."""

from __future__ import annotations

import time

import pytest

from bootstrap.diagnosis.explain import findings
from tests.unit.diagnosed import NOW, actor, died, job, of_log, only, seen, task

RAY = "/opt/ray/lib/python3.11/site-packages/ray/_private/worker.py"
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
TRACED = 'Traceback (most recent call last):\n  File "t.py", line 1, in <module>\n    x\n'
NO_INT = "ValueError: invalid literal for int() with base 10: 'seven'"
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


# --- exceptions of the user's own --------------------------------------------------------


def test_a_task_that_raised_is_told_with_its_line_and_its_words() -> None:
    found = of_log(f"{GET}ray.exceptions.RayTaskError(ValueError): {IN_TASK}{NO_INT}\n")
    assert (found.id, found.job) == ("task-raised", "train-1")
    assert found.what == "job train-1 failed: task load raised ValueError"
    assert found.where == "train.py:5, in load"
    assert found.why == "invalid literal for int() with base 10: 'seven'"
    assert found.hint.startswith("./invokew submit --debug --post-mortem")


def test_what_others_print_after_an_exception_is_none_of_it() -> None:
    others = "(raylet) Task other failed. There are 1 retries remaining. Error: User exception:\n"
    found = of_log(
        f"{GET}ray.exceptions.RayTaskError(ValueError): {IN_TASK}{NO_INT}\n{others}  x\nKeyError: 'no'\n"
    )
    assert found.what.endswith("task load raised ValueError")
    assert "no'" not in found.why


@pytest.mark.parametrize(
    "who", ["raylet", "raylet, ip=127.0.0.3", "other pid=7, ip=127.0.0.3", "autoscaler +16s, ip=127.0.0.3"]
)
def test_what_another_node_prints_after_an_exception_is_none_of_it(who: str) -> None:
    others = (
        f"({who}) [2026-11-23 16:27:21,848 E 21852 21863] file_system_monitor.cc:116: /tmp is over 95% full\n"
    )
    found = of_log(f"{GET}ray.exceptions.RayTaskError(ValueError): {IN_TASK}{NO_INT}\n{others}")
    assert found.why == "invalid literal for int() with base 10: 'seven'"


def test_of_tasks_within_tasks_the_innermost_is_told() -> None:
    outer = (
        'ray::outer() (pid=1, ip=127.0.0.2)\n  File "train.py", line 9, in outer\n'
        "    ray.get(load.remote())\n"
    )
    error = f"ray.exceptions.RayTaskError(ValueError): {IN_TASK}{NO_INT}"
    found = of_log(f"{GET}ray.exceptions.RayTaskError(ValueError): {outer}{error}\n")
    assert found.what == "job train-1 failed: task load raised ValueError"


def test_a_driver_that_raised_is_told_by_its_last_traceback() -> None:
    first = 'Traceback (most recent call last):\n  File "train.py", line 1, in <module>\n    x\nKeyError: 1\n'
    second = (
        'Traceback (most recent call last):\n  File "train.py", line 2, in f\n    y\n'
        "ValueError: no such luck\n"
    )
    found = of_log(
        f"{first}\nDuring handling of the above exception, another exception occurred:\n\n{second}"
    )
    assert (found.id, found.where, found.why) == ("driver-raised", "train.py:2, in f", "no such luck")


def test_a_program_that_is_no_python_is_told_with_its_line() -> None:
    log = (
        'Running entrypoint\n  File "train.py", line 3\n    def f(:\n          ^\n'
        "SyntaxError: invalid syntax\n"
    )
    found = of_log(log)
    assert (found.what, found.where) == ("job train-1 failed: the driver raised SyntaxError", "train.py:3")


def test_an_exception_of_a_users_class_is_told_whatever_it_is_called() -> None:
    log = (
        'Traceback (most recent call last):\n  File "train.py", line 1, in f\n    x\n'
        "my.pack.Oops: with: colon\n"
    )
    found = of_log(log)
    assert (found.what, found.why) == ("job train-1 failed: the driver raised Oops", "with: colon")


def test_a_task_that_was_tried_to_the_last_says_how_often() -> None:
    error = f"User exception:\n{IN_TASK}ConnectionError: upstream said 503"
    tasks = [task(error=error, attempt_number=number) for number in range(3)]
    log = f"{GET}ray.exceptions.RayTaskError(ConnectionError): {IN_TASK}ConnectionError: upstream said 503\n"
    found = of_log(log, tasks=tasks)
    assert found.id == "task-raised"
    assert found.what.endswith("task load raised ConnectionError")
    assert found.why == "upstream said 503; it was tried 3 times"


# --- what a worker lacks -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("log", "who"),
    [
        (
            'Traceback (most recent call last):\n  File "train.py", line 2, in <module>\n'
            "    import mylib.deep\n"
            "ModuleNotFoundError: No module named 'mylib'\n",
            "the driver",
        ),
        (
            f"{GET}ray.exceptions.RayTaskError(ModuleNotFoundError): {IN_TASK}"
            "ModuleNotFoundError: No module named 'mylib'\n",
            "task load",
        ),
    ],
)
def test_a_module_that_was_not_sent_is_told_with_the_option_that_sends_it(log: str, who: str) -> None:
    found = of_log(log)
    assert (found.id, found.what) == ("module-not-found", f"job train-1 failed: {who} can't import mylib")
    assert "--py-modules path/to/mylib" in found.hint


def test_a_module_that_a_package_lacks_is_not_told_as_the_packages_absence() -> None:
    found = of_log(f"{TRACED}ModuleNotFoundError: No module named 'mylib.deep.er'\n")
    assert found.what == "job train-1 failed: the driver can't import mylib.deep.er"
    assert found.hint.startswith("mylib is there, without deep.er: ")


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
        found = of_log(log)
        assert (found.what, found.why) == (
            "job train-1 failed: the driver raised ValueError",
            "the real cause",
        )
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


def test_a_captured_variable_that_cannot_be_pickled_is_named() -> None:
    found = of_log(
        'Traceback (most recent call last):\n  File "train.py", line 8, in <module>\n'
        "    ray.get(count.remote(1))\n"
        "TypeError: Could not serialize the function train.count:\n=====\n"
        "!!! FAIL serialization: cannot pickle '_thread.lock' object\n"
        "\tFailTuple(guard [path=guard, obj=<unlocked _thread.lock object at 0x7f>, "
        "parent=<function count>])\n"
    )
    assert (found.id, found.where) == ("not-serializable", "train.py:8")
    assert found.what.endswith("function train.count can't be sent to a worker")
    assert found.why == "it uses the variable guard, of type _thread.lock, which can't be pickled"


def test_an_argument_that_cannot_be_pickled_is_named() -> None:
    found = of_log(
        'Traceback (most recent call last):\n  File "train.py", line 6, in <module>\n'
        "    ray.get(count.remote(x))\n"
        "TypeError: Could not serialize the argument <unlocked _thread.lock object at "
        "0x7f> for a task or actor "
        "train.count:\n!!! FAIL serialization: cannot pickle '_thread.lock' object\n"
        "\tFailTuple(unknown [path=, obj=<unlocked _thread.lock object at 0x7f>, parent=None])\n"
    )
    assert found.what.endswith("an argument of train.count can't be sent to a worker")
    assert found.why == "<unlocked _thread.lock object at 0x7f>, of type _thread.lock can't be pickled"


def test_a_runtime_env_that_pip_could_not_make_is_told_in_pips_words() -> None:
    message = (
        "runtime_env setup failed: Failed to set up runtime environment.\n"
        "ray._private.runtime_env.utils.SubprocessCalledProcessError: Run cmd[9] failed "
        "with the following details.\n"
        "Last 50 lines of stdout:\n    Looking in links: /opt/wheels\n"
        "    ERROR: No matching distribution found for no-such-package\n"
    )
    row = job(code=None, job_id=None, error_type="RUNTIME_ENV_SETUP_FAILURE", message=message)
    found = only(findings(seen([row])))
    assert (found.id, found.why) == (
        "runtime-env-failed",
        "No matching distribution found for no-such-package",
    )


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


def test_a_runtime_env_of_a_task_that_could_not_be_made() -> None:
    error = (
        "Failed to set up runtime environment.\nOSError: Failed to download runtime_env file package x.zip"
    )
    row = task(error=error, error_type="RUNTIME_ENV_SETUP_FAILED")
    found = of_log(f"{GET}ray.exceptions.RuntimeEnvSetupError: {error}\n", tasks=[row])
    assert (found.id, found.what[20:]) == (
        "runtime-env-failed",
        "the runtime_env of task load could not be made",
    )
    assert found.why == "OSError: Failed to download runtime_env file package x.zip"


# --- memory and processes ----------------------------------------------------------------


def test_a_task_killed_for_memory_is_told_with_figures() -> None:
    row = task(error=LOW, error_type="OUT_OF_MEMORY")
    found = of_log(f"{GET}ray.exceptions.OutOfMemoryError: {LOW}\n", tasks=[row])
    assert found.id == "task-out-of-memory"
    assert found.what.endswith("task load was killed by Ray, for its node ran low on memory")
    assert found.why == "4.18GB of 23.54GB were in use, 0.05GB of that by its own process"
    assert "num_cpus" in found.hint


def test_a_task_killed_for_memory_that_no_table_has_is_named_by_what_ray_printed() -> None:
    found = of_log(f"{GET}ray.exceptions.OutOfMemoryError: {LOW}\n")
    assert found.what == "job train-1 failed: task load was killed by Ray, for its node ran low on memory"


def test_a_job_whose_supervisor_was_killed_for_memory() -> None:
    row = job(
        code=None,
        error_type="JOB_SUPERVISOR_ACTOR_UNKNOWN_FAILURE",
        message=f"Unexpected error occurred: {LOW}",
    )
    found = only(findings(seen([row])))
    assert (found.id, found.why) == (
        "task-out-of-memory",
        "4.18GB of 23.54GB were in use, 0.05GB of that by its own process",
    )


CRASHED = f"{GET}ray.exceptions.WorkerCrashedError: The worker died unexpectedly while executing this task.\n"


@pytest.mark.parametrize(
    ("row", "before", "why"),
    [
        (
            task(error="UnexpectedSystemExit: Worker exits with an exit code 3.", error_type="WORKER_DIED"),
            "",
            "its process ended with exit code 3 (as the program chose)",
        ),
        (
            task(error="RpcError: RPC error: Socket closed rpc_code: 14", error_type="WORKER_DIED"),
            "",
            "its process ended without a word",
        ),
        (
            task(error="RpcError: RPC error: Socket closed rpc_code: 14", error_type="WORKER_DIED"),
            "(load pid=27085) *** SIGSEGV received at time=1795435280 on cpu 1 ***\n",
            "its process got SIGSEGV, as it crashed in native code",
        ),
    ],
)
def test_a_worker_that_died_is_told_as_far_as_ray_knows(
    row: dict[str, object], before: str, why: str
) -> None:
    found = of_log(before + CRASHED, tasks=[row])
    assert (found.id, found.what[20:]) == ("worker-died", "the worker process of task load died")
    assert found.why.startswith(why)


def test_the_signal_of_another_process_is_not_the_workers() -> None:
    row = task(error="RpcError: RPC error: Socket closed rpc_code: 14", error_type="WORKER_DIED")
    found = of_log(f"(other pid=1) *** SIGSEGV received at time=1 on cpu 1 ***\n{CRASHED}", tasks=[row])
    assert "SIGSEGV" not in found.why


def test_a_full_object_store_and_a_full_disk() -> None:
    full = of_log(f"{GET}ray.exceptions.ObjectStoreFullError: Failed to put object 00ff in object store\n")
    assert (full.id, full.why) == ("object-store-full", "Failed to put object 00ff in object store")
    disk = of_log(f"{GET}ray.exceptions.OutOfDiskError: Local disk is full\n")
    assert (disk.id, disk.hint.partition(";")[0]) == ("object-store-full", "free disk space")


# --- actors and objects ------------------------------------------------------------------


def test_an_actor_whose_init_raised() -> None:
    created = (
        "The actor died because of an error raised in its creation task, ray::Model.__init__() (pid=26986, "
        "ip=127.0.0.2, actor_id=id-of-Model, repr=<train.Model object at 0x7f>)\n"
        '  File "train.py", line 6, in __init__\n    self.f = open(path)\n             ^^^^^^^^^^\n'
        "FileNotFoundError: [Errno 2] No such file or directory: '/no/weights.bin'"
    )
    found = of_log(f"{GET}ray.exceptions.ActorDiedError: {created}\n", actors=[actor()])
    assert found.id == "actor-init-raised"
    assert found.what.endswith("actor Model could not be made: its __init__ raised FileNotFoundError")
    assert (found.where, found.why) == (
        "train.py:6, in __init__",
        "[Errno 2] No such file or directory: '/no/weights.bin'",
    )


@pytest.mark.parametrize(
    ("words", "restarts", "identity", "why"),
    [
        (
            "The actor is dead because it was killed by `ray.kill`.",
            "0",
            "actor-died",
            "it was killed by `ray.kill`",
        ),
        (EOF, "0", "actor-died", "its process ended without a word"),
        (EOF, "1", "actor-died", "it was started again once; its process ended without a word"),
        (
            "The actor is dead because its node has died. Node Id: 92ce",
            "0",
            "actor-died",
            "its node has died",
        ),
        (
            "The actor is dead because its owner has died. Owner Id: 12",
            "0",
            "actor-died",
            "its owner has died. Owner Id: 12",
        ),
    ],
)
def test_why_an_actor_died(words: str, restarts: str, identity: str, why: str) -> None:
    unexpected = f"The actor died unexpectedly before finishing this task.\n\tactor_id: id-of-Model\n{words}"
    row = actor(death_cause=died(words), num_restarts=restarts)
    found = of_log(f"{GET}ray.exceptions.ActorDiedError: {unexpected}\n", actors=[row])
    assert found.id == identity
    assert "actor Model" in found.what
    assert why in found.why


def test_an_object_whose_owner_ended_and_one_that_is_lost() -> None:
    owner = of_log(
        f"{GET}ray.exceptions.OwnerDiedError: Failed to retrieve object 00ad.\n\n"
        "The object's owner has exited.\n\n"
        "Owner worker ID: 4e93, owner node ID: d4f7, owner address: 127.0.0.2:34485.\n"
    )
    assert (owner.id, owner.why) == ("object-lost", "The object's owner has exited.")
    lost = of_log(
        f"{GET}ray.exceptions.ObjectReconstructionFailedError: Failed to retrieve object 00ad.\n\n"
        "[OBJECT_UNRECONSTRUCTABLE_PUT] The object cannot be reconstructed because it was "
        "created by ray.put()\n"
    )
    assert (lost.id, "created by ray.put()" in lost.why) == ("object-lost", True)


# --- what was asked for ------------------------------------------------------------------


def test_a_get_that_timed_out_says_what_was_unfinished() -> None:
    force = "Worker force exited because its job has finished"
    left = [
        task("slow", error=force, error_type="WORKER_DIED"),
        task("never", error_type="WORKER_DIED"),
        task("still", state="RUNNING"),
        task("again", error_type="WORKER_DIED"),
        task("again", state="FINISHED", attempt_number=1),
    ]
    log = f"{GET}ray.exceptions.GetTimeoutError: Get timed out: some object(s) not ready.\n"
    found = of_log(log, tasks=left)
    assert (found.id, found.why) == (
        "get-timed-out",
        "some object was not ready; unfinished were then: slow, never, still",
    )


def test_a_cancelled_task() -> None:
    cancelled = of_log(f"{GET}ray.exceptions.TaskCancelledError\n")
    assert (cancelled.id, cancelled.what[20:]) == ("task-cancelled", "a task was cancelled")


# --- endings without an exception --------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "log", "said", "words"),
    [
        (
            127,
            "/bin/sh: 1: nosuch: not found\nRunning entrypoint for job x: nosuch\n",
            "(the program was not found)",
            "/bin/sh: 1: nosuch: not found",
        ),
        (130, "KeyboardInterrupt\n", "(SIGINT: it was interrupted)", "KeyboardInterrupt"),
        (139, "loads\nSegmentation fault\n\n", "(SIGSEGV: it crashed in native", "Segmentation fault"),
        (-11, "", "(SIGSEGV: it crashed in native code)", "Job is currently running."),
        (5, "bye\n", "exit code 5 (as the program chose)", "bye"),
        (
            1,
            "  +-+---------- 1 ----\n    | ValueError: shard 1\n    +--------\n",
            "1 (",
            "ValueError: shard 1",
        ),
        (
            1,
            f"{TRACED}KeyError: 1\n╭─ Traceback (most recent call last) ─╮\n│ x │\nOSError: x\n",
            "1",
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


def test_a_job_that_ray_could_not_start_is_told_in_rays_words() -> None:
    words = "Failed to start supervisor actor: no node has 64 CPU"
    row = job(code=None, error_type="JOB_SUPERVISOR_ACTOR_UNSCHEDULABLE", message=words)
    found = only(findings(seen([row])))
    assert (found.id, found.why) == ("job-failed", words)
    assert found.what == "job train-1 failed: JOB_SUPERVISOR_ACTOR_UNSCHEDULABLE"


def test_a_task_whose_traceback_is_no_plain_one_is_told_by_its_last_words() -> None:
    error = "User exception:\n  | ExceptionGroup: x\n  +-+---- 1 ----\n    | KeyError: 'a'\n    +------\n"
    found = only(findings(seen([job(status="RUNNING", code=None)], [task(error=error)])))
    assert (found.id, found.what, found.why) == (
        "task-raised",
        "task load raised an exception",
        "KeyError: 'a'",
    )


@pytest.mark.parametrize("name", ["数据错误", "f.<locals>.RowError", "<lambda>.<locals>.Odd"])
def test_an_exceptions_name_may_be_any_of_pythons(name: str) -> None:
    found = of_log(f"{TRACED}my.{name}: row 7\n")
    assert (found.id, found.what.rpartition(" ")[2], found.why) == (
        "driver-raised",
        name.rpartition(".")[2],
        "row 7",
    )


def test_a_driver_whose_python_has_no_ray_is_led_to_rays() -> None:
    found = of_log(f"{TRACED}ModuleNotFoundError: No module named 'ray'\n")
    assert found.id == "module-not-found"
    assert found.hint == "name the Python that Ray is installed in, by its path, in --entrypoint"


def test_every_explainer_of_failures_says_nothing_of_what_it_does_not_know() -> None:
    found = of_log('Traceback (most recent call last):\n  File "t.py", line 1, in f\n    x\nStrange: ?\n')
    assert found.id == "driver-raised"


def test_without_a_log_the_message_of_the_job_is_read() -> None:
    message = (
        f"Job entrypoint command failed with exit code 1, last available logs:\n{GET}ValueError: seven\n"
    )
    found = only(findings(seen([job(message=message)])))
    assert (found.id, found.why) == ("driver-raised", "seven")


def test_the_newest_failed_job_comes_first() -> None:
    rows = [job("old", start_time=1000), job("new", start_time=NOW * 1000, job_id="03000000")]
    assert [each.job for each in findings(seen(rows))] == ["new", "old"]


def test_a_name_that_a_shell_would_obey_is_quoted_in_a_command() -> None:
    found = only(findings(seen([job("x; rm -rf ~", code=5)])))
    assert "--job 'x; rm -rf ~'" in found.hint
