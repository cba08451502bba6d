import { errorReport, inFull, type Backend, type Wish } from "./backend/backend";
import { seconds } from "./format";
import { armName } from "./labels";
import { t } from "./look.svelte";
import type { ArmRecall } from "./types/ArmRecall";
import type { ErrorReport } from "./types/ErrorReport";
import type { LoadedPack } from "./types/LoadedPack";
import type { RestoredBrief } from "./types/RestoredBrief";
import type { RunEvent } from "./types/RunEvent";
import type { TrialOutcome } from "./types/TrialOutcome";

export type Phase = "idle" | "starting" | "loading" | "running" | "finished" | "paused" | "cancelled" | "failed";

/**
 * Events of so many milliseconds are shown at once, and nothing moves by itself: a page that paints at each of them takes from the
 * processor that is being measured.
 */
const BEAT = 100;

/** Lines of the log that are kept. */
const LOG_LINES = 500;

type Started = Extract<RunEvent, { type: "started" }>;
type Memory = Extract<RunEvent, { type: "memory" }>;

/** The trial that is going on. */
export interface Current {
  rung: number;
  sample: number;
  arm: string;
  stage: string;
  tokens: number;
}

/** What is called when it has begun, and whenever an evidence file has been written. */
export interface Steps {
  started: () => void;
  written: () => void;
}

/** A line of the log. */
export interface Line {
  number: number;
  text: string;
}

/** Key of a trial, and of an arm on a rung. */
export const trialKey = (rung: number, arm: string, sample: number) => `${rung}/${arm}/${sample}`;
export const armKey = (rung: number, arm: string) => `${rung}/${arm}`;

/** A run as it happens: what its events have added up to. */
export class LiveRun {
  phase = $state<Phase>("idle");
  cancelling = $state(false);
  /** It stops once the sample in hand is done. */
  pausing = $state(false);
  started = $state.raw<Started | null>(null);
  pack = $state.raw<LoadedPack | null>(null);
  current = $state.raw<Current | null>(null);
  /** By {@link trialKey}, each square for itself: an event changes one of thousands. */
  outcomes = $state<Record<string, TrialOutcome>>({});
  /** Trials that are being answered, likewise. */
  going = $state<Record<string, boolean>>({});
  /** What the last restored trial has counted: whether restoration really ran. */
  restored = $state.raw<RestoredBrief | null>(null);
  recalls = $state<Record<string, ArmRecall>>({});
  memory = $state.raw<Memory[]>([]);
  log = $state.raw<Line[]>([]);
  done = $state(0);
  remaining = $state.raw<number | null>(null);
  paths = $state.raw<string[]>([]);
  error = $state.raw<ErrorReport | null>(null);
  /** Tokens generated, seconds spent, and their number, of trials that were measured in this sitting. */
  tokens = $state(0);
  trialSeconds = $state(0);
  measured = $state(0);
  /** Trials of this run, once they are planned, and how many of them the journal had already. */
  trials = $state(0);
  reused = $state(0);

  /** Where it happens: `local`, `ssh:HOST`, `queue:URL`. */
  readonly target: string;
  readonly #backend: Backend;
  readonly #on: Steps;
  #run = 0;

  constructor(backend: Backend, target: string, on: Steps) {
    this.#backend = backend;
    this.target = target;
    this.#on = on;
  }

  get active(): boolean {
    return this.phase === "starting" || this.phase === "loading" || this.phase === "running";
  }

  start(wish: Wish, reuse: boolean): Promise<void> {
    return this.#follow((onEvent) => this.#backend.run(wish, reuse, onEvent));
  }

  /** Goes on with a run that has not ended, or begins one that waits. */
  goOn(id: string): Promise<void> {
    return this.#follow((onEvent) => this.#backend.continueRun(id, onEvent));
  }

  /** Shows the run that is going on there already, from its beginning. */
  attach(): Promise<void> {
    return this.#follow((onEvent) => this.#backend.followRun(this.target, onEvent));
  }

  async #follow(begin: (onEvent: (event: RunEvent) => void) => Promise<string[] | null>): Promise<void> {
    this.#reset();
    const run = ++this.#run;
    this.phase = "starting";
    try {
      const paths = await begin((event) => this.#hear(run, event));
      this.#show();
      this.paths = paths ?? [];
      // It waits for another one, or had ended before it could be followed: how, only its evidence tells.
      this.#end(paths === null ? "idle" : "finished");
    } catch (thrown) {
      const error = errorReport(thrown);
      this.#show();
      if (error.code === "cancelled" || error.code === "paused") this.#end(error.code);
      else {
        this.error = error;
        this.#end("failed");
      }
      this.#say(inFull(error));
    }
    // What comes late, by another way than the end, is over.
    this.#run++;
  }

  #hear(run: number, event: RunEvent): void {
    // Events of a run that has already ended must not touch the next one.
    if (run !== this.#run) return;
    this.#heard.push(event);
    this.#beat ??= setTimeout(() => this.#show(), BEAT);
  }
  #heard: RunEvent[] = [];
  #beat: ReturnType<typeof setTimeout> | null = null;

  /** Shows what was heard. */
  #show(): void {
    clearTimeout(this.#beat ?? undefined);
    this.#beat = null;
    for (const event of this.#heard.splice(0)) this.apply(event);
  }

  async cancel(): Promise<void> {
    this.cancelling = true;
    await this.#backend.cancelRun(this.target, this.started?.run ?? null);
  }

  async pause(): Promise<void> {
    this.pausing = true;
    await this.#backend.pauseRun(this.target, this.started?.run ?? null);
  }

  apply(event: RunEvent): void {
    switch (event.type) {
      case "started":
        this.started = event;
        this.phase = "loading";
        this.#on.started();
        this.#say(t().run.logStarted(event.run, event.target));
        break;
      case "planned":
        this.trials = event.trials;
        this.reused = event.reused;
        this.#say(t().run.logPlanned(event.trials, event.reused));
        break;
      case "notice":
        this.#say(event.line);
        break;
      case "loaded":
        this.pack = event.pack;
        this.phase = "running";
        this.#say(t().run.logLoaded(event.pack.name, event.pack.compute_dtype));
        break;
      case "trial-started":
        this.current = { rung: event.rung, sample: event.sample, arm: event.arm, stage: "prefill", tokens: 0 };
        this.going[trialKey(event.rung, event.arm, event.sample)] = true;
        break;
      case "trial-progress":
        if (this.current) this.current = { ...this.current, stage: event.stage, tokens: event.tokens };
        break;
      case "trial-done":
        this.#record(event);
        break;
      case "memory":
        this.memory = [...this.memory, event];
        break;
      case "rung-done":
        this.paths = [...this.paths.filter((path) => !event.paths.includes(path)), ...event.paths];
        this.#say(t().run.logRung(event.rung, event.paths.join(", ")));
        this.#on.written();
        break;
      case "finished":
        this.#say(t().run.logFinished);
        break;
    }
  }

  #record(event: Extract<RunEvent, { type: "trial-done" }>): void {
    const { rung, arm, sample, outcome } = event;
    const key = trialKey(rung, arm, sample);
    this.outcomes[key] = outcome;
    this.going[key] = false;
    this.restored = outcome.restored ?? this.restored;
    this.recalls[armKey(rung, arm)] = event.recall;
    this.done = event.done;
    this.remaining = event.remaining_s;
    if (!event.reused) {
      this.tokens += outcome.generated_tokens;
      this.trialSeconds += outcome.seconds;
      this.measured++;
    }
    const restored = outcome.restored;
    const ran = restored
      ? t().run.logRestored(restored.positions, restored.f_theta_layers + restored.capture_layers)
      : "";
    const verdict = outcome.hit ? t().common.hit : t().common.miss;
    this.#say(t().run.logTrial(rung, sample, armName(arm), verdict, seconds(outcome.seconds)) + ran);
  }

  #say(line: string): void {
    const number = (this.log.at(-1)?.number ?? 0) + 1;
    this.log = [...this.log.slice(1 - LOG_LINES), { number, text: line }];
  }

  #end(phase: Phase): void {
    this.phase = phase;
    this.current = null;
    this.going = {};
    this.remaining = null;
    this.cancelling = false;
    this.pausing = false;
  }

  #reset(): void {
    this.started = null;
    this.pack = null;
    this.outcomes = {};
    this.restored = null;
    this.recalls = {};
    this.memory = [];
    this.log = [];
    this.done = 0;
    this.paths = [];
    this.error = null;
    this.tokens = 0;
    this.trialSeconds = 0;
    this.measured = 0;
    this.trials = 0;
    this.reused = 0;
    this.#end("idle");
  }
}
