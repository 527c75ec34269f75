"""Tests the names of what is cached: the same for the same inputs, another for any difference."""

from __future__ import annotations

from pathlib import Path

import pytest

from bootstrap import cache


def test_a_key_depends_on_every_input_and_on_where_one_ends() -> None:
    keys = {cache.key("ab", "c"), cache.key("a", "bc"), cache.key("abc"), cache.key("ab", "c", "")}
    assert len(keys) == 4
    assert cache.key("ab", "c") == cache.key("ab", "c")
    assert all(len(key) == 12 for key in keys)


def folder(at: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (at / name).parent.mkdir(parents=True, exist_ok=True)
        (at / name).write_text(text)
    return at


def test_a_folder_is_its_names_modes_and_contents(tmp_path: Path) -> None:
    files = {"a": "1", "b/c": "2"}
    first, same = folder(tmp_path / "one", files), folder(tmp_path / "same", files)
    assert cache.content(first) == cache.content(same)
    (same / "a").chmod(0o755)
    other = folder(tmp_path / "other", {"a": "1", "b/d": "2"})
    assert len({cache.content(first), cache.content(same), cache.content(other)}) == 3


def test_what_fails_half_way_leaves_no_entry(tmp_path: Path) -> None:
    entry = tmp_path / "entry"
    with pytest.raises(ValueError, match="half-way"), cache.making(entry, print) as draft:
        assert draft
        (draft / "file").write_text("half")
        raise ValueError("half-way")
    assert not entry.exists()
    with cache.making(entry, print) as draft:
        assert draft
        assert list(draft.iterdir()) == []
        (draft / "file").write_text("whole")
    assert (entry / "file").read_text() == "whole"
    with cache.making(entry, print) as draft:
        assert draft is None
