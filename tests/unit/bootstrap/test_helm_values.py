"""Tests the values for KubeRay's charts: each image by its digest, in the form that the charts write."""

from __future__ import annotations

from pathlib import Path

import yaml

from bootstrap.registry import helm_values
from bootstrap.registry.address import parse
from tests.unit.bootstrap.test_bundle_manifest import BUNDLE


def test_each_image_is_pinned_by_its_digest(tmp_path: Path) -> None:
    files = helm_values.write(tmp_path / "values", BUNDLE, parse("registry.test/team"), has_login=False)
    for file, name in zip(files, ("operator", "ray"), strict=True):
        image = yaml.safe_load(file.read_text())["image"]
        repository = BUNDLE.image(name).reference.rpartition(":")[0]
        # So it is in the templates of both charts.
        assert "{repository}:{tag}".format(**image) == (
            f"registry.test/team/{repository}@sha256:{BUNDLE.image(name).manifest.digest}"
        )
