import type { Page } from "playwright-core";
import { afterAll, beforeAll, expect, test } from "vitest";
import { Desk, demoPack, file, go, picture, workspace } from "./desk";
import { evidence } from "./evidence";

/** Turns all that follows it in its paragraph, and is never closed. */
const OVERRIDE = "\u202egnitfel \u2066\u2067 \u001b[31m";
const ARABIC = "الرمز السري هو BETA-1409 شكرا";
const EMOJI = "👩‍👩‍👧 🇨🇳 密码是";

let desk: Desk;
beforeAll(async () => {
  const extra = { kind: `k3_integrated_niah_acceptance${OVERRIDE}`, verifier: OVERRIDE, [OVERRIDE]: OVERRIDE };
  const texts = [OVERRIDE, ARABIC, EMOJI];
  desk = await Desk.open(
    workspace(
      demoPack,
      file(`evidence/a${OVERRIDE.replace("\u001b", "")}.json`, evidence(texts, { ...extra, kind: "k3_integrated_niah_acceptance" })),
      file("evidence/رمز.json", evidence(texts.toReversed())),
      file("evidence/kind.json", evidence(texts, extra)),
      file("evidence/broken\u202e.json", "["),
    ),
  );
});
afterAll(() => desk.close());

/** What of the page, texts and tooltips, holds a character that acts unseen. */
function unseen(page: Page): Promise<string[]> {
  return page.evaluate(() => {
    const hidden = /(?![\t\n\r])\p{Cc}|[\u202a-\u202e\u2066-\u2069]/u;
    const found: string[] = [];
    const texts = document.createTreeWalker(document, NodeFilter.SHOW_TEXT);
    while (texts.nextNode()) if (hidden.test(texts.currentNode.nodeValue ?? "")) found.push(texts.currentNode.nodeValue ?? "");
    for (const element of document.querySelectorAll("[title], [aria-label], [alt], [placeholder]")) {
      for (const { name, value } of element.attributes) {
        if (["title", "aria-label", "alt", "placeholder"].includes(name) && hidden.test(value)) found.push(`${name}: ${value}`);
      }
    }
    return found;
  });
}

/** Where the first and the last letter of `words` stand; from left to right, the first is on the left. */
function runs(page: Page, words: string): Promise<"right" | "left" | "nowhere"> {
  return page.evaluate((words) => {
    const texts = document.createTreeWalker(document, NodeFilter.SHOW_TEXT);
    while (texts.nextNode()) {
      const at = texts.currentNode.nodeValue?.indexOf(words) ?? -1;
      if (at < 0) continue;
      const x = (i: number) => {
        const range = document.createRange();
        range.setStart(texts.currentNode, i);
        range.setEnd(texts.currentNode, i + 1);
        return range.getBoundingClientRect().x;
      };
      return x(at) < x(at + words.length - 1) ? "right" : "left";
    }
    return "nowhere";
  }, words);
}

test("no text of a file turns or hides what stands beside it", async () => {
  const page = await desk.page();
  const clean = async (where: string) => expect(await unseen(page), where).toEqual([]);
  await go(page, "evidence");
  await page.waitForSelector("tr[data-file='رمز.json']");
  await picture(page, "text-list");
  await clean("list");
  expect(await page.textContent("main")).toContain("‹U+202E›");
  expect(await runs(page, "gnitfel"), "an override acts no more").toBe("right");
  expect(await runs(page, ".json"), "nor on what follows it").toBe("right");

  await page.click("tr[data-file='رمز.json'] button.name");
  await page.waitForSelector("[data-findings]");
  for (const i of [0, 1, 2]) {
    await page.locator(".samples button.link").nth(i).click();
    await page.waitForSelector(`[data-sample='${String(i)}']`);
    await clean(`sample ${String(i)}`);
    await picture(page, `text-sample-${String(i)}`);
  }
  await page.locator(".samples button.link").nth(1).click();
  await page.waitForSelector("[data-sample='1'] .text");
  expect(await runs(page, "السري"), "Arabic runs to the left").toBe("left");
  expect(await runs(page, "BETA-1409"), "a code in it to the right").toBe("right");
  expect(await page.textContent("[data-sample] .text mark, [data-sample='1'] .text")).toContain("BETA-1409");
  await page.click("#back");
  await page.click("tr[data-file='kind.json'] button.name");
  await page.waitForSelector("[data-findings]");
  await page.locator("details:not([open]) > summary").evaluateAll((all) => all.forEach((summary) => (summary as HTMLElement).click()));
  await clean("file");
  await picture(page, "text-file");

  await go(page, "compare");
  await page.waitForSelector("[data-comparison]");
  await page.locator("[data-matrix] button.link").first().click();
  await page.waitForSelector("[data-diff]");
  await page.locator("summary").evaluateAll((all) => all.forEach((summary) => (summary as HTMLElement).click()));
  await clean("compare");
  await picture(page, "text-compare");

  await go(page, "gate");
  await page.waitForSelector("[data-cell]");
  await clean("gate");
  await picture(page, "text-gate");
  await page.click("#export");
  await page.check("input[name=format][value=markdown]");
  await page.waitForSelector("[data-preview=markdown] pre");
  await clean("export");
  await page.keyboard.press("Escape");
  await go(page, "preflight");
  await page.waitForSelector("[data-preflight=done]");
  await page.keyboard.press("Control+k");
  await clean("preflight and palette");
});
