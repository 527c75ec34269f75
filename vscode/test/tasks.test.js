"use strict";

const assert = require("node:assert/strict");
const test = require("node:test");
const { ago, count, countText, join } = require("../src/tasks");

const NOON = Date.parse("2026-11-21T12:00:00Z");

const job = (id, more = {}) => ({
  type: "SUBMISSION",
  job_id: id,
  submission_id: `run-${id}`,
  status: "RUNNING",
  entrypoint: `python ${id}.py`,
  start_time: 1000 * Number(id),
  driver_info: { pid: String(9000 + Number(id)) },
  ...more,
});
const paused = (id, task, jobId = "01", more = {}) => ({
  worker_id: id,
  node_ip: "10.0.0.1",
  pid: 100,
  job_id: jobId,
  task,
  since: "2026-11-21T12:00:01Z",
  held: false,
  ...more,
});
const names = (jobs) => jobs.map((one) => [one.entrypoint, one.tasks.map((task) => task.name)]);

test("waiting and held tasks lie below their jobs, in the relay's order", () => {
  const jobs = join([job("01")], [paused("w1", "a"), paused("w2", "b", "01", { held: true })]);
  assert.deepEqual(names(jobs), [["python 01.py", ["a", "b"]]]);
  assert.deepEqual(jobs[0].tasks[0], {
    key: "task w1",
    workerId: "w1",
    name: "a",
    nodeIp: "10.0.0.1",
    pid: 100,
    jobId: "01",
    since: "2026-11-21T12:00:01Z",
    held: false,
  });
  assert.equal(jobs[0].tasks[1].held, true);
  assert.equal(count(jobs), 2);
});

test("a task that Ray can't name yet is listed all the same", () => {
  const [found] = join([], [paused("w", "", "")]);
  assert.equal(found.entrypoint, "Job not known yet");
  assert.deepEqual([found.tasks[0].name, found.tasks[0].jobId], ["", ""]);
});

test("each task of a threaded actor has a key of its own", () => {
  const [{ tasks }] = join([job("01")], [paused("w", "t2"), paused("w", "t3"), paused("v", "t4")]);
  assert.deepEqual(tasks.map((task) => task.key), ["task w", "task w 1", "task v"]);
});

test("a task of a job that was not submitted is below a row for it", () => {
  assert.deepEqual(names(join([], [paused("w", "driver", "02000000")])), [["job 02000000", ["driver"]]]);
});

test("running jobs come first, the newest first, then the last few that ended", () => {
  const ended = [1, 2, 3, 4, 5, 6, 7].map((n) => job(`0${n}`, { status: "SUCCEEDED" }));
  const jobs = join([...ended, job("00"), job("09", { status: "PENDING", job_id: null })], []);
  assert.deepEqual(
    jobs.map((one) => one.entrypoint.slice(7, 9)),
    ["09", "00", "07", "06", "05", "04", "03"],
  );
  assert.deepEqual(jobs.map((one) => one.running), [true, true, false, false, false, false, false]);
});

test("an ended job whose task still stands is listed with the running ones", () => {
  const jobs = join([job("01", { status: "STOPPED" }), job("02")], [paused("w", "a")]);
  assert.deepEqual(names(jobs), [["python 02.py", []], ["python 01.py", ["a"]]]);
});

test("how long ago, by the minute", () => {
  const since = new Date(NOON).toISOString();
  const minute = 60_000;
  assert.equal(ago(since, NOON + 59_999), "just now");
  assert.equal(ago(since, NOON - 5_000), "just now");
  assert.equal(ago(since, NOON + minute), "1 min");
  assert.equal(ago(since, NOON + 61 * minute), "1 h 1 min");
  assert.equal(ago(since, NOON + 26 * 60 * minute), "1 d 2 h");
  assert.equal(ago("", NOON), "");
});

test("the count in words", () => {
  assert.deepEqual([0, 1, 2].map(countText), ["no task is paused", "1 task is paused", "2 tasks are paused"]);
});

const of = (user) => ({ metadata: { "rayside.user": user } });

test("where several people debug on one Ray, the user's own jobs are shown, and those that say no user", () => {
  const byHand = { runtime_env: { env_vars: { RAYSIDE_USER: "bob" } } };
  const rows = [job("01", of("anna")), job("02", of("bob")), job("03"), job("04", byHand)];
  const seen = (everyone) => join(rows, [], "anna", everyone).map((one) => [one.submissionId, one.whose]);
  assert.deepEqual(seen(false), [["run-03", ""], ["run-01", ""]]);
  assert.deepEqual(seen(true), [["run-04", "bob"], ["run-03", ""], ["run-02", "bob"], ["run-01", ""]]);
  // A Ray that is one person's has no others.
  assert.equal(join(rows, []).length, 4);
});

test("of another's job is shown what the user debugs of it", () => {
  assert.deepEqual(names(join([job("02", of("bob"))], [paused("w1", "a", "02", { held: true })], "anna")), [
    ["python 02.py", ["a"]],
  ]);
});

for (const name of [7, ["bob"], "b\nob", "\u202ebob", "b".repeat(65)]) {
  test(`what can be nobody's name is none: ${JSON.stringify(name).slice(0, 20)}`, () => {
    assert.equal(join([job("02", of(name))], [], "anna")[0].whose, "");
  });
}
