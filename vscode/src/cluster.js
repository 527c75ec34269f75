/** Where the cluster is: its dashboard, its relay and its token, from the settings and the cluster file. */
"use strict";

const fs = require("node:fs/promises");
const path = require("node:path");
const { stateFolder, notOwn } = require("./state_folder");

const FILE = "cluster.json";
const DEFAULT_RELAY = { host: "127.0.0.1", port: 5678 };

/** A setting, a cluster file or a token file that can't be used; `message` says why. */
class ClusterError extends Error {}

/**
 * @typedef {object} Cluster
 * @property {string} dashboard
 * @property {{host: string, port: number, trusted: number[]}} relay
 * @property {number[]} trusted uids whose programs may get the token, besides this user's
 * @property {string} tokenFile "" where none is known
 * @property {string[]} verbs the program that runs Rayside's verbs, empty where it is not here
 * @property {string[]} submit the program that submits jobs, empty where there is none
 * @property {Record<string, string>} environment variables for that program
 * @property {boolean} sharedFiles whether the workers' files are here under their own paths
 * @property {string} target
 * @property {string} user the user's name where several people debug on one Ray, else ""
 */

/**
 * The cluster, null where there is none. Throws ClusterError.
 *
 * @param {{dashboard?: string, relay?: string, tokenFile?: string}} settings each wins over the cluster file
 * @param {Record<string, string | undefined>} environment
 * @param {{uid?: number, state?: string}} whose state folder it is, and which
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
 * The relay that a launch configuration may lead to, which any folder may bring along: none but the cluster's
 * own, at its own address. Where the token is, is not the folder's to say either. Throws ClusterError.
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
    // Its `submit` and `verbs` are run: only this user, or root, as in an image, may have written it.
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
 * The newest cluster file of a state folder, in which each cluster has a folder of its name; of the cluster `name`
 * alone where that is given. Null where there is none. Throws ClusterError.
 */
async function newest(uid, state, name = "") {
  if (uid === undefined) return null;
  // A file's `submit` and `verbs` are run, and the token goes where it says: nobody else may have put it there.
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
      // It isn't there, or went meanwhile.
    }
  }
  // One folder that is not to be believed does not hide the others.
  if (!files.length && refused.length) throw new ClusterError(refused[0]);
  return files.sort((a, b) => b.time - a.time)[0] ?? null;
}

async function clusterFolders(state, name) {
  if (name) return [path.join(state, name)];
  try {
    const entries = await fs.readdir(state, { withFileTypes: true });
    // A link leads to a folder that others may change, and is refused.
    return entries.filter((entry) => entry.isDirectory() || entry.isSymbolicLink()).map((entry) => path.join(state, entry.name));
  } catch {
    return [];
  }
}

module.exports = { ClusterError, find, launchRelay, readToken, relayAddress };
