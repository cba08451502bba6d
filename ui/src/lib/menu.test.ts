import { expect, test } from "vitest";
import { commands } from "./commands";
import { look } from "./look.svelte";
import { menus, type Menu, type MenuItem } from "./menu";
import type { Session } from "./session.svelte";

/** A window in which everything can be done. */
const session = {
  workspace: { value: { root: "/w" } },
  pack: "/w/pack",
  spec: {},
  running: true,
  recent: ["/w", "/other", "/third"],
} as unknown as Session;
const dialogs = { openPalette: () => undefined, openSettings: () => undefined };

const text = (value: unknown) => `${JSON.stringify(value, null, 2)}\n`;
const items = (of: Menu[]): MenuItem[] =>
  of.flatMap((menu) => menu.items.flatMap((item) => (item.item === "menu" ? items([item]) : [item])));
const ids = (of: Menu[]) => items(of).flatMap((item) => (item.item === "action" ? [item.id] : []));

// `src-tauri/src/menu.rs` reads the same files.
test("the menus are what the window's shell is tested with", async () => {
  await expect(text(menus(commands(session, dialogs), false))).toMatchFileSnapshot("menus.linux.json");
  await expect(text(menus(commands(session, dialogs), true))).toMatchFileSnapshot("menus.mac.json");
});

test("every item is something that can be done, and every shortcut is in a menu once", () => {
  const list = commands(session, dialogs);
  for (const mac of [false, true]) {
    const shown = ids(menus(list, mac));
    expect(shown.length).toBe(new Set(shown).size);
    expect(list.map(({ id }) => id)).toEqual(expect.arrayContaining(shown));
    const withKey = list.filter(({ key }) => key !== undefined).map(({ id }) => id);
    expect(shown).toEqual(expect.arrayContaining(withKey));
  }
});

test("a workspace that is open is not among the recent ones", () => {
  expect(ids(menus(commands(session, dialogs), true)).filter((id) => id.startsWith("reopen:"))).toEqual([
    "reopen:/other",
    "reopen:/third",
  ]);
});

test("menus speak the language of the pages", () => {
  look.language = "zh";
  const titles = menus(commands(session, dialogs), true).map((menu) => menu.text);
  look.language = "en";
  expect(titles).toEqual(["Kakeya Gate", "文件", "编辑", "前往", "运行", "窗口"]);
});
