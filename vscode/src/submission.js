/** Submits a script as a job with a debugger in its workers, through the cluster file's program `submit`. */
"use strict";

const path = require("node:path");
const { ProgramError, answer, run } = require("./program");

// Ray unpacks a job's working_dir into such a folder; a script in it is submitted with that folder.
const UNPACKED = /^(.*\/working_dir_files\/[^/]+)\/.+$/;
// Timeout in milliseconds to pack and upload the folder.
const PATIENCE = 300_000;

/**
 * Candidates for the working_dir of a script, the likeliest first.
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
 * Whether an earlier job from a folder had py_modules. That is only a reason to ask for them: any user of the Ray
 * cluster can submit such a job.
 *
 * @param {object[]} jobs rows of the Jobs API
 * @param {string} workingDir
 */
function hadModules(jobs, workingDir) {
  return jobs.some((job) => job.metadata && Boolean(job.metadata["rayside.py_modules"]) && isFrom(job, workingDir));
}

function isFrom(job, workingDir) {
  const stored = path.basename(String(job.runtime_env?.working_dir ?? ""), ".zip");
  return job.metadata["rayside.working_dir"] === workingDir || stored === path.basename(workingDir);
}

/** The words of the command; arguments as in `submit`. */
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
 * @throws {ProgramError}
 */
async function submit(cluster, script, signal) {
  if (!cluster.submit.length) {
    throw new ProgramError("this cluster was not started by ./invokew up, so jobs can't be submitted from here");
  }
  const words = command(cluster, script);
  const done = await run(words, cluster.environment, signal, PATIENCE);
  return submitted(words[0], done);
}

/** The submission id in the program's output. Throws ProgramError. */
function submitted(program, done) {
  const { submission_id } = answer(program, done);
  if (typeof submission_id === "string") return submission_id;
  throw new ProgramError(`${program} ended with exit code ${done.code} and named no job`);
}

/** The text quoted as one word of a shell. */
function quoted(text) {
  return /^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", `'"'"'`)}'`;
}

module.exports = { command, hadModules, submit, submitted, workingDirs };
