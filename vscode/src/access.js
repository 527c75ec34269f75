/** The user's access to the cluster: its address from the settings, and its token. */
"use strict";

const os = require("node:os");
const vscode = require("vscode");
const { ClusterError, find, readToken } = require("./cluster");

const SECRET = "token";

class Access {
  constructor(secrets) {
    this.secrets = secrets;
  }

  /** The cluster, or null. Throws ClusterError. */
  cluster() {
    const settings = vscode.workspace.getConfiguration("rayBreakpoints");
    // Only the user's or the machine's value: a folder must not choose the token's file or its receiver.
    const text = (name) => String(settings.inspect(name)?.globalValue ?? "").trim();
    return find(
      { dashboard: text("dashboard"), relay: text("relay"), tokenFile: homely(text("tokenFile")) },
      process.env,
    );
  }

  /** Whether the jobs of all users of the Ray cluster are shown, not only the user's own. */
  get everyone() {
    return vscode.workspace.getConfiguration("rayBreakpoints").inspect("everyone")?.globalValue === true;
  }

  /** Stores whether the jobs of all users are shown. */
  async show(everyone) {
    await vscode.workspace.getConfiguration("rayBreakpoints").update("everyone", everyone, vscode.ConfigurationTarget.Global);
  }

  /** The token that was set by hand, else from the cluster's token file; "" without one. Throws ClusterError. */
  async token(cluster) {
    const set = await this.secrets.get(SECRET);
    if (set) return set;
    return cluster.tokenFile ? readToken(cluster.tokenFile) : "";
  }

  /** Asks for the token and stores it in VS Code's secret storage; true if something changed. */
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
