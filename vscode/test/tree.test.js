"use strict";

const assert = require("node:assert/strict");
const test = require("node:test");
const { script } = require("./vscode");

script({});
const { Tree } = require("../src/tree");

// Obeyed nowhere: a terminal's sequence, a text that reads the other way round, a line of its own, Markdown, an icon.
const HOSTILE = "\x1b[31m\u202egpj.exe\nStatus: fine [go](command:x) $(check)";
const SHOWN = "\\x1b[31m\\u202egpj.exe\\nStatus: fine [go](command:x) $(check)";

const task = (more) => ({
  key: "task w",
  workerId: "w",
  name: "estimate",
  nodeIp: "10.0.0.1",
  pid: 7,
  jobId: "01",
  since: "2026-11-21T12:00:00Z",
  held: false,
  ...more,
});
const job = (more) => ({
  key: "job j",
  submissionId: "run-1",
  jobId: "01",
  status: "RUNNING",
  running: true,
  entrypoint: "python x.py",
  tasks: [],
  ...more,
});

/** All that an item says. A text is shown as it is: VS Code reads Markdown in no other than a MarkdownString. */
function texts(row) {
  const { label, description, tooltip, accessibilityInformation } = new Tree().getTreeItem(row);
  const all = { label, description, tooltip, read: accessibilityInformation.label };
  for (const [name, text] of Object.entries(all)) assert.equal(typeof text, "string", name);
  return all;
}

test("a task's row says what it is called, where it runs and for how long", () => {
  const { label, description, tooltip } = texts(task());
  assert.equal(label, "estimate");
  assert.match(description, /^10\.0\.0\.1 · \d+ d \d+ h$/);
  assert.deepEqual(tooltip.split("\n"), [
    "estimate waits for a debugger",
    "Node: 10.0.0.1",
    "Process: 7",
    "Worker: w",
    "Began to run: 2026-11-21T12:00:00Z",
  ]);
});

test("a task that failed says so, and has a button of its own", () => {
  const { tooltip, read } = texts(task({ held: true, failed: true }));
  assert.equal(tooltip.split("\n")[0], "estimate has failed, and is stopped in the debugger");
  assert.match(read, /^Paused task estimate, failed, running for /);
  const kinds = [task(), task({ held: true, failed: true })].map((row) => new Tree().getTreeItem(row).contextValue);
  assert.deepEqual(kinds, ["task", "failedTask"]);
});

test("the name of a task is shown as what it is, in its row, its tooltip and where it is read out", () => {
  const { label, tooltip, read } = texts(task({ name: HOSTILE }));
  assert.equal(label, SHOWN);
  assert.deepEqual(tooltip.split("\n").slice(0, 2), [`${SHOWN} waits for a debugger`, "Node: 10.0.0.1"]);
  assert.ok(read.startsWith(`Paused task ${SHOWN}, running for `), read);
});

test("so is all else of a task that Ray or the relay names", () => {
  const { description, tooltip, read } = texts(task({ nodeIp: HOSTILE, workerId: HOSTILE, pid: HOSTILE }));
  assert.ok(description.startsWith(`${SHOWN} · `), description);
  assert.deepEqual(tooltip.split("\n").slice(1, 4), [`Node: ${SHOWN}`, `Process: ${SHOWN}`, `Worker: ${SHOWN}`]);
  assert.ok(read.includes(`, node ${SHOWN}, process ${SHOWN}, `), read);
});

test("so is what a job is called", () => {
  const all = texts(job({ entrypoint: HOSTILE, submissionId: HOSTILE, jobId: HOSTILE, status: HOSTILE }));
  assert.equal(all.label, SHOWN);
  assert.equal(all.description, `${SHOWN.toLowerCase()} · ${SHOWN}`);
  assert.deepEqual(all.tooltip.split("\n"), [SHOWN, `Status: ${SHOWN}`, `Submission: ${SHOWN}`, `Job: ${SHOWN}`]);
  assert.equal(all.read, `Ray job, ${SHOWN}, ${SHOWN.toLowerCase()}`);
});

test("a task without a name, and a job with paused tasks", () => {
  assert.equal(texts(task({ name: "" })).label, "(name not known yet)");
  assert.match(texts(task({ name: "" })).read, /^Paused task without a name yet, /);
  const { description, read } = texts(job({ tasks: [task(), task()] }));
  assert.equal(description, "running · 2 paused · run-1");
  assert.equal(read, "Ray job, python x.py, running, 2 paused");
});
