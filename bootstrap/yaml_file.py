"""Reads YAML files that users write, and refuses them with the place where they are wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bootstrap.errors import InvalidYaml


def read(file: Path) -> Any:
    """Returns the only document in `file`. Raises InvalidYaml, with the line and column where it has them."""
    try:
        return parse(file.expanduser().read_text(), str(file))
    except (OSError, RuntimeError) as error:  # RuntimeError: there is no such user for ~name.
        why = getattr(error, "strerror", None) or error
        raise InvalidYaml(f"{file} can't be read: {why}", hint="check the path") from None
    except UnicodeDecodeError as error:
        raise InvalidYaml(f"{file} is not text: {error}", hint="save it as UTF-8") from None


def parse(text: str, where: str) -> Any:
    """Returns the only document in `text`, which errors call `where`. Raises InvalidYaml."""
    import yaml

    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        place = f", line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        parts = [getattr(error, "context", None), getattr(error, "problem", None)]
        problem = ", ".join(part for part in parts if part) or str(error)
        raise InvalidYaml(f"{where}{place}: {problem}", hint="correct that line") from None
    # So PyYAML says that there is no such day, that a tag does not fit its value, or that lists are too deep.
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        hint = "put values that are no numbers and no dates in quotes"
        raise InvalidYaml(
            f"{where} has a value that can't be read ({type(error).__name__})", hint=hint
        ) from None
