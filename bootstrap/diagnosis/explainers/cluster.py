"""Explains what all jobs suffer from: a Ray that does not answer, nodes that died."""

from __future__ import annotations

from collections.abc import Iterator

from bootstrap.diagnosis.evidence import Evidence
from bootstrap.diagnosis.finding import Finding, Weight, sentence

# A node that died so many seconds ago, or less, may be why something fails now.
_RECENT = 600.0


def ray_unreachable(evidence: Evidence) -> Iterator[Finding]:
    """Yields a finding where Ray does not answer, with what its head said last."""
    if evidence.ray is None:
        return
    lines = [line.strip() for line in evidence.head_log.splitlines() if line.strip()]
    errors = [line for line in lines if "ERR" in line or "Error" in line] or lines
    yield Finding(
        evidence.ray.id,
        sentence(evidence.ray.message),
        "Ray's head",
        sentence(f"its log ends with: {errors[-1]}") if errors else "it left no log",
        sentence(evidence.ray.hint),
        Weight.CLUSTER,
    )


def dead_nodes(evidence: Evidence) -> Iterator[Finding]:
    """Yields a finding for each node that died; what Ray was asked to remove is none."""
    alive = sum(node.alive for node in evidence.nodes)
    for node in evidence.nodes:
        if node.alive or "Expected termination" in node.message:
            continue
        recent = evidence.now - node.ended < _RECENT
        yield Finding(
            "node-dead",
            f"node {sentence(node.address)} of Ray died",
            f"node {sentence(node.node_id[:12])}",
            sentence(f"{node.message or 'Ray does not say why'}; nodes alive: {alive}"),
            "./invokew status shows what is left; a pod of it that died: ./invokew diagnose --pod NAME",
            Weight.CLUSTER if recent else Weight.PAST,
            at=node.ended,
        )
