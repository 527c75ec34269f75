/** Submits a script as a job with a debugger in its workers, by the program that the cluster file names. */
"use strict";

const { spawn } = require("node:child_process");
const path = require("node:path");

// Ray unpacks a job's working_dir into a folder of this form, which is then what a job is submitted from.
const UNPACKED = /^(.*\/working_dir_files\/[^/]+)\/.+$/;
// For packing and uploading the folder.
const PATIENCE = 300_000;
// The end of what a program printed is what tells why it failed.
const MOST_TEXT = 1024 * 1024;

/** `message` says what happened, `hint` what to do about it. */
class SubmissionError extends Error {
  constructor(message, hint = "") {
    super(message);
    this.hint = hint;
  }
}

/**
 * The folders that could be the working_dir of a script, the likeliest first.
 *
 * @param {string} file
 * @param {string | undefined} folder the workspace folder that the file is in
 */
function workingDirs(file, folder) {
  const unpacked = UNPACKED.exec(file);
  if (unpacked) return [unpacked[1]];
  const own = path.dirname(file);
  return folder && folder !== own ? [folder, own] : [own];
}

/**
 * The py_modules of the last job that was submitted from a folder: as they were written where they are
 * here, else as Ray has stored them.
 *
 * @param {object[]} jobs rows of the Jobs API
 * @param {string} workingDir
 * @param {(path: string) => boolean} exists
 * @returns {string[]}
 */
function modulesOf(jobs, workingDir, exists) {
  const last = jobs
    .filter((job) => job.metadata && isFrom(job, workingDir))
    .sort((a, b) => (b.start_time ?? 0) - (a.start_time ?? 0))[0];
  const written = list(last?.metadata["rayside.py_modules"]);
  if (written.every(exists)) return written;
  // The debugger's own comes after the user's, and is added again.
  const stored = last.runtime_env?.py_modules;
  return Array.isArray(stored) ? stored.slice(0, written.length).map(String) : [];
}

function isFrom(job, workingDir) {
  const stored = path.basename(String(job.runtime_env?.working_dir ?? ""), ".zip");
  return job.metadata["rayside.working_dir"] === workingDir || stored === path.basename(workingDir);
}

function list(text) {
  try {
    const values = JSON.parse(text ?? "[]");
    return Array.isArray(values) ? values.map(String) : [];
  } catch {
    return [];
  }
}

/** The words of the command. Arguments as of `submit`. */
function command({ submit }, { file, workingDir, modules }) {
  const script = quoted(path.relative(workingDir, file));
  return [
    ...submit,
    ...["--debug", "--working-dir", workingDir, "--entrypoint", `python ${script}`, "--json"],
    ...modules.flatMap((module) => ["--py-modules", module]),
  ];
}

/**
 * The submission id of the new job.
 *
 * @param {import("./cluster").Cluster} cluster
 * @param {{file: string, workingDir: string, modules: string[]}} script
 * @param {AbortSignal} signal ends the program
 * @throws {SubmissionError}
 */
async function submit(cluster, script, signal) {
  if (!cluster.submit.length) {
    throw new SubmissionError("this cluster was not started by ./invokew up, so jobs can't be submitted from here");
  }
  const words = command(cluster, script);
  const { code, out, err } = await run(words, { ...process.env, ...cluster.environment }, signal);
  return answer(words[0], code, out, err);
}

/** Returns the submission id in what the program printed. Throws SubmissionError. */
function answer(program, code, out, err) {
  let document;
  try {
    document = JSON.parse(out);
  } catch {
    const end = (err.trim() || out.trim()).split("\n").slice(-3).join(" ");
    throw new SubmissionError(`${program} ended with exit code ${code}${end ? `: ${end}` : ""}`);
  }
  if (document?.error) throw new SubmissionError(String(document.error.message), String(document.error.hint ?? ""));
  if (code === 0 && typeof document?.submission_id === "string") return document.submission_id;
  throw new SubmissionError(`${program} ended with exit code ${code} and named no job`);
}

function run([program, ...args], env, signal) {
  return new Promise((resolve, reject) => {
    const child = spawn(program, args, { env, signal, stdio: ["ignore", "pipe", "pipe"] });
    // Not spawn's own time-out, which outlives a program that could not be started.
    const timer = setTimeout(() => child.kill(), PATIENCE);
    const fail = (why) => {
      clearTimeout(timer);
      reject(new SubmissionError(why));
    };
    const texts = { out: "", err: "" };
    child.stdout.setEncoding("utf8").on("data", (text) => (texts.out = (texts.out + text).slice(-MOST_TEXT)));
    child.stderr.setEncoding("utf8").on("data", (text) => (texts.err = (texts.err + text).slice(-MOST_TEXT)));
    child.on("error", (error) => {
      fail(signal.aborted ? "the submission was cancelled" : `${program} can't be run: ${error.code ?? error.message}`);
    });
    child.on("close", (code, killed) => {
      clearTimeout(timer);
      if (code === null) fail(`${program} was ended (${killed}) before it was done`);
      else resolve({ code, ...texts });
    });
  });
}

/** As one word of a shell. */
function quoted(text) {
  return /^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", `'"'"'`)}'`;
}

module.exports = { SubmissionError, answer, command, modulesOf, submit, workingDirs };
