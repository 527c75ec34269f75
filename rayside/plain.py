"""Sanitizer for untrusted text before a terminal or an editor shows it.

Anybody with code in the cluster controls names of tasks and jobs, values, messages of Ray and Kubernetes. A
terminal obeys escape sequences (ECMA-48 and xterm's: the clipboard, the title, the cursor, the colors), and
Unicode's bidirectional controls change the order in which text is shown (CVE-2021-42574).
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

# Harmless, though Python's `isprintable` is False: the spaces of other scripts (Zs), and the two joiners
# that Persian, Hindi and emoji are written with.
_SHOWN = frozenset("\u00a0\u1680\u202f\u205f\u3000\u200c\u200d") | {
    chr(code) for code in range(0x2000, 0x200B)
}

_COLOUR = re.compile(r"\x1b\[[0-9;:]{0,32}m")
# Complete escape sequences: CSI; OSC, DCS, SOS, PM and APC with their payload; the short ones.
_SEQUENCE = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]{0,64}[ -/]{0,8}[@-~]"
    r"|(?:\x1b[\]PX^_]|[\x9d\x90\x98\x9e\x9f])[^\x07\x1b\x9c\n]{0,2000}(?:\x07|\x1b\\|\x9c)"
    r"|\x1b[ -/]{0,8}[0-Z\\`-~]"
)
# An unfinished escape sequence at the end of a piece.
_BEGUN = re.compile(
    r"(?:(?:\x1b\[|\x9b)[0-?]*[ -/]*"
    r"|(?:\x1b[\]PX^_]|[\x9d\x90\x98\x9e\x9f])[^\x07\x1b\x9c\n]*\x1b?"
    r"|\x1b[ -/]*)\Z"
)
_LONGEST = 2048
# Limit: characters of a name in a list.
_LONGEST_NAME = 100
_RESET = "\x1b[0m"
# Limit: active color sequences, which add up.
_MOST_COLOURS = 8


def plain(text: str) -> str:
    r"""Returns the text with unprintable characters escaped, as `\x1b` and `\u202e`; keeps tabs and lines."""
    if text.isprintable():
        return text
    return "".join(char if char in "\t\n" or _is_shown(char) else _visible(char) for char in text)


def fits_header(credential: str) -> bool:
    """Returns whether an HTTP header can hold a token; if not, the HTTP library's error would show it."""
    return credential.isascii() and credential.isprintable() and " " not in credential


def counted(number: int, name: str, several: str = "") -> str:
    """Returns a count with its noun: `1 place`, `1,000 places`, or `2 processes` with `several`."""
    return f"{number:,} {name if number == 1 else several or f'{name}s'}"


def some_of(names: Sequence[str]) -> str:
    """Returns the first of some untrusted names, cleaned, and the number of the others."""
    others = f" and {counted(len(names) - 1, 'other')}" if names[1:] else ""
    return f"{line(names[0], _LONGEST_NAME)}{others}"


def line(text: str, most: int | None = None) -> str:
    r"""Returns `plain` text in one line: a line break in a name could fake a line of Rayside's output.

    It has at most `most` characters; a cut text ends in `...`.
    """
    if most is not None and len(text) > most:
        text = f"{text[: max(0, most - 3)]}..."
    if text.isprintable():
        return text
    return "".join(char if _is_shown(char) else _visible(char) for char in text)


def document(value: object) -> str:
    """Returns a value's JSON, for people and programs; unprintable characters are escaped as in JSON."""
    text = json.dumps(value, ensure_ascii=False, indent=2)
    # JSON is ASCII outside of strings; its only line breaks belong to the indentation.
    return "".join(c if c == "\n" or _is_shown(c) else json.dumps(c)[1:-1] for c in text)


def printed(text: str) -> str:
    """Returns a program's whole output as `Stream` shows it, without colors."""
    stream = Stream(colours=False)
    return stream.feed(text) + stream.end()


class Stream:
    """Incremental sanitizer for a program's output: keeps the text, and optionally the colors.

    It removes every other escape sequence, and control characters except tab, line feed and carriage return,
    which progress bars use. A sequence may be split between two pieces.

    Args:
        colours: whether to keep colors (SGR). Each piece then resets them at its end; the next restores them.
    """

    def __init__(self, *, colours: bool) -> None:
        self._colours = colours
        self._rest = ""
        self._on: list[str] = []

    def feed(self, piece: str) -> str:
        """Returns the cleaned text of the next piece."""
        text, self._rest = self._rest + piece, ""
        begun = _BEGUN.search(text, max(0, len(text) - _LONGEST))
        if begun is not None:
            text, self._rest = text[: begun.start()], begun[0]
        shown = "".join(self._on) + self._clean(text)
        return shown + _RESET if self._on else shown

    def end(self) -> str:
        """Returns the cleaned text of an unfinished sequence at the end of the output."""
        rest, self._rest = self._rest, ""
        return self._clean(rest)

    def _clean(self, text: str) -> str:
        pieces, at = [], 0
        for sequence in _SEQUENCE.finditer(text):
            pieces.append(_without_controls(text[at : sequence.start()]))
            at = sequence.end()
            if self._colours and _COLOUR.fullmatch(sequence[0]):
                pieces.append(sequence[0])
                self._note(sequence[0])
        pieces.append(_without_controls(text[at:]))
        return "".join(pieces)

    def _note(self, colour: str) -> None:
        off = colour in (_RESET, "\x1b[m")
        self._on = [] if off else [*self._on, colour][-_MOST_COLOURS:]


def _is_shown(char: str) -> bool:
    return char.isprintable() or char in _SHOWN


def _visible(char: str) -> str:
    return char.encode("unicode_escape").decode("ascii")


def _without_controls(text: str) -> str:
    if text.isprintable():
        return text
    return "".join(
        char if char in "\t\n\r" or _is_shown(char) else "" if _is_control(char) else _visible(char)
        for char in text
    )


def _is_control(char: str) -> bool:
    return char < " " or "\x7f" <= char <= "\x9f"
