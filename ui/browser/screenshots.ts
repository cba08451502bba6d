import { mkdirSync, writeFileSync } from "node:fs";
import { join, resolve } from "node:path";
import type { Page } from "playwright-core";
import { afterAll, beforeAll, expect, test } from "vitest";
import { copy, demoPack, Desk, drawn, go, kinds, READY, someEvidence, workspace } from "./desk";
import { lookAlikes } from "./evidence";
import { fewerColours } from "./png";

/** Where the pictures of the documentation are written: `npm run screenshots`. */
const FOLDER = resolve(process.env["SCREENSHOTS"] ?? join(import.meta.dirname, "../../docs/screenshots"));
/** Most that one may take in the repository, bytes. */
const MOST = 150_000;
const VIEWPORT = { width: 1240, height: 820 };
const LOOKS = {
  light: {},
  dark: { colorScheme: "dark" },
  zh: { locale: "zh-CN" },
} as const;

let desk: Desk;

async function picture(page: Page, name: string): Promise<void> {
  await drawn(page);
  const small = await fewerColours(desk.browser, await page.screenshot());
  writeFileSync(join(FOLDER, `${name}.png`), small);
  expect(small.length, `bytes of ${name}`).toBeLessThan(MOST);
}

beforeAll(async () => {
  mkdirSync(FOLDER, { recursive: true });
  const gemma = copy("tests/fixtures/gemma-3-270m", "evidence/gemma-3-270m");
  desk = await Desk.open(workspace(demoPack, lookAlikes, someEvidence, kinds, gemma));
});
afterAll(() => desk.close());

test.each(Object.keys(LOOKS) as (keyof typeof LOOKS)[])("every place, %s", async (look) => {
  const page = await desk.page({ viewport: VIEWPORT, ...LOOKS[look] });
  for (const [place, ready] of Object.entries(READY)) {
    await go(page, place);
    await page.waitForSelector(ready);
    await picture(page, `${place}-${look}`);
  }
  await go(page, "evidence");
  await page.fill("input[type=search]", "mac_ctx280");
  await page.click("tr[data-file] button.name");
  await page.waitForSelector("[data-findings]");
  await picture(page, `evidence-file-${look}`);
  await page.locator(".samples button.link").nth(8).click();
  await page.waitForSelector("[data-sample] .prompt mark");
  await page.locator(".samples").evaluate((table) => table.scrollIntoView());
  await picture(page, `evidence-sample-${look}`);
});

test("a run that has come to its end", async () => {
  const page = await desk.page({ viewport: VIEWPORT });
  await go(page, "run");
  await page.fill("input[name=ladder]", "20");
  await page.fill("input[name=n_samples]", "8");
  await page.click("#start:not(:disabled)");
  await page.waitForSelector("h1[data-run=finished]", { timeout: 300_000 });
  await page.locator(".cell.hit").first().click();
  await picture(page, "run-finished");
});

test("an error", async () => {
  const page = await desk.page({ viewport: VIEWPORT });
  await page.waitForSelector(READY.preflight);
  await page.keyboard.press("Control+o");
  await page.fill("input[name=path]", "/no/such/folder");
  await page.press("input[name=path]", "Enter");
  await page.waitForSelector("[role=alert]");
  await picture(page, "error");
});

test("nothing yet", async () => {
  const start = await Desk.open(null);
  const page = await start.page({ viewport: VIEWPORT });
  await page.waitForSelector(".empty");
  await picture(page, "empty-start");
  await start.close();
  const nothing = await Desk.open(workspace());
  const inside = await nothing.page({ viewport: VIEWPORT });
  await go(inside, "evidence");
  await inside.waitForSelector(".empty");
  await picture(inside, "empty-evidence");
  await nothing.close();
});
