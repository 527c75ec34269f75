"""Validation and submission of jobs."""

from __future__ import annotations

import contextlib
import json
import os
import re
import secrets
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rayside.errors import (
    JobNotFound,
    MissingEntrypoint,
    MissingWorkingDir,
    NotAPackage,
    NotRunning,
    RaysideError,
)
from rayside.ray import packages
from rayside.ray.debug import RAISED, Debug
from rayside.ray.job_folders import MOST_LINKS
from rayside.ray.metadata import DEBUG, LOCAL_ROOTS, PY_MODULES, USER, USER_VARIABLE, WORKING_DIR
from rayside.ray.outcome import refusal
from rayside.ray.runtime_env import URI, image_of, require_alone, with_files_read
from rayside.ray.runtime_env import read as read_environment
from rayside.ray.state import Dashboard

_PYTHON = re.compile(
    r"""(?:^|[\s;&|("'`])(?:[^\s"']*/)?python[\d.]*["']?(?P<options>(?:\s+-[XW]\s+\S+|\s+-[A-Za-z]+)*)(?=\s|$)"""
)
# `python FILE.py ...`: FILE is relative, and the line has no other shell syntax.
_PLAIN = re.compile(r"""\s*python[\d.]*\s+((?![-/~])[^\s"'\\|&;<>()$`*?\[{]+\.py)(?:[ \t][^|&;<>()$`\n]*)?""")
_WITHOUT_LINKS = (".git", ".venv", "venv", "__pycache__", "node_modules")
# uv sets a RAY_RUNTIME_ENV_HOOK of its own; a PYTHONPATH without its old value hides our package.
_HIDES_HOOK = re.compile(r"\buv\b|(?<!\$)(?<!\$\{)\bPYTHONPATH\b(?!=\S*\$\{?PYTHONPATH\b)")


@dataclass(frozen=True)
class Submission:
    """Validated job; `runtime_env` has no working_dir and no py_modules."""

    entrypoint: str
    working_dir: str | None
    py_modules: tuple[str, ...] = ()
    runtime_env: dict[str, Any] = field(default_factory=dict)
    metadata: dict[str, str] = field(default_factory=dict)
    # Resources reserved for the entrypoint: `entrypoint_num_cpus` and similar fields of the Jobs API.
    reserved: dict[str, Any] = field(default_factory=dict)
    # Maps a resolved path to the path through a symlink: for working_dir and py_modules as written, and for
    # targets of symlinks in them.
    local_roots: dict[str, str] = field(default_factory=dict)
    debug: Debug | None = None
    # Name of the submitting user, on a Ray cluster that several people debug on.
    user: str = ""

    def all_metadata(self) -> dict[str, str]:
        """Returns the metadata that Ray stores with the job: the user's, and the origin of its files."""
        metadata = {**self.metadata, **({USER: self.user} if self.user else {})}
        if self.working_dir and self.working_dir not in self.unmapped:
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
        """Returns the entrypoint's words, from which Ray's programs make a quoted line."""
        with contextlib.suppress(ValueError):  # Quotes in a here-document need not match.
            words = shlex.split(self.entrypoint)
            if shlex.join(words) == self.entrypoint:
                return words
        return ["sh", "-c", self.entrypoint]

    def environment(self) -> dict[str, Any]:
        """Returns the whole runtime_env except working_dir."""
        runtime_env = {
            **self.runtime_env,
            **({"py_modules": list(self.py_modules)} if self.py_modules else {}),
        }
        if not self.debug:
            return runtime_env
        added = self.debug.added_to(runtime_env, driver=self.debugs_driver)
        if self.user and not self.debugs_driver:
            # Before its first task a worker does not know the job's metadata, and no driver sends the user.
            added["env_vars"] = {**added["env_vars"], USER_VARIABLE: self.user}
        return added

    @property
    def raised_limits(self) -> list[str]:
        """Returns the variables of the time limits that `debug` raises, without those that the user set."""
        env_vars = self.runtime_env.get("env_vars") or {}
        return [name for name in RAISED if name not in env_vars] if self.debug else []

    @property
    def debugs_driver(self) -> bool:
        """Returns whether the driver is debugged too, not only the workers: it has to be a Python program."""
        pythons = [python["options"] for python in _PYTHON.finditer(self.entrypoint)]
        return (
            bool(pythons)
            # With -E or -I Python ignores PYTHONPATH.
            and not any(re.search(r"\s-[A-VYZa-z]*[EI]", options) for options in pythons)
            and not _HIDES_HOOK.search(self.entrypoint)
            and "RAY_RUNTIME_ENV_HOOK" not in (self.runtime_env.get("env_vars") or {})
        )

    @property
    def unmapped(self) -> list[str]:
        """Returns the archives and URIs, whose files have no known paths on this machine."""
        sent = [*([self.working_dir] if self.working_dir else []), *self.py_modules]
        return [path for path in sent if URI.match(path) or Path(path).is_file()]

    def notes(self) -> list[str]:
        """Returns a line for each part of the job that is not debugged."""
        lines = []
        if self.debug and not self.debugs_driver:
            lines.append(
                "Its tasks and actors are debugged, its driver is not: docs/internals/hook.md says why"
            )
        if self.debug and self.unmapped:
            names = ", ".join(map(_shown, self.unmapped))
            lines.append(f"Breakpoints in {names} need an editor's pathMappings: docs/editors.md#archives")
        return lines


def prepare(
    *,
    working_dir: str | None,
    py_modules: Sequence[str],
    entrypoint: str | None,
    runtime_env: Path | None = None,
    of_rayjob: Mapping[str, Any] | None = None,
    debug: Debug | None = None,
) -> Submission:
    """Returns the job with absolute paths that exist; Ray validates everything else.

    `runtime_env` is a YAML file with any runtime_env; its working_dir and py_modules are used if the
    arguments name none, and then URIs of the RayJob's runtime_env, whose paths exist only in a pod.
    Raises MissingWorkingDir, MissingEntrypoint, NotAPackage, InvalidYaml.
    """
    extra = read_environment(runtime_env, working_dir=working_dir, py_modules=list(py_modules))
    fetched = {name: _addresses((of_rayjob or {}).get(name)) for name in ("working_dir", "py_modules")}
    addresses = {name: found for name, found in fetched.items() if found}
    others = {name: value for name, value in (of_rayjob or {}).items() if name not in fetched}
    require_alone({**others, **addresses, **extra}, debug=debug is not None)
    default = "" if image_of({**others, **extra}) else "."
    folder = extra.pop("working_dir", "") or next(iter(fetched["working_dir"]), default)
    modules = extra.pop("py_modules", []) or fetched["py_modules"]
    written = [_absolute(path) for path in (folder, *modules) if path and not URI.match(path)]
    folder = folder and _found(folder, MissingWorkingDir)
    found = tuple(_found(module, NotAPackage) for module in modules)
    if not entrypoint or not entrypoint.strip():
        raise MissingEntrypoint("no program was named", hint='add --entrypoint "python your_program.py"')
    if of_rayjob is None:  # A RayJob's entrypoint may name a file in an image.
        _require_program(entrypoint, folder)
    return Submission(
        entrypoint,
        folder or None,
        found,
        extra,
        local_roots={
            **_linked(path for path in (folder, *found) if path and not URI.match(path)),
            **{str(path.resolve()): str(path) for path in written if path.resolve() != path},
        },
        debug=debug,
    )


def _require_program(entrypoint: str, folder: str) -> None:
    """Raises MissingEntrypoint if a plain `python FILE.py` names no file in the submitted folder."""
    program = _PLAIN.fullmatch(entrypoint)
    if program and folder and Path(folder).is_dir() and not Path(folder, program[1]).exists():
        raise MissingEntrypoint(
            f"there is no file {program[1]} in {folder}, which the job would run in",
            hint="name it from that folder, or its own folder by --working-dir",
        )


def _linked(folders: Iterable[str]) -> dict[str, str]:
    """Returns the targets, folders or Python files, of symlinks in these folders, each with its symlink.

    Ray packs a symlink's target, and an editor may have opened it by its real path. Folders that Ray does
    not pack (`RAY_RUNTIME_ENV_DEFAULT_EXCLUDES`) are left out, and Node's packages, which are many.
    """
    linked: dict[str, str] = {}
    for folder in folders:
        for parent, names, files in os.walk(folder):
            names[:] = [name for name in names if name not in _WITHOUT_LINKS]
            for path in (Path(parent, name) for name in (*names, *files)):
                if path.is_symlink() and (path.is_dir() or path.suffix == ".py"):
                    linked.setdefault(str(path.resolve()), str(path))
                if len(linked) == MOST_LINKS:
                    return linked
    return linked


def submit(dashboard: Dashboard, job: Submission, name: str) -> None:
    """Submits `job` under the submission id `name`, with its folders.

    Raises SubmissionFailed with Ray's message, InvalidYaml, NotRunning, StrangerListens.
    """
    folder = {"working_dir": job.working_dir} if job.working_dir else {}
    runtime_env = packages.uploaded(dashboard, with_files_read({**job.environment(), **folder}))
    dashboard.submit(shlex.join(job.words()), name, runtime_env, metadata=job.all_metadata(), **job.reserved)
    with contextlib.suppress(NotRunning, JobNotFound):  # It may have ended, and its cluster with it.
        taken = dashboard.job(name)
        # Ray accepts a job whose runtime_env its head then refuses, as for a URI that it can't unpack.
        if taken.status == "FAILED" and not taken.job_id and taken.exit_code is None:
            raise refusal(taken.message)


def new_submission_id(entrypoint: str) -> str:
    """Returns `<program>-<random>`, which names the job's program and is unique."""
    script = re.search(r"""([^\s/"']+)\.py\b""", entrypoint)
    name = re.sub("[^A-Za-z0-9]+", "-", script[1]).strip("-").lower() if script else ""
    return f"{name or 'job'}-{secrets.token_hex(3)}"


def _absolute(path: Any) -> Path:
    """Returns the absolute path, its symlinks kept."""
    return Path(os.path.abspath(Path(str(path)).expanduser()))  # noqa: PTH100 (it would resolve them)


def _shown(path: str) -> str:
    """Returns the name of an archive; the rest of a URI may contain a login."""
    if not URI.match(path):
        return Path(path).name
    return re.split("[?#]", path)[0].rpartition("/")[2].rpartition("@")[2] or "an address"


def _addresses(value: Any) -> list[str]:
    values = value if isinstance(value, list) else [value]
    return [str(address) for address in values if URI.match(str(address))]


def _found(path: str, error: type[RaysideError]) -> str:
    """Returns the resolved path of a folder or file, or the URI unchanged. Raises `error`."""
    if URI.match(path):
        return path
    found = Path(path).expanduser().resolve()
    if not found.exists():
        raise error(f"there is no file or folder {found}", hint=f"a path is relative to {Path.cwd()}")
    return str(found)
