import axe from "axe-core";
import { spawn, type ChildProcess } from "node:child_process";
import { cpSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { createInterface } from "node:readline";
import { chromium, type Browser, type BrowserContext, type Page } from "playwright-core";
import { expect } from "vitest";

export const ROOT = resolve(import.meta.dirname, "../..");
/** Pictures of what was tested. */
const PICTURES = join(ROOT, "test-output/browser");
/** Milliseconds for anything that is no run. */
const PATIENCE = 20_000;
const BROWSER = process.env["CHROMIUM"] ?? "/usr/bin/chromium";
const FLAGS = [
  "--no-sandbox",
  "--disable-gpu",
  "--disable-quic",
  "--no-first-run",
  "--disable-background-networking",
  "--disable-component-update",
  "--disable-sync",
];

/** The program under test: `KAKEYA_GATE_PROGRAM`, else what cargo built last. */
export function program(): string {
  const target = process.env["CARGO_TARGET_DIR"] ?? join(ROOT, "target");
  return process.env["KAKEYA_GATE_PROGRAM"] ?? join(target, "debug/kakeya-gate");
}

/** A folder of its own, filled with copies of what lies below the repository. */
export function workspace(...fill: ((folder: string) => void)[]): string {
  const folder = mkdtempSync(join(tmpdir(), "kakeya-gate-"));
  for (const step of fill) step(folder);
  return folder;
}

export const copy = (from: string, to: string) => (folder: string) => cpSync(join(ROOT, from), join(folder, to), { recursive: true });
export const file = (name: string, text: string) => (folder: string) => {
  mkdirSync(join(folder, name, ".."), { recursive: true });
  writeFileSync(join(folder, name), text);
};
export const demoPack = copy("assets/demo-pack", "demo-pack");
/** Evidence of this program and of others. */
export const someEvidence = copy("tests/fixtures/controls", "evidence/controls");
export const kinds = copy("tests/fixtures/kinds", "evidence/kinds");

/** A running `kakeya-gate serve`, a browser beside it, and the addresses that it printed. */
export class Desk {
  readonly addresses: string[] = [];
  readonly browser: Browser;
  readonly #program: ChildProcess;
  readonly #folders: string[];
  #waiting: ((address: string) => void)[] = [];
  #ended = false;

  private constructor(server: ChildProcess, browser: Browser, folders: string[]) {
    this.#program = server;
    this.browser = browser;
    this.#folders = folders;
    server.on("exit", () => {
      this.#ended = true;
      for (const take of this.#waiting) take("");
    });
    if (!server.stdout) throw new Error("the program has no output");
    createInterface(server.stdout).on("line", (line) => {
      this.addresses.push(line);
      this.#waiting.shift()?.(line);
    });
  }

  static async open(folder: string | null): Promise<Desk> {
    const home = mkdtempSync(join(tmpdir(), "kakeya-gate-home-"));
    const options = ["serve", ...(folder === null ? [] : ["--workspace", folder])];
    const env = { ...process.env, KAKEYA_GATE_CACHE: home, HOME: home };
    const server = spawn(program(), options, { stdio: ["ignore", "pipe", "inherit"], env });
    const browser = await chromium.launch({ executablePath: BROWSER, args: FLAGS });
    return new Desk(server, browser, folder === null ? [home] : [home, folder]);
  }

  /** The next address that opens a page. */
  #seen = 0;
  async address(): Promise<string> {
    const known = this.addresses[this.#seen++];
    const next = () => (this.#ended ? "" : new Promise<string>((take) => this.#waiting.push(take)));
    const address = known ?? (await next());
    if (address === "") throw new Error("the program ended; what it said stands above");
    return address;
  }

  async page(options: Parameters<Browser["newContext"]>[0] = {}): Promise<Page> {
    const context: BrowserContext = await this.browser.newContext({
      viewport: { width: 1280, height: 860 },
      locale: "en-US",
      reducedMotion: "reduce",
      ...options,
    });
    await context.grantPermissions(["clipboard-read", "clipboard-write"]);
    // Before the page's own scripts: its policy lets nothing in afterwards.
    await context.addInitScript({ content: axe.source });
    const page = await context.newPage();
    page.setDefaultTimeout(PATIENCE);
    page.on("pageerror", (error) => {
      throw error;
    });
    await page.goto(await this.address());
    return page;
  }

  /** Ends the program; the pages stay. */
  kill(): void {
    this.#program.kill();
  }

  async close(): Promise<void> {
    await this.browser.close();
    this.kill();
    for (const folder of this.#folders) rmSync(folder, { recursive: true, force: true });
  }
}

/** What a place shows once it is ready, where there is something to show. */
export const READY = {
  preflight: "[data-preflight=done]",
  run: "#start:not(:disabled)",
  evidence: "tr[data-file]",
  compare: "[data-comparison]",
  gate: "[data-cell]",
} as const;

/** Goes to a place by its entry in the navigation. */
export async function go(page: Page, place: string): Promise<void> {
  await page.click(`[data-go=${place}]`);
  await page.waitForSelector(`main[data-place=${place}]`);
}

/** Milliseconds that the page's main thread has computed: its own time, whatever else the machine does meanwhile. */
async function spent(page: Page): Promise<number> {
  const devtools = await page.context().newCDPSession(page);
  await devtools.send("Performance.enable", { timeDomain: "threadTicks" });
  const { metrics } = await devtools.send("Performance.getMetrics");
  await devtools.detach();
  return 1000 * (metrics.find(({ name }) => name === "TaskDuration")?.value ?? NaN);
}

/** What the page computes until `done` resolves. */
export async function computedUntil(page: Page, done: () => Promise<unknown>): Promise<number> {
  const before = await spent(page);
  await done();
  return (await spent(page)) - before;
}

/** What it computes while `act` happens in it and until that is painted, however long the program takes to answer. */
export function computed<T>(page: Page, act: (given: T) => void, given: T): Promise<number> {
  return computedUntil(page, async () => {
    await page.evaluate(act as (given: unknown) => void, given);
    await page.evaluate(() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done))));
  });
}

/** What things took, milliseconds: of several measurements the least, which other work on the machine disturbed least. */
export class Times {
  readonly #least = new Map<string, number>();

  add(what: string, took: number): void {
    this.#least.set(what, Math.min(took, this.#least.get(what) ?? Infinity));
  }

  told(): string {
    return [...this.#least].map(([what, took]) => `${what}: ${took.toFixed(0)} ms`).join(", ");
  }

  /** What took longer than its limit. */
  over(limit: (what: string) => number): [string, number][] {
    return [...this.#least].filter(([what, took]) => took > limit(what));
  }
}

/** Waits for the charts, which are drawn a frame after the words. */
export async function drawn(page: Page): Promise<void> {
  const all = () => [...document.querySelectorAll("[data-figure]")].every((figure) => figure.querySelector("img")?.complete);
  await page.waitForFunction(all);
}

/** Keeps a picture of the page. */
export async function picture(page: Page, name: string): Promise<void> {
  mkdirSync(PICTURES, { recursive: true });
  await drawn(page);
  await page.screenshot({ path: join(PICTURES, `${name}.png`) });
}

interface Violation {
  id: string;
  impact: string | null;
  nodes: { target: string[]; failureSummary: string }[];
}

/** Nothing that axe calls serious or critical is on the page. */
export async function accessible(page: Page, what: string): Promise<void> {
  const violations = await page.evaluate(async () => {
    const { axe } = window as unknown as { axe: { run: (options: object) => Promise<{ violations: unknown[] }> } };
    // The preview of a report is a document of its own in which nothing may run.
    const { violations } = await axe.run({ iframes: false });
    return violations;
  });
  const grave = (violations as Violation[]).filter(({ impact }) => impact === "serious" || impact === "critical");
  const told = grave.map(({ id, nodes }) => `${id}: ${nodes.map((node) => node.target.join(" ")).slice(0, 5).join(", ")}\n${nodes[0]?.failureSummary ?? ""}`);
  expect(told, `${what}: what axe finds`).toEqual([]);
}
