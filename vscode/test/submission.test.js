"use strict";

const assert = require("node:assert/strict");
const fs = require("node:fs/promises");
const os = require("node:os");
const path = require("node:path");
const test = require("node:test");
const { command, hadModules, submit, submitted, workingDirs } = require("../src/submission");

const SCRIPT = { file: "/p/a.py", workingDir: "/p", modules: [] };
const PACKAGE = "/tmp/ray/session_x/runtime_resources/working_dir_files/_ray_pkg_1";

test("the working_dir: what Ray unpacked, else the open folder, else the script's own", () => {
  assert.deepEqual(workingDirs(`${PACKAGE}/sub/a.py`, "/tmp/ray/session_x/runtime_resources"), [PACKAGE]);
  assert.deepEqual(workingDirs("/p/sub/a.py", "/p"), ["/p", "/p/sub"]);
  assert.deepEqual(workingDirs("/p/a.py", "/p"), ["/p"]);
  assert.deepEqual(workingDirs("/p/a.py", undefined), ["/p"]);
});

const jobs = [
  { start_time: 1, metadata: { "rayside.working_dir": "/p", "rayside.py_modules": '["/new"]' } },
  { start_time: 2, metadata: { "rayside.working_dir": "/q" }, runtime_env: { working_dir: "gcs://_ray_pkg_1.zip" } },
  { start_time: 3, metadata: null },
];

test("whether a job from a folder has sent packages, and not which", () => {
  assert.equal(hadModules(jobs, "/p"), true);
  assert.equal(hadModules(jobs, "/q"), false);
  assert.equal(hadModules(jobs, PACKAGE), false);
  const unpacked = { metadata: { "rayside.py_modules": "x" }, runtime_env: { working_dir: "gcs://_ray_pkg_1.zip" } };
  assert.equal(hadModules([unpacked], PACKAGE), true);
});

test("the command: the cluster file's words, then the job's", () => {
  const cluster = { submit: ["/a b/invokew", "submit"] };
  const words = command(cluster, { file: "/p/it's $x.py", workingDir: "/p", modules: ["/m", "/n"] });
  assert.deepEqual(words, [
    ...["/a b/invokew", "submit", "--debug", "--working-dir", "/p"],
    ...["--entrypoint", `python 'it'"'"'s $x.py'`, "--json", "--py-modules", "/m", "--py-modules", "/n"],
  ]);
});

test("what the program prints", () => {
  const read = (code, out, err = "") => submitted("p", { code, out, err });
  assert.equal(read(0, '{"submission_id": "run-1"}\n', "noise"), "run-1");
  assert.throws(() => read(3, '{"error": {"id": "x", "message": "no folder", "hint": "make it"}}'), {
    message: "no folder",
    hint: "make it",
    id: "x",
  });
  assert.throws(() => read(1, "", "Traceback\n  line\nValueError: bad"), { message: /exit code 1.*bad/ });
  assert.throws(() => read(1, '{"submission_id": "run-1"}'), { message: "p ended with exit code 1" });
  assert.throws(() => read(0, "{}"), { message: /named no job/ });
  assert.throws(() => read(0, "null"), { message: /named no job/ });
});

/** A program that does what the text says, in a folder with a space in its name. */
async function program(t, text) {
  const folder = await fs.mkdtemp(path.join(os.tmpdir(), "ray breakpoints "));
  t.after(() => fs.rm(folder, { recursive: true }));
  const file = path.join(folder, "submit");
  await fs.writeFile(file, `#!/bin/sh\n${text}\n`, { mode: 0o700 });
  return file;
}

test("the program gets its arguments and its environment", async (t) => {
  const file = await program(t, `printf '{"submission_id": "%s %s %s"}' "$TARGET" "$1" "$5"`);
  const cluster = { submit: [file, "one"], environment: { TARGET: "kind" } };
  assert.equal(await submit(cluster, SCRIPT, new AbortController().signal), "kind one --entrypoint");
});

test("a program that is not there is said", async () => {
  const cluster = { submit: ["/nowhere/invokew"], environment: {} };
  await assert.rejects(submit(cluster, SCRIPT, new AbortController().signal), {
    message: "/nowhere/invokew can't be run: ENOENT",
  });
});

test("a program that prints too much is ended, and that is said", async (t) => {
  const cluster = { submit: [await program(t, "exec yes")], environment: {} };
  await assert.rejects(submit(cluster, SCRIPT, new AbortController().signal), {
    message: `${cluster.submit[0]} printed too much`,
  });
});

test("a cancelled submission ends its program", async (t) => {
  const cluster = { submit: [await program(t, "exec sleep 60")], environment: {} };
  const abort = new AbortController();
  const submitting = submit(cluster, SCRIPT, abort.signal);
  abort.abort();
  await assert.rejects(submitting, { message: "it was cancelled" });
});

test("without a program to submit with, that is said", async () => {
  await assert.rejects(submit({ submit: [] }, SCRIPT, new AbortController().signal), {
    message: /can't be submitted from here/,
  });
});
