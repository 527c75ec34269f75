"""Tests that errors are data: each has an id, a documented exit code, and a document of fixed shape."""

import re

from bootstrap import errors
from bootstrap.errors import RaysideError


def catalogue() -> list[type[RaysideError]]:
    return [error for error in vars(errors).values() if isinstance(error, type) and hasattr(error, "id")]


def test_every_error_has_an_id_of_its_own() -> None:
    ids = [error.id for error in catalogue()]
    assert len(ids) > 20
    assert len(set(ids)) == len(ids)
    assert all(re.fullmatch("[a-z]+(-[a-z]+)*", identity) for identity in ids)


def test_the_document_has_id_message_and_hint() -> None:
    error = errors.LowDisk("0.1 GiB is free", hint="free some")
    assert error.document() == {
        "error": {"id": "low-disk", "message": "0.1 GiB is free", "hint": "free some"}
    }
