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
    await this.#show(!this.#context.globalState.get(HIDDEN));
    const { workspaceState } = this.#context;
    if (workspaceState.get(REVEALED)) return;
    await workspaceState.update(REVEALED, true);
    // Whoever has opened something already is at work.
    if (vscode.window.tabGroups.all.some((group) => group.tabs.length)) return;
    await vscode.commands.executeCommand("workbench.view.extension.rayside");
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
