"""Checks jobs before they are submitted, and submits them."""

from __future__ import annotations

import contextlib
import json
import os
import re
import secrets
import shlex
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bootstrap.errors import (
    CommandFailed,
    MissingEntrypoint,
    MissingWorkingDir,
    NotAPackage,
    SubmissionFailed,
)
from bootstrap.loopback import require_own_listener
from bootstrap.ray import outcome
from bootstrap.ray.debug import RAISED, Debug
from bootstrap.ray.metadata import DEBUG, LOCAL_ROOTS, PY_MODULES, USER, USER_VARIABLE, WORKING_DIR
from bootstrap.ray.runtime_env import image_of, require_alone
from bootstrap.ray.runtime_env import read as read_environment

if TYPE_CHECKING:  # bootstrap.submission runs where the packages that it needs are not.
    from bootstrap.shell import Shell

# Ray takes these besides folders: https://docs.ray.io/en/latest/ray-core/handling-dependencies.html
_REMOTE = re.compile(r"^(gcs|s3|gs|https|http|hdfs|abfss|azure|file|local)://")
# A shell reads these; everything else means the same as a list of words.
_SHELL_SYNTAX = re.compile(r"[|&;<>()$`*?\[\]~#{}\\]")

# It matches a Python that finds Ray's packages on PYTHONPATH: with -E or -I it does not look there.
_PYTHON = re.compile(r"(?:^|[\s;&|(])(?:\S*/)?python[\d.]*(?P<options>(?:\s+-[A-Za-z]+)*)\s")


@dataclass(frozen=True)
class Submission:
    """A job that was found to be complete; `runtime_env` has no working_dir and no py_modules."""

    entrypoint: str
    working_dir: str | None
    py_modules: tuple[str, ...] = ()
    runtime_env: dict[str, Any] = field(default_factory=dict)
    metadata: dict[str, str] = field(default_factory=dict)
    # It maps a resolved path of working_dir or py_modules to the same as it was written.
    local_roots: dict[str, str] = field(default_factory=dict)
    debug: Debug | None = None
    # The name of who submits it, where several people may debug on that Ray.
    user: str = ""

    def command(self, ray: Path, url: str, submission_id: str, runtime_env: Path | None) -> list[str]:
        """Returns Ray's own submission command, in the form that can be pasted."""
        return [
            *[str(ray), "job", "submit", "--address", url],
            *self.options(submission_id, runtime_env),
            *["--", *self.words()],
        ]

    def options(self, submission_id: str, runtime_env: Path | None) -> list[str]:
        """Returns the options that `ray job submit` and `kubectl ray job submit` both get.

        `runtime_env` is the file that `environment` was written to, where the user gave one: it
        may hold secrets (env_vars), which an argument would show in the process list.
        """
        inline = ["--runtime-env-json", json.dumps(self.environment())]
        return [
            *["--no-wait", "--submission-id", submission_id],
            *(["--working-dir", self.working_dir] if self.working_dir else []),
            *(["--runtime-env", str(runtime_env)] if runtime_env else inline),
            *["--metadata-json", json.dumps(self.all_metadata())],
        ]

    def arguments(self, submission_id: str) -> dict[str, Any]:
        """Returns the arguments of `JobSubmissionClient.submit_job`: the same as of `ray job submit`."""
        folder = {"working_dir": self.working_dir} if self.working_dir else {}
        return {
            "submission_id": submission_id,
            "entrypoint": shlex.join(self.words()),
            "runtime_env": {**self.environment(), **folder},
            "metadata": self.all_metadata(),
        }

    def all_metadata(self) -> dict[str, str]:
        """Returns the metadata that Ray keeps with the job: the user's, and where its files come from."""
        metadata = {**self.metadata, **({USER: self.user} if self.user else {})}
        if self.working_dir and not _REMOTE.match(self.working_dir):
            metadata[WORKING_DIR] = self.working_dir
        if self.py_modules:
            metadata[PY_MODULES] = json.dumps(self.py_modules)
        if self.local_roots:
            metadata[LOCAL_ROOTS] = json.dumps(self.local_roots)
        if self.debug:
            options = {"attach_timeout": self.debug.attach_timeout, "post_mortem": self.debug.post_mortem}
            metadata[DEBUG] = json.dumps({**options, "driver": self.debugs_driver})
        return metadata

    def words(self) -> list[str]:
        """Returns the entrypoint as a list of words; an entrypoint that needs a shell is given to one."""
        if _SHELL_SYNTAX.search(self.entrypoint):
            return ["sh", "-c", self.entrypoint]
        return shlex.split(self.entrypoint)

    def environment(self) -> dict[str, Any]:
        """Returns the whole runtime_env but working_dir."""
        runtime_env = {
            **self.runtime_env,
            **({"py_modules": list(self.py_modules)} if self.py_modules else {}),
        }
        if not self.debug:
            return runtime_env
        added = self.debug.added_to(runtime_env, driver=self.debugs_driver)
        if self.user and not self.debugs_driver:
            # Before its first task a worker does not know the job's metadata, and no driver sends it.
            added["env_vars"] = {**added["env_vars"], USER_VARIABLE: self.user}
        return added

    @property
    def raised_limits(self) -> list[str]:
        """Returns the variables of the time limits that `debug` raises; those that the user has set stay."""
        env_vars = self.runtime_env.get("env_vars") or {}
        return [name for name in RAISED if name not in env_vars] if self.debug else []

    @property
    def debugs_driver(self) -> bool:
        """Returns whether `debug` reaches the driver, not only the workers: it has to be a Python program."""
        python = _PYTHON.search(self.entrypoint)
        return (
            python is not None
            and not set("EI") & set(python["options"])
            # uv replaces the hook with one of its own; another PYTHONPATH would hide ours.
            and not re.search(r"\buv\b|PYTHONPATH", self.entrypoint)
            and "RAY_RUNTIME_ENV_HOOK" not in (self.runtime_env.get("env_vars") or {})
        )


def prepare(
    *,
    working_dir: str | None,
    py_modules: Sequence[str],
    entrypoint: str | None,
    runtime_env: Path | None = None,
    debug: Debug | None = None,
) -> Submission:
    """Checks a job before anything is sent; relative paths are relative to the current folder.

    `runtime_env` is a YAML file with any runtime_env; its working_dir and py_modules count where
    the arguments name none. Raises MissingWorkingDir, MissingEntrypoint, NotAPackage, InvalidYaml.
    """
    extra = read_environment(runtime_env, working_dir=working_dir, py_modules=list(py_modules))
    require_alone(extra, debug=debug is not None)
    folder = extra.pop("working_dir", "") or ("" if image_of(extra) else ".")
    modules = extra.pop("py_modules", [])
    written = [_absolute(path) for path in (folder, *modules) if path and not _REMOTE.match(path)]
    if folder and not _REMOTE.match(folder):
        path = Path(folder).expanduser().resolve()
        if not path.is_dir():
            raise MissingWorkingDir(
                f"there is no folder {path}", hint="--working-dir takes the folder your program is in"
            )
        _check_entrypoint(entrypoint, path)
        folder = str(path)
    if not entrypoint or not entrypoint.strip():
        raise MissingEntrypoint("no program was named", hint='add --entrypoint "python your_program.py"')
    return Submission(
        entrypoint,
        folder or None,
        tuple(_module(module) for module in modules),
        extra,
        local_roots={str(path.resolve()): str(path) for path in written if path.resolve() != path},
        debug=debug,
    )


def submit(shell: Shell, ray: Path, url: str, env: dict[str, str], job: Submission, name: str) -> None:
    """Submits `job` under the submission id `name`; Ray packs and uploads its folders.

    Raises SubmissionFailed with what Ray said, StrangerListens.
    """
    with private_environment(job) as file:
        command = job.command(ray, url, name, file)
        require_own_listener(url)
        try:
            shell.run(command, env=env)
        except CommandFailed as error:
            if "already exists" in error.message:  # An earlier try got through after all.
                return
            raise SubmissionFailed(
                f"Ray did not take the job: {outcome.reason(error.message)}",
                hint=f"it was: {shlex.join(command)}",
            ) from None


@contextlib.contextmanager
def private_environment(job: Submission) -> Iterator[Path | None]:
    """Yields a file with the job's runtime_env, where the user gave one, which only its owner can read."""
    if not job.runtime_env:
        yield None
        return
    with tempfile.TemporaryDirectory(prefix="rayside-") as folder:  # mkdtemp makes it 0700.
        file = Path(folder, "runtime_env.yaml")
        file.touch(mode=0o600)
        file.write_text(json.dumps(job.environment()))  # JSON is YAML.
        yield file


def new_submission_id(entrypoint: str) -> str:
    """Returns `<program>-<random>`, which says what the job runs, and is never taken."""
    script = next((Path(word).stem for word in entrypoint.split() if word.endswith(".py")), "job")
    return f"{re.sub('[^A-Za-z0-9]+', '-', script).strip('-').lower() or 'job'}-{secrets.token_hex(3)}"


def _check_entrypoint(entrypoint: str | None, folder: Path) -> None:
    try:
        words = shlex.split(entrypoint or "")
    except ValueError as error:
        raise MissingEntrypoint(
            f"the entrypoint {entrypoint!r} can't be read: {error}", hint="check its quotes"
        ) from None
    script = next((word for word in words if word.endswith(".py")), None)
    if script is None or (folder / script).is_file():
        return
    programs = sorted(path.name for path in folder.glob("*.py"))
    hint = (
        f"it has {', '.join(programs[:5])}" if programs else "it has no Python program; check --working-dir"
    )
    raise MissingEntrypoint(f"there is no {script} in {folder}", hint=hint)


def _absolute(path: Any) -> Path:
    """Returns the absolute path, its symlinks kept."""
    return Path(os.path.abspath(Path(str(path)).expanduser()))  # noqa: PTH100 (it would resolve them)


def _module(module: Any) -> str:
    if _REMOTE.match(str(module)):
        return str(module)
    path = Path(str(module)).expanduser().resolve()
    if path.is_file() and path.suffix in (".whl", ".py"):
        return str(path)
    if not path.is_dir():
        raise NotAPackage(f"there is no package {path}", hint="--py-modules takes a package's own folder")
    if not (path / "__init__.py").is_file():
        inside = sorted(child.parent.name for child in path.glob("*/__init__.py"))
        hint = f"did you mean {path / inside[0]}?" if inside else f"add {path / '__init__.py'}"
        raise NotAPackage(f"{path} is not a package: it has no __init__.py", hint=hint)
    return str(path)
