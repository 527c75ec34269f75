/** Owner check of loopback connections: Ray's token is sent only to this user's own programs. */
"use strict";

const fs = require("node:fs/promises");
const http = require("node:http");
const net = require("node:net");
const os = require("node:os");

const LISTENING = "0A";

/**
 * Why no secret may be sent over a connected socket; "" if its far end is a program of this user or of a `trusted`
 * uid, or another machine. As in rayside/loopback.py, which explains it.
 *
 * Without /proc the owner is unknown, and sending is allowed.
 *
 * @param {net.Socket} socket
 * @param {number[]} trusted
 */
async function otherUser(socket, trusted = [], { uid = process.geteuid?.(), tables = sockets } = {}) {
  const server = end(socket.remoteAddress, socket.remotePort);
  const client = end(socket.localAddress, socket.localPort);
  if (!server || !isLoopback(server.address)) return "";
  const owners = ownersOf(await tables(), server, client);
  if (!owners) return "";
  const allowed = [uid, ...trusted];
  if (owners.length && owners.every((owner) => allowed.includes(owner))) return "";
  return `is held by another user's program (port ${server.port}), which was sent nothing`;
}

/** The uid of the far end, or of the listener before it accepts the connection. Null if unknown. */
function ownersOf(lines, server, client) {
  if (!lines) return null;
  const ending = `:${server.port.toString(16).toUpperCase().padStart(4, "0")}`;
  const listening = new Map();
  for (const line of lines) {
    const columns = line.trim().split(/\s+/);
    if (!columns[1]?.endsWith(ending)) continue;
    const here = decoded(columns[1]);
    const there = decoded(columns[2]);
    const taken = columns[9] !== "0";
    if (taken && here.address === server.address && there.address === client.address && there.port === client.port) {
      return [Number(columns[7])];
    }
    if (columns[3] === LISTENING) listening.set(here.address, Number(columns[7]));
  }
  if (listening.has(server.address)) return [listening.get(server.address)];
  return ["0.0.0.0", "::"].filter((any) => listening.has(any)).map((any) => listening.get(any));
}

async function sockets() {
  const read = async (file) => (await fs.readFile(file, "utf8")).split("\n").slice(1);
  try {
    const [four, six] = [await read("/proc/net/tcp"), await read("/proc/net/tcp6").catch(() => [])];
    return [...four, ...six];
  } catch {
    return null;
  }
}

/** An address of /proc/net/tcp: words of 32 bits in the machine's own order. */
function decoded(text) {
  const [words, port] = text.split(":");
  const bytes = Buffer.from(words, "hex");
  if (os.endianness() === "LE") bytes.swap32();
  return end(bytes.length === 4 ? [...bytes].join(".") : six(bytes), parseInt(port, 16));
}

function six(bytes) {
  const groups = Array.from({ length: 8 }, (_, at) => bytes.readUInt16BE(at * 2).toString(16));
  return groups.join(":");
}

/** The normalized address; an IPv4 address mapped to IPv6 becomes IPv4. */
function end(address, port) {
  if (!net.isIP(address ?? "")) return null;
  if (net.isIPv4(address)) return { address, port };
  const plain = new URL(`http://[${address.replace(/%.*/, "")}]`).hostname.slice(1, -1);
  const mapped = /^::ffff:([0-9a-f]+):([0-9a-f]+)$/.exec(plain);
  if (!mapped) return { address: plain, port };
  const [high, low] = [parseInt(mapped[1], 16), parseInt(mapped[2], 16)];
  return { address: [high >> 8, high & 255, low >> 8, low & 255].join("."), port };
}

function isLoopback(address) {
  return address.startsWith("127.") || address === "::1";
}

/** HTTP agent that checks the owner of the far end before it uses a connection. */
class OwnAgent extends http.Agent {
  /** @param {number[]} trusted uids, as of `otherUser` */
  constructor(trusted = []) {
    super();
    this.trusted = trusted;
  }

  createConnection(options, done) {
    const socket = net.connect(options);
    socket.once("error", done);
    socket.once("connect", async () => {
      const why = await otherUser(socket, this.trusted);
      socket.removeListener("error", done);
      if (!why) return done(null, socket);
      socket.destroy();
      return done(new Error(`it ${why}`));
    });
  }
}

module.exports = { OwnAgent, ownersOf, otherUser };
