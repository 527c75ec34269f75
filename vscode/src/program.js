/** Runs the programs in the cluster file; each prints one JSON document. */
"use strict";

const { execFile } = require("node:child_process");

// Limit: bytes of a program's output.
const MOST_TEXT = 64 * 1024 * 1024;
const WHY = { ERR_CHILD_PROCESS_STDIO_MAXBUFFER: "printed too much" };

/** `message` says what happened, `hint` what to do about it; `id` is the id of Rayside's error, if any. */
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
 * @param {number} patience timeout in milliseconds, after which it is ended
 * @returns {Promise<{code: number, out: string, err: string}>}
 * @throws {ProgramError}
 */
function run([program, ...args], environment, signal, patience) {
  const env = { ...process.env, ...environment };
  return new Promise((resolve, reject) => {
    const options = { env, signal, timeout: patience, maxBuffer: MOST_TEXT };
    const child = execFile(program, args, options, (error, out, err) => {
      if (!error || typeof error.code === "number") return resolve({ code: error?.code ?? 0, out, err });
      const why = WHY[error.code] ?? (error.signal ? `was ended (${error.signal}) before it was done` : `can't be run: ${error.code ?? error.message}`);
      return reject(new ProgramError(signal.aborted ? "it was cancelled" : `${program} ${why}`));
    });
    child.stdin?.end();
  });
}

/** The document that a program printed. Throws ProgramError if it is an error, or no JSON. */
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
