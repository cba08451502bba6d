import type { Page } from "playwright-core";
import { afterAll, beforeAll, expect, test } from "vitest";
import { demoPack, Desk, go, kinds, picture, READY, someEvidence, workspace } from "./desk";

let desk: Desk;
beforeAll(async () => {
  desk = await Desk.open(workspace(demoPack, someEvidence, kinds));
});
afterAll(() => desk.close());

/** What has the focus: how it is called, and whether that can be seen. */
function focused(page: Page): Promise<{ name: string; seen: boolean; inside: boolean; at: number }> {
  return page.evaluate(() => {
    const element = document.activeElement as HTMLElement;
    const { outlineStyle, outlineWidth } = getComputedStyle(element);
    const box = element.getBoundingClientRect();
    const inView = box.bottom > 0 && box.top < innerHeight && box.right > 0 && box.left < innerWidth;
    return {
      name: `${element.tagName} ${element.getAttribute("aria-label") ?? element.textContent.trim()}`.slice(0, 60),
      seen: outlineStyle !== "none" && parseFloat(outlineWidth) > 0 && inView,
      inside: element.closest("dialog") !== null,
      at: [...document.querySelectorAll("*")].indexOf(element),
    };
  });
}

test("Tab goes through every place in the order in which it is read, and shows where it is", async () => {
  const page = await desk.page();
  for (const [place, ready] of Object.entries(READY)) {
    await go(page, place);
    await page.waitForSelector(ready);
    await page.focus(`[data-go=${place}]`);
    const steps = await page.locator("main :is(button, input, select, textarea, summary, [tabindex='0']):visible:enabled").count();
    let before = -1;
    for (let i = 0; i < Math.min(steps, 40); i++) {
      await page.keyboard.press("Tab");
      const { name, seen, at } = await focused(page);
      if (name.startsWith("BODY")) break;
      expect(seen, `${place}: the focus on ${name} can be seen`).toBe(true);
      expect(at, `${place}: ${name} comes in order`).toBeGreaterThan(before);
      before = at;
    }
    await picture(page, `focus-${place}`);
  }
});

/** Ways into each dialog: the place, and the button that opens it. */
const DIALOGS: [string, string][] = [
  ["preflight", "nav .foot button:first-child"],
  ["preflight", "nav .foot button:last-child"],
  ["preflight", "nav .brand button"],
  ["preflight", ".counterpart button"],
  ["run", "#add-target"],
  ["evidence", "#add"],
  ["compare", "main .bar [aria-haspopup=dialog]"],
  ["gate", "#export"],
];

test("a dialog keeps the focus, Escape closes it, and the focus returns to where it was", async () => {
  const page = await desk.page();
  await page.waitForSelector(READY.preflight);
  for (const [place, button] of DIALOGS) {
    await go(page, place);
    await page.waitForSelector(READY[place as keyof typeof READY]);
    for (const way of ["Escape", "Enter"]) {
      await page.focus(button);
      await page.keyboard.press("Enter");
      await page.waitForSelector("dialog[open]");
      for (let i = 0; i < 12; i++) {
        await page.keyboard.press("Tab");
        const { inside, name } = await focused(page);
        // Between the last and the first, the focus is on the browser's own controls.
        expect(inside || name.startsWith("BODY"), `${button}: ${name} is inside`).toBe(true);
      }
      // The preview of a report is a document of its own: keys that are pressed in it are its.
      await page.focus("dialog .close");
      await page.keyboard.press(way);
      await page.waitForSelector("dialog", { state: "detached" });
      expect(await page.evaluate((button) => document.activeElement === document.querySelector(button), button), `${button}: ${way} gives the focus back`).toBe(true);
    }
  }
});

test("the main job needs no pointer", async () => {
  const page = await desk.page();
  await page.waitForSelector(READY.preflight);
  await page.keyboard.press("Control+3");
  await page.waitForSelector(READY.evidence);
  await page.focus("tr[data-file] input");
  await page.keyboard.press("Space");
  await page.keyboard.press("ArrowDown");
  await page.keyboard.press("Space");
  expect(await page.locator("tr[data-file] input:checked").count(), "arrows go from row to row").toBe(2);
  await page.keyboard.press("Control+5");
  await page.waitForSelector(READY.gate);
  await page.keyboard.press("Control+e");
  await page.waitForSelector("[data-preview=html] iframe");
  await page.keyboard.press("Escape");
  await page.waitForSelector("dialog", { state: "detached" });
  await page.keyboard.press("Control+4");
  await page.waitForSelector(READY.compare);
});

test("nothing moves by itself, also where motion is welcome: it would take from what is measured", async () => {
  const page = await desk.page({ reducedMotion: "no-preference" });
  await page.waitForSelector("nav .dot");
  const moving = await page.evaluate(() => {
    const [dot] = document.querySelectorAll("nav .dot");
    if (dot) dot.className = dot.className.replace(/\b(pass|warn|fail|neutral|undecided)\b/, "busy");
    return document.getAnimations().length;
  });
  expect(moving).toBe(0);
});
