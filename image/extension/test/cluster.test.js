"use strict";

const assert = require("node:assert/strict");
const fs = require("node:fs/promises");
const os = require("node:os");
const path = require("node:path");
const test = require("node:test");
const { ClusterError, find, launchRelay, readToken, relayAddress } = require("../src/cluster");

const uid = process.getuid();
const WRITTEN = {
  dashboard: "http://127.0.0.1:8265",
  relay: { host: "127.0.0.1", port: 5678 },
  token_file: "/state/token",
  submit: ["/rayside/invokew", "submit"],
  environment: { INVOKE_RAYSIDE_TARGET: "local" },
  shared_files: true,
  target: "local",
};

async function folder(t) {
  const made = await fs.mkdtemp(path.join(os.tmpdir(), "ray-breakpoints-"));
  t.after(() => fs.rm(made, { recursive: true }));
  return made;
}

/** Writes a cluster file as `up` does, with that time of change in seconds. */
async function write(base, name, document, seconds = 0) {
  const state = path.join(base, name);
  await fs.mkdir(state, { mode: 0o700 });
  const file = path.join(state, "cluster.json");
  await fs.writeFile(file, typeof document === "string" ? document : JSON.stringify(document), { mode: 0o600 });
  await fs.utimes(file, seconds, seconds);
  return file;
}

test("without a file or a setting there is no cluster", async (t) => {
  assert.equal(await find({}, {}, { uid, folder: await folder(t) }), null);
});

test("the state folder's file is found", async (t) => {
  const base = await folder(t);
  await write(base, `rayside-${uid}`, WRITTEN);
  assert.deepEqual(await find({}, {}, { uid, folder: base }), {
    dashboard: "http://127.0.0.1:8265",
    relay: { host: "127.0.0.1", port: 5678 },
    tokenFile: "/state/token",
    submit: ["/rayside/invokew", "submit"],
    environment: { INVOKE_RAYSIDE_TARGET: "local" },
    sharedFiles: true,
    target: "local",
  });
});

for (const [newer, target] of [["", "local"], ["-kind", "kind"]]) {
  test(`of two the newest counts: ${target}`, async (t) => {
    const base = await folder(t);
    for (const [suffix, name] of [["", "local"], ["-kind", "kind"]]) {
      await write(base, `rayside-${uid}${suffix}`, { ...WRITTEN, target: name }, suffix === newer ? 200 : 100);
    }
    assert.equal((await find({}, {}, { uid, folder: base })).target, target);
  });
}

for (const [suffix, target] of [["", "local"], ["-kind", "kind"]]) {
  test(`a state folder of one's own is the one that is looked through: ${target}`, async (t) => {
    const base = await folder(t);
    await write(base, `rayside-${uid}`, { ...WRITTEN, target: "another" }, 200);
    await write(base, `my state${suffix}`, { ...WRITTEN, target }, 100);
    const environment = { INVOKE_RAYSIDE_STATE_FOLDER: path.join(base, "my state") };
    assert.equal((await find({}, environment, { uid, folder: base })).target, target);
  });
}

test("the variable's file wins over both", async (t) => {
  const base = await folder(t);
  await write(base, `rayside-${uid}`, WRITTEN, 200);
  const given = await write(base, "elsewhere", { dashboard: "http://head:8265", target: "kind" }, 100);
  const found = await find({}, { RAYSIDE_CLUSTER_FILE: given }, { uid, folder: base });
  assert.equal(found.dashboard, "http://head:8265");
  assert.deepEqual(found.submit, []);
  assert.equal(found.sharedFiles, false);
});

test("the variable's file is not there yet: none is taken in its place", async (t) => {
  const base = await folder(t);
  await write(base, `rayside-${uid}`, WRITTEN);
  assert.equal(await find({}, { RAYSIDE_CLUSTER_FILE: path.join(base, "absent") }, { uid, folder: base }), null);
});

test("each setting wins over its field alone", async (t) => {
  const base = await folder(t);
  await write(base, `rayside-${uid}`, WRITTEN);
  const of = (settings) => find(settings, {}, { uid, folder: base });
  assert.equal((await of({ dashboard: "http://other:1/" })).dashboard, "http://other:1");
  assert.deepEqual((await of({ relay: "other:2" })).relay, { host: "other", port: 2 });
  assert.equal((await of({ tokenFile: "/t" })).tokenFile, "/t");
  assert.deepEqual((await of({ tokenFile: "/t" })).submit, WRITTEN.submit);
});

test("a dashboard's address is enough", async (t) => {
  const found = await find({ dashboard: "http://other:1" }, {}, { uid, folder: await folder(t) });
  assert.deepEqual([found.relay, found.tokenFile], [{ host: "127.0.0.1", port: 5678 }, ""]);
});

for (const [what, spoil] of [
  ["a folder that others may write", (file) => fs.chmod(path.dirname(file), 0o777)],
  ["a file that others may write", (file) => fs.chmod(file, 0o666)],
  ["a link", async (file) => {
    await fs.rename(file, `${file}.real`);
    await fs.symlink(`${file}.real`, file);
  }],
]) {
  test(`not taken, for its program is run: ${what}`, async (t) => {
    const base = await folder(t);
    await spoil(await write(base, `rayside-${uid}`, WRITTEN));
    assert.equal(await find({}, {}, { uid, folder: base }), null);
  });
}

test("not taken: a file of somebody else", async (t) => {
  const base = await folder(t);
  await write(base, `rayside-${uid + 1}`, WRITTEN);
  assert.equal(await find({}, {}, { uid: uid + 1, folder: base }), null);
});

for (const document of [
  "not JSON",
  "[]",
  {},
  { ...WRITTEN, relay: { host: "x" } },
  { ...WRITTEN, submit: "a b" },
  { ...WRITTEN, environment: { A: 1 } },
  { ...WRITTEN, token_file: 1 },
]) {
  test(`refused with the file's name: ${JSON.stringify(document).slice(0, 60)}`, async (t) => {
    const base = await folder(t);
    const file = await write(base, `rayside-${uid}`, document);
    await assert.rejects(find({}, {}, { uid, folder: base }), (error) => {
      assert.ok(error instanceof ClusterError);
      assert.ok(error.message.startsWith(file), error.message);
      return true;
    });
  });
}

test("addresses of a relay", () => {
  assert.deepEqual(relayAddress(" localhost:5678 "), { host: "localhost", port: 5678 });
  assert.deepEqual(relayAddress("[::1]:1"), { host: "::1", port: 1 });
  for (const wrong of ["", "5678", "a:", "a:0", "a:65536", "a b:1", "http://a:1", "::1:5"]) {
    assert.throws(() => relayAddress(wrong), ClusterError, wrong);
  }
});

test("a launch configuration can't send the token to a machine that the user did not set", () => {
  const known = { host: "ray.example", port: 5678 };
  assert.deepEqual(launchRelay("ray.example:5678", known), known);
  for (const here of ["127.0.0.1:9", "localhost:9", "[::1]:9"]) assert.equal(launchRelay(here, known).port, 9);
  for (const other of ["ray.example:9", "elsewhere.example:5678"]) {
    assert.throws(() => launchRelay(other, known), /rayBreakpoints\.relay/, other);
  }
  assert.throws(() => launchRelay("ray.example:5678", undefined), ClusterError);
});

test("a token is read without its line end", async (t) => {
  const file = path.join(await folder(t), "token");
  await fs.writeFile(file, "abc\n");
  assert.equal(await readToken(file), "abc");
});

test("a token file that is absent, empty or another file is said", async (t) => {
  const file = path.join(await folder(t), "token");
  await assert.rejects(readToken(file), { message: /can't be read.*ENOENT/ });
  await fs.writeFile(file, "\n");
  await assert.rejects(readToken(file), { message: /is empty/ });
  await fs.writeFile(file, "two words");
  await assert.rejects(readToken(file), (error) => {
    assert.match(error.message, /more than a token/);
    assert.doesNotMatch(error.message, /words/);
    return true;
  });
});
