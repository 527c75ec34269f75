/** One request to the debug relay, and its answer, on a separate connection. */
"use strict";

const net = require("node:net");
const { Decoder, encode } = require("./dap");
const { otherUser } = require("./listener");

/** `kind`: "down" (nothing answers there) or "refused" (by the relay, with the reason in `message`). */
class RelayError extends Error {
  constructor(kind, message) {
    super(message);
    this.kind = kind;
  }
}

/**
 * The body of the response, `{}` without one.
 *
 * Only for the relay: a worker's own debugger accepts no client after one has connected and left.
 *
 * @param {{host: string, port: number, trusted?: number[]}} address `trusted`: uids that may listen there
 * @param {number} patience timeout in milliseconds of the whole exchange
 * @throws {RelayError}
 */
function ask({ host, port, trusted }, command, args, patience = 2000) {
  return new Promise((resolve, reject) => {
    const decoder = new Decoder();
    const socket = net.connect({ host, port });
    const end = (settle, value) => {
      clearTimeout(timer);
      socket.destroy();
      settle(value);
    };
    const down = (why) => end(reject, new RelayError("down", `the debug relay at ${host}:${port} ${why}`));
    const timer = setTimeout(() => down("does not answer"), patience);
    socket.on("connect", async () => {
      const why = await otherUser(socket, trusted);
      if (why) return down(why);
      return socket.write(encode({ seq: 1, type: "request", command, arguments: args }));
    });
    socket.on("data", (chunk) => {
      let messages;
      try {
        messages = decoder.feed(chunk);
      } catch (error) {
        down(`is something else: ${error.message}`);
        return;
      }
      const answer = messages.find((message) => message.type === "response" && message.request_seq === 1);
      if (!answer) return;
      if (answer.success === true) end(resolve, answer.body ?? {});
      else end(reject, new RelayError("refused", answer.message || `the debug relay refused ${command}`));
    });
    socket.on("error", () => down("is not there"));
    socket.on("close", () => down("closed the connection"));
  });
}

/**
 * The stopped tasks, as rows of `breakpoints --json`, each with `held`: whether it is stopped in a debugger of the
 * relay; else it waits for one. `problem` is why the list is incomplete, or "". Throws RelayError.
 *
 * With `everyone`, the tasks of all users of that Ray cluster, not only the user's own. The relay waits for Ray for
 * up to 5 s.
 */
async function pausedTasks(address, token, everyone = false, patience = 8000) {
  const { tasks, problem = "the debug relay is of an older Rayside" } = await ask(
    address,
    "pausedTasks",
    { token, ...(everyone ? { everyone } : {}) },
    patience,
  );
  return { tasks: Array.isArray(tasks) ? tasks : [], problem: String(problem) };
}

/**
 * All stacks of a job's processes, as in `debug --stacks --json`. Throws RelayError.
 *
 * `where` contains the job, and `sharedFiles` and `pathMappings` as for `attach`. The relay waits for Ray for up to
 * 5 s, and then for all processes for up to 12.
 */
async function stacks(address, token, where, patience = 20_000) {
  const answer = await ask(address, "stacks", { token, ...where }, patience);
  if (!Array.isArray(answer.stacks)) throw new RelayError("refused", "the debug relay is of an older Rayside");
  return answer;
}

/**
 * The current debugger of a job, or without a job of the user's or `everyone`'s jobs: `{client, since, job}`, or null.
 * Throws RelayError.
 *
 * The relay waits 1.5 s for a VS Code whose window may have been closed.
 */
async function debuggerOf(address, token, job, everyone = false, patience = 5000) {
  const which = { ...(job ? { job } : {}), ...(everyone ? { everyone } : {}) };
  const { debugger: busy } = await ask(address, "debugger", { token, ...which }, patience);
  return busy ?? null;
}

module.exports = { RelayError, ask, debuggerOf, pausedTasks, stacks };
