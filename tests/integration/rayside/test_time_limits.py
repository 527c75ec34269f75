"""Tests that Ray's libraries have no time limit that nobody has looked at: a new one fails here."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from bootstrap.settings import ROOT
from rayside.ray.debug import RAISED, SOURCES
from tests.targets import local_target

LIBRARIES = ("air", "dag", "data", "experimental", "llm", "serve", "train", "tune", "util")
WORDS = "TIMEOUT|DEADLINE|DURATION|GRACE|CLEANUP|EXPIRE|WAIT|_TTL|HARD_STOP|MAX_\\w*TIME"
# The names of variables, wherever they stand, and every other name by which a variable is read.
NAMES = re.compile(rf"""["']([A-Z][A-Z0-9]*_\w*(?i:{WORDS})\w*)["']""")
READ = re.compile(rf"""(?:getenv\(|environ\.get\(|environ\[|env_\w+\()\s*["'](\w*(?i:{WORDS})\w*)["']""")
# A stopped task does not break these, or they have no limit unless their user sets one.
HARMLESS = {
    # How often something is looked at, and how long what is idle is kept.
    "RAYLLM_MODEL_RESPONSE_BATCH_TIMEOUT_MS",
    "RAY_CGRAPH_read_iteration_timeout_s",
    "RAY_CLIENT_MAX_BLOCKING_OPERATION_TIME_S",
    "RAY_DATA_AUTOSCALING_REQUEST_EXPIRE_TIME_S",
    "RAY_SERVE_COMPACTION_MAX_BACKOFF_TIME_S",
    "RAY_SERVE_COMPACTION_TIMEOUT_S",
    "RAY_SERVE_HTTP_KEEP_ALIVE_TIMEOUT_S",
    "RAY_SERVE_LLM_KV_TOKEN_STAGING_TTL_S",
    "RAY_SERVE_MULTIPLEXED_MODEL_ID_MATCHING_TIMEOUT_S",
    "RAY_SERVE_QUEUE_LENGTH_CACHE_TIMEOUT_S",
    "TUNE_RESULT_BUFFER_MAX_TIME_S",
    # Only a warning comes of it.
    "RAY_DATA_MIN_HASH_SHUFFLE_AGGREGATOR_WAIT_TIME_IN_S",
    # They wait for Ray's own processes and threads, in which no user's code stops.
    "RAY_CLIENT_INITIAL_CONNECTION_TIMEOUT_S",
    "RAY_CLIENT_MAX_CONNECTION_TIMEOUT_S",
    "RAY_CLIENT_RECONNECT_GRACE_PERIOD",
    "RAY_CLIENT_SERVER_CHECK_CHANNEL_TIMEOUT_S",
    "RAY_ON_SPARK_BACKGROUND_JOB_STARTUP_WAIT",
    "RAY_SERVE_HAPROXY_STARTUP_TIMEOUT_S",
    "RAY_SERVE_HAPROXY_TIMEOUT_CONNECT_S",
    "RAY_SERVE_MAX_QUEUE_LENGTH_RESPONSE_DEADLINE_S",
    "RAY_SERVE_MIN_HANDLE_METRICS_TIMEOUT_S",
    "RAY_SERVE_PROXY_HEALTH_CHECK_TIMEOUT_S",
    "RAY_SERVE_PROXY_READY_CHECK_TIMEOUT_S",
    "RAY_SERVE_QUEUE_LENGTH_RESPONSE_DEADLINE_S",
    "RAY_SERVE_RECORD_AUTOSCALING_STATS_TIMEOUT_S",
    "TIMEOUT_FOR_SPECIFIC_SERVER_S",
    # They bound how long an end may take that somebody has asked for.
    "JAX_DISTRIBUTED_SHUTDOWN_TIMEOUT_S",
    "RAY_SERVE_HAPROXY_HARD_STOP_AFTER_S",
    "RAY_SERVE_PROXY_GRACEFUL_SHUTDOWN_TIMEOUT_S",
    "RAY_SERVE_SHUTDOWN_TIER_TIMEOUT_S",
    "TORCH_PROCESS_GROUP_SHUTDOWN_TIMEOUT_S",
    # There is no limit unless one is set.
    "RAY_DATA_DEFAULT_WAIT_FOR_MIN_ACTORS_S",
    "RAY_SERVE_HAPROXY_INGRESS_TIMEOUT_SERVER_S",
    "RAY_SERVE_HAPROXY_TIMEOUT_SERVER_S",
    "RAY_SERVE_KV_TIMEOUT_S",
    "RAY_TRAIN_COLLECTIVE_TIMEOUT_S",
    "SERVE_REQUEST_PROCESSING_TIMEOUT_S",
    # These are no variables, or no times.
    "AUTOSCALING_REQUESTS_EXPIRE_TIME_S",
    "AUTOSCALING_REQUESTS_GET_TIMEOUT_S",
    "DEFAULT_MULTIPLEX_DOWNLOAD_TIMEOUT_S",
    "LISTEN_FOR_CHANGE_REQUEST_TIMEOUT_S_LOWER_BOUND",
    "LISTEN_FOR_CHANGE_REQUEST_TIMEOUT_S_UPPER_BOUND",
    "NCCL_BLOCKING_WAIT",
    "RUNNING_IN_RAY_WAIT",
    "TORCH_NCCL_BLOCKING_WAIT",
    "VALIDATION_TIMEOUT",
}


@pytest.fixture
def ray() -> Path:
    """Returns the folder of the package `ray`."""
    return next(local_target().environment.folder.glob("lib/python3*/site-packages/ray"))


def test_every_time_limit_of_rays_libraries_is_raised_or_known_as_harmless(ray: Path) -> None:
    found: set[str] = set()
    for library in LIBRARIES:
        for file in (ray / library).rglob("*.py"):
            text = file.read_text()
            if not {"tests", "examples", "benchmarks"} & set(file.parts):
                found |= {*NAMES.findall(text), *READ.findall(text)}
    assert found - RAISED.keys() - HARMLESS == set()
    assert found >= HARMLESS, "Ray has it no more"


def test_each_limit_that_is_raised_is_where_the_docs_say(ray: Path) -> None:
    docs = (ROOT / "docs" / "internals" / "hook.md").read_text()
    rows = re.findall(r"^\| `(\S+\.py)` \| (.*) \|$", docs, re.MULTILINE)
    told = [(name, file) for file, limits in rows for name in re.findall(r"`(\w+)` \([\d,]+", limits)]
    assert set(told) == {(name, file) for file, names in SOURCES.items() for name in names}
    for name, file in told:
        assert f'"{name}"' in (ray / file).read_text(), file
