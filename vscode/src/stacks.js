/** View of all stacks of a job's processes, merged to a tree; read when it is shown or refreshed. */
"use strict";

const path = require("node:path");
const vscode = require("vscode");
const { filesOf } = require("./mappings");
const { line } = require("./plain");
const { stacks } = require("./relay");

const NAME = "rayside.stacks";
const SHOWN = "rayside.stacksShown";
// Limits: threads below one row; consecutive calls in libraries.
const MOST_THREADS = 100;
const MOST_OF_LIBRARIES = 3;
// Depth of forks that are expanded at first: VS Code makes the rows of all expanded ones.
const OPEN = 4;

/**
 * Rows of three kinds: `{node, depth}` is a function, with its calls below it if it has a depth; `{here, of}` is a
 * thread and its function; `{text}` is a message.
 */
class StacksTree {
  #answer = null;
  #changed = new vscode.EventEmitter();
  onDidChangeTreeData = this.#changed.event;

  show(answer) {
    this.#answer = answer;
    this.#changed.fire(undefined);
  }

  getChildren(row) {
    if (row) return below(row.node, row.depth + 1);
    if (!this.#answer) return [];
    const { roots, elsewhere } = own(this.#answer.stacks);
    roots.sort((a, b) => b.threads - a.threads);
    return [
      ...roots.map((node) => ({ node, depth: 0 })),
      ...(elsewhere ? [{ text: `${counted(elsewhere, "more thread")} in no code of yours` }] : []),
      ...(this.#answer.left_out ? [{ text: `${counted(this.#answer.left_out, "thread")} left out: too many` }] : []),
      ...this.#answer.unanswered.map(({ task, why }) => ({ text: `${line(task)} is not among them: ${line(why)}` })),
    ];
  }

  getTreeItem(row) {
    if (row.node) return functionItem(row);
    return row.here ? threadItem(row) : new vscode.TreeItem(row.text);
  }
}

/** The rows below a function: the threads in it, then its calls; a chain of calls is not nested. */
function below(node, depth) {
  const rows = node.here.slice(0, MOST_THREADS).map((here) => ({ here, of: node }));
  const more = node.here.length - rows.length;
  if (more) rows.push({ text: `${counted(more, "more thread")}` });
  if (node.calls.length !== 1) return [...rows, ...node.calls.map((call) => ({ node: call, depth }))];
  const chain = [node.calls[0]];
  while (chain.at(-1).calls.length === 1 && !chain.at(-1).here.length) chain.push(chain.at(-1).calls[0]);
  return [...rows, ...shortened(chain), ...below(chain.at(-1), depth)];
}

/** The rows of a chain of calls, without most calls in libraries. */
function shortened(chain) {
  const rows = [];
  let libraries = [];
  const flush = () => {
    const left = libraries.length - 2;
    if (libraries.length > MOST_OF_LIBRARIES) rows.push(libraries[0], { text: `${left} calls in libraries` }, libraries.at(-1));
    else rows.push(...libraries);
    libraries = [];
  };
  for (const node of chain) {
    if (node.own) {
      flush();
      rows.push({ node });
    } else libraries.push({ node });
  }
  flush();
  return rows;
}

/** The outermost functions in the user's code, and the number of threads outside of it. */
function own(nodes) {
  const found = { roots: [], elsewhere: 0 };
  for (const node of nodes) {
    if (node.own) {
      found.roots.push(node);
      continue;
    }
    const inner = own(node.calls);
    found.roots.push(...inner.roots);
    found.elsewhere += inner.elsewhere + node.here.length;
  }
  return found;
}

function functionItem({ node, depth }) {
  const { Collapsed, Expanded, None } = vscode.TreeItemCollapsibleState;
  const state = depth === undefined ? None : depth < OPEN ? Expanded : Collapsed;
  const item = new vscode.TreeItem(`${node.threads}  ${line(node.function)}`, state);
  const lines = node.lines.map(([number]) => number);
  const where = `${line(path.basename(node.file))}:${lines.slice(0, 3).join(", ")}${lines.length > 3 ? ", …" : ""}`;
  item.description = node.odd ? `${where} · the odd one out` : where;
  const color = new vscode.ThemeColor(node.odd ? "list.warningForeground" : "symbolIcon.functionForeground");
  item.iconPath = new vscode.ThemeIcon(node.odd ? "warning" : node.own ? "symbol-method" : "library", color);
  item.tooltip = [
    line(node.function),
    line(node.file),
    `${counted(node.threads, "thread")} of ${counted(node.processes, "process", "processes")}`,
    ...node.lines.slice(0, 10).map(([number, threads]) => `line ${number}: ${counted(threads, "thread")}`),
  ].join("\n");
  item.command = opening(node, lines[0]);
  item.accessibilityInformation = {
    label: [
      `${counted(node.threads, "thread")} in ${line(node.function)}`,
      node.odd && "the odd one out",
      where,
      item.command && "press Enter to open the line",
    ]
      .filter(Boolean)
      .join(", "),
  };
  return item;
}

function threadItem({ here, of }) {
  const item = new vscode.TreeItem(line(here.task));
  const thread = here.thread === "MainThread" ? "" : line(here.thread);
  item.description = [thread, `line ${here.line}`, here.stopped && "stopped"].filter(Boolean).join(" · ");
  item.iconPath = new vscode.ThemeIcon(here.stopped ? "debug-stackframe" : "server-process");
  item.tooltip = [line(here.task), `Thread: ${line(here.thread)}`, `Worker: ${line(here.worker_id)}`].join("\n");
  // A stopped thread is shown in the debugger; of a running one the line is opened.
  item.command = here.stopped
    ? { command: "rayside.stopInTask", title: "Stop in This Task", arguments: [{ key: `task ${here.worker_id}`, name: here.task }] }
    : opening(of, here.line);
  item.accessibilityInformation = { label: `${line(here.task)}, ${item.description}` };
  return item;
}

/** The command that opens a line; undefined if the file is not on this machine: the path comes from a process. */
function opening({ file, local }, number) {
  if (local !== true) return undefined;
  return { command: "rayside.openStackLine", title: "Open the Line", arguments: [file, number] };
}

function counted(count, name, several = `${name}s`) {
  return `${count.toLocaleString("en")} ${count === 1 ? name : several}`;
}

/** Shows the stacks of one job at a time. */
class Stacks {
  #tree = new StacksTree();
  #view;
  #job = null;

  constructor(access) {
    this.access = access;
    this.#view = vscode.window.createTreeView(NAME, { treeDataProvider: this.#tree, showCollapseAll: true });
  }

  dispose() {
    this.#view.dispose();
  }

  /** Reads and shows the stacks of that job (default: the shown job). Throws RelayError, ClusterError. */
  async show(job = this.#job) {
    if (!job) return;
    const cluster = await this.access.cluster();
    if (!cluster) return;
    const isAnother = job !== this.#job;
    this.#job = job;
    await vscode.commands.executeCommand("setContext", SHOWN, true);
    // Before the processes are asked: a later change of the focus would interrupt the user.
    if (isAnother) await vscode.commands.executeCommand(`${NAME}.focus`);
    const id = job.submissionId || job.jobId;
    const where = { job: id, ...(await filesOf(vscode.workspace.workspaceFolders, cluster)) };
    const asking = stacks(cluster.relay, await this.access.token(cluster), where);
    const answer = await vscode.window.withProgress({ location: { viewId: NAME } }, () => asking);
    this.#view.description = line(job.submissionId || job.entrypoint);
    const { threads, processes } = answer;
    this.#view.message = `${counted(threads, "thread")} of ${counted(processes, "process", "processes")}, as of ${new Date().toLocaleTimeString()}.`;
    this.#tree.show(answer);
  }

  async hide() {
    this.#job = null;
    await vscode.commands.executeCommand("setContext", SHOWN, false);
  }

  /** Opens a line in a file that may no longer exist. */
  async open(file, number) {
    const uri = vscode.Uri.file(file);
    try {
      await vscode.workspace.fs.stat(uri);
    } catch {
      void vscode.window.showInformationMessage(`${line(file)} is not here.`);
      return;
    }
    const at = new vscode.Position(Math.max(0, number - 1), 0);
    await vscode.window.showTextDocument(uri, { selection: new vscode.Range(at, at), preview: true });
  }
}

module.exports = { Stacks, StacksTree };
