import { Channel, invoke } from "@tauri-apps/api/core";
import { getCurrentWebview } from "@tauri-apps/api/webview";
import type { DigestProgress } from "../types/DigestProgress";
import type { RunEvent } from "../types/RunEvent";
import type { Backend } from "./backend";

/** The backend of the desktop app: each function is a command of `src-tauri`. */
export const tauri: Backend = {
  startingWorkspace: () => invoke("starting_workspace"),
  chooseWorkspace: () => invoke("choose_workspace"),
  openWorkspace: (folder) => invoke("open_workspace", { folder }),

  preflight: (request) => invoke("preflight", { request }),
  preflightCheck: (request, id) => invoke("preflight_check", { request, id }),
  preflightFixPreview: (request, id) => invoke("preflight_fix_preview", { request, id }),
  preflightFix: (request, id, onLine) => invoke("preflight_fix", { request, id, onLine: new Channel<string>(onLine) }),
  preflightUndo: (request, id) => invoke("preflight_undo", { request, id }),
  preflightDigests: (pack, onProgress) =>
    invoke("preflight_digests", { pack, onProgress: new Channel<DigestProgress>(onProgress) }),
  preflightMarkdown: (report) => invoke("preflight_markdown", { report }),

  defaultSpec: (pack) => invoke("default_spec", { pack }),
  checkSpec: (spec) => invoke("check_spec", { spec }),
  run: (spec, out, overridden, onEvent) =>
    invoke("run", { spec, out, overridden, onEvent: new Channel<RunEvent>(onEvent) }),
  cancelRun: () => invoke("cancel_run"),

  chooseEvidence: () => invoke("choose_evidence"),
  listEvidence: (paths) => invoke("list_evidence", { paths }),
  evidenceDetail: (path, neighbours) => invoke("evidence_detail", { path, neighbours }),

  compare: (paths, baseline) => invoke("compare", { paths, baseline }),
  gate: (paths) => invoke("gate", { paths }),
  reportMarkdown: (request) => invoke("report_markdown", { request }),
  exportReport: (request) => invoke("export_report", { request }),

  copyText: (text) => navigator.clipboard.writeText(text),
  onDrop: (listener) =>
    getCurrentWebview().onDragDropEvent(({ payload }) => {
      if (payload.type === "drop") listener({ kind: "dropped", paths: payload.paths });
      else listener({ kind: payload.type === "leave" ? "left" : "over" });
    }),
};
