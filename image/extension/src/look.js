/** One look at a cluster: what it shows now, or why it can't be seen. */
"use strict";

const { Dashboard, DashboardError } = require("./dashboard");
const { RelayError, pausedTasks } = require("./relay");
const { join } = require("./tasks");

/**
 * @typedef {object} Seen
 * @property {"nowhere" | "tokenMissing" | "tokenRefused" | "down" | "empty" | "seen"} state
 * @property {string} problem what happened, "" where all is well
 * @property {import("./tasks").Job[]} jobs
 * @property {import("./cluster").Cluster | null} cluster
 */

class Look {
  #named = new Map(); // worker's id: its rows of the task table, while it waits

  /**
   * One look: two requests and one to the relay; one more where tasks wait whose names are not known yet.
   *
   * @param {import("./cluster").Cluster} cluster
   * @param {string} token
   * @returns {Promise<Seen>}
   */
  async at(cluster, token) {
    const dashboard = new Dashboard(cluster.dashboard, token);
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
    const ids = new Set(workers.map((row) => row.worker_id));
    for (const id of this.#named.keys()) if (!ids.has(id)) this.#named.delete(id);
    const waits = (row) => row.worker_type !== "DRIVER";
    // A threaded actor's paused tasks change while its worker waits on.
    const settled = (row) => this.#named.get(row.worker_id)?.threads === row.num_paused_threads;
    if (!workers.filter(waits).every(settled)) {
      const rows = await dashboard.runningTasks();
      for (const worker of workers.filter(waits)) {
        const own = rows.filter((row) => row.worker_id === worker.worker_id);
        const known = own.length >= worker.num_paused_threads;
        this.#named.set(worker.worker_id, { threads: known ? worker.num_paused_threads : 0, rows: own });
      }
    }
    return [...this.#named.values()].flatMap(({ rows }) => rows);
  }
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
