"""Reader of the labs in `example/labs/`: a README for people, and `lab.py` with code.

A README has a title and the headings of `SECTIONS`; *Steps* has one heading of the third level for each
step, and *Run* runs the first block of shell code below it. `lab.py` has `TARGETS` and the functions `verify`
and `solve`; optionally `NEEDS` and the function `setup`.
"""

from __future__ import annotations

import difflib
import importlib.util
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import ModuleType

from bootstrap.machine import installed
from bootstrap.settings import ROOT
from rayside.errors import InvalidArgument

FOLDER = ROOT / "example" / "labs"
SECTIONS = ("Goal", "Steps", "What you see", "Why", "Going further")
# Files of a lab that are not copied for the learner: the code of the check, and the solution.
_OWN = {"lab.py", "README.md", "README.zh.md", "solution", "__pycache__"}
_FENCE = re.compile(r"^```sh\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class LessonStep:
    """One step: its text in Markdown, and its command for the learner, or an empty text."""

    title: str
    text: str
    command: str


@dataclass(frozen=True)
class Lesson:
    """One lab; `name` is its folder's name, such as `01-breakpoint`."""

    folder: Path

    @property
    def name(self) -> str:
        return self.folder.name

    @property
    def files(self) -> list[Path]:
        """Returns the files and folders of a new copy for the learner."""
        return sorted(path for path in self.folder.iterdir() if path.name not in _OWN)

    @cached_property
    def title(self) -> str:
        return self._text.partition("\n")[0].removeprefix("# ").strip()

    def section(self, name: str) -> str:
        """Returns the text below one of the headings `SECTIONS`, in Markdown. Raises ValueError."""
        for part in re.split(r"^## ", self._text, flags=re.MULTILINE)[1:]:
            heading, _, text = part.partition("\n")
            if heading.strip() == name:
                return text.strip()
        raise ValueError(f"{self.folder / 'README.md'} has no section {name!r}")

    @cached_property
    def steps(self) -> list[LessonStep]:
        steps = []
        for part in re.split(r"^### ", self.section("Steps"), flags=re.MULTILINE)[1:]:
            heading, _, text = part.partition("\n")
            command = _FENCE.search(text)
            steps.append(LessonStep(heading.strip(), text.strip(), command[1].strip() if command else ""))
        return steps

    @property
    def targets(self) -> tuple[str, ...]:
        return tuple(self.code.TARGETS)

    @property
    def needs(self) -> tuple[str, ...]:
        """Returns the names in `NEEDS` of its needs besides a cluster."""
        return tuple(getattr(self.code, "NEEDS", ()))

    @cached_property
    def code(self) -> ModuleType:
        spec = importlib.util.spec_from_file_location(f"lab_{self.name[:2]}", self.folder / "lab.py")
        assert spec and spec.loader
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module

    @cached_property
    def _text(self) -> str:
        return (self.folder / "README.md").read_text()


def lessons(folder: Path = FOLDER) -> list[Lesson]:
    return [Lesson(file.parent) for file in sorted(folder.glob("*/lab.py"))]


def find(name: str, known: Sequence[Lesson]) -> Lesson:
    """Returns the lab of that name: the whole name, its number, or the part after the number.

    Raises InvalidArgument, which suggests the nearest.
    """
    typed = name.strip().lower()
    for lesson in known:
        number, _, word = lesson.name.partition("-")
        if typed in (lesson.name, number, number.lstrip("0"), word):
            return lesson
    words = {alias: lesson.name for lesson in known for alias in (lesson.name, lesson.name.partition("-")[2])}
    nearest = difflib.get_close_matches(typed, words, n=1, cutoff=0.4)
    hint = (
        f"did you mean {words[nearest[0]]}? ./invokew labs lists all"
        if nearest
        else "./invokew labs lists all"
    )
    raise InvalidArgument(f"there is no lab {name!r}", hint=hint)


# --- needs of labs besides a cluster ------------------------------------------------------


@dataclass(frozen=True)
class Need:
    """A need of a lab: `is_there` checks for it; `brings` is the command that installs it."""

    is_there: Callable[[], bool]
    brings: str


def _program(name: str) -> Need:
    packages = " ".join(PROGRAMS[name])
    return Need(lambda: installed(name) is not None, f"sudo apt-get install {packages}")


def _module(name: str) -> Need:
    """Returns the need of a module in this Python's environment, .venv."""
    brings = f".venv/bin/python -m pip install {name}"
    return Need(lambda: importlib.util.find_spec(name) is not None, brings)


# Programs, and the Debian packages that contain them; `./invokew doctor --fix --tests` installs them, for CI.
PROGRAMS = {
    "cc": ("gcc", "libc6-dev"),
    "gdb": ("gdb", "python3-dbg"),
    "prometheus": ("prometheus",),
    "rsyslogd": ("rsyslog",),
    "valgrind": ("valgrind",),
}
NEEDS = {"mypy": _module("mypy"), **{name: _program(name) for name in PROGRAMS}}


def lacking(names: Iterable[str]) -> dict[str, Need]:
    return {name: NEEDS[name] for name in names if not NEEDS[name].is_there()}
