/** The user's access to the cluster: where it is, by the settings, and the token for it. */
"use strict";

const os = require("node:os");
const vscode = require("vscode");
const { ClusterError, find, readToken } = require("./cluster");

const SECRET = "token";

class Access {
  constructor(secrets) {
    this.secrets = secrets;
  }

  /** The cluster, null where there is none. Throws ClusterError. */
  cluster() {
    const settings = vscode.workspace.getConfiguration("rayBreakpoints");
    // The user's or the machine's value: a folder must not say where the token is, or goes.
    const text = (name) => String(settings.inspect(name)?.globalValue ?? "").trim();
    return find(
      { dashboard: text("dashboard"), relay: text("relay"), tokenFile: homely(text("tokenFile")) },
      process.env,
    );
  }

  /** Whether the jobs of all who debug on the same Ray are shown, not only the user's own. */
  get everyone() {
    return vscode.workspace.getConfiguration("rayBreakpoints").inspect("everyone")?.globalValue === true;
  }

  /** Keeps that. */
  async show(everyone) {
    await vscode.workspace.getConfiguration("rayBreakpoints").update("everyone", everyone, vscode.ConfigurationTarget.Global);
  }

  /** The token that was set by hand, else that of the cluster's file; "" where there is none. Throws ClusterError. */
  async token(cluster) {
    const set = await this.secrets.get(SECRET);
    if (set) return set;
    return cluster.tokenFile ? readToken(cluster.tokenFile) : "";
  }

  /** Asks for the token and keeps it in VS Code's secret storage; true where something was changed. */
  async askForToken() {
    const token = await vscode.window.showInputBox({
      title: "Ray's Token",
      prompt: "The text in the file that ./invokew up or rayside connect names. Leave it empty to use that file again.",
      password: true,
      ignoreFocusOut: true,
    });
    if (token === undefined) return false;
    if (token.trim()) await this.secrets.store(SECRET, token.trim());
    else await this.secrets.delete(SECRET);
    return true;
  }
}

function homely(file) {
  return file.startsWith("~/") ? os.homedir() + file.slice(1) : file;
}

module.exports = { Access, ClusterError };
