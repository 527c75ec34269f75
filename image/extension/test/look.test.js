"use strict";

const assert = require("node:assert/strict");
const http = require("node:http");
const test = require("node:test");
const { Look } = require("../src/look");

/** A real HTTP server with these rows; and a relay that is not there. */
async function cluster(t, state) {
  const asked = [];
  const server = http.createServer((request, response) => {
    const { pathname } = new URL(request.url, "http://x");
    asked.push(pathname);
    const rows = { "/api/v0/workers": state.workers, "/api/v0/tasks": state.tasks }[pathname];
    const body = rows ? { data: { result: { result: rows } } } : state.jobs;
    response.writeHead(state.status ?? 200).end(JSON.stringify(body));
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  t.after(() => server.close());
  return {
    asked,
    dashboard: `http://127.0.0.1:${server.address().port}`,
    relay: { host: "127.0.0.1", port: 1 },
  };
}

const worker = (id) => ({ worker_id: id, worker_type: "WORKER", ip: "n", pid: 1, num_paused_threads: 1 });
const named = (jobs) => jobs.flatMap((job) => job.tasks.map((task) => task.name));

test("two requests a look, whatever the number of workers; one more while names may be wrong", async (t) => {
  const state = { workers: [], tasks: [], jobs: [] };
  const there = await cluster(t, state);
  let now = 1_000_000;
  const look = new Look(() => now);
  const requests = async (later = 2_000) => {
    now += later;
    there.asked.length = 0;
    const seen = await look.at(there, "");
    return [there.asked.length, seen.state, named(seen.jobs)];
  };
  assert.deepEqual(await requests(), [2, "empty", []]);
  state.workers = ["a", "b"].map(worker);
  state.tasks = [{ worker_id: "a", name: "before", job_id: "1", start_time_ms: 1 }];
  // Ray's task table lags: a's is the one that it ran before, b's comes later.
  assert.deepEqual(await requests(), [3, "seen", ["", "before"]]);
  state.tasks = [
    { worker_id: "a", name: "f", job_id: "1", start_time_ms: 1 },
    { worker_id: "b", name: "g", job_id: "1", start_time_ms: 2 },
  ];
  assert.deepEqual(await requests(), [3, "seen", ["f", "g"]]);
  assert.deepEqual(await requests(), [3, "seen", ["f", "g"]]);
  assert.deepEqual(await requests(), [2, "seen", ["f", "g"]]);
  state.workers = [worker("b")];
  assert.deepEqual(await requests(), [2, "seen", ["g"]]);
  // The worker runs another task when it waits again.
  state.workers = [];
  assert.deepEqual(await requests(), [2, "empty", []]);
  state.workers = [worker("b")];
  state.tasks = [{ worker_id: "b", name: "h", job_id: "1", start_time_ms: 3 }];
  assert.deepEqual(await requests(), [3, "seen", ["h"]]);
  assert.deepEqual(await requests(15_000), [3, "seen", ["h"]]);
  assert.deepEqual(await requests(15_000), [2, "seen", ["h"]]);
  // Also where nobody looked meanwhile.
  state.tasks = [{ worker_id: "b", name: "i", job_id: "1", start_time_ms: 4 }];
  assert.deepEqual(await requests(15_000), [3, "seen", ["i"]]);
});

test("what is wrong is the state, and it recovers", async (t) => {
  const state = { status: 500, workers: [], tasks: [], jobs: [] };
  const there = await cluster(t, state);
  const look = new Look();
  const seen = await look.at(there, "secret");
  assert.deepEqual([seen.state, seen.jobs, seen.cluster], ["down", [], there]);
  assert.match(seen.problem, /status 500/);
  state.status = 401;
  assert.equal((await look.at(there, "secret")).state, "tokenRefused");
  assert.equal((await look.at(there, "")).state, "tokenMissing");
  state.status = 200;
  assert.deepEqual(await look.at(there, "secret"), { state: "empty", problem: "", jobs: [], cluster: there });
});
