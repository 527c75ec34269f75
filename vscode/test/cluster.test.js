"use strict";

const assert = require("node:assert/strict");
const fs = require("node:fs/promises");
const os = require("node:os");
const path = require("node:path");
const test = require("node:test");
const { ClusterError, find, launchRelay, readToken, relayAddress } = require("../src/cluster");
const { stateFolder } = require("../src/state_folder");

const uid = process.getuid();
const WRITTEN = {
  dashboard: "http://127.0.0.1:8265",
  relay: { host: "127.0.0.1", port: 5678 },
  token_file: "/state/token",
  verbs: ["/rayside/invokew"],
  submit: ["/rayside/invokew", "submit"],
  environment: { INVOKE_RAYSIDE_TARGET: "local" },
  shared_files: true,
  target: "local",
  user: "anna",
};

async function folder(t) {
  const made = await fs.mkdtemp(path.join(os.tmpdir(), "ray-breakpoints-"));
  t.after(() => fs.rm(made, { recursive: true }));
  return made;
}

/** Writes the file of the cluster `name` as `up` does, with that time of change in seconds. */
async function write(base, state, document, seconds = 0, name = "rayside") {
  const folder = path.join(base, state, name);
  await fs.mkdir(folder, { mode: 0o700, recursive: true });
  const file = path.join(folder, "cluster.json");
  await fs.writeFile(file, typeof document === "string" ? document : JSON.stringify(document), { mode: 0o600 });
  await fs.utimes(file, seconds, seconds);
  return file;
}

test("without a file or a setting there is no cluster", async (t) => {
  assert.equal(await find({}, {}, { uid, state: path.join(await folder(t), `rayside-${uid}`) }), null);
});

test("the state folder's file is found", async (t) => {
  const base = await folder(t);
  await write(base, `rayside-${uid}`, WRITTEN);
  assert.deepEqual(await find({}, {}, { uid, state: path.join(base, `rayside-${uid}`) }), {
    dashboard: "http://127.0.0.1:8265",
    relay: { host: "127.0.0.1", port: 5678, trusted: [] },
    trusted: [],
    tokenFile: "/state/token",
    verbs: ["/rayside/invokew"],
    submit: ["/rayside/invokew", "submit"],
    environment: { INVOKE_RAYSIDE_TARGET: "local" },
    sharedFiles: true,
    target: "local",
    user: "anna",
  });
});

for (const newer of ["rayside", "demo"]) {
  test(`of two the newest counts, where none is named: ${newer}`, async (t) => {
    const base = await folder(t);
    for (const name of ["rayside", "demo"]) await write(base, "mine", { ...WRITTEN, target: name }, name === newer ? 200 : 100, name);
    const state = path.join(base, "mine");
    assert.equal((await find({}, {}, { uid, state })).target, newer);
    assert.equal((await find({}, { INVOKE_RAYSIDE_NAME: "demo" }, { uid, state })).target, "demo");
    assert.equal(await find({}, { INVOKE_RAYSIDE_NAME: "another" }, { uid, state }), null);
  });
}

test("the state folder that the environment names is the one that is looked through", async (t) => {
  const base = await folder(t);
  await write(base, "my state", { ...WRITTEN, target: "kind" }, 100);
  const environment = { INVOKE_RAYSIDE_STATE_FOLDER: path.join(base, "my state"), XDG_STATE_HOME: "/nowhere" };
  assert.equal((await find({}, environment, { uid })).target, "kind");
});

test("what else lies in the state folder is no cluster", async (t) => {
  const base = await folder(t);
  await write(base, "mine", WRITTEN);
  await fs.mkdir(path.join(base, "mine", "empty"), { mode: 0o700 });
  await fs.mkdir(path.join(base, "mine", "open to others"), { mode: 0o755 });
  await fs.writeFile(path.join(base, "mine", ".DS_Store"), "", { mode: 0o644 });
  assert.equal((await find({}, {}, { uid, state: path.join(base, "mine") })).target, "local");
});

test("the variable's file wins over both", async (t) => {
  const base = await folder(t);
  await write(base, `rayside-${uid}`, WRITTEN, 200);
  const given = await write(base, "elsewhere", { dashboard: "http://head:8265", target: "kind" }, 100);
  const found = await find({}, { RAYSIDE_CLUSTER_FILE: given }, { uid, state: path.join(base, `rayside-${uid}`) });
  assert.equal(found.dashboard, "http://head:8265");
  assert.deepEqual([found.submit, found.verbs], [[], []]);
  assert.equal(found.sharedFiles, false);
});

test("the variable's file is not there yet: none is taken in its place", async (t) => {
  const base = await folder(t);
  await write(base, `rayside-${uid}`, WRITTEN);
  assert.equal(await find({}, { RAYSIDE_CLUSTER_FILE: path.join(base, "absent") }, { uid, state: path.join(base, `rayside-${uid}`) }), null);
});

test("each setting wins over its field alone", async (t) => {
  const base = await folder(t);
  await write(base, `rayside-${uid}`, WRITTEN);
  const of = (settings) => find(settings, {}, { uid, state: path.join(base, `rayside-${uid}`) });
  assert.equal((await of({ dashboard: "http://other:1/" })).dashboard, "http://other:1");
  assert.deepEqual((await of({ relay: "other:2" })).relay, { host: "other", port: 2, trusted: [] });
  assert.equal((await of({ tokenFile: "/t" })).tokenFile, "/t");
  assert.deepEqual((await of({ tokenFile: "/t" })).submit, WRITTEN.submit);
});

test("a dashboard's address is enough", async (t) => {
  const found = await find({ dashboard: "http://other:1" }, {}, { uid, state: path.join(await folder(t), `rayside-${uid}`) });
  assert.deepEqual([found.relay, found.tokenFile], [{ host: "127.0.0.1", port: 5678, trusted: [] }, ""]);
});

for (const [what, spoil] of [
  ["a folder that others may write", (state) => fs.chmod(state, 0o777)],
  ["a folder that others may look into", (state) => fs.chmod(state, 0o750)],
  ["a link to a folder", async (state) => {
    await fs.rename(state, `${state}.real`);
    await fs.symlink(`${state}.real`, state);
  }],
  ["a file", async (state) => {
    await fs.rm(state, { recursive: true });
    await fs.writeFile(state, "", { mode: 0o600 });
  }],
]) {
  // A file in a state folder is no cluster, and what a link there leads to may be one in its own right.
  for (const spoiled of /file|link/.test(what) ? ["mine"] : ["mine", "mine/rayside"]) {
    test(`refused, for its program is run and the token sent: ${what}, ${spoiled}`, async (t) => {
      const base = await folder(t);
      await write(base, "mine", WRITTEN);
      await spoil(path.join(base, spoiled));
      await assert.rejects(find({}, {}, { uid, state: path.join(base, "mine") }), (error) => {
        assert.ok(error instanceof ClusterError);
        assert.ok(error.message.startsWith(path.join(base, spoiled)), error.message);
        return true;
      });
    });
  }
}

test("refused: a folder of somebody else", async (t) => {
  const base = await folder(t);
  await write(base, "theirs", WRITTEN);
  await assert.rejects(find({}, {}, { uid: uid + 1, state: path.join(base, "theirs") }), ClusterError);
});

test("refused: the variable's file, where others may write it", async (t) => {
  const base = await folder(t);
  const given = await write(base, "elsewhere", WRITTEN);
  await fs.chmod(given, 0o666);
  await assert.rejects(find({}, { RAYSIDE_CLUSTER_FILE: given }, { uid }), ClusterError);
  await fs.chmod(given, 0o644);
  assert.equal((await find({}, { RAYSIDE_CLUSTER_FILE: given }, { uid })).target, "local");
  // As in an image, where root has written it.
  if (uid === 0) assert.equal((await find({}, { RAYSIDE_CLUSTER_FILE: given }, { uid: 1000 })).target, "local");
  if (uid === 0) await fs.chown(given, 1001, 1001);
  await assert.rejects(find({}, { RAYSIDE_CLUSTER_FILE: given }, { uid: 1000 }), ClusterError);
});

test("the state folder is where ./invokew has it", () => {
  const linux = { home: "/home/me", host: "a/b", platform: "linux" };
  assert.equal(stateFolder({}, linux), "/home/me/.local/state/rayside-a-b");
  assert.equal(stateFolder({}, { ...linux, platform: "darwin" }), "/home/me/.local/state/rayside");
  assert.equal(stateFolder({ XDG_STATE_HOME: "/x" }, linux), "/x/rayside-a-b");
  assert.equal(stateFolder({ XDG_STATE_HOME: "x" }, linux), "/home/me/.local/state/rayside-a-b");
  assert.equal(stateFolder({ XDG_STATE_HOME: "/x", INVOKE_RAYSIDE_STATE_FOLDER: "/mine" }, linux), "/mine");
  assert.equal(stateFolder({}, { ...linux, home: "" }), `/tmp/rayside-${uid}`);
});

for (const document of [
  "not JSON",
  "[]",
  {},
  { ...WRITTEN, relay: { host: "x" } },
  { ...WRITTEN, submit: "a b" },
  { ...WRITTEN, verbs: ["a", 1] },
  { ...WRITTEN, environment: { A: 1 } },
  { ...WRITTEN, token_file: 1 },
  { ...WRITTEN, trusted_uids: "1000" },
  { ...WRITTEN, user: ["anna"] },
]) {
  test(`refused with the file's name: ${JSON.stringify(document).slice(0, 60)}`, async (t) => {
    const base = await folder(t);
    const file = await write(base, `rayside-${uid}`, document);
    await assert.rejects(find({}, {}, { uid, state: path.join(base, `rayside-${uid}`) }), (error) => {
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

test("a launch configuration can't send the token anywhere but to the cluster's own relay", () => {
  const known = { host: "127.0.0.1", port: 5678 };
  assert.equal(launchRelay({}, known), known);
  for (const same of ["127.0.0.1:5678", "localhost:5678"]) assert.equal(launchRelay({ relay: same }, known), known);
  for (const other of ["127.0.0.1:9", "localhost:9", "[::1]:5678", "ray.example:5678"]) {
    assert.throws(() => launchRelay({ relay: other }, known), /not the cluster's/, other);
  }
  assert.throws(() => launchRelay({ relay: "127.0.0.1:5678" }, undefined), ClusterError);
});

test("a launch configuration can't say where the token is", () => {
  const known = { host: "127.0.0.1", port: 5678 };
  assert.throws(() => launchRelay({ tokenFile: "/home/me/.ssh/id" }, known), /rayBreakpoints\.tokenFile/);
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
