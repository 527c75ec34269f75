"""Program of a job: `python -m rayside.relay_actor.failure_store [ID]` prints recorded failures.

Without an id it prints one line of JSON that begins with `ROWS`, newest capsules first. With an id it prints
the capsule in base64, in lines that begin with `PIECE`, and a last line with `END` and its SHA-256. With
`DOCUMENTS` in place of an id, such lines have the newest capsules' documents: a JSON list, zlib-compressed.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import io
import json
import logging
import sys
import zipfile
import zlib
from typing import Any

from rayside.worker import capsule, failures

ROWS, PIECE, END = "RAYSIDE_FAILURES ", "RAYSIDE_CAPSULE ", "RAYSIDE_CAPSULE_ENDS "
DOCUMENTS = "documents"
# Limits: documents, and their uncompressed bytes.
_MOST_DOCUMENTS, _LONGEST_DOCUMENTS = 10, 8 * 1024 * 1024
# Limits in characters: a line of base64, and all rows.
_PIECE, _LONGEST = 60_000, 400_000


def rows(text: str) -> list[dict[str, Any]]:
    """Returns the rows in the job's output, which is untrusted. Raises ValueError if it has none."""
    answer = next((row for row in text.splitlines() if row.startswith(ROWS)), "").removeprefix(ROWS)
    texts = ("id", "job", "submission", "user", "task", "error", "node", "when")
    try:
        found: list[dict[str, Any]] = [
            {**{name: str(row[name]) for name in texts}, "bytes": int(row["bytes"])}
            for row in json.loads(answer[:_LONGEST])
        ]
    except (TypeError, KeyError, AttributeError, RecursionError, OverflowError):
        raise ValueError(answer[:200]) from None
    return found[: failures.MOST]


def capsule_in(text: str) -> bytes:
    """Returns the capsule in the job's output, b"" for none. Raises ValueError if it is incomplete."""
    lines = text.splitlines()
    content = base64.b64decode("".join(row.removeprefix(PIECE) for row in lines if row.startswith(PIECE)))
    end = next((row for row in lines if row.startswith(END)), None)
    if end is None or end.removeprefix(END).strip() not in ("", hashlib.sha256(content).hexdigest()):
        raise ValueError("a part of it is missing")
    return content


def documents_in(text: str) -> list[Any]:
    """Returns the documents in the job's output. Raises ValueError if they are incomplete."""
    try:
        unpacked = zlib.decompressobj().decompress(capsule_in(text), _LONGEST_DOCUMENTS)
        return list(json.loads(unpacked))
    except (zlib.error, TypeError, RecursionError) as error:
        raise ValueError(str(error)) from None


def _documents() -> bytes:
    """Returns the newest documents within the limits, compressed."""
    found: list[Any] = []
    packed = zlib.compress(b"[]")
    for name, _ in failures.kept()[::-1][:_MOST_DOCUMENTS]:
        with contextlib.suppress(zipfile.BadZipFile, KeyError, ValueError, TypeError):
            with zipfile.ZipFile(io.BytesIO(failures.content(name) or b"")) as archive:
                found.append(json.loads(archive.read(capsule.DOCUMENT)))
            text = json.dumps(found).encode()
            more = zlib.compress(text)
            if len(text) > _LONGEST_DOCUMENTS or len(more) > capsule.MOST_BYTES:
                break
            packed = more
    return packed


def main(words: list[str]) -> None:
    import ray

    ray.init(log_to_driver=False, logging_level=logging.WARNING)
    if not words:
        kept = failures.rows()[::-1]
        while len(answer := json.dumps(kept)) > _LONGEST:
            kept.pop()
        sys.stdout.write(f"{ROWS}{answer}\n")
        return
    content = _documents() if words[0] == DOCUMENTS else failures.content(words[0])
    if content is None or len(content) > capsule.MOST_BYTES:
        sys.stdout.write(f"{END}\n")
        return
    text = base64.b64encode(content).decode()
    for begin in range(0, len(text), _PIECE):
        sys.stdout.write(f"{PIECE}{text[begin : begin + _PIECE]}\n")
    sys.stdout.write(f"{END}{hashlib.sha256(content).hexdigest()}\n")


if __name__ == "__main__":
    main(sys.argv[1:])
