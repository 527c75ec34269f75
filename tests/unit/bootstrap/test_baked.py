"""Tests the making of the node's image: which command removes what a killed one left of it."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import pytest

from bootstrap import docker_engine
from bootstrap.delivery.baked import NodeImage
from rayside.system.lock import alone
from rayside.system.shell import Shell


def test_down_of_one_leaves_the_container_in_which_another_makes_the_image(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    removed: list[str] = []
    client = SimpleNamespace(api=SimpleNamespace(remove_container=lambda name, **_: removed.append(name)))
    monkeypatch.setattr(docker_engine, "connected", lambda *_: nullcontext(client))
    image = NodeImage(Shell(), tmp_path, "plain:1", ("ray:1",), (), needs=())
    with alone(image._guard, lambda: None):
        image.undo(print)
        assert removed == []
    image.undo(print)
    assert removed == [f"rayside-bake-{image.reference.removeprefix('rayside/node:')}"]
