/** The welcome page: shown once in our browser workspace, and again by its command. */
"use strict";

const vscode = require("vscode");

const SHOWN = "welcomeShown";

async function show(extensionUri) {
  await vscode.commands.executeCommand("markdown.showPreview", vscode.Uri.joinPath(extensionUri, "welcome.md"));
}

/** @param {vscode.ExtensionContext} context */
async function showOnce(context) {
  if (process.env.RAYSIDE_WORKSPACE !== "1" || context.globalState.get(SHOWN)) return;
  // Whoever has opened something already is not to be covered.
  if (vscode.window.tabGroups.all.some((group) => group.tabs.length)) return;
  await context.globalState.update(SHOWN, true);
  await show(context.extensionUri);
}

module.exports = { show, showOnce };
