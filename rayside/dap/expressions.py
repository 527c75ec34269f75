"""Checks of a user's expression for errors, before it is sent to debuggees.

The debuggees' Python may be newer, so only errors in every version count: newer syntax (f- and t-strings)
and texts that are too large to be compiled here are not reported.
"""

from __future__ import annotations

import re
import sys
import warnings
from functools import lru_cache

# Limits in characters and nested brackets: Python's parser and compiler work recursively.
LONGEST, DEEPEST = 4_000, 50
_STRING_WITH_CODE = re.compile(r"(?i)(?<!\w)(?:[ft]r?|r[ft])[\"']")
# The newest Python version whose grammar this module knows.
_NEWEST = (3, 14)


@lru_cache(maxsize=256)
def problem_of(expression: str) -> str:
    """Returns the error in an expression; empty if it is valid or blank, or can't be checked."""
    expression = expression.strip()
    if not expression or not may_be_compiled(expression):
        return ""
    if sys.version_info < _NEWEST and _STRING_WITH_CODE.search(expression):
        return ""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            compile(expression, "<expression>", "eval", dont_inherit=True)
    except SyntaxError as error:
        return error.msg
    except ValueError:  # null characters, halves of a surrogate pair
        return "it has characters that no program can have"
    except (RecursionError, MemoryError):
        pass
    return ""


def may_be_compiled(expression: str) -> bool:
    """Returns whether an expression is within the limits for Python's parser and compiler."""
    return len(expression) <= LONGEST and _depth(expression) <= DEEPEST


def refusal_of(expression: str) -> str:
    """Returns why an expression can't be evaluated in all stopped tasks; empty if it may be tried."""
    if not expression.strip():
        return "there is no expression to evaluate"
    if len(expression) > LONGEST:
        return f"the expression has {len(expression):,} characters, and may have {LONGEST:,}"
    problem = problem_of(expression)
    return f"it is no Python expression: {problem}" if problem else ""


def problem_of_message(message: str) -> str:
    """Returns the error in a logpoint's message, whose expressions are in braces; empty if it is valid."""
    if len(message) > LONGEST:
        return ""
    inner, depth = "", 0
    for character in message:
        depth += {"{": 1, "}": -1}.get(character, 0)
        if depth < 0:  # an unmatched closing brace is text
            depth = 0
        elif not depth and inner:
            # debugpy puts them into a tuple.
            if inner[1:].strip() and (problem := problem_of(f"({inner[1:].strip()},)")):
                return f"{problem}: {inner[1:].strip()[:80]}"
            inner = ""
        elif depth:
            inner += character
    return "a brace is not closed" if depth else ""


def _depth(text: str) -> int:
    """Returns the maximal nesting of brackets and lambdas; those in strings count, too."""
    depth = text.count("lambda")  # many of them take Python a second
    deepest = depth
    for character in text:
        if character in "([{":
            depth += 1
            deepest = max(deepest, depth)
        elif character in ")]}":
            depth -= 1
    return deepest
