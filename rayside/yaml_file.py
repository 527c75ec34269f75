"""Reader of users' YAML files; its errors name the line and column."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from rayside.errors import InvalidYaml


def read(file: Path) -> Any:
    """Returns the only document in `file`. Raises InvalidYaml, with line and column if known."""
    return parse(_text(file), str(file))


def read_all(file: Path) -> list[Any]:
    """Returns the documents in `file` that are not empty. Raises as `read`."""
    import yaml

    documents = _parsed(lambda text: list(yaml.safe_load_all(text)), _text(file), str(file))
    return [document for document in documents if document is not None]


def parse(text: str, where: str) -> Any:
    """Returns the only document in `text`, which errors call `where`. Raises InvalidYaml."""
    import yaml

    return _parsed(yaml.safe_load, text, where)


def _text(file: Path) -> str:
    try:
        return file.expanduser().read_text()
    except (OSError, RuntimeError) as error:  # RuntimeError: there is no such user for ~name.
        why = getattr(error, "strerror", None) or error
        raise InvalidYaml(f"{file} can't be read: {why}", hint="check the path") from None
    except UnicodeDecodeError as error:
        raise InvalidYaml(f"{file} is not text: {error}", hint="save it as UTF-8") from None


def _parsed(load: Callable[[str], Any], text: str, where: str) -> Any:
    import yaml

    try:
        return load(text)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        place = f", line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        parts = [getattr(error, "context", None), getattr(error, "problem", None)]
        problem = ", ".join(part for part in parts if part) or str(error)
        raise InvalidYaml(f"{where}{place}: {problem}", hint="correct that line") from None
    # PyYAML's errors for an impossible date, a tag that does not fit its value, and lists nested too deep.
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        hint = "put values that are no numbers and no dates in quotes"
        raise InvalidYaml(
            f"{where} has a value that can't be read ({type(error).__name__})", hint=hint
        ) from None
