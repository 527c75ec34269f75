/** Where the cluster is: its dashboard, its relay and its token, from the settings and the cluster file. */
"use strict";

const fs = require("node:fs/promises");
const path = require("node:path");

const FILE = "cluster.json";
const DEFAULT_RELAY = { host: "127.0.0.1", port: 5678 };

/** A setting, a cluster file or a token file that can't be used; `message` says why. */
class ClusterError extends Error {}

/**
 * @typedef {object} Cluster
 * @property {string} dashboard
 * @property {{host: string, port: number}} relay
 * @property {string} tokenFile "" where none is known
 * @property {string[]} submit the program that submits jobs, empty where there is none
 * @property {Record<string, string>} environment variables for that program
 * @property {boolean} sharedFiles whether the workers' files are here under their own paths
 * @property {string} target
 */

/**
 * The cluster, null where there is none. Throws ClusterError.
 *
 * @param {{dashboard?: string, relay?: string, tokenFile?: string}} settings each wins over the cluster file
 * @param {Record<string, string | undefined>} environment
 * @param {{uid?: number, folder?: string}} whose state folders are looked through, and below what, unless
 *   the environment names one
 * @returns {Promise<Cluster | null>}
 */
async function find(settings, environment, { uid = process.getuid?.(), folder = "/tmp" } = {}) {
  const given = environment.RAYSIDE_CLUSTER_FILE;
  const state = environment.INVOKE_RAYSIDE_STATE_FOLDER || path.join(folder, `rayside-${uid}`);
  const file = given ? await named(given) : await newest(uid, state);
  const written = file ? parse(file.text, file.path) : null;
  if (!written && !settings.dashboard) return null;
  return {
    dashboard: (settings.dashboard || written.dashboard).replace(/\/+$/, ""),
    relay: settings.relay ? relayAddress(settings.relay) : (written?.relay ?? DEFAULT_RELAY),
    tokenFile: settings.tokenFile || (written?.token_file ?? ""),
    submit: written?.submit ?? [],
    environment: written?.environment ?? {},
    sharedFiles: written?.shared_files === true,
    target: written?.target ?? "",
  };
}

/** The token in a file, without the space around it. Throws ClusterError. */
async function readToken(file) {
  let text;
  try {
    text = (await fs.readFile(file, "utf8")).trim();
  } catch (error) {
    throw new ClusterError(`the token can't be read from ${file}: ${error.code ?? error.message}`);
  }
  if (!text) throw new ClusterError(`${file} is empty: it should hold Ray's token`);
  if (/\s/.test(text)) throw new ClusterError(`${file} holds more than a token`);
  return text;
}

/** host:port as in 127.0.0.1:5678 or [::1]:5678. Throws ClusterError. */
function relayAddress(text) {
  const found = /^(?:\[([^\]]+)\]|([^:[\]\s]+)):(\d{1,5})$/.exec(text.trim());
  const port = found ? Number(found[3]) : 0;
  if (!found || port < 1 || port > 65535) {
    throw new ClusterError(`the relay's address is ${JSON.stringify(text)}, and should be like 127.0.0.1:5678`);
  }
  return { host: found[1] ?? found[2], port };
}

/**
 * The relay of a launch configuration, which any folder may bring along: the token goes to none but this
 * machine's, or the one that the user set. Throws ClusterError.
 *
 * @param {string} text
 * @param {{host: string, port: number} | undefined} known
 */
function launchRelay(text, known) {
  const relay = relayAddress(text);
  const here = ["127.0.0.1", "::1", "localhost"].includes(relay.host);
  if (here || (known && relay.host === known.host && relay.port === known.port)) return relay;
  throw new ClusterError(
    `the launch configuration names the relay ${text}, on another machine: set rayBreakpoints.relay in your settings instead`,
  );
}

/** The cluster file's text as an object. Throws ClusterError. */
function parse(text, file) {
  let written;
  try {
    written = JSON.parse(text);
  } catch {
    throw new ClusterError(`${file} is not JSON`);
  }
  const wrong = fault(written);
  if (wrong) throw new ClusterError(`${file}: ${wrong}`);
  return written;
}

function fault(written) {
  const isText = (value) => typeof value === "string";
  const isObject = (value) => typeof value === "object" && value !== null && !Array.isArray(value);
  if (!isObject(written)) return "no object";
  const { dashboard, relay, token_file, submit, environment } = written;
  if (!isText(dashboard) || !dashboard) return "`dashboard` should be an address";
  if (relay !== undefined && !(isObject(relay) && isText(relay.host) && Number.isInteger(relay.port))) {
    return "`relay` should have a host and a port";
  }
  if (token_file !== undefined && !isText(token_file)) return "`token_file` should be a path";
  if (submit !== undefined && !(Array.isArray(submit) && submit.every(isText))) {
    return "`submit` should be a list of words";
  }
  if (environment !== undefined && !(isObject(environment) && Object.values(environment).every(isText))) {
    return "`environment` should hold texts";
  }
  return "";
}

async function named(file) {
  try {
    return { path: file, text: await fs.readFile(file, "utf8") };
  } catch (error) {
    if (error.code === "ENOENT") return null;
    throw new ClusterError(`${file} can't be read: ${error.code ?? error.message}`);
  }
}

/** The newest cluster file of a state folder and kind's beside it, null where there is none. */
async function newest(uid, state) {
  if (uid === undefined) return null;
  const found = [];
  for (const folder of [state, `${state}-kind`]) {
    const file = path.join(folder, FILE);
    try {
      // Its `submit` is run: nobody else may have put it there.
      const [above, own] = [await fs.lstat(path.dirname(file)), await fs.lstat(file)];
      if (!above.isDirectory() || !own.isFile()) continue;
      if ([above, own].some((stat) => stat.uid !== uid || stat.mode & 0o022)) continue;
      found.push({ path: file, text: await fs.readFile(file, "utf8"), time: own.mtimeMs });
    } catch {
      // It isn't there, or went meanwhile.
    }
  }
  return found.sort((a, b) => b.time - a.time)[0] ?? null;
}

module.exports = { ClusterError, find, launchRelay, readToken, relayAddress };
