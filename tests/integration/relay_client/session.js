// One debugging session by an editor's library that is not ours: `node session.js PORT TOKEN FILE`.
// Prints what it saw as one line of JSON; an assertion that fails ends it with an error.
"use strict";

const assert = require("node:assert/strict");
const { DebugClient } = require("@vscode/debugadapter-testsupport");

const [port, token, file] = [Number(process.argv[2]), process.argv[3], process.argv[4]];

/** The client has no time-outs of its own on a socket. */
function within(promise, what) {
  let timer;
  const late = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new Error(`${what} did not come`)), 20000);
  });
  return Promise.race([promise, late]).finally(() => clearTimeout(timer));
}

/** Takes events one by one, in the order they came. */
class Stops {
  constructor(client) {
    this.came = [];
    this.waiting = [];
    client.on("stopped", (event) => {
      const next = this.waiting.shift();
      if (next) next(event.body);
      else this.came.push(event.body);
    });
  }

  next() {
    const came = this.came.shift();
    const stop = came ? Promise.resolve(came) : new Promise((resolve) => this.waiting.push(resolve));
    return within(stop, "a stopped event");
  }
}

async function attach(client, attachToken) {
  await client.start(port);
  const answer = await within(
    client.initializeRequest({
      clientID: "testsupport",
      adapterID: "debugpy",
      pathFormat: "path",
      linesStartAt1: true,
      columnsStartAt1: true,
    }),
    "the answer to initialize",
  );
  const initialized = client.waitForEvent("initialized");
  const attached = client.attachRequest({ type: "debugpy", connect: { host: "127.0.0.1", port }, token: attachToken });
  return { capabilities: answer.body, initialized, attached };
}

async function refused() {
  const client = new DebugClient("node", "", "debugpy");
  const { attached } = await attach(client, "another");
  await assert.rejects(within(attached, "the refusal"), /token/);
}

async function main() {
  await refused();

  const client = new DebugClient("node", "", "debugpy");
  const stops = new Stops(client);
  const continued = [];
  client.on("continued", (event) => continued.push(event.body.threadId));
  const exited = [];
  client.on("thread", (event) => event.body.reason === "exited" && exited.push(event.body.threadId));

  const { capabilities, initialized, attached } = await attach(client, token);
  assert.equal(capabilities.supportsConfigurationDoneRequest, true);
  await within(initialized, "the initialized event");
  const set = await client.setBreakpointsRequest({ source: { path: file }, breakpoints: [{ line: 2 }] });
  assert.equal(set.body.breakpoints.length, 1);
  await client.setExceptionBreakpointsRequest({ filters: [] });
  await client.configurationDoneRequest();
  await within(attached, "the answer to attach");

  // Both tasks stop, each as a thread of its own.
  const stopped = [await stops.next(), await stops.next()];
  stopped.sort((a, b) => (a.ray.workerId < b.ray.workerId ? -1 : 1));
  const [first, second] = stopped.map((stop) => stop.threadId);
  assert.notEqual(first, second);
  const { threads } = (await client.threadsRequest()).body;
  const names = stopped.map((stop) => threads.find((thread) => thread.id === stop.threadId).name);

  const top = async (threadId) => (await client.stackTraceRequest({ threadId })).body.stackFrames[0];
  const locals = async (frame) => {
    const { scopes } = (await client.scopesRequest({ frameId: frame.id })).body;
    const reference = scopes[0].variablesReference;
    const { variables } = (await client.variablesRequest({ variablesReference: reference })).body;
    return { reference, x: variables.find((variable) => variable.name === "x").value };
  };
  const frames = [await top(first), await top(second)];
  for (const frame of frames) {
    assert.deepEqual([frame.name, frame.line, frame.source.path], ["work", 2, file]);
  }
  const seen = [await locals(frames[0]), await locals(frames[1])];

  // One of them steps, is changed and evaluated; the other stays where it is.
  const step = async (request, expected) => {
    await within(request, "the answer to a step");
    const stop = await stops.next();
    assert.deepEqual([stop.threadId, stop.reason], [first, "step"]);
    const frame = await top(first);
    assert.deepEqual([frame.name, frame.line], expected);
    return frame;
  };
  const after = await step(client.nextRequest({ threadId: first }), ["work", 3]);
  const { reference } = await locals(after);
  await client.setVariableRequest({ variablesReference: reference, name: "y", value: "1000" });
  const changed = (await client.evaluateRequest({ expression: "y + 1", frameId: after.id, context: "watch" })).body.result;
  await step(client.stepInRequest({ threadId: first }), ["twice", 7]);
  const out = await step(client.stepOutRequest({ threadId: first }), ["work", 3]);
  await assert.rejects(client.evaluateRequest({ expression: "1 / 0", frameId: out.id, context: "repl" }), /division/);
  await assert.rejects(client.scopesRequest({ frameId: after.id }), /not known/);
  assert.equal((await top(second)).line, 2);
  const untouched = (await client.evaluateRequest({ expression: "x", frameId: frames[1].id })).body.result;

  // One goes on to its end; the other is left to, by `disconnect`.
  const answer = await client.continueRequest({ threadId: first });
  assert.equal(answer.body.allThreadsContinued, false);
  assert.deepEqual(continued.filter((thread) => thread === second), []);
  while (!exited.includes(first)) await within(client.waitForEvent("thread", 20000), "the end of a thread");
  assert.equal((await client.threadsRequest()).body.threads.some((thread) => thread.id === first), false);
  await within(client.disconnectRequest(), "the answer to disconnect");
  console.log(JSON.stringify({ names, locals: seen.map((each) => each.x), changed, untouched }));
}

main().then(
  () => process.exit(0),
  (error) => {
    console.error(error);
    process.exit(1);
  },
);
