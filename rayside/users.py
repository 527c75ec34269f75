"""Users of a Ray cluster that several people debug on: who somebody is, and whose jobs they see.

A user is a name, which nothing proves: it tells people apart who trust each other, and keeps nobody out.
"""

from __future__ import annotations

import contextlib
import getpass
import os
import re

from rayside.plain import line
from rayside.worker.handshake import LONGEST_USER

# The name for which a program of `rayside run` is debugged begins so.
OF_A_RUN = "rayside run "


def own_name() -> str:
    """Returns this user's name on this machine, or one made of the number where they have none."""
    with contextlib.suppress(KeyError, OSError):
        name = getpass.getuser().strip()
        if name and is_name(name):
            return name
    return f"uid-{os.getuid()}"


def is_name(text: str) -> bool:
    """Returns whether it can be a user's name: short, of one line, and shown as it is."""
    return text == text.strip() and line(text, LONGEST_USER) == text


def sees(user: str, of: str) -> bool:
    """Returns whether `user` is shown, unasked, what is `of` that user, or of nobody where that is empty.

    An empty `user` is on a Ray that is one person's, who sees all. A program of `rayside run` sees its own.
    """
    return of == user if user.startswith(OF_A_RUN) else not user or of in ("", user)


def in_a_name(user: str) -> str:
    """Returns the user's name as it can stand in that of an actor, or of a pod, where people read it."""
    return re.sub("[^a-z0-9]+", "-", user.lower()).strip("-")[:30].rstrip("-") or "somebody"
