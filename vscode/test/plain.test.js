"use strict";

const assert = require("node:assert/strict");
const test = require("node:test");
const { line, sentence } = require("../src/plain");

for (const [what, text, shown] of [
  ["an escape sequence", "\x1b]0;title\x07x", "\\x1b]0;title\\x07x"],
  ["a control character of eight bits", "\x9b31m", "\\x9b31m"],
  ["line breaks and a tab", "a\r\nb\tc\u2028d", "a\\r\\nb\\tc\\u2028d"],
  ["bidirectional controls", "pay\u202etxt.\u2066x\u2069", "pay\\u202etxt.\\u2066x\\u2069"],
  ["what has no width", "a\u200bb\ufeffc", "a\\u200bb\\ufeffc"],
  ["a tag outside of the first plane", "a\u{e0041}", "a\\U000e0041"],
  ["half a character", "a\ud800", "a\\ud800"],
  ["other scripts, and the joiners that they need", "می\u200cخواهم 👩\u200d🔬 ä", "می\u200cخواهم 👩\u200d🔬 ä"],
  ["nothing", undefined, ""],
]) {
  test(`${what} in a name is shown as what it is`, () => {
    assert.equal(line(text), shown);
    assert.equal(line(line(text)), shown);
  });
}

test("a name is cut between characters, and that shows", () => {
  assert.equal(line("👩".repeat(200)), "👩".repeat(200));
  assert.equal(line("👩".repeat(201)), `${"👩".repeat(197)}...`);
});

test("a sentence is one line, clean, and has no link in it", () => {
  assert.equal(sentence("nobody answers"), "Nobody answers.");
  assert.equal(sentence("Is it up?"), "Is it up?");
  assert.equal(sentence("it said:\r\n  no\x1b[2J\u202e"), "It said: no\\x1b[2J\\u202e.");
  assert.equal(
    sentence("[look](command:workbench.action.terminal.new) is gone"),
    "[look] (command:workbench.action.terminal.new) is gone.",
  );
});
