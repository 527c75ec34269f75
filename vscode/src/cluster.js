/** The cluster's dashboard, relay and token, from the settings and the cluster file. */
"use strict";

const fs = require("node:fs/promises");
const path = require("node:path");
const { stateFolder, notOwn } = require("./state_folder");

const FILE = "cluster.json";
const DEFAULT_RELAY = { host: "127.0.0.1", port: 5678 };

/** Invalid setting, cluster file or token file; `message` says why. */
class ClusterError extends Error {}

/**
 * @typedef {object} Cluster
 * @property {string} dashboard
 * @property {{host: string, port: number, trusted: number[]}} relay
 * @property {number[]} trusted uids whose programs may get the token, besides this user's
 * @property {string} tokenFile "" if unknown
 * @property {string[]} verbs the program that runs Rayside's verbs, empty if it is not on this machine
 * @property {string[]} submit the program that submits jobs, empty without one
 * @property {Record<string, string>} environment variables for that program
 * @property {boolean} sharedFiles whether this machine has the workers' files under the same paths
 * @property {string} target
 * @property {string} user the user's name on a Ray cluster that several people debug on, else ""
 */

/**
 * The cluster, or null. Throws ClusterError.
 *
 * @param {{dashboard?: string, relay?: string, tokenFile?: string}} settings each overrides the cluster file
 * @param {Record<string, string | undefined>} environment
 * @param {{uid?: number, state?: string}} owner and path of the state folder
 * @returns {Promise<Cluster | null>}
 */
async function find(settings, environment, { uid = process.getuid?.(), state = stateFolder(environment) } = {}) {
  const given = environment.RAYSIDE_CLUSTER_FILE;
  const file = given ? await named(given, uid) : await newest(uid, state, environment.INVOKE_RAYSIDE_NAME);
  const written = file ? parse(file.text, file.path) : null;
  if (!written && !settings.dashboard) return null;
  const trusted = written?.trusted_uids ?? [];
  return {
    dashboard: (settings.dashboard || written.dashboard).replace(/\/+$/, ""),
    relay: { ...(settings.relay ? relayAddress(settings.relay) : (written?.relay ?? DEFAULT_RELAY)), trusted },
    trusted,
    tokenFile: settings.tokenFile || (written?.token_file ?? ""),
    verbs: written?.verbs ?? [],
    submit: written?.submit ?? [],
    environment: written?.environment ?? {},
    sharedFiles: written?.shared_files === true,
    target: written?.target ?? "",
    user: written?.user ?? "",
  };
}

/** The token in a file, trimmed. Throws ClusterError. */
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
 * The relay of a launch configuration. Any folder may contain one, so only the cluster's own relay is allowed, and no
 * token file. Throws ClusterError.
 *
 * @param {{relay?: string, tokenFile?: string}} config
 * @param {{host: string, port: number} | undefined} known
 */
function launchRelay(config, known) {
  if (config.tokenFile) {
    throw new ClusterError("the launch configuration names a tokenFile: set rayBreakpoints.tokenFile in your own settings instead");
  }
  if (!known) throw new ClusterError("no Ray cluster was found: run ./invokew up or rayside connect, or set its address in the settings");
  const named = config.relay ? relayAddress(config.relay) : known;
  const alike = (host) => (host === "localhost" ? "127.0.0.1" : host);
  if (alike(named.host) === alike(known.host) && named.port === known.port) return known;
  throw new ClusterError(
    `the launch configuration names the relay ${config.relay}, which is not the cluster's: ` +
      "leave it out, or set rayBreakpoints.relay in your own settings",
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
  const wrong = Object.entries(FIELDS).filter(([name, fits]) => !fits(written?.[name]));
  if (wrong.length) throw new ClusterError(`${file}: ${wrong.map(([name]) => name).join(", ")} can't be used`);
  return written;
}

const isText = (value) => typeof value === "string";
const isObject = (value) => typeof value === "object" && value !== null && !Array.isArray(value);
const all = (fits) => (values) => Array.isArray(values) && values.every(fits);
const optional = (fits) => (value) => value === undefined || fits(value);
const FIELDS = {
  dashboard: (value) => isText(value) && value !== "",
  relay: optional((relay) => isObject(relay) && isText(relay.host) && Number.isInteger(relay.port)),
  token_file: optional(isText),
  user: optional(isText),
  verbs: optional(all(isText)),
  submit: optional(all(isText)),
  trusted_uids: optional(all(Number.isInteger)),
  environment: optional((variables) => isObject(variables) && Object.values(variables).every(isText)),
};

async function named(file, uid) {
  try {
    // Its `submit` and `verbs` are run: only this user, or root (in an image), may have written it.
    const found = await fs.stat(file);
    if (uid !== undefined && (![uid, 0].includes(found.uid) || found.mode & 0o022)) {
      throw new ClusterError(`${file} is not yours alone to write: look who made it (ls -l ${file})`);
    }
    return { path: file, text: await fs.readFile(file, "utf8") };
  } catch (error) {
    if (error.code === "ENOENT") return null;
    if (error instanceof ClusterError) throw error;
    throw new ClusterError(`${file} can't be read: ${error.code ?? error.message}`);
  }
}

/**
 * The newest cluster file in a state folder, which contains a folder for each cluster; only the file of the cluster
 * `name` if that is given. Null without one. Throws ClusterError.
 */
async function newest(uid, state, name = "") {
  if (uid === undefined) return null;
  // A file's `submit` and `verbs` are run, and the token goes to its addresses: no other user may have written it.
  const refused = [notOwn(state, uid)].filter(Boolean);
  const files = [];
  for (const folder of refused.length ? [] : await clusterFolders(state, name)) {
    const wrong = notOwn(folder, uid);
    if (wrong) {
      refused.push(wrong);
      continue;
    }
    const file = path.join(folder, FILE);
    try {
      const { mtimeMs } = await fs.stat(file);
      files.push({ path: file, text: await fs.readFile(file, "utf8"), time: mtimeMs });
    } catch {
      // It does not exist, or was removed meanwhile.
    }
  }
  // One untrusted folder does not hide the others.
  if (!files.length && refused.length) throw new ClusterError(refused[0]);
  return files.sort((a, b) => b.time - a.time)[0] ?? null;
}

async function clusterFolders(state, name) {
  if (name) return [path.join(state, name)];
  try {
    const entries = await fs.readdir(state, { withFileTypes: true });
    // A symlink's target may be changed by other users; it is refused later.
    return entries.filter((entry) => entry.isDirectory() || entry.isSymbolicLink()).map((entry) => path.join(state, entry.name));
  } catch {
    return [];
  }
}

module.exports = { ClusterError, find, launchRelay, readToken, relayAddress };
