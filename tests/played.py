"""Decorator that turns a story, a coroutine with its world as an argument, into a test for pytest."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

World = TypeVar("World")
Story = Callable[..., Coroutine[Any, Any, None]]


def played(
    play: Callable[[Callable[[World], Coroutine[Any, Any, None]]], None],
) -> Callable[[Story], Callable[..., None]]:
    """Returns a decorator of stories, whose world `play` makes; pytest provides all other arguments."""

    def decorate(story: Story) -> Callable[..., None]:
        @functools.wraps(story)
        def test(**given: Any) -> None:
            play(lambda world: story(world, **given))

        _, *others = inspect.signature(story).parameters.values()
        test.__signature__ = inspect.Signature(others)  # type: ignore[attr-defined]
        return test

    return decorate
