"use strict";

const assert = require("node:assert/strict");
const test = require("node:test");
const { script } = require("./vscode");

script({});
const { StacksTree } = require("../src/stacks");

const HOSTILE = "\x1b[31m\u202egpj.exe\n$(check)";
const SAFE = "\\x1b[31m\\u202egpj.exe\\n$(check)";

const here = (more) => ({ worker_id: "w1", task: "rank 1", thread: "MainThread", stopped: false, line: 7, ...more });
const node = (name, more) => ({
  function: name,
  file: "/here/train.py",
  local: true,
  own: true,
  lines: [[7, 1]],
  threads: 1,
  processes: 1,
  odd: false,
  here: [],
  calls: [],
  ...more,
});

function shown(stacks, more) {
  const tree = new StacksTree();
  tree.show({ stacks, processes: 1, threads: 1, left_out: 0, unanswered: [], ...more });
  const drawn = (row, depth) => {
    const item = tree.getTreeItem(row);
    const text = `${"  ".repeat(depth)}${item.label}${item.description ? ` | ${item.description}` : ""}`;
    return [text, ...(item.collapsibleState ? tree.getChildren(row).flatMap((child) => drawn(child, depth + 1)) : [])];
  };
  return { tree, texts: tree.getChildren().flatMap((row) => drawn(row, 0)) };
}

test("a chain of calls is not nested, a fork is, and the odd one out is named", () => {
  const load = node("load", { odd: true, here: [here({ task: "rank 2" })] });
  const step = node("step", { threads: 3, here: [here(), here({ thread: "feeder", stopped: true, line: 9 })] });
  const main = node("main", { threads: 4, lines: [[3, 4]], calls: [node("train", { threads: 4, calls: [step, load] })] });
  assert.deepEqual(shown([main]).texts, [
    "4  main | train.py:3",
    "  4  train | train.py:7",
    "  3  step | train.py:7",
    "    rank 1 | line 7",
    "    rank 1 | feeder · line 9 · stopped",
    "  1  load | train.py:7 · the odd one out",
    "    rank 2 | line 7",
  ]);
});

test("calls in libraries are shortened, those outside of the user's code left out, and what is missing is said", () => {
  const library = (name, more) => node(name, { own: false, file: "/lib/ray.py", ...more });
  const inner = ["a", "b", "c", "d"].reduceRight((calls, name) => [library(name, { calls, here: calls.length ? [] : [here()] })], []);
  const outer = library("run", { calls: [node("work", { calls: inner }), library("poll", { here: [here(), here()] })] });
  const missing = [{ worker_id: "w9", task: "slow", why: "it did not answer" }];
  assert.deepEqual(shown([outer], { left_out: 1, unanswered: missing }).texts, [
    "1  work | train.py:7",
    "  1  a | ray.py:7",
    "  2 calls in libraries",
    "  1  d | ray.py:7",
    "  rank 1 | line 7",
    "2 more threads in no code of yours",
    "1 thread left out: too many",
    "slow is not among them: it did not answer",
  ]);
});

test("a row opens its line, and a thread that is stopped its task", () => {
  const { tree } = shown([node("work", { here: [here(), here({ stopped: true })] })]);
  const [row] = tree.getChildren();
  assert.deepEqual(tree.getTreeItem(row).command.arguments, ["/here/train.py", 7]);
  const [running, stopped] = tree.getChildren(row).map((child) => tree.getTreeItem(child).command);
  assert.deepEqual([running.command, running.arguments], ["rayside.openStackLine", ["/here/train.py", 7]]);
  assert.deepEqual([stopped.command, stopped.arguments[0].key], ["rayside.stopInTask", "task w1"]);
});

test("a file that is none of this machine's is not opened, wherever a process says that it is", () => {
  const { tree } = shown([node("work", { file: "/home/me/.ssh/id_rsa", local: false, here: [here()] })]);
  const [row] = tree.getChildren();
  for (const each of [row, ...tree.getChildren(row)]) assert.equal(tree.getTreeItem(each).command, undefined);
});

test("of many threads in one function some are listed", () => {
  const many = Array.from({ length: 1000 }, (_, number) => here({ task: `rank ${number}` }));
  const { texts } = shown([node("work", { here: many })]);
  assert.equal(texts.length, 102);
  assert.equal(texts.at(-1), "  900 more threads");
});

test("what a process says is shown as what it is", () => {
  const strange = node(HOSTILE, { file: `/x/${HOSTILE}`, here: [here({ task: HOSTILE, thread: HOSTILE, worker_id: HOSTILE })] });
  const { tree, texts } = shown([strange], { unanswered: [{ task: HOSTILE, why: HOSTILE }] });
  assert.deepEqual(texts, [`1  ${SAFE} | ${SAFE}:7`, `  ${SAFE} | ${SAFE} · line 7`, `${SAFE} is not among them: ${SAFE}`]);
  const [row] = tree.getChildren();
  for (const each of [row, ...tree.getChildren(row)]) {
    const { tooltip, accessibilityInformation } = tree.getTreeItem(each);
    assert.ok(tooltip.includes(SAFE) && !tooltip.includes("\u202e"), tooltip);
    assert.ok(!accessibilityInformation.label.includes("\x1b"));
  }
});
