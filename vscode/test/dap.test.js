"use strict";

const assert = require("node:assert/strict");
const test = require("node:test");
const { Decoder, FramingError, encode } = require("../src/dap");

test("messages survive being cut anywhere", () => {
  const messages = [{ seq: 1, text: "π · 数" }, { seq: 2, list: [1, 2] }];
  const bytes = Buffer.concat(messages.map(encode));
  for (let size = 1; size <= bytes.length; size += 1) {
    const decoder = new Decoder();
    const decoded = [];
    for (let start = 0; start < bytes.length; start += size) {
      decoded.push(...decoder.feed(bytes.subarray(start, start + size)));
    }
    assert.deepEqual(decoded, messages);
  }
});

test("the length counts bytes, not characters", () => {
  assert.match(encode({ a: "π" }).toString(), /^Content-Length: 10\r\n\r\n/);
});

for (const [what, text] of [
  ["no length", "Content-Type: x\r\n\r\n{}"],
  ["a length that is no number", "Content-Length: x\r\n\r\n{}"],
  ["a giant length", "Content-Length: 99999999999\r\n\r\n"],
  ["no JSON", "Content-Length: 2\r\n\r\nxx"],
  ["no object", "Content-Length: 4\r\n\r\nnull"],
  ["a header without an end", "x".repeat(9000)],
]) {
  test(`refused: ${what}`, () => {
    assert.throws(() => new Decoder().feed(Buffer.from(text)), FramingError);
  });
}
