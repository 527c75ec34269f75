/** Data of the view: jobs with their paused tasks. Uses no editor API and no network. */
"use strict";

const { line } = require("./plain");

const RUNNING = new Set(["PENDING", "RUNNING"]);
// Limit: ended jobs without paused tasks, which are shown for their output.
const MOST_ENDED = 5;
// Limit: characters of a user's name.
const LONGEST_USER = 64;

/**
 * @typedef {object} Task
 * @property {string} key unique and stable
 * @property {string} workerId
 * @property {string} name "" until Ray's task table has caught up
 * @property {string} nodeIp
 * @property {number} pid
 * @property {string} jobId
 * @property {string} since when it stopped if it is held, else when it began to run, ISO 8601
 * @property {boolean} held whether it is stopped in a debugger of the relay, else it waits for one
 * @property {boolean} [failed] whether it is stopped in a session here because it has failed
 */

/**
 * @typedef {object} Job
 * @property {string} key
 * @property {string} submissionId "" for a driver that was not submitted
 * @property {string} jobId "" until its driver runs
 * @property {string} status Ray's status
 * @property {boolean} running
 * @property {string} entrypoint
 * @property {string} whose the name of the job's user if that is another one, else ""
 * @property {Task[]} tasks
 */

/**
 * The jobs, those with paused tasks and the running ones first, the newest first. On a Ray cluster that several people
 * debug on: the user's own jobs, jobs without a user, and other users' jobs with paused tasks.
 *
 * @param {object[]} jobs rows of the Jobs API
 * @param {object[]} paused rows of the relay's `pausedTasks`
 * @param {string} user the user's name there, "" on a Ray cluster with one user
 * @param {boolean} everyone whether the jobs of all users are wanted
 * @returns {Job[]}
 */
function join(jobs, paused, user = "", everyone = false) {
  const found = new Map();
  for (const row of jobs) {
    const job = jobOf(row, user);
    found.set(job.jobId || job.key, { ...job, started: row.start_time ?? 0 });
  }
  const perWorker = new Map();
  for (const row of paused) {
    const n = perWorker.get(row.worker_id) ?? 0;
    perWorker.set(row.worker_id, n + 1);
    const task = taskOf(row, n);
    if (!found.has(task.jobId)) {
      // Ray does not list its job, or not yet.
      const entrypoint = task.jobId ? `job ${task.jobId}` : "Job not known yet";
      found.set(task.jobId, { ...jobOf({ job_id: task.jobId, status: "RUNNING", entrypoint }, ""), started: Infinity });
    }
    found.get(task.jobId).tasks.push(task);
  }
  const shown = [...found.values()].filter((job) => everyone || !job.whose || job.tasks.length);
  const all = shown.sort((a, b) => b.started - a.started);
  const active = all.filter((job) => job.running || job.tasks.length);
  const ended = all.filter((job) => !active.includes(job)).slice(0, MOST_ENDED);
  return [...active, ...ended].map(({ started, ...job }) => job);
}

/** The n-th paused task of its worker: a threaded actor may have several. */
function taskOf(row, n) {
  return {
    key: `task ${row.worker_id}${n ? ` ${n}` : ""}`,
    workerId: row.worker_id,
    name: row.task || "",
    nodeIp: row.node_ip,
    pid: row.pid,
    jobId: row.job_id || "",
    since: row.since || "",
    held: row.held === true,
  };
}

function jobOf(row, user) {
  const named = userOf(row);
  return {
    key: `job ${row.submission_id || row.job_id}`,
    submissionId: row.submission_id ?? "",
    jobId: row.job_id ?? "",
    status: row.status,
    running: RUNNING.has(row.status),
    entrypoint: row.entrypoint || row.submission_id || row.job_id,
    whose: user && named !== user ? named : "",
    tasks: [],
  };
}

/** The job's user name (unauthenticated), or "". As in rayside/ray/metadata.py. */
function userOf(row) {
  const name = row.metadata?.["rayside.user"] || row.runtime_env?.env_vars?.RAYSIDE_USER;
  return typeof name === "string" && [...name].length <= LONGEST_USER && line(name) === name ? name : "";
}

/** The number of paused tasks. */
function count(jobs) {
  return jobs.reduce((sum, job) => sum + job.tasks.length, 0);
}

/** As in "2 tasks are paused". */
function countText(number) {
  if (number === 0) return "no task is paused";
  return number === 1 ? "1 task is paused" : `${number} tasks are paused`;
}

/**
 * How long ago `since` was, by the minute, so that the shown text seldom changes.
 *
 * @param {string} since ISO 8601
 * @param {number} now milliseconds since 1970
 */
function ago(since, now) {
  const began = Date.parse(since);
  if (Number.isNaN(began)) return "";
  const minutes = Math.floor((now - began) / 60_000);
  if (minutes < 1) return "just now";
  if (minutes < 60) return `${minutes} min`;
  const hours = Math.floor(minutes / 60);
  if (hours < 24) return `${hours} h ${minutes % 60} min`;
  return `${Math.floor(hours / 24)} d ${hours % 24} h`;
}

module.exports = { ago, count, countText, join };
