/** Framing of Debug Adapter Protocol messages, without I/O. */
"use strict";

const LONGEST_HEADER = 8 * 1024;
const LONGEST_BODY = 64 * 1024 * 1024;

class FramingError extends Error {}

/** The bytes of one message. */
function encode(message) {
  const body = Buffer.from(JSON.stringify(message), "utf8");
  return Buffer.concat([Buffer.from(`Content-Length: ${body.length}\r\n\r\n`, "ascii"), body]);
}

/** Incremental decoder: takes bytes as they come and returns whole messages. */
class Decoder {
  #rest = Buffer.alloc(0);

  /** The messages that `chunk` completes. Throws FramingError. */
  feed(chunk) {
    this.#rest = Buffer.concat([this.#rest, chunk]);
    const messages = [];
    for (;;) {
      const end = this.#rest.indexOf("\r\n\r\n");
      if (end < 0 ? this.#rest.length > LONGEST_HEADER : end > LONGEST_HEADER) {
        throw new FramingError("a header without an end");
      }
      if (end < 0) return messages;
      const length = contentLength(this.#rest.toString("latin1", 0, end));
      const start = end + 4;
      if (this.#rest.length < start + length) return messages;
      messages.push(parse(this.#rest.toString("utf8", start, start + length)));
      this.#rest = this.#rest.subarray(start + length);
    }
  }
}

function contentLength(header) {
  const match = /^content-length: *(\d+) *$/im.exec(header);
  if (!match) throw new FramingError("no Content-Length");
  const length = Number(match[1]);
  if (length > LONGEST_BODY) throw new FramingError("a message that is too long");
  return length;
}

function parse(text) {
  let message;
  try {
    message = JSON.parse(text);
  } catch {
    throw new FramingError("a message that is not JSON");
  }
  if (typeof message !== "object" || message === null) throw new FramingError("a message that is no object");
  return message;
}

module.exports = { Decoder, FramingError, encode };
