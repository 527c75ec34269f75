/** One poll of a cluster: its current state, or why it can't be read. */
"use strict";

const { Dashboard, DashboardError } = require("./dashboard");
const { RelayError, pausedTasks } = require("./relay");
const { join } = require("./tasks");

/**
 * @typedef {object} Seen
 * @property {"nowhere" | "tokenMissing" | "tokenRefused" | "down" | "empty" | "seen"} state
 * @property {string} problem what happened, "" without a problem
 * @property {import("./tasks").Job[]} jobs
 * @property {import("./cluster").Cluster | null} cluster
 * @property {boolean} [everyone] whether jobs of all users are shown
 */

class Look {
  #relay = "";
  #paused = [];

  /**
   * One poll: a request to Ray for the jobs, and one to the relay for the paused tasks.
   *
   * @param {import("./cluster").Cluster} cluster
   * @param {string} token
   * @param {boolean} everyone whether jobs of all users are wanted, not only the user's own
   * @returns {Promise<Seen>}
   */
  async at(cluster, token, everyone = false) {
    const dashboard = new Dashboard(cluster.dashboard, token, undefined, cluster.trusted);
    try {
      const [rows, problem] = await Promise.all([dashboard.jobs(), this.#ask(cluster.relay, token, everyone)]);
      const jobs = join(rows, this.#paused, cluster.user, everyone);
      return { state: jobs.length ? "seen" : "empty", problem, jobs, cluster, everyone };
    } catch (error) {
      if (!(error instanceof DashboardError)) throw error;
      return { state: error.kind, problem: error.message, jobs: [], cluster };
    }
  }

  /** Reads the paused tasks; on an error the last ones stay. Returns the error's text, or "". */
  async #ask(relay, token, everyone) {
    const address = `${relay.host}:${relay.port}${everyone ? " for everyone" : ""}`;
    if (address !== this.#relay) [this.#relay, this.#paused] = [address, []];
    try {
      const { tasks, problem } = await pausedTasks(relay, token, everyone);
      if (!problem) this.#paused = tasks;
      return problem;
    } catch (error) {
      if (error instanceof RelayError) return error.message;
      throw error;
    }
  }
}

module.exports = { Look };
