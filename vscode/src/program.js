/** Runs the programs that the cluster file names, which print one JSON document each. */
"use strict";

const { spawn } = require("node:child_process");

// The end of what a program printed is what tells why it failed.
const MOST_TEXT = 1024 * 1024;

/** `message` says what happened, `hint` what to do about it, `id` is that of an error of Rayside's. */
class ProgramError extends Error {
  constructor(message, hint = "", id = "") {
    super(message);
    this.hint = hint;
    this.id = id;
  }
}

/**
 * Runs a program to its end.
 *
 * @param {string[]} words the program and its arguments, which no shell sees
 * @param {Record<string, string>} environment variables besides this process's own
 * @param {AbortSignal} signal ends the program
 * @param {number} patience milliseconds after which it is ended
 * @returns {Promise<{code: number, out: string, err: string}>}
 * @throws {ProgramError}
 */
function run([program, ...args], environment, signal, patience) {
  return new Promise((resolve, reject) => {
    const env = { ...process.env, ...environment };
    const child = spawn(program, args, { env, signal, stdio: ["ignore", "pipe", "pipe"] });
    // Not spawn's own time-out, which outlives a program that could not be started.
    const timer = setTimeout(() => child.kill(), patience);
    const fail = (why) => {
      clearTimeout(timer);
      reject(new ProgramError(why));
    };
    const texts = { out: "", err: "" };
    child.stdout.setEncoding("utf8").on("data", (text) => (texts.out = (texts.out + text).slice(-MOST_TEXT)));
    child.stderr.setEncoding("utf8").on("data", (text) => (texts.err = (texts.err + text).slice(-MOST_TEXT)));
    child.on("error", (error) => {
      fail(signal.aborted ? "it was cancelled" : `${program} can't be run: ${error.code ?? error.message}`);
    });
    child.on("close", (code, killed) => {
      clearTimeout(timer);
      if (code === null) fail(`${program} was ended (${killed}) before it was done`);
      else resolve({ code, ...texts });
    });
  });
}

/** The document that a program printed. Throws ProgramError where that is an error, or none. */
function answer(program, { code, out, err }) {
  let document;
  try {
    document = JSON.parse(out);
  } catch {
    const end = (err.trim() || out.trim()).split("\n").slice(-3).join(" ");
    throw new ProgramError(`${program} ended with exit code ${code}${end ? `: ${end}` : ""}`);
  }
  const { error } = document ?? {};
  if (error) throw new ProgramError(String(error.message), String(error.hint ?? ""), String(error.id ?? ""));
  if (code !== 0) throw new ProgramError(`${program} ended with exit code ${code}`);
  return document ?? {};
}

module.exports = { ProgramError, answer, run };
