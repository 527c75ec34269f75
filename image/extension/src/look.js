/** One look at a cluster: what it shows now, or why it can't be seen. */
"use strict";

const { Dashboard, DashboardError } = require("./dashboard");
const { RelayError, pausedTasks } = require("./relay");
const { join } = require("./tasks");

// Milliseconds that Ray's task table may lag behind its workers: until then it may have no task of a worker
// that waits, or the one that the worker ran before. About 1 s was measured.
const LAG = 3_000;
// Milliseconds after which it is read again: a worker may have gone on, and wait in its next task, between
// two looks.
const AGAIN = 30_000;

/**
 * @typedef {object} Seen
 * @property {"nowhere" | "tokenMissing" | "tokenRefused" | "down" | "empty" | "seen"} state
 * @property {string} problem what happened, "" where all is well
 * @property {import("./tasks").Job[]} jobs
 * @property {import("./cluster").Cluster | null} cluster
 */

class Look {
  #waiting = new Map(); // worker's id: how many threads wait, since when, and its tasks when they were read
  #clock;

  /** @param {() => number} clock in milliseconds */
  constructor(clock = Date.now) {
    this.#clock = clock;
  }

  /**
   * One look: two requests and one to the relay; one more for the names of tasks that began to wait in the
   * last seconds, and now and then.
   *
   * @param {import("./cluster").Cluster} cluster
   * @param {string} token
   * @returns {Promise<Seen>}
   */
  async at(cluster, token) {
    const dashboard = new Dashboard(cluster.dashboard, token, undefined, cluster.trusted);
    try {
      const [workers, jobs, held] = await Promise.all([
        dashboard.pausedWorkers(),
        dashboard.jobs(),
        heldBy(cluster, token),
      ]);
      const rows = await this.#tasksOf(workers, dashboard);
      const found = join(workers, rows, jobs, held);
      return { state: found.length ? "seen" : "empty", problem: "", jobs: found, cluster };
    } catch (error) {
      if (!(error instanceof DashboardError)) throw error;
      return { state: error.kind, problem: error.message, jobs: [], cluster };
    }
  }

  async #tasksOf(workers, dashboard) {
    const now = this.#clock();
    const before = this.#waiting;
    this.#waiting = new Map();
    for (const { worker_id: id, worker_type: type, num_paused_threads: threads } of workers) {
      if (type === "DRIVER") continue;
      const known = before.get(id);
      // A threaded actor's paused tasks change while its worker waits on.
      const same = known?.threads === threads;
      this.#waiting.set(id, same ? known : { threads, since: now, read: -Infinity, rows: [] });
    }
    const waiting = [...this.#waiting.entries()];
    if (!waiting.every(([, one]) => settled(one, now))) {
      const rows = await dashboard.runningTasks();
      for (const [id, one] of waiting) {
        one.rows = rows.filter((row) => row.worker_id === id);
        one.read = now;
      }
    }
    return waiting.flatMap(([, { rows }]) => rows);
  }
}

function settled({ threads, since, read, rows }, now) {
  return rows.length >= threads && read - since >= LAG && now - read < AGAIN;
}

/** What a relay that does not answer holds is nothing: whoever debugs is told of it. */
async function heldBy(cluster, token) {
  try {
    return await pausedTasks(cluster.relay, token);
  } catch (error) {
    if (error instanceof RelayError) return [];
    throw error;
  }
}

module.exports = { Look };
