"""User names on a shared Ray cluster, and whose jobs each user sees.

A user name is unauthenticated: it distinguishes people who trust each other, and keeps nobody out.
"""

from __future__ import annotations

import contextlib
import getpass
import os
import re

from rayside.plain import line
from rayside.worker.handshake import LONGEST_USER

# Prefix of the user name under which a program of `rayside run` is debugged.
OF_A_RUN = "rayside run "


def own_name() -> str:
    """Returns this user's name on this machine, or one made from the uid without a usable name."""
    with contextlib.suppress(KeyError, OSError):
        name = getpass.getuser().strip()
        if name and is_name(name):
            return name
    return f"uid-{os.getuid()}"


def is_name(text: str) -> bool:
    """Returns whether the text can be a user name: short, in one line, and printable unchanged."""
    return text == text.strip() and line(text, LONGEST_USER) == text


def sees(user: str, of: str) -> bool:
    """Returns whether `user` sees by default what belongs to user `of`; an empty `of` is nobody.

    An empty `user` sees all: the Ray cluster has one user. A program of `rayside run` sees only its own.
    """
    return of == user if user.startswith(OF_A_RUN) else not user or of in ("", user)


def in_a_name(user: str) -> str:
    """Returns the user name in a form that fits into an actor's or a pod's name, for people to read."""
    return re.sub("[^a-z0-9]+", "-", user.lower()).strip("-")[:30].rstrip("-") or "somebody"
