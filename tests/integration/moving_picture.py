"""Recorder of docs/images/terminal.svg: `python -m tests.integration.moving_picture`, with a local cluster.

A program is debugged in a real terminal, and the terminal's output becomes an animated SVG.
"""

from __future__ import annotations

import os
import re
import tempfile
import textwrap
from dataclasses import dataclass, field
from html import escape
from pathlib import Path

from bootstrap.settings import ROOT
from rayside.client.terminal import PROMPT
from tests.integration.screen import Screen

PICTURE = ROOT / "docs" / "images" / "terminal.svg"
# Path that replaces the program's folder in the picture.
HOME = "/home/me/code"
PROGRAM = """\
import ray


@ray.remote(num_cpus=0)
def train(rank):
    weight = 1.0
    for step in range(200):
        gradient = weight * 0.01
        if rank == 2 and step == 99:
            gradient = float("nan")
        weight -= gradient
        loss = weight**2
    return loss


print(ray.get([train.remote(rank) for rank in range(3)]))
"""
SUBMIT = './invokew submit --debug --working-dir . --entrypoint "python train.py"'
DEBUG = './invokew debug --break "train.py:12 gather 3:step == 100"'
TITLE = "Three Ray tasks stop together at a breakpoint with a condition; compare shows in which one a NaN is"
# Commands at the debugger's prompt, and seconds for which each one's output is shown.
TYPED = (("p rank, step, weight", 2.0), ("compare weight", 4.0), ("quit", 0.0))
SHELL, CHOICE = "$ ", "which one? [1] "
# Text that the shell prints at the end of a command.
ENDED = "-- ended --"
COLUMNS = 96
PER_CHARACTER, LAST = 0.025, 3.0
# In pixels.
WIDTH, HEIGHT, MARGIN = 8.4, 18, 14
FONT = "14px ui-monospace, Menlo, Consolas, monospace"
COLOURS = (
    ("#e5c07b", "->"),
    ("#e06c75", "1  nan"),
    ("#98c379", SHELL),
    ("#98c379", PROMPT),
    ("#98c379", CHOICE),
)


@dataclass(frozen=True)
class Line:
    """Line of the terminal, visible from `start`; the text after `typed` characters takes `seconds`."""

    text: str
    start: float
    typed: int = 0
    seconds: float = 0

    def drawn(self, row: int, whole: float) -> str:
        """Returns the line as SVG, in a loop of `whole` seconds."""
        x, y, length = MARGIN, MARGIN + row * HEIGHT, len(self.text) * WIDTH
        colour = next((colour for colour, start in COLOURS if self.text.startswith(start)), "#d7dae0")
        repeat = f'dur="{whole:.2f}s" repeatCount="indefinite"'
        appears = f'values="0;1" keyTimes="0;{self.start / whole:.4f}" calcMode="discrete" {repeat}'
        clip = define = ""
        if self.seconds:
            times = f"0;{self.start / whole:.4f};{(self.start + self.seconds) / whole:.4f};1"
            widths = ";".join(f"{width:g}" for width in (self.typed * WIDTH,) * 2 + (length,) * 2)
            clip = f' clip-path="url(#line{row})"'
            define = (
                f'<clipPath id="line{row}"><rect x="{x}" y="{y}" width="{length:g}" height="{HEIGHT}">'
                f'<animate attributeName="width" values="{widths}" keyTimes="{times}" {repeat}/>'
                "</rect></clipPath>"
            )
        # A viewer's font may have another character width.
        return (
            f'{define}<text x="{x}" y="{y + HEIGHT - 4}" fill="{colour}" textLength="{length:g}" '
            f'lengthAdjust="spacingAndGlyphs" xml:space="preserve"{clip}>{escape(self.text, quote=False)}'
            f'<animate attributeName="opacity" {appears}/></text>'
        )


@dataclass
class Film:
    """Lines of a terminal, each with the second at which it appears, and typed lines with their speed."""

    lines: list[Line] = field(default_factory=list)
    now: float = 0.5

    def typed(self, prompt: str, text: str) -> None:
        """Adds a line that is typed after a prompt."""
        seconds = len(text) * PER_CHARACTER
        self.lines.append(Line(prompt + text, self.now, len(prompt), seconds))
        self.now += seconds + 0.3

    def shown(self, text: str, seconds: float) -> None:
        """Adds lines that appear at once, and the seconds until the next step."""
        for line in text.splitlines():
            wrapped = textwrap.wrap(line, COLUMNS, replace_whitespace=False, break_on_hyphens=False)
            self.lines += [Line(part, self.now) for part in wrapped or [""]]
        self.now += seconds

    def drawn(self) -> str:
        """Returns the animated SVG; a viewer without animation shows all of it."""
        width, height = COLUMNS * WIDTH + 2 * MARGIN, len(self.lines) * HEIGHT + 2 * MARGIN
        seconds = self.now + LAST
        drawn = [line.drawn(row, seconds) for row, line in enumerate(self.lines) if line.text]
        return "\n".join(
            [
                f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height}" role="img">',
                f"<title>{TITLE}</title>",
                f"<style>text {{ font: {FONT}; white-space: pre }}</style>",
                f'<rect width="{width:g}" height="{height}" rx="8" fill="#1f2329"/>',
                *drawn,
                "</svg>\n",
            ]
        )


def record(folder: Path) -> Film:
    """Debugs the program in a terminal; returns the typed and the shown lines."""
    (folder / "train.py").write_text(PROGRAM)
    film = Film()

    def run(command: str) -> Screen:
        real = command.replace("./invokew", str(ROOT / "invokew"))
        return Screen("/bin/sh", "-c", f"cd {folder} && {real}; echo; echo {ENDED}", env=os.environ)

    def seen(screen: Screen, until: str) -> str:
        shown = plain(screen.until(until)).replace(str(folder), HOME)
        # The note on time limits is left out.
        return shown.partition("\nA stop may last")[0].strip("\n")

    film.typed(SHELL, SUBMIT)
    screen = run(SUBMIT)
    film.shown(seen(screen, ENDED), 1.0)
    screen.close()
    film.typed(SHELL, DEBUG)
    screen = run(DEBUG)
    film.shown(seen(screen, CHOICE), 2.0)
    screen.type("3\r")
    film.typed(CHOICE, "3")
    screen.until("3\r\n")
    film.shown(seen(screen, PROMPT), 2.5)
    for command, seconds in TYPED:
        film.typed(PROMPT, command)
        screen.type(f"{command}\r")
        screen.until(f"{command}\r\n")
        film.shown(seen(screen, ENDED if command == "quit" else PROMPT), seconds)
    screen.close()
    return film


def plain(shown: str) -> str:
    """Returns a terminal's text without control sequences and overwritten text."""
    lines = (
        line.rpartition("\x1b[2K")[2].rpartition("\r")[2] for line in shown.replace("\r\n", "\n").split("\n")
    )
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", "\n".join(lines))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        PICTURE.write_text(record(Path(name)).drawn())
