/** What the view shows: jobs, and below each the tasks of it that are paused. Knows no editor and no network. */
"use strict";

const RUNNING = new Set(["PENDING", "RUNNING"]);
// Jobs that have ended, and have nothing paused, shown for what they printed.
const MOST_ENDED = 5;

/**
 * @typedef {object} Task
 * @property {string} key tells it from the others, and stays
 * @property {string} workerId
 * @property {string} name "" until Ray's task table has caught up
 * @property {string} nodeIp
 * @property {number} pid
 * @property {string} jobId
 * @property {string} since when it began to run, ISO 8601; Ray does not record when it paused
 * @property {boolean} held whether the relay holds it, else it waits for a debugger
 */

/**
 * @typedef {object} Job
 * @property {string} key
 * @property {string} submissionId "" of a driver that was not submitted
 * @property {string} jobId "" until its driver runs
 * @property {string} status as Ray has it
 * @property {boolean} running
 * @property {string} entrypoint
 * @property {Task[]} tasks
 */

/**
 * The jobs, those with paused tasks and the running ones first, the newest first.
 *
 * @param {object[]} workers rows of the State API, of those that wait for a debugger
 * @param {object[]} running rows of the State API, of tasks that run
 * @param {object[]} jobs rows of the Jobs API
 * @param {object[]} held rows of the relay's `pausedTasks`
 * @returns {Job[]}
 */
function join(workers, running, jobs, held) {
  const found = new Map();
  for (const row of jobs) {
    const job = jobOf(row);
    found.set(job.jobId || job.key, { ...job, started: row.start_time ?? 0 });
  }
  for (const task of paused(workers, running, jobs, held)) {
    if (!found.has(task.jobId)) found.set(task.jobId, { ...unknown(task.jobId), started: Infinity });
    found.get(task.jobId).tasks.push(task);
  }
  const all = [...found.values()].sort((a, b) => b.started - a.started);
  const active = all.filter((job) => job.running || job.tasks.length);
  const ended = all.filter((job) => !active.includes(job)).slice(0, MOST_ENDED);
  return [...active, ...ended].map(({ started, ...job }) => job);
}

/** The paused tasks, those that run longest first. Arguments as of `join`. */
function paused(workers, running, jobs, held) {
  const tasks = held.map((row) => ({
    key: `task ${row.worker_id}`,
    workerId: row.worker_id,
    name: row.task || "",
    nodeIp: row.node_ip,
    pid: row.pid,
    jobId: row.job_id || "",
    since: row.since || "",
    held: true,
  }));
  // In the moment of attaching a worker may be in both.
  const known = new Set(tasks.map((task) => task.workerId));
  const byWorker = new Map();
  for (const row of running) byWorker.set(row.worker_id, [...(byWorker.get(row.worker_id) ?? []), row]);
  for (const worker of workers.filter((row) => !known.has(row.worker_id))) {
    tasks.push(...waiting(worker, byWorker.get(worker.worker_id) ?? [], jobs));
  }
  return tasks.sort((a, b) => compare(a.since, b.since) || compare(a.key, b.key));
}

function waiting(worker, rows, jobs) {
  if (worker.worker_type === "DRIVER") {
    // ComputeDriverIdFromJob of Ray's C++ core: the job's four bytes, then ones.
    const own = jobs.find((job) => job.job_id && String(job.driver_info?.pid) === String(worker.pid));
    return [waitingTask(worker, { name: "driver", job_id: own?.job_id ?? worker.worker_id.slice(0, 8) }, 0)];
  }
  if (!rows.length) return [waitingTask(worker, {}, 0)];
  // In a threaded actor more tasks may run than are paused, and Ray does not say which are: the latest
  // are the likeliest.
  const latest = [...rows].sort((a, b) => (b.start_time_ms ?? 0) - (a.start_time_ms ?? 0));
  return latest.slice(0, worker.num_paused_threads).map((row, n) => waitingTask(worker, row, n));
}

function waitingTask(worker, row, n) {
  return {
    key: `task ${worker.worker_id}${n ? ` ${n}` : ""}`,
    workerId: worker.worker_id,
    name: row.name ?? "",
    nodeIp: worker.ip,
    pid: worker.pid,
    jobId: row.job_id ?? "",
    since: time(row.start_time_ms || worker.start_time_ms),
    held: false,
  };
}

function jobOf(row) {
  return {
    key: `job ${row.submission_id || row.job_id}`,
    submissionId: row.submission_id ?? "",
    jobId: row.job_id ?? "",
    status: row.status,
    running: RUNNING.has(row.status),
    entrypoint: row.entrypoint || row.submission_id || row.job_id,
    tasks: [],
  };
}

/** Of tasks whose job Ray does not name, or not yet. */
function unknown(jobId) {
  return {
    key: `job ${jobId}`,
    submissionId: "",
    jobId,
    status: "RUNNING",
    running: true,
    entrypoint: jobId ? `job ${jobId}` : "Job not known yet",
    tasks: [],
  };
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

function time(milliseconds) {
  return milliseconds ? new Date(milliseconds).toISOString() : "";
}

function compare(a, b) {
  if (a === b) return 0;
  return a < b ? -1 : 1;
}

module.exports = { ago, count, countText, join };
