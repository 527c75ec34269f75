/** The debug type `ray`: sessions with the relay, and the way from a task in the view to its stop. */
"use strict";

const vscode = require("vscode");
const { ClusterError } = require("./access");
const { launchRelay, readToken, relayAddress } = require("./cluster");
const { pathMappings } = require("./mappings");
const { RelayError, pausedTasks } = require("./relay");
const { Stops } = require("./stops");

const TYPE = "ray";
// For a task to be attached to and to stop; 0.1 s to 0.5 s is usual.
const STOPPING = 10_000;
const TAKEN_OVER = /^Another editor has attached/;
const CLUSTER = { type: TYPE, request: "attach", name: "Ray cluster" };

class Debugging {
  #sessions = new Map(); // id: {session, stops}, the latest last
  #starting = null;
  #changed = new vscode.EventEmitter();
  /** What is stopped, or whether there is a session, has changed. */
  onDidChange = this.#changed.event;

  /** @param {import("./access").Access} access */
  constructor(access) {
    this.access = access;
  }

  /** Makes VS Code know the debug type. */
  register() {
    return [
      this.#changed,
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

  /** Whether a session is there. */
  get active() {
    return this.#sessions.size > 0;
  }

  /** Debugs one job, or the whole cluster; true where a session is there. */
  async start(job = "") {
    if (this.#latest(job)) return true;
    while (this.#starting) await this.#starting;
    if (this.#latest(job)) return true;
    this.#starting = this.#start(job);
    try {
      return await this.#starting;
    } finally {
      this.#starting = null;
    }
  }

  /** Stops in a paused task, and shows it. */
  async stopIn(task, job) {
    const ids = [job?.submissionId, task.jobId].filter(Boolean);
    if (!(await this.start(this.#covering(ids)))) return;
    const { session, stops } = this.#latest() ?? {};
    const stopped = await stops?.until(task.workerId, STOPPING);
    if (stopped) {
      await session.customRequest("focusTask", { workerId: task.workerId });
    } else if (session && this.#sessions.has(session.id)) {
      const name = task.name || "The task";
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
    // Empty where F5 is pressed without a launch.json.
    return config.type ? config : { ...CLUSTER };
  }

  /** Adds what only this machine knows, the token among it: launch.json never has it. */
  async resolveDebugConfigurationWithSubstitutedVariables(folder, config) {
    try {
      return await this.#complete(config);
    } catch (error) {
      if (!(error instanceof ClusterError || error instanceof RelayError)) throw error;
      // Not waited for: the session need not wait until the message is read.
      void this.#explain(error);
      return undefined;
    }
  }

  createDebugAdapterDescriptor(session) {
    const { host, port } = relayAddress(session.configuration.relay);
    return new vscode.DebugAdapterServer(port, host);
  }

  createDebugAdapterTracker(session) {
    const stops = new Stops();
    this.#sessions.set(session.id, { session, stops });
    return {
      onWillReceiveMessage: (message) => stops.asked(message),
      onDidSendMessage: (message) => {
        if (stops.said(message)) this.#changed.fire();
        if (message.event === "output" && TAKEN_OVER.test(message.body?.output ?? "")) void this.#takenOver(session);
      },
    };
  }

  // ---------------------------------------------------------------------------------------

  async #start(job) {
    const config = job ? { ...CLUSTER, name: `Ray job ${job}`, job } : { ...CLUSTER };
    const folder = vscode.workspace.workspaceFolders?.[0];
    // Before the view changes to one that would stay empty.
    if (!(await this.resolveDebugConfigurationWithSubstitutedVariables(folder, config))) return false;
    // First, or its sections start collapsed.
    await vscode.commands.executeCommand("workbench.view.debug");
    const started = await vscode.debug.startDebugging(folder, config);
    this.#changed.fire();
    return started && this.#sessions.size > 0;
  }

  /** The latest session, that covers a job or, without one, whatever it covers. */
  #latest(job) {
    const latest = [...this.#sessions.values()].at(-1);
    const covers = latest?.session.configuration.job ?? "";
    return job === undefined || !covers || covers === job ? latest : undefined;
  }

  /** The job that a session has to be for to reach a task: that of the one that is there, if it does. */
  #covering(ids) {
    const covered = this.#latest()?.session.configuration.job ?? "";
    return ids.includes(covered) ? covered : "";
  }

  async #complete(config) {
    const cluster = await this.access.cluster();
    if (!cluster && !(config.relay && config.tokenFile)) {
      throw new ClusterError("no Ray cluster was found: run ./invokew up, or set its address in the settings");
    }
    const relay = config.relay ? launchRelay(config.relay, cluster?.relay) : cluster.relay;
    const token = config.tokenFile ? await readToken(config.tokenFile) : await this.access.token(cluster);
    if (!token) throw new ClusterError("the relay asks for Ray's token, and none was found: set it");
    // VS Code itself would say no more than ECONNREFUSED.
    await pausedTasks(relay, token);
    const folders = (vscode.workspace.workspaceFolders ?? []).filter((folder) => folder.uri.scheme === "file");
    const shared = cluster?.sharedFiles === true;
    const { tokenFile, ...rest } = config;
    return {
      justMyCode: true,
      pathMappings: await pathMappings(folders.map((folder) => folder.uri.fsPath), shared),
      sharedFiles: shared,
      suppressMultipleSessionWarning: true,
      ...rest,
      relay: relay.host.includes(":") ? `[${relay.host}]:${relay.port}` : `${relay.host}:${relay.port}`,
      token,
    };
  }

  async #explain(error) {
    const down = error instanceof RelayError && error.kind === "down";
    const text = down
      ? `${sentence(error.message)} Where you ran ./invokew up, run it again: it mends what is missing.`
      : sentence(error.message);
    const choices = down ? ["Open Settings"] : ["Set Token", "Open Settings"];
    const chosen = await vscode.window.showErrorMessage(text, ...choices);
    if (chosen === "Set Token") await vscode.commands.executeCommand("rayside.setToken");
    if (chosen === "Open Settings") await vscode.commands.executeCommand("rayside.openSettings");
  }

  async #takenOver(session) {
    this.#ended(session);
    const again = await vscode.window.showInformationMessage(
      "Another window debugs this cluster now, so the session here has ended.",
      "Debug Here",
    );
    if (again) await this.start(session.configuration.job);
  }

  #ended(session) {
    const known = this.#sessions.get(session.id);
    if (!known) return;
    known.stops.end();
    this.#sessions.delete(session.id);
    this.#changed.fire();
  }
}

function sentence(text) {
  return `${text[0].toUpperCase()}${text.slice(1)}${/[.!?]$/.test(text) ? "" : "."}`;
}

module.exports = { Debugging, sentence };
