import { Answer } from "./answer.svelte";
import { Checklist } from "./checklist.svelte";
import { SvelteSet } from "svelte/reactivity";
import { storedTexts } from "./stored";
import { unique, without } from "./text";
import type { Tone } from "./components/Chip.svelte";
import { errorReport, type Backend } from "./backend/backend";
import { gateTones } from "./labels";
import { t } from "./look.svelte";
import { LiveRun } from "./run.svelte";
import { LOCAL, Targets } from "./targets.svelte";
import type { ComparisonView } from "./types/ComparisonView";
import type { ErrorReport } from "./types/ErrorReport";
import type { EvidenceDetail } from "./types/EvidenceDetail";
import type { EvidenceList } from "./types/EvidenceList";
import type { GateReport } from "./types/GateReport";
import type { JournalledRun } from "./types/JournalledRun";
import type { PackEntry } from "./types/PackEntry";
import type { OverriddenCheck } from "./types/OverriddenCheck";
import type { PreflightRequest } from "./types/PreflightRequest";
import type { RunSpec } from "./types/RunSpec";
import type { Workspace } from "./types/Workspace";

export const PLACES = ["preflight", "run", "evidence", "compare", "gate"] as const;
export type Place = (typeof PLACES)[number];

/** Key under which workspaces are remembered, the last one first, and how many are. */
const RECENT = "workspaces";
const MOST_RECENT = 8;

/** What the window is looking at. Places come and go; this stays, so that nothing is lost on the way between them. */
export class Session {
  readonly backend: Backend;
  /** The runs that were started last, one a target. */
  runs = $state.raw<LiveRun[]>([]);
  /** The one that is shown, if it is still among them. */
  shown = $state.raw<LiveRun | null>(null);
  readonly targets: Targets;
  /** Runs that were interrupted and can be continued, and those that wait for their target. */
  readonly unfinished = new Answer<JournalledRun[]>();
  /** Whether the next run takes over trials that earlier ones have finished. */
  reuse = $state(false);
  /** The form holds what the gates leave open: true, or that nothing is: false; null when that was not asked. */
  wanted = $state<boolean | null>(null);
  /** Why changes in the workspace are not noticed. */
  unwatched = $state.raw<ErrorReport | null>(null);

  place = $state<Place>("preflight");
  /** Workspaces that were opened before, the last one first. */
  recent = $state.raw<string[]>(storedTexts(RECENT));
  /** The dialog that exports a report is open. */
  exporting = $state(false);
  readonly workspace = new Answer<Workspace>();
  /** Folder of the chosen pack. */
  pack = $state<string | null>(null);
  readonly checklist: Checklist;
  /** Evidence of another machine that the next run is to be compared with. */
  counterpart = $state<string | null>(null);
  /** Failing checks that keep a run from starting, and what the user may decide to override; null while nothing does. */
  blocked = $state.raw<OverriddenCheck[] | null>(null);
  /** A run was asked for, and what could block it is being looked at. */
  checking = $state(false);
  /** The run form; null until its defaults are there. */
  spec = $state<RunSpec | null>(null);

  /** Files added by hand, beside those of the workspace. */
  added = $state.raw<string[]>([]);
  readonly evidence = new Answer<EvidenceList>();
  /** The evidence file that is open, if one is. */
  opened = $state<string | null>(null);
  readonly detail = new Answer<EvidenceDetail>();
  /** Files that are ticked in the list. */
  readonly selected = new SvelteSet<string>();

  readonly comparison = new Answer<ComparisonView>();
  /** The files to compare: baseline first. */
  compared = $state.raw<string[]>([]);
  readonly gate = new Answer<GateReport>();
  /** Files that the gate does not look at. */
  excluded = $state.raw<string[]>([]);
  reviewer = $state("");
  notes = $state("");

  constructor(backend: Backend) {
    this.backend = backend;
    this.checklist = new Checklist(backend);
    this.targets = new Targets(backend);
    this.runs = [this.#live(LOCAL)];
  }

  #live(target: string): LiveRun {
    const live: LiveRun = new LiveRun(this.backend, target, {
      started: () => {
        this.#show(live);
        void this.unfinished.ask(this.backend.unfinishedRuns);
      },
      written: () => void this.refreshEvidence(),
    });
    return live;
  }

  /** The run that is shown. */
  get run(): LiveRun {
    return this.runs.find((run) => run === this.shown) ?? (this.runs[0] as LiveRun);
  }

  /** Whether a run goes on anywhere. */
  get running(): boolean {
    return this.runs.some((run) => run.active);
  }

  pauseRuns(): void {
    this.runs.filter((run) => run.active).forEach((run) => void run.pause());
  }

  cancelRuns(): void {
    this.runs.filter((run) => run.active).forEach((run) => void run.cancel());
  }

  /** Opens the workspace named on the command line, else the one of last time. */
  async begin(): Promise<void> {
    void this.unfinished.ask(this.backend.unfinishedRuns);
    void this.targets.refresh();
    void this.#attach();
    const { workspace } = await this.backend.start();
    const folder = workspace ?? this.recent[0];
    if (folder !== undefined) await this.open(folder);
  }

  /** Shows runs that go on and that this page did not begin: another one did, or it was their turn. */
  async #attach(): Promise<void> {
    const targets = await this.backend.goingRuns();
    const unknown = targets.filter((target) => !this.isBusy(target)).map((target) => this.#live(target));
    unknown.forEach((live) => void this.#follow(live, live.attach()));
  }

  /** The chosen pack. */
  get chosen(): PackEntry | undefined {
    return this.workspace.value?.packs.find((pack) => pack.folder === this.pack);
  }

  get checklistTone(): Tone {
    if (this.checklist.report.busy) return "busy";
    if (this.checklist.report.error) return "fail";
    const statuses = this.checklist.checks.map((check) => check.status);
    if (statuses.length === 0) return "neutral";
    return statuses.includes("fail") ? "fail" : statuses.includes("warn") ? "warn" : "pass";
  }

  get runTone(): Tone {
    if (this.running) return "busy";
    const phases = this.runs.map((run) => run.phase);
    if (phases.includes("failed")) return "fail";
    return phases.includes("finished") ? "pass" : (this.unfinished.value ?? []).length > 0 ? "warn" : "neutral";
  }

  get evidenceTone(): Tone {
    if (this.evidence.busy) return "busy";
    const list = this.evidence.value;
    if (this.evidence.error || (list && list.problems.length > 0)) return "warn";
    return list && list.rows.length > 0 ? "pass" : "neutral";
  }

  /** Files that the gate looks at: readable ones that were not taken out. */
  get gated(): string[] {
    return without(this.evidence.value?.rows.map((row) => row.path) ?? [], this.excluded);
  }

  get gateTone(): Tone {
    if (this.gate.error) return "fail";
    return this.gate.value ? gateTones[this.gate.value.verdict] : "neutral";
  }

  async chooseWorkspace(): Promise<void> {
    const folder = await this.backend.shell.chooseFolder();
    if (folder !== null) await this.open(folder);
  }

  async chooseEvidence(): Promise<void> {
    await this.add(await this.backend.shell.chooseFiles());
  }

  async openDemo(): Promise<void> {
    await this.open(await this.backend.demoWorkspace());
  }

  forget(folder: string): void {
    this.#remember(this.recent.filter((other) => other !== folder));
  }

  #remember(folders: string[]): void {
    this.recent = folders.slice(0, MOST_RECENT);
    localStorage.setItem(RECENT, JSON.stringify(this.recent));
  }

  async open(folder: string): Promise<void> {
    performance.mark("opening");
    const before = this.workspace.value;
    await this.workspace.ask(() => this.backend.openWorkspace(folder));
    const workspace = this.workspace.value;
    // What cannot be opened does not close what is open.
    if (workspace === null) return void (this.workspace.value = before);
    this.#remember(unique([workspace.root, ...this.recent]));
    this.#leave();
    void this.#watch(workspace.root);
    const known = workspace.packs.some((pack) => pack.folder === this.pack);
    if (!known) await this.choosePack(workspace.packs[0]?.folder ?? null);
    await this.refreshEvidence();
    performance.mark("listed");
  }

  /** Forgets what belonged to the workspace before; a workspace that is opened again keeps it. */
  #leave(): void {
    const root = this.workspace.value?.root ?? "";
    if (this.#root === root) return;
    this.#root = root;
    this.added = [];
    this.opened = null;
    this.selected.clear();
    this.compared = [];
    this.excluded = [];
    this.counterpart = null;
    this.gate.clear();
    this.comparison.clear();
  }
  #root = "";

  /** Reads the workspace again whenever something in it has changed. */
  async #watch(root: string): Promise<void> {
    if (this.#watched === root) return;
    this.#watched = root;
    this.unwatched = null;
    try {
      await this.backend.watch(this.#page, root, (news) => {
        if (news === "changed" && this.#watched === root) void this.refreshEvidence();
        // Another page may have begun a run meanwhile.
        if (news === "quiet") void this.#attach();
      });
    } catch (thrown) {
      if (this.#watched === root) this.unwatched = errorReport(thrown);
    }
    // Opened again it is watched again.
    if (this.#watched === root) this.#watched = "";
  }
  #watched = "";
  readonly #page = crypto.randomUUID();

  async choosePack(folder: string | null): Promise<void> {
    this.pack = folder;
    this.checklist.clear();
    this.blocked = null;
    this.wanted = null;
    if (folder === null) return void (this.spec = null);
    const spec = await this.backend.defaultSpec(folder);
    if (this.pack !== folder) return;
    this.spec = this.spec === null ? spec : { ...this.spec, pack: folder };
  }

  /** What the checklist is asked about: the pack with the run that the form describes. */
  request(): PreflightRequest | null {
    if (this.pack === null) return null;
    const [spec, out] = [$state.snapshot(this.spec), this.workspace.value?.out ?? null];
    return { pack: this.pack, spec, spec_file: null, out, counterpart: this.counterpart };
  }

  /** Whether the checklist is about something else than what is chosen now. */
  get stale(): boolean {
    const request = this.request();
    return request !== null && !this.checklist.isAbout(request);
  }

  async checkAll(): Promise<void> {
    const request = this.request();
    if (request !== null) await this.checklist.ask(request);
  }

  async checkOne(id: string): Promise<void> {
    const request = this.request();
    if (request !== null) await this.checklist.askAgain(request, id);
  }

  /** Checks, then starts the run if nothing fails; else says what blocks it. */
  async startRun(): Promise<void> {
    this.blocked = null;
    this.checking = true;
    // Asked again meanwhile (in another language), the answer is still to come.
    do await this.checkAll();
    while (this.checklist.report.busy);
    this.checking = false;
    // Another pack, or other settings: what was checked is not what would run.
    if (this.pack === null || this.stale) return;
    const { failing, report } = this.checklist;
    const overridable = failing.map(({ id, measured }) => ({ id, measured }));
    // Evidence is English.
    if (report.error) overridable.push({ id: "preflight", measured: report.error.detail ?? report.error.message });
    if (overridable.length > 0) this.blocked = overridable;
    else await this.#start([]);
  }

  /** Goes to the run; there already, it starts. */
  askToRun(): void {
    if (this.place !== "run") this.place = "run";
    else if (!this.running && !this.checking && this.spec !== null) void this.startRun();
  }

  /** Fills the form with the run that decides what the gates leave open. */
  async askForMissing(): Promise<void> {
    const spec = $state.snapshot(this.spec);
    if (spec === null) return;
    const wanted = await this.backend.wanted(this.gated, spec);
    this.wanted = wanted !== null;
    if (wanted === null) return;
    this.spec = wanted;
    this.reuse = true;
    this.place = "run";
  }

  openExport(): void {
    this.place = "gate";
    this.exporting = true;
  }

  /** Starts the run in spite of what blocks it. */
  async startInSpite(): Promise<void> {
    const overridden = this.blocked ?? [];
    this.blocked = null;
    await this.#start(overridden);
  }

  async #start(overridden: OverriddenCheck[]): Promise<void> {
    const [workspace, spec] = [this.workspace.value, $state.snapshot(this.spec)];
    if (workspace === null || spec === null) return;
    this.wanted = null;
    const wish = { spec, out: workspace.out, overridden };
    // What ran on other targets before is not about this run.
    this.runs = this.runs.filter((run) => run.active);
    const begun = [...this.targets.chosen].map((target) => {
      const live = this.#live(target);
      return this.#follow(live, live.start({ ...wish, target }, this.reuse));
    });
    await Promise.all(begun);
  }

  /** Whether a run goes on there. */
  isBusy = (target: string): boolean => this.runs.some((run) => run.target === target && run.active);

  /** Runs that wait until their target is free, in the order in which they were asked for. */
  get queued(): JournalledRun[] {
    const since = (run: JournalledRun) => run.queued ?? "";
    const waiting = (this.unfinished.value ?? []).filter((run) => run.state === "queued");
    return waiting.toSorted((a, b) => (since(a) < since(b) ? -1 : 1));
  }

  /** Interrupted runs that can be continued. */
  get interrupted(): JournalledRun[] {
    return (this.unfinished.value ?? []).filter((run) => run.state !== "queued");
  }

  /** Goes on with a run that was interrupted, or begins one that waits. */
  async goOn(run: JournalledRun): Promise<void> {
    this.place = "run";
    const live = this.#live(run.target);
    await this.#follow(live, live.goOn(run.id));
  }

  async discard(run: JournalledRun): Promise<void> {
    await this.unfinished.ask(async () => {
      await this.backend.discardRun(run.id);
      return this.backend.unfinishedRuns();
    });
  }

  /** Follows a run to its end. One that may have to wait for its target is shown once it has begun. */
  async #follow(live: LiveRun, ended: Promise<void>): Promise<void> {
    if (!this.isBusy(live.target)) this.#show(live);
    await ended;
    // What could not even be told to wait takes no place from the run that goes on.
    if (live.error !== null && this.isBusy(live.target) && !this.runs.includes(live)) throw live.error;
    if (live.phase !== "idle") {
      this.#show(live);
      this.backend.shell.notify(t().run[live.phase], t().run.notify(t().run[live.phase], live.paths.length));
    }
    await this.unfinished.ask(this.backend.unfinishedRuns);
    // It may be the turn of what waits there. Where nobody answers any more, nothing begins.
    if (this.unfinished.error === null) await this.#attach();
  }

  /** Shows a run in place of the one before on its target. */
  #show(live: LiveRun): void {
    if (this.runs.includes(live)) return;
    const others = this.runs.filter((run) => run.target !== live.target && run.phase !== "idle");
    this.runs = [...others, live];
    this.shown = live;
  }

  /** What an answer is about; it is never the same again where changes in the workspace are not noticed. */
  noticed(about: unknown[]): unknown[] {
    return this.unwatched === null ? about : [...about, {}];
  }

  /** Reads every evidence file again, and what is derived from them. */
  async refreshEvidence(): Promise<void> {
    const workspace = this.workspace.value;
    if (workspace === null) return;
    await this.evidence.ask(async () => {
      const fresh = await this.backend.openWorkspace(workspace.root);
      if (this.#root === fresh.root) await this.#refresh(fresh);
      return this.backend.listEvidence(unique([...fresh.evidence, ...this.added]));
    });
    // What is open may have changed; it is audited beside the list that is there now.
    if (this.wanted === false) this.wanted = null;
    const opened = this.opened;
    if (opened !== null) await this.detail.ask(() => this.backend.evidenceDetail(opened));
  }

  /** Takes what a workspace holds now. */
  async #refresh(fresh: Workspace): Promise<void> {
    this.workspace.value = fresh;
    if (!fresh.packs.some((pack) => pack.folder === this.pack)) await this.choosePack(fresh.packs[0]?.folder ?? null);
  }

  async add(paths: string[]): Promise<void> {
    if (paths.length === 0) return;
    this.added = unique([...this.added, ...paths]);
    await this.refreshEvidence();
  }

  /** Asks again for what the program says in words: the reader has chosen another language. */
  sayAgain(): void {
    for (const answer of [this.detail, this.comparison, this.gate, this.checklist.report]) void answer.again();
    if (this.evidence.error || this.evidence.value?.problems.length) void this.evidence.again();
    if (this.unfinished.value?.some(({ error }) => error)) void this.unfinished.ask(this.backend.unfinishedRuns);
  }

  openEvidence(path: string): void {
    this.place = "evidence";
    this.opened = path;
    void this.detail.ask(() => this.backend.evidenceDetail(path));
  }
}
