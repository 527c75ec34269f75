"use strict";

const assert = require("node:assert/strict");
const test = require("node:test");
const clusters = require("./clusters");
const { script } = require("./vscode");

const TOKEN = "a-token";
// What the user sees, and chooses; what VS Code is asked to do.
const user = { questions: [], choice: undefined, told: [], warned: [], commands: [], started: [] };
let debugging;

script({
  window: {
    showWarningMessage: async (text, how, ...choices) => {
      if (how === undefined) return void user.warned.push(text);
      user.questions.push([text, how, choices]);
      return user.choice;
    },
    showInformationMessage: async (text, ...choices) => {
      user.told.push([text, choices]);
      return user.choice;
    },
  },
  workspace: { workspaceFolders: undefined },
  commands: { executeCommand: async (name) => void user.commands.push(name) },
  debug: {
    // As VS Code does it: the configuration is resolved, and the session gets a tracker.
    startDebugging: async (folder, config) => {
      const configuration = await debugging.resolveDebugConfigurationWithSubstitutedVariables(folder, config);
      if (!configuration) return false;
      user.started.push(configuration);
      const session = { id: `session ${user.started.length}`, configuration };
      user.tracker = debugging.createDebugAdapterTracker(session);
      return true;
    },
  },
});
const { Debugging } = require("../src/debugging");

/** A cluster that `busy` debugs already, and a user who chooses so; no session is there. */
async function cluster(t, busy, choice) {
  Object.assign(user, { questions: [], choice, told: [], warned: [], commands: [], started: [] });
  const answers = { pausedTasks: { tasks: [], problem: "" }, debugger: { debugger: busy } };
  const relay = await clusters.relay(t, answers);
  const trusted = [];
  debugging = new Debugging({
    cluster: async () => ({ relay: { host: relay.host, port: relay.port, trusted }, trusted, sharedFiles: false }),
    token: async () => TOKEN,
  });
  return { ...relay, answers };
}

const BUSY = { client: "Neovim", since: "2026-11-21T12:00:00Z", job: "run-1" };

for (const [choice, takeOver] of [
  ["Take Over", "always"],
  ["Watch", "watch"],
]) {
  test(`somebody debugs it already, and "${choice}" is chosen: the session is asked for so, and nothing twice`, async (t) => {
    const relay = await cluster(t, BUSY, choice);
    assert.equal(await debugging.start("run-1"), true);
    const [[text, how, choices], ...more] = user.questions;
    assert.match(text, /^Neovim debugs job run-1 since \d.*\.$/);
    assert.equal(how.modal, true);
    assert.match(how.detail, /Taking over ends that session\. Watching/);
    assert.deepEqual([choices, more], [["Take Over", "Watch"], []]);
    assert.deepEqual(user.started.map((config) => [config.takeOver, config.job]), [[takeOver, "run-1"]]);
    const request = relay.requests.find(({ command }) => command === "debugger");
    assert.deepEqual(request.arguments, { token: TOKEN, job: "run-1" });
  });
}

test("it is left: no session, no view that changes, and the relay is told nothing", async (t) => {
  const relay = await cluster(t, BUSY, undefined);
  assert.equal(await debugging.start("run-1"), false);
  assert.equal(user.questions.length, 1);
  assert.deepEqual([user.started, user.commands, debugging.active], [[], [], false]);
  assert.deepEqual(new Set(relay.requests.map((request) => request.command)), new Set(["pausedTasks", "debugger"]));
  // The next try asks again.
  user.choice = "Watch";
  assert.equal(await debugging.start("run-1"), true);
  assert.equal(user.questions.length, 2);
});

test("nobody debugs it: nothing is asked", async (t) => {
  await cluster(t, null);
  assert.equal(await debugging.start(), true);
  assert.deepEqual([user.questions, user.started.map((config) => config.takeOver)], [[], ["always"]]);
});

test("VS Code's own restart takes over from itself, unasked", async (t) => {
  const { answers } = await cluster(t, null);
  await debugging.start();
  answers.debugger.debugger = BUSY;
  const again = await debugging.resolveDebugConfigurationWithSubstitutedVariables(undefined, { type: "ray" });
  assert.deepEqual([user.questions, again.takeOver], [[], "always"]);
});

test("who debugs it may call itself what it likes", async (t) => {
  await cluster(t, { client: "\u202e[x](command:y)\n", since: "nonsense", job: "" }, undefined);
  assert.equal(await debugging.start(), false);
  assert.equal(user.questions[0][0], "\\u202e[x] (command:y)\\n debugs this cluster.");
  await cluster(t, { client: { a: 1 }, since: null }, undefined);
  await debugging.start();
  assert.match(user.questions[0][0], /^Another debugger debugs this cluster/);
});

test("a session that another window took over is told of, and is had back for the asking", async (t) => {
  const { answers } = await cluster(t, null, "Debug Here");
  await debugging.start("run-1");
  answers.debugger.debugger = BUSY; // the other window
  user.tracker.onDidSendMessage({ type: "event", event: "terminated", body: { ray: { reason: "taken-over" } } });
  assert.equal(debugging.active, false);
  for (let round = 0; round < 1000 && !debugging.active; round += 1) await new Promise((resolve) => setTimeout(resolve, 5));
  assert.match(user.told[0][0], /^Another window debugs this cluster now/);
  assert.deepEqual(user.questions, []);
  assert.deepEqual(user.started.map((config) => [config.takeOver, config.job]), [["always", "run-1"], ["always", "run-1"]]);
});

const terminated = (body) => ({ type: "event", event: "terminated", body });

for (const [reason, text] of [
  ["way-lost", /^The cluster was not reached any more/],
  ["relay-gone", /^The cluster is there without its debug relay.*\.\/invokew up/],
  ["forward-ended", /^Rayside's forward to the cluster has ended/],
]) {
  test(`a session that ends for good (${reason}) says why, and begins again for the asking, taking over from nobody`, async (t) => {
    const { answers } = await cluster(t, null, "Debug Again");
    await debugging.start("run-1");
    user.tracker.onDidSendMessage(terminated({ ray: { reason } }));
    assert.equal(debugging.active, false);
    answers.debugger.debugger = BUSY; // somebody has come meanwhile
    for (let round = 0; round < 1000 && !user.questions.length; round += 1) await new Promise((resolve) => setTimeout(resolve, 5));
    assert.match(user.told[0][0], text);
    assert.match(user.questions[0][0], /^Neovim debugs job run-1/);
  });
}

test("while the connection is lost the user is told, and what VS Code begins again by itself is left to it", async (t) => {
  await cluster(t, null, undefined);
  await debugging.start();
  const output = { category: "console", output: "The connection to the cluster is lost.\n", ray: { reason: "waiting" } };
  user.tracker.onDidSendMessage({ type: "event", event: "output", body: output });
  user.tracker.onDidSendMessage({ type: "event", event: "output", body: { output: "a line\n" } });
  assert.deepEqual(user.warned.map((text) => /connection to the cluster is lost\. .* by itself/.test(text)), [true]);
  user.tracker.onDidSendMessage(terminated({ ray: { reason: "way-back" }, restart: { ray: "again" } }));
  user.tracker.onDidSendMessage(terminated({ ray: { reason: "toString" } }));
  user.tracker.onDidSendMessage(terminated(undefined));
  assert.deepEqual([debugging.active, user.told, user.started.length], [true, [], 1]);
});

test("another user's job gets a session of its own beside one for the user's own jobs", async (t) => {
  await cluster(t, null);
  await debugging.start();
  assert.equal(await debugging.start("run-2", {}, "bob"), true);
  assert.deepEqual(user.started.map(({ job, everyone }) => [job, everyone]), [[undefined, undefined], ["run-2", undefined]]);
});

test("a session for everyone's jobs has another user's, too", async (t) => {
  const relay = await cluster(t, null);
  debugging.access.everyone = true;
  await debugging.start();
  assert.equal(await debugging.start("run-2", {}, "bob"), true);
  assert.deepEqual(user.started.map(({ job, everyone }) => [job, everyone]), [[undefined, true]]);
  const request = relay.requests.find(({ command }) => command === "debugger");
  assert.deepEqual(request.arguments, { token: TOKEN, everyone: true });
});
