"""Tests the pages that a newcomer reads first: their length, their Chinese, their picture and issue forms."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

import pytest
import yaml

from bootstrap.settings import ROOT
from tests.docs_commands import page
from tests.integration.moving_picture import PICTURE, TYPED, Film

LABS = ROOT / "example" / "labs"
ENGLISH = [ROOT / "README.md", LABS / "README.md", *sorted(LABS.glob("*/README.md"))]
FORMS = ROOT / ".github" / "ISSUE_TEMPLATE"


@pytest.fixture(params=ENGLISH, ids=lambda file: str(file.parent.relative_to(ROOT)))
def translated(request: pytest.FixtureRequest) -> tuple[str, str]:
    """Provides the names of a page and its translation."""
    english: Path = request.param
    names = (str(file.relative_to(ROOT)) for file in (english, english.with_suffix(".zh.md")))
    return next(names), next(names)


def sections(document: str) -> Iterator[tuple[str, list[str], int]]:
    """Returns of each section the level of its heading, its links in order of their names, and its items."""
    for part in re.split(r"^(?=#)", page(document)[1], flags=re.MULTILINE):
        links = [
            re.sub(r"README(\.zh)?\.md$", "README", link) for link in re.findall(r"\]\(([^()\s]+)\)", part)
        ]
        yield part.partition(" ")[0], sorted(links), len(re.findall(r"^(?:[-|]|\d+\.) ", part, re.MULTILINE))


def test_a_translation_has_every_heading_link_item_and_row(translated: tuple[str, str]) -> None:
    english, chinese = (list(sections(document)) for document in translated)
    assert chinese == english
    assert re.search("[\u4e00-\u9fff]", (ROOT / translated[1]).read_text())


def test_a_translation_shows_the_same_commands_and_output(translated: tuple[str, str]) -> None:
    # The words in a drawing are translated, too.
    english, chinese = (
        [block.lines for block in page(document)[0] if block.language != "mermaid"] for document in translated
    )
    assert chinese == english


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text().split()) <= 900


def test_the_readme_has_three_ways_in_each_with_commands() -> None:
    blocks = [block.commands for block in page("README.md")[0] if block.language == "sh"]
    assert [block[-1].split()[:2] for block in blocks[:3]] == [
        ["rayside", "run"],
        ["rayside", "disconnect"],
        ["./invokew", "open"],
    ]
    assert blocks[2] == ["./invokew up", "./invokew open"]


def test_the_moving_picture_is_small_and_needs_nothing_else() -> None:
    drawn = PICTURE.read_text()
    assert ElementTree.fromstring(drawn).tag == "{http://www.w3.org/2000/svg}svg"
    assert len(drawn) < 150_000
    assert "://" not in drawn.replace("http://www.w3.org/2000/svg", "") and "@font-face" not in drawn
    for shown in (
        "3 tasks are stopped",
        "step == 100",
        *(command for command, _ in TYPED),
        "NaN or infinity",
    ):
        assert shown in drawn
    assert str(ROOT) not in drawn and str(Path.home()) not in drawn


def test_a_film_shows_each_line_when_it_was_there_and_a_still_of_it_shows_all() -> None:
    film = Film()
    film.typed("$ ", "ls <x>")
    film.shown("one\n\ntwo", 2.0)
    texts = [
        element for element in ElementTree.fromstring(film.drawn()).iter() if element.tag.endswith("text")
    ]
    assert [text.text for text in texts] == ["$ ls <x>", "one", "two"]
    assert [text.get("opacity") for text in texts] == [None] * 3
    starts = [line.start for line in film.lines]
    assert starts == sorted(starts) and film.now == pytest.approx(starts[-1] + 2.0)


@pytest.mark.parametrize("form", sorted(FORMS.glob("[!c]*.yml")), ids=lambda file: file.stem)
def test_an_issue_form_is_one_that_github_takes(form: Path) -> None:
    document = yaml.safe_load(form.read_text())
    assert {"name", "description", "body"} <= set(document)
    fields = [field for field in document["body"] if field["type"] != "markdown"]
    assert fields and all(field["id"] and field["attributes"]["label"] for field in fields)
    assert len({field["id"] for field in fields}) == len(fields)


def test_a_bug_comes_with_what_rayside_can_say_of_it() -> None:
    text = (FORMS / "bug.yml").read_text()
    assert (
        "./invokew diagnose --archive" in text and "rayside status --json" in text and "SECURITY.md" in text
    )
