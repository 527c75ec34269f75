/** Ray Breakpoints: the extension's entry point. */
"use strict";

const path = require("node:path");
const vscode = require("vscode");
const { Access, ClusterError } = require("./access");
const { Dashboard, DashboardError } = require("./dashboard");
const { Debugging } = require("./debugging");
const { LabError, Labs } = require("./labs");
const { Live, pause } = require("./live");
const { Look } = require("./look");
const { line, sentence } = require("./plain");
const { ProgramError } = require("./program");
const { RelayError } = require("./relay");
const { Retries, RetryError } = require("./retries");
const { runScript } = require("./run");
const { Stacks } = require("./stacks");
const { FirstSteps } = require("./steps");
const { Tree } = require("./tree");
const { View } = require("./view");
const { Workshop } = require("./workshop");

/** @param {vscode.ExtensionContext} context */
async function activate(context) {
  const log = vscode.window.createOutputChannel("Ray Breakpoints", { log: true });
  const output = vscode.window.createOutputChannel("Ray Job");
  const access = new Access(context.secrets);
  const debugging = new Debugging(access);
  const retries = new Retries(debugging, log);
  const tree = new Tree();
  const view = new View(tree, log);
  const steps = new FirstSteps(context);
  const stacks = new Stacks(access);
  const labs = new Labs(context.extension, access, log);
  const workshop = new Workshop(() => labs.known, log);
  const look = new Look();
  const live = new Live(
    () => see(access, look, log),
    (seen) => {
      retries.mark(seen.jobs);
      view.show(seen);
      labs.offer(seen.cluster);
      void workshop.tell(seen);
    },
    () => pause({ visible: view.visible, debugging: debugging.active, focused: vscode.window.state.focused }),
  );

  const command = (name, act) =>
    vscode.commands.registerCommand(name, (...args) => reported(log, () => act(...args)));
  context.subscriptions.push(
    log,
    output,
    live,
    view,
    steps,
    stacks,
    ...debugging.register(),
    ...retries.register(),
    ...workshop.register(),
    debugging.onDidChange(() => live.soon()),
    view.onDidChangeVisibility((visible) => visible && live.soon()),
    vscode.window.onDidChangeWindowState((state) => state.focused && live.soon()),
    vscode.workspace.onDidChangeConfiguration((event) => event.affectsConfiguration("rayBreakpoints") && live.soon()),
    context.secrets.onDidChange(() => live.soon()),
    command("rayside.refresh", () => live.now()),
    command("rayside.stopInTask", (row) => stopInTask(row, tree, debugging, live)),
    command("rayside.retryTask", (task) => retries.retry(task)),
    command("rayside.retryFailed", () => retries.retryFailed()),
    command("rayside.debugJob", (job) => debugging.start(job.submissionId || job.jobId, {}, job.whose)),
    command("rayside.debugCluster", () => debugging.start()),
    command("rayside.showStacks", (job) => stacks.show(job)),
    command("rayside.refreshStacks", () => stacks.show()),
    command("rayside.hideStacks", () => stacks.hide()),
    command("rayside.openStackLine", (file, number) => stacks.open(file, number)),
    command("rayside.showEveryone", () => access.show(true)),
    command("rayside.showMine", () => access.show(false)),
    command("rayside.runScript", (uri) => runScript(uri, { access, debugging, memory: context.workspaceState })),
    command("rayside.showOutput", (job) => showOutput(job, access, output)),
    command("rayside.openSettings", () =>
      vscode.commands.executeCommand("workbench.action.openSettings", "@ext:rayside.ray-breakpoints"),
    ),
    command("rayside.setToken", async () => (await access.askForToken()) && live.now()),
    command("rayside.showSteps", () => steps.show()),
    command("rayside.hideSteps", () => steps.hide()),
    command("rayside.askForHelp", () => workshop.askForHelp()),
    command("rayside.takeFilesHome", () => workshop.takeFilesHome()),
    command("rayside.beginLabs", () => labs.begin()),
    command("rayside.openLab", (name) => labs.open(name)),
    command("rayside.runLabStep", (name, step) => labs.run(name, step)),
    command("rayside.checkLab", (name) => labs.check(name)),
    command("rayside.resetLab", (name) => labs.reset(name)),
    command("rayside.solveLab", (name) => labs.solve(name)),
    command("rayside.openLabFile", (name, file) => labs.file(name, file)),
    command("rayside.openLabText", (name, language) => labs.text(name, language)),
  );
  bringPrograms(context.environmentVariableCollection);
  void reported(log, () => steps.begin());
  void live.now();
}

/** Puts the cluster's `python` and `ray` first on PATH in terminals, even if the user's .bashrc changes PATH. */
function bringPrograms(environment) {
  const programs = process.env.RAYSIDE_PROGRAMS;
  environment.persistent = false;
  if (!programs) return;
  const when = { applyAtProcessCreation: true, applyAtShellIntegration: true };
  environment.prepend("PATH", programs + path.delimiter, when);
}

/** The cluster's current state for the view. */
async function see(access, look, log) {
  const nothing = { jobs: [], cluster: null };
  let cluster = null;
  try {
    cluster = await access.cluster();
    if (!cluster) return { ...nothing, state: "nowhere", problem: "" };
    return await look.at(cluster, await access.token(cluster), access.everyone);
  } catch (error) {
    if (error instanceof ClusterError) {
      return { ...nothing, cluster, state: cluster ? "tokenMissing" : "nowhere", problem: error.message };
    }
    // A defect, but polling continues.
    log.error(error.stack);
    return { ...nothing, cluster, state: "down", problem: error.message };
  }
}

async function stopInTask(row, tree, debugging, live) {
  await live.now();
  const task = tree.task(row.key);
  if (!task) {
    const name = line(row.name) || "The task";
    void vscode.window.showInformationMessage(sentence(`${name} is not paused any more: it went on, or has ended`));
    return;
  }
  await debugging.stopIn(task, tree.jobOf(task));
}

async function showOutput(job, access, output) {
  if (!job.submissionId) {
    void vscode.window.showInformationMessage("Ray keeps the output of submitted jobs only.");
    return;
  }
  const cluster = await access.cluster();
  if (!cluster) throw new ClusterError("no Ray cluster was found");
  const text = await new Dashboard(cluster.dashboard, await access.token(cluster), undefined, cluster.trusted).output(job.submissionId);
  output.replace(text || `${line(job.submissionId)} has printed nothing so far.\n`);
  output.show(true);
}

/** Runs `act`; shows an error with what to do about it. */
async function reported(log, act) {
  try {
    return await act();
  } catch (error) {
    log.error(error.stack);
    const known = [ClusterError, DashboardError, LabError, ProgramError, RelayError, RetryError].some((kind) => error instanceof kind);
    const text = sentence(error.message) + (error.hint ? ` ${sentence(error.hint)}` : "");
    const chosen = await vscode.window.showErrorMessage(text, ...(known ? [] : ["Show Log"]));
    if (chosen) log.show();
  }
}

module.exports = { activate };
