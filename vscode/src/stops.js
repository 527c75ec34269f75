/** Tracks the stopped threads of a debug session, from its DAP messages. */
"use strict";

// Requests that resume a thread.
const MOVES = new Set(["continue", "next", "stepIn", "stepOut", "goto"]);

class Stops {
  #threads = new Map(); // id: {workerId, task, failed}
  #moving = new Map(); // seq of a request: id of the thread that it resumes
  #waiting = new Set(); // {workerId, resolve}

  /** Whether a thread of that worker is stopped. */
  has(workerId) {
    return [...this.#threads.values()].some((thread) => thread.workerId === workerId);
  }

  /** Whether a thread is stopped after an uncaught exception. */
  get failed() {
    return [...this.#threads.values()].some((thread) => thread.failed);
  }

  /** The thread of a paused task if it has failed, else undefined. A threaded actor may have several. */
  failedThread({ workerId, name }) {
    const isOf = (thread) => thread.failed && thread.workerId === workerId;
    return [...this.#threads].find(([, thread]) => isOf(thread) && (!name || !thread.task || name === thread.task))?.[0];
  }

  /** True once a thread of that worker is stopped, false after `patience` milliseconds or at the end. */
  async until(workerId, patience) {
    if (this.has(workerId)) return true;
    return new Promise((resolve) => {
      const entry = { workerId, resolve: (stopped) => finish(stopped) };
      const timer = setTimeout(() => finish(false), patience);
      const finish = (stopped) => {
        clearTimeout(timer);
        this.#waiting.delete(entry);
        resolve(stopped);
      };
      this.#waiting.add(entry);
    });
  }

  /** Handles a request from the editor. */
  sent(message) {
    if (message.type === "request" && MOVES.has(message.command)) {
      this.#moving.set(message.seq, message.arguments?.threadId);
    }
  }

  /** Handles a response or an event from the relay; returns whether the stopped threads changed. */
  received(message) {
    if (message.type === "response") {
      const thread = this.#moving.get(message.request_seq);
      this.#moving.delete(message.request_seq);
      return message.success === true && this.#threads.delete(thread);
    }
    const body = message.body ?? {};
    if (message.type !== "event") return false;
    if (message.event === "stopped") return this.#stopped(body);
    if (message.event === "continued" || (message.event === "thread" && body.reason === "exited")) {
      return this.#threads.delete(body.threadId);
    }
    return false;
  }

  /** Ends the session: nothing is stopped any more. */
  end() {
    this.#threads.clear();
    for (const { resolve } of [...this.#waiting]) resolve(false);
  }

  #stopped(body) {
    const { workerId, task } = body.ray ?? {};
    if (!workerId) return false;
    this.#threads.set(body.threadId, { workerId, task, failed: body.reason === "exception" });
    for (const entry of [...this.#waiting]) if (entry.workerId === workerId) entry.resolve(true);
    return true;
  }
}

module.exports = { Stops };
