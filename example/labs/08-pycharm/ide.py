"""Plays the part of PyCharm's Python Debug Server: python ide.py [--port 7779] [--stops 3] EXPRESSION ...

Workers connect to it. At each stop it shows the place and the values of the expressions, and lets the task
go on. The protocol is that of pydevd-pycharm (`_pydevd_bundle/pydevd_comm.py`): one command a line, of a
number, a sequence number and a text, with tabs between them. Whoever can connect may send anything, so all
is bounded.
"""

import argparse
import re
import socket
import threading
from dataclasses import dataclass
from html import unescape
from urllib.parse import unquote

RUN, SUSPENDED, GO_ON, EVALUATE, VERSION, FAILED = 101, 105, 106, 113, 501, 901
LONGEST = 1 << 18  # bytes of a line
MOST_WORKERS = 16
PATIENCE = 300.0  # seconds
# The first frame is the innermost; what is in quotation marks is quoted as in a URL.
_FRAME = re.compile(
    r'<xml><thread id="([^"]+)"[^>]*><frame id="([^"]+)" name="([^"]+)" file="([^"]*)" line="(\d+)"'
)
_VALUE = re.compile(r'<xml><var [^>]*?value="([^"]*)"')


@dataclass(frozen=True)
class Command:
    number: int
    sequence: int
    text: str


@dataclass(frozen=True)
class Stop:
    thread: str
    frame: str
    function: str
    file: str
    line: int


class Lines:
    """Makes commands of what comes from a connection, piece by piece."""

    def __init__(self):
        self._rest = b""

    def feed(self, piece):
        """Returns the commands that are whole by now. Raises ValueError for what is none, or too long."""
        *lines, self._rest = (self._rest + piece).split(b"\n")
        if max(map(len, [*lines, self._rest])) > LONGEST:
            raise ValueError("a line is too long")
        return [command(line.decode()) for line in lines]


def command(line):
    """Returns the command of a line. Raises ValueError."""
    number, sequence, text = line.split("\t", 2)
    return Command(int(number), int(sequence), text)


def stop(text):
    """Returns where a thread stands, of the text of a SUSPENDED command. Raises ValueError."""
    match = _FRAME.match(text)
    if not match:
        raise ValueError("a stop without a frame")
    thread, frame, function, file, line = map(_unquoted, match.groups())
    return Stop(thread, frame, function, file, int(line))


def value(text):
    """Returns the value in the answer to an EVALUATE command, as the worker shows it. Raises ValueError."""
    match = _VALUE.match(text)
    if not match:
        raise ValueError("an answer without a value")
    return unquote(_unquoted(match[1]))


def _unquoted(text):
    return unescape(unquote(text))


def printable(text):
    """Returns text of a worker in one line, without what a terminal would obey."""
    return "".join(char if char.isprintable() else "?" for char in text[:300])


class Worker:
    """One worker's connection: a process has one, and here it runs one task after the other."""

    def __init__(self, connection, expressions, on_stop):
        self._connection = connection
        self._expressions = expressions
        self._on_stop = on_stop
        self._sequence = 1
        self._commands = self._received()

    def talk(self):
        """Lets the worker go on from each stop, until it has gone. Raises ValueError, OSError."""
        self._send(VERSION, "1.0")
        self._send(RUN)
        for each in self._commands:
            if each.number == VERSION:
                print(f"a worker has connected, with pydevd {printable(each.text)}", flush=True)
            elif each.number == SUSPENDED:
                place = stop(each.text)
                lines = [f"stopped in {place.function}, line {place.line} of {place.file}"]
                lines += [f"  {name} = {self._evaluate(place, name)}" for name in self._expressions]
                print("\n".join(map(printable, lines)), flush=True)
                self._send(GO_ON, place.thread)
                self._on_stop()

    def _evaluate(self, place, expression):
        sequence = self._send(EVALUATE, f"{place.thread}\t{place.frame}\tLOCAL\t{expression}\t1")
        for each in self._commands:
            if each.sequence == sequence:
                return "an error" if each.number == FAILED else value(each.text)
        raise ConnectionError("the worker has gone")

    def _received(self):
        lines = Lines()
        while piece := self._connection.recv(4096):
            yield from lines.feed(piece)

    def _send(self, number, text=""):
        sequence, self._sequence = self._sequence, self._sequence + 2  # ours are odd, the worker's are even
        self._connection.sendall(f"{number}\t{sequence}\t{text}\n".encode())
        return sequence


def serve(port, stops, expressions):
    """Serves workers until so many stops were seen and they have gone. Raises TimeoutError."""
    seen = threading.Semaphore(0)
    talks = []

    def talk(connection):
        with connection:
            try:
                Worker(connection, expressions, seen.release).talk()
            except (ValueError, OSError) as error:
                print(f"a worker's connection ends: {printable(str(error))}", flush=True)

    def accept(server):
        for _ in range(MOST_WORKERS):
            connection, _ = server.accept()
            connection.settimeout(PATIENCE)
            talks.append(threading.Thread(target=talk, args=[connection], daemon=True))
            talks[-1].start()

    # This machine alone can connect: nobody is asked for a password.
    with socket.create_server(("127.0.0.1", port)) as server:
        print(f"listening at 127.0.0.1:{server.getsockname()[1]}", flush=True)
        threading.Thread(target=accept, args=[server], daemon=True).start()
        for _ in range(stops):
            if not seen.acquire(timeout=PATIENCE):
                raise TimeoutError(f"fewer than {stops} stops within {PATIENCE:g} s")
        for each in list(talks):
            each.join(PATIENCE)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, default=7779)
    parser.add_argument("--stops", type=int, default=3)
    parser.add_argument("expressions", nargs="*")
    options = parser.parse_args()
    serve(options.port, options.stops, options.expressions)
