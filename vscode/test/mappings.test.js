"use strict";

const assert = require("node:assert/strict");
const fs = require("node:fs/promises");
const os = require("node:os");
const path = require("node:path");
const test = require("node:test");
const { pathMappings } = require("../src/mappings");

async function links(t) {
  const folder = await fs.realpath(await fs.mkdtemp(path.join(os.tmpdir(), "ray-breakpoints-")));
  t.after(() => fs.rm(folder, { recursive: true }));
  await fs.mkdir(path.join(folder, "session_1", "files"), { recursive: true });
  await fs.symlink("session_1", path.join(folder, "session_latest"));
  return folder;
}

test("shared files: links are followed, the session's always", async (t) => {
  const folder = await links(t);
  const session = path.join(folder, "session_latest");
  const open = path.join(session, "files");
  const plain = path.join(folder, "session_1");
  assert.deepEqual(await pathMappings([open, plain], true, session), [
    { localRoot: open, remoteRoot: path.join(plain, "files") },
    { localRoot: session, remoteRoot: plain },
  ]);
});

test("shared files without any link: nothing to map", async (t) => {
  const folder = await links(t);
  assert.deepEqual(await pathMappings([folder], true, path.join(folder, "absent")), []);
});

test("files that are not shared: the first folder is the working_dir", async () => {
  assert.deepEqual(await pathMappings(["/a", "/b"], false), [{ localRoot: "/a", remoteRoot: "." }]);
  assert.deepEqual(await pathMappings([], false), []);
});
