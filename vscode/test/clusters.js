/** Stand-ins for a cluster on this machine, which answer as they are told: a dashboard, and a relay. */
"use strict";

const http = require("node:http");
const net = require("node:net");
const { Decoder, encode } = require("../src/dap");

/** A dashboard with nothing in it, for holders of `state.token`; `requests` has each request's Authorization. */
async function dashboard(t, state) {
  const requests = [];
  const server = http.createServer((request, response) => {
    const authorization = request.headers.authorization;
    requests.push(authorization);
    const body = request.url.startsWith("/api/jobs") ? [] : { data: { result: { result: [] } } };
    response.writeHead(authorization === `Bearer ${state.token}` ? 200 : 401).end(JSON.stringify(body));
  });
  return { url: `http://127.0.0.1:${await listening(t, server)}`, requests };
}

/** A relay: each request is answered with the body that `answers` has for its command; `requests` has them all. */
async function relay(t, answers) {
  const requests = [];
  const server = net.createServer((socket) => {
    const decoder = new Decoder();
    socket.on("error", () => {});
    socket.on("data", (chunk) => {
      for (const request of decoder.feed(chunk)) {
        requests.push(request);
        const body = answers[request.command];
        if (!body) throw new Error(`${request.command} is not scripted`);
        socket.write(encode({ type: "response", request_seq: request.seq, success: true, body }));
      }
    });
  });
  return { host: "127.0.0.1", port: await listening(t, server), requests };
}

async function listening(t, server) {
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  t.after(() => server.close());
  return server.address().port;
}

module.exports = { dashboard, relay };
