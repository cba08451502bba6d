import type { Call } from "../types/Call";
import type { Change } from "../types/Change";
import type { Check } from "../types/Check";
import type { ComparisonView } from "../types/ComparisonView";
import type { Content } from "../types/Content";
import type { DiffPart } from "../types/DiffPart";
import type { DigestProgress } from "../types/DigestProgress";
import type { Entry } from "../types/Entry";
import type { ErrorReport } from "../types/ErrorReport";
import type { EvidenceDetail } from "../types/EvidenceDetail";
import type { EvidenceList } from "../types/EvidenceList";
import type { Export } from "../types/Export";
import type { Fixed } from "../types/Fixed";
import type { ForecastView } from "../types/ForecastView";
import type { GateReport } from "../types/GateReport";
import type { GridView } from "../types/GridView";
import type { HostKey } from "../types/HostKey";
import type { JournalledRun } from "../types/JournalledRun";
import type { Machine } from "../types/Machine";
import type { OverriddenCheck } from "../types/OverriddenCheck";
import type { PairView } from "../types/PairView";
import type { PreflightReport } from "../types/PreflightReport";
import type { PreflightRequest } from "../types/PreflightRequest";
import type { PromptView } from "../types/PromptView";
import type { Rendered } from "../types/Rendered";
import type { ReportFormat } from "../types/ReportFormat";
import type { RunEvent } from "../types/RunEvent";
import type { RunSpec } from "../types/RunSpec";
import type { Start } from "../types/Start";
import type { TargetReport } from "../types/TargetReport";
import type { Watched } from "../types/Watched";
import type { Workspace } from "../types/Workspace";
import { untrack } from "svelte";
import { look, t, type Language } from "../look.svelte";
import type { Asking } from "./asking.svelte";
import type { Menu } from "../menu";

/** Files dragged over or dropped into the window; a browser does not say where they lie. */
export type Drop = { kind: "over" } | { kind: "left" } | { kind: "dropped"; paths: string[] | null };

/** What pages can be shown in: the way to the program, and what only a window or a browser can do. */
export interface Shell {
  /** Sends a call to the program, which answers in the reader's language; rejects with an {@link ErrorReport}. */
  call(call: Call, language: Language, onNews?: (news: unknown) => void): Promise<unknown>;
  /** Asks the user for a folder; null when they change their mind. */
  chooseFolder(): Promise<string | null>;
  /** Asks the user for evidence files; empty when they change their mind. */
  chooseFiles(): Promise<string[]>;
  /** Gives a file to the user; resolves with where it went, null when they change their mind. */
  save(file: Rendered): Promise<string | null>;
  copyText(text: string): Promise<void>;
  /** Listens to files dragged into the window; returns a function that stops listening. */
  onDrop: (listener: (drop: Drop) => void) => Promise<() => void>;
  /** What is asked in the page itself, where no native dialog can be opened. */
  asking: Asking | null;
  /** Tells of something that ended while the user looks elsewhere. */
  notify(title: string, text: string): void;
  /** The native menus; null where there are none. */
  menu: { show(menus: Menu[]): Promise<void>; onChosen(listener: (id: string) => void): Promise<() => void> } | null;
  /** Listens to workspaces that are to be opened because the program was started again; null where that cannot be. */
  onOpen: ((listener: (folder: string) => void) => Promise<() => void>) | null;
}

/** A run that is wished for on one target. */
export interface Wish {
  spec: RunSpec;
  target: string;
  out: string;
  overridden: OverriddenCheck[];
}

/** Everything that pages can ask for; what answers is the same whatever they are shown in. */
export class Backend {
  readonly shell: Shell;

  constructor(shell: Shell) {
    this.shell = shell;
  }

  /**
   * The one place where an answer gets its type: `crates/api/src/desk.rs` says which. The language is not tracked: most answers
   * have no words, and an effect that starts a run must not start it again. {@link Session.sayAgain} asks for those that have.
   */
  #ask<T>(call: Call, onNews?: (news: never) => void): Promise<T> {
    const language = untrack(() => look.language);
    return this.shell.call(call, language, onNews as (news: unknown) => void) as Promise<T>;
  }

  start = () => this.#ask<Start>({ call: "start" });
  openWorkspace = (folder: string) => this.#ask<Workspace>({ call: "open-workspace", folder });
  /** Lays out the demo workspace; resolves with its folder. */
  demoWorkspace = () => this.#ask<string>({ call: "demo-workspace" });
  /** Tells of changes below a folder, until this page watches another one. */
  watch = (page: string, folder: string, onNews: (news: Watched) => void) =>
    this.#ask<null>({ call: "watch", page, folder }, onNews);
  complete = (text: string) => this.#ask<Entry[]>({ call: "complete", text });

  preflight = (request: PreflightRequest) => this.#ask<PreflightReport>({ call: "preflight", request });
  preflightCheck = (request: PreflightRequest, id: string) => this.#ask<Check>({ call: "preflight-check", request, id });
  /** What the fix of a check would do; null when there is nothing to do. */
  preflightFixPreview = (request: PreflightRequest, id: string) =>
    this.#ask<Change | null>({ call: "preflight-fix-preview", request, id });
  preflightFix = (request: PreflightRequest, id: string, onLine: (line: string) => void) =>
    this.#ask<Fixed>({ call: "preflight-fix", request, id }, onLine);
  /** Resolves with the file that is what it was. */
  preflightUndo = (request: PreflightRequest, id: string) => this.#ask<string>({ call: "preflight-undo", request, id });
  /** Hashes a pack's files; digests are kept. Ends early when another pack is to be hashed. */
  preflightDigests = (pack: string, onProgress: (progress: DigestProgress) => void) =>
    this.#ask<null>({ call: "preflight-digests", pack }, onProgress);
  preflightMarkdown = (report: PreflightReport) => this.#ask<string>({ call: "preflight-markdown", report });

  defaultSpec = (pack: string) => this.#ask<RunSpec>({ call: "default-spec", pack });
  /** Rejects with what is wrong with the settings. */
  checkSpec = (spec: RunSpec) => this.#ask<null>({ call: "check-spec", spec });
  /**
   * Runs to the end on one target, in spite of the failing checks that are named; resolves with the evidence files, with null when
   * it waits for a run that goes on there.
   */
  run = (wish: Wish, reuse: boolean, onEvent: (event: RunEvent) => void) =>
    this.#ask<string[] | null>({ call: "run", ...wish, reuse }, onEvent);
  /** Goes on with a run that has not ended, or begins one that waits; resolves as {@link run} does. */
  continueRun = (id: string, onEvent: (event: RunEvent) => void) =>
    this.#ask<string[] | null>({ call: "continue-run", id }, onEvent);
  /** Stops a run; null means whichever goes on there. */
  cancelRun = (target: string, run: string | null) => this.#ask<null>({ call: "cancel-run", target, run });
  /** Stops a run once the sample in hand is done. */
  pauseRun = (target: string, run: string | null) => this.#ask<null>({ call: "pause-run", target, run });
  /** Where runs are going on that the program has started, for this page or another. */
  goingRuns = () => this.#ask<string[]>({ call: "going-runs" });
  /** Everything that the run going on there has told, then what comes; null when none is going on. */
  followRun = (target: string, onEvent: (event: RunEvent) => void) =>
    this.#ask<string[] | null>({ call: "follow-run", target }, onEvent);
  forecast = (spec: RunSpec, targets: string[]) => this.#ask<ForecastView>({ call: "forecast", spec, targets });
  /** Runs that have not ended and that nobody works on, the latest first; those that wait for their target among them. */
  unfinishedRuns = () => this.#ask<JournalledRun[]>({ call: "unfinished-runs" });
  discardRun = (id: string) => this.#ask<null>({ call: "discard-run", id });

  targets = () => this.#ask<Machine[]>({ call: "targets" });
  /** The key that a host shows, to be compared before it is added. */
  targetKey = (host: string) => this.#ask<HostKey>({ call: "target-key", host });
  addTarget = (machine: Machine, key: HostKey) => this.#ask<null>({ call: "add-target", machine, key });
  testTarget = (host: string) => this.#ask<TargetReport>({ call: "test-target", host });
  /** Copies this program to a machine. */
  copyToTarget = (host: string) => this.#ask<Machine>({ call: "copy-to-target", host, binary: null });
  removeTarget = (host: string) => this.#ask<boolean>({ call: "remove-target", host });

  /** One row a readable file, one problem an unreadable one; folders among the paths are searched. */
  listEvidence = (paths: string[]) => this.#ask<EvidenceList>({ call: "list-evidence", paths });
  /** One file of the list, audited beside the others. */
  evidenceDetail = (path: string) => this.#ask<EvidenceDetail>({ call: "evidence-detail", path });
  prompt = (path: string, sample: number) => this.#ask<PromptView>({ call: "prompt", path, sample });
  /** Recall by depth and length, of one arm or of all. */
  grid = (paths: string[], arm: string | null) => this.#ask<GridView>({ call: "grid", paths, arm });

  compare = (paths: string[], baseline: string) => this.#ask<ComparisonView>({ call: "compare", paths, baseline });
  /** CUDA and Mac files that belong side by side, the most comparable first. */
  pairs = (paths: string[]) => this.#ask<PairView[]>({ call: "pairs", paths });
  diff = (old: string, other: string) => this.#ask<DiffPart[]>({ call: "diff", old, new: other });

  gate = (paths: string[]) => this.#ask<GateReport>({ call: "gate", paths });
  /** The settings, changed so that the run decides what the gates of its platform leave open; null when nothing is open. */
  wanted = (paths: string[], spec: RunSpec) => this.#ask<RunSpec | null>({ call: "wanted", paths, spec });
  report = (request: Export, format: ReportFormat) => this.#ask<Rendered>({ call: "report", request, format });
}

/** Text of a file that was rendered; null where it holds bytes. */
export function textOf(content: Content): string | null {
  return "text" in content ? content.text : null;
}

/** The bytes of a file that was rendered. */
export function bytesOf(content: Content): Uint8Array<ArrayBuffer> {
  if ("text" in content) return new Uint8Array(new TextEncoder().encode(content.text));
  return Uint8Array.from(atob(content.base64), (character) => character.charCodeAt(0));
}

/** Whatever was thrown, as an error that can be shown. */
export function errorReport(thrown: unknown): ErrorReport {
  if (typeof thrown === "object" && thrown !== null && "code" in thrown && "message" in thrown && "hint" in thrown) {
    return thrown as ErrorReport;
  }
  return {
    code: "unexpected",
    message: thrown instanceof Error ? thrown.message : String(thrown),
    hint: t().app.unexpectedHint,
  };
}

/** An error in one line: what happened, and in the program's own words where and with what. */
export function inFull({ message, detail }: ErrorReport): string {
  return detail ? `${message} (${detail})` : message;
}
