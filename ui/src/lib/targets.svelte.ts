import { SvelteSet } from "svelte/reactivity";
import { Answer } from "./answer.svelte";
import type { Backend } from "./backend/backend";
import { storedTexts } from "./stored";
import { unique } from "./text";
import type { Machine } from "./types/Machine";
import type { TargetReport } from "./types/TargetReport";

/** This machine. */
export const LOCAL = "local";
/** Key under which addresses of queues are remembered. */
const QUEUES = "queues";

export const sshTarget = (host: string) => `ssh:${host}`;

/** Where runs can happen, and where the next one shall. */
export class Targets {
  readonly machines = new Answer<Machine[]>();
  /** Queues that were added, as `queue:URL`. */
  queues = $state.raw<string[]>(storedTexts(QUEUES));
  /** Targets of the next run; never empty. */
  readonly chosen = new SvelteSet<string>([LOCAL]);
  /** What the last test of each machine found. */
  tests = $state<Record<string, Answer<TargetReport>>>({});

  readonly #backend: Backend;

  constructor(backend: Backend) {
    this.#backend = backend;
  }

  get all(): string[] {
    const machines = (this.machines.value ?? []).map((machine) => sshTarget(machine.host));
    return [LOCAL, ...machines, ...this.queues];
  }

  refresh(): Promise<void> {
    return this.machines.ask(this.#backend.targets);
  }

  /** Chooses a target or takes it back; the last one stays. */
  toggle(target: string): void {
    if (!this.chosen.has(target)) this.chosen.add(target);
    else if (this.chosen.size > 1) this.chosen.delete(target);
  }

  async test(host: string): Promise<void> {
    const test = (this.tests[host] ??= new Answer<TargetReport>());
    await test.ask(() => this.#backend.testTarget(host));
  }

  addQueue(url: string): void {
    this.#setQueues(unique([...this.queues, `queue:${url}`]));
    this.chosen.add(`queue:${url}`);
  }

  async remove(target: string): Promise<void> {
    this.chosen.delete(target);
    if (this.chosen.size === 0) this.chosen.add(LOCAL);
    if (this.queues.includes(target)) return this.#setQueues(this.queues.filter((queue) => queue !== target));
    await this.#backend.removeTarget(target.slice(sshTarget("").length));
    await this.refresh();
  }

  #setQueues(queues: string[]): void {
    this.queues = queues;
    localStorage.setItem(QUEUES, JSON.stringify(queues));
  }
}
