"""Remote execution of Rayside's verbs in a place's workspace; responses are untrusted."""

from __future__ import annotations

import contextlib
import io
import json
import subprocess
import tarfile
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bootstrap.errors import PodFailed
from bootstrap.kube import trouble
from bootstrap.steps.ray_cluster import PROGRESS
from bootstrap.targets.place import Place
from rayside.connection.heads import head_selector
from rayside.errors import InvalidArgument, NotRunning, RaysideError
from rayside.plain import line

# Limits of a verb: timeout in seconds, and bytes of output.
_PATIENCE, _LARGEST = 180.0, 256 * 1024
_MOST_LABS = 100
# Limit: bytes of a lab, which has some text files.
_LARGEST_LAB = 4 * 1024 * 1024
# Runs a verb as in a terminal there: image/workspace/entrypoint.
_VERBS = 'cd "$HOME/rayside" && INVOKE_RAYSIDE_STATE_FOLDER="$PWD/.state" exec ./invokew "$@"'

# Unpacks a lab from a tar file on stdin to a new folder, whose path is appended to the verb's arguments.
_UNPACKS = 'changed=$(mktemp -d) && tar -xf - -C "$changed" && set -- "$@" --update "$changed"'

# The editor's own command packs the same files. The mark at the end shows that the output is complete.
_MARK = b"rayside: that is all"
_PACKS = f'/opt/workspace/pack-files && printf %s "{_MARK.decode()}"'
_LARGEST_FILES = 64 * 1024 * 1024

# Reads the activity in a place: the time of the last activity in the editor, from its record in milliseconds
# (vscode/src/workshop.js), or of the last job's end, as its attendee waited for it; and the number of
# unfinished jobs.
_LOOK_PATIENCE = 30.0
# Limit in seconds since 1970: JSON may have integers that are too large for calculations.
_LATEST = 1e12
_LOOKS = f"""exec /opt/ray/bin/python -I -c '
import json, time, urllib.request
token = open("/run/ray/auth_token").read().strip()
headers = {{"Authorization": "Bearer " + token}}
asked = urllib.request.Request("http://127.0.0.1:8265/api/jobs/", headers=headers)
direct = urllib.request.build_opener(urllib.request.ProxyHandler({{}}))
rows = json.load(direct.open(asked, timeout=20))
jobs = [row for row in rows if row["status"] in ("PENDING", "RUNNING")]
ended = max([row.get("end_time") or 0 for row in rows], default=0)
try:
    acted = max(json.load(open("{PROGRESS}"))["acted"], ended) / 1000
except FileNotFoundError:
    acted = ended / 1000
except (OSError, ValueError, KeyError, TypeError):
    acted = None
print(json.dumps({{"now": time.time(), "acted": acted, "jobs": len(jobs)}}))
'"""


def require_right(place: Place) -> None:
    """Raises Forbidden without permission to run commands in the place's pods.

    kubectl's own error is not used: its output is untrusted.
    """
    place.kube.require("create", "pods/exec")


def reset(place: Place, lab: str) -> list[dict[str, str]]:
    """Resets a place's lab, or all begun labs if `lab` is empty; edited files are kept in the place.

    Returns `{"lab", "kept"}` each; `kept` is the folder with edited files, or empty. Raises NotRunning,
    PodFailed, Forbidden, InvalidArgument if there is no such lab.
    """
    words = ["lab", lab, "--reset", "--json"] if lab else ["lab", "--all", "--reset", "--json"]
    document = _verb(place, words)
    rows = document.get("labs") if not lab else [{**document, "name": lab}]
    if not isinstance(rows, list) or len(rows) > _MOST_LABS or not all(isinstance(row, dict) for row in rows):
        raise _no_answer(place)
    return [{"lab": _text(row.get("name")), "kept": _text(row.get("kept"))} for row in rows]


@dataclass(frozen=True)
class Packed:
    """A lab; `archive` is a tar file with its folder's contents, `files` their names."""

    lab: str
    archive: bytes
    files: frozenset[str]


def packed(lab: Path) -> Packed:
    """Packs the lab of that folder. Raises InvalidArgument if it is larger than 4 MiB."""
    stream, names = io.BytesIO(), set()
    with tarfile.open(fileobj=stream, mode="w") as archive:
        for file in sorted(lab.rglob("*")):
            if file.is_file() and not file.is_symlink() and "__pycache__" not in file.parts:
                names.add(file.relative_to(lab).as_posix())
                archive.add(file, file.relative_to(lab).as_posix(), filter=_without_owner)
            if stream.tell() > _LARGEST_LAB:
                raise InvalidArgument(f"{lab} is larger than 4 MiB", hint="keep data out of a lab's folder")
    return Packed(lab.name, stream.getvalue(), frozenset(names))


def _without_owner(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    return member


def update(place: Place, lab: Packed) -> dict[str, list[str]]:
    """Replaces a lab of a place by the packed one; the attendee's edited files stay.

    Returns `{"updated", "kept"}`: files of the attendee's copy. Raises NotRunning, PodFailed, Forbidden.
    """
    document = _verb(place, ["lab", lab.lab, "--json"], unpacks=lab.archive)
    names: dict[str, list[str]] = {}
    for key in ("updated", "kept"):
        files = document.get(key)
        # Only names of packed files: other names would be untrusted text.
        if not isinstance(files, list) or not all(
            isinstance(file, str) and file in lab.files for file in files
        ):
            raise _no_answer(place)
        names[key] = sorted({*files})
    return names


def collect(place: Place) -> bytes:
    """Returns an attendee's files as a tar.gz: labs, and sources of jobs.

    Its content is untrusted. Raises NotRunning, Forbidden, and PodFailed if there is none, or more than
    64 MiB.
    """
    command = _in_workspace(place, [], _PACKS)
    packed = bounded(command, _PATIENCE, _LARGEST_FILES)
    if len(packed) > _LARGEST_FILES:
        raise PodFailed(
            f"the place {place.instance.name} has more than 64 MiB of files",
            hint="have its attendee remove what is not theirs, as data",
        )
    if not packed:
        raise _no_answer(place)
    if not packed.startswith(b"\x1f\x8b") or not packed.endswith(_MARK):
        raise PodFailed(
            f"the files of the place {place.instance.name} did not come whole", hint="run it again"
        )
    return packed.removesuffix(_MARK)


@dataclass(frozen=True)
class Activity:
    """Activity in a place, as the place reports it: attendees can fake it to keep their workers.

    Attributes:
        now: its clock, in seconds since 1970.
        acted: time of the last activity in its editor, or of a job's end, by the same clock.
        jobs: number of unfinished jobs.
    """

    now: float
    acted: float
    jobs: int


def activity(place: Place) -> Activity:
    """Reads the activity in a place. Raises NotRunning if it reports none; Forbidden."""
    try:
        answer = parsed(bounded(_in_workspace(place, [], _LOOKS), _LOOK_PATIENCE, _LARGEST))
    except OSError as error:
        raise NotRunning(f"kubectl can't be run: {error.strerror}", hint="run it again") from None
    match answer:
        case {"now": int() | float() as now, "acted": int() | float() as acted, "jobs": int(jobs)}:
            if abs(now) < _LATEST and abs(acted) < _LATEST:
                return Activity(now, acted, jobs)
    raise NotRunning("it does not say what is done in it", hint="./invokew workshop --status shows it")


def forget(place: Place) -> None:
    """Removes the editor's records for the teacher, and packed files, which the next attendee must not see.

    Raises Forbidden, and PodFailed if the removal is not confirmed; a place without a pod has none.
    """
    if place.kube.pods(head_selector(place.instance.ray_cluster)):
        # The request for help, and packed files, have the same prefix: vscode/src/workshop.js.
        command = _in_workspace(place, [], f'rm -f {PROGRESS} {PROGRESS}.* && echo "$1"', "gone")
        if bounded(command, _PATIENCE, _LARGEST).strip() != b"gone":
            raise _no_answer(place)


def _verb(place: Place, words: Sequence[str], unpacks: bytes = b"") -> dict[str, Any]:
    name = place.instance.name
    program = f"{_UNPACKS} && {_VERBS}" if unpacks else _VERBS
    command = _in_workspace(place, ["--stdin"] if unpacks else [], program, *words)
    document = parsed(bounded(command, _PATIENCE, _LARGEST, unpacks))
    if document is None:
        raise _no_answer(place)
    error = document.get("error")
    if isinstance(error, dict):
        kind = InvalidArgument if error.get("id") == InvalidArgument.id else PodFailed
        # Not the place's own hint, which is untrusted and would read as ours.
        hint = "look into the place, or run it again; ./invokew labs lists the labs"
        raise kind(f"the place {name} says: {_text(error.get('message'))}", hint=hint)
    return document


def _in_workspace(place: Place, options: Sequence[str], program: str, *words: str) -> list[str]:
    """Returns the command that runs a shell script with these arguments in a place's workspace."""
    heads = place.kube.pods(head_selector(place.instance.ray_cluster))
    if not heads:
        raise NotRunning(
            f"the place {place.instance.name} has no workspace", hint="./invokew workshop --status shows it"
        )
    require_right(place)
    pod = heads[0]["metadata"]["name"]
    shell = ["--container", "workspace", *options, "--", "sh", "-c", program, "sh"]
    return place.kubernetes.kubectl("exec", pod, *shell, *words)


def bounded(command: Sequence[str], patience: float, largest: int, feed: bytes = b"") -> bytes:
    """Returns a command's output after its end, or after the timeout or limit of bytes.

    `feed` is its input.
    """
    pipe, nothing = subprocess.PIPE, subprocess.DEVNULL
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=nothing) as process:
        assert process.stdout is not None
        feeding = threading.Thread(target=_feed, args=(process, feed), daemon=True)
        feeding.start()
        timer = threading.Timer(patience, process.kill)
        timer.start()
        try:
            printed = process.stdout.read(largest + 1)
        finally:
            timer.cancel()
            process.kill()
            # Before Popen closes the input, too, and raises an error that the thread suppresses.
            feeding.join()
    return printed


def _feed(process: subprocess.Popen[bytes], content: bytes) -> None:
    assert process.stdin is not None
    # The process may end before it has read all: then writing fails, and so does closing, which flushes.
    with contextlib.suppress(OSError), contextlib.closing(process.stdin) as pipe:
        pipe.write(content)


def parsed(printed: bytes) -> dict[str, Any] | None:
    try:
        document = json.loads(printed)
    except (ValueError, RecursionError):
        return None
    return document if isinstance(document, dict) else None


def _no_answer(place: Place) -> PodFailed:
    """Returns the error, with the reason if the pod is not ready: its node may have died."""
    name = place.instance.name
    waits: list[str] = []
    # Also if the API does not respond.
    with contextlib.suppress(RaysideError):
        waits = trouble.waits(place.kube.pods(head_selector(place.instance.ray_cluster)))
    because = f": {waits[0]}" if waits else ""
    return PodFailed(
        f"the workspace of the place {name} gives no answer, or none of a verb's{because}",
        hint=f"./invokew up --name {name} says how it is",
    )


def _text(value: object) -> str:
    return line(value, 300) if isinstance(value, str) else ""
