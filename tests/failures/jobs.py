"""Has jobs that fail, or get stuck, on purpose, each in its own way, on a real Ray of two nodes."""

from __future__ import annotations

from tests.failures.failure import Failure

# The second node has this resource, no processor, and an object store of so many bytes.
OTHER, STORE = "other", 80_000_000
# What only asks for what a task needs to run has no CPU, for two CPUs would make them wait for each other,
# and is on the head, for the other node dies.
BEGIN = (
    "import os, signal, threading, time, ray; HERE = {'node:__internal_head__': 0.001}\nray.init()\n"
    "remote = ray.remote(num_cpus=0, max_retries=0, resources=HERE)\n"
    f"other = ray.remote(num_cpus=0, max_retries=0, resources={{'{OTHER}': 1}})\n"
    "def gone():\n    return sum(node['Alive'] for node in ray.nodes()) == 1\n"
)
PROGRAMS = {
    "raises": "@remote\ndef parse(row):\n    return int(row)\nray.get(parse.remote('seven'))\n",
    "lacks": "@remote\ndef load():\n    import mylib\nray.get(load.remote())\n",
    "captures": "guard = threading.Lock()\n@remote\ndef f():\n    return guard\nray.get(f.remote())\n",
    "sends": "@remote\ndef count(n):\n    return n\nray.get(count.remote(threading.Lock()))\n",
    "crashes": "@remote\ndef crash():\n    os.kill(os.getpid(), signal.SIGSEGV)\nray.get(crash.remote())\n",
    "builds": (
        "@ray.remote(resources=HERE, num_cpus=0)\nclass Model:\n"
        "    def __init__(self):\n        open('/no/weights.bin')\n"
        "    def run(self):\n        pass\nray.get(Model.remote().run.remote())\n"
    ),
    "kills": (
        "@ray.remote(resources=HERE, num_cpus=0)\nclass Counter:\n"
        "    def get(self):\n        return 1\n"
        "c = Counter.remote()\nray.get(c.get.remote())\nray.kill(c)\ntime.sleep(1)\nray.get(c.get.remote())\n"
    ),
    "restarts": (
        "@ray.remote(resources=HERE, num_cpus=0, max_restarts=1)\nclass Frail:\n"
        "    def work(self):\n        os._exit(3)\n"
        "f = Frail.remote()\nfor _ in range(3):\n    try:\n        ray.get(f.work.remote())\n"
        "    except ray.exceptions.RayError as error:\n        last = error\n    time.sleep(2)\nraise last\n"
    ),
    "owns": (
        "@ray.remote(resources=HERE, num_cpus=0)\nclass Owner:\n"
        "    def make(self):\n        return [ray.put(bytes(200_000))]\n"
        "o = Owner.remote()\n[made] = ray.get(o.make.remote())\nray.kill(o)\ntime.sleep(10)\nray.get(made)\n"
    ),
    "calls": (
        "@ray.remote(resources=HERE, num_cpus=0, max_pending_calls=2)\nclass Slow:\n"
        "    def work(self):\n        time.sleep(60)\n"
        "s = Slow.remote()\nray.get([s.work.remote() for _ in range(9)])\n"
    ),
    "waits": "@remote\ndef slow():\n    time.sleep(600)\nray.get(slow.remote(), timeout=1)\n",
    "loses": (
        "@other\ndef make():\n    return bytes(200_000)\n"
        "made = make.remote()\nray.wait([made], fetch_local=False)\n"
        "while not gone():\n    time.sleep(0.2)\nray.get(made)\n"
    ),
    # It goes on, whatever becomes of its tasks.
    "catches": (
        "from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy as On\n"
        "@remote\ndef part():\n    raise KeyError('caught')\n"
        "@ray.remote(resources=HERE, num_cpus=0, max_retries=1, retry_exceptions=True)\n"
        "def fetch():\n    raise ConnectionError('upstream said 503')\n"
        # Ray cancels a task that runs between two bytecodes: not before one long sleep has ended.
        "@remote\ndef rest():\n    while True: time.sleep(0.1)\n"
        f"@other\ndef fill():\n    return [ray.put(bytes({STORE * 3 // 4})) for _ in range(2)]\n"
        "@other\ndef stay():\n    time.sleep(600)\n"
        "NONE = {'py_modules': ['gcs://_ray_pkg_none.zip']}\n"
        "@ray.remote(resources=HERE, num_cpus=0, max_retries=0, runtime_env=NONE)\n"
        "def ready():\n    pass\n"
        "resting = rest.remote()\n"
        "results = [part.remote(), fetch.remote(), fill.remote(), stay.remote(), ready.remote(), resting]\n"
        "while not ray.wait([resting], timeout=3)[0]:\n    ray.cancel(resting)\n"
        "away = next(n['NodeID'] for n in ray.nodes() if n['NodeManagerAddress'] == '127.0.0.3')\n"
        "while not gone():\n    time.sleep(0.2)\n"
        "@ray.remote(num_cpus=0, max_retries=0, scheduling_strategy=On(away, soft=False))\n"
        "def follow():\n    pass\n"
        "results.append(follow.remote())\n"
        "for result in results:\n    try:\n        ray.get(result)\n    except Exception as error:\n"
        "        print(type(error).__name__)\ntime.sleep(600)\n"
    ),
    "asks": (
        "from ray.util.placement_group import placement_group\n"
        "@ray.remote(num_gpus=1)\ndef train():\n    pass\n"
        "@ray.remote(resources={'tpu': 4})\nclass Trainer:\n    def run(self):\n        pass\n"
        "@ray.remote(num_cpus=2)\ndef hold():\n    time.sleep(600)\n"
        "@ray.remote(num_cpus=1)\ndef follow():\n    pass\n"
        "group = placement_group([{'CPU': 64}], name='shards')\n"
        "trainer, trained = Trainer.remote(), train.remote()\nheld = hold.remote()\ntime.sleep(2)\n"
        "ray.get([trained, trainer.run.remote(), follow.remote()])\n"
    ),
    "pauses": (
        "@remote\ndef look():\n    breakpoint()\n@remote\ndef after(n):\n    pass\n"
        "ray.get(after.remote(look.remote()))\n"
    ),
    "stands": "breakpoint()\n",
}
# These are no programs of Ray's.
PLAIN = {
    "fails": "int('seven')\n",
    "imports": "import mylib\n",
}
COMMANDS = {
    "missing": "nosuchprog --x",
    "unexecutable": "/etc/group",
    "fileless": "python nosuchfile.py",
    "exits": "exit 7",
    # Where Ray was started with SIGINT ignored, as by a script in the background, kill -2 does nothing.
    "interrupted": "python -c 'raise KeyboardInterrupt'",
    "killed": "kill -9 $$",
    "crashed": "kill -11 $$",
    "unmade": "true",
}
# What a job is submitted with besides.
ENVIRONMENTS = {"unmade": {"working_dir": "gcs://_ray_pkg_none.zip"}}
# These neither end nor fail.
STUCK = ("catches", "asks", "pauses", "stands")


FAILURES = [
    Failure(
        "raises",
        "a task raises",
        "task-raised",
        "job raises failed: task parse raised ValueError",
        "raises.py:9, in parse",
        "'seven'",
    ),
    Failure(
        "lacks",
        "a task imports a module that was not sent",
        "module-not-found",
        "job lacks failed: task load can't import mylib",
        "lacks.py:9, in load",
        "No module named 'mylib'",
    ),
    Failure(
        "captures",
        "a task uses a lock of the driver",
        "not-serializable",
        "job captures failed: function captures.f can't be sent to a worker",
        "captures.py:11",
        "it uses the variable guard, of type _thread.lock, which can't be pickled",
    ),
    Failure(
        "sends",
        "a lock is an argument of a task",
        "not-serializable",
        "job sends failed: an argument of sends.count can't be sent to a worker",
        "sends.py:10",
        "of type _thread.lock can't be pickled",
    ),
    Failure(
        "crashes",
        "a task gets SIGSEGV",
        "worker-died",
        "job crashes failed: the worker process of task crash died",
        "crashes.py:10",
    ),
    Failure(
        "builds",
        "an actor's `__init__` raises",
        "actor-init-raised",
        "job builds failed: actor Model could not be made: its __init__ raised FileNotFoundError",
        "in __init__",
        "'/no/weights.bin'",
    ),
    Failure(
        "kills",
        "an actor is called after `ray.kill`",
        "actor-died",
        "job kills failed: actor Counter died",
        "kills.py:15",
        "it was killed by `ray.kill`",
    ),
    Failure(
        "restarts",
        "an actor with one restart ends twice by `os._exit`",
        "actor-died",
        "job restarts failed: actor Frail died again and has no restarts left",
        "restarts.py",
        "it was started again once",
    ),
    Failure(
        "owns",
        "an object is asked for whose actor was killed",
        "object-lost",
        "job owns failed: the driver asked for an object that is lost",
        "owns.py:15",
        "The object's owner has exited",
    ),
    Failure(
        "calls",
        "an actor with `max_pending_calls=2` is called 9 times",
        "driver-raised",
        "job calls failed: the driver raised PendingCallsLimitExceeded",
        "calls.py:12",
        "more than 2 tasks are queued on the actor",
    ),
    Failure(
        "waits",
        "`ray.get` with a timeout of a second for a task that sleeps",
        "get-timed-out",
        "job waits failed: the driver waited in ray.get for longer than its timeout",
        "waits.py:10",
        "unfinished were then: slow",
    ),
    Failure(
        "loses",
        "an object is asked for whose node has died",
        "object-lost",
        "job loses failed: the driver asked for an object that is lost",
        "loses.py:14",
    ),
    Failure(
        "catches part",
        "a task raises, and the driver catches it",
        "task-raised",
        "task part raised KeyError",
        "catches.py:10, in part",
        "'caught'",
    ),
    Failure(
        "catches fetch",
        "a task with `retry_exceptions` raises each time",
        "task-raised",
        "task fetch raised ConnectionError",
        "job catches",
        "upstream said 503; it was tried 2 times",
    ),
    Failure(
        "catches rest",
        "`ray.cancel` of a task that runs",
        "task-cancelled",
        "task rest was cancelled",
        "job catches",
        "somebody called ray.cancel on it",
    ),
    Failure(
        "catches fill",
        "a task puts more into a node's object store than that and its disk may have",
        "object-store-full",
        "task fill could not store an object: the object store is full",
        "job catches",
    ),
    Failure(
        "catches stay",
        "a task's node is killed",
        "task-raised",
        "task stay raised NodeDiedError",
        "job catches",
    ),
    Failure(
        "catches ready",
        "a task's `py_modules` are not where they should be",
        "runtime-env-failed",
        "the runtime_env of task ready could not be made",
        "job catches",
    ),
    Failure(
        "catches follow",
        "a task is bound to a node that has died",
        "task-raised",
        "task follow raised TaskUnschedulableError",
        "job catches",
    ),
    Failure(
        "asks train",
        "a task asks for a GPU where there is none",
        "task-infeasible",
        "task train waits for 1 GPU, which no node has",
        "job asks, for",
        "no node has any GPU",
    ),
    Failure(
        "asks Trainer",
        "an actor asks for a resource that there is none of",
        "actor-infeasible",
        "actor Trainer waits for 4 tpu, which no node has",
        "job asks, for",
        "no node has any tpu",
    ),
    Failure(
        "asks shards",
        "a placement group asks for 64 processors",
        "placement-group-infeasible",
        "placement group shards waits for its bundles: 64 CPU",
        "job asks",
        "no node has more than 2 CPU",
    ),
    Failure(
        "asks follow",
        "a task asks for a processor, and another task has both",
        "task-waits-for-resources",
        "task follow waits for 1 CPU",
        "job asks, for",
        "all of it is in use, by task hold of job asks",
    ),
    Failure(
        "pauses",
        "a task is in `breakpoint()`, and another waits for its result",
        "paused-others-wait",
        "task look of job pauses waits for a debugger, and others wait for it",
        "process",
        "waiting: after (1 in all)",
    ),
    Failure(
        "stands",
        "the driver is in `breakpoint()`",
        "driver-paused",
        "the driver of job stands waits for a debugger",
        "process",
    ),
    Failure(
        "fails",
        "the driver raises",
        "driver-raised",
        "job fails failed: the driver raised ValueError",
        "fails.py:1",
        "'seven'",
    ),
    Failure(
        "imports",
        "the driver imports a module that is not there",
        "module-not-found",
        "job imports failed: the driver can't import mylib",
        "imports.py:1",
        "No module named 'mylib'",
    ),
    Failure(
        "missing",
        "the entrypoint is a program that is not there",
        "job-failed",
        "job missing failed: exit code 127 (the program was not found)",
        "",
        "nosuchprog: not found",
    ),
    Failure(
        "unexecutable",
        "the entrypoint is a file that is no program",
        "job-failed",
        "job unexecutable failed: exit code 126 (the program is not executable)",
        "",
        "/etc/group",
    ),
    Failure(
        "fileless",
        "the entrypoint is a Python file that was not sent",
        "job-failed",
        "job fileless failed: exit code 2 (the program was called wrongly, or its file could not be opened)",
        "",
        "nosuchfile.py",
    ),
    Failure(
        "exits",
        "the entrypoint ends with 7",
        "job-failed",
        "job exits failed: exit code 7 (as the program chose)",
    ),
    Failure(
        "interrupted",
        "the driver raises `KeyboardInterrupt`, as Ctrl-C does",
        "job-failed",
        "job interrupted failed: exit code 130 (SIGINT: it was interrupted)",
    ),
    Failure(
        "killed",
        "the entrypoint gets SIGKILL",
        "job-failed",
        "job killed failed: exit code -9 (SIGKILL: killed, most often because memory ran out)",
    ),
    Failure(
        "crashed",
        "the entrypoint gets SIGSEGV",
        "job-failed",
        "job crashed failed: exit code -11 (SIGSEGV: it crashed in native code)",
    ),
    Failure(
        "unmade",
        "the job's `working_dir` is not where it should be",
        "runtime-env-failed",
        "job unmade failed: its runtime_env could not be made",
    ),
    Failure(
        "the second node",
        "a node's raylet is killed",
        "node-dead",
        "node 127.0.0.3 of Ray died",
        "node",
        "nodes alive: 1",
    ),
]
