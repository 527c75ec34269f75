"use strict";

const assert = require("node:assert/strict");
const http = require("node:http");
const net = require("node:net");
const test = require("node:test");
const { Dashboard } = require("../src/dashboard");
const { ask } = require("../src/relay");
const { otherUser } = require("../src/listener");

const linux = process.platform === "linux";

/** A connection to a listener of this process; `address` is what it listens on. */
async function connected(t, address, to = "127.0.0.1") {
  const server = net.createServer(() => {});
  await new Promise((resolve) => server.listen(0, address, resolve));
  const socket = net.connect(server.address().port, to);
  await new Promise((resolve) => socket.once("connect", resolve));
  t.after(() => (socket.destroy(), server.close()));
  return socket;
}

for (const [address, to] of [["127.0.0.1"], ["0.0.0.0"], ["::"], ["::1", "::1"]]) {
  test(`whose a listener on ${address} is is known`, { skip: !linux && "no /proc" }, async (t) => {
    const socket = await connected(t, address, to);
    const uid = process.geteuid();
    assert.equal(await otherUser(socket), "");
    assert.match(await otherUser(socket, [], { uid: uid + 1 }), /another user/);
    assert.equal(await otherUser(socket, [uid], { uid: uid + 1 }), "");
  });
}

test("a connection that nobody has taken is known by who listens", async (t) => {
  const socket = await connected(t, "127.0.0.1");
  const hex = (port) => port.toString(16).toUpperCase().padStart(4, "0");
  const line = (local, remote, state, owner, inode) => `0: ${local} ${remote} ${state} 0:0 0:0 0 ${owner} 0 ${inode}`;
  const [far, near] = [`0100007F:${hex(socket.remotePort)}`, `0100007F:${hex(socket.localPort)}`];
  const whose = (...lines) => otherUser(socket, [], { uid: 7, tables: async () => lines });
  const waiting = line(far, near, "01", 0, 0);
  assert.equal(await whose(waiting, line(far, "00000000:0000", "0A", 7, 1)), "");
  assert.notEqual(await whose(waiting, line(far, "00000000:0000", "0A", 8, 1)), "");
  // The one that took it counts, and not who listens by now.
  assert.notEqual(await whose(line(far, near, "01", 8, 2), line(far, "00000000:0000", "0A", 7, 1)), "");
  assert.notEqual(await whose(), "");
});

test("neither the dashboard's client nor the relay's sends another user anything", { skip: !linux && "no /proc" }, async (t) => {
  const received = [];
  const server = net.createServer((socket) => socket.on("error", () => {}).on("data", (data) => received.push(data)));
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  t.after(() => server.close());
  const { port } = server.address();
  const own = process.geteuid;
  process.geteuid = () => own() + 1;
  t.after(() => (process.geteuid = own));
  const dashboard = new Dashboard(`http://127.0.0.1:${port}`, "secret", 20_000);
  await assert.rejects(dashboard.jobs(), { kind: "down", message: /another user/ });
  await assert.rejects(ask({ host: "127.0.0.1", port }, "pausedTasks", { token: "secret" }, 20_000), {
    kind: "down",
    message: /another user/,
  });
  assert.deepEqual(received, []);
});

test("what the cluster file trusts may have the token, as a pod's other containers", { skip: !linux && "no /proc" }, async (t) => {
  const server = http.createServer((request, response) => response.end("[]"));
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  t.after(() => (server.closeAllConnections(), server.close()));
  const own = process.geteuid;
  process.geteuid = () => own() + 1;
  t.after(() => (process.geteuid = own));
  const dashboard = new Dashboard(`http://127.0.0.1:${server.address().port}`, "secret", 20_000, [own()]);
  assert.deepEqual(await dashboard.jobs(), []);
});
