"use strict";

const assert = require("node:assert/strict");
const fs = require("node:fs");
const os = require("node:os");
const path = require("node:path");
const test = require("node:test");
const clusters = require("./clusters");
const { EventEmitter, script } = require("./vscode");

const RIGHT = "the-right-token";
const settings = {};
const commands = new Map();
// What VS Code was told, and what the user types.
const seen = { states: [], boxes: [], warnings: [], log: [], typed: undefined };
const waiting = new Set();

const nothing = () => ({ dispose() {} });
const channel = () => ({
  dispose() {},
  info: (text) => seen.log.push(text),
  error: (text) => seen.log.push(text),
});

script({
  window: {
    createOutputChannel: channel,
    createTreeView: () => ({ visible: true, onDidChangeVisibility: nothing, dispose() {} }),
    createStatusBarItem: () => ({ show() {}, dispose() {} }),
    onDidChangeWindowState: nothing,
    state: { focused: false },
    showInputBox: async (options) => {
      seen.boxes.push(options);
      return seen.typed;
    },
    showWarningMessage: async (text) => void seen.warnings.push(text),
  },
  StatusBarAlignment: { Left: 1 },
  workspace: {
    getConfiguration: () => ({ inspect: (name) => ({ globalValue: settings[name] }) }),
    onDidChangeConfiguration: nothing,
    onDidSaveTextDocument: nothing,
  },
  commands: {
    registerCommand: (name, act) => {
      commands.set(name, act);
      return nothing();
    },
    executeCommand: async (name, key, value) => {
      assert.equal(name, "setContext");
      if (key === "rayside.labsElsewhere") return;
      assert.equal(key, "rayside.state");
      seen.states.push(value);
      for (const look of [...waiting]) look();
    },
  },
  debug: {
    registerDebugConfigurationProvider: nothing,
    registerDebugAdapterDescriptorFactory: nothing,
    registerDebugAdapterTrackerFactory: nothing,
    onDidTerminateDebugSession: nothing,
  },
  DebugConfigurationProviderTriggerKind: { Dynamic: 2 },
});
const { activate } = require("../src/extension");

/** VS Code's secret storage, which tells of each change. */
class Secrets {
  values = new Map();
  #changed = new EventEmitter();
  onDidChange = this.#changed.event;
  get = async (key) => this.values.get(key);
  store = async (key, value) => {
    this.values.set(key, value);
    this.#changed.fire({ key });
  };
  delete = async (key) => {
    this.values.delete(key);
    this.#changed.fire({ key });
  };
}

/** Waits until the view is in that state. */
async function entered(state) {
  while (seen.states.at(-1) !== state) {
    await new Promise((resolve) => {
      waiting.add(resolve);
      setTimeout(resolve, 50);
    });
    waiting.clear();
  }
}

/** Starts the extension, at a cluster whose token file holds `inFile`. */
async function started(t, inFile) {
  Object.assign(seen, { states: [], boxes: [], warnings: [], log: [], typed: undefined });
  const folder = fs.mkdtempSync(path.join(os.tmpdir(), "token-"));
  t.after(() => fs.rmSync(folder, { recursive: true }));
  const file = path.join(folder, "token");
  fs.writeFileSync(file, inFile);
  const dashboard = await clusters.dashboard(t, { token: RIGHT });
  const relay = await clusters.relay(t, { pausedTasks: { tasks: [], problem: "" } });
  Object.assign(settings, { dashboard: dashboard.url, relay: `${relay.host}:${relay.port}`, tokenFile: file });
  const secrets = new Secrets();
  const subscriptions = [];
  t.after(() => subscriptions.forEach((subscription) => subscription.dispose()));
  const extension = { id: "rayside.ray-breakpoints", packageJSON: require("../package.json") };
  await activate({ extension, secrets, subscriptions, environmentVariableCollection: {} });
  return { secrets, requests: dashboard.requests, file };
}

const type = (text) => {
  seen.typed = text;
  return commands.get("rayside.setToken")();
};

test("the token that is typed is kept as a secret, hidden as it is typed, and used at once", { timeout: 60_000 }, async (t) => {
  const { secrets, requests } = await started(t, "a-wrong-token\n");
  await entered("tokenRefused");
  await type(`  ${RIGHT}\n`);
  // The command ends after a look with it: the view has changed by then.
  assert.equal(seen.states.at(-1), "empty");
  assert.deepEqual([...secrets.values], [["token", RIGHT]]);
  assert.equal(requests.at(-1), `Bearer ${RIGHT}`);
  const [box, ...more] = seen.boxes;
  assert.deepEqual([box.password, box.ignoreFocusOut, more], [true, true, []]);
  assert.equal(box.value, undefined);
  assert.ok(!JSON.stringify(seen.log).includes(RIGHT));
});

test("left empty, the cluster's own file is used again", { timeout: 60_000 }, async (t) => {
  const { secrets, requests } = await started(t, RIGHT);
  await entered("empty");
  await type("a-wrong-token");
  assert.equal(seen.states.at(-1), "tokenRefused");
  assert.match(seen.warnings[0], /refuses the token/);
  await type("   ");
  assert.equal(seen.states.at(-1), "empty");
  assert.deepEqual([secrets.values.size, requests.at(-1)], [0, `Bearer ${RIGHT}`]);
});

test("Escape changes nothing, and asks the cluster nothing", { timeout: 60_000 }, async (t) => {
  const { secrets, requests } = await started(t, RIGHT);
  await entered("empty");
  await secrets.store("token", RIGHT);
  await commands.get("rayside.refresh")();
  const before = requests.length;
  await type(undefined);
  assert.deepEqual([secrets.values.get("token"), requests.length], [RIGHT, before]);
});
