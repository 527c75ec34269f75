/** Path mappings between the open folders and the workers' files. */
"use strict";

const fs = require("node:fs/promises");

// Ray's symlink to the running session, in which jobs' files are unpacked.
const SESSION = "/tmp/ray/session_latest";

/**
 * `pathMappings` for the relay, which itself maps folders that were submitted from this machine.
 *
 * With shared files only symlinks have to be resolved, as workers know files by their real paths. Without them,
 * the first folder is taken for the job's working_dir.
 *
 * @param {string[]} folders the folders of the editor's workspace
 * @param {boolean} shared whether this machine has the workers' files under the same paths
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
 * The arguments of `attach` and `stacks` that map the workers' files to the editor's.
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
