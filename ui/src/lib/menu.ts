import { go, reopen, type Command } from "./commands";
import { t } from "./look.svelte";

/** One line of a native menu: `src-tauri/src/menu.rs` is its other side. */
export type MenuItem =
  | { item: "action"; id: string; text: string; key: string | null }
  | { item: "native"; role: Role; text: string }
  | { item: "separator" }
  | ({ item: "menu" } & Menu);

/** One menu. */
export interface Menu {
  text: string;
  items: MenuItem[];
}

type Role = keyof ReturnType<typeof t>["menu"]["roles"];

const SEPARATOR: MenuItem = { item: "separator" };

/** The menus of the bar. What a Mac's user expects in every program's menus is there on a Mac alone. */
export function menus(commands: Command[], mac: boolean): Menu[] {
  const words = t().menu;
  const action = ({ id, name, key }: Command): MenuItem => ({ item: "action", id, text: name, key: key ?? null });
  const actions = (...ids: string[]) => commands.filter(({ id }) => ids.includes(id)).map(action);
  const native = (...roles: Role[]): MenuItem[] => roles.map((role) => ({ item: "native", role, text: words.roles[role] }));
  const places = commands.filter(({ id }) => id.startsWith(go)).map(action);
  const recent = commands.filter(({ id }) => id.startsWith(reopen)).map(action);
  const file = [
    ...actions("open"),
    ...(recent.length > 0 ? [{ item: "menu", text: words.recent, items: recent } as const] : []),
    ...actions("demo"),
    SEPARATOR,
    ...actions("add", "read", "export"),
    SEPARATOR,
    ...(mac ? native("close-window") : [...actions("settings"), SEPARATOR, ...native("quit")]),
  ];
  const bar: Menu[] = [
    { text: words.file, items: file },
    { text: words.go, items: [...places, SEPARATOR, ...actions("palette")] },
    { text: words.run, items: actions("checks", "run", "pause", "stop") },
  ];
  if (!mac) return [...bar, { text: words.help, items: native("about") }];
  const app = [
    ...native("about"),
    SEPARATOR,
    ...actions("settings"),
    SEPARATOR,
    ...native("services"),
    SEPARATOR,
    ...native("hide", "hide-others", "show-all"),
    SEPARATOR,
    ...native("quit"),
  ];
  const edit = [...native("undo", "redo"), SEPARATOR, ...native("cut", "copy", "paste", "select-all")];
  const [fileMenu, ...others] = bar as [Menu, ...Menu[]];
  return [
    { text: "Kakeya Gate", items: app },
    fileMenu,
    { text: words.edit, items: edit },
    ...others,
    { text: words.window, items: native("minimize", "zoom", "fullscreen") },
  ];
}
