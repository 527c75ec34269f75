"use strict";

const assert = require("node:assert/strict");
const http = require("node:http");
const test = require("node:test");
const { Look } = require("../src/look");
const clusters = require("./clusters");

/** A real HTTP server with these jobs, and a relay with these answers. */
async function cluster(t, state) {
  const asked = [];
  const server = http.createServer((request, response) => {
    asked.push(request.url);
    response.writeHead(state.status ?? 200).end(JSON.stringify(state.jobs));
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  t.after(() => server.close());
  return {
    asked,
    dashboard: `http://127.0.0.1:${server.address().port}`,
    relay: await clusters.relay(t, state.relay),
  };
}

const row = (id) => ({ worker_id: id, node_ip: "n", pid: 1, job_id: "1", task: id, since: "", held: false });
const named = (jobs) => jobs.flatMap((job) => job.tasks.map((task) => task.name));

test("a look is one request to Ray, for its jobs, and one to the relay, for what is paused", async (t) => {
  const state = { jobs: [], relay: { pausedTasks: { tasks: [row("f"), row("g")], problem: "" } } };
  const there = await cluster(t, state);
  const seen = await new Look().at(there, "secret");
  assert.deepEqual([seen.state, seen.problem, named(seen.jobs)], ["seen", "", ["f", "g"]]);
  assert.deepEqual(there.asked, ["/api/jobs/"]);
  assert.deepEqual(there.relay.requests.map(({ command, arguments: given }) => [command, given]), [
    ["pausedTasks", { token: "secret" }],
  ]);
});

test("where the relay can't say what is paused, what it said last stays, with the reason", async (t) => {
  const state = { jobs: [], relay: { pausedTasks: { tasks: [row("f")], problem: "" } } };
  const there = await cluster(t, state);
  const look = new Look();
  await look.at(there, "secret");
  state.relay.pausedTasks = { tasks: [], problem: "Ray did not answer within 5 s" };
  const seen = await look.at(there, "secret");
  assert.deepEqual([seen.state, seen.problem, named(seen.jobs)], [
    "seen",
    "Ray did not answer within 5 s",
    ["f"],
  ]);
  // Another relay's tasks are not this one's.
  const gone = await look.at({ ...there, relay: { host: "127.0.0.1", port: 1 } }, "secret");
  assert.deepEqual([gone.state, gone.problem, gone.jobs], [
    "empty",
    "the debug relay at 127.0.0.1:1 is not there",
    [],
  ]);
});

test("what is wrong is the state, and it recovers", async (t) => {
  const state = { status: 500, jobs: [], relay: { pausedTasks: { tasks: [], problem: "" } } };
  const there = await cluster(t, state);
  const look = new Look();
  const seen = await look.at(there, "secret");
  assert.deepEqual([seen.state, seen.jobs, seen.cluster], ["down", [], there]);
  assert.match(seen.problem, /status 500/);
  state.status = 401;
  assert.equal((await look.at(there, "secret")).state, "tokenRefused");
  assert.equal((await look.at(there, "")).state, "tokenMissing");
  state.status = 200;
  const empty = { state: "empty", problem: "", jobs: [], cluster: there, everyone: false };
  assert.deepEqual(await look.at(there, "secret"), empty);
});

test("others' jobs are asked for, and what was seen of them does not stay when they are not", async (t) => {
  const bobs = { type: "SUBMISSION", job_id: "1", status: "RUNNING", entrypoint: "b", metadata: { "rayside.user": "bob" } };
  const state = { jobs: [bobs], relay: { pausedTasks: { tasks: [row("f")], problem: "" } } };
  const there = { ...(await cluster(t, state)), user: "anna" };
  const look = new Look();
  assert.deepEqual(named((await look.at(there, "secret", true)).jobs), ["f"]);
  assert.deepEqual(there.relay.requests.at(-1).arguments, { token: "secret", everyone: true });
  state.relay.pausedTasks = { tasks: [], problem: "Ray did not answer within 5 s" };
  assert.deepEqual((await look.at(there, "secret")).jobs, []);
  assert.deepEqual(there.relay.requests.at(-1).arguments, { token: "secret" });
});
