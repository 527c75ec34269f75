"""Tests which file of a process an editor's is: by its text, else by its package, and never by a guess."""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path
from types import ModuleType

import pytest

from rayside.worker.evaluated.sources import Answer, own_files

EDITORS = "/laptop/project/src/shop/orders.py"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folders = [tmp_path / "one", tmp_path / "two", Path("/not-there"), tmp_path]
    monkeypatch.setattr(sys, "path", [*map(str, folders)])
    return tmp_path


def file(folder: Path, name: str, text: str = "x = 1\n") -> str:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return str(path)


def found(path: str = EDITORS, text: str = "") -> Answer | None:
    return own_files({path: hashlib.sha256(text.encode()).hexdigest() if text else ""}).get(path)


def test_a_file_at_the_same_place_is_likely_and_with_the_same_text_the_same(folder: Path) -> None:
    assert found() is None
    own = file(folder, "two/shop/orders.py")
    assert found() == ("likely", [own])
    assert found(text="x = 1\n") == ("same", [own])
    assert found(text="x = 2\n") == ("differs", [own])


def test_a_name_alone_says_nothing_unless_the_text_is_the_same(folder: Path) -> None:
    own = file(folder, "one/orders.py")
    assert found() is None
    assert found(text="x = 2\n") is None
    assert found(text="x = 1\n") == ("same", [own])


def test_the_most_names_that_agree_decide_and_two_are_no_answer(folder: Path) -> None:
    one, two = file(folder, "one/shop/orders.py"), file(folder, "two/shop/orders.py", "x = 2\n")
    assert found() == ("several", [two, one])
    assert found(text="x = 1\n") == ("same", [one])
    longer = file(folder, "two/src/shop/orders.py")
    assert found() == ("likely", [longer])


def test_two_ways_to_one_file_are_one(folder: Path) -> None:
    file(folder, "one/shop/orders.py")
    (folder / "two").symlink_to(folder / "one")
    kind, files = found() or ("", [])
    assert (kind, len(files)) == ("likely", 1)


def test_what_is_imported_by_its_path_needs_no_other(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # An editable install that is a folder of `sys.path`, and one that is a finder's.
    own = file(folder, "two/shop/orders.py")
    assert found(own) is None
    elsewhere = file(folder.with_name(f"{folder.name}-elsewhere"), "shop/orders.py")
    assert found(elsewhere) == ("same", [own])
    module = ModuleType("shop.orders")
    module.__file__ = elsewhere
    monkeypatch.setitem(sys.modules, "shop.orders", module)
    assert found(elsewhere) is None


def test_a_module_of_a_finder_of_its_own_is_found(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("shop.orders")
    module.__file__ = file(folder.with_name(f"{folder.name}-opt"), "app/shop/orders.py")
    monkeypatch.setitem(sys.modules, "shop.orders", module)
    assert found() == ("likely", [module.__file__])
    assert found("/laptop/other/orders.py") is None


def test_what_is_no_module_is_passed_over(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Library:
        """Stands for cffi's libraries, which say that they are modules and have no names."""

        __slots__ = ()
        __class__ = property(lambda self: ModuleType)

    monkeypatch.setitem(sys.modules, "a.lib", Library())
    assert found(text="x = 1\n") is None
