"use strict";

const assert = require("node:assert/strict");
const test = require("node:test");
const { Stops } = require("../src/stops");

const stopped = (threadId, workerId) => ({
  type: "event",
  event: "stopped",
  body: { threadId, reason: "breakpoint", ray: { workerId } },
});
const event = (name, body) => ({ type: "event", event: name, body });

test("a stop of a worker is known, another's is not", () => {
  const stops = new Stops();
  assert.equal(stops.received(stopped(1, "a")), true);
  assert.deepEqual([stops.has("a"), stops.has("b")], [true, false]);
});

for (const command of ["continue", "next", "stepIn", "stepOut", "goto"]) {
  test(`${command} lets its thread run once it is answered, and no other`, () => {
    const stops = new Stops();
    stops.received(stopped(1, "a"));
    stops.received(stopped(2, "b"));
    stops.sent({ type: "request", seq: 7, command, arguments: { threadId: 1 } });
    assert.equal(stops.has("a"), true);
    assert.equal(stops.received({ type: "response", request_seq: 7, success: true }), true);
    assert.deepEqual([stops.has("a"), stops.has("b")], [false, true]);
  });
}

test("a refused continue leaves it stopped", () => {
  const stops = new Stops();
  stops.received(stopped(1, "a"));
  stops.sent({ type: "request", seq: 7, command: "continue", arguments: { threadId: 1 } });
  assert.equal(stops.received({ type: "response", request_seq: 7, success: false }), false);
  assert.equal(stops.has("a"), true);
});

test("threads that continue or end by themselves are not stopped", () => {
  const stops = new Stops();
  stops.received(stopped(1, "a"));
  stops.received(stopped(2, "b"));
  stops.received(event("thread", { reason: "started", threadId: 1 }));
  assert.equal(stops.has("a"), true);
  stops.received(event("continued", { threadId: 1 }));
  stops.received(event("thread", { reason: "exited", threadId: 2 }));
  assert.deepEqual([stops.has("a"), stops.has("b")], [false, false]);
});

test("waiting ends with that worker's stop", async () => {
  const stops = new Stops();
  const waiting = stops.until("b", 5000);
  stops.received(stopped(1, "a"));
  stops.received(stopped(2, "b"));
  assert.equal(await waiting, true);
  assert.equal(await stops.until("a", 5000), true);
});

test("waiting ends in vain after its time, and with the session", async () => {
  const stops = new Stops();
  assert.equal(await stops.until("a", 10), false);
  const waiting = stops.until("a", 60_000);
  stops.end();
  assert.equal(await waiting, false);
});

test("a task has failed where an exception stopped its thread, until that runs", () => {
  const stops = new Stops();
  const failed = (threadId, workerId, task) => ({
    type: "event",
    event: "stopped",
    body: { threadId, reason: "exception", ray: { workerId, task } },
  });
  stops.received(stopped(1, "a"));
  assert.deepEqual([stops.failed, stops.failedThread({ workerId: "a", name: "" })], [false, undefined]);
  stops.received(failed(2, "b", "load"));
  stops.received(failed(3, "b", "save"));
  // Two calls of one threaded actor, and one whose name Ray does not know yet.
  const found = ["load", "save", "read", ""].map((name) => stops.failedThread({ workerId: "b", name }));
  assert.deepEqual([stops.failed, found], [true, [2, 3, undefined, 2]]);
  stops.received(event("continued", { threadId: 2 }));
  stops.received(event("continued", { threadId: 3 }));
  assert.deepEqual([stops.failed, stops.failedThread({ workerId: "b", name: "load" })], [false, undefined]);
});
