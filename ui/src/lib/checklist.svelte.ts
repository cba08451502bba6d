import { Answer } from "./answer.svelte";
import type { Backend } from "./backend/backend";
import type { Check } from "./types/Check";
import type { DigestProgress } from "./types/DigestProgress";
import type { PreflightReport } from "./types/PreflightReport";
import type { PreflightRequest } from "./types/PreflightRequest";

/** The row that tells of digests, and the one without which there are none. */
const DIGESTS = "pack-digests";
const MANIFEST = "pack-manifest";

/** The checklist of a pack and of the run that is meant. */
export class Checklist {
  readonly report = new Answer<PreflightReport>();
  /** How far hashing in the background is; null while nothing is hashed. */
  hashing = $state.raw<DigestProgress | null>(null);

  readonly #backend: Backend;
  /** What the report was asked about, as text. */
  #asked = $state("");

  constructor(backend: Backend) {
    this.#backend = backend;
  }

  get checks(): Check[] {
    return this.report.value?.checks ?? [];
  }

  get failing(): Check[] {
    return this.checks.filter((check) => check.status === "fail");
  }

  /** Whether the report, or the error in its place, is about this request. */
  isAbout(request: PreflightRequest): boolean {
    return this.#asked === JSON.stringify(request);
  }

  async ask(request: PreflightRequest): Promise<void> {
    this.#asked = JSON.stringify(request);
    await this.report.ask(() => this.#backend.preflight(request));
    if (this.isAbout(request) && this.#mayHash()) void this.#hash(request);
  }

  /** Runs one check again and puts it in the place of its older self. */
  async askAgain(request: PreflightRequest, id: string): Promise<void> {
    const fresh = await this.#backend.preflightCheck(request, id);
    const now = this.report.value;
    if (now === null || !this.isAbout(request)) return;
    const checks = now.checks.map((check) => (check.id === id ? fresh : check));
    this.report.value = { ...now, checks, may_run: checks.every((check) => check.status !== "fail") };
  }

  clear(): void {
    this.#asked = "";
    this.report.clear();
  }

  #status(id: string): string | undefined {
    return this.checks.find((check) => check.id === id)?.status;
  }

  /** Whether files are left to hash that a checklist of seconds leaves out. */
  #mayHash(): boolean {
    return this.hashing === null && this.#status(MANIFEST) === "pass" && this.#status(DIGESTS) === "skipped";
  }

  async #hash(request: PreflightRequest): Promise<void> {
    this.hashing = { done: 0, total: 0 };
    try {
      await this.#backend.preflightDigests(request.pack, (progress) => (this.hashing = progress));
    } finally {
      this.hashing = null;
    }
    if (this.isAbout(request)) await this.askAgain(request, DIGESTS);
  }
}
