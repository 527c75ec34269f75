/**
 * A place of a workshop: writes a file that the workshop's front door reads for the teacher, with the attendee's
 * progress, stopped tasks and requests for help; and packs the attendee's files for the door's last page.
 */
"use strict";

const fs = require("node:fs/promises");
const path = require("node:path");
const vscode = require("vscode");
const { line } = require("./plain");
const { ProgramError, run } = require("./program");

// Context: whether this is a place of a workshop.
const HERE = "rayside.workshop";
// Record of `lab` in a copy: bootstrap/labs/copies.py.
const RECORD = ".lab.json";
// Limits: bytes of a file that is read, characters of an attendee's request for help.
const LARGEST = 16_384;
const LONGEST = 150;
const LOOK = "Ask for help: the teacher may look into this place";
const ASK = "Ask for help: the teacher comes to you";
const DONE = "No help is needed any more";
// Program of the workspace's image, and its timeout in milliseconds.
const PACKS = "/opt/workspace/pack-files";
const PATIENCE = 120_000;
// The front door's page with the commands for home: image/programs/door/home.go.
const HOME = "/_door/home";
const OPEN = "Open the Page";

class Workshop {
  #file;
  #known;
  #log;
  #packs;
  #acted = Date.now();
  #labs = { lab: null, labs_passed: 0 };
  #before = "";
  #status;
  #changing = Promise.resolve();

  /**
   * @param {() => {name: string, title: string, steps: string[]}[]} known all labs
   * @param {vscode.LogOutputChannel} log
   * @param {Record<string, string | undefined>} environment `RAYSIDE_PROGRESS`: the file, set only in a place
   * @param {string} packs the program that packs the attendee's files
   */
  constructor(known, log, environment = process.env, packs = PACKS) {
    this.#known = known;
    this.#log = log;
    this.#file = environment.RAYSIDE_PROGRESS ?? "";
    this.#packs = packs;
  }

  /** In a place of a workshop, offers to ask for help; returns the disposables. */
  register() {
    if (!this.#file) return [];
    void vscode.commands.executeCommand("setContext", HERE, true);
    this.#status = vscode.window.createStatusBarItem("rayside.help", vscode.StatusBarAlignment.Left, 9);
    this.#status.name = "Ask for Help";
    this.#status.command = "rayside.askForHelp";
    this.#offer();
    const acts = () => (this.#acted = Date.now());
    return [
      this.#status,
      vscode.window.onDidChangeTextEditorSelection(acts),
      vscode.workspace.onDidChangeTextDocument(acts),
      vscode.window.onDidChangeActiveTextEditor(acts),
      vscode.window.onDidChangeActiveTerminal(acts),
      // VS Code has this event from 1.93 on.
      ...(vscode.window.onDidStartTerminalShellExecution ? [vscode.window.onDidStartTerminalShellExecution(acts)] : []),
    ];
  }

  /** Asks which help is needed, and writes it for the teacher. */
  async askForHelp() {
    if (!this.#file) return;
    const help = await this.#help();
    const picked = await vscode.window.showQuickPick(help ? [DONE, LOOK, ASK] : [LOOK, ASK], {
      title: "Ask for Help",
      placeHolder: "Your teacher sees that you ask, on a page that other attendees don't have",
    });
    if (!picked) return;
    let text = "";
    if (picked !== DONE) {
      const given = await vscode.window.showInputBox({
        title: "Ask for Help",
        prompt: "What is it about? Your teacher reads it. It may stay empty.",
        value: help?.text ?? "",
        ignoreFocusOut: true,
      });
      if (given === undefined) return;
      text = [...line(given)].slice(0, LONGEST).join("");
    }
    this.#acted = Date.now();
    await this.#change(async () => {
      await replace(this.#helpFile, picked === DONE ? {} : { text, may_look: picked === LOOK });
      await this.#write(await this.#read());
    });
  }

  /**
   * Packs the attendee's files for the front door, and offers its page. Throws ProgramError.
   */
  async takeFilesHome() {
    if (!this.#file) return;
    this.#acted = Date.now();
    await vscode.workspace.saveAll(false);
    const where = { location: vscode.ProgressLocation.Notification, title: "Packing your files" };
    const words = [this.#packs, `${this.#file}.tar.gz`];
    const done = await vscode.window.withProgress(where, () => run(words, {}, new AbortController().signal, PATIENCE));
    if (done.code !== 0) throw new ProgramError(done.err.trim() || `${this.#packs} ended with exit code ${done.code}`);
    const page = await ofDoor(HOME);
    if (!page) {
      void vscode.window.showInformationMessage(`Your files are packed: open ${HOME} at the address of the workshop.`);
      return;
    }
    // Browsers open a page only after a click.
    const packed = "Your files are packed. A page says how to take them home.";
    const chosen = await vscode.window.showInformationMessage(packed, OPEN);
    if (chosen === OPEN) await vscode.env.openExternal(page);
  }

  /**
   * Writes the state of the cluster, and the request for help, which another window may have made.
   *
   * @param {import("./look").Seen} seen
   */
  async tell(seen) {
    if (!this.#file) return;
    try {
      // Without a cluster the labs' folder is unknown.
      if (seen.cluster) this.#labs = await this.#progress(seen.cluster);
      const stopped = inWords(seen.jobs.flatMap((job) => job.tasks.map((task) => line(task.name) || "a task")));
      const now = JSON.stringify([this.#labs, stopped]);
      if (now !== this.#before && this.#before && seen.cluster) this.#acted = Date.now();
      this.#before = now;
      await this.#change(() => this.#write({ ...this.#labs, stopped }));
    } catch (error) {
      this.#log.debug(`the workshop's teacher is not told: ${error.message}`);
    }
  }

  #offer(asks = false) {
    this.#status.text = asks ? "$(bell-dot) Help Asked For" : "$(question) Ask for Help";
    this.#status.tooltip = asks
      ? "Your teacher sees that you ask for help. Click to change it, or once no help is needed."
      : "Tells your teacher that you need help.";
    this.#status.show();
  }

  /** The number of passed labs, and the step in the lab that the attendee worked on last (null without one). */
  async #progress(cluster) {
    const [verbs] = cluster?.verbs ?? [];
    const folder = verbs ? path.join(path.dirname(verbs), "labs") : "";
    let [lab, latest, passed] = [null, 0, 0];
    for (const { name, title, steps } of folder ? this.#known() : []) {
      const file = path.join(folder, name, RECORD);
      const record = await json(file);
      if (!record) continue;
      passed += record.passed === true;
      const { mtimeMs } = await fs.stat(file);
      if (mtimeMs < latest) continue;
      latest = mtimeMs;
      // The last step is the check.
      const done = Number.isInteger(record.steps_done) ? record.steps_done : 0;
      const failed = Number.isInteger(record.checks_failed) ? record.checks_failed : 0;
      const step = Math.min(done + 1, steps.length);
      lab = { title, step, steps: steps.length, passed: record.passed === true, checks_failed: failed };
    }
    return { lab, labs_passed: passed };
  }

  async #read() {
    return (await json(this.#file)) ?? {};
  }

  /** The request for help has a separate file, as several windows may be open. */
  get #helpFile() {
    return `${this.#file}.help`;
  }

  async #help() {
    const help = await json(this.#helpFile);
    return typeof help?.text === "string" ? { text: help.text, may_look: help.may_look === true } : null;
  }

  /** Writes the state, with the request for help; `idle` counts from the last action in any window. */
  async #write(told) {
    const help = await this.#help();
    const { acted } = await this.#read();
    const now = Date.now();
    // Only the pod's own clock counts.
    this.#acted = Math.min(now, Math.max(this.#acted, Number.isFinite(acted) ? acted : 0));
    const idle = Math.round((now - this.#acted) / 1000);
    await replace(this.#file, { ...told, acted: this.#acted, idle, help });
    this.#offer(Boolean(help));
  }

  /** Runs changes one after the other. */
  #change(act) {
    this.#changing = this.#changing.catch(() => undefined).then(act);
    return this.#changing;
  }
}

/** A page of the front door at this browser's address; null if that is unknown. */
async function ofDoor(name) {
  // VS Code's API does not contain the browser's address, but a URL of a local port is made from it.
  const here = vscode.Uri.parse("http://localhost:1/");
  const there = await vscode.env.asExternalUri(here);
  return there.authority === here.authority ? null : there.with({ path: name, query: "", fragment: "" });
}

/** Replaces a file with an object's JSON, atomically. */
async function replace(file, document) {
  const draft = `${file}.${process.pid}`;
  await fs.writeFile(draft, JSON.stringify(document), { mode: 0o600 });
  await fs.rename(draft, file);
}

/** The object in a file; null without a readable one. */
async function json(file) {
  try {
    const { size } = await fs.stat(file);
    const read = size <= LARGEST ? JSON.parse(await fs.readFile(file, "utf8")) : null;
    return read && typeof read === "object" && !Array.isArray(read) ? read : null;
  } catch {
    return null;
  }
}

/** As in "work and 2 more"; "" without names. */
function inWords(names) {
  const [first = ""] = names;
  return names.length > 1 ? `${first} and ${names.length - 1} more` : first;
}

module.exports = { Workshop };
