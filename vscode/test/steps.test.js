"use strict";

const assert = require("node:assert/strict");
const test = require("node:test");
const { EventEmitter, script } = require("./vscode");

// What VS Code does with a wish to bring Ray's view to the front, one after the other; then it does as asked.
const answers = [];
const opened = [];
const groups = [];
const visibility = new EventEmitter();
const view = { visible: false, onDidChangeVisibility: visibility.event, dispose() {} };

function come() {
  view.visible = true;
  visibility.fire({ visible: true });
}

script({
  window: { createTreeView: () => view, tabGroups: { all: groups } },
  commands: {
    executeCommand: async (name) => {
      if (name === "setContext") return;
      opened.push(name);
      setImmediate(answers.shift() ?? come);
    },
  },
});

const { FirstSteps } = require("../src/steps");

/** Returns what an extension remembers, as `known` at first. */
function memory(known = {}) {
  const values = new Map(Object.entries(known));
  return { get: (key) => values.get(key), update: async (key, value) => void values.set(key, value), values };
}

test.beforeEach(() => {
  process.env.RAYSIDE_WORKSPACE = "1";
  view.visible = false;
  answers.length = opened.length = groups.length = 0;
});

test("the view comes to the front once for each folder", async () => {
  const workspaceState = memory();
  await new FirstSteps({ globalState: memory(), workspaceState }).begin();
  await new FirstSteps({ globalState: memory(), workspaceState }).begin();
  assert.deepEqual(opened, ["workbench.view.extension.rayside"]);
});

test("a view that another one covered at once is asked for again", async (t) => {
  t.mock.timers.enable({ apis: ["setTimeout"] });
  answers.push(() => t.mock.timers.tick(10_000));
  const workspaceState = memory();
  await new FirstSteps({ globalState: memory(), workspaceState }).begin();
  assert.equal(opened.length, 2);
  assert.ok(view.visible);
});

test("who has opened a file is left alone", async () => {
  groups.push({ tabs: ["a.py"] });
  const workspaceState = memory();
  await new FirstSteps({ globalState: memory(), workspaceState }).begin();
  assert.deepEqual(opened, []);
  assert.ok(workspaceState.get("rayViewRevealed"));
});

test("an extension host that ends before the view came shows it when it begins anew", async () => {
  const workspaceState = memory();
  let before;
  answers.push(() => {
    before = workspaceState.values.size;
    come();
  });
  await new FirstSteps({ globalState: memory(), workspaceState }).begin();
  assert.equal(before, 0);
  assert.ok(workspaceState.get("rayViewRevealed"));
});

test("where the steps are hidden, which alone tell of the view, it is asked for once", async () => {
  await new FirstSteps({ globalState: memory({ firstStepsHidden: true }), workspaceState: memory() }).begin();
  assert.equal(opened.length, 1);
});
