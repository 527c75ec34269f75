/**
 * What a newcomer is shown first: Ray's view, and below its paused tasks the first steps.
 *
 * Both are drawn by VS Code itself: of a page of ours in a frame nothing may come, on a busy machine or where the
 * browser refuses VS Code's service worker.
 */
"use strict";

const vscode = require("vscode");

const VIEW = "rayside.steps";
// Context: whether the view with the steps is there. What they say is in package.json.
const SHOWN = "rayside.firstSteps";
// Of the user, in every folder.
const HIDDEN = "firstStepsHidden";
// Of one folder: VS Code remembers from then on which view was open.
const REVEALED = "rayViewRevealed";
// How long VS Code may take to tell that a view came to the front, in milliseconds.
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

  /** In our browser workspace: shows the steps until they are hidden, and brings Ray's view to the front once. */
  async begin() {
    if (process.env.RAYSIDE_WORKSPACE !== "1") return;
    await this.#show(!this.#hidden);
    const { workspaceState } = this.#context;
    if (workspaceState.get(REVEALED)) return;
    // Whoever has opened something already is at work.
    const atWork = () => vscode.window.tabGroups.all.some((group) => group.tabs.length);
    // While VS Code is still opening the view that it starts with, ours may lose to that one.
    for (let attempt = 1; attempt <= 3 && !atWork(); attempt++) {
      await vscode.commands.executeCommand("workbench.view.extension.rayside");
      if (await this.#visible()) break;
    }
    // Not before: an extension host that is ended in between begins anew, and has to show it then.
    await workspaceState.update(REVEALED, true);
  }

  /** Whether the steps came to the front, which VS Code tells a moment later; true where they are hidden. */
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

  /** Because the user asked for them. */
  async show() {
    await this.#context.globalState.update(HIDDEN, false);
    await this.#show(true);
    await vscode.commands.executeCommand(`${VIEW}.focus`);
  }

  /** For good, or until they are asked for. */
  async hide() {
    await this.#context.globalState.update(HIDDEN, true);
    await this.#show(false);
  }

  async #show(shown) {
    await vscode.commands.executeCommand("setContext", SHOWN, shown);
  }
}

module.exports = { FirstSteps };
