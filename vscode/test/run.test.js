"use strict";

const assert = require("node:assert/strict");
const fs = require("node:fs/promises");
const http = require("node:http");
const os = require("node:os");
const path = require("node:path");
const test = require("node:test");
const { script } = require("./vscode");

const answers = { picks: [], folders: [], setting: [] };
const asked = [];
script({
  Uri: { file: (fsPath) => ({ scheme: "file", fsPath }) },
  ProgressLocation: { Notification: 15 },
  workspace: {
    openTextDocument: async () => ({ isUntitled: false, isDirty: false }),
    getWorkspaceFolder: (uri) => ({ uri: { fsPath: path.dirname(uri.fsPath) } }),
    getConfiguration: () => ({ get: () => answers.setting }),
  },
  window: {
    withProgress: (options, work) => work({}, { onCancellationRequested: () => undefined }),
    showQuickPick: async (items) => {
      asked.push(items.map(({ label }) => label));
      return items[answers.picks.shift()];
    },
    showOpenDialog: async () => answers.folders.shift()?.map((fsPath) => ({ fsPath })),
  },
});
const { runScript } = require("../src/run");

/** A folder with a script, two packages, a submit program that keeps its words, and another user's job in Ray. */
async function stage(t) {
  const folder = await fs.mkdtemp(path.join(os.tmpdir(), "ray breakpoints "));
  const [code, mine, theirs] = ["code", "mine", "theirs"].map((name) => path.join(folder, name));
  for (const each of [code, mine, theirs]) await fs.mkdir(each);
  const program = path.join(folder, "submit");
  await fs.writeFile(program, `#!/bin/sh\nprintf '{"submission_id": "%s"}' "$*"\n`, { mode: 0o700 });
  const job = {
    metadata: { "rayside.working_dir": code, "rayside.py_modules": JSON.stringify([theirs]) },
    runtime_env: { py_modules: ["gcs://_ray_pkg_theirs.zip"] },
  };
  const jobs = [job];
  const server = http.createServer((request, response) => response.end(JSON.stringify(jobs)));
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  t.after(async () => {
    server.close();
    await fs.rm(folder, { recursive: true });
  });
  const kept = new Map();
  const cluster = { dashboard: `http://127.0.0.1:${server.address().port}`, submit: [program], environment: {}, trusted: [] };
  const submitted = [];
  const parts = {
    access: { cluster: async () => cluster, token: async () => "" },
    debugging: { start: async (words) => submitted.push(words.split("--json")[1].trim()) },
    memory: { get: (key, other) => kept.get(key) ?? other, update: async (key, value) => kept.set(key, value) },
  };
  asked.length = 0;
  const click = () => runScript({ scheme: "file", fsPath: path.join(code, "a.py") }, parts);
  return { click, submitted, jobs, mine, theirs };
}

test("packages are chosen here and remembered, whatever jobs the cluster has", async (t) => {
  const { click, submitted, jobs, mine } = await stage(t);
  Object.assign(answers, { picks: [1], folders: [[mine]], setting: [] });
  await click();
  jobs.push({ ...jobs[0], start_time: Date.now() });
  await click();
  assert.deepEqual(submitted, [`--py-modules ${mine}`, `--py-modules ${mine}`]);
  assert.deepEqual(asked, [["No others", "Choose folders..."]]);
});

test("who needs none is asked once, and who chooses nothing submits nothing", async (t) => {
  const { click, submitted } = await stage(t);
  Object.assign(answers, { picks: [undefined, 1, 0], folders: [undefined], setting: [] });
  for (let clicks = 0; clicks < 4; clicks += 1) await click();
  assert.deepEqual(submitted, ["", ""]);
  assert.equal(asked.length, 3);
});

test("without such a job, or with the setting, nothing is asked", async (t) => {
  const { click, submitted, jobs, mine } = await stage(t);
  Object.assign(answers, { picks: [], folders: [], setting: [mine] });
  await click();
  answers.setting = [];
  jobs.length = 0;
  await click();
  assert.deepEqual(submitted, [`--py-modules ${mine}`, ""]);
  assert.deepEqual(asked, []);
});

test("a chosen folder that is gone is asked for again", async (t) => {
  const { click, submitted, jobs, mine, theirs } = await stage(t);
  Object.assign(answers, { picks: [1, 1], folders: [[mine], [theirs]], setting: [] });
  await click();
  jobs.length = 0;
  await fs.rm(mine, { recursive: true });
  await click();
  assert.deepEqual(submitted, [`--py-modules ${mine}`, `--py-modules ${theirs}`]);
});
