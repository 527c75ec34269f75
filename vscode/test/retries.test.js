"use strict";

const assert = require("node:assert/strict");
const { createHash } = require("node:crypto");
const fs = require("node:fs/promises");
const os = require("node:os");
const path = require("node:path");
const test = require("node:test");
const { EventEmitter, script } = require("./vscode");

const saves = new EventEmitter();
const fails = new EventEmitter();
// What the user sees.
const user = { told: [], warned: [], progress: [], status: [] };

const workspace = {
  onDidSaveTextDocument: saves.event,
  // Of the open folder are all files but those in a folder `elsewhere`.
  getWorkspaceFolder: ({ fsPath }) => (fsPath.includes("/elsewhere/") ? undefined : { uri: { fsPath: os.tmpdir() } }),
  textDocuments: [],
};
script({
  ProgressLocation: { Notification: 15 },
  window: {
    showInformationMessage: async (text) => void user.told.push(text),
    showWarningMessage: async (text) => void user.warned.push(text),
    setStatusBarMessage: (text) => void user.status.push(text),
    withProgress: async ({ title }, act) => (user.progress.push(title), act()),
  },
  Uri: { file: (fsPath) => ({ fsPath }) },
  workspace,
});
const { Retries, RetryError, differing, outcomes } = require("../src/retries");

const hash = (text) => createHash("sha256").update(text).digest("hex");
const NOTHING = new Map();

async function folder(t) {
  const made = await fs.mkdtemp(path.join(os.tmpdir(), "retries-"));
  t.after(() => fs.rm(made, { recursive: true }));
  return made;
}

/** A file that is saved here. */
async function saved(t, content, name = "area.py") {
  const file = path.join(await folder(t), name);
  await fs.writeFile(file, content);
  return file;
}

/** A session whose relay answers so; a text is a refusal. */
function relay(answers) {
  const requests = [];
  const customRequest = async (command, args) => {
    requests.push([command, args]);
    if (!(command in answers)) throw new Error(`${command} is not scripted`);
    if (typeof answers[command] === "string") throw new Error(answers[command]);
    return answers[command];
  };
  return { requests, customRequest, sent: () => requests.filter(([command]) => command !== "sources") };
}

/** Retries of the sessions in which failed tasks stand still; the thread of `task` is 7. */
function retries(t, ...sessions) {
  Object.assign(user, { told: [], warned: [], progress: [], status: [] });
  const logged = [];
  const debugging = {
    onDidFail: fails.event,
    withFailed: sessions,
    failed: (task) => (task.workerId === "w" && sessions.length ? { session: sessions[0], threadId: 7 } : undefined),
  };
  const made = new Retries(debugging, { info: (text) => logged.push(text) });
  const listening = made.register();
  t.after(() => listening.forEach((each) => each.dispose()));
  return Object.assign(made, { logged });
}

const save = (languageId = "python") => saves.fire({ languageId });
const TASK = { workerId: "w", name: "area" };
const row = (outcome, why = "") => ({ task: "area", worker_id: "w", outcome, why });

async function until(is) {
  for (let round = 0; round < 1000 && !is(); round += 1) await new Promise((resolve) => setTimeout(resolve, 5));
  assert.ok(is());
}

test("files that differ from what tasks run are sent, equal ones and those that are not here are not", async (t) => {
  const edited = await saved(t, "a = 2\n");
  const equal = await saved(t, "b = 1\n");
  const running = { [edited]: hash("a = 1\n"), [equal]: hash("b = 1\n"), "/nowhere/x.py": hash("") };
  assert.deepEqual(await differing(running, NOTHING), [{ path: edited, text: "a = 2\n" }]);
});

test("a text is compared and sent as Python decodes it", async (t) => {
  const windows = await saved(t, "\ufeffa = 'ä'\r\nb = 1\rc = 2\r\n");
  assert.deepEqual(await differing({ [windows]: hash("a = 'ä'\nb = 1\nc = 2\n") }, NOTHING), []);
  for (const [name, bytes] of [
    ["latin-1", Buffer.from("# x\n# -*- coding: latin-1 -*-\na = 'ä'\n", "latin1")],
    ["gbk", Buffer.concat([Buffer.from("# coding: gbk\na = '"), Buffer.from([0xc4, 0xe3]), Buffer.from("'\n")])],
  ]) {
    const file = await saved(t, bytes);
    const [{ text }] = await differing({ [file]: hash("") }, NOTHING);
    assert.match(text, /a = '[ä你]'/, name);
  }
});

test("a file that was sent, and is again what tasks run, is sent once more: the relay would use the other text", async (t) => {
  const file = await saved(t, "a = 1\n");
  const running = { [file]: hash("a = 1\n") };
  assert.deepEqual(await differing(running, new Map([[file, hash("a = 2\n")]])), [{ path: file, text: "a = 1\n" }]);
  assert.deepEqual(await differing(running, new Map([[file, hash("a = 1\n")]])), []);
});

test("nothing but Python sources is read, whatever a process of the cluster names", async (t) => {
  const key = await saved(t, "secret\n", "id_rsa");
  const notAFile = await folder(t);
  await fs.mkdir(path.join(notAFile, "x.py"));
  assert.deepEqual(await differing({ [key]: hash(""), [path.join(notAFile, "x.py")]: hash("") }, NOTHING), []);
});

test("no file is read that is not in an open folder, nor open itself", async (t) => {
  const elsewhere = path.join(await folder(t), "elsewhere");
  await fs.mkdir(elsewhere);
  const file = path.join(elsewhere, "settings.py");
  await fs.writeFile(file, "KEY = 1\n");
  const upwards = `${path.dirname(elsewhere)}/open/../elsewhere/../elsewhere/settings.py`;
  assert.deepEqual(await differing({ [file]: hash(""), [upwards]: hash("") }, NOTHING), []);
  workspace.textDocuments = [{ uri: { fsPath: file } }];
  t.after(() => (workspace.textDocuments = []));
  assert.deepEqual(await differing({ [file]: hash("") }, NOTHING), [{ path: file, text: "KEY = 1\n" }]);
});

test("a file that can't be sent is named", async (t) => {
  const long = await saved(t, "#".repeat(1024 * 1024 + 1));
  assert.deepEqual(await differing({ [long]: hash("#".repeat(1024 * 1024 + 1)) }, NOTHING), []);
  await assert.rejects(differing({ [long]: hash("") }, NOTHING), /area\.py has more than 1 MiB: submit the job again/);
  const broken = await saved(t, Buffer.from([0x61, 0xff]));
  await assert.rejects(differing({ [broken]: hash("") }, NOTHING), /area\.py can't be read as utf-8: save it in UTF-8/);
  const unknown = await saved(t, "# coding: rot_13\n");
  await assert.rejects(differing({ [unknown]: hash("") }, NOTHING), /can't be read as rot_13/);
  const many = {};
  for (let number = 0; number < 8; number += 1) many[await saved(t, "#".repeat(1024 * 1024))] = hash("");
  await assert.rejects(differing(many, NOTHING), /more than 7 MiB together/);
});

test("what is saved while a failed task is stopped goes to its relay, for Restart Frame", async (t) => {
  const file = await saved(t, "a = 2\n");
  const session = relay({ sources: { files: { [file]: hash("a = 1\n") } }, edits: { edited: [] } });
  retries(t, session);
  save("markdown");
  save();
  await until(() => session.sent().length);
  assert.deepEqual(session.sent(), [["edits", { files: [{ path: file, text: "a = 2\n" }] }]]);
  assert.deepEqual(session.requests.map(([command]) => command), ["sources", "edits"]);
  await until(() => user.status.length);
  assert.deepEqual(user.status, ["Failed tasks run again with area.py"]);
});

test("so does what was saved before a task failed", async (t) => {
  const file = await saved(t, "a = 2\n");
  const session = relay({ sources: { files: { [file]: hash("a = 1\n") } }, edits: { edited: [] } });
  retries(t);
  fails.fire(session);
  await until(() => session.sent().length);
});

test("many that fail at once cost two looks at the files", async (t) => {
  const session = relay({ sources: { files: {} } });
  retries(t, session);
  for (let number = 0; number < 100; number += 1) fails.fire(session);
  await until(() => session.requests.length === 2);
  await new Promise((resolve) => setTimeout(resolve, 50));
  assert.deepEqual(session.requests.map(([command]) => command), ["sources", "sources"]);
});

test("unasked, a relay that refuses is told of in the log, and a file that can't be sent once to the user", async (t) => {
  const refused = relay({ sources: "this editor only watches" });
  const made = retries(t, refused);
  save();
  await until(() => made.logged.length);
  assert.match(made.logged[0], /this editor only watches/);
  assert.deepEqual(user.warned, []);
  const file = await saved(t, "#".repeat(1024 * 1024 + 1));
  const session = relay({ sources: { files: { [file]: hash("") } } });
  for (let round = 1; round <= 2; round += 1) {
    fails.fire(session);
    await until(() => made.logged.length === round + 1);
  }
  assert.deepEqual(user.warned.map((text) => /1 MiB/.test(text)), [true]);
});

test("a task is run again with the files that differ, and its outcome is shown", async (t) => {
  const file = await saved(t, "a = 2\n");
  const session = relay({ sources: { files: { [file]: hash("a = 1\n") } }, retry: { retried: [row("returned")] } });
  const made = retries(t, session);
  await made.retry(TASK);
  assert.deepEqual(session.sent(), [["retry", { threadId: 7, files: [{ path: file, text: "a = 2\n" }] }]]);
  assert.deepEqual([user.progress, user.told, user.warned], [["Running area again …"], ["Area returned."], []]);
});

test("all failed tasks of all sessions are run again; a failure is a warning", async (t) => {
  const sessions = [["returned", ""], ["raised", "ValueError: [no](command:x)"]].map(([outcome, why]) =>
    relay({ sources: { files: {} }, retry: { retried: [row(outcome, why)] } }),
  );
  const made = retries(t, ...sessions);
  await made.retryFailed();
  for (const session of sessions) assert.deepEqual(session.sent(), [["retry", { group: "failed", files: [] }]]);
  assert.deepEqual([user.told, user.warned], [[], ["1 returned, 1 raised: ValueError: [no] (command:x)."]]);
});

test("what can't be retried is an error in one sentence", async (t) => {
  const refuses = relay({ sources: { files: {} }, retry: "nothing of @failed has failed and waits" });
  await assert.rejects(retries(t, refuses).retryFailed(), new RetryError("nothing of @failed has failed and waits"));
  await assert.rejects(retries(t, refuses).retry({ workerId: "v", name: "\u202earea" }), /^Error: \\u202earea is not stopped by a failure here/);
  await assert.rejects(retries(t).retryFailed(), /no task that failed is stopped here/);
});

test("outcomes by kind: what returned first, then the most frequent", () => {
  const rows = (number, ...what) => Array(number).fill(row(...what));
  assert.equal(outcomes([...rows(2, "raised", "ValueError: no"), ...rows(18, "returned")]), "18 returned, 2 raised: ValueError: no");
  const kinds = [1, 2, 3, 4].flatMap((number) => rows(number, "raised", `E${number}`));
  assert.equal(outcomes(kinds), "4 raised: E4, 3 raised: E3, 2 raised: E2, 1 otherwise");
});
