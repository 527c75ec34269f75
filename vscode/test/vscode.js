/**
 * The module `vscode`, which only an editor has, as far as a test scripts it: what it was not told of is an error.
 * To be called before the sources under test are required; `node --test` runs each file in a process of its own.
 */
"use strict";

const Module = require("node:module");

class EventEmitter {
  #listeners = new Set();
  event = (listener) => {
    this.#listeners.add(listener);
    return { dispose: () => this.#listeners.delete(listener) };
  };
  fire(value) {
    for (const listener of [...this.#listeners]) listener(value);
  }
  dispose() {
    this.#listeners.clear();
  }
}

class TreeItem {
  constructor(label, collapsibleState) {
    Object.assign(this, { label, collapsibleState });
  }
}

class ThemeIcon {
  constructor(id, color) {
    Object.assign(this, { id, color });
  }
}

class ThemeColor {
  constructor(id) {
    this.id = id;
  }
}

const ALWAYS = {
  EventEmitter,
  TreeItem,
  ThemeIcon,
  ThemeColor,
  TreeItemCollapsibleState: { None: 0, Collapsed: 1, Expanded: 2 },
};

/** What has these parts, and no others. */
function only(parts, name) {
  return new Proxy(parts, {
    get(target, key) {
      if (key in target || typeof key === "symbol" || key === "then") return target[key];
      throw new Error(`${name}.${key} is not scripted`);
    },
  });
}

/** Makes `require("vscode")` answer with these parts, as in `{window: {showInputBox: async () => "text"}}`. */
function script(parts) {
  const namespaces = Object.entries(parts).map(([name, part]) => [name, only(part, `vscode.${name}`)]);
  const vscode = only({ ...ALWAYS, ...Object.fromEntries(namespaces) }, "vscode");
  const load = Module._load;
  Module._load = (request, ...more) => (request === "vscode" ? vscode : load(request, ...more));
}

module.exports = { EventEmitter, script };
