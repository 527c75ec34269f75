/** Polls the cluster, never twice at once, and reports each result to a listener. */
"use strict";

const WATCHED = 2_000;
const GLANCED = 5_000;
const UNSEEN = 15_000;
const SOON = 100;

/**
 * Milliseconds until the next poll.
 *
 * @param {{visible: boolean, debugging: boolean, focused: boolean}} now whether the view is visible, a debug session
 *   runs, and the window has the focus
 */
function pause({ visible, debugging, focused }) {
  if (debugging) return WATCHED;
  if (!focused) return UNSEEN;
  return visible ? WATCHED : GLANCED;
}

class Live {
  #timer;
  #looking = null;
  #again = false;
  #ended = false;

  /**
   * @param {() => Promise<import("./look").Seen>} look
   * @param {(seen: import("./look").Seen) => void} tell
   * @param {() => number} wait milliseconds until the next poll
   */
  constructor(look, tell, wait) {
    this.look = look;
    this.tell = tell;
    this.wait = wait;
  }

  /** Polls now; if a poll already runs, once more after it, as it may have begun too early. */
  async now() {
    clearTimeout(this.#timer);
    if (this.#looking) {
      this.#again = true;
      return this.#looking;
    }
    this.#looking = this.#round();
    try {
      await this.#looking;
    } finally {
      this.#looking = null;
      this.#in(this.wait());
    }
  }

  /** Polls after a moment, so that many changes at once cost one poll. */
  soon() {
    if (!this.#looking) this.#in(SOON);
    else this.#again = true;
  }

  dispose() {
    this.#ended = true;
    clearTimeout(this.#timer);
  }

  async #round() {
    do {
      this.#again = false;
      const seen = await this.look();
      if (!this.#ended) this.tell(seen);
    } while (this.#again && !this.#ended);
  }

  #in(milliseconds) {
    clearTimeout(this.#timer);
    if (!this.#ended) this.#timer = setTimeout(() => this.now(), milliseconds);
  }
}

module.exports = { Live, pause };
