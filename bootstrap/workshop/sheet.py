"""Sheet of a workshop's places, with a link for each: as CSV, or as a page to print and cut."""

from __future__ import annotations

import csv
import io
from html import escape

from bootstrap.delivery.door_secrets import Entry, Listed
from rayside.plain import line

# Prefixes that a spreadsheet takes for a formula.
_FORMULA = ("=", "+", "-", "@")

# The page runs no scripts and sends no requests, whatever an attendee's name contains.
_PAGE = """\
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<meta name="referrer" content="no-referrer">
<title>{title}: the places</title>
<style>
body {{ margin: 1cm; font-family: sans-serif; color: #000; background: #fff; }}
main {{ display: grid; grid-template-columns: 1fr 1fr; gap: 5mm; }}
section {{ border: 1px dashed #666; padding: 5mm; break-inside: avoid; }}
h2, p {{ margin: 0 0 2mm; overflow-wrap: anywhere; }}
h2 {{ font-size: 14pt; }}
.link {{ font: 11pt monospace; }}
@page {{ margin: 1cm; }}
@media print {{ body {{ margin: 0; }} h1 {{ display: none; }} }}
</style>
</head>
<body>
<h1>{title}: the places</h1>
<main>
{cards}
</main>
</body>
</html>
"""
_CARD = """\
<section>
<h2>{place}</h2>
{attendee}<p class="link">{link}</p>
<p>Open this link in a browser. Whoever has it is in this place.</p>
</section>"""


def as_csv(told: Listed) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(("place", "attendee", "link"))
    for entry in told.places:
        attendee = f"'{entry.attendee}" if entry.attendee.startswith(_FORMULA) else entry.attendee
        writer.writerow((entry.name, attendee, _link(told, entry)))
    return text.getvalue()


def as_page(told: Listed) -> str:
    """Returns a page of HTML with a card for each place, several to a sheet of paper."""
    cards = (
        _CARD.format(
            place=_shown(entry.name),
            attendee=f"<p><bdi>{_shown(entry.attendee)}</bdi></p>\n" if entry.attendee else "",
            link=_shown(_link(told, entry)),
        )
        for entry in told.places
    )
    return _PAGE.format(title=_shown(told.title), cards="\n".join(cards))


def _link(told: Listed, entry: Entry) -> str:
    return f"{told.url}/_door/place/{entry.password}"


def _shown(text: str) -> str:
    return escape(line(text))
