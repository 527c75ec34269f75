/**
 * First screen for a newcomer: Ray's view, and the first steps below its paused tasks.
 *
 * VS Code itself draws both: a webview may stay empty, on a busy machine or in a browser that refuses VS Code's
 * service worker.
 */
"use strict";

const vscode = require("vscode");

const VIEW = "rayside.steps";
// Context: whether the view with the steps is shown. The texts of the steps are in package.json.
const SHOWN = "rayside.firstSteps";
// State of the user, for every folder.
const HIDDEN = "firstStepsHidden";
// State of one folder: VS Code remembers from then on which view was open.
const REVEALED = "rayViewRevealed";
// Timeout in milliseconds for VS Code to report that a view came to the front.
const PATIENCE = 10_000;

class FirstSteps {
  #context;
  #view;

  /** @param {vscode.ExtensionContext} context */
  constructor(context) {
    this.#context = context;
    const none = { getChildren: () => [], getTreeItem: (row) => row };
    this.#view = vscode.window.createTreeView(VIEW, { treeDataProvider: none });
  }

  dispose() {
    this.#view.dispose();
  }

  /** In Rayside's browser workspace: shows the steps until they are hidden; brings Ray's view to the front once. */
  async begin() {
    if (process.env.RAYSIDE_WORKSPACE !== "1") return;
    await this.#show(!this.#hidden);
    const { workspaceState } = this.#context;
    if (workspaceState.get(REVEALED)) return;
    // A user with an open editor is at work.
    const atWork = () => vscode.window.tabGroups.all.some((group) => group.tabs.length);
    // VS Code may still be opening its initial view, which then replaces ours.
    for (let attempt = 1; attempt <= 3 && !atWork(); attempt++) {
      await vscode.commands.executeCommand("workbench.view.extension.rayside");
      if (await this.#visible()) break;
    }
    // Stored last: if the extension host ends before this, the next one has to show the view.
    await workspaceState.update(REVEALED, true);
  }

  /** Whether the steps came to the front, which VS Code reports a moment later; true if they are hidden. */
  async #visible() {
    if (this.#hidden || this.#view.visible) return true;
    let told;
    const shown = new Promise((resolve) => (told = this.#view.onDidChangeVisibility((event) => resolve(event.visible))));
    let timer;
    const late = new Promise((resolve) => (timer = setTimeout(resolve, PATIENCE, false)));
    try {
      return await Promise.race([shown, late]);
    } finally {
      clearTimeout(timer);
      told.dispose();
    }
  }

  get #hidden() {
    return Boolean(this.#context.globalState.get(HIDDEN));
  }

  /** Shows the steps at the user's request. */
  async show() {
    await this.#context.globalState.update(HIDDEN, false);
    await this.#show(true);
    await vscode.commands.executeCommand(`${VIEW}.focus`);
  }

  /** Hides the steps until the user asks for them again. */
  async hide() {
    await this.#context.globalState.update(HIDDEN, true);
    await this.#show(false);
  }

  async #show(shown) {
    await vscode.commands.executeCommand("setContext", SHOWN, shown);
  }
}

module.exports = { FirstSteps };
