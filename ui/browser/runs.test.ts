import { cpSync, rmSync } from "node:fs";
import { join } from "node:path";
import { afterEach, expect, test } from "vitest";
import type { Page } from "playwright-core";
import { accessible, computedUntil, demoPack, Desk, go, picture, someEvidence, workspace } from "./desk";

let desk: Desk | null = null;
afterEach(async () => {
  await desk?.close();
  desk = null;
});

/** Milliseconds for a run of the demo pack, on a busy machine. */
const RUN = 180_000;
/** So many that the run outlasts whatever is done while it goes on. */
const SAMPLES = 200;
const ARMS = ["oracle", "sink-window", "restored:s5"];
const EVIDENCE = join(import.meta.dirname, "../../tests/fixtures/evidence/demo_ctx20_s5.json");

/** Fills the form: three arms on one rung. */
async function settings(page: Page, samples: number): Promise<void> {
  for (const box of await page.locator("fieldset.arms input").all()) {
    await box.setChecked(ARMS.includes((await box.getAttribute("name")) ?? ""));
  }
  await page.fill("[name=ladder]", "20");
  await page.fill("[name=n_samples]", String(samples));
}

async function begin(page: Page, samples: number): Promise<void> {
  await go(page, "run");
  await settings(page, samples);
  await page.click("#start:enabled");
  await page.waitForSelector("h1[data-run=running]", { timeout: RUN });
}

const phase = (page: Page, name: string) => page.waitForSelector(`h1[data-run=${name}]`, { timeout: RUN });
const finished = (page: Page) => phase(page, "finished");

test(
  "a run is paused once its sample is answered by every arm, and goes on; its time is foretold from then on",
  async () => {
    desk = await Desk.open(workspace(demoPack));
    const page = await desk.page();
    await go(page, "run");
    await page.waitForSelector("[data-forecast=done]", { timeout: RUN });
    expect(await page.textContent("[data-forecast]")).toContain("not every arm has run");
    await begin(page, SAMPLES);
    await page.click("#pause");
    await phase(page, "paused");
    await picture(page, "run-paused");
    await accessible(page, "paused run");
    const waiting = (await page.textContent("[data-unfinished]")) ?? "";
    const done = Number(/(\d+) of 600 trials done/.exec(waiting)?.[1]);
    expect(done % ARMS.length).toBe(0);
    expect(done).toBeGreaterThan(0);
    expect(done).toBeLessThan(600);
    await page.click("[data-continue]");
    await finished(page);
    await page.waitForSelector("[data-evidence-written]");
    await page.waitForSelector("[data-forecast=done]", { timeout: RUN });
    await page.waitForFunction(() => document.querySelector("[data-forecast]")?.textContent?.includes("from 600 trials"));
    await picture(page, "run-forecast");
  },
  2 * RUN,
);

test(
  "a page that is loaded again shows the run that goes on, from its beginning",
  async () => {
    desk = await Desk.open(workspace(demoPack));
    const page = await desk.page();
    await begin(page, SAMPLES);
    await page.reload();
    await go(page, "run");
    await page.waitForSelector("h1[data-run=running], h1[data-run=finished]", { timeout: RUN });
    await finished(page);
    expect(await page.locator("[data-evidence-written] li").count()).toBe(1);
  },
  2 * RUN,
);

/** Asks for another run while one goes on. */
async function queue(page: Page, samples: number): Promise<void> {
  await page.click("[data-another] summary");
  await settings(page, samples);
  await page.click("#start:enabled");
  await page.waitForSelector("[data-queue] li", { timeout: RUN });
}

const files = (page: Page, n: number) =>
  page.waitForFunction((n) => document.querySelectorAll("[data-file]").length === n, n, { timeout: RUN });

test(
  "a run that is asked for while another goes on waits, and begins when that one has finished, also when nobody looks",
  async () => {
    desk = await Desk.open(workspace(demoPack));
    const page = await desk.page();
    await begin(page, SAMPLES);
    await queue(page, 2);
    await picture(page, "run-queued");
    await accessible(page, "queued run");
    await page.reload();
    await go(page, "run");
    expect(await page.locator("[data-queue] li").count()).toBe(1);
    await page.goto("about:blank");
    const other = await desk.page();
    await go(other, "evidence");
    await files(other, 2);
    await go(other, "run");
    await other.waitForSelector("#start");
    expect(await other.locator("[data-queue]").count()).toBe(0);
  },
  2 * RUN,
);

test(
  "what waits begins in the page that watches, in its turn",
  async () => {
    desk = await Desk.open(workspace(demoPack));
    const page = await desk.page();
    await begin(page, SAMPLES / 2);
    await queue(page, SAMPLES);
    await page.waitForSelector("[data-queue]", { state: "detached", timeout: RUN });
    await page.waitForFunction(() => document.querySelector("[role=status]")?.textContent?.includes("of 600 trials"));
    await finished(page);
    await go(page, "evidence");
    await files(page, 2);
  },
  2 * RUN,
);

test(
  "pages show the same run, and how another one has ended it; many of them are no hindrance",
  async () => {
    desk = await Desk.open(workspace(demoPack));
    const first = await desk.page();
    const tabs: Page[] = [];
    // As tabs of one browser: they share its connections to the program.
    for (let tab = 0; tab < 4; tab++) {
      const page = await first.context().newPage();
      await page.goto(await desk.address());
      tabs.push(page);
    }
    await first.bringToFront();
    await begin(first, 4 * SAMPLES);
    for (const page of tabs) {
      // A tab that is not in front does not paint, and what is waited for is looked at when it paints.
      await page.bringToFront();
      await page.reload();
      await go(page, "run");
      await phase(page, "running");
    }
    await first.bringToFront();
    await first.click("#pause");
    for (const page of [first, ...tabs]) {
      await page.bringToFront();
      await phase(page, "paused");
    }
  },
  2 * RUN,
);

/** Milliseconds that the page may compute for a trial, on average. It takes three; when an event looked at every square, it froze. */
const A_TRIAL = 15;

test(
  "a page keeps up with a run of thousands of trials, and leaves the machine to it",
  async () => {
    desk = await Desk.open(workspace(demoPack));
    const page = await desk.page();
    await begin(page, 2000);
    const cells = (n: number) => document.querySelectorAll(".cell").length === n;
    await page.waitForFunction(cells, 2000 * ARMS.length);
    const done = async () => Number(/(\d+) of 6000 trials done/.exec((await page.textContent("[role=status]")) ?? "")?.[1] ?? 0);
    const before = await done();
    const enough = (n: number) =>
      Number(/(\d+) of 6000 trials done/.exec(document.querySelector("[role=status]")?.textContent ?? "")?.[1] ?? 0) >= n;
    const took = await computedUntil(page, () => page.waitForFunction(enough, before + 100, { timeout: RUN }));
    const trials = (await done()) - before;
    expect(took / trials, `${took.toFixed(0)} ms for ${trials} trials`).toBeLessThan(A_TRIAL);
    await picture(page, "run-thousands");
  },
  RUN,
);

test(
  "what the gates leave open fills the form",
  async () => {
    desk = await Desk.open(workspace(demoPack, someEvidence));
    const page = await desk.page();
    await go(page, "gate");
    await page.click("#missing");
    await page.waitForSelector("[data-wanted]");
    // Nothing is lost in 2 of 2 pairs: as many as prove it, and not fewer.
    expect(await page.inputValue("[name=n_samples]")).toBe("59");
    expect(await page.inputValue("[name=ladder]")).toBe("20");
    expect(await page.isChecked("[name=reuse]")).toBe(true);
    await picture(page, "run-wanted");
  },
  RUN,
);

test(
  "evidence that comes and goes is noticed",
  async () => {
    const folder = workspace(demoPack);
    desk = await Desk.open(folder);
    const page = await desk.page();
    await go(page, "evidence");
    await page.waitForSelector(".empty");
    // The folder is watched a moment after it is shown: what is copied before that is found on the next try.
    for (let copies = 0; (await page.locator("[data-file]").count()) === 0; copies++) {
      expect(copies).toBeLessThan(60);
      cpSync(EVIDENCE, join(folder, `copy-${copies}.json`));
      await page.waitForSelector("[data-file]", { timeout: 1000 }).catch(() => null);
    }
    const shown = await page.locator("[data-file]").count();
    cpSync(EVIDENCE, join(folder, "last.json"));
    await page.waitForFunction((n) => document.querySelectorAll("[data-file]").length > n, shown);
    rmSync(join(folder, "last.json"));
    await page.waitForFunction((n) => document.querySelectorAll("[data-file]").length === n, shown);
  },
  RUN,
);

test("the demo workspace has something to show in every place", async () => {
  desk = await Desk.open(null);
  const page = await desk.page();
  await page.click("#demo");
  await page.waitForSelector("[data-checkpoints]");
  await picture(page, "demo-preflight");
  for (const place of ["run", "evidence", "compare", "gate"]) {
    await go(page, place);
    await page.waitForSelector("main h1");
    expect(await page.locator(".empty").count()).toBe(0);
    await picture(page, `demo-${place}`);
  }
});
