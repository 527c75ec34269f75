"""Finds the titles of a shelf that the catalogue does not have."""

SHELVES = ("history", "poetry", "science", "travel")


def catalogue() -> list[str]:
    """Returns 5,000 titles, as somebody has typed them."""
    return [f"  The {number}th  BOOK " for number in range(5_000)]


def titles_of(shelf: str) -> list[str]:
    """Returns the 60 titles of a shelf; as many of them are new to the catalogue as its name has letters."""
    return [f"the {number}TH book" for number in range(4_940 + len(shelf), 5_000 + len(shelf))]


def plain(title: str) -> str:
    """Returns a title as it is compared: in lower case, with single blanks."""
    return " ".join(title.lower().split())


def missing(titles: list[str], entries: list[str]) -> list[str]:
    known = {plain(entry) for entry in entries}
    return [title for title in titles if plain(title) not in known]
