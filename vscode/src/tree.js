/** The view's rows: jobs, and below each its paused tasks. */
"use strict";

const vscode = require("vscode");
const { line } = require("./plain");
const { ago } = require("./tasks");

const ICONS = {
  PENDING: ["loading~spin"],
  RUNNING: ["play-circle", "debugIcon.startForeground"],
  SUCCEEDED: ["pass", "testing.iconPassed"],
  FAILED: ["error", "testing.iconFailed"],
  STOPPED: ["circle-slash"],
};
const TASK_ICONS = {
  failed: ["error", "testing.iconFailed"],
  held: ["debug-stackframe", "debugIcon.breakpointCurrentStackframeForeground"],
  waiting: ["debug-pause", "debugIcon.pauseForeground"],
};

class Tree {
  #jobs = [];
  #shown = "";
  #changed = new vscode.EventEmitter();
  onDidChangeTreeData = this.#changed.event;

  /** Shows the jobs; draws nothing if they have not changed. */
  show(jobs) {
    const texts = jobs.map((job) => [job, job.tasks.map((task) => ago(task.since, Date.now()))]);
    const shown = JSON.stringify(texts);
    if (shown === this.#shown) return;
    this.#shown = shown;
    this.#jobs = jobs;
    this.#changed.fire(undefined);
  }

  /** The current task with that key, undefined if it is no longer paused. */
  task(key) {
    return this.#jobs.flatMap((job) => job.tasks).find((task) => task.key === key);
  }

  /** The job of a task. */
  jobOf(task) {
    return this.#jobs.find((job) => job.tasks.some((one) => one.key === task.key));
  }

  getChildren(row) {
    return row ? (row.tasks ?? []) : this.#jobs;
  }

  getParent(row) {
    return row.tasks ? undefined : this.jobOf(row);
  }

  getTreeItem(row) {
    return row.tasks ? jobItem(row) : taskItem(row);
  }
}

function jobItem(job) {
  const { Expanded, None } = vscode.TreeItemCollapsibleState;
  const item = new vscode.TreeItem(line(job.entrypoint), job.tasks.length ? Expanded : None);
  const status = job.status.toLowerCase();
  const number = job.tasks.length ? `${job.tasks.length} paused` : "";
  // With the same id, VS Code would keep a row that had no children as one that can't be expanded.
  item.id = `${job.key}${job.tasks.length ? "" : " (empty)"}`;
  item.description = [job.whose, status, number, job.submissionId].filter(Boolean).map(line).join(" · ");
  item.contextValue = job.running ? "runningJob" : "endedJob";
  const [icon, color] = ICONS[job.status] ?? ["question"];
  item.iconPath = new vscode.ThemeIcon(icon, color ? new vscode.ThemeColor(color) : undefined);
  item.tooltip = [
    job.entrypoint,
    job.whose && `User: ${job.whose}`,
    `Status: ${job.status}`,
    job.submissionId && `Submission: ${job.submissionId}`,
    job.jobId && `Job: ${job.jobId}`,
  ]
    .filter(Boolean)
    .map(line)
    .join("\n");
  item.accessibilityInformation = {
    label: ["Ray job", job.entrypoint, job.whose && `of ${job.whose}`, status, number].filter(Boolean).map(line).join(", "),
  };
  return item;
}

function taskItem(task) {
  const name = line(task.name);
  const item = new vscode.TreeItem(name || "(name not known yet)");
  const long = ago(task.since, Date.now());
  item.id = task.key;
  item.description = [task.nodeIp, long].filter(Boolean).map(line).join(" · ");
  item.contextValue = task.failed ? "failedTask" : "task";
  const [icon, color] = TASK_ICONS[task.failed ? "failed" : task.held ? "held" : "waiting"];
  item.iconPath = new vscode.ThemeIcon(icon, new vscode.ThemeColor(color));
  const failed = task.failed ? "has failed, and " : "";
  item.tooltip = [
    `${name || "Task"} ${failed}${task.held ? "is stopped in the debugger" : "waits for a debugger"}`,
    `Node: ${task.nodeIp}`,
    `Process: ${task.pid}`,
    `Worker: ${task.workerId}`,
    task.since && `Began to run: ${task.since}`,
  ]
    .filter(Boolean)
    .map(line)
    .join("\n");
  item.command = { command: "rayside.stopInTask", title: "Stop in This Task", arguments: [task] };
  item.accessibilityInformation = {
    label: [
      `Paused task ${name || "without a name yet"}`,
      task.failed && "failed",
      long && (long === "just now" ? "just begun" : `running for ${long}`),
      `node ${task.nodeIp}`,
      `process ${task.pid}`,
      "press Enter to stop there in the debugger",
    ]
      .filter(Boolean)
      .map(line)
      .join(", "),
  };
  return item;
}

module.exports = { Tree };
