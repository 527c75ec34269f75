"use strict";

const assert = require("node:assert/strict");
const http = require("node:http");
const test = require("node:test");
const { Dashboard } = require("../src/dashboard");

// Long enough for a busy machine; `SHORT` is for what never answers.
const PATIENCE = 20_000;
const SHORT = 300;

/** A dashboard of one test: `answer` gets the request, and gives [status, text]. */
async function serving(t, answer, { token = "secret", patience = PATIENCE } = {}) {
  const asked = [];
  const server = http.createServer((request, response) => {
    asked.push({ url: new URL(request.url, "http://x"), authorization: request.headers.authorization });
    const [status, text] = answer(request) ?? [];
    if (status) response.writeHead(status).end(text);
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  t.after(() => {
    server.closeAllConnections();
    server.close();
  });
  return { asked, dashboard: new Dashboard(`http://127.0.0.1:${server.address().port}/`, token, patience) };
}

test("jobs, and what one has printed", async (t) => {
  const answers = { "/api/jobs/": [{ status: "RUNNING" }], "/api/jobs/a%2Fb/logs": { logs: "pi\n" } };
  const { asked, dashboard } = await serving(t, ({ url }) => [200, JSON.stringify(answers[url])]);
  assert.deepEqual(await dashboard.jobs(), [{ status: "RUNNING" }]);
  assert.deepEqual(asked.map(({ authorization }) => authorization), ["Bearer secret"]);
  assert.equal(await dashboard.output("a/b"), "pi\n");
});

test("without a token none is sent, and a refusal says that one is missing", async (t) => {
  const { asked, dashboard } = await serving(t, () => [401, "no"], { token: "" });
  await assert.rejects(dashboard.jobs(), { kind: "tokenMissing" });
  assert.equal(asked[0].authorization, undefined);
});

for (const status of [401, 403]) {
  test(`status ${status} with a token: it is the wrong one, and is not named`, async (t) => {
    const { dashboard } = await serving(t, () => [status, "no"]);
    await assert.rejects(dashboard.jobs(), (error) => {
      assert.equal(error.kind, "tokenRefused");
      assert.doesNotMatch(error.message, /secret/);
      return true;
    });
  });
}

for (const [what, answer] of [
  ["fails", () => [500, "oops"]],
  ["is something else", () => [200, "<html>"]],
  ["answers with other JSON", () => [200, "{}"]],
  ["never answers", () => undefined],
]) {
  test(`one that ${what}: down`, async (t) => {
    const { dashboard } = await serving(t, answer, { patience: answer() ? PATIENCE : SHORT });
    await assert.rejects(dashboard.jobs(), { kind: "down" });
  });
}

test("one that sends a byte now and then is not waited for", async (t) => {
  const server = http.createServer((request, response) => {
    response.writeHead(200);
    const timer = setInterval(() => response.write(" "), 20);
    response.on("close", () => clearInterval(timer));
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  t.after(() => server.close());
  const dashboard = new Dashboard(`http://127.0.0.1:${server.address().port}`, "", SHORT);
  await assert.rejects(dashboard.jobs(), { kind: "down" });
});

for (const url of ["nonsense", "ftp://127.0.0.1", "http://127.0.0.1:1"]) {
  test(`nothing at ${url}: down`, async () => {
    await assert.rejects(new Dashboard(url, "", PATIENCE).jobs(), { kind: "down" });
  });
}
