/** What the view shows: jobs, and below each the tasks of it that are paused. Knows no editor and no network. */
"use strict";

const { line } = require("./plain");

const RUNNING = new Set(["PENDING", "RUNNING"]);
// Jobs that have ended, and have nothing paused, shown for what they printed.
const MOST_ENDED = 5;
// Characters of a user's name.
const LONGEST_USER = 64;

/**
 * @typedef {object} Task
 * @property {string} key tells it from the others, and stays
 * @property {string} workerId
 * @property {string} name "" until Ray's task table has caught up
 * @property {string} nodeIp
 * @property {number} pid
 * @property {string} jobId
 * @property {string} since when it stopped where it is held, else when it began to run, ISO 8601
 * @property {boolean} held whether the relay holds it, else it waits for a debugger
 * @property {boolean} [failed] whether it is stopped in a session here because it has failed
 */

/**
 * @typedef {object} Job
 * @property {string} key
 * @property {string} submissionId "" of a driver that was not submitted
 * @property {string} jobId "" until its driver runs
 * @property {string} status as Ray has it
 * @property {boolean} running
 * @property {string} entrypoint
 * @property {string} whose the name of the other user whose it is, "" of the user's own and of nobody's
 * @property {Task[]} tasks
 */

/**
 * The jobs, those with paused tasks and the running ones first, the newest first.
 *
 * @param {object[]} jobs rows of the Jobs API
 * Where several people debug on one Ray, they are the user's own and nobody's, and what the user debugs of others.
 *
 * @param {object[]} paused rows of the relay's `pausedTasks`
 * @param {string} user the user's name there, "" where the Ray is one person's
 * @param {boolean} everyone whether the jobs of all are wanted
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
      // Ray does not name its job, or not yet.
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

/** The n-th task of its worker: a threaded actor may have several. */
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

/** The name of the user whose job it says it is, "" where it says none. As in rayside/ray/metadata.py. */
function userOf(row) {
  const name = row.metadata?.["rayside.user"] || row.runtime_env?.env_vars?.RAYSIDE_USER;
  return typeof name === "string" && [...name].length <= LONGEST_USER && line(name) === name ? name : "";
}

/** How many tasks are paused. */
function count(jobs) {
  return jobs.reduce((sum, job) => sum + job.tasks.length, 0);
}

/** As in "2 tasks are paused". */
function countText(number) {
  if (number === 0) return "no task is paused";
  return number === 1 ? "1 task is paused" : `${number} tasks are paused`;
}

/**
 * How long ago `since` was, by the minute, so that what is shown seldom changes.
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
