"""Verb `failures`: lists recorded failures on the cluster's head, and fetches a capsule."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from rayside import capsule_file
from rayside.connection.access import Access
from rayside.console import Console
from rayside.errors import CommandFailed, InvalidArgument
from rayside.plain import line
from rayside.private_file import write_private
from rayside.ray.own_job import run_module
from rayside.relay_actor.failure_store import DOCUMENTS, capsule_in, documents_in, rows
from rayside.users import sees

_NAME = "rayside-failures"
_ID = re.compile(r"[0-9]{8}-[0-9]{6}-[0-9a-f]{6}")
_ENDING = ".capsule"
# Limits in characters: a failed job's output in its error; an error and a name in a table row.
_TOLD, _LONGEST_ERROR, _LONGEST_NAME = 400, 80, 40


def failures(
    access: Access,
    console: Console,
    *,
    job: str | None = None,
    get: str | None = None,
    to: str | None = None,
    everyone: bool = False,
) -> None:
    """Lists the failures, newest first, or fetches the capsule with the id `get` into the file `to`."""
    if to and get is None:
        raise InvalidArgument("--to goes with --get", hint="./invokew failures lists what can be fetched")
    if get is not None:
        _fetch(access, console, get, Path(to or f"{get}{_ENDING}").expanduser())
        return
    found = listed(access, job=job, user="" if everyone else access.identity.user)
    if console.as_json:
        console.document(found)
    elif not found:
        console.result("No failure was recorded. A job of ./invokew submit --debug --post-mortem does that.")
        return
    shown = [("id", 24), ("when", 20), ("job", _LONGEST_NAME), ("task", _LONGEST_NAME), ("node", 40)]
    console.table(
        (*(name for name, _ in shown), "error"),
        [
            (*(line(row[name], most) for name, most in shown), line(row["error"], _LONGEST_ERROR))
            for row in found
        ],
    )
    console.result("\nNext: ./invokew failures --get ID, then ./invokew replay ID.capsule")


def listed(access: Access, *, job: str | None = None, user: str = "") -> list[dict[str, Any]]:
    """Returns a document for each capsule that the user sees, newest first. Raises CommandFailed."""
    output = _printed(access, "")
    try:
        every = rows(output)
    except ValueError:
        raise _failed(output) from None
    return [
        {
            **{name: row[name] for name in ("id", "task", "error", "node", "when", "bytes", "user")},
            "job": row["submission"] or row["job"],
        }
        for row in every
        if sees(user, str(row["user"])) and job in (None, row["job"], row["submission"])
    ]


def fetched(access: Access, name: str) -> bytes:
    """Returns a capsule. Raises InvalidArgument for an unknown id, CommandFailed."""
    none = InvalidArgument(f"no failure {line(name)} is recorded", hint="./invokew failures lists them")
    if not _ID.fullmatch(name):
        raise none
    output = _printed(access, name)
    try:
        content = capsule_in(output)
    except ValueError:
        raise _failed(output) from None
    if not content:
        raise none
    return content


def documents(access: Access) -> list[Any]:
    """Returns the documents of the newest capsules of all users. Raises CommandFailed."""
    output = _printed(access, DOCUMENTS)
    try:
        return documents_in(output)
    except ValueError:
        raise _failed(output) from None


def _fetch(access: Access, console: Console, name: str, file: Path) -> None:
    if file.exists() or file.is_symlink():
        raise InvalidArgument(f"{file} is there already, and is not overwritten", hint="--to names another")
    content = fetched(access, name)
    capsule = capsule_file.read(content, str(file))
    try:
        write_private(file, content)
    except OSError as error:
        raise InvalidArgument(
            f"{file} can't be written: {error.strerror}", hint="--to names another place for it"
        ) from None
    if console.as_json:
        console.document({"id": name, "file": str(file.absolute()), "bytes": len(content)})
    console.result(f"{file} has {line(capsule.title)}")
    for text in capsule.left_out:
        console.result(f"  left out: {line(text)}")
    console.result(f"\nNext: ./invokew replay {file}")


def _printed(access: Access, name: str) -> str:
    """Runs failure_store.py as a job; returns its output."""
    program = f"python -m rayside.relay_actor.failure_store {name}".rstrip()
    return run_module(access.require(), _NAME, program, user=access.identity.user)


def _failed(output: str) -> CommandFailed:
    return CommandFailed(
        f"the job that asks for failures failed: {line(output[-_TOLD:]) or 'it printed nothing'}",
        hint="./invokew status shows what is wrong with the cluster",
    )
