/**
 * Labs: opens their walkthroughs with the code beside, and runs the commands of their buttons through Rayside's verbs
 * in the clone. `walkthroughs.js` writes the labs and steps into the manifest: any extension can call a command with
 * any arguments, and a lab or step that is not in the manifest is refused.
 */
"use strict";

const path = require("node:path");
const vscode = require("vscode");
const { ClusterError } = require("./access");
const { ProgramError, answer, run } = require("./program");
const { sentence } = require("./plain");
const { Ticks } = require("./ticks");

// Contexts: the target on which labs can be done from here, or ""; and whether they can be done elsewhere.
const OFFERED = "rayside.labs";
const ELSEWHERE = "rayside.labsElsewhere";
const TASK = "rayside.lab";
// The target of the workspace in a cluster's own pod.
const POD = "pod";
// Timeout in milliseconds of a check; a lab's jobs get three minutes each.
const PATIENCE = 900_000;
// Limit: characters of a message with the output of a learner's job.
const MOST = 600;

/** `message` says what can't be done, `hint` what to do instead. */
class LabError extends Error {
  constructor(message, hint = "") {
    super(message);
    this.hint = hint;
  }
}

/**
 * @typedef {object} Lab
 * @property {string} name
 * @property {string} title in the editor's language
 * @property {string[]} targets where it can be done
 * @property {string[]} steps ids; `run-1` has a command, `do-2` has none, `check` is the last
 */

class Labs {
  #access;
  #known;
  #ticks;
  #offered = { [OFFERED]: "", [ELSEWHERE]: false };
  #busy = "";

  /**
   * @param {vscode.Extension} extension ours
   * @param {import("./access").Access} access
   * @param {vscode.LogOutputChannel} log
   */
  constructor(extension, access, log) {
    this.#access = access;
    this.#known = (extension.packageJSON.contributes.walkthroughs ?? []).map(({ id, title, when, steps }) => ({
      name: id,
      title,
      targets: [...when.matchAll(/'(\w+)'/g)].map(([, target]) => target),
      steps: steps.map((step) => step.id),
    }));
    this.#ticks = new Ticks(extension.id, log);
  }

  /** All labs, for any target. */
  get known() {
    return this.#known;
  }

  /** Shows the walkthroughs of the labs that can be done on this cluster, which may be null. */
  offer(cluster) {
    const here = Boolean(cluster?.verbs.length && this.#known.length);
    const now = { [OFFERED]: here ? cluster.target : "", [ELSEWHERE]: Boolean(cluster) && !here };
    for (const [key, value] of Object.entries(now)) {
      if (value !== this.#offered[key]) void vscode.commands.executeCommand("setContext", key, value);
    }
    this.#offered = now;
  }

  /** Opens the first lab, as the first screen offers it. */
  begin() {
    return this.open(this.#known[0]?.name ?? "");
  }

  /** Opens a lab's walkthrough, and its code beside; asks for the lab without a name. */
  async open(name) {
    const cluster = await this.#cluster();
    const lab = name === undefined ? await this.#pick(cluster) : this.#lab(name);
    if (!lab) return;
    const { folder, files } = await this.#look(cluster, lab);
    await vscode.commands.executeCommand("workbench.action.openWalkthrough", this.#ticks.id(lab), false);
    const first = files.find((file) => file === "main.py") ?? files.find((file) => file.endsWith(".py")) ?? files[0];
    if (first) await beside(path.join(folder, first));
  }

  /** Runs a step's command in a terminal, as if it had been typed. */
  async run(name, step) {
    const lab = this.#lab(name);
    if (!Number.isInteger(step) || !lab.steps.includes(`run-${step}`)) {
      throw new LabError(`${lab.title} has no step ${JSON.stringify(step)} that runs something`);
    }
    const { cluster } = await this.#begun(name);
    const [program, ...words] = [...cluster.verbs, "lab", lab.name, "--step", String(step)];
    const execution = new vscode.ProcessExecution(program, words, {
      cwd: path.dirname(program),
      env: cluster.environment,
    });
    const title = `${lab.title} (${step})`;
    const task = new vscode.Task({ type: TASK, lab: lab.name, step }, vscode.TaskScope.Workspace, title, "Ray", execution);
    const { Always } = vscode.TaskRevealKind;
    task.presentationOptions = { reveal: Always, focus: true, echo: false, showReuseMessage: false };
    await ended(task);
    await this.#look(cluster, lab);
  }

  /** Checks the exercise, and shows what is missing. */
  async check(name) {
    const { lab, cluster } = await this.#begun(name);
    try {
      await this.#change(cluster, lab, "Checking", "--check");
    } catch (error) {
      if (error.id !== "not-solved") throw error;
      void vscode.window.showWarningMessage(told(error));
      return;
    }
    await this.#look(cluster, lab);
    const next = this.#doable(cluster).find((known) => known.name > lab.name);
    const choices = next ? ["Next Lab"] : [];
    const chosen = await vscode.window.showInformationMessage(sentence(`Passed: ${lab.title}`), ...choices);
    if (chosen) await this.open(next.name);
  }

  /** Resets the learner's copy. */
  async reset(name) {
    const { lab, cluster } = await this.#begun(name);
    const { kept } = await this.#change(cluster, lab, "Resetting", "--reset");
    await this.#look(cluster, lab);
    const edited = kept ? ` What you had edited is in ${kept}.` : "";
    void vscode.window.showInformationMessage(sentence(`${lab.title}: your files are as at the beginning.${edited}`));
  }

  /** Puts the solution into the learner's copy. */
  async solve(name) {
    const { lab, cluster } = await this.#begun(name);
    await this.#change(cluster, lab, "Solving", "--solve");
    const { folder } = await this.#look(cluster, lab);
    void vscode.window.showInformationMessage(
      sentence(`${lab.title}: the solution is in ${folder}. What you had edited is in .kept beside it. Check comes next.`),
    );
  }

  /** Opens a file of the learner's copy beside. */
  async file(name, file) {
    const lab = this.#lab(name);
    const { folder, files } = await this.#look(await this.#cluster(), lab);
    if (!files.includes(file)) throw new LabError(`${lab.title} has no file ${JSON.stringify(file)}`);
    await beside(path.join(folder, file));
  }

  /** Opens the lab's own text, in English or Chinese, beside. */
  async text(name, language) {
    const lab = this.#lab(name);
    const { texts } = await this.#look(await this.#cluster(), lab);
    if (!Object.hasOwn(texts, language)) throw new LabError(`${lab.title} has no text in ${JSON.stringify(language)}`);
    await beside(texts[language]);
  }

  /** A lab, and the cluster on which it can be done; saves the learner's edits. */
  async #begun(name) {
    const lab = this.#lab(name);
    const cluster = await this.#cluster();
    // Steps and checks use the files on disk.
    const edited = vscode.workspace.textDocuments.filter(
      (document) => document.isDirty && document.uri.fsPath.includes(`/labs/${lab.name}/`),
    );
    for (const document of edited) await document.save();
    return { lab, cluster };
  }

  #doable(cluster) {
    return this.#known.filter((lab) => lab.targets.includes(cluster.target));
  }

  #lab(name) {
    const lab = this.#known.find((known) => known.name === name);
    if (!lab) throw new LabError(`there is no lab ${JSON.stringify(name)}`);
    return lab;
  }

  /** The cluster, if labs can be done on it from here. Throws LabError. */
  async #cluster() {
    const cluster = await this.#access.cluster();
    if (!cluster) throw new ClusterError("no Ray cluster was found: run ./invokew up first");
    // The verbs are programs of the clone, which may be the open folder; in a pod they belong to the image.
    if (!vscode.workspace.isTrusted && cluster.target !== POD) {
      throw new LabError("in Restricted Mode no lab is run", "trust this folder first: Workspaces: Manage Workspace Trust");
    }
    if (!cluster.verbs.length) {
      throw new LabError("labs are done on the machine where Rayside was cloned", "run ./invokew lab 1 there");
    }
    return cluster;
  }

  /** Asks for one of the labs that can be done on this cluster; undefined if none was chosen. */
  async #pick(cluster) {
    const passed = (await ask(cluster, ["labs"])).filter((row) => row.passed).map((row) => row.name);
    const items = this.#doable(cluster).map((lab) => {
      return { label: lab.title, description: passed.includes(lab.name) ? "passed" : "", lab };
    });
    const picked = await vscode.window.showQuickPick(items, { title: "Which lab?" });
    return picked?.lab;
  }

  /** The learner's copy, which is made if missing, and the progress; ticks the steps. */
  async #look(cluster, lab) {
    const where = { location: vscode.ProgressLocation.Window, title: `Looking at ${lab.title}` };
    const document = await vscode.window.withProgress(where, () => ask(cluster, ["lab", lab.name]));
    await this.#ticks.show(lab, document);
    return document;
  }

  /** Runs `lab NAME` with an option, one at a time, with a cancellable progress notification. Throws ProgramError. */
  async #change(cluster, lab, doing, option) {
    if (this.#busy) throw new LabError(`${this.#busy} is not done yet`, "wait for it, or cancel it");
    const title = `${doing} ${lab.title}`;
    this.#busy = title;
    try {
      return await vscode.window.withProgress(
        { location: vscode.ProgressLocation.Notification, title, cancellable: true },
        (progress, cancellation) => {
          const abort = new AbortController();
          cancellation.onCancellationRequested(() => abort.abort());
          return ask(cluster, ["lab", lab.name, option], abort.signal);
        },
      );
    } finally {
      this.#busy = "";
    }
  }
}

/** The JSON document of a verb, which `signal` ends. Throws ProgramError. */
async function ask(cluster, words, signal = new AbortController().signal) {
  const command = [...cluster.verbs, ...words, "--json"];
  return answer(command[0], await run(command, cluster.environment, signal, PATIENCE));
}

/** Runs one of our VS Code tasks to its end. */
async function ended(task) {
  const { lab, step } = task.definition;
  await new Promise((resolve, reject) => {
    const listening = vscode.tasks.onDidEndTask(({ execution }) => {
      const { definition } = execution.task;
      if (definition.type !== TASK || definition.lab !== lab || definition.step !== step) return;
      listening.dispose();
      resolve();
    });
    vscode.tasks.executeTask(task).then(undefined, (error) => {
      listening.dispose();
      reject(error);
    });
  });
}

/** Opens a file in the second column: the walkthrough is in the first. */
async function beside(file) {
  const options = { viewColumn: vscode.ViewColumn.Two, preserveFocus: true, preview: false };
  await vscode.window.showTextDocument(vscode.Uri.file(file), options);
}

/** The text of a failed check, which may contain output of a job. */
function told({ message, hint }) {
  const short = (text) => sentence([...text].slice(0, MOST).join(""));
  return `${short(`Not yet: ${message}`)}${hint ? ` ${short(hint)}` : ""}`;
}

module.exports = { LabError, Labs };
