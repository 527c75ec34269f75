"""Tests what is read of a registry that somebody hostile may write to."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import cast

import pytest

from bootstrap.bundle import layout
from bootstrap.bundle.version import this_version
from bootstrap.errors import NotMirrored
from bootstrap.registry.address import Address
from bootstrap.registry.mirrored import listed
from bootstrap.registry.oras import Oras

DIGEST = "sha256:" + "0" * 64


@dataclass(frozen=True)
class Answers:
    """A registry with these manifests, in the order in which they are asked for, and no configuration."""

    texts: list[str]
    address: Address = field(default_factory=lambda: Address("registry.test"))

    def manifest(self, repository: str, reference: str) -> bytes:
        return self.texts.pop(0).encode()


@pytest.mark.parametrize(
    "config",
    [
        f'{{"mediaType": "{layout.CONFIG}", "size": {size}}}'
        for size in ("1e999", "-1", '"x"', "null", str(2**40))
    ]
    + ['{"mediaType": "text/plain", "size": 1}', "[]", '"x"'],
)
def test_no_configuration_is_fetched_that_is_too_large_or_none(config: str) -> None:
    whole = json.dumps({"manifests": [{"artifactType": layout.KIND, "digest": DIGEST}]})
    registry = Answers([whole, f'{{"config": {config}}}'])
    with pytest.raises(NotMirrored, match="no bundle of Rayside's"):
        listed(cast(Oras, registry), this_version(), "linux/amd64")


@pytest.mark.parametrize("digest", ["sha256:../../x", "latest", 7, None])
def test_what_is_no_digest_is_not_asked_for(digest: object) -> None:
    whole = json.dumps({"manifests": [{"artifactType": layout.KIND, "digest": digest}]})
    with pytest.raises(NotMirrored, match="no bundle of Rayside's"):
        listed(cast(Oras, Answers([whole])), this_version(), "linux/amd64")
