/**
 * Sanitizer for untrusted text. Anybody with code in the cluster controls names of tasks, jobs and nodes: Unicode's
 * bidirectional controls change the order in which text is shown (CVE-2021-42574), a line break can fake a line of
 * ours, and a notification makes links from Markdown, to commands of VS Code too.
 */
"use strict";

// Characters to escape: control, format, private and unassigned ones, line and paragraph separators; but not the two
// joiners that Persian, Hindi and emoji are written with. As in rayside/plain.py.
const HIDDEN = /(?![\u200c\u200d])[\p{C}\p{Zl}\p{Zp}]/gu;
const SHORT = { "\n": "\\n", "\r": "\\r", "\t": "\\t" };
// Limit: characters of a name.
const MOST = 200;

/** A name in one line of at most 200 characters, with unprintable characters escaped, as in `\x1b`. */
function line(text) {
  const characters = [...String(text ?? "")];
  const shown = characters.length > MOST ? [...characters.slice(0, MOST - 3), "..."] : characters;
  return shown.join("").replace(HIDDEN, visible);
}

/** The text as a sentence, for a notification too: there `[text](address)` would be a link. */
function sentence(text) {
  // A notification shows no line breaks by itself.
  const shown = text.replace(/\s*[\r\n]+\s*/g, " ").replace(HIDDEN, visible).replaceAll("](", "] (");
  return `${shown[0].toUpperCase()}${shown.slice(1)}${/[.!?]$/.test(shown) ? "" : "."}`;
}

function visible(character) {
  const code = character.codePointAt(0);
  const digits = (count) => code.toString(16).padStart(count, "0");
  if (code < 0x100) return SHORT[character] ?? `\\x${digits(2)}`;
  return code < 0x10000 ? `\\u${digits(4)}` : `\\U${digits(8)}`;
}

module.exports = { line, sentence };
