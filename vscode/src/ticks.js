/** Synchronizes the ticks at a walkthrough's steps, which VS Code stores, with the learner's progress. */
"use strict";

const vscode = require("vscode");

// No API of VS Code removes a tick; its own commands do. Earlier versions spelled the second one differently.
const TICK = ["welcome.markStepComplete"];
const UNTICK = ["welcome.markStepIncomplete", "welcome.markStepInomplete"];

class Ticks {
  #extension;
  #log;

  constructor(extension, log) {
    this.#extension = extension;
    this.#log = log;
  }

  /** VS Code's id of a lab's walkthrough. */
  id(lab) {
    return `${this.#extension}#${lab.name}`;
  }

  /**
   * Ticks a step once it, or a later one, is done, and all steps once the exercise is passed. Ticks made by hand stay,
   * unless the lab is at its beginning.
   */
  async show(lab, { steps_done, passed }) {
    const beginning = !passed && !steps_done;
    for (const [at, step] of lab.steps.entries()) {
      const done = passed || (step !== "check" && at < steps_done);
      if (done) await this.#mark(TICK, lab, step);
      else if (beginning || step === "check") await this.#mark(UNTICK, lab, step);
    }
  }

  async #mark(commands, lab, step) {
    for (const command of commands) {
      try {
        await vscode.commands.executeCommand(command, `${this.id(lab)}#${step}`);
        return;
      } catch (error) {
        this.#log.debug(`${command}: ${error.message}`);
      }
    }
  }
}

module.exports = { Ticks };
