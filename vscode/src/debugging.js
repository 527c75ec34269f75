/** Debug type `ray`: debug sessions with the relay, and the command from a task in the view to its stop. */
"use strict";

const vscode = require("vscode");
const { ClusterError } = require("./access");
const { launchRelay } = require("./cluster");
const { filesOf } = require("./mappings");
const { line, sentence } = require("./plain");
const { RelayError, ask, debuggerOf, pausedTasks } = require("./relay");
const { Stops } = require("./stops");

const TYPE = "ray";
// Timeout in milliseconds to attach to a task and stop it; 0.1 s to 0.5 s is usual.
const STOPPING = 10_000;
// Why a forward ended a session for good; a session with `restart` is started again by VS Code itself.
const LOST = {
  "way-lost": "The cluster was not reached any more, so the debug session has ended.",
  "relay-gone": "The cluster is there without its debug relay, so the debug session has ended. Run ./invokew up or rayside connect again, where you ran it before.",
  "forward-ended": "Rayside's forward to the cluster has ended, and the debug session with it.",
};
const WAITING = "The connection to the cluster is lost. The debugger attaches again by itself when it is back.";
const CLUSTER = { type: TYPE, request: "attach", name: "Ray cluster" };

class Debugging {
  #sessions = new Map(); // id: {session, stops}, the latest last
  #starting = null;
  #changed = new vscode.EventEmitter();
  /** Fires when stopped threads, or the existence of a session, have changed. */
  onDidChange = this.#changed.event;
  #failed = new vscode.EventEmitter();
  /** Fires with a session when one of its tasks has failed and is stopped. */
  onDidFail = this.#failed.event;

  /** @param {import("./access").Access} access */
  constructor(access) {
    this.access = access;
  }

  /** Registers the debug type in VS Code. */
  register() {
    return [
      this.#changed,
      this.#failed,
      vscode.debug.registerDebugConfigurationProvider(TYPE, this),
      vscode.debug.registerDebugConfigurationProvider(
        TYPE,
        { provideDebugConfigurations: () => [{ ...CLUSTER }] },
        vscode.DebugConfigurationProviderTriggerKind.Dynamic,
      ),
      vscode.debug.registerDebugAdapterDescriptorFactory(TYPE, this),
      vscode.debug.registerDebugAdapterTrackerFactory(TYPE, this),
      vscode.debug.onDidTerminateDebugSession((session) => this.#ended(session)),
    ];
  }

  /** Whether there is a debug session. */
  get active() {
    return this.#sessions.size > 0;
  }

  /** The sessions with a stopped failed task. */
  get withFailed() {
    return [...this.#sessions.values()].filter(({ stops }) => stops.failed).map(({ session }) => session);
  }

  /** The session and thread of a paused task, if the task has failed; else undefined. */
  failed(task) {
    for (const { session, stops } of this.#sessions.values()) {
      const threadId = stops.failedThread(task);
      if (threadId !== undefined) return { session, threadId };
    }
    return undefined;
  }

  /**
   * Debugs one job, or the whole cluster; true if there is a session. `more`: arguments of `attach` for a newly
   * started session only. `whose`: the name of the job's user if that is another one.
   */
  async start(job = "", more = {}, whose = "") {
    if (this.#latest(job, whose)) return true;
    while (this.#starting) await this.#starting;
    if (this.#latest(job, whose)) return true;
    this.#starting = this.#start(job, more);
    try {
      return await this.#starting;
    } finally {
      this.#starting = null;
    }
  }

  /** Stops in a paused task, and shows it. */
  async stopIn(task, job) {
    const ids = [job?.submissionId, task.jobId].filter(Boolean);
    const covering = this.#covering(ids) || (job?.whose ? ids[0] : "");
    if (!(await this.start(covering, { focusWorkerId: task.workerId }, job?.whose))) return;
    const { session, stops } = this.#latest() ?? {};
    const stopped = await stops?.until(task.workerId, STOPPING);
    if (stopped) {
      await session.customRequest("focusTask", { workerId: task.workerId });
    } else if (session && this.#sessions.has(session.id)) {
      const name = line(task.name) || "The task";
      throw new Error(
        `${name} did not stop within ${STOPPING / 1000} s. It may have gone on, or ended: look at the view again. ` +
          "If it is still listed, another debugger may hold it; end that one first.",
      );
    }
  }

  // --- what VS Code asks -----------------------------------------------------------------

  provideDebugConfigurations() {
    return [{ ...CLUSTER }];
  }

  resolveDebugConfiguration(folder, config) {
    // Empty if F5 is pressed without a launch.json.
    return config.type ? config : { ...CLUSTER };
  }

  /** Adds values of this machine, such as the token, which launch.json never contains. */
  async resolveDebugConfigurationWithSubstitutedVariables(folder, config) {
    try {
      return await this.#complete(config);
    } catch (error) {
      if (!(error instanceof ClusterError || error instanceof RelayError)) throw error;
      // Not awaited: VS Code need not wait until the message is read.
      void this.#explain(error);
      return undefined;
    }
  }

  /** VS Code itself sends the token to this address: only the cluster's own relay, after it has answered. */
  async createDebugAdapterDescriptor(session) {
    const cluster = await this.access.cluster();
    const relay = launchRelay({ relay: session.configuration.relay }, cluster?.relay);
    await ask(relay, "initialize", { adapterID: TYPE });
    return new vscode.DebugAdapterServer(relay.port, relay.host);
  }

  createDebugAdapterTracker(session) {
    const stops = new Stops();
    this.#sessions.set(session.id, { session, stops });
    return {
      onWillReceiveMessage: (message) => stops.sent(message),
      onDidSendMessage: (message) => {
        if (stops.received(message)) this.#changed.fire();
        if (message.event === "stopped" && message.body?.reason === "exception") this.#failed.fire(session);
        const reason = message.body?.ray?.reason;
        if (message.event === "output" && reason === "waiting") void vscode.window.showWarningMessage(WAITING);
        if (message.event !== "terminated") return;
        if (reason === "taken-over") {
          void this.#over(session, "Another window debugs this cluster now, so the session here has ended.", "Debug Here");
        } else if (Object.hasOwn(LOST, reason ?? "")) void this.#over(session, LOST[reason], "Debug Again");
      },
    };
  }

  // ---------------------------------------------------------------------------------------

  async #start(job, more) {
    const config = { ...(job ? { ...CLUSTER, name: `Ray job ${job}`, job } : CLUSTER), ...more };
    const folder = vscode.workspace.workspaceFolders?.[0];
    // Before the debug view opens, which would stay empty.
    const complete = await this.resolveDebugConfigurationWithSubstitutedVariables(folder, config);
    if (!complete) return false;
    config.takeOver = complete.takeOver; // asked once
    // Before the session starts, or the view's sections are collapsed.
    await vscode.commands.executeCommand("workbench.view.debug");
    const started = await vscode.debug.startDebugging(folder, config);
    this.#changed.fire();
    return started && this.#sessions.size > 0;
  }

  /** The latest session, if it covers the job; without a job, the latest one. `whose` as in `start`. */
  #latest(job, whose = "") {
    const latest = [...this.#sessions.values()].at(-1);
    const { job: covered = "", everyone = false } = latest?.session.configuration ?? {};
    const covers = covered ? covered === job : !whose || everyone;
    return job === undefined || covers ? latest : undefined;
  }

  /** The job of the latest session if that is among `ids`, else "": the job for which a session reaches a task. */
  #covering(ids) {
    const covered = this.#latest()?.session.configuration.job ?? "";
    return ids.includes(covered) ? covered : "";
  }

  async #complete(config) {
    const cluster = await this.access.cluster();
    const relay = launchRelay(config, cluster?.relay);
    const token = await this.access.token(cluster);
    if (!token) throw new ClusterError("the relay asks for Ray's token, and none was found: set it");
    // VS Code's own error would only be ECONNREFUSED.
    await pausedTasks(relay, token);
    const everyone = config.everyone ?? this.access.everyone;
    const known = config.takeOver ?? (this.active ? "always" : undefined); // a restart takes over from itself
    const takeOver = known ?? (await this.#ask(await debuggerOf(relay, token, config.job, everyone)));
    if (!takeOver) return undefined;
    return {
      justMyCode: true,
      redirectOutput: true,
      ...(await filesOf(vscode.workspace.workspaceFolders, cluster)),
      suppressMultipleSessionWarning: true,
      ...config,
      ...(everyone ? { everyone } : {}),
      takeOver,
      relay: relay.host.includes(":") ? `[${relay.host}]:${relay.port}` : `${relay.host}:${relay.port}`,
      token,
    };
  }

  /** Asks what to do about an existing debugger; undefined if the user cancels. */
  async #ask(busy) {
    if (!busy) return "always";
    const who = typeof busy.client === "string" && busy.client ? busy.client : "Another debugger";
    const since = new Date(busy.since);
    const when = Number.isNaN(since.getTime()) ? "" : ` since ${since.toLocaleTimeString()}`;
    const chosen = await vscode.window.showWarningMessage(
      sentence(`${line(who)} debugs ${busy.job ? `job ${line(busy.job)}` : "this cluster"}${when}.`),
      { modal: true, detail: "Taking over ends that session. Watching shows what stops, and moves nothing." },
      "Take Over",
      "Watch",
    );
    return { "Take Over": "always", Watch: "watch" }[chosen];
  }

  async #explain(error) {
    const down = error instanceof RelayError && error.kind === "down";
    const text = down
      ? `${sentence(error.message)} Where you ran ./invokew up or rayside connect, run it again: it repairs what is missing.`
      : sentence(error.message);
    const choices = down ? ["Open Settings"] : ["Set Token", "Open Settings"];
    const chosen = await vscode.window.showErrorMessage(text, ...choices);
    if (chosen === "Set Token") await vscode.commands.executeCommand("rayside.setToken");
    if (chosen === "Open Settings") await vscode.commands.executeCommand("rayside.openSettings");
  }

  async #over(session, why, choice) {
    this.#ended(session);
    const again = await vscode.window.showInformationMessage(why, choice);
    // "always" only against the debugger that the user was just told about.
    const more = choice === "Debug Here" ? { takeOver: "always" } : {};
    if (again) await this.start(session.configuration.job, more);
  }

  #ended(session) {
    const known = this.#sessions.get(session.id);
    if (!known) return;
    known.stops.end();
    this.#sessions.delete(session.id);
    this.#changed.fire();
  }
}

module.exports = { Debugging };
