import type { ComparisonView } from "../types/ComparisonView";
import type { Change } from "../types/Change";
import type { Check } from "../types/Check";
import type { DigestProgress } from "../types/DigestProgress";
import type { ErrorReport } from "../types/ErrorReport";
import type { EvidenceDetail } from "../types/EvidenceDetail";
import type { EvidenceList } from "../types/EvidenceList";
import type { Export } from "../types/Export";
import type { Fixed } from "../types/Fixed";
import type { GateReport } from "../types/GateReport";
import type { OverriddenCheck } from "../types/OverriddenCheck";
import type { PreflightReport } from "../types/PreflightReport";
import type { PreflightRequest } from "../types/PreflightRequest";
import type { RunEvent } from "../types/RunEvent";
import type { RunSpec } from "../types/RunSpec";
import type { Workspace } from "../types/Workspace";

/** Files dragged over or dropped into the window. */
export type Drop = { kind: "over" } | { kind: "left" } | { kind: "dropped"; paths: string[] };

/**
 * Everything that the window can ask for. One function a command of the program; a refused request rejects with an
 * {@link ErrorReport}. Nothing else in `ui/` knows how the program is reached.
 */
export interface Backend {
  /** The workspace named on the command line. */
  startingWorkspace(): Promise<string | null>;
  /** Asks the user for a folder; null when they change their mind. */
  chooseWorkspace(): Promise<string | null>;
  openWorkspace(folder: string): Promise<Workspace>;

  preflight(request: PreflightRequest): Promise<PreflightReport>;
  preflightCheck(request: PreflightRequest, id: string): Promise<Check>;
  /** What the fix of a check would do; null when there is nothing to do. */
  preflightFixPreview(request: PreflightRequest, id: string): Promise<Change | null>;
  preflightFix(request: PreflightRequest, id: string, onLine: (line: string) => void): Promise<Fixed>;
  /** Resolves with the file that is what it was. */
  preflightUndo(request: PreflightRequest, id: string): Promise<string>;
  /** Hashes a pack's files; digests are kept. Ends early when another pack is to be hashed. */
  preflightDigests(pack: string, onProgress: (progress: DigestProgress) => void): Promise<void>;
  preflightMarkdown(report: PreflightReport): Promise<string>;

  defaultSpec(pack: string): Promise<RunSpec>;
  /** Rejects with what is wrong with the settings. */
  checkSpec(spec: RunSpec): Promise<void>;
  /** Runs to the end, in spite of the failing checks that are named; resolves with the evidence files. */
  run(
    spec: RunSpec,
    out: string,
    overridden: OverriddenCheck[],
    onEvent: (event: RunEvent) => void,
  ): Promise<string[]>;
  cancelRun(): Promise<void>;

  /** Asks the user for evidence files; empty when they change their mind. */
  chooseEvidence(): Promise<string[]>;
  /** One row a readable file, one problem an unreadable one; folders among the paths are searched. */
  listEvidence(paths: string[]): Promise<EvidenceList>;
  /** One file, audited beside its neighbours. */
  evidenceDetail(path: string, neighbours: string[]): Promise<EvidenceDetail>;

  compare(paths: string[], baseline: string | null): Promise<ComparisonView>;
  gate(paths: string[]): Promise<GateReport>;
  reportMarkdown(request: Export): Promise<string>;
  /** Asks the user where to, then writes; null when they change their mind. */
  exportReport(request: Export): Promise<string | null>;

  copyText(text: string): Promise<void>;
  /** Listens to files dragged into the window; returns a function that stops listening. */
  onDrop(listener: (drop: Drop) => void): Promise<() => void>;
}

/** Whatever was thrown, as an error that can be shown. */
export function errorReport(thrown: unknown): ErrorReport {
  if (typeof thrown === "object" && thrown !== null && "code" in thrown && "message" in thrown && "hint" in thrown) {
    return { code: String(thrown.code), message: String(thrown.message), hint: String(thrown.hint) };
  }
  return {
    code: "unexpected",
    message: thrown instanceof Error ? thrown.message : String(thrown),
    hint: "Try again; if it happens again, report it with this message.",
  };
}
