import { existsSync } from "node:fs";
import { join } from "node:path";
import type { Page } from "playwright-core";
import { afterEach, expect, test } from "vitest";
import { accessible, computed, demoPack, Desk, file, go, kinds, picture, READY, someEvidence, Times, workspace } from "./desk";
import { evidence } from "./evidence";

let desk: Desk | null = null;
afterEach(async () => {
  await desk?.close();
  desk = null;
});

const PLACES = ["preflight", "run", "evidence", "compare", "gate"];

test("nothing is open yet", async () => {
  desk = await Desk.open(null);
  const page = await desk.page();
  await page.waitForSelector(".empty");
  await picture(page, "empty-start");
  await accessible(page, "start");
});

test("an empty folder: every place says what it needs", async () => {
  desk = await Desk.open(workspace());
  const page = await desk.page();
  for (const place of PLACES) {
    await go(page, place);
    await page.waitForSelector(".empty");
    await picture(page, `empty-${place}`);
    await accessible(page, `empty ${place}`);
  }
  const other = await desk.page({ locale: "zh-CN", colorScheme: "dark" });
  for (const place of PLACES) {
    await go(other, place);
    await other.waitForSelector(".empty");
    await picture(other, `empty-zh-dark-${place}`);
    await accessible(other, `empty ${place} in Chinese and dark`);
  }
});

test("the program is gone: every place says so", async () => {
  desk = await Desk.open(workspace(demoPack, someEvidence, kinds));
  const page = await desk.page({ colorScheme: "dark" });
  await page.waitForSelector(READY.preflight);
  await go(page, "evidence");
  await page.waitForSelector(READY.evidence);
  desk.kill();
  for (const [place, button] of [["compare"], ["gate"], ["run"], ["preflight", "main .bar button.go"], ["evidence", "#read"]] as const) {
    await go(page, place);
    if (button) await page.click(button);
    await page.locator("[role=alert]", { hasText: "no longer answers" }).first().waitFor();
    await picture(page, `gone-${place}`);
    await accessible(page, `gone ${place}`);
  }
});

const ATTACK = `<img src=x onerror="document.title='owned'"><script>document.title='owned'</script>`;

test("hostile and foreign texts are shown as text, whatever their length and direction", async () => {
  const long = "the secret ".repeat(1000);
  const texts = [ATTACK, "\u001b[31mred\u001b[0m \u202egnitfel", "קוד סודי BETA-1409 שלום", "👩‍👩‍👧 🇨🇳 密码是", long];
  const name = `${"very-long-file-name-".repeat(11)}.json`;
  desk = await Desk.open(
    workspace(
      demoPack,
      file("evidence/hostile.json", evidence(texts, { verifier: ATTACK, [ATTACK]: ATTACK })),
      file("evidence/twin.json", evidence(texts.toReversed())),
      file(`evidence/${name}`, evidence(["BETA-1409"])),
      file("evidence/empty.json", ""),
      file("evidence/list.json", "[1, 2]"),
    ),
  );
  const page = await desk.page();
  await go(page, "evidence");
  await page.waitForSelector("tr[data-file='hostile.json']");
  expect(await page.textContent("main")).toContain("empty.json is empty");
  await picture(page, "hostile-list");
  await accessible(page, "hostile list");
  await page.click("tr[data-file='hostile.json'] button.name");
  await page.waitForSelector("[data-findings]");
  for (const i of texts.keys()) {
    await page.locator(".samples button.link").nth(i).click();
    await page.waitForSelector(`[data-sample='${i}']`);
  }
  await picture(page, "hostile-sample");
  await go(page, "compare");
  await page.waitForSelector("[data-comparison]");
  await page.locator("[data-matrix] button.link").first().click();
  await page.waitForSelector("[data-diff] del");
  await picture(page, "hostile-compare");
  await go(page, "gate");
  await page.waitForSelector("[data-cell]");
  await page.click("#export");
  await page.waitForSelector("iframe");
  await page.keyboard.press("Escape");
  await page.fill("textarea[name=notes]", long + ATTACK);
  await page.click("#export");
  await page.check("input[name=format][value=markdown]");
  await page.waitForSelector("[data-preview=markdown] pre");
  await picture(page, "hostile-notes");
  expect(await page.title()).toBe("Kakeya Gate");
  expect(await page.locator("main img[src=x], main script").count()).toBe(0);
  expect(await wider(page), "nothing widens the page").toBe(false);

  const other = await desk.page({ locale: "zh-CN", colorScheme: "dark", viewport: { width: 900, height: 700 } });
  for (const [place, ready] of Object.entries(READY)) {
    await go(other, place);
    await other.waitForSelector(ready);
    await picture(other, `hostile-zh-dark-${place}`);
    await accessible(other, `hostile ${place} in Chinese and dark`);
    expect(await wider(other), `nothing widens ${place}`).toBe(false);
  }
  await go(other, "evidence");
  const told = other.locator("[role=alert]", { hasText: "证据文件是空的" });
  expect(await told.locator("[lang=en]").textContent(), "the program's own words stand beside").toContain("empty.json is empty");
});

/** Whether the page, or its main part, is wider than the window. */
function wider(page: Page): Promise<boolean> {
  return page.evaluate(() => [document.documentElement, document.querySelector("main")].some((part) => part && part.scrollWidth > part.clientWidth));
}

test("ten thousand files: few rows are in the document, the list answers at once", async () => {
  const many = Array.from({ length: 10_000 }, (_, i) => file(`evidence/${String(i % 97)}/f${String(i)}.json`, evidence([`BETA-${String(i)}`])));
  desk = await Desk.open(workspace(...many));
  const page = await desk.page();
  await go(page, "evidence");
  await page.waitForSelector("tr[data-file]", { timeout: 120_000 });
  expect(await page.getAttribute("table", "aria-rowcount")).toBe("10001");
  expect(await page.locator("tr[data-file]").count()).toBeLessThan(60);
  await picture(page, "many");
  const times = new Times();
  const click = (selector: string) => document.querySelector<HTMLElement>(selector)?.click();
  const scroll = (to: number) => document.querySelector("[role=region]")?.scrollTo(0, to);
  for (let round = 0; round < 3; round++) {
    times.add("jump of 400 rows", await computed(page, scroll, 20_000));
    times.add("scroll of 6 rows", await computed(page, scroll, 20_300));
    for (const column of ["file", "verdict", "rung"]) times.add(`sort by ${column}`, await computed(page, click, `[data-sort=${column}]`));
    times.add("narrow down", await computed(page, type, "f9999.json"));
    const shown = await page.$$eval("tr[data-file]", (rows) => rows.map((row) => row.getAttribute("data-file")));
    expect(shown).toEqual(["f9999.json"]);
    times.add("all again", await computed(page, type, ""));
    for (const place of ["gate", "run", "preflight", "compare", "evidence"]) {
      times.add(`to ${place}`, await computed(page, click, `[data-go=${place}]`));
      await page.waitForSelector(`main[data-place=${place}]`);
    }
  }
  console.info(times.told());
  expect(times.over((what) => (what.startsWith("scroll") ? 50 : 100)), "milliseconds of the page's own time").toEqual([]);
  await page.fill("input[type=search]", "f9999.json");
  await page.click("tr[data-file='f9999.json'] button.name");
  await page.waitForSelector("[data-findings]");
});

/** What typing into the filter does. */
function type(text: string): void {
  const field = document.querySelector<HTMLInputElement>("input[type=search]");
  if (!field) return;
  field.value = text;
  field.dispatchEvent(new Event("input", { bubbles: true }));
}

test("an error of the program is told with what to do", async () => {
  desk = await Desk.open(workspace(demoPack));
  const page = await desk.page();
  await page.waitForSelector("[data-preflight=done]");
  await page.keyboard.press("Control+o");
  await page.fill("input[name=path]", "/no/such/folder");
  await page.press("input[name=path]", "Enter");
  await page.waitForSelector("[role=alert]");
  expect(await page.textContent("[role=alert]")).toContain("choose a folder that exists");
  await picture(page, "error");
  await accessible(page, "error");
  expect(await page.locator("[data-preflight=done]").count(), "the workspace before stays open").toBe(1);
  await page.click("[role=alert] button");
  await page.waitForSelector("[role=alert]", { state: "detached" });
  expect(existsSync(join("/no", "such"))).toBe(false);
});
