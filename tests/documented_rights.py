"""Permissions in Kubernetes that the Roles on a page of the documentation grant."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

import yaml

from bootstrap.kube.rights import Rule
from bootstrap.settings import ROOT


def documented(page: str, name: str) -> list[Rule]:
    """Returns the rules of the Role, or the ClusterRole, with that name on a page of docs/."""
    blocks = re.findall(r"```yaml\n(apiVersion.+?)```", (ROOT / "docs" / page).read_text(), re.DOTALL)
    documents = [document for block in blocks for document in yaml.safe_load_all(block)]
    (role,) = [document for document in documents if document["metadata"]["name"] == name]
    return rules_of(role)


def rules_of(role: Mapping[str, Any]) -> list[Rule]:
    """Returns the rules of a Role, or a ClusterRole, for each group and resource."""
    return [
        Rule(group, resource, tuple(rule["verbs"]))
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    ]


def each(rules: Iterable[Rule]) -> set[tuple[str, str, str]]:
    """Returns each permission separately: group, resource, verb."""
    return {(rule.group, rule.resource, verb) for rule in rules for verb in rule.verbs}
