/** One request to the debug relay, and its answer, on a connection of its own. */
"use strict";

const net = require("node:net");
const { Decoder, encode } = require("./dap");
const { otherUser } = require("./listener");

/** `kind`: "down" (nothing answers there) or "refused" (the relay said no, in `message`). */
class RelayError extends Error {
  constructor(kind, message) {
    super(message);
    this.kind = kind;
  }
}

/**
 * The body of the response, `{}` where it has none.
 *
 * Only for the relay: a debugger of Ray's can be attached to no more once somebody connected and left.
 *
 * @param {{host: string, port: number, trusted?: number[]}} address `trusted`: uids that may listen there
 * @param {number} patience milliseconds for the whole exchange
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
 * The tasks that stand still, as rows of `breakpoints --json`, each with `held`: whether the relay has it, else
 * it waits for a debugger. `problem` is why they are not all known, "" where they are. Throws RelayError.
 *
 * With `everyone`, those of all who debug on that Ray, not only the user's own. The relay gives Ray 5 s.
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
 * All stacks of a job's processes, as `debug --stacks --json` has them. Throws RelayError.
 *
 * `where` has the job, and `sharedFiles` and `pathMappings` as `attach` takes them. The relay asks Ray for up to 5 s,
 * and then all processes for up to 12.
 */
async function stacks(address, token, where, patience = 20_000) {
  const answer = await ask(address, "stacks", { token, ...where }, patience);
  if (!Array.isArray(answer.stacks)) throw new RelayError("refused", "the debug relay is of an older Rayside");
  return answer;
}

/**
 * Who debugs a job, or without one all of the user's own or `everyone`'s, now: `{client, since, job}`, or null.
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
