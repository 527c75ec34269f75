"""Reads a page in five parts, none of which keeps anything."""

WORDS = 60_000


def load(number: int) -> str:
    """Returns the text of a page: 540,000 characters."""
    return f"Page{number:04} " * WORDS


def clean(text: str) -> str:
    # It takes eight bytes for each character, for a moment.
    return "".join(list(text)).strip()


def fold(text: str) -> str:
    return text.casefold()


def split(text: str) -> list[str]:
    return text.split(" ")


def index(words: list[str]) -> dict[str, int]:
    places = {}
    for place, word in enumerate(words):
        places.setdefault(word, place)
    return places
