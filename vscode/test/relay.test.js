"use strict";

const assert = require("node:assert/strict");
const net = require("node:net");
const test = require("node:test");
const { Decoder, encode } = require("../src/dap");
const { ask, pausedTasks } = require("../src/relay");

// Long enough for a busy machine; `SHORT` is for what never answers.
const PATIENCE = 20_000;
const SHORT = 300;

/** Serves one test; `behave` gets each connection. */
async function serving(t, behave) {
  const server = net.createServer((socket) => {
    socket.on("error", () => {});
    behave(socket);
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  t.after(() => server.close());
  return { host: "127.0.0.1", port: server.address().port };
}

/** Answers each request with what `answer` makes of it. */
function answering(answer) {
  return (socket) => {
    const decoder = new Decoder();
    socket.on("data", (chunk) => {
      for (const request of decoder.feed(chunk)) {
        socket.write(encode({ type: "event", event: "output", body: { output: "by the way" } }));
        socket.write(encode({ type: "response", request_seq: request.seq, ...answer(request) }));
      }
    });
  };
}

test("the paused tasks come with the token sent", async (t) => {
  const requests = [];
  const address = await serving(t, answering((request) => {
    requests.push(request);
    return { success: true, body: { tasks: [{ worker_id: "w" }], problem: "" } };
  }));
  assert.deepEqual(await pausedTasks(address, "secret", false, PATIENCE), { tasks: [{ worker_id: "w" }], problem: "" });
  assert.deepEqual(requests, [
    { seq: 1, type: "request", command: "pausedTasks", arguments: { token: "secret" } },
  ]);
});

test("a relay that knows nothing of what waits is of an older Rayside", async (t) => {
  const address = await serving(t, answering(() => ({ success: true, body: { tasks: [] } })));
  const { problem } = await pausedTasks(address, "secret", false, PATIENCE);
  assert.equal(problem, "the debug relay is of an older Rayside");
});

test("an answer without a body is an empty one", async (t) => {
  const address = await serving(t, answering(() => ({ success: true })));
  assert.deepEqual(await ask(address, "anything", {}, PATIENCE), {});
});

test("a refusal brings the relay's own words", async (t) => {
  const address = await serving(t, answering(() => ({ success: false, message: "a wrong token" })));
  await assert.rejects(ask(address, "pausedTasks", {}, PATIENCE), { kind: "refused", message: "a wrong token" });
});

test("nobody listens: down", async (t) => {
  const server = net.createServer();
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  const { port } = server.address();
  await new Promise((resolve) => server.close(resolve));
  await assert.rejects(ask({ host: "127.0.0.1", port }, "x", {}, PATIENCE), { kind: "down", message: /is not there/ });
});

for (const [what, behave, message, patience = PATIENCE] of [
  ["says nothing", () => {}, /does not answer/, SHORT],
  ["hangs up", (socket) => socket.once("data", () => socket.end()), /closed the connection/],
  ["speaks HTTP", (socket) => socket.write("HTTP/1.1 400 Bad\r\n\r\n"), /is something else/],
]) {
  test(`one that ${what}: down`, async (t) => {
    const address = await serving(t, behave);
    await assert.rejects(ask(address, "x", {}, patience), { kind: "down", message });
  });
}
