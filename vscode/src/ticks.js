/** The ticks at a walkthrough's steps, which VS Code keeps, are made to agree with how far the learner is. */
"use strict";

const vscode = require("vscode");

// No API of VS Code takes a tick away; its own commands do. Earlier versions spelled the second otherwise.
const TICK = ["welcome.markStepComplete"];
const UNTICK = ["welcome.markStepIncomplete", "welcome.markStepInomplete"];

class Ticks {
  #extension;
  #log;

  constructor(extension, log) {
    this.#extension = extension;
    this.#log = log;
  }

  /** The name by which VS Code knows a lab's walkthrough. */
  id(lab) {
    return `${this.#extension}#${lab.name}`;
  }

  /**
   * A step is ticked when it was done, or a later one; all are when the exercise was passed. What was ticked by hand
   * stays, except where the lab is at its beginning.
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
