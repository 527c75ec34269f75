/** Where `./invokew up` keeps a cluster's files, and that nobody else has made them. */
"use strict";

const fs = require("node:fs");
const os = require("node:os");
const path = require("node:path");

/** The state folder, as bootstrap/settings.py has it; in it each cluster has a folder of its name. */
function stateFolder(environment, { home = ownHome(), host = os.hostname(), platform = process.platform } = {}) {
  if (environment.INVOKE_RAYSIDE_STATE_FOLDER) return environment.INVOKE_RAYSIDE_STATE_FOLDER;
  const named = environment.XDG_STATE_HOME ?? "";
  const base = named.startsWith("/") ? named : home && path.join(home, ".local", "state");
  if (!base) return path.join(fs.existsSync("/tmp") ? "/tmp" : os.tmpdir(), `rayside-${process.getuid?.()}`);
  return path.join(base, platform === "linux" ? `rayside-${host.replaceAll("/", "-")}` : "rayside");
}

/** The home folder that is this user's own; "" where there is none. */
function ownHome() {
  const homes = [os.homedir];
  homes.push(() => os.userInfo().homedir); // what the machine says, whatever HOME does
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

/** Why a folder may be another user's, "" where it is that user's alone or is not there. What is in it is then, too. */
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
