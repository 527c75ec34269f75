"use strict";

const assert = require("node:assert/strict");
const fs = require("node:fs");
const os = require("node:os");
const path = require("node:path");
const test = require("node:test");
const { EventEmitter, script } = require("./vscode");

const LABS = [
  { name: "01-one", title: "Lab 1: One", steps: ["run-1", "do-2", "check"] },
  { name: "02-two", title: "Lab 2: Two", steps: ["run-1", "check"] },
];
const seen = { commands: [], picks: [], shown: [] };
const acts = new EventEmitter();
const status = { show: () => seen.shown.push(status.text) };

/** Is like VS Code's, as far as it is used. */
function address(text) {
  const url = new URL(text);
  const with_ = ({ path: name, query, fragment }) => address(Object.assign(url, { pathname: name, search: query, hash: fragment }).href);
  return { authority: url.host, text: url.href, with: with_ };
}

script({
  window: {
    createStatusBarItem: () => status,
    onDidChangeTextEditorSelection: acts.event,
    onDidChangeActiveTextEditor: acts.event,
    onDidChangeActiveTerminal: acts.event,
    onDidStartTerminalShellExecution: acts.event,
    showQuickPick: async (items) => {
      seen.picks.push(items);
      return items.find((item) => item.includes(seen.chooses));
    },
    withProgress: (options, act) => act(),
    showInformationMessage: async (text, ...buttons) => {
      seen.did.push(text);
      return buttons.find((button) => button === seen.chooses);
    },
    showInputBox: async ({ value }) => {
      seen.value = value;
      return seen.types;
    },
  },
  workspace: { onDidChangeTextDocument: acts.event, saveAll: async () => seen.did.push("saved") },
  env: {
    asExternalUri: async (uri) => (seen.host ? address(`https://${seen.host}/proxy/1/?a=b#c`) : uri),
    openExternal: async (uri) => seen.did.push(`opened ${uri.text}`),
  },
  Uri: { parse: address },
  ProgressLocation: { Notification: 15 },
  commands: { executeCommand: async (...words) => void seen.commands.push(words) },
  StatusBarAlignment: { Left: 1 },
});
const { Workshop } = require("../src/workshop");

/** A place, whose clone has these records of labs: each later than the one before. */
function place(t, records = {}) {
  Object.assign(seen, { commands: [], picks: [], shown: [], problems: [] });
  const clone = fs.mkdtempSync(path.join(os.tmpdir(), "a place "));
  t.after(() => fs.rmSync(clone, { recursive: true }));
  for (const [at, [name, record]] of Object.entries(records).entries()) {
    const folder = path.join(clone, "labs", name);
    fs.mkdirSync(folder, { recursive: true });
    fs.writeFileSync(path.join(folder, ".lab.json"), typeof record === "string" ? record : JSON.stringify(record));
    fs.utimesSync(path.join(folder, ".lab.json"), 1000 + at, 1000 + at);
  }
  const file = path.join(clone, "progress.json");
  const open = (packs) => {
    const log = { debug: (text) => seen.problems.push(text) };
    const made = new Workshop(() => LABS, log, { RAYSIDE_PROGRESS: file }, packs);
    made.register();
    return made;
  };
  const cluster = { verbs: [path.join(clone, "invokew")] };
  const told = () => JSON.parse(fs.readFileSync(file, "utf8"));
  const looks = (...names) => ({ cluster, jobs: [{ tasks: names.map((name) => ({ name })) }] });
  return { open, told, looks, file };
}

test("it is told which lab was worked at last, how far, and how many were passed", async (t) => {
  const { open, told, looks } = place(t, {
    "02-two": { steps_done: 2, passed: true, checks_failed: 0 },
    "01-one": { steps_done: 1, passed: false, checks_failed: 3 },
  });
  await open().tell(looks());
  const { idle, acted, ...rest } = told();
  assert.ok(idle < 60 && acted > 0);
  assert.deepEqual(rest, {
    lab: { title: "Lab 1: One", step: 2, steps: 3, passed: false, checks_failed: 3 },
    labs_passed: 1,
    stopped: "",
    help: null,
  });
});

test("records that nobody can read are none", async (t) => {
  const records = { "01-one": "no JSON", "02-two": `{"steps_done": ${"1".repeat(20_000)}}` };
  const { open, told, looks } = place(t, records);
  await open().tell(looks());
  assert.deepEqual([told().lab, told().labs_passed], [null, 0]);
});

test("what stands still is told in a few words", async (t) => {
  const { open, told, looks } = place(t);
  const made = open();
  for (const [names, words] of [
    [["work"], "work"],
    [["work", "", "b"], "work and 2 more"],
    [["a\nb\u001b[31m"], "a\\nb\\x1b[31m"],
  ]) {
    await made.tell(looks(...names));
    assert.equal(told().stopped, words);
  }
});

test("who asks for help is asked whether the teacher may look, and what it is about", async (t) => {
  const { open, told, looks } = place(t);
  const made = open();
  assert.equal(seen.shown.at(-1), "$(question) Ask for Help");
  Object.assign(seen, { chooses: "may look", types: `my task ${"x".repeat(500)}` });
  await Promise.all([made.tell(looks("work")), made.askForHelp(), made.tell(looks("work"))]);
  assert.equal(told().help.may_look, true);
  assert.match(told().help.text, /^my task x+$/);
  assert.equal([...told().help.text].length, 150);
  assert.equal(told().stopped, "work");
  assert.equal(seen.shown.at(-1), "$(bell-dot) Help Asked For");
  // Another window, or the same one later, takes it back.
  const other = open();
  await other.tell(looks());
  assert.equal(seen.shown.at(-1), "$(bell-dot) Help Asked For");
  Object.assign(seen, { chooses: "comes to you", types: "" });
  await other.askForHelp();
  assert.match(seen.value, /^my task/);
  assert.deepEqual(told().help, { text: "", may_look: false });
  seen.chooses = "No help";
  await other.askForHelp();
  await made.tell(looks());
  assert.equal(told().help, null);
  assert.equal(seen.shown.at(-1), "$(question) Ask for Help");
  assert.deepEqual(seen.picks.map((items) => items.length), [2, 3, 3]);
});

test("another window that looked before takes no wish back, and knows who was at work", async (t) => {
  t.mock.timers.enable({ apis: ["Date"], now: 1_000_000 });
  const { open, told, looks } = place(t);
  const [mine, teachers] = [open(), open()];
  await teachers.tell(looks());
  Object.assign(seen, { chooses: "may look", types: "why" });
  await mine.askForHelp();
  t.mock.timers.tick(10_000);
  await teachers.tell(looks("work"));
  assert.deepEqual(told().help, { text: "why", may_look: true });
  await mine.tell(looks("work"));
  t.mock.timers.tick(500_000);
  await mine.tell(looks("other"));
  t.mock.timers.tick(1_000);
  // The one that has seen nothing happen does not say more than the other knows.
  await teachers.tell(looks("work"));
  assert.equal(told().idle, 1);
});

test("what was known of labs is told while the cluster is not seen", async (t) => {
  const { open, told, looks } = place(t, { "01-one": { steps_done: 1, passed: false } });
  const made = open();
  await made.tell(looks());
  await made.tell({ cluster: null, jobs: [] });
  assert.equal(told().lab.title, "Lab 1: One");
});

test("whoever leaves the question asks for nothing", async (t) => {
  const { open, looks, told } = place(t);
  const made = open();
  await made.tell(looks());
  Object.assign(seen, { chooses: "nothing of it", types: "" });
  await made.askForHelp();
  Object.assign(seen, { chooses: "may look", types: undefined });
  await made.askForHelp();
  assert.equal(told().help, null);
});

test("time counts since the attendee did something", async (t) => {
  t.mock.timers.enable({ apis: ["Date"], now: 1_000_000 });
  const { open, told, looks } = place(t);
  const made = open();
  await made.tell(looks());
  t.mock.timers.tick(400_000);
  await made.tell(looks());
  assert.equal(told().idle, 400);
  acts.fire();
  t.mock.timers.tick(1_000);
  await made.tell(looks());
  assert.equal(told().idle, 1);
  t.mock.timers.tick(400_000);
  // A task that stops is something, too.
  await made.tell(looks("work"));
  assert.equal(told().idle, 0);
});

/** A program that packs so. */
function program(t, text) {
  const file = path.join(fs.mkdtempSync(path.join(os.tmpdir(), "a program ")), "pack-files");
  t.after(() => fs.rmSync(path.dirname(file), { recursive: true }));
  fs.writeFileSync(file, `#!/bin/sh\n${text}\n`, { mode: 0o700 });
  return file;
}

test("files are packed where the door has them from, and its page is opened by a click", async (t) => {
  const { open, file } = place(t);
  Object.assign(seen, { did: [], host: "192.0.2.1:8444", chooses: "Open the Page" });
  const made = open(program(t, 'echo "$#" > "$1"'));
  await made.takeFilesHome();
  assert.equal(fs.readFileSync(`${file}.tar.gz`, "utf8"), "1\n");
  const packed = "Your files are packed. A page says how to take them home.";
  assert.deepEqual(seen.did, ["saved", packed, "opened https://192.0.2.1:8444/_door/home"]);
  Object.assign(seen, { did: [], chooses: undefined });
  await made.takeFilesHome();
  assert.deepEqual(seen.did, ["saved", packed]);
  // Where the editor does not know by which host it is seen.
  Object.assign(seen, { did: [], host: "" });
  await made.takeFilesHome();
  assert.deepEqual(seen.did, ["saved", "Your files are packed: open /_door/home at the address of the workshop."]);
});

test("files that can't be packed are said to be none", async (t) => {
  const { open } = place(t);
  Object.assign(seen, { did: [], host: "192.0.2.1:8444", chooses: "Open the Page" });
  const failing = program(t, "echo 'These are more than 64 MiB.' >&2; exit 1");
  await assert.rejects(open(failing).takeFilesHome(), { message: "These are more than 64 MiB." });
  await assert.rejects(open(program(t, "exit 3")).takeFilesHome(), /exit code 3/);
  await assert.rejects(open("/none/pack-files").takeFilesHome(), /can't be run/);
  assert.deepEqual(seen.did, ["saved", "saved", "saved"]);
});

test("elsewhere nothing is written, and nothing is offered", async (t) => {
  Object.assign(seen, { commands: [], picks: [], shown: [], did: [] });
  const made = new Workshop(() => LABS, { debug: () => {} }, {});
  assert.deepEqual(made.register(), []);
  await made.tell({ cluster: null, jobs: [] });
  await made.askForHelp();
  await made.takeFilesHome();
  assert.deepEqual([seen.commands, seen.picks, seen.shown, seen.did], [[], [], [], []]);
});

test("a file that can't be written is no error of the editor", async (t) => {
  const { open, looks, file } = place(t);
  const made = open();
  fs.mkdirSync(file);
  await made.tell(looks());
  assert.equal(seen.problems.length, 1);
});
