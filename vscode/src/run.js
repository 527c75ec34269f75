/** "Run This Ray Script and Debug It": asks for missing inputs, submits the job, and debugs it. */
"use strict";

const fs = require("node:fs");
const path = require("node:path");
const vscode = require("vscode");
const { ClusterError } = require("./access");
const { Dashboard, DashboardError } = require("./dashboard");
const { hadModules, submit, workingDirs } = require("./submission");

/** Key of the chosen working_dir, for each workspace folder. */
const CHOSEN = "workingDir";
/** Key of the chosen py_modules, for each working_dir. */
const MODULES = "pyModules";

/**
 * @param {vscode.Uri | undefined} uri the script (default: the active editor's file)
 * @param {{access: import("./access").Access, debugging: import("./debugging").Debugging, memory: vscode.Memento}} with_
 */
async function runScript(uri, { access, debugging, memory }) {
  const file = await saved(uri ?? vscode.window.activeTextEditor?.document.uri);
  if (!file) return;
  const cluster = await access.cluster();
  if (!cluster) throw new ClusterError("no Ray cluster was found: run ./invokew up or rayside connect first");
  const token = await access.token(cluster);
  const folder = vscode.workspace.getWorkspaceFolder(vscode.Uri.file(file));
  const workingDir = await workingDirOf(file, folder?.uri.fsPath, memory);
  if (!workingDir) return;
  const dashboard = new Dashboard(cluster.dashboard, token, undefined, cluster.trusted);
  const modules = await modulesFor(file, folder, workingDir, memory, dashboard);
  if (!modules) return;
  const name = path.basename(file);
  const submission = await vscode.window.withProgress(
    { location: vscode.ProgressLocation.Notification, title: `Submitting ${name} to Ray`, cancellable: true },
    (progress, cancellation) => {
      const abort = new AbortController();
      cancellation.onCancellationRequested(() => abort.abort());
      return submit(cluster, { file, workingDir, modules }, abort.signal);
    },
  );
  await debugging.start(submission);
}

async function saved(uri) {
  if (!uri) {
    void vscode.window.showInformationMessage("Open the Python file to run first.");
    return undefined;
  }
  const document = await vscode.workspace.openTextDocument(uri);
  if (document.isUntitled || uri.scheme !== "file") {
    void vscode.window.showInformationMessage("Save the file first: Ray gets the folder that it is in.");
    return undefined;
  }
  if (document.isDirty && !(await document.save())) return undefined;
  return uri.fsPath;
}

/** The folder to upload; asks once if there are several candidates, undefined if the user chose none. */
async function workingDirOf(file, folder, memory) {
  const candidates = workingDirs(file, folder);
  const chosen = memory.get(CHOSEN, {});
  const key = `${folder ?? ""}:${path.dirname(file)}`;
  if (candidates.length === 1) return candidates[0];
  if (candidates.includes(chosen[key])) return chosen[key];
  const picked = await vscode.window.showQuickPick(
    candidates.map((candidate) => ({
      label: path.basename(candidate),
      description: candidate,
      detail: candidate === folder ? "The folder that is open" : "The folder of the script",
    })),
    { title: "Which folder do the workers need?", placeHolder: "Ray sends all that is in it (its working_dir)" },
  );
  if (!picked) return undefined;
  await memory.update(CHOSEN, { ...chosen, [key]: picked.description });
  return picked.description;
}

/** More folders to upload, from the setting or the user's choice; undefined if the user chose nothing. */
async function modulesFor(file, folder, workingDir, memory, dashboard) {
  const set = vscode.workspace.getConfiguration("rayBreakpoints", vscode.Uri.file(file)).get("pyModules");
  if (set.length) return set.map((module) => path.resolve(folder?.uri.fsPath ?? path.dirname(file), module));
  const chosen = memory.get(MODULES, {});
  const before = chosen[workingDir];
  if (before?.every(fs.existsSync)) return before;
  if (!before && !(await mayNeedModules(workingDir, dashboard))) return [];
  const picked = await pickModules(workingDir);
  if (picked) await memory.update(MODULES, { ...chosen, [workingDir]: picked });
  return picked;
}

async function mayNeedModules(workingDir, dashboard) {
  try {
    return hadModules(await dashboard.jobs(), workingDir);
  } catch (error) {
    // The submission reports this error better.
    if (error instanceof DashboardError) return false;
    throw error;
  }
}

async function pickModules(workingDir) {
  const none = { label: "No others", description: workingDir };
  const some = { label: "Choose folders...", detail: "Each is the folder of one package (py_modules)" };
  const title = "A job from this folder has sent packages too. Which do the workers need?";
  const picked = await vscode.window.showQuickPick([none, some], { title });
  if (picked !== some) return picked && [];
  const folders = await vscode.window.showOpenDialog({
    ...{ canSelectFiles: false, canSelectFolders: true, canSelectMany: true },
    ...{ title: "Packages to Send", defaultUri: vscode.Uri.file(path.dirname(workingDir)) },
  });
  return folders?.map((uri) => uri.fsPath);
}

module.exports = { runScript };
