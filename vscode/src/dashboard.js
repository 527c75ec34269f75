/**
 * Ray's dashboard over HTTP: the Jobs API, read only.
 *
 * Source: https://docs.ray.io/en/latest/cluster/running-applications/job-submission/api.html
 */
"use strict";

const http = require("node:http");
const https = require("node:https");
const { OwnAgent } = require("./listener");

const LONGEST_ANSWER = 64 * 1024 * 1024;

/** `kind`: "down" (no Ray cluster answers there), "tokenMissing" or "tokenRefused". */
class DashboardError extends Error {
  constructor(kind, message) {
    super(message);
    this.kind = kind;
  }
}

/** Client of one dashboard; every method throws DashboardError. */
class Dashboard {
  /**
   * @param {string} url as in http://127.0.0.1:8265
   * @param {string} token Ray's, "" without authentication
   * @param {number} patience timeout in milliseconds of one answer
   * @param {number[]} trusted uids that may listen there, besides this user
   */
  constructor(url, token, patience = 5000, trusted = []) {
    this.url = url.replace(/\/+$/, "");
    this.token = token;
    this.patience = patience;
    this.agent = new OwnAgent(trusted);
  }

  /** All jobs, as rows of the Jobs API. */
  async jobs() {
    const jobs = await this.#get("/api/jobs/");
    if (Array.isArray(jobs)) return jobs;
    throw new DashboardError("down", `what answers at ${this.url} is not Ray's dashboard`);
  }

  /** The whole output of a job. */
  async output(submissionId) {
    const answer = await this.#get(`/api/jobs/${encodeURIComponent(submissionId)}/logs`);
    return String(answer?.logs ?? "");
  }

  async #get(path) {
    const { status, text } = await get(this.url + path, this.token, this.patience, this.agent);
    if (status === 401 || status === 403) {
      if (!this.token) throw new DashboardError("tokenMissing", `Ray at ${this.url} asks for a token`);
      throw new DashboardError("tokenRefused", `Ray at ${this.url} refuses the token`);
    }
    if (status !== 200) {
      throw new DashboardError("down", `the dashboard at ${this.url} answers with status ${status}`);
    }
    try {
      return JSON.parse(text);
    } catch {
      throw new DashboardError("down", `what answers at ${this.url} is not Ray's dashboard`);
    }
  }
}

function get(address, token, patience, agent) {
  return new Promise((resolve, reject) => {
    const down = (why) => reject(new DashboardError("down", why));
    let url;
    try {
      url = new URL(address);
    } catch {
      down(`${address} is no address`);
      return;
    }
    if (!["http:", "https:"].includes(url.protocol)) {
      down(`${address} is no address of a dashboard`);
      return;
    }
    const headers = token ? { Authorization: `Bearer ${token}` } : {};
    const encrypted = url.protocol === "https:";
    const how = encrypted ? { headers } : { headers, agent };
    const request = (encrypted ? https : http).get(url, how, (response) => {
      const chunks = [];
      let length = 0;
      response.on("data", (chunk) => {
        length += chunk.length;
        chunks.push(chunk);
        if (length > LONGEST_ANSWER) request.destroy(new Error("its answer is too long"));
      });
      response.on("error", (error) => down(`the dashboard at ${url.origin} failed: ${error.message}`));
      response.on("close", () => clearTimeout(timer));
      response.on("end", () => {
        resolve({ status: response.statusCode, text: Buffer.concat(chunks).toString("utf8") });
      });
    });
    // Timeout of the whole answer: a socket's own timeout restarts with every byte.
    const timer = setTimeout(() => request.destroy(new Error("no answer in time")), patience);
    request.on("error", (error) => {
      clearTimeout(timer);
      down(`no dashboard answers at ${url.origin}: ${error.message}`);
    });
  });
}

module.exports = { Dashboard, DashboardError };
