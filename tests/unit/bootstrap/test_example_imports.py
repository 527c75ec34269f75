"""Tests that what the examples take from Rayside is there: nothing else imports most of them."""

from __future__ import annotations

import ast
import importlib.util
from pathlib import Path

import pytest

from bootstrap.settings import ROOT

FILES = sorted((ROOT / "example").rglob("*.py"))


def names(module: str) -> set[str]:
    """The names that a module sets or imports, and, of a package, those of its modules."""
    spec = importlib.util.find_spec(module)
    assert spec is not None, f"there is no module {module}"
    assert spec.origin is not None
    found = {path.stem for folder in spec.submodule_search_locations or () for path in Path(folder).iterdir()}
    for node in ast.walk(ast.parse(Path(spec.origin).read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
        elif isinstance(node, ast.alias):
            found.add(node.asname or node.name)
    return found


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(ROOT / "example")))
def test_all_that_an_example_uses_of_rayside_is_there(file: Path) -> None:
    tree = ast.parse(file.read_text())
    modules: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in ("bootstrap", "rayside"):
            assert {alias.name for alias in node.names} <= names(str(node.module)), f"line {node.lineno}"
            modules |= {each.asname or each.name: f"{node.module}.{each.name}" for each in node.names}
        elif isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.split(".")[0] in ("bootstrap", "rayside"):
                    assert importlib.util.find_spec(alias.name) is not None, f"line {node.lineno}"
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            module = modules.get(node.value.id, "")
            if (ROOT / f"{module.replace('.', '/')}.py").is_file():
                assert node.attr in names(module), f"line {node.lineno}"
