"""Names of a workshop's places: numbers, or from a list of attendees."""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from pathlib import Path

from rayside.errors import InvalidArgument
from rayside.plain import line

# A namespace's name is a DNS label of at most 63 letters: the workshop's name and the place's
# (https://kubernetes.io/docs/concepts/overview/working-with-objects/names/#dns-label-names).
LONGEST = 24
MOST = 1000
# Limit: characters of a list, for a thousand names of two hundred letters.
_LARGEST_LIST = 256 * 1024
_LONGEST_NAME = 200


@dataclass(frozen=True)
class PlaceName:
    """A place: `name` is part of Kubernetes' names, `attendee` the name in the list, or empty."""

    name: str
    attendee: str = ""


def asked(places: str | None, names: Path | None) -> list[PlaceName]:
    """Returns the places for the attendees in a list, and numbered ones that anybody may claim.

    Raises InvalidArgument.
    """
    of_people = listed(names) if names else []
    more = numbered(places) if places else []
    if (count := len(of_people) + len(more)) > MOST:
        raise InvalidArgument(
            f"these are {count} places, and a workshop has at most {MOST}", hint="make two workshops"
        )
    if both := {place.name for place in of_people} & {place.name for place in more}:
        raise InvalidArgument(
            f"somebody on the list has the name of a numbered place: {min(both)}",
            hint="write that name otherwise",
        )
    return [*of_people, *more]


def numbered(places: str) -> list[PlaceName]:
    if not (places.isascii() and places.isdigit() and 1 <= int(places) <= MOST):
        raise InvalidArgument(f"--places is {places}", hint=f"name a number from 1 to {MOST}")
    # Names don't depend on the number: a larger one adds places, and renames none.
    return [PlaceName(f"place-{number:03}") for number in range(1, int(places) + 1)]


def listed(file: Path) -> list[PlaceName]:
    """Returns a place for each line of a list; empty lines, and lines that begin with #, are skipped.

    Raises InvalidArgument, which names the line: for a duplicate name, or one with no letter of a to z and no
    digit.
    """
    try:
        with file.open(encoding="utf-8-sig") as stream:
            text = stream.read(_LARGEST_LIST + 1)
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidArgument(
            f"{file} can't be read: {error}", hint="save it as text in UTF-8, a name a line"
        ) from None
    places: dict[str, PlaceName] = {}
    for number, raw in enumerate(text.splitlines(), 1):
        attendee = " ".join(line(raw, _LONGEST_NAME).split())
        if not attendee or attendee.startswith("#"):
            continue
        name = slug(attendee)
        where = f"line {number} of {file.name}, {attendee!r},"
        if not name:
            raise InvalidArgument(
                f"{where} has no letter from a to z and no digit, as Kubernetes' names have",
                hint="write it in Latin letters; attendees see what you write",
            )
        if name in places:
            raise InvalidArgument(
                f"{where} gives the same place as {places[name].attendee!r}: {name}",
                hint="add what tells them apart, as an initial or a number",
            )
        places[name] = PlaceName(name, attendee)
    if not places or len(text) > _LARGEST_LIST:
        what = "is too large for a list of names" if places else "has no names"
        raise InvalidArgument(f"{file} {what}", hint=f"write a name a line, {MOST} at most")
    return list(places.values())


def slug(attendee: str) -> str:
    """Returns a person's name as part of Kubernetes' names: ada-lovelace for Ada Lovelace; may be empty."""
    plain = unicodedata.normalize("NFKD", attendee.casefold()).encode("ascii", "ignore").decode()
    return re.sub("[^a-z0-9]+", "-", plain).strip("-")[:LONGEST].strip("-")
