"""Packages of a job's local folders and files: packed and uploaded through the dashboard.

Ray's own client would bring 500 MB of Ray to this machine, and its import takes a second. A package has the
same files as with that client: `ray/_private/runtime_env/packaging.py`, `working_dir.py` and `py_modules.py`
(2.60), https://docs.ray.io/en/latest/ray-core/handling-dependencies.html

Patterns have Git's meaning. Ray uses a pathspec of 2020 for them, which errs in two cases: it leaves out the
content of a folder that `!name` includes again, and ignores the `\\` before a `*`.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
import tempfile
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pathspec import PathSpec
from pathspec.patterns.gitignore.basic import GitIgnoreBasicPattern

from rayside.errors import SubmissionFailed
from rayside.ray.runtime_env import URI
from rayside.ray.state import Dashboard

# Left out of working_dir, unless the variable overrides them; py_modules include them.
_DEFAULT_EXCLUDES = ".git,.venv,venv,__pycache__"
_DEFAULT_EXCLUDES_VARIABLE = "RAY_OVERRIDE_RUNTIME_ENV_DEFAULT_EXCLUDES"
# Archives are uploaded unchanged, with the extension that Ray recognizes.
_ARCHIVES = {".zip": ".zip", ".tar.gz": ".tar.gz", ".tgz": ".tar.gz", ".tar.xz": ".tar.xz"}
# Limits in bytes: a package in Ray's store, and a request to its dashboard (DASHBOARD_CLIENT_MAX_SIZE in
# ray/_private/ray_constants.py), which no variable changes.
_STORE_LIMIT_VARIABLE = "RAY_max_grpc_message_size"
_STORE_LIMIT, _REQUEST_LIMIT = 512 * 1024**2, 100 * 1024**2
_LARGEST = 5
# A repository's symlink into these, as to /proc/self/environ, is no file of the program.
_OF_THE_MACHINE = "/proc", "/sys", "/dev"
_PIECE = 1 << 20

# A folder, and the patterns of paths below it that are left out.
_Ignored = tuple[Path, "PathSpec[Any]"]


def uploaded(dashboard: Dashboard, runtime_env: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the runtime_env with URIs of packages in Ray in place of local folders and files.

    Uploads the packages that Ray lacks. Raises SubmissionFailed, NotRunning.
    """
    changed, excludes = dict(runtime_env), list(runtime_env.get("excludes") or [])
    if folder := runtime_env.get("working_dir"):
        defaults = os.environ.get(_DEFAULT_EXCLUDES_VARIABLE, _DEFAULT_EXCLUDES).split(",")
        left_out = [*filter(None, map(str.strip, defaults)), *excludes]
        changed["working_dir"] = folder if URI.match(folder) else working_dir(dashboard, folder, left_out)
    if modules := runtime_env.get("py_modules"):
        changed["py_modules"] = [
            module if URI.match(module) else py_module(dashboard, module, excludes) for module in modules
        ]
    return changed


def working_dir(dashboard: Dashboard, path: str | Path, excludes: Iterable[str] = ()) -> str:
    """Returns the URI of the package with a folder's content, or of an archive."""
    folder = Path(path)
    if folder.is_dir():
        return _zipped(dashboard, folder, lambda: files(folder, excludes))
    return _archive(dashboard, folder, "a folder")


def py_module(dashboard: Dashboard, path: str | Path, excludes: Iterable[str] = ()) -> str:
    """Returns the URI of the package with a folder and its name, a Python file, a wheel or an archive."""
    module = Path(path)
    if module.is_dir():
        return _zipped(
            dashboard,
            module,
            lambda: {f"{module.name}/{name}": file for name, file in files(module, excludes).items()},
        )
    if module.suffix == ".py" and module.is_file():
        return _zipped(dashboard, module, lambda: {module.name: module})
    if module.suffix == ".whl" and module.is_file():
        # pip reads the version in a wheel's name.
        return _sent(dashboard, module.name, module)
    return _archive(dashboard, module, "a folder, a .py file, a wheel")


def files(folder: Path, excludes: Iterable[str] = ()) -> dict[str, Path]:
    """Returns the files and the empty folders in the folder's package, by their names in it."""
    excluded = (folder, _patterns(excludes))
    return {path.relative_to(folder).as_posix(): path for path in _packed(folder, [excluded], [])}


# --- what is packed ----------------------------------------------------------------------


def _packed(path: Path, ignored: Sequence[_Ignored], above: Sequence[Path]) -> Iterator[Path]:
    """Yields the files and the empty folders; `above` are the real paths of the parent folders.

    Symlinks are followed, except one that leads back to a folder above it, or to this machine's processes and
    devices. A pattern in a folder's own file may match that folder: `*` leaves out all of it.
    """
    if path.is_symlink() and any(map(path.resolve().is_relative_to, _OF_THE_MACHINE)):
        return
    is_folder = path.is_dir()
    if is_folder:
        ignored = [*ignored, *_ignore_files(path)]
    if any(patterns.match_file(path.relative_to(root).as_posix()) for root, patterns in ignored):
        return
    if not is_folder:
        if path.is_file():  # neither a socket nor a broken symlink
            yield path
        return
    real = path.resolve()
    if real in above:
        return
    inside = sorted(path.iterdir())
    if not inside:
        yield path
    for each in inside:
        yield from _packed(each, ignored, [*above, real])


def _ignore_files(folder: Path) -> Iterator[_Ignored]:
    names = [".rayignore"]
    if os.environ.get("RAY_RUNTIME_ENV_IGNORE_GITIGNORE") != "1":
        names.append(".gitignore")
    for file in (folder / name for name in names):
        if file.is_file():
            yield folder, _patterns(file.read_text(errors="surrogateescape").splitlines())


def _patterns(lines: Iterable[str]) -> PathSpec[Any]:
    patterns = []
    for line in lines:
        # As in Git, an invalid pattern matches nothing; in pathspec 1.1 `/` matches everything.
        with contextlib.suppress(ValueError):
            if line.strip() != "/":
                patterns.append(GitIgnoreBasicPattern(line))
    return PathSpec(patterns)


# --- what is sent ------------------------------------------------------------------------


def _zipped(dashboard: Dashboard, source: Path, found: Callable[[], Mapping[str, Path]]) -> str:
    """Uploads a zip file, named by a hash of its content, without the files' times and their order."""
    with _reading(source):
        packed = found()
        _require_small(source, packed)
        digest = hashlib.sha256()
        for name, path in packed.items():
            content = "folder" if path.is_dir() else _digest(path)
            is_program = content != "folder" and bool(path.stat().st_mode & stat.S_IXUSR)
            digest.update(f"{content} {is_program} {name!r}\n".encode())
    package = f"_ray_pkg_{digest.hexdigest()[:16]}.zip"
    if not dashboard.has_package(package):
        with tempfile.TemporaryDirectory(prefix="rayside-") as temporary:
            file = Path(temporary, package)
            # Uncompressed, as in Ray: for a local cluster, compression takes longer than it saves.
            with _reading(source), zipfile.ZipFile(file, "w", strict_timestamps=False) as archive:
                for name, path in packed.items():
                    archive.write(path, name)
            dashboard.upload(package, file)
    return f"gcs://{package}"


def _archive(dashboard: Dashboard, file: Path, other: str) -> str:
    suffix = next((suffix for suffix in _ARCHIVES if file.name.endswith(suffix)), None)
    if suffix is None or not file.is_file():
        raise SubmissionFailed(
            f"Ray did not take the job: {file} is neither {other} nor an archive",
            hint=f"name {other} or an archive ({', '.join(_ARCHIVES)})",
        )
    with _reading(file):
        package = f"_ray_pkg_{_digest(file)[:16]}{_ARCHIVES[suffix]}"
    return _sent(dashboard, package, file)


def _sent(dashboard: Dashboard, package: str, file: Path) -> str:
    with _reading(file):
        _require_small(file, {file.name: file})
    if not dashboard.has_package(package):
        dashboard.upload(package, file)
    return f"gcs://{package}"


@contextlib.contextmanager
def _reading(source: Path) -> Iterator[None]:
    """Raises SubmissionFailed if a file can't be read, or its name can't be encoded."""
    try:
        yield
    except (OSError, UnicodeError) as error:
        raise SubmissionFailed(
            f"{source} can't be packed: {error}", hint="leave the file out by .rayignore, or correct it"
        ) from None


def _require_small(source: Path, packed: Mapping[str, Path]) -> None:
    """Raises SubmissionFailed if the files are too large for one package."""
    by_size = sorted(((path.stat().st_size, name) for name, path in packed.items()), reverse=True)
    size = sum(size for size, _ in by_size)
    limit = min(int(os.environ.get(_STORE_LIMIT_VARIABLE, _STORE_LIMIT)), _REQUEST_LIMIT)
    if size >= limit:
        largest = ", ".join(f"{name} ({_mebibytes(size)})" for size, name in by_size[:_LARGEST])
        raise SubmissionFailed(
            f"Ray did not take the job: {source} has {_mebibytes(size)}, and Ray takes less than "
            f"{_mebibytes(limit)} in one package; its largest files are {largest}",
            hint="leave files out by .gitignore, .rayignore, or excludes of a runtime_env",
        )


def _digest(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while piece := file.read(_PIECE):
            digest.update(piece)
    return digest.hexdigest()


def _mebibytes(size: int) -> str:
    return f"{size / 1024**2:.1f} MiB"
