import { readFileSync } from "node:fs";
import { join } from "node:path";
import type { Page } from "playwright-core";
import { afterAll, beforeAll, expect, test } from "vitest";
import { accessible, computed, demoPack, Desk, go, kinds, picture, READY, someEvidence, Times, workspace } from "./desk";

let desk: Desk;
let folder: string;
beforeAll(async () => {
  folder = workspace(demoPack, someEvidence, kinds);
  desk = await Desk.open(folder);
});
afterAll(() => desk.close());

async function everyPlace(page: Page, look: string): Promise<void> {
  for (const [place, ready] of Object.entries(READY)) {
    await go(page, place);
    await page.waitForSelector(ready);
    await picture(page, `${look}-${place}`);
    await accessible(page, `${look} ${place}`);
  }
  await go(page, "evidence");
  await page.click("tr[data-file] button.name");
  await page.waitForSelector("[data-findings]");
  await picture(page, `${look}-evidence-file`);
  await accessible(page, `${look} evidence file`);
}

test("every place in the light", async () => everyPlace(await desk.page(), "light"));
test("every place in the dark", async () => everyPlace(await desk.page({ colorScheme: "dark" }), "dark"));

test("every place in Chinese, also a narrow window", async () => {
  const page = await desk.page({ locale: "zh-CN", viewport: { width: 900, height: 700 } });
  await page.waitForSelector(READY.preflight);
  expect(await page.getAttribute("html", "lang")).toBe("zh-Hans");
  expect(await page.textContent("h1")).toBe("预检");
  await everyPlace(page, "zh");
});

test("going from place to place is at once", async () => {
  const page = await desk.page();
  const times = new Times();
  for (const round of ["first", "again", "again", "again"]) {
    for (const [place, ready] of Object.entries(READY)) {
      const took = await computed(page, (place) => document.querySelector<HTMLElement>(`[data-go=${place}]`)?.click(), place);
      await page.waitForSelector(ready);
      times.add(`${place} ${round}`, took);
    }
  }
  console.info(times.told());
  // The first time an answer of the program may come, and be shown, meanwhile.
  expect(times.over((what) => (what.endsWith("again") ? 100 : 1000)), "milliseconds of the page's own time").toEqual([]);
});

test("what the program says follows the language that is chosen", async () => {
  const page = await desk.page();
  await page.waitForSelector("[data-preflight=done]");
  await go(page, "gate");
  await page.waitForSelector('[data-cell]:has-text("Restoration ran")');
  await page.keyboard.press("Control+,");
  await page.check("input[name=language][value=zh]");
  await page.keyboard.press("Escape");
  await page.waitForSelector('[data-cell]:has-text("恢复已执行")');
  await go(page, "preflight");
  await page.waitForSelector('[data-check="tokenizer-files"]:has-text("分词器可加载")');
});

test("language and appearance are chosen and remembered", async () => {
  const page = await desk.page();
  await page.waitForSelector("main[data-place]");
  await page.keyboard.press("Control+,");
  await accessible(page, "settings");
  await page.check("input[name=theme][value=dark]");
  await page.check("input[name=language][value=zh]");
  await picture(page, "settings");
  await page.keyboard.press("Escape");
  await page.reload();
  await page.waitForSelector(READY.preflight);
  expect(await page.getAttribute("html", "data-ground")).toBe("dark");
  expect(await page.textContent("h1")).toBe("预检");
});

test("the list sorts, narrows down and selects; a map is drawn over the selection", async () => {
  const page = await desk.page();
  await go(page, "evidence");
  await page.waitForSelector("tr[data-file]");
  const names = () => page.$$eval("tr[data-file]", (rows) => rows.map((row) => row.getAttribute("data-file")));
  const before = await names();
  await page.click("[data-sort=file]");
  expect(await names()).toEqual(before.toReversed());
  expect(await page.getAttribute("th.file", "aria-sort")).toBe("descending");
  await page.fill("input[type=search]", "no such file");
  expect(await names()).toEqual([]);
  await page.fill("input[type=search]", "");
  await page.selectOption("select[name=verdict]", "not-a-gate-report");
  expect((await names()).length).toBeLessThan(before.length);
  await page.selectOption("select[name=verdict]", "");
  await page.fill("input[type=search]", "k3_integrated");
  const ticks = page.locator("tr[data-file] input[type=checkbox]");
  await ticks.nth(0).check();
  await ticks.nth(1).check();
  await page.click("#map");
  await page.waitForSelector("[data-map] [data-figure=depths] img");
  await picture(page, "evidence-map");
  await accessible(page, "map");
  await page.click("#compare");
  await page.waitForSelector("[data-comparison]");
  expect(await page.locator("[data-compared]").count()).toBe(2);
});

test("a file: findings lead to the line, a sample shows its prompt with the needle, arrows move", async () => {
  const page = await desk.page();
  await go(page, "evidence");
  await page.fill("input[type=search]", "controls k3_integrated");
  await page.focus("tr[data-file] button.name");
  await page.keyboard.press("Enter");
  await page.waitForSelector("[data-findings]");
  await page.locator("[data-findings] summary").first().click({ force: true });
  const jump = page.locator("[data-jump]:visible").first();
  await jump.click();
  await page.waitForSelector("[data-line].marked");
  await picture(page, "evidence-jump");
  await page.locator(".samples button.link").first().click();
  await page.waitForSelector("[data-sample='0'] .prompt mark");
  const needle = await page.textContent("[data-sample] .prompt mark");
  expect(needle).toContain("secret code is");
  expect(await page.locator("[data-sample] .prompt .evicted").count()).toBeGreaterThan(0);
  await page.locator("[data-sample]").scrollIntoViewIfNeeded();
  await picture(page, "evidence-sample");
  await accessible(page, "sample");
  await page.fill("input[name=find]", "gate");
  await page.press("input[name=find]", "Enter");
  expect(await page.textContent(".marked code")).toContain("gate");
});

test("a comparison: charts say their values, texts are diffed, any number of files", async () => {
  const page = await desk.page();
  await go(page, "compare");
  await page.waitForSelector("[data-comparison]");
  await page.click("main .bar [aria-haspopup=dialog]");
  await page.keyboard.type("controls");
  await picture(page, "compare-add");
  await page.keyboard.press("Enter");
  await page.waitForFunction(() => document.querySelectorAll("[data-compared]").length === 3);
  await page.waitForSelector("main [role=group] button");
  await page.locator("[data-figure=throughput] .chart").hover({ position: { x: 240, y: 44 } });
  await page.waitForSelector("[data-figure=throughput] .value");
  expect(await page.textContent("[data-figure=throughput] .value")).toContain("tokens/s");
  await picture(page, "compare-chart-value");
  await page.locator("[data-matrix] button.link").first().click();
  await page.waitForSelector("[data-diff]");
  await page.locator("[data-diff]").scrollIntoViewIfNeeded();
  await picture(page, "compare-diff");
  await accessible(page, "comparison");
  for (const kind of ["SVG", "PNG", "CSV"]) {
    const [download] = await Promise.all([
      page.waitForEvent("download"),
      page.locator("[data-figure=recall] .save button", { hasText: kind }).click(),
    ]);
    const bytes = readFileSync(await download.path());
    const head = { SVG: "<svg", PNG: "PNG", CSV: "file,rung" }[kind] ?? "";
    expect(bytes.subarray(0, 40).toString("latin1")).toContain(head);
  }
});

test("a report is previewed, copied and saved in every format", async () => {
  const page = await desk.page();
  await go(page, "gate");
  await page.waitForSelector("[data-policy]");
  await page.fill("input[name=reviewer]", "Ada 审阅人");
  await page.fill("textarea[name=notes]", "<b>read</b> & weighed");
  await page.keyboard.press("Control+e");
  const heads: Record<string, string> = { html: "<!DOCTYPE html>", markdown: "## Gate:", junit: "<?xml", json: "{\n" };
  for (const [format, head] of Object.entries(heads)) {
    await page.check(`input[name=format][value=${format}]`);
    await page.waitForSelector(`[data-preview=${format}] :is(pre, iframe)`);
    await picture(page, `export-${format}`);
    const [download] = await Promise.all([page.waitForEvent("download"), page.click("#save")]);
    const text = readFileSync(await download.path(), "utf8");
    expect(text.startsWith(head), `${format}: ${text.slice(0, 40)}`).toBe(true);
    expect(text, format).toContain("Ada 审阅人");
    expect(text.includes("<b>read</b>"), `${format} keeps notes as text`).toBe(format === "json");
  }
  await accessible(page, "export");
  const words = await page.frameLocator("iframe").locator("h1").allTextContents().catch(() => []);
  expect(words).toEqual([]);
  await page.check("input[name=format][value=html]");
  await page.waitForSelector("iframe");
  expect(await page.frameLocator("iframe").locator("h1").textContent()).toContain("Gate");
});

test("the palette goes anywhere by keyboard", async () => {
  const page = await desk.page();
  await page.waitForSelector("main[data-place]");
  await page.keyboard.press("Control+k");
  await page.keyboard.type("go to gate");
  await picture(page, "palette");
  await accessible(page, "palette");
  await page.keyboard.press("Enter");
  await page.waitForSelector("main[data-place=gate]");
  await page.keyboard.press("Control+3");
  await page.waitForSelector("main[data-place=evidence]");
});

test("another workspace is opened by its path, completed as it is typed", async () => {
  const page = await desk.page();
  await page.waitForSelector(READY.preflight);
  await page.keyboard.press("Control+o");
  await page.fill("input[name=path]", `${folder}/evid`);
  await page.waitForFunction(() => document.querySelectorAll("dialog li button").length === 1);
  await page.press("input[name=path]", "Tab");
  expect(await page.inputValue("input[name=path]")).toBe(`${folder}/evidence/`);
  await picture(page, "path");
  await accessible(page, "path");
  await page.press("input[name=path]", "Enter");
  await page.waitForFunction(() => document.querySelector("nav .link")?.textContent?.includes("evidence"));
});

test("files that are dropped do not replace the page: their path is asked for", async () => {
  const page = await desk.page();
  await page.waitForSelector(READY.preflight);
  const devtools = await page.context().newCDPSession(page);
  const drag = (type: "dragEnter" | "dragOver" | "drop") =>
    devtools.send("Input.dispatchDragEvent", { type, x: 600, y: 400, data: { items: [], files: [join(folder, "evidence/kinds/junit.json")], dragOperationsMask: 1 } });
  await drag("dragEnter");
  await drag("dragOver");
  await page.waitForSelector(".drop");
  expect(await page.textContent(".drop")).toContain("path");
  await picture(page, "drop");
  await page.dispatchEvent("main", "dragleave");
  await page.waitForSelector(".drop", { state: "detached" });
  await drag("dragEnter");
  await drag("dragOver");
  await drag("drop");
  await page.waitForSelector("main[data-place=evidence]");
  expect(await page.inputValue("dialog input[name=path]")).toBe(`${folder}/`);
  expect(await page.locator(".drop").count()).toBe(0);
  await page.keyboard.press("Escape");
  await page.waitForSelector("dialog", { state: "detached" });
  expect(page.url()).toContain("127.0.0.1");
});

test("the main job runs: a live grid, then evidence", async () => {
  const page = await desk.page();
  await go(page, "run");
  await page.fill("input[name=ladder]", "20");
  await page.fill("input[name=n_samples]", "2");
  await page.click("#start:not(:disabled)");
  await page.waitForSelector(".cell.hit", { timeout: 120_000 });
  await picture(page, "run-live");
  expect(await page.evaluate(() => document.getAnimations().length), "nothing moves where that is not wished for").toBe(0);
  await accessible(page, "live run");
  await page.waitForSelector("h1[data-run=finished]", { timeout: 120_000 });
  await page.focus("[data-rung] .cell[tabindex='0']");
  await page.keyboard.press("ArrowRight");
  await page.waitForSelector(".answer");
  const looked = () => page.evaluate(() => document.activeElement?.getAttribute("data-trial"));
  expect(await looked(), "arrows go from square to square").toBe("oracle/1");
  await page.keyboard.press("ArrowDown");
  expect(await looked()).toBe("sink-window/1");
  await page.click("[data-evidence-written] button");
  await page.waitForSelector("[data-findings]");
  expect(join(folder, "evidence")).toContain(folder);
});
