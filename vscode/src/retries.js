/** Retries: failed tasks run again, with the files that were saved since the job was submitted. */
"use strict";

const { createHash } = require("node:crypto");
const fs = require("node:fs/promises");
const { normalize } = require("node:path");
const vscode = require("vscode");
const { line, sentence } = require("./plain");

// Limits: bytes of an edited file, as in rayside/client/retrying.py, and of all, below the relay's limit of a request.
const LONGEST = 1024 * 1024;
const LONGEST_TOGETHER = 7 * LONGEST;
// Bytes at the start of a file that may declare its encoding.
const LONGEST_HEAD = 4096;
// Milliseconds between two checks of the files: a thousand tasks may fail one after the other.
const PAUSE = 1000;
// Milliseconds for which the status bar shows the sent files; limit of files that it names.
const SHOWN = 10_000;
const MOST_NAMED = 3;
// The encoding that one of the first two lines declares, as Python reads it.
const ENCODING = /^(?:[ \t\f]*(?:#.*)?\r?\n)?[ \t\f]*#.*?coding[:=][ \t]*([-\w.]+)/;
// Limit: kinds of outcomes in one notification.
const MOST_KINDS = 3;

/** Retry that can't be made; `message` says why. */
class RetryError extends Error {}

class Retries {
  #debugging;
  #log;
  #offers = new WeakMap(); // by session: {hashes of the texts that were sent to its relay, by path; looking, again}
  #told = "";

  /** @param {import("./debugging").Debugging} debugging */
  constructor(debugging, log) {
    this.#debugging = debugging;
    this.#log = log;
  }

  /** Sends saved files to the relay: VS Code's *Restart Frame* sends none. */
  register() {
    return [
      vscode.workspace.onDidSaveTextDocument((document) => {
        if (document.languageId !== "python") return;
        for (const session of this.#debugging.withFailed) void this.#offer(session);
      }),
      this.#debugging.onDidFail((session) => void this.#offer(session)),
    ];
  }

  /** Marks the tasks that can be retried. */
  mark(jobs) {
    for (const task of jobs.flatMap((job) => job.tasks)) task.failed = this.#debugging.failed(task) !== undefined;
  }

  /** Runs one failed task again. Throws RetryError. */
  async retry(task) {
    const name = line(task.name) || "the task";
    const found = this.#debugging.failed(task);
    if (!found) throw new RetryError(`${name} is not stopped by a failure here any more`);
    tell(await this.#retry(found.session, { threadId: found.threadId }, name), name);
  }

  /** Runs all failed tasks again. Throws RetryError. */
  async retryFailed() {
    const sessions = this.#debugging.withFailed;
    if (!sessions.length) throw new RetryError("no task that failed is stopped here: debug its job first");
    const rows = await Promise.all(sessions.map((session) => this.#retry(session, { group: "failed" }, "all failed tasks")));
    tell(rows.flat());
  }

  async #retry(session, which, name) {
    const files = await this.#edited(session);
    const shown = { location: vscode.ProgressLocation.Notification, title: `Running ${name} again …` };
    const { retried } = await vscode.window.withProgress(shown, () => this.#send(session, "retry", which, files));
    return retried;
  }

  /** Sends a session the saved files, for its next *Restart Frame*; calls meanwhile cost one more check. */
  async #offer(session) {
    const offer = this.#offerOf(session);
    offer.again = true;
    if (offer.looking) return;
    offer.looking = true;
    try {
      while (offer.again) {
        offer.again = false;
        const files = await this.#edited(session);
        if (files.length) {
          await this.#send(session, "edits", {}, files);
          const names = files.map(({ path }) => line(path.split(/[\\/]/).at(-1)));
          vscode.window.setStatusBarMessage(`Failed tasks run again with ${names.slice(0, MOST_NAMED).join(", ")}`, SHOWN);
        }
        if (offer.again) await new Promise((resolve) => setTimeout(resolve, PAUSE));
      }
    } catch (error) {
      this.#explain(error);
    } finally {
      offer.looking = false;
    }
  }

  /** Not a user's request, so an error of the relay is only logged; an unusable file is shown once. */
  #explain(error) {
    this.#log.info(`what is saved was not sent: ${error.message}`);
    if (!(error instanceof UnusableFile) || error.message === this.#told) return;
    this.#told = error.message;
    void vscode.window.showWarningMessage(sentence(error.message));
  }

  #offerOf(session) {
    if (!this.#offers.has(session)) this.#offers.set(session, { hashes: new Map(), looking: false, again: false });
    return this.#offers.get(session);
  }

  async #send(session, command, args, files) {
    const answer = await requested(session, command, { ...args, files });
    for (const { path, text } of files) this.#offerOf(session).hashes.set(path, hash(text));
    return answer;
  }

  /** The saved files that differ from the failed tasks' sources, or from the texts sent to the relay before. */
  async #edited(session) {
    const { files: running = {} } = await requested(session, "sources", {});
    return differing(running, this.#offerOf(session).hashes);
  }
}

/** File that can't be sent; `message` says why. */
class UnusableFile extends RetryError {}

async function requested(session, command, args) {
  try {
    return (await session.customRequest(command, args)) ?? {};
  } catch (error) {
    throw new RetryError(error.message);
  }
}

/**
 * The saved texts of files in open folders whose SHA-256 differs from `running`, or from the one in `given` if the
 * relay got one. Throws UnusableFile.
 *
 * @param {Record<string, string>} running by path
 * @param {Map<string, string>} given by path
 * @returns {Promise<{path: string, text: string}[]>}
 */
async function differing(running, given) {
  const files = [];
  for (const [path, sha256] of Object.entries(running)) {
    // The paths come from processes of the cluster (untrusted): no other files are sent to them.
    if (!path.endsWith(".py") || !isOpen(path)) continue;
    const content = await contentOf(path);
    if (!content) continue;
    const text = decoded(path, content);
    const own = hash(text);
    if (own === sha256 && own === (given.get(path) ?? own)) continue;
    if (content.length > LONGEST) throw new UnusableFile(`${line(path)} has more than 1 MiB: submit the job again for a file so long`);
    files.push({ path, text });
  }
  if (Buffer.byteLength(JSON.stringify(files)) > LONGEST_TOGETHER) {
    throw new UnusableFile("the files that were edited have more than 7 MiB together: submit the job again");
  }
  return files;
}

/** Whether a file is in an open folder, or is open itself. */
function isOpen(path) {
  const { getWorkspaceFolder, textDocuments } = vscode.workspace;
  const inFolder = normalize(path) === path && getWorkspaceFolder(vscode.Uri.file(path)) !== undefined;
  return inFolder || textDocuments.some((document) => document.uri.fsPath === path);
}

/** The file's content; undefined if it is not here, as for a job that was submitted from elsewhere. */
async function contentOf(path) {
  try {
    return (await fs.stat(path)).isFile() ? await fs.readFile(path) : undefined;
  } catch {
    return undefined;
  }
}

/** A source's text, decoded as by `importlib.util.decode_source`. Throws UnusableFile. */
function decoded(path, content) {
  const declared = ENCODING.exec(content.toString("latin1", 0, LONGEST_HEAD))?.[1] ?? "utf-8";
  const name = declared.toLowerCase().replaceAll("_", "-").replace(/^(iso-)?latin-1/, "latin1");
  let text;
  try {
    text = new TextDecoder(name, { fatal: true }).decode(content);
  } catch {
    throw new UnusableFile(`${line(path)} can't be read as ${line(declared)}: save it in UTF-8`);
  }
  return text.replace(/\r\n?/g, "\n");
}

function hash(text) {
  return createHash("sha256").update(text).digest("hex");
}

/** Shows the outcomes: of one task, or of all failed tasks. */
function tell(rows, name = "") {
  const text = sentence(name && rows.length === 1 ? `${name} ${kindsOf(rows)[0].text}` : outcomes(rows));
  const well = rows.every((row) => row.outcome === "returned");
  void (well ? vscode.window.showInformationMessage(text) : vscode.window.showWarningMessage(text));
}

/** As in "18 returned, 2 raised: ValueError: no". */
function outcomes(rows) {
  const kinds = kindsOf(rows);
  const shown = kinds.slice(0, MOST_KINDS).map(({ text, number }) => `${number} ${text}`);
  const rest = kinds.slice(MOST_KINDS).reduce((sum, { number }) => sum + number, 0);
  return [...shown, ...(rest ? [`${rest} otherwise`] : [])].join(", ");
}

/** Outcomes grouped by text: `returned` first, then the most frequent. */
function kindsOf(rows) {
  const numbers = new Map();
  for (const { outcome, why } of rows) {
    const text = [outcome, why].filter(Boolean).map(line).join(": ");
    numbers.set(text, (numbers.get(text) ?? 0) + 1);
  }
  const kinds = [...numbers].map(([text, number]) => ({ text, number }));
  return kinds.sort((a, b) => (b.text === "returned") - (a.text === "returned") || b.number - a.number);
}

module.exports = { Retries, RetryError, differing, outcomes };
