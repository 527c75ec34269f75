/** The view in the activity bar, its badge, and the status bar's count. */
"use strict";

const vscode = require("vscode");
const { sentence } = require("./plain");
const { count, countText } = require("./tasks");

const NAME = "rayside.tasks";
const TROUBLE = new Set(["down", "tokenMissing", "tokenRefused"]);

class View {
  #view;
  #status;
  #tree;
  #log;
  #state = "";
  #contexts = { people: false, failed: false };
  #changed = new vscode.EventEmitter();
  onDidChangeVisibility = this.#changed.event;

  constructor(tree, log) {
    this.#tree = tree;
    this.#log = log;
    this.#view = vscode.window.createTreeView(NAME, { treeDataProvider: tree, showCollapseAll: false });
    this.#view.message = "Looking for a Ray cluster …";
    this.#view.onDidChangeVisibility(({ visible }) => this.#changed.fire(visible));
    this.#status = vscode.window.createStatusBarItem("rayside.status", vscode.StatusBarAlignment.Left, 10);
    this.#status.name = "Ray";
    this.#status.command = `${NAME}.focus`;
  }

  get visible() {
    return this.#view.visible;
  }

  dispose() {
    this.#view.dispose();
    this.#status.dispose();
    this.#changed.dispose();
  }

  /** @param {import("./look").Seen} seen */
  show(seen) {
    const paused = count(seen.jobs);
    if (seen.state !== this.#state) this.#enter(seen);
    this.#tree.show(seen.jobs);
    const where = seen.cluster ? seen.cluster.dashboard.replace(/^https?:\/\//, "") : "";
    this.#view.description = where && seen.everyone && seen.cluster.user ? `${where} · everyone's jobs` : where;
    // Contexts: other users may have jobs to show; failed tasks can run again.
    this.#offer("people", Boolean(seen.cluster?.user));
    this.#offer("failed", seen.jobs.some((job) => job.tasks.some((task) => task.failed)));
    this.#view.message = messageOf(seen, paused);
    this.#view.badge = paused ? { value: paused, tooltip: sentence(`Ray: ${countText(paused)}`) } : undefined;
    this.#count(seen, paused);
  }

  /** Sets a context, on which commands in VS Code's menus depend. */
  #offer(name, is) {
    if (is === this.#contexts[name]) return;
    this.#contexts[name] = is;
    void vscode.commands.executeCommand("setContext", `rayside.${name}`, is);
  }

  #enter(seen) {
    const before = this.#state;
    this.#state = seen.state;
    void vscode.commands.executeCommand("setContext", "rayside.state", seen.state);
    const text = seen.problem ? sentence(seen.problem) : "";
    this.#log.info(`${seen.state}${text && `: ${text}`}`);
    // Only after a loss: the view itself shows that there is no cluster yet.
    if (TROUBLE.has(seen.state) && ["seen", "empty"].includes(before)) {
      void vscode.window.showWarningMessage(`${text} The Ray view goes on looking, and says what to do.`);
    }
  }

  #count(seen, paused) {
    const [icon, text, told] = {
      seen: ["debug-alt", `Ray: ${paused} paused`, `Ray: ${countText(paused)}`],
      empty: ["debug-alt", "Ray: 0 paused", `Ray: ${countText(0)}`],
      nowhere: ["debug-disconnect", "Ray: no cluster", "Ray: no cluster was found"],
      down: ["debug-disconnect", "Ray: no answer", "Ray: the dashboard does not answer"],
      tokenMissing: ["key", "Ray: token needed", "Ray: a token is needed"],
      tokenRefused: ["key", "Ray: wrong token", "Ray: the token is refused"],
    }[seen.state];
    this.#status.text = `$(${icon}) ${text}`;
    const detail = seen.problem ? `${sentence(seen.problem)} ` : "";
    this.#status.tooltip = `${told}. ${detail}Click to open the view.`;
    this.#status.accessibilityInformation = { label: told, role: "button" };
    this.#status.show();
  }
}

/** The text above the rows; with one, VS Code shows no welcome text. */
function messageOf(seen, paused) {
  if (seen.state === "nowhere" && seen.problem) return `${sentence(seen.problem)} Correct it and look again.`;
  if (seen.problem && seen.cluster && !TROUBLE.has(seen.state)) {
    const repairs = "Where you ran ./invokew up or rayside connect, run it again: it repairs what is missing.";
    return `${sentence(seen.problem)} Which tasks are paused is as it was last seen. ${repairs}`;
  }
  if (seen.state === "seen" && !paused) {
    return "No task is paused. Click left of a line number to set a breakpoint, and run the script from its editor.";
  }
  return undefined;
}

module.exports = { View };
