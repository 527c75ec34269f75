"""Time limits of Ray's libraries that a stopped task would break: `submit --debug` makes each a day."""

from __future__ import annotations

DAY = 86_400
# By the file in Ray's package, of 2.60; docs/hook.md has their defaults. A test looks for new ones.
_SECONDS = {
    "dag/context.py": [f"RAY_CGRAPH_{what}_timeout" for what in ("submit", "get", "teardown")],
    "data/context.py": [
        "RAY_DATA_EXECUTION_NO_PROGRESS_TIMEOUT_S",
        "RAY_DATA_HASH_SHUFFLE_REDUCE_GET_TIMEOUT_S",
    ],
    "llm/_internal/serve/constants.py": [
        "RAYLLM_ENGINE_START_TIMEOUT_S",
        "RAY_SERVE_LLM_DEFAULT_HEALTH_CHECK_TIMEOUT_S",
        "RAY_SERVE_LLM_ROUTER_HTTP_TIMEOUT",
    ],
    "serve/_private/constants.py": [
        "RAY_SERVE_DEPLOYMENT_ACTOR_HEALTH_CHECK_TIMEOUT_S",
        "RAY_SERVE_HAPROXY_INGRESS_REQUEST_ROUTER_TIMEOUT_S",
        "RAY_SERVE_HAPROXY_TIMEOUT_CLIENT_S",
        "RAY_SERVE_USER_HEALTH_CHECK_PROBE_TIMEOUT_S",
    ],
    "train/constants.py": ["TRAIN_PLACEMENT_GROUP_TIMEOUT_S"],
    "train/v2/_internal/constants.py": [
        "RAY_TRAIN_NCCL_RAS_CONFIRM_DURATION_S",
        "RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S",
        "RAY_TRAIN_WORKER_HEALTH_CHECK_TIMEOUT_S",
    ],
    "tune/constants.py": ["TUNE_FORCE_TRIAL_CLEANUP_S", "TUNE_FUNCTION_THREAD_TIMEOUT_S"],
}
_MILLISECONDS = {"util/collective/collective.py": ["collective_gloo_timeout"]}

SOURCES = {**_SECONDS, **_MILLISECONDS}
RAISED = {name: f"{DAY}" for names in _SECONDS.values() for name in names}
RAISED |= {name: f"{DAY * 1000}" for names in _MILLISECONDS.values() for name in names}
