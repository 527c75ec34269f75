/** State folder with a cluster's files, which `./invokew up` writes; check that they belong to this user. */
"use strict";

const fs = require("node:fs");
const os = require("node:os");
const path = require("node:path");

/** The state folder, as in rayside/default_folders.py; it contains a folder for each cluster, by name. */
function stateFolder(environment, { home = ownHome(), host = os.hostname(), platform = process.platform } = {}) {
  if (environment.INVOKE_RAYSIDE_STATE_FOLDER) return environment.INVOKE_RAYSIDE_STATE_FOLDER;
  const named = environment.XDG_STATE_HOME ?? "";
  const base = named.startsWith("/") ? named : home && path.join(home, ".local", "state");
  if (!base) return path.join(fs.existsSync("/tmp") ? "/tmp" : os.tmpdir(), `rayside-${process.getuid?.()}`);
  return path.join(base, platform === "linux" ? `rayside-${host.replaceAll("/", "-")}` : "rayside");
}

/** The home folder that belongs to this user; "" without one. */
function ownHome() {
  const homes = [os.homedir];
  homes.push(() => os.userInfo().homedir); // from the user database, independent of HOME
  for (const home of homes) {
    try {
      const folder = home();
      if (fs.statSync(folder).uid === process.getuid?.()) return folder;
    } catch {
      // It isn't there.
    }
  }
  return "";
}

/** Why a folder and its content may be another user's; "" if it is private to the user `uid`, or does not exist. */
function notOwn(folder, uid) {
  let found;
  try {
    found = fs.lstatSync(folder);
  } catch (error) {
    return error.code === "ENOENT" ? "" : `${folder} can't be looked at: ${error.code}`;
  }
  if (found.isDirectory() && found.uid === uid && !(found.mode & 0o077)) return "";
  return `${folder} is not a folder that only you can read: look who made it (ls -ld ${folder}), and remove it`;
}

module.exports = { stateFolder, notOwn };
