"""Brings tracebacks of exception groups, and those that rich draws in boxes, into Python's plain form.

Sources: `TracebackException.format` (Lib/traceback.py of CPython) and `Traceback` (rich/traceback.py).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

TRACEBACK = "Traceback (most recent call last):"
# It stands before a part of an exception group, with the part's number, and after it, alone. No log has it:
# control characters are taken out of what a cluster says.
PART = "\x1f"

# A group's traceback has a margin of `|`, and one more for each group around it.
_GROUP = re.compile(r"^(?P<margin>[ |]*)(?:\+ )?Exception Group Traceback \(most recent call last\):$")
_MARGIN = re.compile(r"^(?: *\|)+ ?")
_PART_BEGINS = re.compile(r"^[ |]*\+(?:-\+)?-{8,} (\d{1,9}|\.\.\.) -{8,}$")
_PART_ENDS = re.compile(r"^[ |]*\+-{20,}$")
# rich draws its boxes with these; the ones of ASCII are for output that is not in Unicode.
_SIDES, _LINES, _TOPS, _BOTTOMS = "│|", "─-", ("╭+", "╮+"), ("╰+", "╯+")
_SUB_EXCEPTION = re.compile(r"Sub-exception #(\d{1,9})")
_FRAME = re.compile(r"(?P<file>.+):(?P<line>\d{1,9}) ?in ?(?P<function>.+)")
_WITHOUT_FILE = re.compile(r"in .+:\d{1,9}")
# Boxes lie in each other no deeper than this, and a frame's place is no longer.
_DEEPEST, _LONGEST = 24, 2_000


def plain_form(lines: Sequence[str]) -> list[str]:
    """Returns a log's lines with each traceback in Python's plain form, and PART around the parts of groups.

    The header of a traceback within a group is indented: only those at the margin end a program.
    """
    return list(_without_margins(list(_without_boxes(lines))))


def _without_margins(lines: Sequence[str]) -> Iterator[str]:
    # Ray's tables keep the end of a text alone, which may begin anywhere within a group.
    is_whole = any(group and "|" not in group["margin"] for group in map(_GROUP.match, lines))
    within = any(map(_PART_BEGINS.match, lines)) and not is_whole
    for line in lines:
        if group := _GROUP.match(line):
            within = True
            yield f"  {TRACEBACK}" if "|" in group["margin"] else TRACEBACK
        elif part := _PART_BEGINS.match(line):
            yield f"{PART}{part[1]}"
        elif _PART_ENDS.match(line):
            yield PART
        else:
            # A task's group is within the words of the exception by which Ray tells of it.
            within = within or "+ Exception Group Traceback (most recent" in line
            text = _MARGIN.sub("", line) if within else line
            yield f"  {text}" if text == TRACEBACK != line else text


def _without_boxes(lines: Sequence[str]) -> Iterator[str]:
    borders = (line for line in lines if _title(line, _TOPS) is not None or _title(line, _BOTTOMS) == "")
    # Of a long log the end alone is there: where a box only ends, it was that of the traceback.
    is_cut = _title(next(borders, ""), _TOPS) is None and any(line[:1] == "╰" for line in lines)
    boxes = [TRACEBACK[:-1]] if is_cut else []
    if is_cut:
        yield TRACEBACK
    width, wrapped, place = 0, "", ""
    for line in lines:
        depth, text, is_full = _inside(line, len(boxes))
        title = _title(text, _TOPS)
        is_top = title is not None and len(text) > 8 and depth < _DEEPEST
        if boxes[depth:] and _title(text, _BOTTOMS) == "":
            yield from _frame(place)
            if _SUB_EXCEPTION.match(boxes[depth]):
                yield PART
            boxes, place, width = boxes[:depth], "", width or len(text)
        elif is_top and (boxes[:depth] or width or title == TRACEBACK[:-1]):
            boxes, width = [*boxes[:depth], title or "-"], width or len(text)
            if title == TRACEBACK[:-1]:
                yield f"  {TRACEBACK}" if depth else TRACEBACK
            elif part := _SUB_EXCEPTION.match(title or ""):
                yield f"{PART}{part[1]}"
        elif not boxes or depth < len(boxes):
            # Below a box rich breaks the lines of what the exception says: after a space, or within a word.
            wrapped += line
            if not width or not (wrapped.endswith(" ") or len(line) == width) or not line.strip():
                yield wrapped
                wrapped = ""
        elif boxes[-1] == TRACEBACK[:-1]:
            # Lines of the program are indented, or marked; their place stands at the margin, broken anywhere.
            is_code = text[:1] in ("", " ", "❱", ">") and not (place and text.startswith(" in "))
            if is_code or _FRAME.fullmatch(place.strip()) or _WITHOUT_FILE.fullmatch(place.strip()):
                yield from _frame(place)
                place = ""
            if not is_code:
                place = f"{place}{text}{'' if is_full else ' '}"[:_LONGEST]
        elif _SUB_EXCEPTION.match(boxes[-1]):
            yield text
    if wrapped:
        yield wrapped


def _inside(line: str, deepest: int) -> tuple[int, str, bool]:
    """Returns in how many boxes a line is, what it has there, and whether that fills the line."""
    depth, text, is_full = 0, line.strip(), False
    while depth < deepest and text[:1] and text[0] in _SIDES and text[-1] in _SIDES:
        text = text[1:-1].removeprefix(" ").removesuffix(" ")
        depth, is_full, text = depth + 1, text[-1:] != " ", text.rstrip()
    return depth, text, is_full


def _title(text: str, corners: tuple[str, str]) -> str | None:
    """Returns the title in a horizontal border, which may be empty; None where the line is no such border."""
    if len(text) < 4 or text[0] not in corners[0] or text[-1] not in corners[1] or text[1] not in _LINES:
        return None
    title = text[1:-1].strip(_LINES)
    return title.strip() if not title or title[0] == title[-1] == " " else None


def _frame(place: str) -> Iterator[str]:
    if found := _FRAME.fullmatch(place.strip()):
        yield f'  File "{found["file"]}", line {found["line"]}, in {found["function"]}'
