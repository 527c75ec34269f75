"""Learner's copies of the labs' files, in `labs/` of the clone, and the progress in each.

Edited files are never lost: a reset moves them to `labs/.kept`.
"""

from __future__ import annotations

import filecmp
import json
import os
import shutil
import time
from collections.abc import Collection, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from bootstrap.labs.lesson import Lesson, lessons
from bootstrap.settings import ROOT
from rayside import waiting
from rayside.errors import UnsafeFolder
from rayside.ray.metadata import WORKING_DIR
from rayside.ray.records import Job
from rayside.ray.state import Dashboard

FOLDER = ROOT / "labs"
_PROGRESS = ".lab.json"
# Timeout in seconds. Ray gives a driver 3 to end by itself; a loaded machine takes longer for the rest.
_ENDS_WITHIN = 60.0


@dataclass(frozen=True)
class Progress:
    """Progress of a learner.

    Attributes:
        steps_done: number of finished steps.
        passed: whether the exercise was passed.
        checks_failed: failures of its check since the last reset, or since it passed.
    """

    steps_done: int = 0
    passed: bool = False
    checks_failed: int = 0


@dataclass(frozen=True)
class Copy:
    """The learner's copy of one lab; `home` has the copies of all."""

    lesson: Lesson
    home: Path = FOLDER

    @property
    def folder(self) -> Path:
        return self.home / self.lesson.name

    @property
    def exists(self) -> bool:
        return self.folder.is_dir()

    def files(self) -> list[str]:
        """Returns its files, relative to its folder, without its record and Python's caches."""
        return sorted(file.relative_to(self.folder).as_posix() for file in self._contents() if file.is_file())

    def make(self) -> None:
        """Creates missing files; existing ones are unchanged. Raises UnsafeFolder."""
        self._require_folder()
        self.folder.mkdir(parents=True, exist_ok=True)
        for source, copy in self._pairs(self.lesson.folder, self.lesson.files):
            # A link is the learner's, also a broken one: nothing is written through it.
            if not os.path.lexists(copy):
                _copy(source, copy)

    def reset(self) -> Path | None:
        """Resets the copy; returns the folder of kept edited files, None if there are none.

        Raises UnsafeFolder.
        """
        self._require_folder()
        kept = None
        if self.exists:
            kept = self._keep_edited()
            shutil.rmtree(self.folder)
        self.make()
        return kept

    def solve(self) -> None:
        self.reset()
        solution = self.lesson.folder / "solution"
        for source, copy in self._pairs(solution, sorted(solution.glob("*"))):
            _copy(source, copy)

    def update(self, changed: Path) -> tuple[list[str], list[str]]:
        """Updates unedited files to the changed lab in the folder `changed`.

        The lab itself becomes the changed one. A copy that does not exist gets its files when it is made.
        Returns the updated files of the copy, and the edited files that it keeps, relative to its folder.
        Raises UnsafeFolder.
        """
        self._require_folder()
        new = Lesson(changed)
        originals = self._originals()
        updated, kept = [], []
        for source, copy in self._pairs(changed, new.files) if self.exists else []:
            name = copy.relative_to(self.folder).as_posix()
            if os.path.lexists(copy) and _same(copy, source):
                continue
            if not os.path.lexists(copy) or _same(copy, originals.get(copy)):
                _copy_whole(source, copy)
                updated.append(name)
            else:
                kept.append(name)
        _make_like(self.lesson.folder, changed)
        return updated, kept

    def progress(self) -> Progress:
        try:
            document = json.loads((self.folder / _PROGRESS).read_text())
            steps_done = min(max(int(document["steps_done"]), 0), len(self.lesson.steps))
            checks_failed = max(int(document["checks_failed"]), 0)
            return Progress(steps_done, document["passed"] is True, checks_failed)
        except (OSError, ValueError, KeyError, TypeError, OverflowError, RecursionError):
            return Progress()

    def note(self, progress: Progress) -> None:
        draft = self.folder / f"{_PROGRESS}.new"
        draft.write_text(json.dumps(asdict(progress)))
        draft.replace(self.folder / _PROGRESS)

    def _keep_edited(self) -> Path | None:
        originals = self._originals()
        edited = [
            file
            for file in self._contents()
            if (file.is_file() or file.is_symlink()) and not _same(file, originals.get(file))
        ]
        if not edited:
            return None
        stamp = time.strftime("%Y%m%d-%H%M%S")
        kept = self.home / ".kept" / f"{self.lesson.name}-{stamp}-{time.monotonic_ns() % 1_000_000:06}"
        for file in edited:
            _copy(file, kept / file.relative_to(self.folder))
        return kept

    def _contents(self) -> Iterator[Path]:
        hidden = {_PROGRESS, "__pycache__"}
        return (
            path for path in self.folder.rglob("*") if not hidden & set(path.relative_to(self.folder).parts)
        )

    def _require_folder(self) -> None:
        if self.folder.is_symlink() or (self.folder.exists() and not self.folder.is_dir()):
            raise UnsafeFolder(f"{self.folder} is not a folder", hint="move it away")

    def _originals(self) -> dict[Path, Path]:
        """Returns the lab's original of each file in a new copy."""
        return {copy: source for source, copy in self._pairs(self.lesson.folder, self.lesson.files)}

    def _pairs(self, root: Path, paths: list[Path]) -> list[tuple[Path, Path]]:
        files = [file for path in paths for file in ([path] if path.is_file() else sorted(path.rglob("*")))]
        return [
            (file, self.folder / file.relative_to(root))
            for file in files
            if file.is_file() and "__pycache__" not in file.parts
        ]


def _make_like(folder: Path, contents: Path) -> None:
    """Mirrors the files of another folder; it can be repeated after an interruption."""
    files = {
        file.relative_to(contents): file
        for file in sorted(contents.rglob("*"))
        if file.is_file() and "__pycache__" not in file.parts
    }
    for name, file in files.items():
        _copy_whole(file, folder / name)
    for file in sorted(folder.rglob("*")):
        if file.is_file() and file.relative_to(folder) not in files:
            file.unlink()


def _copy_whole(source: Path, copy: Path) -> None:
    """Copies a file atomically: a partial one would look like an edit."""
    draft = copy.with_name(f".{copy.name}.new")
    _copy(source, draft)
    draft.replace(copy)


def _same(file: Path, original: Path | None) -> bool:
    return original is not None and not file.is_symlink() and filecmp.cmp(file, original, shallow=False)


def _copy(source: Path, copy: Path) -> None:
    copy.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(source, copy, follow_symlinks=False)


# --- jobs of a learner that still run --- -------------------------------------------------

# A task that waits for a debugger keeps its CPU, and a small cluster has no other for the next lab.


def running(dashboard: Dashboard, home: Path = FOLDER) -> dict[str, str]:
    """Returns the lab of each running job from a copy of a lab in `home`, by the job's submission id.

    Raises NotRunning.
    """
    names = {lesson.name for lesson in lessons()}
    labs = {job.submission_id: _lab(job, home) for job in dashboard.jobs() if not job.ended}
    return {submission_id: lab for submission_id, lab in labs.items() if lab in names}


def end(dashboard: Dashboard, submission_ids: Collection[str]) -> None:
    for submission_id in submission_ids:
        dashboard.stop(submission_id)
    waiting.until(
        lambda: [job for job in dashboard.jobs() if job.submission_id in submission_ids and not job.ended],
        lambda still_running: not still_running,
        _ENDS_WITHIN,
    )


def _lab(job: Job, home: Path) -> str:
    """Returns the name of the folder in `home` from which a job was submitted; else an empty text.

    A job with a user is no learner's: its cluster is shared.
    """
    folder = Path(job.metadata.get(WORKING_DIR) or "")
    is_below = folder != home and folder.is_relative_to(home) and ".." not in folder.parts
    # A subfolder of a copy belongs to the lab, too: lab 18 submits one.
    return folder.relative_to(home).parts[0] if is_below and not job.user else ""
