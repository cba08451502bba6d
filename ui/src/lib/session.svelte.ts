import { Answer } from "./answer.svelte";
import { unique } from "./text";
import type { Tone } from "./components/Chip.svelte";
import type { Backend } from "./backend/backend";
import { gateTones } from "./labels";
import { LiveRun } from "./run.svelte";
import type { ComparisonView } from "./types/ComparisonView";
import type { EvidenceDetail } from "./types/EvidenceDetail";
import type { EvidenceList } from "./types/EvidenceList";
import type { GateReport } from "./types/GateReport";
import type { PackEntry } from "./types/PackEntry";
import type { PreflightReport } from "./types/PreflightReport";
import type { RunSpec } from "./types/RunSpec";
import type { Workspace } from "./types/Workspace";

export const PLACES = ["preflight", "run", "evidence", "compare", "gate"] as const;
export type Place = (typeof PLACES)[number];

/** Key under which the last workspace is remembered. */
const LAST_WORKSPACE = "workspace";

/** What the window is looking at. Places come and go; this stays, so that nothing is lost on the way between them. */
export class Session {
  readonly backend: Backend;
  readonly run: LiveRun;

  place = $state<Place>("preflight");
  readonly workspace = new Answer<Workspace>();
  /** Folder of the chosen pack. */
  pack = $state<string | null>(null);
  readonly preflight = new Answer<PreflightReport>();
  /** The run form; null until its defaults are there. */
  spec = $state<RunSpec | null>(null);

  /** Files added by hand, beside those of the workspace. */
  added = $state.raw<string[]>([]);
  readonly evidence = new Answer<EvidenceList>();
  /** The evidence file that is open, if one is. */
  opened = $state<string | null>(null);
  readonly detail = new Answer<EvidenceDetail>();

  readonly comparison = new Answer<ComparisonView>();
  /** The two files to compare: baseline first. */
  pair = $state<[string | null, string | null]>([null, null]);
  readonly gate = new Answer<GateReport>();
  /** Files that the gate does not look at. */
  excluded = $state<string[]>([]);
  reviewer = $state("");
  notes = $state("");

  constructor(backend: Backend) {
    this.backend = backend;
    this.run = new LiveRun(backend, () => void this.refreshEvidence());
  }

  /** Opens the workspace named on the command line, else the one of last time. */
  async begin(): Promise<void> {
    const folder = (await this.backend.startingWorkspace()) ?? localStorage.getItem(LAST_WORKSPACE);
    if (folder !== null) await this.open(folder);
  }

  /** The chosen pack. */
  get chosen(): PackEntry | undefined {
    return this.workspace.value?.packs.find((pack) => pack.folder === this.pack);
  }

  get checklistTone(): Tone {
    if (this.preflight.busy) return "busy";
    if (this.preflight.error) return "fail";
    const statuses = this.preflight.value?.checks.map((check) => check.status) ?? [];
    if (statuses.length === 0) return "neutral";
    return statuses.includes("fail") ? "fail" : statuses.includes("warn") ? "warn" : "pass";
  }

  get runTone(): Tone {
    const run = this.run;
    if (run.active) return "busy";
    return run.phase === "failed" ? "fail" : run.phase === "finished" ? "pass" : "neutral";
  }

  get evidenceTone(): Tone {
    if (this.evidence.busy) return "busy";
    const list = this.evidence.value;
    if (this.evidence.error || (list && list.problems.length > 0)) return "warn";
    return list && list.rows.length > 0 ? "pass" : "neutral";
  }

  /** Files that the gate looks at: readable ones that were not taken out. */
  get gated(): string[] {
    const paths = this.evidence.value?.rows.map((row) => row.path) ?? [];
    return paths.filter((path) => !this.excluded.includes(path));
  }

  get gateTone(): Tone {
    if (this.gate.error) return "fail";
    return this.gate.value ? gateTones[this.gate.value.verdict] : "neutral";
  }

  async chooseWorkspace(): Promise<void> {
    const folder = await this.backend.chooseWorkspace();
    if (folder !== null) await this.open(folder);
  }

  async open(folder: string): Promise<void> {
    await this.workspace.ask(() => this.backend.openWorkspace(folder));
    const workspace = this.workspace.value;
    if (workspace === null) return;
    localStorage.setItem(LAST_WORKSPACE, workspace.root);
    const known = workspace.packs.some((pack) => pack.folder === this.pack);
    if (!known) await this.choosePack(workspace.packs[0]?.folder ?? null);
    await this.refreshEvidence();
  }

  async choosePack(folder: string | null): Promise<void> {
    this.pack = folder;
    this.preflight.clear();
    if (folder === null) return;
    const spec = await this.backend.defaultSpec(folder);
    this.spec = this.spec === null ? spec : { ...this.spec, pack: folder };
  }

  async checkAll(): Promise<void> {
    const pack = this.pack;
    if (pack !== null) await this.preflight.ask(() => this.backend.preflight(pack));
  }

  /** Runs one check again and puts it in the place of its older self. */
  async checkOne(id: string): Promise<void> {
    const before = this.preflight.value;
    if (this.pack === null || before === null) return;
    const fresh = await this.backend.preflightCheck(this.pack, id);
    if (this.preflight.value !== before) return;
    const checks = before.checks.map((check) => (check.id === id ? fresh : check));
    this.preflight.value = { ...before, checks, may_run: checks.every((check) => check.status !== "fail") };
  }

  /** Reads every evidence file again, and what is derived from them. */
  async refreshEvidence(): Promise<void> {
    const workspace = this.workspace.value;
    if (workspace === null) return;
    await this.evidence.ask(async () => {
      const fresh = await this.backend.openWorkspace(workspace.root);
      return this.backend.listEvidence(unique([...fresh.evidence, ...this.added]));
    });
  }

  async add(paths: string[]): Promise<void> {
    if (paths.length === 0) return;
    this.added = unique([...this.added, ...paths]);
    await this.refreshEvidence();
  }

  openEvidence(path: string): void {
    this.place = "evidence";
    this.opened = path;
    const neighbours = this.evidence.value?.rows.map((row) => row.path) ?? [];
    void this.detail.ask(() => this.backend.evidenceDetail(path, neighbours));
  }
}
