import { LANGUAGES, look, t, THEMES, type Language } from "./look.svelte";
import { PLACES, type Session } from "./session.svelte";
import { visible, within } from "./text";

/** One line of the palette. */
export interface Choice {
  name: string;
  /** What kind of thing it is, where that is not obvious. */
  kind?: string;
  /** The key that is pressed with ⌘ or Ctrl. */
  key?: string;
  act: () => void;
}

/** Something that can be done: from the palette, by its shortcut, from a native menu. */
export interface Command extends Choice {
  /** Its name for menus. */
  id: string;
}

/** What only the window itself can open. */
export interface Dialogs {
  openPalette: () => void;
  openSettings: () => void;
}

/** How the names of places and of workspaces begin. */
export const go = "go:";
export const reopen = "reopen:";

/** Everything that can be done now. */
export function commands(session: Session, dialogs: Dialogs): Command[] {
  const words = t().palette;
  const opened = session.workspace.value !== null;
  const places = PLACES.map((place, i) => ({
    id: go + place,
    name: words.go(t().places[place]),
    key: String(i + 1),
    act: () => (session.place = place),
  }));
  const list: Command[] = [...places, { id: "open", name: words.open, key: "o", act: () => void session.chooseWorkspace() }];
  list.push({ id: "demo", name: words.demo, act: () => void session.openDemo() });
  if (opened) {
    list.push({ id: "add", name: words.add, act: () => void session.chooseEvidence() });
    list.push({ id: "read", name: words.read, act: () => void session.refreshEvidence() });
    list.push({ id: "export", name: words.export, key: "e", act: () => session.openExport() });
  }
  if (session.pack !== null) list.push({ id: "checks", name: words.checks, act: () => void session.checkAll() });
  if (session.spec) list.push({ id: "run", name: words.start, key: "r", act: () => session.askToRun() });
  if (session.running) {
    list.push({ id: "pause", name: words.pause, act: () => session.pauseRuns() });
    list.push({ id: "stop", name: words.stop, key: ".", act: () => session.cancelRuns() });
  }
  const others = session.recent.filter((folder) => folder !== session.workspace.value?.root);
  list.push(
    ...others.map((folder) => ({ id: reopen + folder, name: words.reopen(visible(folder)), act: () => void session.open(folder) })),
  );
  list.push(
    ...THEMES.map((theme) => ({
      id: `theme:${theme}`,
      name: words.theme(t().settings[theme]),
      act: () => look.setTheme(theme),
    })),
  );
  for (const language of Object.keys(LANGUAGES) as Language[]) {
    const name = words.language(LANGUAGES[language].language);
    list.push({ id: `language:${language}`, name, act: () => look.setLanguage(language) });
  }
  list.push({ id: "settings", name: words.settings, key: ",", act: dialogs.openSettings });
  list.push({ id: "palette", name: t().settings.palette, key: "k", act: dialogs.openPalette });
  return list;
}

/** Every evidence file, as something to open. */
export function files(session: Session): Choice[] {
  const root = session.workspace.value?.root ?? "";
  const rows = session.evidence.value?.rows ?? [];
  const kind = t().palette.file;
  return rows.map(({ path }) => ({ name: within(root, path), kind, act: () => session.openEvidence(path) }));
}
