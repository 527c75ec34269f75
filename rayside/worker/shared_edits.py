"""Edits for a job's later workers, in Ray's key-value store, and the list of edited files in its metadata.

A worker that applied an edit writes both. The submitter reads the list, to see which files ran edited.
This relies on Ray's internal key-value store, and on the format of its job records (Ray 2.60), as driver.py.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from contextlib import suppress

from . import edits
from .handshake import EDITS

_NAMESPACE, _PATIENCE = b"rayside", 5
# Limit in bytes of all shared sources.
LONGEST = 4 * 1024 * 1024


def publish(texts: Mapping[str, str], names: Mapping[str, str]) -> str:
    """Adds edited sources, by path in the workers, for the job's later workers; returns why it can't.

    `names` has the names of the files in the job's metadata, by path.
    """
    from ray.experimental.internal_kv import _internal_kv_put

    shared = json.dumps({**_shared(), **texts}).encode()
    if len(shared) > LONGEST:
        return f"edits of {len(shared):,} bytes are too long for later workers: --here-only does without"
    _internal_kv_put(_key(), shared, overwrite=True, namespace=_NAMESPACE)
    with suppress(Exception):  # A program of `rayside run` or a notebook has no submitted job.
        _list({names[path]: hashlib.sha256(text.encode()).hexdigest() for path, text in texts.items()})
    return ""


def read() -> None:
    """Schedules the edits of this worker's job for its first task; never raises."""
    with suppress(Exception):
        edits.apply_later(_shared())


def _shared() -> dict[str, str]:
    from ray.experimental.internal_kv import _internal_kv_get

    value = _internal_kv_get(_key(), namespace=_NAMESPACE)
    return dict(json.loads(value)) if value else {}


def _key() -> bytes:
    import ray

    return f"{ray.get_runtime_context().get_job_id()}/edits".encode()


def _list(hashes: Mapping[str, str]) -> None:
    from ray._private.ray_constants import KV_NAMESPACE_JOB
    from ray._private.worker import global_worker
    from ray.dashboard.modules.job.common import JobInfoStorageClient

    job = global_worker.core_worker.get_job_config().metadata["job_submission_id"]
    key = JobInfoStorageClient.JOB_DATA_KEY.format(job_id=job).encode()
    gcs = global_worker.gcs_client
    info = json.loads(gcs.internal_kv_get(key, namespace=KV_NAMESPACE_JOB, timeout=_PATIENCE))
    metadata = info.get("metadata") or {}
    listed = {**json.loads(metadata.get(EDITS) or "{}"), **hashes}
    info["metadata"] = {**metadata, EDITS: json.dumps(listed)}
    # Ray's job manager writes the record only when the job's state changes.
    if info["status"] == "RUNNING":
        value = json.dumps(info).encode()
        gcs.internal_kv_put(key, value, overwrite=True, namespace=KV_NAMESPACE_JOB, timeout=_PATIENCE)
