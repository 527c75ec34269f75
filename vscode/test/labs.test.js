"use strict";

const assert = require("node:assert/strict");
const fs = require("node:fs");
const os = require("node:os");
const path = require("node:path");
const test = require("node:test");
const { EventEmitter, script } = require("./vscode");

const on = (...targets) => targets.map((target) => `rayside.labs == '${target}'`).join(" || ");
const EXTENSION = {
  id: "rayside.ray-breakpoints",
  packageJSON: {
    contributes: {
      walkthroughs: [
        { id: "01-one", title: "Lab 1: One", when: on("local", "kind"), steps: [{ id: "run-1" }, { id: "do-2" }, { id: "check" }] },
        { id: "02-two", title: "Lab 2: Two", when: on("kind"), steps: [{ id: "run-1" }, { id: "check" }] },
        { id: "03-three", title: "Lab 3: Three", when: on("local"), steps: [{ id: "run-1" }, { id: "check" }] },
      ],
    },
  },
};
const seen = {};
const taskEnds = new EventEmitter();
const workspace = { isTrusted: true, textDocuments: [] };

class Task {
  constructor(definition, scope, name, source, execution) {
    Object.assign(this, { definition, scope, name, source, execution });
  }
}

script({
  workspace,
  window: {
    withProgress: (options, act) => {
      seen.progress.push(options.title);
      return act({}, { onCancellationRequested: (cancel) => (seen.cancel = cancel) });
    },
    showWarningMessage: async (text) => void seen.warnings.push(text),
    showInformationMessage: async (text, ...choices) => {
      seen.messages.push([text, ...choices]);
      return seen.chooses;
    },
    showTextDocument: async (uri, options) => void seen.opened.push([uri.fsPath, options.viewColumn]),
    showQuickPick: async (items) => {
      seen.picks.push(items.map(({ label, description }) => [label, description]));
      return items[seen.picked];
    },
  },
  commands: {
    executeCommand: async (...words) => {
      seen.commands.push(words);
      if (seen.unknown.includes(words[0])) throw new Error(`command '${words[0]}' not found`);
    },
  },
  tasks: {
    onDidEndTask: taskEnds.event,
    executeTask: async (task) => {
      seen.tasks.push(task);
      taskEnds.fire({ execution: { task: { definition: { type: "process" } } } });
      taskEnds.fire({ execution: { task } });
    },
  },
  Uri: { file: (fsPath) => ({ fsPath }) },
  ViewColumn: { Two: 2 },
  ProgressLocation: { Notification: 15, Window: 10 },
  TaskScope: { Workspace: 2 },
  TaskRevealKind: { Always: 1 },
});
const vscode = require("vscode");
vscode.Task = Task;
vscode.ProcessExecution = class {
  constructor(process, args, options) {
    Object.assign(this, { process, args, options });
  }
};
const { LabError, Labs } = require("../src/labs");

const TICK = "welcome.markStepComplete";
const UNTICK = "welcome.markStepIncomplete";
const SAYS = { name: "01-one", folder: "/labs/01-one", files: ["a.py", "main.py"], texts: { en: "/e.md", zh: "/z.md" } };

/** Labs whose verbs are a program that notes its arguments, and prints what `says` has for the option. */
function labs(t, says = {}, target = "local") {
  Object.assign(seen, { progress: [], warnings: [], messages: [], opened: [], picks: [], commands: [], tasks: [] });
  Object.assign(seen, { unknown: [], chooses: undefined, picked: 0 });
  Object.assign(workspace, { isTrusted: true, textDocuments: [] });
  const folder = fs.mkdtempSync(path.join(os.tmpdir(), "labs "));
  t.after(() => fs.rmSync(folder, { recursive: true }));
  const answers = { look: { steps_done: 0, passed: false, ...SAYS }, ...says };
  for (const [option, document] of Object.entries(answers)) {
    fs.writeFileSync(path.join(folder, `${option}.json`), JSON.stringify(document));
  }
  const program = path.join(folder, "invokew");
  const lines = [
    `cd '${folder}'`,
    `printf '%s|' "$@" "$CLUSTER" >> calls; echo >> calls`,
    'case "$*" in *--check*) file=check ;; *--reset*) file=reset ;; *--solve*) file=solve ;; labs*) file=labs ;; *) file=look ;; esac',
    "cat $file.json",
    "! grep -q '\"error\"' $file.json",
  ];
  fs.writeFileSync(program, `#!/bin/sh\n${lines.join("\n")}\n`, { mode: 0o700 });
  const cluster = { target, verbs: [program], environment: { CLUSTER: "mine" } };
  const made = new Labs(EXTENSION, { cluster: async () => cluster }, { debug: (text) => seen.commands.push([text]) });
  const calls = () => (fs.existsSync(path.join(folder, "calls")) ? fs.readFileSync(path.join(folder, "calls"), "utf8").trim().split("\n") : []);
  return { made, cluster, program, calls };
}

const ticked = (command) => seen.commands.filter(([name]) => name === command).map(([, step]) => step);

test("the walkthroughs are shown for the cluster's target, and for none where the verbs are not here", (t) => {
  const { made, cluster } = labs(t);
  made.offer(cluster);
  made.offer(cluster);
  made.offer({ ...cluster, verbs: [] });
  made.offer(null);
  assert.deepEqual(seen.commands, [
    ["setContext", "rayside.labs", "local"],
    ["setContext", "rayside.labs", ""],
    ["setContext", "rayside.labsElsewhere", true],
    ["setContext", "rayside.labsElsewhere", false],
  ]);
});

test("the first lab opens with its code beside, and what was done is ticked", async (t) => {
  const { made, calls } = labs(t, { look: { ...SAYS, steps_done: 2, passed: false } });
  await made.begin();
  assert.deepEqual(calls(), ["lab|01-one|--json|mine|"]);
  assert.deepEqual(seen.commands.at(-1), ["workbench.action.openWalkthrough", "rayside.ray-breakpoints#01-one", false]);
  assert.deepEqual(seen.opened, [["/labs/01-one/main.py", 2]]);
  assert.deepEqual(ticked(TICK), ["rayside.ray-breakpoints#01-one#run-1", "rayside.ray-breakpoints#01-one#do-2"]);
  assert.deepEqual(ticked(UNTICK), ["rayside.ray-breakpoints#01-one#check"]);
});

test("without a name it asks, among the labs of this target", async (t) => {
  const rows = ["01-one", "02-two", "03-three"].map((name) => ({ name, passed: name === "03-three" }));
  const { made, calls } = labs(t, { labs: rows });
  await made.open();
  assert.deepEqual(seen.picks, [[["Lab 1: One", ""], ["Lab 3: Three", "passed"]]]);
  assert.deepEqual(calls(), ["labs|--json|mine|", "lab|01-one|--json|mine|"]);
  seen.picked = 7;
  await made.open();
  assert.equal(calls().length, 3);
});

test("a step is run by its number, as words and in no shell; then what is done is looked up", async (t) => {
  const { made, program, calls } = labs(t, { look: { ...SAYS, steps_done: 1, passed: false } });
  await made.run("01-one", 1);
  const [{ execution, definition }] = seen.tasks;
  assert.deepEqual([execution.process, execution.args], [program, ["lab", "01-one", "--step", "1"]]);
  assert.deepEqual(execution.options.env, { CLUSTER: "mine" });
  assert.deepEqual(definition, { type: "rayside.lab", lab: "01-one", step: 1 });
  assert.deepEqual(calls(), ["lab|01-one|--json|mine|"]);
  assert.deepEqual(ticked(TICK), ["rayside.ray-breakpoints#01-one#run-1"]);
});

for (const [name, step] of [["01-one", 2], ["01-one", "1"], ["01-one", "1; id"], ["01-one", 0], ["01-one"], ["01-one; id", 1], ["", 1], [{}, 1]]) {
  test(`what is not in our manifest is not run: ${JSON.stringify([name, step])}`, async (t) => {
    const { made, calls } = labs(t);
    await assert.rejects(async () => made.run(name, step), LabError);
    assert.deepEqual([seen.tasks, calls()], [[], []]);
  });
}

test("neither are other labs opened, checked, reset or solved, nor other files shown", async (t) => {
  const { made, calls } = labs(t);
  for (const act of ["open", "check", "reset", "solve"]) await assert.rejects(async () => made[act]("--all"), LabError);
  assert.deepEqual(calls(), []);
  await assert.rejects(made.file("01-one", "../../../etc/passwd"), LabError);
  await assert.rejects(made.file("01-one", undefined), LabError);
  await assert.rejects(made.text("01-one", "constructor"), LabError);
  assert.deepEqual(seen.opened, []);
  await made.file("01-one", "a.py");
  await made.text("01-one", "zh");
  assert.deepEqual(seen.opened, [["/labs/01-one/a.py", 2], ["/z.md", 2]]);
});

test("in Restricted Mode no program is run", async (t) => {
  const { made, calls } = labs(t);
  workspace.isTrusted = false;
  for (const act of [() => made.begin(), () => made.open(), () => made.run("01-one", 1), () => made.check("01-one")]) {
    await assert.rejects(act, { message: /Restricted Mode/, hint: /trust/ });
  }
  assert.deepEqual([calls(), seen.tasks], [[], []]);
});

test("in a pod the verbs are the image's, whatever folder a job has written", async (t) => {
  const { made, calls } = labs(t, {}, "pod");
  workspace.isTrusted = false;
  await made.file("01-one", "a.py");
  assert.deepEqual([calls().length, seen.opened], [1, [["/labs/01-one/a.py", 2]]]);
});

test("where the verbs are not, it is said where labs are done", async (t) => {
  const { made, cluster } = labs(t);
  cluster.verbs = [];
  await assert.rejects(made.check("01-one"), { message: /machine where Rayside was cloned/, hint: /invokew lab 1/ });
});

test("a passed check ticks all and offers the next lab that can be done here", async (t) => {
  const { made, calls } = labs(t, { check: { name: "01-one", passed: true }, look: { ...SAYS, steps_done: 2, passed: true } });
  const saved = [];
  const document = (fsPath, isDirty) => ({ isDirty, uri: { fsPath }, save: async () => saved.push(fsPath) });
  workspace.textDocuments = [document("/c/labs/01-one/main.py", true), document("/c/labs/02-two/x.py", true), document("/c/labs/01-one/a", false)];
  seen.chooses = "Next Lab";
  await made.check("01-one");
  assert.deepEqual(saved, ["/c/labs/01-one/main.py"]);
  assert.deepEqual(calls(), ["lab|01-one|--check|--json|mine|", "lab|01-one|--json|mine|", "lab|03-three|--json|mine|"]);
  assert.deepEqual(seen.messages, [["Passed: Lab 1: One.", "Next Lab"]]);
  assert.deepEqual(ticked(TICK).slice(0, 3), ["run-1", "do-2", "check"].map((step) => `rayside.ray-breakpoints#01-one#${step}`));
});

test("a check that does not pass says why and what helps, bounded and without links, and ticks nothing", async (t) => {
  const message = `job said\n[click](command:x) ${"x".repeat(9000)}`;
  const { made } = labs(t, { check: { error: { id: "not-solved", message, hint: "look at cents" } } });
  await made.check("01-one");
  const [text] = seen.warnings;
  assert.match(text, /^Not yet: job said \[click\] \(command:x\) x+\. Look at cents\.$/);
  assert.ok(text.length < 700);
  assert.deepEqual([seen.commands, seen.messages], [[], []]);
});

test("any other error is no result of the check", async (t) => {
  const { made } = labs(t, { check: { error: { id: "not-running", message: "no cluster", hint: "./invokew up" } } });
  await assert.rejects(made.check("01-one"), { message: "no cluster", hint: "./invokew up", id: "not-running" });
  assert.deepEqual(seen.warnings, []);
});

test("reset takes every tick away, also in an editor that spells it otherwise", async (t) => {
  const { made } = labs(t, { reset: { folder: "/labs/01-one", kept: "/labs/.kept/01-one-1" } });
  seen.unknown = [UNTICK];
  await made.reset("01-one");
  const steps = ["run-1", "do-2", "check"].map((step) => `rayside.ray-breakpoints#01-one#${step}`);
  assert.deepEqual(ticked("welcome.markStepInomplete"), steps);
  assert.match(seen.messages[0][0], /as at the beginning\. What you had edited is in \/labs\/\.kept\/01-one-1\.$/);
});

test("one program of the labs runs at a time, and can be cancelled", async (t) => {
  const { made, program } = labs(t);
  fs.writeFileSync(program, "#!/bin/sh\nexec sleep 60\n");
  const checking = made.check("01-one");
  while (!seen.cancel) await new Promise((resolve) => setTimeout(resolve, 10));
  await assert.rejects(made.check("02-two"), { message: "Checking Lab 1: One is not done yet" });
  seen.cancel();
  await assert.rejects(checking, { message: "it was cancelled" });
});
