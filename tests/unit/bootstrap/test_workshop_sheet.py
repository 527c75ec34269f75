"""Tests the sheet of a workshop's places, as CSV and as a page to print."""

from __future__ import annotations

import csv
import stat
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace

import pytest

from bootstrap.delivery.door_secrets import Entry, Listed
from bootstrap.settings import Settings
from bootstrap.verbs import workshop as verb
from tests.unit.scripted_debuggee import ScriptedConsole

NAMES = {"ada": 'Ada <script>alert(1)</script> & "Co"', "eve": "=1+1", "rtl": "a\u202eb", "place-001": ""}
TOLD = Listed(
    *("Ray workshop", "the-key", "the-teachers-key", "https://192.0.2.10:8444", "https://127.0.0.1:8445"),
    places=tuple(Entry(name, attendee, "http://x", f"code-of-{name}") for name, attendee in NAMES.items()),
)
LINKS = [f"https://192.0.2.10:8444/_door/place/code-of-{name}" for name in NAMES]


class Page(HTMLParser):
    """Notes a page's tags, attributes and texts, as a browser has them."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[str] = []
        self.texts: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [name for name, _ in attrs]

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


@pytest.fixture
def written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """Has a workshop; `sheet` writes its sheet into a file of that name, and returns it and what is said."""
    door = SimpleNamespace(secrets=SimpleNamespace(told=lambda: TOLD))
    event = SimpleNamespace(require=lambda: None, door=door)
    monkeypatch.setattr(verb, "workshop_of", lambda settings: event)

    def sheet(name: str) -> tuple[Path, str]:
        console = ScriptedConsole()
        verb.sheet(Settings(), console, tmp_path / name)
        return tmp_path / name, console.shown

    return SimpleNamespace(sheet=sheet)


@pytest.mark.parametrize("name", ["sheet.html", "Sheet.HTML"])
def test_a_page_to_print_has_each_places_card_and_is_harmless(written: SimpleNamespace, name: str) -> None:
    file, told = written.sheet(name)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert "has 4 places. Whoever has a card of it" in told
    text = file.read_text()
    page = Page(text)
    assert [text.count(link) for link in LINKS] == [1] * len(LINKS)
    assert [each for each in page.texts if each in LINKS] == LINKS
    assert page.tags.count("section") == len(NAMES)
    assert [each for each in page.texts if each in NAMES] == list(NAMES)
    assert "Ray workshop: the places" in page.texts
    assert not {"script", "link", "img", "iframe", "form", "a", "base"} & {*page.tags}
    assert not {"src", "href", "onload", "onerror"} & {*page.attributes}
    assert "default-src 'none'" in text
    # A name is text, and nothing in it turns the line around. Neither key is an attendee's to have.
    assert "&lt;script&gt;alert(1)&lt;/script&gt; &amp; &quot;Co&quot;" in text
    assert not [part for part in ("url(", "\u202e", "-key") if part in text]


@pytest.mark.parametrize("name", ["sheet.csv", "sheet", "html", "sheet.html.txt"])
def test_any_other_sheet_is_csv(written: SimpleNamespace, name: str) -> None:
    file, told = written.sheet(name)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert "Whoever has a line of it" in told
    with file.open(newline="") as opened:
        rows = list(csv.DictReader(opened))
    assert [row["place"] for row in rows] == list(NAMES)
    assert [row["link"] for row in rows] == LINKS
    # A spreadsheet calculates nothing.
    assert [row["attendee"] for row in rows][:2] == [NAMES["ada"], "'=1+1"]
