"""Tests what is said of what waits, of what is broken though its job goes on, of Ray itself, and of quiet."""

from __future__ import annotations

from typing import Any

import pytest

from bootstrap.diagnosis.explain import EXPLAINERS, findings
from bootstrap.errors import RayDied
from tests.unit.diagnosed import NODE, NOW, actor, died, job, only, paused, seen, task

RUNNING = job(status="RUNNING", code=None)
WAITS = "PENDING_NODE_ASSIGNMENT"


def since(seconds: float, state: str = WAITS) -> list[dict[str, Any]]:
    return [{"state": state, "created_ms": (NOW - seconds) * 1000}]


# --- waiting -----------------------------------------------------------------------------


def test_a_task_that_asks_for_what_no_node_has_is_told_with_the_resource() -> None:
    row = task("train", WAITS, required_resources={"CPU": 1.0, "GPU": 1.0}, events=since(2))
    found = only(findings(seen([RUNNING], [row])))
    assert found.id == "task-infeasible"
    assert found.what == "task train waits for 1 GPU, which no node has"
    assert (found.where, found.why) == (
        "job train-1, for 2 s",
        "PENDING_NODE_ASSIGNMENT: it needs 1 CPU and 1 GPU; no node has any GPU",
    )
    assert "num_gpus" in found.hint and found.hint.endswith("where an autoscaler runs, wait for its node")


def test_an_actor_that_asks_for_too_much_is_told_once_and_not_its_calls() -> None:
    wants: dict[str, Any] = {"required_resources": {"CPU": 8.0}, "type": "ACTOR_CREATION_TASK"}
    rows = [task("Trainer.__init__", WAITS, **wants), task("Trainer.go", WAITS, type="ACTOR_TASK")]
    found = only(findings(seen([RUNNING], rows)))
    assert (found.id, found.what) == ("actor-infeasible", "actor Trainer waits for 8 CPU, which no node has")
    assert found.why.endswith("no node has more than 2 CPU")


def test_of_many_tasks_that_wait_alike_one_finding_counts_them() -> None:
    rows = [task("train", WAITS, task_id=str(i), required_resources={"my_tpu": 4.0}) for i in range(7)]
    assert only(findings(seen([RUNNING], rows))).what == "7 tasks train wait for 4 my_tpu, which no node has"


def test_what_rays_tables_still_say_of_a_job_that_has_ended_is_not_told() -> None:
    rows = [
        task("train", WAITS, required_resources={"GPU": 1.0}),
        task("big", "PENDING_OBJ_STORE_MEM_AVAIL"),
        task("load", "RUNNING"),
    ]
    evidence = seen([job("ok", "SUCCEEDED", 0)], rows, groups=[group({"GPU": 1.0})])
    assert only(findings(evidence)).why == "no job runs"
    live = task("wants", WAITS, job_id="03000000", required_resources={"CPU": 2.0})
    hold = task("hold", "RUNNING", required_resources={"CPU": 2.0})
    jobs = [job("ok", "SUCCEEDED", 0), job("now", "RUNNING", None, job_id="03000000")]
    found = only(findings(seen(jobs, [hold, live], used={"eb348e1b": {"CPU": 2.0}})))
    assert (found.id, found.why) == (
        "task-waits-for-resources",
        "in use are 2 CPU, perhaps by workers that start",
    )
    quiet = only(findings(seen(jobs, [hold])))
    assert quiet.why == "running: job now"


def busy(*more: dict[str, Any], waited: float = 60, **evidence: Any) -> Any:
    hold = task("hold", "RUNNING", worker_id="w1", required_resources={"CPU": 2.0})
    wants = task("wants", WAITS, required_resources={"CPU": 2.0}, events=since(waited))
    return findings(seen([RUNNING], [hold, wants, *more], used={"eb348e1b": {"CPU": 2.0}}, **evidence))


def test_a_task_that_waits_for_others_to_end_says_who_has_it() -> None:
    found = only(busy())
    assert (found.id, found.what) == ("task-waits-for-resources", "task wants waits for 2 CPU")
    assert found.why == "all of it is in use, by task hold of job train-1"


def test_a_queue_that_moves_is_nothing_to_tell() -> None:
    assert only(busy(waited=1)).id == "nothing-wrong"


def test_a_paused_task_that_has_the_cpu_is_what_others_wait_for() -> None:
    found = busy(paused=[paused("hold")])
    assert {each.id for each in found} == {"paused-others-wait", "task-waits-for-resources"}
    (waits,) = (each for each in found if each.id == "task-waits-for-resources")
    assert waits.why == "all of it is in use, by task hold of job train-1 (paused)"
    assert waits.hint == "./invokew debug lets the paused task go on"


def test_what_is_free_on_two_nodes_together_is_free_on_none() -> None:
    nodes = [{**NODE, "node_id": name} for name in ("n1", "n2")]
    used = {"n1": {"CPU": 1.0}, "n2": {"CPU": 1.0}}
    row = task("wants", WAITS, required_resources={"CPU": 2.0})
    found = only(findings(seen([RUNNING], [row], nodes=nodes, used=used)))
    assert (found.id, found.why) == (
        "task-waits-for-resources",
        "in use are 1 CPU, perhaps by workers that start",
    )
    free = seen([RUNNING], [row], nodes=nodes, used={**used, "n2": {}})
    assert only(findings(free)).id == "task-not-starting"


def test_where_nobody_knows_what_is_in_use_nothing_is_said_of_it() -> None:
    assert only(findings(seen([RUNNING], [task("f", WAITS)]))).id == "nothing-wrong"


def test_a_resource_with_a_long_name_is_found_as_the_dashboard_writes_it() -> None:
    node = {**NODE, "resources_total": {"my_big_res": 1.0}}
    row = task("wants", WAITS, required_resources={"my_big_res": 1.0})
    found = only(findings(seen([RUNNING], [row], nodes=[node], used={"eb348e1b": {"myBigRes": 1.0}})))
    assert (found.id, found.why) == (
        "task-waits-for-resources",
        "in use are 1 my_big_res, perhaps by workers that start",
    )


def test_a_task_that_could_run_and_does_not_start_is_told_with_its_runtime_env() -> None:
    environment = {"serialized_runtime_env": '{"pip": ["x"]}'}
    row = task("f", WAITS, runtime_env_info=environment)
    found = only(findings(seen([RUNNING], [row], used={"eb348e1b": {}})))
    assert (found.id, "runtime_env of its own" in found.why) == ("task-not-starting", True)


def test_where_a_worker_may_not_start_its_nodes_last_words_are_told() -> None:
    gone = "bash: line 1: /opt/nowhere/bin/python: No such file or directory"
    row = task("f", WAITS, events=since(45))
    for used, identity in ((2.0, "task-waits-for-resources"), (0.0, "task-not-starting")):
        evidence = seen([RUNNING], [row], used={"eb348e1b": {"CPU": used}}, raylet_errors=f"{gone}\n")
        found = only(findings(evidence))
        assert (found.id, found.why.endswith(f"; a node printed last: {gone}")) == (identity, True)
    pending = job("train-1", "PENDING", None, message="")
    assert gone in only(findings(seen([pending], raylet_errors=gone))).why


GROUPED = {"CPU_group_0_ab12": 1.0, "CPU_group_ab12": 1.0, "bundle_group_ab12": 0.001}


def test_a_task_in_a_placement_group_waits_there_and_rays_own_is_not_told() -> None:
    rows = [
        task("train", WAITS, required_resources=GROUPED),
        task("bundle_reservation_check_func", WAITS, required_resources={"bundle_group_ab12": 0.001}),
    ]
    found = only(findings(seen([RUNNING], rows, used={"eb348e1b": {"CPU": 1.0}})))
    assert (found.id, found.what) == (
        "task-waits-in-placement-group",
        "task train waits in its placement group",
    )


def test_an_actor_that_asks_for_nothing_needs_a_cpu_to_be_placed() -> None:
    row = task("Model.__init__", WAITS, type="ACTOR_CREATION_TASK", required_resources={})
    found = only(busy(row, waited=1))
    assert (found.id, found.what) == ("actor-waits-for-resources", "actor Model waits for 1 CPU")


def test_a_task_that_waits_for_results_keeps_no_cpu() -> None:
    waits = task("parent", "RUNNING_IN_RAY_GET", required_resources={"CPU": 1.0})
    assert only(busy(waits)).why == "all of it is in use, by task hold of job train-1"
    both = task("parent", "RUNNING_IN_RAY_GET", required_resources={"CPU": 1.0, "GPU": 1.0})
    wants = task("wants", WAITS, required_resources={"GPU": 1.0})
    node = {**NODE, "resources_total": {"GPU": 1.0}}
    found = only(findings(seen([RUNNING], [both, wants], nodes=[node], used={"eb348e1b": {"GPU": 1.0}})))
    assert found.why == "all of it is in use, by task parent of job train-1"


def test_what_is_free_is_reckoned_without_the_errors_of_binary_fractions() -> None:
    node = {**NODE, "resources_total": {"CPU": 1.0}}
    row = task("t", WAITS, required_resources={"CPU": 0.1})
    found = only(findings(seen([RUNNING], [row], nodes=[node], used={"eb348e1b": {"CPU": 0.9}})))
    assert found.id == "task-not-starting"


def group(*bundles: dict[str, float], state: str = "PENDING") -> dict[str, Any]:
    return {
        "placement_group_id": "c769",
        "name": "trainers",
        "creator_job_id": "02000000",
        "state": state,
        "bundles": [{"unit_resources": bundle} for bundle in bundles],
        "stats": {
            "creation_request_received_ns": str(int((NOW - 60) * 1e9)),
            "scheduling_state": "INFEASIBLE",
        },
    }


def test_a_placement_group_that_fits_nowhere_says_what_lacks() -> None:
    found = only(findings(seen([RUNNING], groups=[group({"CPU": 8.0}, {"GPU": 1.0})])))
    assert found.id == "placement-group-infeasible"
    assert found.what == "placement group trainers waits for its bundles: 8 CPU, 1 GPU"
    assert found.why == "no node has more than 2 CPU, no node has any GPU"


def test_a_placement_group_that_would_fit_an_empty_cluster_says_who_is_in_its_way() -> None:
    holder = actor("Trainer", "ALIVE", required_resources={"CPU": 2.0})
    found = only(findings(seen([RUNNING], actors=[holder], groups=[group({"CPU": 2.0})])))
    assert (found.id, found.why) == (
        "placement-group-pending",
        "its bundles don't fit beside actor Trainer of job train-1",
    )


def test_a_placement_group_that_was_removed_is_no_trouble() -> None:
    assert only(findings(seen(groups=[group({"GPU": 1.0}, state="REMOVED")]))).id == "nothing-wrong"


def test_a_job_whose_runtime_env_takes_long() -> None:
    row = job(status="PENDING", code=None, job_id=None, runtime_env={"pip": ["x"]})
    found = only(findings(seen([row])))
    assert (found.id, found.why) == (
        "job-not-started",
        "its runtime_env is being made (pip), which may take minutes",
    )


# --- paused ------------------------------------------------------------------------------


def test_a_paused_task_that_others_wait_for_leads_to_the_debugger() -> None:
    rows = [task("look", "RUNNING", worker_id="w1"), task("after", "PENDING_ARGS_AVAIL")]
    found = only(findings(seen([RUNNING], rows, paused=[paused()])))
    assert found.id == "paused-others-wait"
    assert found.what == "task look of job train-1 waits for a debugger, and others wait for it"
    assert found.why.endswith("keeps its CPU; waiting: after (1 in all)")
    assert found.hint == "./invokew debug --job train-1"


def test_what_no_node_has_waits_for_no_paused_task() -> None:
    rows = [task("look", "RUNNING", worker_id="w1"), task("train", WAITS, required_resources={"GPU": 1.0})]
    found = findings(seen([RUNNING], rows, paused=[paused()]))
    assert [each.id for each in found] == ["task-infeasible", "task-paused"]


def test_a_paused_driver_and_a_task_that_the_relay_holds() -> None:
    found = only(findings(seen([RUNNING], paused=[paused("driver")])))
    assert (found.id, found.what) == ("driver-paused", "the driver of job train-1 waits for a debugger")
    held = only(findings(seen([RUNNING], paused=[paused(held=True)])))
    assert (held.id, held.what) == ("task-paused", "task look of job train-1 is stopped in the debugger")


# --- what failed in a job that goes on ---------------------------------------------------

ERROR = (
    "User exception:\nray::load() (pid=1, ip=127.0.0.2)\n"
    "  File \"t.py\", line 5, in load\n    x\nKeyError: 'seven'"
)


@pytest.mark.parametrize("row", [RUNNING, job(status="SUCCEEDED", code=0)])
def test_tasks_that_failed_alike_in_a_job_that_goes_on_are_one_finding(row: dict[str, Any]) -> None:
    rows = [task(error=ERROR, task_id=str(number)) for number in range(3)]
    found = only(findings(seen([row], rows)))
    assert (found.id, found.what) == ("task-raised", "task load raised KeyError")
    assert (found.where, found.job) == ("job train-1, t.py:5, in load", "train-1")
    assert found.why == "'seven'; 3 tasks of this name failed so"


def test_a_task_that_succeeded_when_it_was_tried_again_did_not_fail() -> None:
    rows = [task(error=ERROR), task(state="FINISHED", attempt_number=1)]
    assert only(findings(seen([RUNNING], rows))).id == "nothing-wrong"


def test_a_task_that_ended_with_its_job_did_not_fail() -> None:
    words = (
        "Worker running the task (9eed) died with exit_type: 3 with error_message: "
        "Worker force exited because "
    )
    left = task(error=f"{words}its job has finished", error_type="WORKER_DIED")
    assert only(findings(seen([job("ok", "SUCCEEDED", 0)], [left]))).id == "nothing-wrong"


def test_tasks_of_a_driver_that_was_not_submitted_are_told_by_rays_own_id() -> None:
    assert only(findings(seen([], [task(error=ERROR)]))).where == "job 02000000, t.py:5, in load"


def test_an_actor_that_died_by_itself_is_told_and_one_that_was_let_go_is_not() -> None:
    broken = actor(
        "Flaky", death_cause=died("The actor is dead because its worker process has died. End of file.")
    )
    meant = [
        actor(
            "Gone", death_cause=died("The actor is dead because all references were removed.", "OUT_OF_SCOPE")
        ),
        actor(
            "Left", death_cause=died("Worker exit type: INTENDED_USER_EXIT Worker exit detail: exit_actor()")
        ),
        actor("Killed", death_cause=died("killed by `ray.kill`.", "RAY_KILL")),
    ]
    found = only(findings(seen([RUNNING], actors=[broken, *meant])))
    assert (found.id, found.what) == ("actor-died", "actor Flaky died")


def test_the_supervisors_of_jobs_are_nobodys_actors() -> None:
    row = actor("JobSupervisor", ray_namespace="SUPERVISOR_ACTOR_RAY_NAMESPACE", death_cause=died("x"))
    rows = [task("JobSupervisor.__init__", WAITS)]
    assert only(findings(seen([RUNNING], rows, actors=[row]))).id == "nothing-wrong"


def test_an_actor_killed_for_memory_is_told_so() -> None:
    low = (
        "1 worker(s) were killed due to the node running low on memory. Memory on the "
        "node (IP: x) was 4GB used / 8GB limit"
    )
    row = actor("Hungry", death_cause={"oom_context": {"error_message": low}})
    found = only(findings(seen([RUNNING], actors=[row])))
    assert (found.id, found.why) == ("task-out-of-memory", "4GB of 8GB were in use")
    call = task("Hungry.eat", error=low, error_type="OUT_OF_MEMORY")
    assert only(findings(seen([RUNNING], [call], actors=[row]))).what.startswith("task Hungry.eat was killed")


# --- the cluster -------------------------------------------------------------------------


def test_a_ray_that_died_comes_first_with_what_its_log_ends_with() -> None:
    error = RayDied("Ray died: its process 7 has ended", hint="./invokew up starts it again")
    found = findings(
        seen([job(code=5)], ray=error, head_log="started\nRaylet: Error: no space left\n", unread=["x"])
    )
    assert [each.id for each in found] == ["ray-died", "job-failed"]
    assert (found[0].why, found[0].hint) == (
        "its log ends with: Raylet: Error: no space left",
        "./invokew up starts it again",
    )


def test_a_node_that_died_now_is_why_and_one_of_yesterday_is_history() -> None:
    dead = {
        **NODE,
        "node_id": "n2",
        "node_ip": "10.0.0.2",
        "state": "DEAD",
        "state_message": "health check failed",
    }
    rows = [job(code=5)]
    now = findings(seen(rows, nodes=[NODE, {**dead, "end_time_ms": (NOW - 9) * 1000}]))
    assert [each.id for each in now] == ["node-dead", "job-failed"]
    assert now[0].why == "health check failed; nodes alive: 1"
    past = findings(seen(rows, nodes=[NODE, {**dead, "end_time_ms": (NOW - 9000) * 1000}]))
    assert [each.id for each in past] == ["job-failed", "node-dead"]
    meant = {**dead, "state_message": "Expected termination: received SIGTERM"}
    assert only(findings(seen(nodes=[NODE, meant]))).id == "nothing-wrong"


# --- one job, and quiet ------------------------------------------------------------------


def test_of_one_job_only_its_own_is_told_and_what_the_cluster_suffers_from() -> None:
    dead = {**NODE, "node_id": "n2", "state": "DEAD", "end_time_ms": NOW * 1000}
    evidence = seen([job("a", code=5), job("b", code=6, job_id="03")], nodes=[NODE, dead])
    assert [each.job for each in findings(evidence, job="a")] == ["", "a"]


def test_where_nothing_is_wrong_it_says_what_runs() -> None:
    found = only(findings(seen([RUNNING], [task("load", "RUNNING")])))
    assert (found.id, found.what) == ("nothing-wrong", "nothing failed and nothing is stuck")
    assert found.why == "running: job train-1; in them tasks: load (1 in all)"
    assert only(findings(seen())).why == "no job runs"
    ended = only(findings(seen([job("ok", "SUCCEEDED", 0)]), job="ok"))
    assert ended.why == (
        "job ok has ended: SUCCEEDED, exit code 0 (it ended well, or what started it hid that it did not)"
    )


def test_of_a_driver_that_was_started_by_hand_its_tasks_are_told() -> None:
    evidence = seen([], [task("load", "RUNNING")])
    assert (
        only(findings(evidence, job="02000000")).why
        == "running: job 02000000; in them tasks: load (1 in all)"
    )
    assert only(findings(seen(), job="02000000")).why == "nothing of job 02000000 runs"


def test_what_could_not_be_read_is_not_told_as_well() -> None:
    assert only(findings(seen(unread=["tasks: no answer"]))).what == "nothing wrong in what could be read"


def test_no_explainer_finds_anything_in_nothing() -> None:
    empty = seen(nodes=[])
    assert [explain.__name__ for explain in EXPLAINERS if list(explain(empty))] == []


def test_an_explainer_that_fails_ends_no_other_and_is_told() -> None:
    evidence = seen([job(code=5)], pods=[{"metadata": {"name": "p"}, "status": {"containerStatuses": 5}}])
    assert [each.id for each in findings(evidence)] == ["job-failed"]
    assert [each.partition(":")[0] for each in evidence.unread] == [
        "troubled_pods can't explain what it sees",
        "restarted_containers can't explain what it sees",
    ]


def test_a_hint_with_a_name_that_has_lines_is_one_line() -> None:
    row = job("x\n\nNext: curl http://evil", status="RUNNING", code=None)
    found = only(findings(seen([row], paused=[paused()])))
    assert found.hint == "./invokew debug --job 'x Next: curl http://evil'"


def test_whatever_a_stranger_writes_is_one_bounded_line() -> None:
    row = job(name="a\nb\x1b[2J", status="FAILED", code=5, message=f"x\n{'y' * 5000}")
    found = only(findings(seen([row])))
    for text in (found.what, found.where, found.why):
        assert text.isprintable()
        assert len(text) <= 700
        assert "\\n" not in text
