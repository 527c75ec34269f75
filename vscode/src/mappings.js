/** Where the workers have the files of the folders that are open here. */
"use strict";

const fs = require("node:fs/promises");

// Ray's link to the session that runs, in which jobs' files are unpacked.
const SESSION = "/tmp/ray/session_latest";

/**
 * `pathMappings` for the relay, which finds by itself what was submitted from this machine.
 *
 * With shared files only links have to be followed, for workers know files by their real paths. Without,
 * the first folder is taken for the job's working_dir.
 *
 * @param {string[]} folders those of the editor's workspace
 * @param {boolean} shared whether the workers' files are here under their own paths
 * @returns {Promise<{localRoot: string, remoteRoot: string}[]>}
 */
async function pathMappings(folders, shared, session = SESSION) {
  if (!shared) return folders.slice(0, 1).map((folder) => ({ localRoot: folder, remoteRoot: "." }));
  const mappings = [];
  for (const localRoot of new Set([...folders, session])) {
    const remoteRoot = await fs.realpath(localRoot).catch(() => localRoot);
    if (remoteRoot !== localRoot) mappings.push({ localRoot, remoteRoot });
  }
  return mappings;
}

/**
 * Which of the workers' files an editor has, as `attach` and `stacks` take it.
 *
 * @param {readonly {uri: {scheme: string, fsPath: string}}[] | undefined} workspaceFolders VS Code's
 * @param {{sharedFiles: boolean} | null | undefined} cluster
 */
async function filesOf(workspaceFolders, cluster) {
  const folders = (workspaceFolders ?? []).filter((folder) => folder.uri.scheme === "file");
  const sharedFiles = cluster?.sharedFiles === true;
  return { pathMappings: await pathMappings(folders.map((folder) => folder.uri.fsPath), sharedFiles), sharedFiles };
}

module.exports = { filesOf, pathMappings };
